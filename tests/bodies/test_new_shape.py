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


@final
class Square(PlanarBody):
    """Its sides face the axes, a radius away."""

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return self.radius * direction.abs().sum(-1)


@pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")  # not in a few steps
def test_it_trains_and_encodes_as_any_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(BODIES, "square", Square)
    trained = palpate.fit(
        world("palpate/Sprites-v0", size=32),
        body="square",
        encoder="small",
        steps=3,
        batch_size=16,
        device="cpu",
        progress=False,
    )
    trained.save(tmp_path / "model")
    loaded = palpate.load(tmp_path / "model", device="cpu")
    o = collect("palpate/Sprites-v0", 5, seed=9, size=32).rows(slice(5)).o
    line = loaded.border(o)
    assert_close(line, trained.border(o))
    side = line.abs().amax(-1)  # of each point of the border, the larger coordinate
    assert_close(side, side[:1, :1].expand_as(side), rtol=0.01, atol=0)
    assert side.mean() > 0.05

    found = loaded.encode(o)
    aim = found.object - found.agent
    assert (loaded.would_touch(o, aim) > 0.5).all()
    assert (loaded.would_touch(o, torch.as_tensor(-aim)) < loaded.would_touch(o, aim)).all()
