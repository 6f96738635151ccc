"""What the method does with a batch beyond the contract of all models."""

import pytest
import torch

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.geometry import Segment
from palpate.models.interaction import EARLY_FLOOR, Interaction
from palpate.objectives.split import SEPARABLE


def interaction(**switches: float) -> Interaction:
    objective = ObjectiveConfig.named("contact", **switches)
    return Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective))


def contact_gradients(touched: bool) -> tuple[float, float]:
    """How much the contact likelihood of one triple asks of z_ext in o and in o'."""
    generator = torch.Generator().manual_seed(0)
    ext, ext_next = (torch.randn(1, 2, generator=generator, requires_grad=True) for _ in range(2))
    path = Segment(torch.zeros(1, 2), torch.ones(1, 2))
    one, progress = torch.zeros(1), torch.tensor(0.6)
    terms = interaction()._external(ext, ext_next, path, torch.tensor([touched]), one, progress)
    here, there = torch.autograd.grad(terms["contact"], (ext, ext_next), allow_unused=True, materialize_grads=True)
    return float(here.norm()), float(there.norm())


def test_an_untouched_path_tells_of_both_observations_a_touching_one_of_the_first() -> None:
    here, there = contact_gradients(touched=False)
    assert here > 0
    assert there > 0
    here, there = contact_gradients(touched=True)
    assert here > 0
    assert there == 0  # where the object went the path does not say


class TestFloor:
    def at(self, valley: float, **switches: float) -> float:
        model = interaction(**switches)
        model.split.valley.fill_(valley)
        return float(model._floor())

    def test_falls_as_the_classes_part(self) -> None:
        assert self.at(-2.0) == pytest.approx(EARLY_FLOOR)
        assert self.at(SEPARABLE) == pytest.approx(EARLY_FLOOR)
        assert self.at((1 + SEPARABLE) / 2) == pytest.approx((EARLY_FLOOR * 0.001) ** 0.5)
        assert self.at(1.0) == pytest.approx(0.001)

    @pytest.mark.parametrize("valley", [-1.0, 0.2, 1.0])
    def test_what_the_user_sets(self, valley: float) -> None:
        assert self.at(valley, contrast_floor=0.0) == 0.0
        assert self.at(valley, contrast_floor=0.3) == pytest.approx(0.3)
