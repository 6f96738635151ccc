"""What `palpate reproduce` runs, as plain values: worlds x methods x seeds, and the size of everything.

This module imports no torch, so that the command line stays fast.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, get_args

from palpate.choices import Facts
from palpate.config import Encoder, ObjectiveConfig, SettledTraining
from palpate.plan import Asked, Plan, plan
from palpate.spelling import did_you_mean

Experiment = Literal["sprites", "soccer", "ablation", "shares"]
EXPERIMENTS: tuple[Experiment, ...] = get_args(Experiment)

SPRITES = {
    "vanilla": "palpate/Sprites-v0",
    "background": "palpate/SpritesBackground-v0",
    "anisotropic": "palpate/SpritesAnisotropic-v0",
}
SOCCER = {"third": "palpate/Soccer-v0", "first": "palpate/SoccerFirstPerson-v0"}

PLAIN = "ours-plain"  # random moves, AdamW and no refinement
METHODS: dict[str, dict[str, Any]] = {
    "ours": {},
    "paper-gaussian": {"objective": "paper-gaussian"},
    "paper": {"objective": "paper"},
    "transporter": {"method": "transporter"},
    "vae": {"method": "vae"},
    "supervised": {"method": "supervised"},
}

# Our method with one part replaced: name and class in `variants`.
VARIANTS = {
    "split-on-d": "SplitOnD",
    "split-of-one-batch": "SplitOfOneBatch",
    "no-split-floor": "NoSplitFloor",
    "paper-placing": "PaperPlacing",
    "quadratic-stay": "QuadraticStay",
    "shrinking-stay": "ShrinkingStay",
    "path-gradient": "PathGradient",
    "no-contrast-floor": "NoContrastFloor",
    "contrast-gradient": "ContrastGradient",
    "agent-temperature-0.1": "AgentTemperatureTenth",
}
ABLATION: dict[str, dict[str, Any]] = {
    "ours": {"refine": False},
    "chosen-moves": {"refine": False},
    "refine": {"refine": True},
    "ball": {"body": "ball", "refine": False},
    **{name: {"objective": f"palpate.reproduce.variants:{kind}", "refine": False} for name, kind in VARIANTS.items()},
}
CHOOSING = ("chosen-moves", "refine")  # the others have random moves, as 'ours' has
SHARES = (0.5, 0.03, 0.1, 0.9)
RANDOM_MOVES: dict[str, Any] = {"chosen_moves": 0.0}  # the contact share is the world's

# Seeds of triples that no run trains on; runs have small seeds.
TEST_SEED, REFERENCE_SEED = 10**6, 10**6 + 1

# Fields of TrainingConfig that do not change what is learned.
NOT_A_SETTING = ("seed", "device", "precision", "compile", "log_every", "checkpoint_every", "tensorboard")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The size of everything."""

    name: str
    encoder: Encoder
    size: int  # pixels on a side
    training: SettledTraining
    test_triples: int = 5000
    reference_triples: int = 1000
    watched_triples: int = 1000  # of the test set, for the curve over the run
    set_triples: int = 10_000  # of a data set; the paper's number
    control_steps: int = 60_000  # of PPO, in the environments
    pixel_steps: int = 500_000  # of PPO from pixels, which takes longer


PRESETS = {
    "paper": Preset(
        name="paper",
        encoder="resnet18",
        size=100,
        # A checkpoint of three ResNet-18s is 0.4 GB, and a whole run takes a minute.
        training=SettledTraining(steps=2500, evaluate_every=125, checkpoint_every=1250, compile=True),
    ),
    "small": Preset(
        name="small",
        encoder="small",
        size=50,
        # The runs of `sprites` take about half an hour on two cores.
        training=SettledTraining(steps=300, evaluate_every=30, checkpoint_every=60, log_every=10),
        watched_triples=500,
        control_steps=20_000,
        pixel_steps=20_000,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: world, method, seed, and all settings that its numbers depend on."""

    experiment: str
    world: str
    method: str
    seed: int
    preset: str
    env: str
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)  # of the training world; test triples use its defaults
    triples: int | None = None  # of a data set, the same for all seeds; None: fresh triples
    fit: Mapping[str, Any] = field(default_factory=dict)
    encoder: Encoder
    training: SettledTraining
    test_triples: int
    reference_triples: int
    watched_triples: int

    @property
    def name(self) -> str:
        return f"{self.world}-{self.method}-{self.seed}"

    @property
    def steps(self) -> int:
        return self.training.steps

    def settings(self) -> dict[str, Any]:
        """All settings that the numbers depend on, as JSON returns them."""
        everything = asdict(self)
        everything["training"] = {k: v for k, v in everything["training"].items() if k not in NOT_A_SETTING}
        planned = self._plan()
        everything["chosen"] = {choice.name: choice.value for choice in planned.choices}
        everything["training"]["learning_rate"] = planned.training.learning_rate
        if self.env in SOCCER.values():
            from palpate.envs.soccer.config import VERSION  # imports torch

            everything["world_version"] = VERSION
        plain: dict[str, Any] = json.loads(json.dumps(everything))
        return plain

    def _plan(self) -> Plan:
        """This case with the settings that `fit` chooses."""
        views = 4 if self.env == SOCCER["first"] else 1
        scene = {name: value for name, value in self.fit.items() if name in ObjectiveConfig.__dataclass_fields__}
        rest = {name: value for name, value in self.fit.items() if name not in scene}
        facts = Facts(
            shape=(3 * views, self.size, self.size),
            n=2,
            triples=self.triples,
            steerable=self.triples is None,
            device="cuda" if self.encoder == "resnet18" else "cpu",
        )
        asked = Asked(encoder=self.encoder, training=self.training, scene=ObjectiveConfig(**scene), **rest)
        return plan(asked, facts)


def cases(
    experiments: Iterable[Experiment],
    preset: Preset,
    seeds: int,
    *,
    worlds: Collection[str] = (),
    methods: Collection[str] = (),
) -> list[Case]:
    """The cases of some experiments, those of the first seed first. `worlds` and `methods`, if given, select some."""
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; allowed is 1 or more")
    planned = [case for name in experiments for case in MAKERS[name](preset)]
    for what, wanted in (("world", worlds), ("method", methods)):
        there = list(dict.fromkeys(getattr(case, what) for case in planned))
        for name in wanted:
            if name not in there:
                meant = did_you_mean(name, there, alike=0.3)
                raise ValueError(f"{what} is {name!r}; these experiments have {', '.join(there)}{meant}")
        planned = [case for case in planned if not wanted or getattr(case, what) in wanted]
    return [
        replace(case, seed=seed, training=replace(case.training, seed=seed))
        for seed in range(seeds)
        for case in planned
    ]


def _sprites(preset: Preset) -> Iterator[Case]:
    for world, env in SPRITES.items():
        for method, fit in METHODS.items():
            body = {"body": "ellipse"} if world == "anisotropic" and method in ("ours", "supervised") else {}
            yield _case(preset, "sprites", world, method, env, fit=fit | body)
            if method == "ours":  # like for like: what the baselines have
                plain = {"optimizer": "adamw", **RANDOM_MOVES}
                yield _case(preset, "sprites", world, PLAIN, env, fit={"refine": False} | body, training=plain)


def _soccer(preset: Preset) -> Iterator[Case]:
    for world, env in SOCCER.items():
        for method, fit in METHODS.items():
            if world == "first" and method == "transporter":  # its keypoints are points of one picture, not of four
                continue
            carried = {"egocentric": True} if world == "first" and method in ("ours", "supervised") else {}
            yield _case(preset, "soccer", world, method, env, fit=fit | carried, triples=preset.set_triples)


def _ablation(preset: Preset) -> Iterator[Case]:
    for method, fit in ABLATION.items():
        training = {} if method in CHOOSING else RANDOM_MOVES
        yield _case(preset, "ablation", "vanilla", method, SPRITES["vanilla"], fit=fit, training=training)


def _shares(preset: Preset) -> Iterator[Case]:
    env = SPRITES["vanilla"]
    for share in SHARES:
        options = {"contact_share": share}
        yield _case(preset, "shares", f"share-{share}", "ours", env, options=options, training=RANDOM_MOVES)
    yield _case(preset, "shares", "fixed-set", "ours", env, triples=preset.set_triples)


MAKERS = {"sprites": _sprites, "soccer": _soccer, "ablation": _ablation, "shares": _shares}


@cache
def listed(experiment: str) -> tuple[list[str], list[str]]:
    """Worlds and methods of an experiment, in their order."""
    planned = list(MAKERS[experiment](PRESETS["paper"]))
    return list(dict.fromkeys(case.world for case in planned)), list(dict.fromkeys(case.method for case in planned))


def _case(
    preset: Preset, experiment: str, world: str, method: str, env: str, *, training: Any = None, **changes: Any
) -> Case:
    config = replace(preset.training, **(training or {}))
    return Case(
        experiment=experiment,
        world=world,
        method=method,
        seed=config.seed,
        preset=preset.name,
        env=env,
        size=preset.size,
        encoder=preset.encoder,
        training=replace(config, evaluate_every=min(config.evaluate_every, config.steps)),
        test_triples=preset.test_triples,
        reference_triples=preset.reference_triples,
        watched_triples=preset.watched_triples,
        **changes,
    )
