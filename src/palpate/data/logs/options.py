"""What to read from a log. Nothing slow is imported, because these fields are options of the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any, Self, get_args

from palpate.config import GroupName


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What to read from a log of another project."""

    observation: str | None = None
    """Column of observations, or several cameras as A,B."""
    position: str | None = None
    """Columns of the agent's position, such as observation.state[:2]; with --group, of its pose. The action is the
    change from o to o'."""
    stride: int | None = None
    """Number of frames from o to o'. Default: 1."""
    substeps: int | None = None
    """Number of equal parts of a stride: the path leads through the agent's positions between them. Default: 1."""
    kinematics: Path | None = None
    """MuJoCo model of the robot, an XML file. The position columns are then joint angles in radians."""
    site: str | None = None
    """Site or body of the MuJoCo model that is the agent. Default: its only site."""
    group: GroupName | None = None
    """se2, se3: actions are moves along the agent's own axes, computed from its poses. See docs/guide/turning.md."""

    def __post_init__(self) -> None:
        if self.group is not None and self.group not in get_args(GroupName):
            raise ValueError(f"group is {self.group!r}; allowed is {' or '.join(map(repr, get_args(GroupName)))}")
        if self.group == "translations":  # what is read without a group
            object.__setattr__(self, "group", None)
        for name in ("stride", "substeps"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed are whole numbers from 1")
            object.__setattr__(self, name, int(value))  # of numpy's numbers, too
        if self.kinematics is not None and not isinstance(self.kinematics, Path):
            object.__setattr__(self, "kinematics", Path(self.kinematics))
        if self.site is not None and self.kinematics is None:
            raise ValueError(f"site is {self.site!r}, but there is no MuJoCo model; give it as kinematics")

    @property
    def step(self) -> int:
        """Number of frames from o to o'."""
        return self.stride or 1

    @property
    def parts(self) -> int:
        """Number of sub-steps from o to o'."""
        return self.substeps or 1

    @property
    def given(self) -> dict[str, Any]:
        """The options that change what is read, as plain values; a path is absolute."""
        changed = {name: value for name in NAMES if (value := getattr(self, name)) is not None}
        for name in ("stride", "substeps"):
            if changed.get(name) == 1:
                changed.pop(name)
        return {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in changed.items()}

    @classmethod
    def of_run(cls, settings: Mapping[str, Any]) -> Self:
        """The options among the values of a run's `run.toml`."""
        return cls(**{name: settings[name] for name in NAMES if name in settings})

    def lacks(self, other: "LogOptions") -> dict[str, Any]:
        """The options of `other` that are open here. The position and how it is computed belong together."""
        placed = any(getattr(self, name) is not None for name in PLACING)
        return {
            name: value
            for name, value in other.given.items()
            if getattr(self, name) is None and not (placed and name in PLACING)
        }


NAMES = tuple(each.name for each in fields(LogOptions))
OF_LOG = tuple(name for name in NAMES if name != "group")  # options that only logs of other projects have
PLACING = ("position", "kinematics", "site")
