"""How soft the boundary of a body is: measured on the last triples.

Legend: N triples, s softnesses.
"""

from torch import Tensor

from palpate.objectives.contact import SHARP_DOUBT, Wrong, balanced_nll


def best_softness(clearance: Tensor, changed: Tensor, choices: Tensor, wrong: Wrong) -> Tensor:
    """The softness `[]`, out of `choices` [s], for which clearances [N] explain changes [N] bool best.

    At least a few labels count as `wrong`, whose shares are `[]`.
    """
    odds, share = -clearance / choices[:, None], changed.float().mean()
    label = changed.to(odds.dtype).expand_as(odds)
    doubt = Wrong(*(rate.clamp(min=SHARP_DOUBT) for rate in wrong))
    cost = balanced_nll(odds, odds, None, label, share, doubt).mean(1)
    return choices[cost.argmin()]
