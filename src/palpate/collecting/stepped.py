"""Blocks of triples from any Gymnasium environment.

Block k starts with a fresh episode; its seed is derived from the collection's seed and k.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, final

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.spaces import Box

from palpate.collecting.blocks import BLOCK_ROWS, Block, Span
from palpate.collecting.readings import Moment, described, read
from palpate.collecting.stepping import STATES, Stepping
from palpate.data.files import FIELDS
from palpate.data.transitions import Transitions

DISOWNED = ("grazing", "unsettled")  # entries of info that mark steps to drop
IN_VAIN = 200  # consecutive dropped triples after which collecting fails
NO_TRUTH = (
    "this environment does not report true states, or not always; needed are agent and object in the info of reset and "
    "step (and, where they are known, angle there and contact in that of step), or truth= that says where to read them"
)
SAY_WHERE = (
    "say where the agent is, such as agent_position='info:KEY' (--agent-position info:KEY), or wrap the environment so "
    'that it reports info["displacement"]'
)
FEW = 16  # triples in which an agent may stand still


@final
class Shipped:
    """Makes a `Stepped` in another process, by cloudpickle: pickle refuses lambdas and functions of a script."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], stepping: Stepping, labelled: bool) -> None:
        self._parts = make, stepping, labelled

    def __call__(self) -> "Stepped":
        make, stepping, labelled = self._parts
        env = make()
        if not isinstance(env, gymnasium.Env):
            raise ValueError(f"env is a function that gives {env!r}; it must make a Gymnasium environment")
        return Stepped(env, stepping, labelled=labelled, ours=True)

    def __getstate__(self) -> bytes:
        packed: bytes = cloudpickle.dumps(self._parts)
        return packed

    def __setstate__(self, state: bytes) -> None:
        self._parts = cloudpickle.loads(state)


class _Row(NamedTuple):
    o: np.ndarray
    a: np.ndarray  # [n]
    o_next: np.ndarray
    truth: dict[str, np.ndarray]


@final
class Stepped:
    """Steps an environment and makes blocks of triples."""

    def __init__(self, env: gymnasium.Env[Any, Any], stepping: Stepping, *, labelled: bool, ours: bool) -> None:
        self.env, self._how, self._labelled, self._ours = env, stepping, labelled, ours
        self._n: int | None = None
        self._check_spaces()

    def close(self) -> None:
        if self._ours:
            self.env.close()

    def block(self, seed: int, span: Span) -> Block:
        settled = np.random.SeedSequence((seed, span.start // BLOCK_ROWS))
        env_seed, choice_seed = (int(x) for x in settled.generate_state(2))
        self.env.action_space.seed(env_seed)
        dropped: Counter[str] = Counter()
        count = span.stop - span.start
        triples = self._triples(env_seed, np.random.default_rng(choice_seed), dropped)
        o, a, o_next, truth = zip(*islice(triples, count), strict=True)
        try:
            made = Transitions(observation=_stack(o), action=_stack(a), next_observation=_stack(o_next))
        except ValueError as error:
            raise ValueError(f"{error} (the rows of block {span.start}-{span.stop})") from error
        if count >= FEW and not np.any(a):
            raise ValueError(
                f"the agent did not move in any of {count} triples, so their actions say nothing; "
                + (
                    SAY_WHERE
                    if self._how.agent_position is None
                    else "is agent_position what the actions move, and does one step suffice to move it?"
                )
            )
        columns = {name: x.numpy() for name, x in zip(FIELDS, made.rows(slice(None)), strict=True)}
        known = _truth_columns(truth, made.n)
        if self._labelled and not known:
            raise ValueError(NO_TRUTH)
        return Block(span, columns | known, dict(dropped))

    def _triples(self, seed: int, rng: np.random.Generator, dropped: Counter[str]) -> Iterator[_Row]:
        now, in_vain = self._begin(dropped, seed), 0
        while True:
            before, position, state = self._see(now), self._position(now), self._state(now)
            now, over, tally = self._motion(now, rng)
            for fault in tally.faults:
                dropped[fault] += 1
            if not tally.faults:
                in_vain = 0
                a = tally.displacement if position is None else self._position(now) - position
                yield _Row(before, a, self._see(now), self._between(state, self._state(now), tally))
            elif (in_vain := in_vain + 1) >= IN_VAIN:
                raise ValueError(_in_vain(dropped))
            if over or tally.lost:
                now = self._begin(dropped)

    def _begin(self, dropped: Counter[str], seed: int | None = None) -> Moment:
        """A fresh episode, at rest."""
        for _ in range(IN_VAIN):
            now = Moment(self.env, *self.env.reset(seed=seed))
            if not self._how.settle:
                return now
            now, over, rests = self._rest(now, _Tally(self._how))
            if rests and not over:
                return now
            dropped["unsettled"] += 1
            seed = None
        raise ValueError(_in_vain(dropped))

    def _motion(self, now: Moment, rng: np.random.Generator) -> tuple[Moment, bool, "_Tally"]:
        """All steps of one triple; returns the last moment, whether the episode is over, and the tally."""
        how, tally, over = self._how, _Tally(self._how), False
        action = self._choose(now, rng)
        for taken in range(1, how.aggregate + 1):
            now, over = self._step(action, tally)
            if over and (taken < how.aggregate or how.settle):
                tally.lose("ended")  # before its time, or with no step left to see the scene rest
            if over:
                return now, over, tally
        if how.settle:
            now, over, rests = self._rest(now, tally)
            if not rests:
                tally.lose("ended" if over else "unsettled")
        return now, over, tally

    def _rest(self, now: Moment, tally: "_Tally") -> tuple[Moment, bool, bool]:
        """Wait; returns the last moment, whether the episode is over, and whether the scene rests."""
        before = self._watch(now)
        for _ in range(self._how.settle):
            now, over = self._step(self._hold(now), tally)
            after = self._watch(now)
            if all(_near(x, y, self._how.tolerance) for x, y in zip(before, after, strict=True)):
                return now, over, True
            if over:
                return now, True, False
            before = after
        return now, False, False

    def _step(self, action: Any, tally: "_Tally") -> tuple[Moment, bool]:
        observation, _, terminated, truncated, info = self.env.step(action)
        now = Moment(self.env, observation, info)
        tally.add(now, action)
        return now, bool(terminated or truncated)

    def _choose(self, now: Moment, rng: np.random.Generator) -> Any:
        how = self._how
        if how.approach is None or rng.random() >= how.approach_share:
            return self.env.action_space.sample()
        return self._action("approach", how.approach(now, rng))

    def _hold(self, now: Moment) -> Any:
        hold = self._how.hold
        if hold is None:
            hold = np.zeros(self.env.action_space.shape or ())
        elif isinstance(hold, str) or callable(hold):
            hold = read("hold", hold, now)
        return self._action("hold", hold)

    def _action(self, what: str, value: Any) -> Any:
        """An action of the space; a box's are clipped to it."""
        space = self.env.action_space
        if not isinstance(space, Box):
            if value not in space:
                raise ValueError(f"{what} gives the action {value!r}; the action space is {space}")
            return value
        action = np.asarray(value, dtype=np.float64)
        if action.shape != space.shape or not np.isfinite(action).all():
            raise ValueError(f"{what} gives the action {value!r}; needed are finite numbers of shape {space.shape}")
        return np.clip(action, space.low, space.high).astype(space.dtype)

    def _see(self, now: Moment) -> np.ndarray:
        wanted = self._how.observation
        if wanted == "render":
            picture = self.env.render()
            if not isinstance(picture, np.ndarray):
                raise ValueError(
                    f"observation is 'render', but render() gives {type(picture).__name__}; make the environment with "
                    "render_mode='rgb_array'"
                )
            return picture.copy()
        # `Transitions` reports values that are not finite, with their row.
        return np.array(now.observation) if wanted is None else read("observation", wanted, now)

    def _position(self, now: Moment) -> Any:
        """[n], or None if it is unknown."""
        if self._how.agent_position is None:
            return None
        position = read("agent_position", self._how.agent_position, now).astype(np.float64)
        self._n = self._n or position.size
        if position.shape != (self._n,):
            raise ValueError(
                f"agent_position, read from {described(self._how.agent_position)}, has shape {position.shape}; allowed "
                f"is one axis with the coordinates, {'always as many' if position.ndim == 1 else 'such as (2,)'}"
            )
        return position

    def _watch(self, now: Moment) -> list[np.ndarray]:
        seen = [read("watch", reader, now) for reader in self._how.watched] or [self._see(now)]
        position = self._position(now)
        return seen if position is None else [*seen, position]

    def _state(self, now: Moment) -> dict[str, np.ndarray]:
        """The true states that are known at one moment."""
        if self._how.truth is None:
            known = {name: read(f"info {name}", f"info:{name}", now) for name in STATES if name in now.info}
        else:
            known = {name: read(f"truth {name}", x, now) for name, x in self._how.truth.items() if name in STATES}
        if "agent" not in known and "object" in known and self._how.agent_position is not None:
            known["agent"] = self._position(now)
        return {name: known[name].astype(np.float32) for name in STATES if name in known}

    def _between(
        self, state: dict[str, np.ndarray], state_next: dict[str, np.ndarray], tally: "_Tally"
    ) -> dict[str, np.ndarray]:
        contact = tally.contact
        if self._how.truth is not None and self._how.truth.get("contact") == "moved":
            moved = (not _near(state[x], state_next[x], self._how.tolerance) for x in ("object", "angle") if x in state)
            contact = any(moved)
        truth = state | {f"{name}_next": x for name, x in state_next.items()}
        return truth if contact is None else truth | {"contact": np.array(contact)}

    def _check_spaces(self) -> None:
        action, observation, how = self.env.action_space, self.env.observation_space, self._how
        if how.observation is None and not isinstance(observation, Box):
            raise ValueError(
                f"the observation space is {observation}; say which part is seen, such as "
                "observation='observation:KEY' (--observation observation:KEY), or observation='render'"
            )
        if how.settle and how.hold is None and not _goes_both_ways(action):
            raise ValueError(
                f"the action space is {action}, where 0 is none that holds the agent; say with hold= (--hold) what does"
            )


@final
class _Tally:
    """Sums over the steps of a triple."""

    def __init__(self, how: Stepping) -> None:
        self.displacement: Any = None
        self.contact: bool | None = None
        self.faults: set[str] = set()
        self.lost = False  # the episode cannot be continued
        self._how = how
        self._reader = "info:contact" if how.truth is None else how.truth.get("contact")

    def add(self, now: Moment, action: Any) -> None:
        self.faults |= {name for name in DISOWNED if now.info.get(name)}
        reader = self._reader
        if reader not in (None, "moved") and (self._how.truth is not None or "contact" in now.info):
            self.contact = bool(np.any(read("contact", reader, now))) or bool(self.contact)
        if self._how.agent_position is None:
            moved = np.array(now.info["displacement"] if "displacement" in now.info else _displacement(now, action))
            self.displacement = moved if self.displacement is None else self.displacement + moved

    def lose(self, fault: str) -> None:
        self.faults.add(fault)
        self.lost = True


def _displacement(now: Moment, action: np.ndarray) -> np.ndarray:
    """The action itself, if it can be a displacement."""
    space = now.env.action_space
    if not _goes_both_ways(space) or len(space.shape or ()) != 1:
        raise ValueError(
            f"the action space is {space}, so actions are no displacements, which go there and back; {SAY_WHERE}"
        )
    return action


def _goes_both_ways(space: gymnasium.Space[Any]) -> bool:
    """Whether 0 lies inside the space; if it is a corner, as for targets or thrusts, actions are not displacements."""
    return isinstance(space, Box) and bool(((space.low < 0) & (space.high > 0)).all())


def _near(x: np.ndarray, y: np.ndarray, tolerance: float) -> bool:
    """Whether nothing changed by more than the tolerance; pictures are compared without wrapping around."""
    return x.shape == y.shape and bool((np.abs(x.astype(np.float64) - y.astype(np.float64)) <= tolerance).all())


def _in_vain(dropped: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    return (
        f"{IN_VAIN} triples one after the other had to be dropped ({counts}); unsettled: wait longer (settle), watch "
        "less, allow more (tolerance), or hold with another action; ended: make episodes longer (max_episode_steps) or "
        "triples shorter (aggregate)"
    )


def _stack(rows: tuple[np.ndarray, ...]) -> np.ndarray:
    shapes = {np.shape(x) for x in rows}
    if len(shapes) > 1:
        raise ValueError(f"rows have the shapes {sorted(shapes)}; all triples need the same")
    return np.stack(rows)


def _truth_columns(truth: tuple[dict[str, np.ndarray], ...], n: int) -> dict[str, np.ndarray]:
    """Empty unless agent and object are both known."""
    names = set().union(*truth)
    if not {"agent", "object"} <= names:
        return {}
    if any(set(row) != names for row in truth):
        raise ValueError(NO_TRUTH)
    for name in names:
        shape, wanted = truth[0][name].shape, (n,) if name.startswith(("agent", "object")) else ()
        if shape != wanted:
            raise ValueError(f"truth {name} has shape {shape}; these triples need {wanted}")
    return {f"truth/{name}": _stack(tuple(row[name] for row in truth)) for name in sorted(names)}
