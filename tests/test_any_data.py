"""`fit` takes triples of any shape, chooses the rest, says so, and gives positions in the action's unit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import palpate

COUNT = 24
ONE: dict[str, Any] = {"steps": 1, "device": "cpu", "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")


def triples(shape: tuple[int, ...], dtype: Any = np.uint8, n: int = 2, **options: Any) -> palpate.Transitions:
    rng = np.random.default_rng(0)
    o, o_next = (rng.integers(0, 255, (COUNT, *shape)).astype(dtype) for _ in range(2))
    return palpate.Transitions(observation=o, action=rng.normal(size=(COUNT, n)), next_observation=o_next, **options)


@pytest.mark.parametrize(
    ("shape", "seen", "dtype"),
    [
        ((48, 64), (1, 48, 64), np.uint8),
        ((7, 33, 40), (7, 33, 40), np.float32),
        ((256, 250, 1), (1, 64, 62), np.float64),
        ((2, 3, 130, 70), (6, 43, 23), np.uint8),
        ((3, 24, 24, 3), (9, 24, 24), np.float32),
        ((1,), (1,), np.uint8),
        ((64,), (64,), np.float64),
    ],
)
def test_any_observation(shape: tuple[int, ...], seen: tuple[int, ...], dtype: type) -> None:
    data = triples(shape, dtype)
    model = palpate.fit(data, **ONE)
    assert model.config.seen_shape == seen
    encoding = model.encode(data.rows(slice(0, 5)).o)
    assert encoding.agent.shape == encoding.object.shape == (5, 2)
    assert bool(encoding.object.isfinite().all())


@pytest.mark.parametrize("n", [3, 5])
def test_any_dimension(n: int) -> None:
    model = palpate.fit(triples((6,), np.float32, n), **ONE)
    assert model.encode(np.zeros((2, 6), np.float32)).object.shape == (2, n)


def test_choices_are_said_and_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = triples((100, 90, 3))
    model = palpate.fit(data, out=tmp_path / "run", **(ONE | {"progress": True}))
    said = capfd.readouterr().err
    assert "  encoder small: pictures, on a CPU\n" in said
    assert "  shrink 2: 100 x 90 pixels" in said
    assert "steps" not in said.split("contact,")[0]  # it was given
    assert "not to be trusted; estimates without labels" in said
    kept = {choice["name"]: choice for choice in palpate.load(tmp_path / "run").facts["choices"]}
    assert kept["steps"] == {"name": "steps", "value": 1, "reason": "as given"}
    assert kept["batch_size"]["value"] == model.facts["training"]["batch_size"] == 3
    o = data.rows(slice(0, 3)).o
    assert torch.equal(palpate.load(tmp_path / "run").encode(o).agent, model.encode(o).agent)


def test_shrinking_is_averaging() -> None:
    """A network that sees averages cannot tell a picture from one with the same averages."""
    model = palpate.fit(triples((64, 64, 3)), shrink=2, **ONE)
    o = np.random.default_rng(1).integers(0, 200, (2, 64, 64, 3)).astype(np.uint8)
    swapped = o.reshape(2, 32, 2, 64, 3)[:, :, ::-1].reshape(o.shape)  # the rows of each square
    np.testing.assert_allclose(model.encode(o).agent, model.encode(np.ascontiguousarray(swapped)).agent, rtol=1e-4)
    other = model.encode(np.ascontiguousarray(o[:, ::-1])).agent
    assert not np.allclose(other, model.encode(o).agent, rtol=1e-4)


@pytest.mark.slow
def test_a_shrunken_model_is_exported(tmp_path: Path) -> None:
    data = triples((70, 80, 3))
    model = palpate.fit(data, **ONE)
    assert model.config.shrink == 2
    made = palpate.export(model, tmp_path / "m.pt2", format="torch", observation=data.rows(slice(0, 4)).o)
    assert made.difference < 1e-4
