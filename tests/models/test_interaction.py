"""What the method does with a batch beyond the contract of all models."""

import torch

from palpate.config import ModelConfig
from palpate.geometry import Segment
from palpate.models.interaction import Interaction


def contact_gradients(touched: bool) -> tuple[float, float]:
    """How much the contact likelihood of one triple asks of z_ext in o and in o'."""
    generator = torch.Generator().manual_seed(0)
    ext, ext_next = (torch.randn(1, 2, generator=generator, requires_grad=True) for _ in range(2))
    path = Segment(torch.zeros(1, 2), torch.ones(1, 2))
    t, progress = torch.zeros(1), torch.tensor(0.6)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2))
    terms = model._external(ext, ext_next, path, torch.tensor([touched]), t, progress)
    here, there = torch.autograd.grad(terms["contact"], (ext, ext_next), allow_unused=True, materialize_grads=True)
    return float(here.norm()), float(there.norm())


def test_an_untouched_path_tells_of_both_observations_a_touching_one_of_the_first() -> None:
    here, there = contact_gradients(touched=False)
    assert here > 0
    assert there > 0
    here, there = contact_gradients(touched=True)
    assert here > 0
    assert there == 0  # where the object went the path does not say
