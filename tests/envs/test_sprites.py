"""Sprites: touched if and only if moved, swept exactly, drawn where the state says."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from palpate.envs.drawing import FIGURE
from palpate.envs.sprites import (
    AGENT_COLOUR,
    AGENT_RADIUS,
    CHECKER_SIDE,
    MAST_COLOUR,
    MOVED_EPSILON,
    OBJECT_COLOUR,
    OBJECT_RANGE,
    Scene,
    Sprites,
    SpritesConfig,
    Triple,
)

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "vanilla": {},
    "background": {"background": True},
    "rectangle": {"body": "rectangle"},
}
BODIES = ["diamond", "rectangle"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample(world: Sprites, count: int, seed: int = 0) -> Triple:
    """In pieces, so that the candidates of all triples never lie in memory together."""
    source = generator(seed)
    return Triple(*map(torch.cat, zip(*(world.sample(2000, source) for _ in range(count // 2000)), strict=True)))


@pytest.fixture(scope="module", params=list(CONFIGURATIONS))
def drawn(request: pytest.FixtureRequest) -> tuple[Sprites, Triple]:
    world = Sprites(SpritesConfig(**CONFIGURATIONS[request.param]))
    return world, sample(world, 10_000)


def scene(agent: tuple[float, float], thing: tuple[float, float], angle: float = math.pi / 4) -> Scene:
    return Scene(torch.tensor([agent]), torch.tensor([thing]), torch.tensor([angle]))


def disc_to_box(point: np.ndarray, centre: np.ndarray, angle: np.ndarray, half: tuple[float, float]) -> np.ndarray:
    """Distance of points [b, t, 2] to a turned rectangle, in float64: the slow twin of everything that touches."""
    gap = point - centre[:, None]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    along = np.abs(cos * gap[..., 0] + sin * gap[..., 1]) - half[0]
    across = np.abs(cos * gap[..., 1] - sin * gap[..., 0]) - half[1]
    return np.hypot(np.maximum(along, 0), np.maximum(across, 0))


def gap_between(world: Sprites, agent: Tensor, thing: Tensor, angle: Tensor) -> np.ndarray:
    half = world.config.half_sides
    return disc_to_box(agent.double().numpy()[:, None], thing.double().numpy(), angle.double().numpy(), half)[:, 0]


# States


def test_touched_if_and_only_if_moved(drawn: tuple[Sprites, Triple]) -> None:
    _, triple = drawn
    moved = (triple.object_next - triple.object).norm(dim=1)
    assert torch.equal(triple.contact, moved > MOVED_EPSILON)
    assert (moved[~triple.contact] == 0).all()
    assert torch.equal(triple.angle[~triple.contact], triple.angle_next[~triple.contact])


def test_bodies_are_apart_before_and_after(drawn: tuple[Sprites, Triple]) -> None:
    world, t = drawn
    radius = AGENT_RADIUS - 1e-6
    assert gap_between(world, t.agent, t.object, t.angle).min() > radius
    assert gap_between(world, t.agent_next, t.object_next, t.angle_next).min() > radius


def test_states_lie_in_their_ranges_and_fill_them(drawn: tuple[Sprites, Triple]) -> None:
    world, t = drawn
    low, high = OBJECT_RANGE
    for thing in (t.object, t.object_next):
        assert low - 1e-6 <= thing.min() < low + 0.01
        assert high - 0.01 < thing.max() <= high + 1e-6
    for agent in (t.agent, t.agent_next):
        assert 0.045 - 1e-6 <= agent.min() < 0.05
        assert 0.95 < agent.max() <= 0.955 + 1e-6
    for angle in (t.angle, t.angle_next):
        if world.config.turns:
            assert 0 <= angle.min() < 0.01
            assert math.pi - 0.01 < angle.max() <= math.pi + 1e-6
        else:
            assert (angle == torch.tensor(math.pi / 4)).all()


def test_the_agent_moves_exactly_by_the_displacement(drawn: tuple[Sprites, Triple]) -> None:
    _, t = drawn
    assert torch.equal(t.displacement, t.agent_next - t.agent)
    assert t.displacement.norm(dim=1).mean() > 0.3


def test_half_of_the_triples_are_contacts(drawn: tuple[Sprites, Triple]) -> None:
    assert drawn[1].contact.double().mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_the_share_of_contacts_is_the_wanted_one(share: float, body: Any) -> None:
    contact = Sprites(SpritesConfig(body=body, contact_share=share)).sample(4000, generator(1)).contact
    got = contact.double().mean().item()
    assert got == share if share in (0, 1) else got == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("body", BODIES)
def test_random_motion_has_a_rate_of_its_own(body: Any) -> None:
    world = Sprites(SpritesConfig(body=body, contact_share=None))
    triple = sample(world, 10_000)
    assert 0.05 < triple.contact.double().mean() < 0.6
    assert gap_between(world, triple.agent, triple.object, triple.angle).min() > AGENT_RADIUS - 1e-6


def test_same_seed_same_bytes_and_another_seed_others() -> None:
    for changes in CONFIGURATIONS.values():
        one, two = (Sprites(SpritesConfig(size=32, **changes)) for _ in range(2))
        first, second, other = one.sample(50, generator(3)), two.sample(50, generator(3)), one.sample(50, generator(4))
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
        assert not torch.equal(first.agent, other.agent)
        assert all(torch.equal(x, y) for x, y in zip(one.render_pair(first), two.render_pair(second), strict=True))


# The sweep


def anywhere(count: int, seed: int) -> tuple[Scene, Tensor]:
    """Scenes with no care taken: bodies may overlap, moves may be short, long or along an axis."""
    source = generator(seed)
    agent, thing = torch.rand(count, 2, generator=source), 0.2 + 0.6 * torch.rand(count, 2, generator=source)
    move = (torch.rand(count, 2, generator=source) * 2 - 1) * torch.rand(count, 1, generator=source)
    move[::10, 0] = 0
    move[1::10, 1] = 0
    move[2::50] = 0
    return Scene(agent, thing, math.pi * torch.rand(count, generator=source)), move


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("source", ["anywhere", "sampled"])
def test_sweep_agrees_with_dense_sampling_of_the_path(source: str, body: Any) -> None:
    world = Sprites(SpritesConfig(body=body, contact_share=None))
    count, steps = 2000, 801
    if source == "anywhere":
        start, move = anywhere(count, seed=1)
    else:
        triple = world.sample(count, generator(2))
        start, move = Scene(triple.agent, triple.object, triple.angle), triple.displacement
    agent, thing, angle = (x.double().numpy() for x in start)
    displacement = move.double().numpy()
    path = agent[:, None] + np.linspace(0, 1, steps)[:, None] * displacement[:, None]
    nearest = disc_to_box(path, thing, angle, world.config.half_sides).min(1)
    touched, radius = world.touches(start, move).numpy(), AGENT_RADIUS
    # Sampling sees the path at most half a step too far away, never too near; 1e-6 is float32's share.
    half_step = np.linalg.norm(displacement, axis=1) / (steps - 1) / 2
    assert (nearest[touched] <= (radius + half_step + 1e-6)[touched]).all()
    assert (nearest[~touched] > radius - 1e-6).all()
    assert 0.05 < touched.mean() < 0.9
    assert (touched != (nearest <= radius)).mean() < 0.002


def test_sweep_by_hand() -> None:
    """A diamond at the centre, half diagonal 0.085, and a disc of 0.045 that passes beside its right corner."""
    world = Sprites()
    reach = 0.085 + 0.045
    for offset, touched in ((reach - 1e-4, True), (reach + 1e-4, False)):
        start = scene((0.5 + offset, 0.1), (0.5, 0.5))
        assert world.touches(start, torch.tensor([[0.0, 0.8]])).tolist() == [touched]
    short_of_it = scene((0.1, 0.5), (0.5, 0.5))
    assert world.touches(short_of_it, torch.tensor([[0.4 - reach - 1e-4, 0.0]])).tolist() == [False]
    assert world.touches(short_of_it, torch.tensor([[0.4 - reach + 1e-4, 0.0]])).tolist() == [True]
    assert world.touches(short_of_it, torch.tensor([[0.8, 0.0]])).tolist() == [True]
    assert world.touches(short_of_it, torch.tensor([[0.0, 0.0]])).tolist() == [False]


def test_sweep_through_a_thin_rectangle_far_from_all_its_corners() -> None:
    world = Sprites(SpritesConfig(body="rectangle"))
    upright = scene((0.1, 0.5), (0.5, 0.5), angle=math.pi / 2)
    assert world.touches(upright, torch.tensor([[0.8, 0.01]])).tolist() == [True]
    assert world.touches(upright, torch.tensor([[0.8, 0.6]])).tolist() == [False]


# step


def test_step_stops_at_the_border_axis_by_axis_and_says_how_far_it_went() -> None:
    world = Sprites()
    start = scene((0.9, 0.1), (0.3, 0.7))
    triple = world.step(start, torch.tensor([[0.5, 0.05]]), generator())
    torch.testing.assert_close(triple.agent_next, torch.tensor([[0.955, 0.15]]))
    torch.testing.assert_close(triple.displacement, torch.tensor([[0.055, 0.05]]))
    assert torch.equal(triple.displacement, triple.agent_next - triple.agent)
    assert triple.contact.tolist() == [False]
    assert torch.equal(triple.object_next, start.object)


def test_step_sweeps_the_way_achieved_not_the_way_wanted() -> None:
    """Wanted straight through the object; the border turns the way aside."""
    world = Sprites()
    start = scene((0.95, 0.9), (0.79, 0.5))
    wanted = torch.tensor([[-0.9, -2.0]])
    triple = world.step(start, wanted, generator())
    assert torch.equal(triple.contact, world.touches(start, triple.displacement))
    assert not torch.equal(triple.contact, world.touches(start, wanted))


@pytest.mark.parametrize("body", BODIES)
def test_steps_obey_the_same_law_as_samples(body: Any) -> None:
    world, source = Sprites(SpritesConfig(body=body)), generator(5)
    here = world.reset(2000, source)
    for _ in range(3):
        wanted = 0.4 * torch.randn(2000, 2, generator=source)
        t = world.step(here, wanted, source)
        moved = (t.object_next - t.object).norm(dim=1)
        assert torch.equal(t.contact, moved > MOVED_EPSILON)
        assert (moved[~t.contact] == 0).all()
        assert gap_between(world, t.agent_next, t.object_next, t.angle_next).min() > AGENT_RADIUS - 1e-6
        assert t.agent_next.min() >= 0.045 - 1e-6
        assert t.agent_next.max() <= 0.955 + 1e-6
        inside = ((here.agent + wanted - 0.5).abs() < 0.455).all(1)
        torch.testing.assert_close(t.displacement[inside], wanted[inside], atol=1e-6, rtol=0)
        here = Scene(t.agent_next, t.object_next, t.angle_next)


# Pictures


def light(world: Sprites, what: Scene) -> Tensor:
    """The picture [3, h, w] of one scene, from 0 to 1."""
    return world.render(what)[0] / 255


def ink(world: Sprites, what: Scene, colour: tuple[int, int, int]) -> np.ndarray:
    """Coverage [h, w] of one colour on black: how much of each pixel has it, from the channel where the other is weak.

    The scene's other sprite must stand in the other half (x < 0.5 the object, x > 0.5 the agent)."""
    picture = light(world, what).double().numpy()
    channel = int(np.argmax(colour))
    alpha = picture[channel] * 255 / colour[channel]
    half = world.config.size // 2
    alpha[:, half:] *= colour == AGENT_COLOUR
    alpha[:, :half] *= colour == OBJECT_COLOUR
    return alpha


def centroid(alpha: np.ndarray) -> tuple[float, float]:
    """In state coordinates: x right, y up, the unit square."""
    size = len(alpha)
    places = (np.arange(size) + 0.5) / size
    return (alpha.sum(0) * places).sum() / alpha.sum(), (alpha.sum(1) * places[::-1]).sum() / alpha.sum()


SIZES = [32, 100]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", BODIES)
def test_object_is_drawn_at_its_state_with_its_area(body: Any, size: int) -> None:
    """Exactly in the mean over places and angles; a single picture is as exact as box filtering in the object's own
    frame, which is worst for a rectangle thinner than a pixel."""
    world = Sprites(SpritesConfig(body=body, size=size))
    areas, errors = [], []
    for start in zip(*world.reset(80, generator(size)), strict=True):
        at = 0.2 + float(start[1][0] - 0.2) / 6, float(start[1][1])  # all of it in the left half
        alpha = ink(world, scene((0.9, 0.9), at, float(start[2])), OBJECT_COLOUR)
        areas.append(alpha.sum() / size**2 / (4 * math.prod(world.config.half_sides)))
        errors.append((np.array(centroid(alpha)) - at) * size)
    assert np.mean(areas) == pytest.approx(1, abs=0.008)
    assert np.abs(np.array(areas) - 1).max() < (0.12 if size == 32 else 0.06)
    assert np.abs(np.mean(errors, 0)).max() < 0.03, "in pixels"
    assert np.abs(errors).max() < 0.25


def test_diamond_stands_on_its_corner() -> None:
    """At 200 pixels: |x| + |y| <= half diagonal is full, beyond it empty, give or take the edge's pixel."""
    world = Sprites(SpritesConfig(size=200))
    alpha = ink(world, scene((0.9, 0.9), (0.25, 0.5)), OBJECT_COLOUR)
    places = (np.arange(200) + 0.5) / 200
    x, y = places[None, :] - 0.25, places[::-1][:, None] - 0.5
    inside = np.abs(x) + np.abs(y)
    assert (alpha[inside < 0.085 - 0.008] > 0.999).all()
    assert (alpha[(inside > 0.085 + 0.008)] < 0.001).all()


def test_rectangle_lies_along_its_angle() -> None:
    world = Sprites(SpritesConfig(body="rectangle", size=128))
    for angle in (0.0, 0.5, 1.2, 2.0, 3.0):
        alpha = ink(world, scene((0.9, 0.9), (0.25, 0.5), angle), OBJECT_COLOUR)
        places = (np.arange(128) + 0.5) / 128
        x, y = np.meshgrid(places - 0.25, places[::-1] - 0.5)
        spread = np.array(
            [[(alpha * x * x).sum(), (alpha * x * y).sum()], [(alpha * x * y).sum(), (alpha * y * y).sum()]]
        )
        values, vectors = np.linalg.eigh(spread / alpha.sum())
        long = vectors[:, 1]
        assert abs(long[0] * math.sin(angle) - long[1] * math.cos(angle)) < 0.01
        assert math.sqrt(3 * values[1]) == pytest.approx(0.165, rel=0.02)  # variance of a side is half^2 / 3


@pytest.mark.parametrize(("what", "axis"), [("object", 0), ("agent", 1), ("rectangle", 0), ("rectangle", 1)])
def test_a_quarter_pixel_of_state_is_a_quarter_pixel_of_picture(what: str, axis: int) -> None:
    body: Any = "rectangle" if what == "rectangle" else "diamond"
    world = Sprites(SpritesConfig(body=body))
    size = world.config.size
    colour = AGENT_COLOUR if what == "agent" else OBJECT_COLOUR
    places = []
    for quarter in range(5):
        agent, thing = [0.8, 0.55], [0.25, 0.5]
        (agent if what == "agent" else thing)[axis] += 0.25 * quarter / size
        places.append(centroid(ink(world, scene(tuple(agent), tuple(thing), 0.4), colour)))  # type: ignore[arg-type]
    steps = np.diff(np.array(places), axis=0) * size
    np.testing.assert_allclose(steps[:, axis], 0.25, atol=0.05)
    np.testing.assert_allclose(steps[:, 1 - axis], 0, atol=0.03)
    assert steps[:, axis].sum() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("size", SIZES)
def test_a_whole_pixel_shifts_the_picture_exactly(size: int) -> None:
    world = Sprites(SpritesConfig(size=size))
    here = world.render(scene((0.5, 0.5), (0.3, 0.3)))
    there = world.render(scene((0.5 + 2 / size, 0.5 + 1 / size), (0.3 + 2 / size, 0.3 + 1 / size)))
    shifted = here.roll((-1, 2), (2, 3))
    assert (shifted.int() - there.int()).abs().max() <= 1


def test_the_figure_lies_inside_the_touching_disc() -> None:
    for *ends, thickness in FIGURE:
        assert all(math.hypot(*end) + thickness <= 1 for end in ends)
    world = Sprites(SpritesConfig(size=512))
    alpha = ink(world, scene((0.75, 0.5), (0.25, 0.5)), AGENT_COLOUR)
    places = (np.arange(512) + 0.5) / 512
    distance = np.hypot(places[None, :] - 0.75, places[::-1][:, None] - 0.5)
    assert alpha[distance > 0.045 + 1 / 512].max() == 0
    assert alpha[distance < 0.045].mean() > 0.3
    x, y = centroid(alpha)
    assert x == pytest.approx(0.75, abs=1e-4), "left and right are alike"
    assert abs(y - 0.5) < 0.01


def test_agents_in_the_corners_are_drawn_whole() -> None:
    world = Sprites()
    middle = light(world, scene((0.5, 0.5), (0.8, 0.3)))[0].sum()
    for corner in ((0.045, 0.045), (0.955, 0.045), (0.045, 0.955), (0.955, 0.955)):
        drawn_there = light(world, scene(corner, (0.8, 0.3)))[0].sum()
        assert drawn_there.item() == pytest.approx(middle.item(), rel=0.01)


def test_render_pair_is_render_of_before_and_after() -> None:
    world = Sprites(SpritesConfig(body="rectangle", background=True, size=48))
    t = world.sample(7, generator())
    o, o_next = world.render_pair(t)
    assert torch.equal(o, world.render(Scene(t.agent, t.object, t.angle)))
    assert torch.equal(o_next, world.render(Scene(t.agent_next, t.object_next, t.angle_next)))


@pytest.mark.parametrize("axis", [0, 1])
def test_background_moves_with_the_agent_and_sprites_stay_in_the_fixed_frame(axis: int) -> None:
    """The view slides by 2 picture sides while the agent crosses one: k / 2 pixels of agent are k of background."""
    world, plain = Sprites(SpritesConfig(background=True)), Sprites()
    size, k = world.config.size, 6
    agent, thing = [0.75, 0.5], (0.25, 0.5)
    moved = list(agent)
    moved[axis] += k / 2 / size
    scenes = [scene(tuple(at), thing) for at in (agent, moved)]  # type: ignore[arg-type]
    here, there = (light(world, s) for s in scenes)
    empty = torch.stack([light(plain, s).sum(0) for s in scenes]).amax(0) == 0
    # To the right the background slides left; upwards it slides down, to larger rows.
    shifted = here.roll(-k if axis == 0 else k, 2 if axis == 0 else 1)
    inside = torch.zeros(size, size, dtype=torch.bool)
    inside[k:-k, k:-k] = True
    seen = empty & empty.roll(-k if axis == 0 else k, 1 - axis) & inside
    assert seen.double().mean() > 0.5
    torch.testing.assert_close(shifted[:, seen], there[:, seen], atol=0.004, rtol=0)
    assert (here - there)[:, seen].abs().max() > 0.1
    # The sprites are where they are without a background.
    for drawn_scene, picture in zip(scenes, (here, there), strict=True):
        bare = light(plain, drawn_scene)
        for colour in (AGENT_COLOUR, OBJECT_COLOUR):
            full = (bare - torch.tensor(colour).view(3, 1, 1) / 255).abs().amax(0) < 1e-4
            assert full.any()
            torch.testing.assert_close(picture[:, full], bare[:, full])


def test_background_repeats_after_two_squares_and_is_inverted_after_one() -> None:
    world = Sprites(SpritesConfig(background=True))
    one_square = CHECKER_SIDE / 2  # of agent movement
    far = 0.8, 0.8  # the object, out of the strip looked at
    pictures = [light(world, scene((0.3 + i * one_square, 0.9), far))[:, 60:, :60] for i in range(3)]
    torch.testing.assert_close(pictures[0], pictures[2], atol=0.004, rtol=0)
    middle = (pictures[0] + pictures[1]) / 2
    torch.testing.assert_close(middle, middle[:, :1, :1].expand_as(middle), atol=0.004, rtol=0)
    assert (pictures[0] - pictures[1]).abs().max() > 0.2


def test_without_background_the_ground_is_black() -> None:
    picture = Sprites().render(scene((0.9, 0.9), (0.3, 0.3)))[0]
    assert picture[:, 50:, 60:].max() == 0


# Configuration


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 15}, "size is 15; allowed is 16 to 1024 pixels"),
        ({"size": 2000}, "size is 2000; allowed is 16 to 1024 pixels"),
        ({"body": "circle"}, "body is 'circle'; allowed are 'diamond' and 'rectangle'"),
        ({"contact_share": 1.1}, r"contact_share is 1\.1; allowed is a share from 0 to 1, or None for random motion"),
        ({"contact_share": -0.1}, r"contact_share is -0\.1"),
    ],
)
def test_impossible_worlds_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpritesConfig(**changes)


def test_a_mast_hides_what_is_behind_it() -> None:
    world = Sprites(SpritesConfig(size=60, mast=0.12))
    agent = torch.tensor([[0.5, 0.2], [0.5, 0.7], [0.2, 0.2]])
    thing = torch.tensor([[0.5, 0.6], [0.5, 0.3], [0.5, 0.6]])  # behind it, in front of it, beside it
    scene = Scene(agent, thing, torch.full((3,), math.pi / 4))
    pictures, plain = world.render(scene).int(), Sprites(SpritesConfig(size=60)).render(scene).int()
    green = (pictures[:, 1] > pictures[:, 0] + 60).flatten(1).any(1)
    assert green.tolist() == world.visible(scene).tolist() == [False, True, True]
    below = slice(60 - int(0.15 * 60), None)  # rows below all agents
    assert torch.equal(pictures[:, :, below], plain[:, :, below])
    assert pictures[0, :, 10, 30].tolist() == list(MAST_COLOUR)
    with pytest.raises(ValueError, match="mast is 0.5; allowed is 0 to 0.2"):
        SpritesConfig(mast=0.5)
