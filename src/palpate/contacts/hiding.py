"""Whether the agent hides the object now and then.

Hiding depends on where the object is relative to the agent. So a rate of hiding for each cell of these positions must
explain much more than one rate for all cells.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.contacts.explanation import CELLS, explanation
from palpate.contacts.recent import Recent

MARGINS = (-0.7, -0.5, -0.35, -0.2, 0.0, 0.25, 0.5)  # by which a body may be larger, in radii
# Least gain of log-likelihood per triple if objects are hidden: a part of what is unexplained without, and never less
# than a constant. Positions that are not accurate yet leave changes near the agent unexplained, too.
PART, GAIN = 0.08, 0.02


def agent_hides(recent: Recent, index: int, radius: Tensor) -> bool:
    """Whether hiding explains changes that contacts with object `index` do not; waits for the device.

    The body has this `radius`, and may be somewhat larger or smaller.
    """
    rows = recent.rows(index)
    if rows is None or rows.clearance.isnan().any():
        return False
    touching = rows.clearance < radius * torch.tensor(MARGINS, device=radius.device)[:, None]
    alike = F.one_hot(torch.zeros_like(rows.cells[..., 0], dtype=torch.long), CELLS).to(rows.cells.dtype)
    hiding, without = (explanation(touching, x, rows.changed).amax() for x in (rows.cells, alike))
    return bool(hiding - without > (-PART * without).clamp(min=GAIN))
