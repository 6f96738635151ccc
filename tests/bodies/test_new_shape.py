"""A new shape is one class and one name: nothing else in the package needs to know it."""

from pathlib import Path
from typing import final

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import palpate
from palpate.bodies import BODIES
from palpate.bodies.planar import PlanarBody
from palpate.collecting.collect import collect
from palpate.envs.registration import world

BOUND = 1.5e-2  # seeds 0 and 1 end at 4.6e-3 and 6.1e-3, an untrained model and the constant answer above 1.8e-1


@final
class Square(PlanarBody):
    """Its sides face the axes, a radius away."""

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return self.radius * direction.abs().sum(-1)


@pytest.mark.slow
def test_it_trains_and_answers_as_any_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(BODIES, "square", Square)
    trained = palpate.fit(
        world("palpate/Sprites-v0", size=32),
        body="square",
        encoder="small",
        steps=120,
        batch_size=64,
        device="cpu",
        progress=False,
    )
    test = collect("palpate/Sprites-v0", 1000, seed=9, labelled=True, size=32)
    scores = palpate.evaluate(trained, test)
    assert scores.constant["l_test"] > 10 * BOUND
    assert scores.l_test < BOUND
    assert scores.would_touch_accuracy is not None
    assert scores.would_touch_accuracy > 0.8

    trained.save(tmp_path / "model")
    loaded = palpate.load(tmp_path / "model", device="cpu")
    o = test.transitions.rows(slice(5)).o
    line = loaded.border(o)
    assert_close(line, trained.border(o))
    side = line.abs().amax(-1)  # of each point of the border, the larger coordinate
    assert_close(side, side[:1, :1].expand_as(side), rtol=0.01, atol=0)
    assert 0.08 < side.mean() < 0.2  # the diamond and the disc extend to 0.105 and 0.130

    found = loaded.encode(o)
    aim = found.object - found.agent
    assert (loaded.would_touch(o, aim) > 0.5).all()
    assert (loaded.would_touch(o, torch.as_tensor(-0.1 * aim)) < 0.5).all()
