"""Soccer with several balls: each moves if and only if it is touched, by the agent or by another ball."""

import math
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

import palpate
import palpate.envs  # registers the ids
from palpate.envs.goal import GOAL, SoccerGoalEnv
from palpate.envs.soccer import Soccer, SoccerConfig, SoccerDriving, Triples, physics
from palpate.envs.soccer.config import BALL_RADIUS, GAP, MOST_BALLS, MOVED_EPSILON, REACH, SCALE, DrivingConfig
from palpate.envs.soccer.physics import TIMESTEP, Outcome, Physics, fence
from palpate.envs.soccer.world import nearest
from palpate.pictures import backdrop

BALLS = 3
SPEED = SoccerConfig().agent_speed
NORMALS, OFFSETS = fence()


@pytest.fixture(scope="module")
def world() -> Soccer:
    return Soccer(SoccerConfig(balls=BALLS, contact_share=0.5, stride=1.0, size=32))


@pytest.fixture(scope="module")
def triples(world: Soccer) -> Triples:
    return world.states(0, 0, 60)


def at(*places: tuple[float, float]) -> np.ndarray:
    return np.array(places, np.float32)


def upright(count: int) -> np.ndarray:
    return np.tile(np.array((1, 0, 0, 0), np.float32), (count, 1))


def kick(agent: tuple[float, float], target: tuple[float, float], *balls: tuple[float, float]) -> Outcome:
    simulator = Physics(SPEED, len(balls))
    return simulator.step(at(agent)[0], at(*balls), upright(len(balls)), at(target)[0])


def is_legal(agent: np.ndarray, balls: np.ndarray) -> None:
    """Bodies are apart and inside the fence, for one scene."""
    places = balls.astype(float)
    assert (np.linalg.norm(places - agent, axis=1) - REACH).min() > GAP * 0.999
    between = np.linalg.norm(places[:, None] - places, axis=-1) + np.eye(len(places))
    assert between.min() - 2 * BALL_RADIUS > GAP * 0.999
    assert ((places - 0.5) @ NORMALS.T - OFFSETS).max() < 0


# Touched if and only if moved


def test_a_ball_is_in_contact_if_and_only_if_it_moved(triples: Triples) -> None:
    before, after = triples.before, triples.after
    moved = np.linalg.norm(after.object - before.object, axis=-1)
    assert np.array_equal(triples.contact, moved > MOVED_EPSILON)
    still = ~triples.contact
    assert np.array_equal(before.object[still], after.object[still])
    assert np.array_equal(before.orientation[still], after.orientation[still])
    assert 0.4 < triples.contact.any(1).mean() < 0.6
    assert triples.contact.any(0).all()


def test_all_bodies_are_apart(triples: Triples) -> None:
    for scene in (triples.before, triples.after):
        for agent, balls in zip(scene.agent, scene.object, strict=True):
            is_legal(agent, balls)


def test_pushed_balls_are_those_off_the_path(triples: Triples) -> None:
    """The agent touches the others where two discs meet, unless another ball was there first."""
    near = nearest(triples.before.agent[:, None], triples.action[:, None], triples.before.object) <= REACH
    free = ~triples.stopped
    assert not (near & ~triples.contact)[free].any()
    off = triples.contact & ~near
    assert 0 < off[free].sum() <= triples.pushed.sum() + 3
    assert (triples.pushed <= triples.contact).all()


def listed(triples: Triples, row: int) -> np.ndarray:
    """The slow twin: whether the simulator ever lists each ball with the agent or another ball, [k] bool, over every
    time step until all rest, in a model and a loop of its own."""
    model = physics.build_mechanics(mujoco, BALLS)
    data = mujoco.MjData(model)
    number = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, f"ball{i}") for i in range(BALLS)]
    agent = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "agent")
    start, end = (np.asarray(scene.agent[row], float) for scene in (triples.before, triples.after))
    data.qpos[:2] = (start - 0.5) * SCALE
    for i, (place, turned) in enumerate(zip(triples.before.object[row], triples.before.orientation[row], strict=True)):
        data.qpos[2 + 7 * i : 9 + 7 * i] = *((place.astype(float) - 0.5) * SCALE), Physics(SPEED)._height, *turned
    length = math.dist(start, end)
    seen = np.zeros(BALLS, bool)
    for step in range(round(8.5 / TIMESTEP)):
        share = min(step * SPEED * TIMESTEP / length, 1.0)
        data.qpos[:2] = (start + (end - start) * share - 0.5) * SCALE
        data.qvel[:2] = (end - start) / length * SPEED * SCALE * (share < 1)
        mujoco.mj_step(model, data)
        for pair in data.contact.geom.tolist():
            if agent in pair or set(pair) <= set(number):
                seen |= np.isin(number, pair)
        if share == 1 and np.abs(data.qvel[2:]).max() < 0.05:
            break
    return seen


@pytest.mark.slow
def test_contacts_are_those_of_the_simulators_list(triples: Triples) -> None:
    """A ball may graze another so weakly that it counts as untouched."""
    rows = np.flatnonzero(~triples.stopped)[:30]
    found = np.array([listed(triples, row) for row in rows])
    assert (found == triples.contact[rows]).mean() > 0.97
    assert (found >= triples.contact[rows]).mean() > 0.99  # the balls' ways are chaotic


def test_a_ball_pushes_the_next_one() -> None:
    outcome = kick((0.25, 0.5), (0.36, 0.5), (0.4, 0.5), (0.55, 0.5), (0.5, 0.8))
    assert outcome.contact == [True, True, False]
    assert outcome.pushed == [False, True, False]
    assert not outcome.grazing
    first, second, third = outcome.object
    assert second[0] > first[0] + 0.1  # the pushed one takes the speed
    assert second[1] == pytest.approx(0.5, abs=0.02)
    assert third.tolist() == pytest.approx([0.5, 0.8])
    assert np.array_equal(outcome.orientation[2], upright(1)[0])


def test_one_path_may_touch_two() -> None:
    outcome = kick((0.3, 0.2), (0.3, 0.8), (0.22, 0.35), (0.38, 0.6))
    assert outcome.contact == [True, True]
    assert outcome.pushed == [False, False]
    assert outcome.agent.tolist() == pytest.approx([0.3, 0.8])


def test_a_ball_that_hardly_moved_is_put_back_alone() -> None:
    """The second ball is pushed ever less; the first one stays kicked."""
    kinds = []
    for away in np.linspace(0.083, 0.092, 30):
        balls = at((0.4, 0.5), (0.6, 0.5 + away))
        outcome = kick((0.25, 0.5), (0.36, 0.5), *map(tuple, balls.tolist()))  # type: ignore[arg-type]
        moved = np.linalg.norm(outcome.object - balls, axis=1)
        assert moved[0] > 0.05
        assert outcome.contact == [True, bool(moved[1])]
        assert moved[1] == 0 or moved[1] > MOVED_EPSILON
        is_legal(outcome.agent, outcome.object)
        kinds.append("contact" if outcome.contact[1] else "grazing" if outcome.grazing else "free")
    assert {"contact", "free"} <= set(kinds)


def test_balls_at_rest_side_by_side_do_not_creep() -> None:
    simulator = Physics(SPEED, 2)
    balls = np.array([(0.0, 0.0), (2 * physics.RADIUS + SCALE * GAP, 0.0)])
    simulator._place(np.array((4.5, 4.5)), balls, upright(2))
    mujoco.mj_step(simulator._model, simulator._data, nstep=1000)
    assert np.abs(simulator._poses[:, :2] - balls).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_pressed_against_the_fence(seed: int) -> None:
    """The agent drives into balls that lie at the fence, close together: nothing overlaps, and nothing explodes."""
    rng = np.random.default_rng(seed)
    simulator, kinds = Physics(SPEED, 3), set()
    for _ in range(20):
        middle = np.array((0.82, rng.uniform(0.42, 0.5)))
        gaps = 2 * BALL_RADIUS + rng.uniform(0.0011, 0.01, 2)
        balls = middle + np.array([(0, 0), (0, gaps[0]), (-gaps[1], 0)])
        agent = np.array((rng.uniform(0.3, 0.6), rng.uniform(0.3, 0.7)))
        if np.linalg.norm(balls - agent, axis=1).min() < REACH + GAP:
            continue
        target = np.array((0.94, rng.uniform(0.4, 0.6)), np.float32)
        balls, agent = balls.astype(np.float32), agent.astype(np.float32)
        outcome = simulator.step(agent, balls, upright(3), target)
        is_legal(outcome.agent, outcome.object)
        moved = np.linalg.norm(outcome.object - balls, axis=1)
        assert np.array_equal(outcome.contact, moved > MOVED_EPSILON)
        assert np.array_equal(moved[~np.array(outcome.contact)], np.zeros(3 - sum(outcome.contact)))
        wanted, got = target.astype(float) - agent, outcome.agent.astype(float) - agent
        assert abs(wanted[0] * got[1] - wanted[1] * got[0]) < 1e-6
        kinds.add(outcome.stopped)
    assert True in kinds


@pytest.mark.slow
def test_the_share_of_triples_with_a_pushed_ball() -> None:
    """docs/guide/worlds.md: 4.5 % with two balls. That is less than the 10 % which the method must stand."""
    made = Soccer(SoccerConfig(balls=2)).states(0, 0, 600)
    assert made.contact.any(1).mean() == pytest.approx(0.3, abs=0.05)
    assert 0.02 < made.pushed.any(1).mean() < 0.08


def test_skipping_the_free_part_of_the_path_changes_nothing(world: Soccer, triples: Triples) -> None:
    before, after = triples.before, triples.after
    for i in range(15):
        state = before.agent[i], before.object[i], before.orientation[i], after.agent[i]
        fast, slow = (world._physics.step(*state, skip=skip) for skip in (True, False))
        assert (fast.contact, fast.pushed, fast.grazing) == (slow.contact, slow.pushed, slow.grazing)
        still = ~np.array(fast.contact)
        assert np.array_equal(fast.object[still], slow.object[still])


# Rows, files and pictures


def test_one_ball_has_no_axis_of_its_own() -> None:
    one, two = (Soccer(SoccerConfig(balls=balls)).states(0, 0, 4) for balls in (1, 2))
    assert (one.before.object.shape, one.contact.shape, one.pushed.shape) == ((4, 2), (4,), (4,))
    assert (two.before.object.shape, two.contact.shape, two.pushed.shape) == ((4, 2, 2), (4, 2), (4, 2))
    assert two.before.orientation.shape == (4, 2, 4)
    assert Soccer(SoccerConfig(balls=2)).states(0, 3, 3).before.object.shape == (0, 2, 2)


@pytest.mark.parametrize("env", ["palpate/Soccer-v0", "palpate/SoccerFirstPerson-v0", "palpate/SoccerDriving-v0"])
def test_collected_triples_hold_all_balls(env: str) -> None:
    labelled = palpate.collect(env, 40, seed=0, labelled=True, progress=False, balls=2, size=20)
    truth = labelled.truth
    assert truth.object.shape == (40, 2, 2)
    assert truth.object_next is not None
    moved = (truth.object_next - truth.object).norm(dim=-1) > 0
    assert np.array_equal(truth.contact, moved)
    assert moved.any(0).all()
    assert labelled.transitions.attributes["balls"] == 2
    seen = backdrop(labelled.transitions.attributes, labelled.transitions.rows(slice(0, 3)).o, truth)
    assert seen is not None
    assert seen.pictures.shape[0] == 3


def test_collected_by_stepping() -> None:
    env = gymnasium.make("palpate/Soccer-v0", size=20, balls=2, stride=1.0)
    how: dict[str, Any] = {
        "agent_position": "info:agent",
        "truth": {"agent": "info:agent", "object": "info:object", "contact": "info:contact"},
    }
    truth = palpate.collect(env, 30, seed=0, labelled=True, progress=False, **how).truth
    assert truth.object.shape == (30, 2, 2)
    assert truth.object_next is not None
    assert np.array_equal(truth.contact, (truth.object_next - truth.object).norm(dim=-1) > 0)


@pytest.mark.parametrize("view", ["third", "first"])
def test_pictures_show_every_ball_in_its_colour(view: Any) -> None:
    world = Soccer(SoccerConfig(balls=MOST_BALLS, view=view))
    scene = world.states(2, 0, 1).before
    seen = world.observe(scene).astype(int)
    colours = []
    for i in range(MOST_BALLS):
        without = scene.object.copy()
        without[0, i] = 30.0  # beyond what any camera sees
        alone = np.abs(seen - world.observe(scene._replace(object=without))).sum(-1) > 60
        assert alone.sum() > 12
        colours.append(seen[alone].mean(0) - seen[alone].mean())
    apart = np.linalg.norm(np.array(colours)[:, None] - np.array(colours), axis=-1) + 100 * np.eye(MOST_BALLS)
    assert apart.min() > 25


def test_worlds_with_other_numbers_of_balls_share_a_process() -> None:
    one, two = (Soccer(SoccerConfig(balls=balls, size=20)) for balls in (1, 2))
    scenes = [world.states(0, 0, 1).before for world in (one, two)]
    first, second = one.observe(scenes[0]), two.observe(scenes[1])
    assert np.array_equal(one.observe(scenes[0]), first)
    assert np.array_equal(two.observe(scenes[1]), second)


@pytest.mark.parametrize("config", [SoccerConfig, DrivingConfig])
@pytest.mark.parametrize("balls", [0, MOST_BALLS + 1, 2.0, True])
def test_impossible_numbers_of_balls(config: Any, balls: Any) -> None:
    with pytest.raises(ValueError, match=r"balls is .*; allowed is 1 to 4"):
        config(balls=balls)


def test_an_agent_that_turns_hits_them_too() -> None:
    made = SoccerDriving(DrivingConfig(balls=2, contact_share=0.5)).states(0, 0, 40)
    moved = np.linalg.norm(made.after.object - made.before.object, axis=-1)
    assert np.array_equal(made.contact, moved > MOVED_EPSILON)
    assert made.contact.any(0).all()


# The game


def game(**options: Any) -> SoccerGoalEnv:
    return SoccerGoalEnv(**{"observation": "state", "balls": 2, "counts": 1} | options)


def test_the_ball_that_counts_starts_in_the_centre() -> None:
    env = game()
    for seed in range(20):
        o, info = env.reset(seed=seed)
        assert o.shape == (6,)
        assert o[4:].tolist() == [0.5, 0.5]
        is_legal(info["agent"], info["object"])
    o, info = game(ball="random").reset(seed=0)
    assert o[4:].tolist() == info["object"][1].tolist() != [0.5, 0.5]


def test_the_reward_is_that_of_the_ball_that_counts() -> None:
    env = game()
    _, info = env.reset(seed=0)
    balls = at((0.81, 0.5), (0.41, 0.8))
    env.scene = env.scene._replace(agent=at((0.1, 0.1)), object=balls[None])
    _, reward, terminated, _, info = env.step(np.zeros(2, np.float32))
    assert reward == pytest.approx(-0.5)
    assert not info["goal"]
    env.scene = env.scene._replace(agent=at((0.1, 0.1)), object=balls[None, ::-1])
    _, reward, terminated, _, info = env.step(np.zeros(2, np.float32))
    assert reward == pytest.approx(0, abs=1e-6)
    assert terminated
    assert info["goal"]
    assert pytest.approx((0.81, 0.5)) == GOAL


@pytest.mark.parametrize("counts", [-1, 2, True])
def test_a_ball_that_is_not_there_cannot_count(counts: Any) -> None:
    with pytest.raises(ValueError, match=r"counts is .*; allowed is 0 to 1, the number of a ball"):
        game(counts=counts)


def test_scenes_hold_every_orientation() -> None:
    env = game(observation="scene")
    o, _ = env.reset(seed=0)
    assert o.shape == (2 + 2 * 2 + 2 * 4,)
    assert env.observation_space.contains(o)
