"""What to read from a log. Nothing slow is imported, because these fields are options of the command line."""

from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What to read from a LeRobot, robomimic or zarr log."""

    observation: str | None = None
    """Column of observations, or several cameras as A,B."""
    position: str | None = None
    """Columns of the agent's position, such as observation.state[:2]. The action is their change from o to o'."""
    stride: int = 1
    """Number of frames from o to o'."""
    kinematics: Path | None = None
    """MuJoCo model of the robot, an XML file. The position columns are then joint angles in radians."""
    site: str | None = None
    """Site or body of the MuJoCo model whose position is the agent's."""

    def __post_init__(self) -> None:
        if isinstance(self.stride, bool) or not isinstance(self.stride, Integral) or self.stride < 1:
            raise ValueError(f"stride is {self.stride!r}; allowed are whole numbers from 1")
        object.__setattr__(self, "stride", int(self.stride))  # of numpy's numbers, too
        if self.kinematics is not None and not isinstance(self.kinematics, Path):
            object.__setattr__(self, "kinematics", Path(self.kinematics))
        if self.site is not None and self.kinematics is None:
            raise ValueError(f"site is {self.site!r}, but there is no MuJoCo model; give it as kinematics")

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, as plain values; a path is absolute."""
        changed = {each.name: getattr(self, each.name) for each in fields(self)}
        changed = {
            name: value for name, value in changed.items() if value != type(self).__dataclass_fields__[name].default
        }
        return {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in changed.items()}


NAMES = tuple(each.name for each in fields(LogOptions))
