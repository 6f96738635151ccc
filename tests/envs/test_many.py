"""SpritesMany: what is touched moves, and nothing else does; discs keep apart; pictures show all of it."""

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

import palpate.envs  # registers the ids
from palpate.envs.many import (
    COLOURS,
    DRIFT,
    MOST,
    RADIUS,
    REACH,
    STRAY_COLOUR,
    ManyConfig,
    Scene,
    SpritesMany,
    Triple,
)
from palpate.envs.registration import stream_world, world
from palpate.envs.sprites import AGENT_RANGE

B = 2000


def triples(seed: int = 0, **options: object) -> Triple:
    made = SpritesMany(ManyConfig(**options))  # type: ignore[arg-type]
    return made.sample(B, torch.Generator().manual_seed(seed))


def swept(triple: Triple, points: int = 400) -> Tensor:
    """A slow twin of `touches`: the least distance `[b, k]` from points along the path."""
    along = torch.linspace(0, 1, points)[:, None, None]
    path = triple.agent + along * triple.displacement  # [points, b, 2]
    return (path[:, :, None] - triple.object).norm(dim=-1).amin(0)


@pytest.mark.parametrize("objects", [1, 3, MOST])
def test_objects_move_if_and_only_if_they_are_touched(objects: int) -> None:
    triple = triples(objects=objects)
    moved = (triple.object_next - triple.object).norm(dim=-1) > 0
    assert torch.equal(moved, triple.contact)
    distance = swept(triple)
    assert not triple.contact[distance > REACH + 2e-3].any()
    assert triple.contact[distance < REACH - 2e-3].all()
    torch.testing.assert_close(triple.agent_next - triple.agent, triple.displacement)


@pytest.mark.parametrize("objects", [3, MOST])
def test_discs_keep_apart(objects: int) -> None:
    triple = triples(objects=objects)
    for agent, places in ((triple.agent, triple.object), (triple.agent_next, triple.object_next)):
        gaps = torch.cdist(places, places) + torch.eye(objects)
        assert gaps.min() > 2 * RADIUS
        assert (places - agent[:, None]).norm(dim=-1).min() > REACH


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_share_of_triples_with_a_contact_is_as_asked(share: float) -> None:
    touched = triples(contact_share=share).contact
    assert touched.any(1).float().mean().item() == pytest.approx(share, abs=0.04)
    each = touched.float().mean(0)
    assert each.min() > 0.8 * each.max()


def test_landing_is_uniform() -> None:
    triple = triples()
    landed = triple.object_next[triple.contact]
    torch.testing.assert_close(landed.mean(0), torch.full((2,), 0.5), atol=0.03, rtol=0)
    torch.testing.assert_close(landed.var(0), torch.full((2,), 0.7**2 / 12), atol=0.006, rtol=0)


@pytest.mark.parametrize(("distractor", "spread"), [("slow", DRIFT), ("random", 0.91 / 6**0.5)])
def test_a_distractor_moves_by_itself(distractor: str, spread: float) -> None:
    triple = triples(distractor=distractor)
    step = triple.stray_next - triple.stray
    assert step.std().item() == pytest.approx(spread, rel=0.1)
    touched = triple.contact.any(1)
    assert step[touched].std().item() == pytest.approx(step[~touched].std().item(), rel=0.1)


def test_the_agent_stops_at_the_border() -> None:
    made, generator = SpritesMany(), torch.Generator().manual_seed(0)
    triple = made.step(made.reset(50, generator), torch.full((50, 2), 5.0), generator)
    assert torch.equal(triple.agent_next, torch.full((50, 2), AGENT_RANGE[1]))


def drawn(made: SpritesMany, at: Tensor) -> Tensor:
    stray = torch.full((1, 2), 0.1)
    return made.render(Scene(torch.tensor([[0.9, 0.1]]), at[None], stray))[0].permute(1, 2, 0)  # [h, w, 3]


@pytest.mark.parametrize("alike", [True, False])
def test_pictures_show_every_object_where_it_is(alike: bool) -> None:
    made = SpritesMany(ManyConfig(alike=alike, distractor="slow"))
    at = torch.tensor([[0.305, 0.505], [0.505, 0.805], [0.705, 0.305]])
    picture = drawn(made, at)
    for i, (x, y) in enumerate(at.tolist()):
        assert tuple(picture[int(100 * (1 - y)), int(100 * x)].tolist()) == COLOURS[0 if alike else i]
    assert tuple(picture[90, 10].tolist()) == STRAY_COLOUR
    assert not drawn(SpritesMany(), at)[90, 10].any()


def test_a_disc_covers_its_area_and_moves_by_parts_of_a_pixel() -> None:
    made = SpritesMany(ManyConfig(objects=1))
    for shift in (0.0, 0.0033):
        green = drawn(made, torch.tensor([[0.4 + shift, 0.6]]))[..., 1].double() / COLOURS[0][1]
        green[80:, 80:] = 0  # the agent
        assert green.sum().item() / 100**2 == pytest.approx(torch.pi * RADIUS**2, rel=0.01)
        column = (green.sum(0) * (torch.arange(100) + 0.5)).sum() / green.sum() / 100
        assert column.item() == pytest.approx(0.4 + shift, abs=2e-4)


def test_a_seed_gives_the_same_triples() -> None:
    one, same, other = triples(1), triples(1), triples(2)
    for field in Triple._fields:
        assert torch.equal(getattr(one, field), getattr(same, field))
    assert not torch.equal(one.object, other.object)


def test_bad_options_are_refused() -> None:
    for options, match in (
        ({"objects": 0}, "objects is 0; allowed is 1 to 6"),
        ({"objects": 7}, "objects is 7"),
        ({"distractor": "fast"}, "distractor is 'fast'; allowed are"),
        ({"alike": 1}, "alike is 1; allowed is True or False"),
        ({"colour": "red"}, "there is no option 'colour'"),
    ):
        with pytest.raises(ValueError, match=match):
            world("palpate/SpritesMany-v0", **options)


@pytest.mark.parametrize("contact", [None, "moved"])
def test_stepped_triples_have_a_truth_for_each_object(contact: str | None) -> None:
    """Contacts as the environment reports them, or by which objects moved."""
    env = gymnasium.make("palpate/SpritesMany-v0", size=20, objects=3)
    truth = None if contact is None else {"agent": "info:agent", "object": "info:object", "contact": contact}
    how = {} if truth is None else {"truth": truth}
    made = palpate.collect(env, 40, seed=0, labelled=True, progress=False, **how).truth
    assert made.object.shape == (40, 3, 2)
    moved = (made.object_next - made.object).norm(dim=-1) > 0
    assert torch.equal(made.contact, moved)
    assert moved.any(0).all()
    assert not moved.all(0).any()


def test_it_can_be_streamed_and_stepped() -> None:
    streamed = stream_world("palpate/SpritesMany-v0", size=20, objects=2)
    assert streamed.recipe == {"env": "palpate/SpritesMany-v0", "size": 20, "objects": 2}
    env = gymnasium.make("palpate/SpritesMany-v0", size=20, objects=2)
    picture, info = env.reset(seed=3)
    assert picture.shape == (20, 20, 3)
    assert info["object"].shape == (2, 2)
    after = env.step(np.array([0.3, 0.0], np.float32))[4]
    moved = np.linalg.norm(after["object"] - info["object"], axis=1) > 0
    assert after["contact"] == moved.tolist()
