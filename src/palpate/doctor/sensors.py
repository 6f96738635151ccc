"""Whether the agent carries the sensor."""

from palpate.data.transitions import Batch
from palpate.findings import Finding
from palpate.scans import DENSE, changing_rays, is_scan


def carried_scanner(rows: Batch) -> list[Finding]:
    """A note if `fit` would find that observations [N, r] are scans of a scanner on the agent."""
    if not is_scan(rows.o) or (changing := changing_rays(rows.o, rows.o_next)) < DENSE:
        return []
    return [
        Finding(
            "carried-scanner",
            "note",
            "the observations are scans, and each move changes the whole scan, so the agent carries the scanner",
            {"median over mean change": changing},
            "`fit` finds this, too, and trains with egocentric=True. The check judges only the agent: the object and "
            "the contacts need a full training. If the scanner does not move, train with egocentric=False.",
        )
    ]
