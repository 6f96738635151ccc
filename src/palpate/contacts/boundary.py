"""How soft the boundary of a body is: measured on the last triples.

Legend: N triples, s softnesses.
"""

from torch import Tensor

from palpate.objectives.contact import SHARP_DOUBT, Wrong, balanced_nll


def best_softness(clearance: Tensor, changed: Tensor, choices: Tensor) -> Tensor:
    """The softness `[]`, out of `choices` [s], for which clearances [N] explain changes [N] bool best."""
    odds, share = -clearance / choices[:, None], changed.float().mean()
    label = changed.to(odds.dtype).expand_as(odds)
    cost = balanced_nll(odds, odds, None, label, share, Wrong.evenly(SHARP_DOUBT, share)).mean(1)
    return choices[cost.argmin()]
