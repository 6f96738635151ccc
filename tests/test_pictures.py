"""Figures of a run. Positions are drawn on pictures whose projection is known or can be estimated."""

import functools
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from palpate import pictures
from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.data.labelled import Labelled
from palpate.data.transitions import Transitions
from palpate.methods.base import Encoding
from palpate.pictures import illustrate
from palpate.projection import Homography
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
    assert names <= FIGURES.keys()  # an overwriting run removes them
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"<figcaption>(.*?)</figcaption>", page)) == {escape(FIGURES[name]) for name in names}
    assert page.count("contacts explained") == page.count("Quality, without true states") == 1
    return names


@pytest.mark.parametrize("env", ["palpate/Sprites-v0", "palpate/Soccer-v0", "palpate/Table-v0"])
@pytest.mark.slow
def test_our_worlds_have_an_overlay(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def note(
        observations: Tensor, encoding: object, truth: object, project: Homography, border: torch.Tensor
    ) -> Figure:
        assert len(observations) == len(border) == 8
        seen.append(project([[0.0, 0.0], [1.0, 1.0]]) / observations.shape[-1])
        return Figure()

    monkeypatch.setattr(pictures, "overlay", note)
    assert drawn(tmp_path, collect(env, 60, size=20, labelled=True)) == {"overlay", "distances", "error"}
    (left, bottom), (right, top) = seen[0]
    assert left < right
    assert top < bottom
    assert (left > 0) == ("Sprites" not in env)


def unknown() -> Labelled:
    """Sprites whose world is not recorded."""
    ours = collect("palpate/Sprites-v0", 100, size=20, labelled=True)
    rows = ours.transitions.rows(slice(None))
    return Labelled(Transitions(observation=rows.o, action=rows.a, next_observation=rows.o_next), ours.truth)


def test_the_projection_of_other_worlds_is_estimated() -> None:
    labelled = unknown()
    o, truth = labelled.transitions.rows(slice(None)).o, labelled.truth
    hidden = truth._replace(visible=torch.arange(100) % 4 > 0)
    spoilt = hidden._replace(object=torch.where((torch.arange(100) % 4 > 0)[:, None], truth.object, 9.0))
    for known in (truth, spoilt):
        shown = pictures.backdrop({}, o, known)
        assert shown is not None
        assert len(shown.pictures) == 8
        assert "estimated from the true positions of the object" in shown.note
        gaps = shown.project(truth.object) - Homography.of_extent((0, 1, 0, 1), 20, 20)(truth.object)
        assert np.median(np.linalg.norm(gaps, axis=1)) < 0.6
    assert pictures.backdrop({}, o.flip(0), truth) is None  # as unrelated as those of a camera on the agent
    assert pictures.backdrop({}, o[:, 0, 0], truth) is None  # vectors


def test_one_of_several_grey_cameras_is_a_backdrop(tmp_path: Path) -> None:
    """Three cameras with one channel each are not one picture in colours, not even after saving."""
    labelled = unknown()
    grey = labelled.transitions.rows(slice(None)).o.float().mean(1)  # [N, h, w]
    views = torch.stack((grey, grey.flip(-1), grey.flip(-2)), 1)[:, :, None]  # [N, v, 1, h, w]
    seen = Transitions(observation=views, action=labelled.transitions.action, next_observation=views)
    Labelled(seen, labelled.truth).save(tmp_path / "log.h5")
    with Labelled.open(tmp_path / "log.h5") as stored:
        assert stored.transitions.views == 3
        shown = pictures.backdrop(stored.transitions.attributes, stored.transitions.rows(slice(None)).o, stored.truth)
    assert shown is not None
    assert torch.equal(shown.pictures, grey[:8, None])
    gaps = shown.project(labelled.truth.object) - Homography.of_extent((0, 1, 0, 1), 20, 20)(labelled.truth.object)
    assert np.median(np.linalg.norm(gaps, axis=1)) < 0.6


@pytest.mark.slow
def test_an_overlay_without_true_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own positions show where the plane is, once they are learned; here the truth stands in."""
    labelled = unknown()
    trained, triples = model(), labelled.transitions
    illustrate(tmp_path / "untrained", trained, None, "a run", triples=triples)
    assert not (tmp_path / "untrained" / "figures" / "overlay.png").exists()
    truth = Encoding(labelled.truth.agent, labelled.truth.objects, confidences=torch.ones(100, 1))
    monkeypatch.setattr(Representation, "encode", lambda *_: truth)
    illustrate(tmp_path, trained, None, "a run", triples=triples)
    assert (tmp_path / "figures" / "overlay.png").exists()
    assert "estimated from the learned positions of the object" in (tmp_path / "report.html").read_text()


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
