"""palpate check."""

import sys
from dataclasses import dataclass
from pathlib import Path

from palpate.cli.parsing import Positional


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check whether positions can be learned from a file of triples.

    The check reads the arrays, then trains a small model for less than a minute. Exit code 3: there are blocking
    problems. See docs/guide/own-data.md.
    """

    log: Positional[Path]
    """HDF5 file of triples or of episodes."""
    probe: bool = True
    """Whether to include the short training run. Default: it is included."""

    def __call__(self) -> None:
        from palpate.doctor.check import check

        found = check(self.log, probe=self.probe, progress=True)
        print(found)
        if not found.good:
            sys.exit(3)
