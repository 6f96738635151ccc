"""The methods by name, and what each can do. Without torch, so settings are chosen before anything heavy loads."""

from importlib import import_module
from typing import Any, NamedTuple, get_args

from palpate.config import Objective


class Traits(NamedTuple):
    """What other code needs of a method before its model is built."""

    home: str  # module:class
    reconstructs: bool = False  # it draws pictures of the size that it sees
    shifts: bool = False  # its losses allow a shift common to all pictures of a batch
    predicts: bool = False  # it predicts contacts from geometry, so that moves can be chosen
    refines: bool = False  # it has a last fit
    has_body: bool = False  # it learns a body
    muon: bool = False  # it gains from Muon and from higher learning rates
    unsupervised: bool = True


METHODS: dict[str, Traits] = {
    "contact": Traits(
        "palpate.methods.contact:Contact", shifts=True, predicts=True, refines=True, has_body=True, muon=True
    ),
    "egocentric": Traits("palpate.methods.egocentric:Egocentric", predicts=True, has_body=True, muon=True),
    "paper": Traits("palpate.methods.paper:Paper", shifts=True),
    "paper-gaussian": Traits("palpate.methods.paper:PaperGaussian", shifts=True),
    "vae": Traits("palpate.methods.vae:VAE", reconstructs=True),
    "transporter": Traits("palpate.methods.transporter:Transporter", reconstructs=True),
    "supervised": Traits("palpate.methods.supervised:Supervised", muon=True, unsupervised=False),
}
# Methods with cameras on the agent.
CARRIED = {"contact": "egocentric", "egocentric": "egocentric", "supervised": "supervised"}


def resolve(method: str, objective: str, egocentric: bool) -> str:
    """The name in `METHODS` for a user's method, objective and egocentric."""
    what, name, allowed = "method", method, ("interaction", *METHODS)
    if method == "interaction":
        what, name, allowed = "objective", objective, get_args(Objective)
    if name not in allowed:
        raise ValueError(f"{what} is {name!r}; allowed is one of {', '.join(allowed)}")
    if not egocentric:
        return name
    if name not in CARRIED:
        raise ValueError(f"egocentric is True; allowed is False for {name!r}, which needs a fixed camera")
    return CARRIED[name]


def method_class(name: str) -> Any:
    """The class behind a name."""
    if name not in METHODS:
        raise ValueError(f"method is {name!r}; allowed is one of {', '.join(METHODS)}")
    module, _, kind = METHODS[name].home.partition(":")
    return getattr(import_module(module), kind)
