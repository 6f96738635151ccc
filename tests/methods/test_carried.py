"""A sensor that the agent carries, in numbers: what stands still moves by the inverse of the action."""

import warnings

import pytest
import torch
from torch import Tensor

import palpate
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.methods.carried import Carried
from palpate.objects import NEVER


def carried(group: str = "translations") -> Carried:
    torch.manual_seed(0)
    scene = ObjectiveConfig(body="ball", egocentric=True, refine=False, rest_floor=0.1, group=group)  # type: ignore[arg-type]
    actions = 2 if group == "translations" else 3
    return Carried(
        ModelConfig(method="carried", encoder="scan", observation_shape=(24,), n=2, actions=actions, objective=scene)
    )


def objective(model: Carried, z: Tensor, seen: Tensor, a: Tensor, z_next: Tensor, seen_next: Tensor, share: float):  # type: ignore[no-untyped-def]
    """The losses for poses, and objects along the agent's axes."""
    hidden = torch.full((len(z), 1), NEVER)
    ext, ext_next = (torch.cat((x, hidden), 1) for x in (seen, seen_next))
    return model.objective((z, z_next, ext, ext_next, a), torch.tensor(share))


def scenes(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Agents [256, 2], actions, and objects that none of them touches."""
    agent, a, thing = torch.randn(3, 256, 2, generator=torch.Generator().manual_seed(seed))
    return agent, a, thing


def test_objects_are_seen_from_where_the_agent_is() -> None:
    """Moved elsewhere as a whole, the agent takes the object with it."""
    model, o, shift = carried().eval(), torch.randn(5, 24), torch.tensor([1.0, -2.0])
    before = model.encode(o).object
    model.phi_int.head.bias.data += shift
    torch.testing.assert_close(model.encode(o).object, before + shift)


@pytest.mark.parametrize("group", ["translations", "se2"])
def test_an_error_of_the_agent_does_not_look_like_a_motion(group: str) -> None:
    """The object stands still; the estimates of the agent's poses are off."""
    model = carried(group)
    model.train()
    generator = torch.Generator().manual_seed(0)
    z, a, thing = scenes()
    if group == "se2":
        heading, turn = torch.randn(2, 256, generator=generator)
        z = torch.cat((z, torch.stack((heading.cos(), heading.sin()), 1)), 1)
        a = torch.cat((a, turn[:, None]), 1)
    z_next = model.group.act(z, a)
    seen, seen_next = model.group.seen(z, thing), model.group.seen(z_next, thing)
    landmark = torch.zeros(256, model.group.width - model.group.pose_width)
    poses = [torch.cat((model.group.flawless(x + 0.1 * torch.randn(x.shape, generator=generator)), landmark), 1)
             for x in (z, z_next)]  # fmt: skip
    objective(model, poses[0], seen, a, poses[1], seen_next, 0.5)
    assert model.scenes.split(0).distances[:256].max() < 1e-8


@pytest.mark.parametrize("direction", [1, -1])
def test_a_robot_that_turns_in_place_sees_the_object_where_it_was(direction: int) -> None:
    """By whole rays, which are numbered to the left or to the right."""
    model, o, ray = carried("se2").eval(), torch.randn(5, 24), 2 * torch.pi / 24
    model.direction.fill_(direction)

    def place(turned: int) -> Tensor:
        heading = torch.full((5,), 1.2 * ray + turned * ray)
        z = torch.cat((torch.ones(5, 2), torch.stack((heading.cos(), heading.sin()), 1)), 1)
        return model.group.place(z, model.sighted(o.roll(-direction * turned, 1), z)[:, :2])

    for turned in (1, 7, -3):
        torch.testing.assert_close(place(turned), place(0))
    model.direction.fill_(0)
    assert (place(7) - place(0)).abs().max() > 0.01


def test_a_fixed_point_of_the_world_gains_nothing() -> None:
    """It agrees with all triples, and so does the object; InfoNCE prefers the object."""
    agent, a, thing = scenes()
    agent_next = agent + a

    def contrast(place: Tensor) -> float:
        found = objective(carried(), agent, place - agent, a, agent_next, place - agent_next, 0.5)
        return float(found.terms["contrast"])

    # Other agents have weights below 1, so only differences of the contrast mean something.
    assert contrast(thing) < contrast(torch.zeros_like(thing)) - 1


def test_losses_that_need_positions_wait_for_the_heading() -> None:
    """Poses do not follow the actions: only phi_int learns."""
    model = carried("se2")
    model.train()
    batch = Batch(torch.randn(64, 24), torch.randn(64, 3), torch.randn(64, 24))
    terms = model.loss(batch, torch.Generator(), torch.tensor(0.5)).terms
    assert terms.pop("agent").item() > 0
    assert all(term.item() == 0 for term in terms.values())


def test_the_threshold_comes_from_held_out_triples(monkeypatch: pytest.MonkeyPatch) -> None:
    model, o = carried().eval(), torch.randn(2, 90, 24)
    given: list[Tensor] = []
    monkeypatch.setattr(model.scenes, "recall", lambda *distances: given.extend(distances))
    with torch.no_grad():
        model.recall([Batch(o[0, :50], torch.randn(50, 2), o[1, :50]), Batch(o[0, 50:], torch.randn(40, 2), o[1, 50:])])
        torch.testing.assert_close(given[0], model.scene_distance(*o))
    assert given[1].shape == given[0].shape


@pytest.mark.slow
def test_a_carried_scanner_finds_the_object() -> None:
    """And `fit` finds out by itself that the agent carries the scanner."""
    log, test = (
        palpate.collect("palpate/Lidar-v0", count, seed=seed, labelled=True, progress=False)
        for count, seed in ((8000, 0), (2000, 1))
    )
    with warnings.catch_warnings(action="ignore"):  # so short a run does not separate all contacts
        model = palpate.fit(log.transitions, steps=400, seed=0, device="cpu", progress=False)
    scores = palpate.evaluate(model, test)
    assert model.model.config.method == "carried"
    assert scores.l_test < 0.1 * scores.constant["l_test"]
    assert scores.contact_accuracy is not None
    assert scores.contact_accuracy > 0.9
