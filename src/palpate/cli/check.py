"""palpate check."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from palpate.cli.parsing import Positional
from palpate.config import GroupName, Motion
from palpate.data.logs.options import LogOptions


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check whether positions can be learned from triples or from a robot's log.

    The check reads the arrays, then trains small models for about a minute, with vectors for up to two. Exit code 3:
    there are blocking problems. See docs/guide/own-data.md and docs/guide/logs.md.
    """

    log: Positional[Path]
    """HDF5 file of triples or of episodes; or a log of LeRobot, robomimic, diffusion policy (zarr) or Minari."""
    group: GroupName = "translations"
    """What actions are, as for `palpate train`: displacements along fixed axes, or se2 and se3 for moves along the
    agent's own axes. In a log of another project, moves are computed from the poses in the columns of position."""
    motion: Motion = "arc"
    """For se2 and se3. arc: the agent moves and turns at once. straight: it turns before or after moving."""
    probe: bool = True
    """Whether to train a small model. Default: yes."""
    reading: LogOptions = field(default_factory=LogOptions)

    def __call__(self) -> None:
        from palpate.data.logs.log import open_log
        from palpate.doctor.check import check

        with open_log(self.log, self.reading) as triples:
            found = check(triples, group=self.group, motion=self.motion, probe=self.probe, progress=True)
        print(found)
        if not found.good:
            sys.exit(3)
