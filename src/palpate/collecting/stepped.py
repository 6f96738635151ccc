"""Triples from any Gymnasium environment.

A block of rows starts with a fresh episode; its seed is derived from the collection's seed and the block's number.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, final

import gymnasium
import numpy as np
from gymnasium.spaces import Box, flatten

from palpate.collecting.blocks import BLOCK_ROWS
from palpate.collecting.readings import Moment, read
from palpate.collecting.sensing import NO_TRUTH, Sensing, stacked_truth
from palpate.collecting.stepping import Stepping

REJECTED = ("grazing", "unsettled")  # entries of info that mark steps to drop
MOST_DROPPED = 200  # consecutive dropped triples after which collecting fails
SAY_WHERE = (
    "give a reading of the agent's position, such as agent_position='info:KEY' (--agent-position info:KEY), or wrap "
    'the environment so that it reports info["displacement"]'
)
FEW = 16  # triples in which an agent may stand still
MOVES = 32  # commands that a chooser chooses from


class Chooser(Protocol):
    """Chooses the commands of a share of the triples, from the observation before the move alone."""

    share: float

    def __call__(self, observation: np.ndarray, commands: np.ndarray) -> int:
        """The row of the flat `commands` [c, m] to use."""


class _Row(NamedTuple):
    o: np.ndarray
    a: np.ndarray  # [n]
    o_next: np.ndarray
    truth: dict[str, np.ndarray]
    episode: int
    command: np.ndarray  # [m]


@final
class Stepped:
    """Steps an environment and makes rows of triples: a `RowWorld`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        stepping: Stepping,
        *,
        labelled: bool,
        ours: bool,
        chooser: Chooser | None = None,
    ) -> None:
        if not isinstance(env, gymnasium.Env):
            raise ValueError(f"env is a function that returns {env!r}; it must make a Gymnasium environment")
        self.env, self._how, self._labelled, self._ours = env, stepping, labelled, ours
        self._chooser = chooser
        self._sensing = Sensing(stepping)
        self._check_spaces()

    def close(self) -> None:
        if self._ours:
            self.env.close()

    def settings(self) -> dict[str, Any]:
        name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
        return {"environment": name} | self._how.attributes()

    def rows(self, seed: int, start: int, stop: int) -> SimpleNamespace:
        """The rows of one block, from its first row on."""
        env_seed, choice_seed = map(int, np.random.SeedSequence((seed, start // BLOCK_ROWS)).generate_state(2))
        self.env.action_space.seed(env_seed)
        dropped: Counter[str] = Counter()
        triples = self._triples(env_seed, np.random.default_rng(choice_seed), dropped)
        o, a, o_next, truth, episode, command = zip(*islice(triples, stop - start), strict=True)
        if len(a) >= FEW and not np.any(a):
            question = "does agent_position read what the actions move, and does one step suffice to move it?"
            advice = SAY_WHERE if self._how.agent_position is None else question
            raise ValueError(f"the agent did not move in any of {len(a)} triples; {advice}")
        planar = "heading" in truth[0] and np.shape(truth[0].get("agent")) == (2,)
        known = stacked_truth(truth, 2 if planar else 3 if "rotation" in truth[0] else np.size(a[0]))
        if self._labelled and not known:
            raise ValueError(NO_TRUTH)
        return SimpleNamespace(
            observation=o,
            action=a,
            next_observation=o_next,
            layout="auto",
            episode=start + np.array(episode),  # a block has at most as many episodes as rows
            command=np.stack(command),
            dropped=dropped,
            **known,
        )

    def _triples(self, seed: int, rng: np.random.Generator, dropped: Counter[str]) -> Iterator[_Row]:
        sensing, now, consecutive = self._sensing, self._begin(dropped, seed), 0
        before, episode, used = sensing.look(now), 0, False
        while True:
            motion = self._move(now, before.observation, rng)
            dropped.update(motion.faults)
            if not motion.faults:
                consecutive, used = 0, True
                after = sensing.look(motion.now)
                a = motion.displacement if before.pose is None else sensing.between(before.pose, after.pose)
                truth = sensing.truth_between(before.state, after.state, motion.contact)
                yield _Row(before.observation, a, after.observation, truth, episode, motion.command)
            elif (consecutive := consecutive + 1) >= MOST_DROPPED:
                raise ValueError(_too_many_dropped(dropped))
            if motion.over or motion.lost:
                now, episode, used = self._begin(dropped), episode + used, False
                before = sensing.look(now)
            else:
                now = motion.now
                before = sensing.look(now) if motion.faults else after

    def _begin(self, dropped: Counter[str], seed: int | None = None) -> Moment:
        """Start an episode, and wait until the scene rests."""
        for _ in range(MOST_DROPPED):
            motion = _Motion(Moment(self.env, *self.env.reset(seed=seed)))
            if not self._how.settle or (self._rests(motion) and not motion.over):
                return motion.now
            dropped[motion.over or "unsettled"] += 1
            seed = None
        raise ValueError(_too_many_dropped(dropped))

    def _move(self, now: Moment, observation: np.ndarray, rng: np.random.Generator) -> "_Motion":
        """Make all steps of one triple."""
        how, action = self._how, self._choose(now, observation, rng)
        motion = _Motion(now, command=self._flat(action))
        for taken in range(1, how.aggregate + 1):
            self._step(motion, action)
            if motion.over:
                if taken < how.aggregate or how.settle:  # too early, or no step is left to see the scene rest
                    motion.lose(motion.over)
                return motion
        if how.settle and not self._rests(motion):
            motion.lose(motion.over or "unsettled")
        return motion

    def _rests(self, motion: "_Motion") -> bool:
        """Wait until the scene rests; false if it does not, or if the episode ends first."""
        before = self._sensing.watch(motion.now)
        for _ in range(self._how.settle):
            self._step(motion, self._hold(motion.now))
            after = self._sensing.watch(motion.now)
            if all(_near(x, y, self._how.tolerance) for x, y in zip(before, after, strict=True)):
                return True
            if motion.over:
                return False
            before = after
        return False

    def _step(self, motion: "_Motion", action: Any) -> None:
        observation, _, terminated, truncated, info = self.env.step(action)
        motion.now = now = Moment(self.env, observation, info)
        motion.over = "terminated" if terminated else "truncated" if truncated else ""
        motion.faults |= {name for name in REJECTED if info.get(name)}
        touched = self._sensing.contact(now)
        if touched is not None:
            motion.contact = touched if motion.contact is None else touched | motion.contact
        if self._how.agent_position is None:
            moved = np.array(info["displacement"] if "displacement" in info else _displacement(now, action))
            motion.displacement = moved if motion.displacement is None else motion.displacement + moved

    def _choose(self, now: Moment, observation: np.ndarray, rng: np.random.Generator) -> Any:
        if self._chooser is None or rng.random() >= self._chooser.share:
            return self._draw(now, rng)
        actions = [self._draw(now, rng) for _ in range(MOVES)]
        return actions[self._chooser(observation, np.stack([self._flat(action) for action in actions]))]

    def _draw(self, now: Moment, rng: np.random.Generator) -> Any:
        how = self._how
        if how.approach is None or rng.random() >= how.approach_share:
            return self.env.action_space.sample()
        return self._action("approach", how.approach(now, rng))

    def _flat(self, action: Any) -> np.ndarray:
        """The action as numbers [m], one-hot if it is discrete; none of a space that has no such form."""
        space = self.env.action_space
        return np.array(flatten(space, action) if space.is_np_flattenable else (), np.float32)

    def _hold(self, now: Moment) -> Any:
        hold = self._how.hold
        if hold is None:
            hold = np.zeros(self.env.action_space.shape or ())
        elif isinstance(hold, str) or callable(hold):
            hold = read("hold", hold, now)
        return self._action("hold", hold)

    def _action(self, what: str, value: Any) -> Any:
        """The value as an action of the space; actions of a box are clipped to it."""
        space = self.env.action_space
        if not isinstance(space, Box):
            if value not in space:
                raise ValueError(f"{what} returns the action {value!r}; the action space is {space}")
            return value
        action = np.asarray(value, dtype=np.float64)
        if action.shape != space.shape or not np.isfinite(action).all():
            raise ValueError(f"{what} returns the action {value!r}; allowed are finite numbers of shape {space.shape}")
        return np.clip(action, space.low, space.high).astype(space.dtype)

    def _check_spaces(self) -> None:
        action, observation, how = self.env.action_space, self.env.observation_space, self._how
        if how.observation is None and not isinstance(observation, Box):
            raise ValueError(
                f"the observation space is {observation}; select a part of it, such as observation='observation:KEY' "
                "(--observation observation:KEY), or observation='render'"
            )
        if how.settle and how.hold is None and not _goes_both_ways(action):
            raise ValueError(
                f"the action space is {action}, in which 0 does not hold the agent; give the action that does with "
                "hold= (--hold)"
            )


@dataclass
class _Motion:
    """The environment's current moment, and sums over the steps of a triple."""

    now: Moment
    command: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))  # [m], the environment's flat action
    over: str = ""  # how the episode ended
    lost: bool = False  # the episode cannot be continued
    displacement: Any = None
    contact: np.ndarray | None = None
    faults: set[str] = field(default_factory=set)

    def lose(self, fault: str) -> None:
        self.faults.add(fault)
        self.lost = True


def _displacement(now: Moment, action: np.ndarray) -> np.ndarray:
    """The action itself, if it can be a displacement."""
    space = now.env.action_space
    if not _goes_both_ways(space) or len(space.shape or ()) != 1:
        raise ValueError(f"the action space is {space}, so actions are not displacements; {SAY_WHERE}")
    warnings.warn(f"actions are taken for the agent's displacements; if they are commands, {SAY_WHERE}", stacklevel=2)
    return action


def _goes_both_ways(space: gymnasium.Space[Any]) -> bool:
    """Whether 0 lies inside the space. If it is a corner, as for targets or thrusts, actions are not displacements."""
    return isinstance(space, Box) and bool(((space.low < 0) & (space.high > 0)).all())


def _near(x: np.ndarray, y: np.ndarray, tolerance: float) -> bool:
    """Whether no number changed by more than the tolerance; in float64, because uint8 would wrap around."""
    return x.shape == y.shape and bool((np.abs(x.astype(np.float64) - y.astype(np.float64)) <= tolerance).all())


def _too_many_dropped(dropped: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    return (
        f"{MOST_DROPPED} consecutive triples were dropped ({counts}); unsettled: wait longer (settle), watch less, "
        "allow more (tolerance), or hold with another action; truncated: make triples shorter (aggregate) or episodes "
        "longer (max_episode_steps, which also counts the steps of waiting); terminated: the environment ends "
        "episodes itself, for example because the object has left"
    )
