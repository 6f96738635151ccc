"""The methods by name, and what each can do. Does not import torch, so settings are chosen before it is imported."""

import sys
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_args

from palpate.config import Method, Objective

Kind = Literal["vectors", "pictures"]  # of observations


class Traits(NamedTuple):
    """Properties of a method that other code needs before a model is built."""

    home: str  # module:Class
    reconstructs: bool = False  # it reconstructs pictures at full size
    shifts: bool = False  # its losses allow a shift common to all pictures of a batch
    predicts: bool = False  # `would_touch` and `uncertainty` give values, so that moves can be chosen
    refines: bool = False  # it has a refinement
    has_body: bool = False  # it learns a body
    one_by_one: bool = False  # it finds several objects one after the other
    several: tuple[Kind, ...] = ()  # kinds of observations in which it places several objects
    turns: bool = False  # it can learn agents that turn
    muon: bool = False  # it gains from Muon and from higher learning rates
    unsupervised: bool = True

    def counts(self, *, picture: bool) -> bool:
        """Whether short runs can count its objects; they place several bodies by vectors."""
        return self.has_body and "vectors" in self.several and not picture


METHODS: dict[str, Traits] = {
    "contact": Traits(
        "palpate.methods.contact:Contact",
        shifts=True,
        predicts=True,
        refines=True,
        has_body=True,
        several=("vectors",),
        turns=True,
        muon=True,
    ),
    "one-by-one": Traits(
        "palpate.methods.one_by_one:OneByOne",
        shifts=True,
        predicts=True,
        has_body=True,
        one_by_one=True,
        several=("pictures",),
        muon=True,
    ),
    "egocentric": Traits("palpate.methods.egocentric:Egocentric", predicts=True, has_body=True, muon=True),
    "carried": Traits("palpate.methods.carried:Carried", predicts=True, has_body=True, turns=True, muon=True),
    "paper": Traits("palpate.methods.paper:Paper", shifts=True, turns=True),
    "paper-gaussian": Traits("palpate.methods.paper:PaperGaussian", shifts=True, turns=True),
    "vae": Traits("palpate.methods.vae:VAE", reconstructs=True),
    "transporter": Traits("palpate.methods.transporter:Transporter", reconstructs=True, several=("pictures",)),
    "supervised": Traits(
        "palpate.methods.supervised:Supervised", several=("vectors", "pictures"), muon=True, unsupervised=False
    ),
}
# Methods with sensors on the agent, for pictures and for vectors.
ONE_BY_ONE = {"contact": "one-by-one"}  # methods that find several objects in pictures
CARRIED = {"contact": ("egocentric", "carried"), "supervised": ("supervised", "supervised")}


def traits_of(name: str) -> Traits:
    """The traits of a method. `module:Class` names a subclass of our method, with the same traits."""
    if ":" in name:
        return METHODS["contact"]._replace(home=name)
    if name not in METHODS:
        raise ValueError(f"method is {name!r}; allowed is one of {', '.join(METHODS)}")
    return METHODS[name]


def resolve(method: str, objective: str, egocentric: bool, *, picture: bool = True, several: bool = False) -> str:
    """The name for `traits_of`, from a user's method, objective and egocentric, the kind of observations, and whether
    there are several objects."""
    what, name, allowed = "method", method, get_args(Method)
    if method == "interaction":
        what, name, allowed = "objective", objective, get_args(Objective)
    elif objective != "contact":
        raise ValueError(f"objective is {objective!r}, which the method {method!r} does not use; leave it out")
    if name not in allowed and ":" not in name:
        raise ValueError(
            f"{what} is {name!r}; allowed is one of {', '.join(allowed)}, or the module:Class of a variant"
        )
    if not egocentric:
        return with_objects(name, picture=picture, several=several)
    if name not in CARRIED:
        raise ValueError(f"egocentric is True; allowed is False for {name!r}, which needs a fixed camera")
    return CARRIED[name][not picture]


def with_objects(name: str, *, picture: bool, several: bool) -> str:
    """The method that finds several objects in pictures, if there are; else the one with this name."""
    return ONE_BY_ONE.get(name, name) if picture and several else name


def method_class(name: str) -> Any:
    """The class of a method.

    A model's file may name any module, and importing a module runs its code. So only our own modules are imported here;
    others must be imported already.
    """
    module, _, kind = traits_of(name).home.partition(":")
    if module not in ("palpate.reproduce.variants", *sys.modules) and name not in METHODS:
        raise ValueError(f"method is {name!r}, a variant of another package; import {module} first")
    found = getattr(import_module(module), kind, None)
    if not isinstance(found, type):
        raise ValueError(f"method is {name!r}, but {module} has no class {kind!r}")
    return found
