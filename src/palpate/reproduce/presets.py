"""What `palpate reproduce` runs, as plain values: worlds x methods x seeds, and how large everything is.

Light to import: no torch.
"""

import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from palpate.choices import Facts
from palpate.config import Encoder, ObjectiveConfig, SettledTraining
from palpate.plan import Asked, Plan, plan

Experiment = Literal["sprites", "soccer", "ablation", "shares"]
EXPERIMENTS: tuple[Experiment, ...] = ("sprites", "soccer", "ablation", "shares")

SPRITES = {
    "vanilla": "palpate/Sprites-v0",
    "background": "palpate/SpritesBackground-v0",
    "anisotropic": "palpate/SpritesAnisotropic-v0",
}
SOCCER = {"third": "palpate/Soccer-v0", "first": "palpate/SoccerFirstPerson-v0"}

OBJECTIVES: dict[str, dict[str, Any]] = {
    "ours": {},
    "paper-gaussian": {"objective": "paper-gaussian"},
    "paper": {"objective": "paper"},
}
BASELINES: dict[str, dict[str, Any]] = {name: {"method": name} for name in ("transporter", "vae", "supervised")}
METHODS = OBJECTIVES | BASELINES

# Our method with one part replaced: name and class in `variants`.
VARIANTS = {
    "split-on-d": "SplitOnD",
    "split-of-one-batch": "SplitOfOneBatch",
    "no-split-floor": "NoSplitFloor",
    "paper-placing": "PaperPlacing",
    "paper-placing-split-on-d": "PaperPlacingSplitOnD",
    "quadratic-stay": "QuadraticStay",
    "shrinking-stay": "ShrinkingStay",
    "path-gradient": "PathGradient",
    "no-contrast-floor": "NoContrastFloor",
    "contrast-gradient": "ContrastGradient",
    "agent-temperature-0.1": "AgentTemperatureTenth",
    "agent-temperature-1": "AgentTemperatureOne",
    "shared-network": "SharedNetwork",
}
# Moves are random but in two rows: not all variants predict contacts.
ABLATION: dict[str, dict[str, Any]] = {
    "ours": {"refine": False},
    "chosen-moves": {"refine": False},
    "last-fit": {"refine": True},
    "ball": {"body": "ball", "refine": False},
    "rest-floor-0.1": {"rest_floor": 0.1, "refine": False},
    **{name: {"objective": f"palpate.reproduce.variants:{kind}", "refine": False} for name, kind in VARIANTS.items()},
}
CHOOSING = ("chosen-moves", "last-fit")
SHARES = (0.5, 0.03, 0.1, 0.9)
RANDOM_MOVES: dict[str, Any] = {"chosen_moves": 0.0}  # contacts are as common as in the world

# Seeds of triples that nobody trains on; those of the runs are small.
TEST_SEED, REFERENCE_SEED = 10**6, 10**6 + 1

PAPER_EPOCHS = 100
LONG, PAPER_SCHEDULE = "-long", "-100-epochs"  # what a method's name ends with when it is trained otherwise

# Fields of TrainingConfig that say where and how fast, not what.
NOT_A_SETTING = ("seed", "device", "precision", "compile", "log_every", "checkpoint_every", "tensorboard")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How large everything is."""

    name: str
    encoder: Encoder
    size: int  # pixels on a side
    training: SettledTraining
    test_triples: int = 5000
    reference_triples: int = 1000  # to fit what a score needs: the common translation, a probe, an order of keypoints
    watched_triples: int = 1000  # of the test set, for the curve over the run
    set_triples: int = 10_000  # of a fixed set; the paper's number
    vector_triples: int = 20_000
    vector_training: Mapping[str, Any] = field(default_factory=lambda: {"steps": 4000, "batch_size": 256})
    longer: int = 4  # times as many steps for a Transporter trained to convergence; 1: no such run
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
        # As many as let the 18 runs of `sprites` end within half an hour on two cores.
        training=SettledTraining(steps=300, evaluate_every=30, checkpoint_every=60, log_every=10),
        watched_triples=500,
        longer=1,
        control_steps=20_000,
        pixel_steps=20_000,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: a world, a method, a seed, and all that its numbers depend on."""

    experiment: str
    world: str
    method: str
    seed: int
    preset: str
    env: str
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)  # of the world in training; tests are made without
    # Fresh triples without end; a set of one's own for each seed; one on disk for all seeds; numbers, no pictures.
    source: Literal["stream", "set", "shared", "vectors"] = "stream"
    triples: int | None = None  # of a set
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
        """All that the numbers depend on, ready for JSON."""
        everything = asdict(self)
        everything["training"] = {k: v for k, v in everything["training"].items() if k not in NOT_A_SETTING}
        planned = self._plan()
        everything["chosen"] = {choice.name: choice.value for choice in planned.choices}
        everything["training"]["learning_rate"] = planned.training.learning_rate
        if self.env in SOCCER.values():
            from palpate.envs.soccer.config import VERSION  # with it come all worlds, and torch

            everything["world_version"] = VERSION
        plain: dict[str, Any] = json.loads(json.dumps(everything))
        return plain

    def _plan(self) -> Plan:
        """This case with the settings that `fit` chooses."""
        views = 4 if self.env == SOCCER["first"] else 1
        scene = {name: value for name, value in self.fit.items() if name in ObjectiveConfig.__dataclass_fields__}
        rest = {name: value for name, value in self.fit.items() if name not in scene}
        facts = Facts(
            shape=(64,) if self.source == "vectors" else (3 * views, self.size, self.size),
            n=2,
            triples=self.triples,
            steerable=self.source == "stream",
            device="cuda" if self.encoder == "resnet18" else "cpu",
        )
        asked = Asked(encoder=self.encoder, training=self.training, scene=ObjectiveConfig(**scene), **rest)
        return plan(asked, facts)

    def digest(self) -> str:
        """Short and different for different settings."""
        return hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()[:8]


def cases(
    experiments: Iterable[Experiment],
    preset: Preset,
    seeds: int,
    *,
    worlds: Collection[str] = (),
    methods: Collection[str] = (),
    paper_schedule: bool = False,
) -> list[Case]:
    """The runs of some experiments, those of the first seed first; `worlds` and `methods` keep only those named."""
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; allowed is 1 or more")
    planned = [case for name in experiments for case in MAKERS[name](preset)]
    if paper_schedule:
        planned += [
            _on_the_papers_schedule(case, preset) for case in planned if case.method in OBJECTIVES.keys() - {"ours"}
        ]
    for what, wanted in (("world", worlds), ("method", methods)):
        there = list(dict.fromkeys(getattr(case, what) for case in planned))
        for name in wanted:
            if name not in there:
                near = difflib.get_close_matches(name, there, 1, 0.3)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{what} is {name!r}; these experiments have {', '.join(there)}{hint}")
        planned = [case for case in planned if not wanted or getattr(case, what) in wanted]
    if not planned:
        raise ValueError(f"no world of {', '.join(worlds)} is run with a method of {', '.join(methods)}; nothing to do")
    return [
        replace(case, seed=seed, training=replace(case.training, seed=seed))
        for seed in range(seeds)
        for case in planned
    ]


def _sprites(preset: Preset) -> Iterator[Case]:
    for world, env in SPRITES.items():
        for method, fit in METHODS.items():
            turns = world == "anisotropic" and method in ("ours", "supervised")
            yield _case(preset, "sprites", world, method, env, fit=fit | ({"body": "ellipse"} if turns else {}))
        if preset.longer > 1:
            steps, every = (preset.longer * n for n in (preset.training.steps, preset.training.evaluate_every))
            yield _case(
                preset, "sprites", world, "transporter" + LONG, env,
                fit=METHODS["transporter"], training={"steps": steps, "evaluate_every": every},
            )  # fmt: skip


def _soccer(preset: Preset) -> Iterator[Case]:
    for world, env in SOCCER.items():
        for method, fit in METHODS.items():
            if world == "first" and method == "transporter":  # keypoints of one picture plane, not of four
                continue
            carried = world == "first" and method in ("ours", "supervised")
            yield _case(
                preset, "soccer", world, method, env, fit=fit | ({"egocentric": True} if carried else {}),
                source="shared", triples=preset.set_triples,
            )  # fmt: skip


def _ablation(preset: Preset) -> Iterator[Case]:
    for method, fit in ABLATION.items():
        training = None if method in CHOOSING else RANDOM_MOVES
        yield _case(preset, "ablation", "vanilla", method, SPRITES["vanilla"], fit=fit, training=training)


def _shares(preset: Preset) -> Iterator[Case]:
    env = SPRITES["vanilla"]
    for share in SHARES:
        options = {"contact_share": share}
        yield _case(preset, "shares", f"share-{share}", "ours", env, options=options, training=RANDOM_MOVES)
    yield _case(preset, "shares", "fixed-set", "ours", env, source="set", triples=preset.set_triples)
    for share in SHARES:
        yield _case(
            preset, "shares", f"vectors-share-{share}", "ours", env,
            options={"contact_share": share}, source="vectors", triples=preset.vector_triples,
            encoder="mlp", training=preset.vector_training,
        )  # fmt: skip


MAKERS = {"sprites": _sprites, "soccer": _soccer, "ablation": _ablation, "shares": _shares}


def listed(experiment: str) -> tuple[list[str], list[str]]:
    """Worlds and methods of an experiment, in their order."""
    planned = cases([experiment], PRESETS["paper"], 1, paper_schedule=True)  # type: ignore[list-item]
    return list(dict.fromkeys(case.world for case in planned)), list(dict.fromkeys(case.method for case in planned))


def _case(
    preset: Preset,
    experiment: str,
    world: str,
    method: str,
    env: str,
    *,
    training: Mapping[str, Any] | None = None,
    encoder: Encoder | None = None,
    **changes: Any,
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
        encoder=encoder or preset.encoder,
        training=replace(config, evaluate_every=min(config.evaluate_every, config.steps)),
        test_triples=preset.test_triples,
        reference_triples=preset.reference_triples,
        watched_triples=preset.watched_triples,
        **changes,
    )


def _on_the_papers_schedule(case: Case, preset: Preset) -> Case:
    """100 epochs over a set of 10,000, Adam at a constant 1e-3, neither weight decay nor clipping."""
    steps = max(1, PAPER_EPOCHS * preset.set_triples * 9 // 10 // case.training.batch_size)  # a tenth is held out
    training = replace(
        case.training,
        steps=steps,
        optimizer="adamw",
        learning_rate=1e-3,
        schedule="paper",
        evaluate_every=max(1, steps // 20),
    )
    source = "set" if case.source == "stream" else case.source
    return replace(
        case, method=case.method + PAPER_SCHEDULE, training=training, source=source, triples=preset.set_triples
    )
