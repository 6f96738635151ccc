"""Figures of a run. Positions are drawn only on pictures whose coordinates are known."""

import functools
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from palpate import pictures
from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.data.labelled import Labelled
from palpate.data.transitions import Transitions
from palpate.pictures import illustrate
from palpate.representation import Representation
from palpate.runlog import FIGURES

pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact")


@functools.cache
def model() -> Representation:
    triples = collect("palpate/Sprites-v0", 60, size=20)
    return fit(triples, steps=2, batch_size=16, progress=False, device="cpu", encoder="small")


def drawn(folder: Path, labelled: Labelled) -> set[str]:
    illustrate(folder, model(), labelled, "a run")
    names = {path.stem for path in (folder / "figures").glob("*.png")}
    assert names <= set(FIGURES)  # an overwriting run removes them
    return names


@pytest.mark.parametrize("env", ["palpate/Sprites-v0", "palpate/Soccer-v0", "palpate/Table-v0"])
@pytest.mark.slow
def test_our_worlds_have_an_overlay(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, ...]] = []

    def note(
        observations: object, encoding: object, truth: object, extent: tuple[float, ...], border: torch.Tensor
    ) -> Figure:
        seen.append(extent)
        assert border.shape[::2] == (8, 2)
        return Figure()

    monkeypatch.setattr(pictures, "overlay", note)
    assert drawn(tmp_path, collect(env, 60, size=20, labelled=True)) == {"overlay", "distances", "error"}
    left, right, bottom, top = seen[0]
    assert (left, right) == (bottom, top)
    assert (left < 0) == ("Sprites" not in env)


@pytest.mark.slow
def test_other_worlds_have_no_overlay(tmp_path: Path) -> None:
    ours = collect("palpate/Sprites-v0", 60, size=20, labelled=True)
    rows = ours.transitions.rows(slice(None))
    same = Transitions(observation=rows.o, action=rows.a, next_observation=rows.o_next)
    assert drawn(tmp_path, Labelled(same, ours.truth)) == {"distances", "error"}


@pytest.mark.slow
def test_without_a_renderer_the_scores_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collected on one machine, trained on another that cannot draw."""
    labelled = collect("palpate/Soccer-v0", 60, size=20, labelled=True)

    def fail(*_: object) -> None:
        raise OSError("no picture can be drawn")

    monkeypatch.setattr(pictures.Soccer, "render", fail)
    with pytest.warns(UserWarning, match="the positions are not drawn: no picture can be drawn"):
        assert drawn(tmp_path, labelled) == {"distances", "error"}
    assert (tmp_path / "scores.json").exists()
    assert (tmp_path / "report.html").exists()


def test_triples_that_do_not_fit_the_model_leave_nothing_behind(tmp_path: Path) -> None:
    large = collect("palpate/Sprites-v0", 60, size=24, labelled=True)
    with pytest.raises(ValueError, match="this model reads batches of"):
        illustrate(tmp_path / "report", model(), large, "a run")
    assert not (tmp_path / "report").exists()
