"""What a run is asked for, completed by what is chosen for it, and refused where parts do not fit; free of torch."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from palpate.choices import CHOSEN_SWITCHES, Choice, choose
from palpate.config import (
    BaselineConfig,
    Body,
    Encoder,
    Method,
    ModelConfig,
    Objective,
    ObjectiveConfig,
    TrainingConfig,
)

LIMIT_SWITCHES = ("body", "egocentric")  # what the supervised limit looks at; the other baselines at nothing of it
OF_TRAINING = ("steps", "batch_size", "optimizer", "learning_rate", "jitter", "sway", "probing")
OF_OBJECTIVE = ("body", *CHOSEN_SWITCHES, "egocentric", "radius", "external", "split_window")  # that choices look at


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a user says of a run beside its data; what is left open is None, or 0 for steps and batch_size."""

    method: Method = "interaction"
    objective: Objective = "contact"
    encoder: Encoder = "auto"
    shrink: int | None = None
    body: Body | None = None
    radius: float | None = None
    switches: Mapping[str, Any] = field(default_factory=dict)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)
    training: TrainingConfig

    def __post_init__(self) -> None:
        for name in self.switches:
            if name not in ObjectiveConfig.__dataclass_fields__:
                near = difflib.get_close_matches(name, ObjectiveConfig.__dataclass_fields__, 1, 0.3)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"switches has {name!r}; allowed are the fields of ObjectiveConfig{hint}")
        if self.method != "interaction":
            read = LIMIT_SWITCHES if self.method == "supervised" else ()
            unread = [name for name in self.switches if name not in read]
            unread += ["radius"] if self.radius is not None else []
            unread += ["objective"] if self.objective != "contact" else []
            if unread:
                raise ValueError(
                    f"{unread[0]} is given, which the method {self.method!r} does not look at; leave it out"
                )

    @property
    def given(self) -> dict[str, Any]:
        """What is not left open, by the names of choices."""
        training = {name: getattr(self.training, name) for name in OF_TRAINING}
        training |= {name: training[name] or None for name in ("steps", "batch_size")}
        given = {
            "encoder": None if self.encoder == "auto" else self.encoder,
            "shrink": self.shrink,
            "body": self.body,
            "radius": self.radius,
            **training,
            **{name: self.switches[name] for name in OF_OBJECTIVE if name in self.switches},
        }
        return {name: value for name, value in given.items() if value is not None}


class Plan(NamedTuple):
    """All settings of a run."""

    model: ModelConfig
    training: TrainingConfig
    choices: list[Choice]
    open: list[Choice]  # those of them that nothing was given for


def plan(asked: Asked, *, shape: tuple[int, ...], n: int, triples: int | None, device: str) -> Plan:
    """`shape` is that of an observation, n the action's dimension; `triples` is None for a world that streams."""
    method, given = asked.method, asked.given
    choices = choose(given, shape=shape, n=n, triples=triples, device=device, method=method, objective=asked.objective)
    chosen = {choice.name: choice.value for choice in choices}
    training = replace(asked.training, **{name: chosen[name] for name in OF_TRAINING if name in chosen})
    training = replace(training, learning_rate=training.largest_rate)  # so that the run says it
    model = ModelConfig(
        method=method,
        encoder=chosen["encoder"],
        observation_shape=shape,
        n=n,
        shrink=chosen["shrink"],
        objective=ObjectiveConfig.named(
            asked.objective,
            **{"radius": asked.radius, "body": chosen["body"]}
            | {name: chosen[name] for name in CHOSEN_SWITCHES if name in chosen}
            | dict(asked.switches),
        ),
        baseline=asked.baseline,
    )
    _demand_that_they_fit(model, training, streams=triples is None)
    return Plan(model, training, choices, [choice for choice in choices if choice.name not in given])


def _demand_that_they_fit(model: ModelConfig, training: TrainingConfig, *, streams: bool) -> None:
    objective, method = model.objective, model.method
    foretells = method == "interaction" and objective.external == "likelihood" and objective.split_window > 0
    for name, value, fits, otherwise in (
        ("sway", training.sway, method == "interaction", f"for the method {method!r}, whose targets do not move"),
        ("sway", training.sway, not objective.egocentric, "for cameras that the agent carries (egocentric)"),
        ("probing", training.probing, streams, "for a fixed set of triples: their moves were made"),
        ("probing", training.probing, foretells, "for a method that foretells no contacts"),
        (
            "bend", objective.bend, streams,
            "for a fixed set of triples: a last fit needs fresh ones, of a world that streams",
        ),
    ):  # fmt: skip
        if value and not fits:
            raise ValueError(f"{name} is {value}; allowed is 0 {otherwise}")
