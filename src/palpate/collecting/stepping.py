"""Settings that turn an environment's steps into triples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from palpate.collecting.readings import Moment, Reader, check_reader, described

Policy: TypeAlias = Callable[[Moment, np.random.Generator], Any]
Vector: TypeAlias = tuple[float, ...] | list[float] | np.ndarray

STATES = ("agent", "object", "angle", "heading", "rotation")  # of both observations of a triple
READINGS = (*STATES, "visible", "contact")


@dataclass(frozen=True, kw_only=True)
class Stepping:
    """Settings that turn an environment's steps into triples. Functions that read receive a `Moment`."""

    agent_position: Reader | None = None
    """The agent's position [n]; the triple's action is its change. Default: info["displacement"] if the environment
    reports it, else the action itself."""
    agent_heading: Reader | None = None
    """The direction in which the agent faces, radians. With it, and a position in the plane, the triple's action is
    (forward, sideways, turn) along the agent's own axes; train with group="se2"."""
    agent_rotation: Reader | None = None
    """The agent's rotation in space, a matrix [3, 3] or its 9 numbers row by row, whose columns are the agent's axes.
    With it, and a position in space, the triple's action has 6 numbers, displacement and rotation vector along the
    agent's own axes; train with group="se3"."""
    observation: Reader | None = None
    """The observation, such as "observation:pixels" of a dictionary, or "render". Default: the whole observation."""
    aggregate: int = 1
    """Environment steps of a triple, all with one action, because the path is assumed to be straight."""
    settle: int = 0
    """Maximum steps to wait, after a reset and after each triple, until the scene rests; 0 disables waiting."""
    hold: Reader | Vector | int | None = None
    """The action while waiting, or a reading of it. Default: 0."""
    watch: Reader | tuple[Reader, ...] | None = None
    """Readings that must rest, besides the agent's position. Default: the observation."""
    tolerance: float = 1e-3
    """Largest change in a step of a number at rest."""
    approach: Policy | None = None
    """A function of a Moment and a numpy Generator; it returns an action likely to touch the object."""
    approach_share: float = 0.5
    """Share of triples that use `approach`; the others have random actions."""
    truth: Mapping[str, Reader] | None = None
    """Readings of the true states agent, heading, rotation, object, angle, visible and contact, for evaluation. The
    object is visible if it can be seen in the triple's first observation. A triple is in contact if any of its steps
    is; "moved" counts every motion of the object as a contact. Default: the entries of info with these names; {} for
    none."""

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
        turning = {"agent_heading": self.agent_heading, "agent_rotation": self.agent_rotation}
        for name, reader in turning.items():
            if reader is not None and self.agent_position is None:
                raise ValueError(f"{name} is {reader!r}; give agent_position too")
        if None not in turning.values():
            raise ValueError("agent_heading and agent_rotation are given; a heading is for a plane, so give only one")
        named = {"agent_position": self.agent_position, **turning} | {
            f"watch {i}": x for i, x in enumerate(self.watched)
        }
        named |= {"hold": self.hold} if isinstance(self.hold, str) else {}
        for name, reader in named.items():
            if reader is not None:
                check_reader(name, reader)
        self._check_truth()

    def _check_truth(self) -> None:
        if not self.truth:
            return
        wrong = set(self.truth) - set(READINGS)
        if wrong or "object" not in self.truth or not ("agent" in self.truth or self.agent_position):
            raise ValueError(
                f"truth has {', '.join(sorted(self.truth))}; needed are object and, without agent_position, agent; "
                "optional are heading, rotation, angle, visible and contact"
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
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is field.default or (isinstance(value, int | float) and value == field.default):
                continue
            if isinstance(value, Mapping):
                value = ", ".join(f"{name}={described(x)}" for name, x in value.items())
            elif isinstance(value, tuple | list | np.ndarray):
                value = ", ".join(str(described(x)) for x in value)
            changed[field.name] = described(value)
        return changed


NAMES = tuple(field.name for field in fields(Stepping))
