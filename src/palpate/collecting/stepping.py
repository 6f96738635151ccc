"""Settings that turn an environment's steps into triples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from palpate.collecting.readings import Moment, Reader, check_reader, described

Policy: TypeAlias = Callable[[Moment, np.random.Generator], Any]
Vector: TypeAlias = tuple[float, ...] | list[float] | np.ndarray

STATES = ("agent", "object", "angle")


@dataclass(frozen=True, kw_only=True)
class Stepping:
    """Settings that turn an environment's steps into triples. Functions that read receive a `Moment`."""

    agent_position: Reader | None = None
    """Where the agent is, [n]: the triple's action is the difference. When left out, it is what the environment reports
    as info["displacement"], else the action itself."""
    observation: Reader | None = None
    """What is seen, such as "observation:pixels" of a dictionary, or "render"; the whole observation when left out."""
    aggregate: int = 1
    """Environment steps of a triple, all with one action, for the path is taken for straight."""
    settle: int = 0
    """Steps to wait at most, after a reset and after each triple, until what is watched rests; 0: do not wait."""
    hold: Reader | Vector | int | None = None
    """The action while waiting, or where to read it; 0 when left out."""
    watch: Reader | tuple[Reader, ...] | None = None
    """What must rest, beside the agent's position; the observation when left out."""
    tolerance: float = 1e-3
    """A number that changes by no more than this in a step rests."""
    approach: Policy | None = None
    """A function of a Moment and a numpy Generator that gives an action likely to touch the object."""
    approach_share: float = 0.5
    """Share of the triples that it makes; the others are random."""
    truth: Mapping[str, Reader] | None = None
    """True states for measuring: where to read agent, object, angle and contact. Contact is true where it was in any
    step of the triple; "moved" takes for one whatever moves the object. When left out, what info holds under these
    names; {} for none."""

    def __post_init__(self) -> None:
        for name in ("aggregate", "settle"):
            least, value = int(name == "aggregate"), getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; allowed are whole numbers from {least}")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance is {self.tolerance}; allowed is 0 or more")
        if not 0 <= self.approach_share <= 1:
            raise ValueError(f"approach_share is {self.approach_share}; allowed is 0 to 1")
        if self.approach is not None and not callable(self.approach):
            raise ValueError(f"approach is {self.approach!r}; allowed is a function of a Moment and a numpy Generator")
        if self.observation is not None and self.observation != "render":
            check_reader("observation", self.observation)
        named = {"agent_position": self.agent_position} | {f"watch {i}": x for i, x in enumerate(self.watched)}
        named |= {"hold": self.hold} if isinstance(self.hold, str) else {}
        for name, reader in named.items():
            if reader is not None:
                check_reader(name, reader)
        self._check_truth()

    def _check_truth(self) -> None:
        if not self.truth:
            return
        wrong = set(self.truth) - {*STATES, "contact"}
        if wrong or "object" not in self.truth or not ("agent" in self.truth or self.agent_position):
            raise ValueError(
                f"truth names {', '.join(sorted(self.truth))}; needed are object and agent (where "
                "agent_position is not given), allowed beside them angle and contact"
            )
        for name, reader in self.truth.items():
            if (name, reader) != ("contact", "moved"):
                check_reader(f"truth {name}", reader)

    @property
    def watched(self) -> tuple[Reader, ...]:
        if self.watch is None:
            return ()
        return (self.watch,) if isinstance(self.watch, str) or callable(self.watch) else tuple(self.watch)

    def attributes(self) -> dict[str, Any]:
        """The settings that differ from the defaults, as attributes of a file."""
        said: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is field.default or (isinstance(value, int | float) and value == field.default):
                continue
            if isinstance(value, Mapping):
                value = ", ".join(f"{name}={described(x)}" for name, x in value.items())
            elif isinstance(value, tuple | list | np.ndarray):
                value = ", ".join(str(described(x)) for x in value)
            said[field.name] = described(value)
        return said


NAMES = tuple(field.name for field in fields(Stepping))
