"""What only a GPU can show: the captured, compiled and parallel step against the plain one. Run with `-m gpu`."""

from typing import Any

import pytest
import torch

import palpate.models.interaction
from palpate.api import fit
from palpate.data.collect import collect
from palpate.envs.registration import world

pytestmark = pytest.mark.gpu
SHORT: dict[str, Any] = {
    "steps": 40,
    "log_every": 10,
    "evaluate_every": 20,
    "device": "cuda",
    "progress": False,
    "encoder": "small",
    "batch_size": 64,
}


def readings(data: Any, **changes: Any) -> list[dict[str, float]]:
    seen: list[dict[str, float]] = []
    fit(data, watch=lambda step, values: seen.append(values), **SHORT | changes)
    return seen


def stream() -> Any:
    return world("palpate/Sprites-v0", device="cuda", size=32)


@pytest.mark.filterwarnings("ignore:touched and untouched")
def test_three_streams_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = readings(stream())
    monkeypatch.setattr(palpate.models.interaction, "side_by_side", lambda branches, x: [each(x) for each in branches])
    assert readings(stream()) == parallel


@pytest.mark.filterwarnings("ignore:touched and untouched")
def test_the_captured_step_is_the_plain_step() -> None:
    for captured, plain in zip(readings(stream()), readings(stream(), graph=False), strict=True):
        assert captured == pytest.approx(plain, rel=1e-3, abs=1e-5)


@pytest.mark.filterwarnings("ignore:touched and untouched")
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own compiler
def test_compiled_with_held_out_rows_of_an_odd_number() -> None:
    """A stream is compiled too; a fixed set is evaluated in blocks, the last of which is smaller."""
    triples = collect("palpate/Sprites-v0", 2718, size=32)
    for compiled, plain in zip(readings(triples, compile=True), readings(triples), strict=True):
        assert compiled["agent"] == pytest.approx(plain["agent"], rel=0.1)
    assert torch.isfinite(torch.tensor(readings(stream(), compile=True)[-1]["contact"]))
