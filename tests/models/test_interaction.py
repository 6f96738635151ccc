"""What the method does with a batch beyond the contract of all models."""

import pytest
import torch

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
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


def test_what_the_agent_sees_is_told_from_where_it_stands() -> None:
    """Moved elsewhere as a whole, an egocentric model moves the object with the agent."""
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model, o = Interaction(config).eval(), torch.randn(5, 6)
    before = model.encode(o)
    with torch.no_grad():
        model.phi_int.head.bias += torch.tensor([1.0, -2.0])
    after = model.encode(o)
    assert torch.allclose(after.object - before.object, torch.tensor([1.0, -2.0]).expand(5, 2), atol=1e-5)


@pytest.mark.parametrize("progress", [0.1, 0.9])
def test_contacts_that_z_ext_itself_tells_move_only_its_constant_and_the_body(progress: float) -> None:
    torch.manual_seed(0)
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model = Interaction(config)
    batch = Batch(torch.randn(64, 6), torch.randn(64, 2), torch.randn(64, 6))
    terms = model.loss(batch, torch.Generator(), torch.tensor(progress)).terms
    assert model.offset is not None
    assert terms.keys() == {"agent", "contact", "stay"}
    asked = torch.autograd.grad(
        terms["contact"],
        (model.offset, model.log_radius, *model.phi_ext.parameters()),
        allow_unused=True,
        materialize_grads=True,
        retain_graph=True,
    )
    moved = [bool(gradient.count_nonzero()) for gradient in asked]
    assert moved == [progress > 0.3, progress > 0.3] + [False] * (len(moved) - 2)
    stay = torch.autograd.grad(terms["stay"], list(model.phi_ext.head.parameters()))
    assert all(gradient.count_nonzero() for gradient in stay[:1])


def test_the_constant_is_part_of_the_objects_place() -> None:
    config = ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=ObjectiveConfig(egocentric=True))
    model, o = Interaction(config).eval(), torch.randn(5, 6)
    before = model.encode(o)
    assert model.offset is not None
    with torch.no_grad():
        model.inputs.unit.fill_(2.0)
        model.offset += torch.tensor([1.0, -2.0])
    after = model.encode(o)
    assert torch.allclose(after.object - 2 * before.object, torch.tensor([2.0, -4.0]).expand(5, 2), atol=1e-4)
    assert torch.allclose(after.agent, 2 * before.agent)


def contrast(apart: float, agent_spread: bool) -> float:
    """The contrastive loss of unrelated scenes whose agents step by 1 and stand about `apart` from each other."""
    generator = torch.Generator().manual_seed(0)
    objective = ObjectiveConfig(agent_spread=agent_spread)
    model = Interaction(ModelConfig(encoder="mlp", observation_shape=(6,), n=2, objective=objective)).train()
    z = apart * torch.randn(64, 2, generator=generator)
    w = torch.randn(128, 8, generator=generator)
    with torch.no_grad():
        terms = model._objective(
            torch.cat((z, z)), torch.zeros(128, 2), w, torch.ones(64, 2), torch.zeros(64), torch.tensor(0.5)
        ).terms
    return float(terms["contrast"])


def test_agents_count_as_near_by_how_far_they_are_spread_not_by_how_far_they_step() -> None:
    assert contrast(20.0, agent_spread=False) < contrast(1.0, agent_spread=False) - 10  # none is near another
    assert contrast(20.0, agent_spread=True) == pytest.approx(contrast(1.0, agent_spread=True), abs=1e-3)
    assert contrast(0.2, agent_spread=True) == pytest.approx(contrast(0.2, agent_spread=False))
