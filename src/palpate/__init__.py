"""palpate: where an agent and an object are, from what the agent saw and how it moved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from palpate.api import fit as fit
    from palpate.collecting.collect import collect as collect
    from palpate.control.wrapping import wrap as wrap
    from palpate.data.labelled import Labelled as Labelled
    from palpate.data.labelled import Truth as Truth
    from palpate.data.transitions import Transitions as Transitions
    from palpate.deploy import export as export
    from palpate.doctor.check import check as check
    from palpate.encoding import encode_log as encode_log
    from palpate.evaluation import evaluate as evaluate
    from palpate.exploring.explore import explore as explore
    from palpate.representation import Representation as Representation
    from palpate.representation import load as load

_HOMES = {
    "Labelled": "palpate.data.labelled",
    "Representation": "palpate.representation",
    "Transitions": "palpate.data.transitions",
    "Truth": "palpate.data.labelled",
    "check": "palpate.doctor.check",
    "collect": "palpate.collecting.collect",
    "encode_log": "palpate.encoding",
    "evaluate": "palpate.evaluation",
    "explore": "palpate.exploring.explore",
    "export": "palpate.deploy",
    "fit": "palpate.api",
    "load": "palpate.representation",
    "wrap": "palpate.control.wrapping",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used: `import palpate` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'palpate' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
