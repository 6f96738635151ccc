"""Fill in the settings that a user left open, and validate the combination; does not import torch."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from palpate.choices import REFINED_DIMENSIONS, Choice, Facts, choose
from palpate.config import Encoder, ModelConfig, ObjectiveConfig, SettledTraining, TrainingConfig
from palpate.traits import CARRIED, Kind, Traits, resolve, traits_of, with_objects

OF_TRAINING = ("steps", "batch_size", "optimizer", "learning_rate", "augment", "chosen_moves")
OF_OBJECTIVE = ("objects", "body", "refine", "rest_floor")
OPEN = (None, "auto")  # values that leave a setting open
CARRIES = Choice("egocentric", True, "each move changes the whole scan, so the agent carries the scanner")
HELD_OUT_FEWEST = 2  # triples of a data set that no batch may hold


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A user's settings for a run, without its data; None and "auto" are left open."""

    method: str = "interaction"
    objective: str = "contact"
    encoder: Encoder | None = None
    shrink: int | None = None
    scene: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @classmethod
    def of(
        cls,
        *,
        method: str = "interaction",
        objective: str = "contact",
        encoder: Encoder | None = None,
        shrink: int | None = None,
        training: TrainingConfig | None = None,
        **settings: Any,
    ) -> Self:
        """From the keywords of `palpate.fit`: `settings` are those of `ObjectiveConfig` and `TrainingConfig`."""
        scene = {name: settings.pop(name) for name in ObjectiveConfig.__dataclass_fields__ if name in settings}
        return cls(
            method=method,
            objective=objective,
            encoder=encoder,
            shrink=shrink,
            scene=ObjectiveConfig(**scene),
            training=replace(training or TrainingConfig(), **settings),
        )

    @property
    def name(self) -> str:
        """The method's name in `traits.METHODS`."""
        return resolve(self.method, self.objective, bool(self.scene.egocentric))

    @property
    def can_carry(self) -> bool:
        """Whether there is a method for sensors on the agent."""
        return resolve(self.method, self.objective, False) in CARRIED

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not left open, by name."""
        training = {name: getattr(self.training, name) for name in OF_TRAINING}
        given = {"encoder": self.encoder, "shrink": self.shrink, **training, **asdict(self.scene)}
        return {name: value for name, value in given.items() if value not in OPEN}


class Plan(NamedTuple):
    """All settings of a run."""

    model: ModelConfig
    training: SettledTraining
    choices: list[Choice]
    open: list[Choice]  # those that the user left open


def plan(asked: Asked, facts: Facts) -> Plan:
    given, found = asked.given, asked.scene.egocentric is None and facts.carried and asked.can_carry
    carried = found or bool(asked.scene.egocentric)
    scene = replace(asked.scene, egocentric=carried)
    several = asked.scene.objects != 1
    name = resolve(asked.method, asked.objective, carried, picture=facts.picture, several=several)
    traits = traits_of(name)
    n = asked.scene.dimension(facts.n)
    choices = [CARRIES] * found + choose(given, facts._replace(n=n), traits)
    chosen = {choice.name: choice.value for choice in choices}
    settled = {name: chosen[name] for name in OF_TRAINING if name in chosen}
    training = SettledTraining(**{**vars(asked.training), **settled})
    training = replace(training, learning_rate=training.largest_rate)  # so that the run records it
    model = ModelConfig(
        method=name,
        encoder=chosen["encoder"],
        observation_shape=facts.shape,
        n=n,
        actions=facts.n,
        substeps=facts.substeps,
        shrink=chosen["shrink"],
        objective=replace(scene, **{name: chosen[name] for name in OF_OBJECTIVE if name in chosen}),
    )
    _require_fit(name, traits, given, facts._replace(n=n), training)
    return Plan(model, training, choices, [choice for choice in choices if choice.name not in given])


def _require_fit(name: str, traits: Traits, given: dict[str, Any], facts: Facts, training: SettledTraining) -> None:
    """Refuse settings that the method or the data would ignore, and batches that are larger than the data set."""
    if facts.triples is not None and facts.triples < training.batch_size + HELD_OUT_FEWEST:
        raise ValueError(
            f"there are {facts.triples} triples for batches of {training.batch_size}; collect more, or use a smaller "
            "batch_size"
        )
    supervised = not traits.unsupervised  # it learns the angle of a body that turns
    objects = given.get("objects", 1)
    require_objects(name, objects, facts)
    if traits.one_by_one and training.steps < objects:
        raise ValueError(f"steps is {training.steps}; allowed is {objects} or more: each object needs some hundred")
    for setting, fits, why in (
        ("body", traits.has_body or supervised, f"the method {name!r} learns no body"),
        ("radius", traits.has_body, f"the method {name!r} learns no body"),
        ("group", traits.turns or given["group"] == "translations", f"the method {name!r} learns no agent that turns"),
        ("rest_floor", traits.has_body, f"the method {name!r} learns no body"),
        ("refine", traits.refines, f"the method {name!r} has no refinement"),
        ("refine", facts.fresh, "a refinement needs fresh triples from a streamed world"),
        ("refine", facts.n <= REFINED_DIMENSIONS, f"it has too many terms beyond {REFINED_DIMENSIONS} dimensions"),
        ("shrink", not traits.reconstructs, f"the method {name!r} reconstructs pictures at full size"),
        ("chosen_moves", facts.fresh, "the moves of a data set are fixed"),
        ("chosen_moves", facts.steerable or not facts.fresh, "this world is not steerable"),
        ("chosen_moves", traits.predicts, f"the method {name!r} predicts no contacts"),
    ):
        value = given.get(setting)
        if value and not fits and not (setting == "shrink" and value == 1):
            raise ValueError(f"{setting} is {value!r}; leave it out: {why}")
    if given.get("augment", "none") != "none" and not facts.picture:
        raise ValueError(f"augment is {given['augment']!r}; leave it out: observations are not pictures")
    if training.augment == "shift" and not traits.shifts:
        raise ValueError(
            f"augment is 'shift'; allowed is 'none' or 'light' for the method {name!r}, whose targets are not shifted"
        )


def require_objects(name: str, objects: int | str, facts: Facts) -> None:
    """Refuse several objects, or their search, where the method or the data do not allow them."""
    traits = traits_of(with_objects(name, picture=facts.picture, several=objects != 1))
    kind: Kind = "pictures" if facts.picture else "vectors"
    if objects != 1 and kind not in traits.several:
        why = f"several objects are not found in {kind} yet"
        why = why if traits.several and ":" not in name else f"the method {name!r} places one object"
        raise ValueError(f"objects is {objects!r}; leave it out: {why}")
    if objects == "auto" and not traits.counts(picture=facts.picture):
        counted = facts.picture and traits.has_body
        why = "objects are counted in vectors only" if counted else f"the method {name!r} cannot count objects"
        raise ValueError(f"objects is 'auto'; give their number: {why}")
