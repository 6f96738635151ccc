"""palpate check."""

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True, kw_only=True)
class Check:
    """Say whether a file of triples can give positions: findings with evidence and advice, before hours are spent.

    First what the arrays tell, then what a training run of less than a minute sees. Exit code 3: something forbids
    training. See docs/own-data.md.
    """

    log: Positional[Path]
    """HDF5 file of triples or of episodes."""
    probe: bool = True
    """Whether to make the short training run."""

    def __call__(self) -> None:
        from palpate.doctor.check import check

        found = check(self.log, probe=self.probe, progress=True)
        print(found)
        if not found.good:
            sys.exit(3)
