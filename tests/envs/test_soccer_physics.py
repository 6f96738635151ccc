"""Soccer's physics: touched if and only if moved, by the simulator's own list; nothing explodes, tunnels or creeps."""

import math
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palpate.envs.soccer import Scene, Soccer, SoccerConfig, Triples, physics
from palpate.envs.soccer.config import AGENT_RANGE, FENCE_RANGE, GAP, MOVED_EPSILON, REACH, SCALE
from palpate.envs.soccer.physics import RADIUS, TIMESTEP, Outcome, Physics, fence

COUNT = 1000
SPEED = SoccerConfig().agent_speed
UPRIGHT = np.array((1, 0, 0, 0), np.float32)
NORMALS, OFFSETS = fence()


@pytest.fixture(scope="module")
def world() -> Soccer:
    return Soccer(SoccerConfig(contact_share=0.5, stride=1.0))  # the longer the way, the more can happen on it


@pytest.fixture(scope="module")
def triples(world: Soccer) -> Triples:
    return world.states(0, 0, COUNT)


class Watched:
    """MuJoCo with a note of what the ball did after every call of `mj_step`."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.fastest, self.highest, self.deepest = 0.0, 0.0, -math.inf
        self.agent_speeds: set[float] = set()

    def mj_step(self, model: Any, data: Any, nstep: int = 1) -> None:
        self.agent_speeds.add(round(float(np.hypot(*data.qvel[:2])), 6))
        for _ in range(nstep):
            mujoco.mj_step(model, data)
            self.fastest = max(self.fastest, float(np.linalg.norm(data.qvel[2:5])))
            self.highest = max(self.highest, float(data.qpos[4]))
            self.deepest = max(self.deepest, float((NORMALS @ data.qpos[2:4] / SCALE - OFFSETS).max()))

    def __getattr__(self, name: str) -> Any:
        return getattr(mujoco, name)


@pytest.fixture(scope="module")
def watched() -> tuple[Physics, Watched]:
    simulator, watch = Physics(SPEED), Watched()
    simulator._mujoco = watch  # type: ignore[assignment]
    return simulator, watch


def at(*place: float) -> np.ndarray:
    return np.array(place, np.float32)


def gap(outcome: Outcome) -> float:
    return math.dist(outcome.agent, outcome.object) - REACH


def excess(position: np.ndarray) -> np.ndarray:
    """How far beyond the fence, [b] or a number."""
    return ((np.asarray(position, float) - 0.5) @ NORMALS.T - OFFSETS).max(-1)


def replay(triples: Triples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The slow twin: every time step of every path, from a model and a loop of its own.

    Whether the simulator ever listed a contact of agent and ball, how far the ball was from where it lay at the end of
    the path, and how far the agent was ever from where its path has it, [b] each.
    """
    model = physics.build_mechanics(mujoco)
    data = mujoco.MjData(model)
    agent_geom = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "agent")  # the ball is all it can touch
    height = Physics(SPEED)._height
    stride = SPEED * TIMESTEP
    listed, drift, off = [], [], []
    for agent, ball, turned, move in zip(*triples.before, triples.action, strict=True):
        mujoco.mj_resetData(model, data)
        start, place = (np.asarray(x, float) * SCALE - SCALE / 2 for x in (agent, ball))
        length = float(np.hypot(*move))
        data.qpos[:] = *start, *place, height, *turned
        heading, seen, away = move / length, False, 0.0
        gone = np.append(np.arange(0, length, stride), length)[:, None]
        velocity = heading * SPEED * SCALE
        path = start + gone * heading * SCALE  # [t, 2]
        for here, next_ in zip(path, path + velocity * TIMESTEP, strict=True):
            data.qpos[:2], data.qvel[:2] = here, velocity
            mujoco.mj_step(model, data)
            seen |= agent_geom in data.contact.geom
            away = max(away, abs(data.qpos[0] - next_[0]), abs(data.qpos[1] - next_[1]))
        listed.append(seen)
        drift.append(float(np.hypot(*(data.qpos[2:4] - place))) / SCALE)
        off.append(away / SCALE)
    return np.array(listed), np.array(drift), np.array(off)


# Touched if and only if moved


@pytest.mark.slow
def test_contact_means_moved(triples: Triples) -> None:
    moved = np.linalg.norm(triples.after.object - triples.before.object, axis=1)
    assert np.array_equal(triples.contact, moved > MOVED_EPSILON)
    still = ~triples.contact
    assert np.array_equal(triples.before.object[still], triples.after.object[still])
    assert np.array_equal(triples.before.orientation[still], triples.after.orientation[still])
    assert 0.4 < triples.contact.mean() < 0.6


@pytest.mark.slow
def test_contacts_are_those_of_the_simulators_list(triples: Triples) -> None:
    """At every time step of every path, nothing skipped; a ball that was not touched did not move in it either."""
    listed, drift, off = replay(triples)
    free = ~triples.stopped  # a pinned agent stands back a little from where it touched
    assert free.mean() > 0.9
    assert np.array_equal(listed[free], triples.contact[free])
    assert drift[~listed].max() < 1e-9
    assert off.max() < 1e-7


@pytest.mark.slow
def test_contacts_are_where_two_discs_meet(world: Soccer, triples: Triples) -> None:
    assert np.array_equal(
        world.touches(triples.before, triples.after.agent)[~triples.stopped], triples.contact[~triples.stopped]
    )


@pytest.mark.slow
def test_the_path_achieved_touches_a_pinned_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heavy ball without bounce slides along the fence before it stops the agent, which is then set back."""
    monkeypatch.setattr(physics, "BALL_MASS", 50)
    monkeypatch.setattr(physics, "RESTITUTION", 1e-3)
    world = Soccer(SoccerConfig(contact_share=0.5, stride=1.0, agent_speed=1.0))
    triples = world.states(0, 0, 400)
    stopped = triples.contact & triples.stopped
    scene = Scene(*(x[stopped] for x in triples.before))
    assert world.touches(scene, triples.after.agent[stopped]).all()
    assert stopped.sum() > 7


def test_a_ball_at_rest_does_not_creep() -> None:
    simulator = Physics(SPEED)
    rng = np.random.default_rng(0)
    for _ in range(20):
        place, turned = rng.uniform(-3, 3, 2), rng.normal(size=4)
        simulator._place(np.array((4.5, 4.5)), place, turned / np.linalg.norm(turned))
        mujoco.mj_step(simulator._model, simulator._data, nstep=1000)
        assert np.abs(simulator._data.qpos[2:4] - place).max() < 1e-9
        assert np.abs(simulator._data.qvel).max() < 1e-6


@pytest.mark.slow
def test_skipping_the_free_part_of_the_path_changes_nothing(world: Soccer, triples: Triples) -> None:
    """All of the path simulated, contacts and misses alike: the same end, exactly where nothing was touched."""
    before, after = triples.before, triples.after
    for i in range(100):
        state = before.agent[i], before.object[i], before.orientation[i], after.agent[i]
        fast, slow = (world._physics.step(*state, skip=skip) for skip in (True, False))
        assert fast[3:] == slow[3:]
        assert np.array_equal(fast.agent, slow.agent)
        np.testing.assert_allclose(fast.object, slow.object, atol=1e-3 if fast.contact else 0)
        assert fast.contact == triples.contact[i] or triples.stopped[i]
        assert triples.stopped[i] or np.allclose(fast.object, after.object[i], atol=1e-3)


def test_a_grazing_touch_leaves_the_ball() -> None:
    """Past the ball, ever closer: untouched, then grazing, then moved by more than the epsilon, and nothing between."""
    simulator = Physics(SPEED)
    kinds = []
    for depth in np.linspace(-5e-4, 4e-3, 60):
        ball = at(0.5, 0.5)
        outcome = simulator.step(at(0.5 + REACH - depth, 0.2), ball, UPRIGHT, at(0.5 + REACH - depth, 0.8))
        moved = math.dist(outcome.object, ball)
        assert moved == 0 if not outcome.contact else moved > MOVED_EPSILON
        assert outcome.contact or np.array_equal(outcome.orientation, UPRIGHT)
        kinds.append("contact" if outcome.contact else "grazing" if outcome.grazing else "free")
    assert kinds == sorted(kinds, key=["free", "grazing", "contact"].index)
    assert set(kinds) == {"free", "grazing", "contact"}


# The bodies


@pytest.mark.slow
def test_bodies_are_apart_and_in_their_ranges(triples: Triples) -> None:
    for agent, ball, _ in (triples.before, triples.after):
        assert (np.linalg.norm(agent.astype(float) - ball, axis=1) - REACH).min() > GAP * 0.999
        assert excess(ball).max() < 0
        assert agent.min() >= np.float32(AGENT_RANGE[0])
        assert agent.max() <= np.float32(AGENT_RANGE[1])
        assert agent.min() < AGENT_RANGE[0] + 0.02
        assert agent.max() > AGENT_RANGE[1] - 0.02
        assert ball.min() < FENCE_RANGE[0] + 0.02
        assert ball.max() > FENCE_RANGE[1] - 0.02


@pytest.mark.slow
def test_the_agent_goes_exactly_where_the_action_says(triples: Triples) -> None:
    assert np.array_equal(triples.action, triples.after.agent - triples.before.agent)
    assert np.linalg.norm(triples.action, axis=1).mean() > 0.3


def test_an_agent_that_is_not_pinned_reaches_its_target() -> None:
    simulator = Physics(SPEED)
    target = at(0.6123, 0.5377)
    outcome = simulator.step(at(0.2, 0.5), at(0.4, 0.5), UPRIGHT, target)
    assert outcome.contact
    assert not outcome.stopped
    assert np.array_equal(outcome.agent, target)


@pytest.mark.parametrize("restitution", [0.3, 0.6])
def test_a_head_on_kick(restitution: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a body that moves and is not deflected a ball leaves at 1 + e times its speed; the solver sees it move."""
    monkeypatch.setattr(physics, "RESTITUTION", restitution)
    simulator, watch = Physics(SPEED), Watched()
    simulator._mujoco = watch  # type: ignore[assignment]
    speeds, agent_speeds = [], set()
    for x in np.linspace(0.2, 0.3, 20):  # time steps fall differently into the collision
        watch.forget()
        simulator.step(at(x, 0.5), at(0.45, 0.5), UPRIGHT, at(0.5, 0.5))
        speeds.append(watch.fastest)
        agent_speeds |= watch.agent_speeds
    speed = SPEED * SCALE
    assert np.mean(speeds) / speed == pytest.approx(1 + restitution, abs=0.1)
    assert agent_speeds == {0.0, round(speed, 6)}


@pytest.mark.slow
def test_a_kicked_ball_rolls_far_and_variously(triples: Triples) -> None:
    roll = np.linalg.norm(triples.after.object - triples.before.object, axis=1)[triples.contact]
    low, median, high = np.percentile(roll, (10, 50, 90))
    assert 0.2 < median < 0.6
    assert low < median / 2
    assert high > 0.4


@pytest.mark.slow
def test_a_kicked_ball_turns(triples: Triples) -> None:
    turn = np.abs((triples.before.orientation * triples.after.orientation).sum(1))[triples.contact]
    assert (turn < 0.999).mean() > 0.95
    np.testing.assert_allclose(np.linalg.norm(triples.after.orientation, axis=1), 1, atol=1e-6)


def test_no_action_no_change() -> None:
    outcome = Physics(SPEED).step(at(0.4, 0.5), at(0.5, 0.5), UPRIGHT, at(0.4, 0.5))
    assert not outcome.contact
    assert np.array_equal(outcome.agent, at(0.4, 0.5))


def roll(place: tuple[float, float], speed: float, rolling: bool) -> tuple[Physics, Any]:
    simulator = Physics(SPEED)
    simulator._place(np.array((-4.5, -4.5)), np.array(place), UPRIGHT)
    simulator._data.qvel[2] = speed
    simulator._data.qvel[6] = speed / RADIUS if rolling else 0
    return simulator, simulator._data


def test_rolling_friction_slows_a_rolling_ball() -> None:
    friction = physics.ROLLING_FRICTION
    simulator, data = roll((-3, 0), 4.0, True)
    mujoco.mj_step(simulator._model, data, nstep=50)
    slowed = (4 - data.qvel[2]) / (9.81 * 50 * TIMESTEP)
    assert 0.6 * friction < slowed < friction  # the friction cone is shared with sliding
    assert data.qvel[6] * RADIUS == pytest.approx(data.qvel[2], rel=0.3)


def test_sliding_friction_makes_a_sliding_ball_roll() -> None:
    simulator, data = roll((-3, 0), 4.0, False)
    mujoco.mj_step(simulator._model, data, nstep=100)
    assert 0.5 < data.qvel[6] * RADIUS / data.qvel[2] < 1.05
    assert 1 < data.qvel[2] < 3
    assert data.qpos[4] == pytest.approx(simulator._height, abs=0.01)


def test_a_ball_rolls_alike_in_all_directions() -> None:
    lengths = []
    for angle in np.linspace(0, math.pi / 2, 7):
        simulator, data = roll((0, 0), 0.0, False)
        along = np.array((math.cos(angle), math.sin(angle)))
        data.qvel[2:4] = 3 * along
        assert simulator._wait(np.array((-4.5, -4.5)))
        lengths.append(float(np.hypot(*data.qpos[2:4])))
    assert max(lengths) / min(lengths) < 1.03


def test_restitution_at_the_fence() -> None:
    simulator, data = roll((3.2, 0), 5.0, True)
    mujoco.mj_step(simulator._model, data, nstep=12)
    assert -data.qvel[2] / 5 == pytest.approx(physics.RESTITUTION, abs=0.12)


# The fence


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(angle=st.floats(0, 2 * math.pi), speed=st.floats(1, 30), place=st.tuples(*[st.floats(-2.5, 2.5)] * 2))
@pytest.mark.slow
def test_no_ball_gets_through_the_fence(
    watched: tuple[Physics, Watched], angle: float, speed: float, place: tuple[float, float]
) -> None:
    simulator, watch = watched
    watch.forget()
    simulator._place(np.array((-4.5, -4.5)), np.array(place), UPRIGHT)
    simulator._data.qvel[2:4] = speed * math.cos(angle), speed * math.sin(angle)
    assert simulator._wait(np.array((-40.0, -40.0)))
    assert watch.fastest < speed * 1.2 + 0.1
    assert watch.deepest < 0.03  # a fast ball dips into the fence and comes back
    assert excess(simulator._data.qpos[2:4] / SCALE + 0.5) < 1e-4


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    round_=st.floats(0, 2 * math.pi),
    inset=st.floats(0.0011, 0.06),
    approach=st.floats(-1.5, 1.5),
    distance=st.floats(0.002, 0.5),
    beyond=st.floats(-0.02, 0.5),
)
@pytest.mark.slow
def test_pressed_against_the_fence(
    watched: tuple[Physics, Watched], round_: float, inset: float, approach: float, distance: float, beyond: float
) -> None:
    """Straight on, aslant, along the fence and into its corners: no explosion, no tunnel, bodies apart, no detour."""
    simulator, watch = watched
    watch.forget()
    outward = np.array((math.cos(round_), math.sin(round_)))
    to_fence = (OFFSETS / np.maximum(NORMALS @ outward, 1e-9)).min()  # along the ray from the centre
    ball = (0.5 + outward * (to_fence - inset)).astype(np.float32)
    side = round_ + approach
    heading = np.array((math.cos(side), math.sin(side)))
    agent = np.clip(ball - heading * (REACH + distance), *AGENT_RANGE).astype(np.float32)
    if math.dist(agent, ball) < REACH + GAP:
        return  # not a state: the border left no room
    target = np.clip(ball + heading * beyond, *AGENT_RANGE).astype(np.float32)
    outcome = simulator.step(agent, ball, UPRIGHT, target)
    assert outcome.settled
    assert all(np.isfinite(x).all() for x in outcome[:3])
    assert gap(outcome) > GAP * 0.999
    assert excess(outcome.object) < 0
    assert watch.fastest < 40
    assert watch.highest < SCALE * 0.25  # squeezed between agent and fence, a ball may hop
    assert watch.deepest < 0.03
    wanted, got = target.astype(float) - agent, outcome.agent.astype(float) - agent
    length = math.hypot(*wanted)
    assert abs(wanted[0] * got[1] - wanted[1] * got[0]) < 1e-6 * max(length, 1e-3)  # no deflection
    assert -1e-6 <= got @ wanted <= length**2 + 1e-6
    assert outcome.stopped or np.array_equal(outcome.agent, target)


def test_a_pinned_ball_stops_the_agent() -> None:
    """Head on against the straight side, from near and from far: the agent stops one gap short of the ball."""
    simulator = Physics(SPEED)
    for start in (0.3, 0.6, 0.72):
        outcome = simulator.step(at(start, 0.5), at(0.82, 0.5), UPRIGHT, at(0.95, 0.5))
        assert outcome.stopped
        assert start <= outcome.agent[0] < 0.95 - REACH
        assert outcome.agent[1] == pytest.approx(0.5)
        assert gap(outcome) == pytest.approx(GAP, rel=0.02)


@pytest.mark.slow
def test_some_triples_are_pinned(triples: Triples) -> None:
    assert 0 < triples.stopped.mean() < 0.1
    assert triples.contact[triples.stopped].mean() > 0.9  # the others halted a hair before the ball


def test_the_time_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(physics, "TIME_LIMIT", 0.2)
    outcome = Physics(SPEED).step(at(0.3, 0.5), at(0.45, 0.5), UPRIGHT, at(0.5, 0.5))
    assert not outcome.settled
    assert outcome.contact
