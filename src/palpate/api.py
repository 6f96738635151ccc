"""`fit` and `evaluate`: they combine data, model and training loop."""

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from palpate import __version__
from palpate.choices import Facts
from palpate.config import BaselineConfig, Encoder, ObjectiveConfig, SettledTraining, TrainingConfig
from palpate.data.check import demand_variety
from palpate.data.labelled import Labelled, LabelledResident, LabelledStream
from palpate.data.sources import Resident, source
from palpate.data.stream import SteerableWorld, World, first_triples
from palpate.data.transitions import Batch, Transitions
from palpate.envs.registration import SPRITES, stream_world
from palpate.methods.base import Encoding, Model
from palpate.methods.store import build
from palpate.metrics import Scores, measure
from palpate.plan import Asked, plan
from palpate.progress import bar, say
from palpate.quality import assess
from palpate.representation import Representation
from palpate.runlog import demand_place, run_folder
from palpate.training.feeds import Feed, Oversampled, Selected
from palpate.training.loop import train, training_device
from palpate.training.state import steps_done
from palpate.traits import Traits, traits_of

COINCIDENCE = 0.02  # share of test triples that may be in the training set by chance
HELD_OUT_SHARE, HELD_OUT_MOST, HELD_OUT_BYTES = 0.1, 1000, 1024**3  # of a fixed set: never trained on
BLOCK_ROWS, BLOCK_BYTES = 256, 256 * 1024**2  # of held-out triples per block, as float32
ASSESSED_ROWS = 512  # fresh triples of a stream, to judge the model by
SAMPLE_ROWS, SAMPLE_BYTES = 2048, 256 * 1024**2  # to take the scales from

Data = Transitions | Labelled | World | str | os.PathLike[str]


def evaluate(model: Representation, labelled: Labelled, *, reference: Labelled | None = None) -> Scores:
    """Measure a representation on labelled triples it was not trained on; see `palpate.metrics.Scores`.

    One common translation, the order of keypoints and the probe of a latent are fitted to true states: those of
    `reference`, labelled training triples, or else those of every second row of `labelled`.
    """
    encoding, contact, would_touch = _answers(model, labelled)
    known = None if reference is None else (_answers(model, reference)[0], reference.truth)
    return measure(
        encoding,
        labelled.truth,
        contact=contact,
        would_touch=would_touch,
        reference=known,
        places_object=model.model.places_object,
        tells_apart=model.model.tells_apart,
    )


def _answers(model: Representation, labelled: Labelled) -> tuple[Encoding, Tensor | None, Tensor | None]:
    """A representation's answers for all triples, block by block; None for what it cannot answer."""
    encodings, contacts, touches = [], [], []
    for block in labelled.transitions.blocks():
        rows = labelled.transitions.rows(block)
        encodings.append(model.encode(rows.o))
        contacts.append(model.contact(*rows) if model.model.separation() is not None else None)
        touches.append(model.would_touch(rows.o, rows.a) if model.model.predicts else None)
    encoding = Encoding(*map(_joined, zip(*encodings, strict=True)))  # type: ignore[arg-type]
    return encoding, _joined(contacts), _joined(touches)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    return torch.cat(parts) if parts and parts[0] is not None else None  # type: ignore[arg-type]


def fit(
    data: Data,
    *,
    out: str | os.PathLike[str] | None = None,
    method: str = "interaction",
    objective: str = "contact",
    encoder: Encoder | None = None,
    shrink: int | None = None,
    body: str | None = None,
    radius: float | None = None,
    egocentric: bool = False,
    refine: bool | None = None,
    rest_floor: float | None = None,
    baseline: BaselineConfig | None = None,
    training: TrainingConfig | None = None,
    test: Labelled | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    watch: Callable[[int, dict[str, float]], None] | None = None,
    **changes: Any,
) -> Representation:
    """Learn a representation from triples.

    `data` are `Transitions`, a file of them, or a world that streams fresh ones: an id such as "palpate/Sprites-v0", or
    any object with the protocol `palpate.data.stream.World`. `fit` chooses settings that are left out, shows them, and
    keeps them with the reason in `facts["choices"]`. `body`, `radius`, `egocentric`, `refine` and `rest_floor` are
    those of `ObjectiveConfig`; further keywords are those of `TrainingConfig` (steps, seed, device...); `baseline` is
    for the methods "vae" and "transporter".

    With `out` the run is a folder: it can be stopped and resumed, and holds the model at the end. `test`, labelled
    triples, is only for measuring; `watch` is called with every reading. A tenth of a fixed set is held out, in whole
    episodes if they are known. `fit` returns the weights that explain it best; `facts["quality"]` is their label-free
    quality.
    """
    config = replace(training or TrainingConfig(), **changes)
    place = None if out is None else Path(out)
    demand_place(place, resume=resume, overwrite=overwrite)
    device = training_device(config)
    torch.manual_seed(config.seed)
    scene = ObjectiveConfig(body=body, radius=radius, egocentric=egocentric, refine=refine, rest_floor=rest_floor)
    asked = Asked(
        method=method,
        objective=objective,
        encoder=encoder,
        shrink=shrink,
        scene=scene,
        baseline=baseline or BaselineConfig(),
        training=config,
    )
    traits = traits_of(asked.name)
    opened = _opened(data, traits, device)
    if test is not None and not isinstance(test, Labelled):
        raise ValueError(f"test is {test!r}; allowed are labelled triples, palpate.Labelled")
    if test is not None and isinstance(opened, Transitions | Labelled):
        _warn_of_seen(test.transitions, _triples(opened))
    model_config, settled, choices, left_open = plan(asked, _facts(opened, device))
    material = _material(opened, traits, settled, device)
    uint8 = material.sample.o.dtype == torch.uint8
    model = build(replace(model_config, observation_dtype="uint8" if uint8 else "float32")).to(device)
    model.measure(Batch(*(x.to(device) for x in material.sample)), material.actions)
    model.inputs.augment = settled.augment or "none"
    facts: dict[str, Any] = {
        "palpate_version": __version__,
        "training": asdict(settled),
        "data": material.name,
        "choices": [choice._asdict() for choice in choices],
    }
    described = {"model": asdict(model.config), "training": asdict(settled), "data": {"data": material.name}}
    with run_folder(place, described, resume=resume, overwrite=overwrite) as folder:
        if progress:
            say("\n".join(["chosen, since not given:", *(f"  {choice}" for choice in left_open)]) if left_open else "")
            if resume and folder is not None:
                say(f"continuing after step {steps_done(folder)} of {settled.steps}")
        title = f"{model.config.method}, {model.config.encoder} on {device.type}"
        with bar(title, settled.steps, show=progress) as advance:
            try:
                train(
                    model,
                    material.feed,
                    settled,
                    folder=folder,
                    evaluate=_evaluation(material.held_out, test, facts, device),
                    criterion=None if material.held_out is None else "held_out",
                    watch=_Display(advance, watch),
                )
            finally:
                material.feed.close()
        facts |= _judged(model, material, progress)
        representation = Representation(model, facts, device)
        if folder is not None:
            representation.save(folder, overwrite=True)
        return representation


class Material(NamedTuple):
    """The data of a run."""

    feed: Feed
    sample: Batch  # some rows to take the scales from
    actions: Tensor  # all of them, for the unit
    held_out: Batch | None  # rows of a fixed set that choose the weights
    name: str
    episode: Tensor | None = None  # of the held-out rows


def _opened(data: Data, traits: Traits, device: torch.device) -> Transitions | Labelled | World:
    if isinstance(data, str) and (data in SPRITES or (data.startswith("palpate/") and not Path(data).exists())):
        return stream_world(data, device=device)
    if isinstance(data, str | os.PathLike):
        return Transitions.open(data) if traits.unsupervised else Labelled.open(data)
    if isinstance(data, type) or not isinstance(data, Transitions | Labelled | World):
        raise ValueError(
            f"data is {data!r}; allowed are Transitions, a file of them, or a world with device, observation_shape, n, "
            "sample and render_pair (palpate.data.stream.World)"
        )
    return data


def _triples(data: Transitions | Labelled) -> Transitions:
    return data.transitions if isinstance(data, Labelled) else data


def _facts(data: Transitions | Labelled | World, device: torch.device) -> Facts:
    if isinstance(data, Transitions | Labelled):
        triples = _triples(data)
        return Facts(triples.observation_shape, triples.n, len(triples), False, device.type)
    return Facts(tuple(data.observation_shape), data.n, None, isinstance(data, SteerableWorld), device.type)


def _material(
    data: Transitions | Labelled | World, traits: Traits, config: SettledTraining, device: torch.device
) -> Material:
    if isinstance(data, Transitions | Labelled):
        return _from_set(data, traits, config, device)
    return _from_world(data, traits, config, device)


def _from_world(world: World, traits: Traits, config: SettledTraining, device: torch.device) -> Material:
    if torch.device(world.device).type != device.type:
        raise ValueError(
            f"the world is on {world.device}, the training on {device}; build it with device={device.type!r}"
        )
    if config.compile and hasattr(world, "compile"):
        world.compile()
    rows = max(8, min(SAMPLE_ROWS, SAMPLE_BYTES // (2 * math.prod(world.observation_shape))))
    sample = first_triples(world, rows, torch.Generator(device).manual_seed(config.seed + 1))
    demand_variety(sample)
    feed = (
        Selected(
            world, config.batch_size, least_contacts=config.least_contacts, chosen_moves=config.chosen_moves or 0.0
        )
        if traits.unsupervised
        else Feed(LabelledStream(world), config.batch_size)
    )
    return Material(feed, sample, sample.a, None, f"stream of {getattr(world, 'config', type(world).__name__)}")


def _from_set(data: Transitions | Labelled, traits: Traits, config: SettledTraining, device: torch.device) -> Material:
    triples = _triples(data)
    if len(triples) < config.batch_size + 2:
        raise ValueError(
            f"there are {len(triples)} triples for batches of {config.batch_size}; collect more, or use a smaller "
            "batch_size"
        )
    sample = triples.rows(_spread_rows(triples))
    demand_variety(sample)
    if not traits.unsupervised:
        if not isinstance(data, Labelled):
            raise ValueError("method is 'supervised', but the data hold no truth; give a Labelled set or a world")
        return Material(
            Feed(LabelledResident(data, device), config.batch_size), sample, triples.action, None, repr(data)
        )
    most = max(2, min(HELD_OUT_MOST, HELD_OUT_BYTES * len(triples) // triples.nbytes))
    share = max(min(HELD_OUT_SHARE, most / len(triples), 1 - config.batch_size / len(triples)), 2 / len(triples))
    held_out, kept = triples.split(share, seed=config.seed)
    if len(held_out) > most:  # a long episode: all of it would make evaluations slow
        held_out = held_out.subset(slice(0, most))
    held_rows = Batch(*(x.to(device) for x in held_out.rows(slice(None))))
    kept_source = source(kept, device, config.seed)
    feed = (
        Oversampled(kept_source, config.batch_size, config.least_contacts)
        if isinstance(kept_source, Resident) and config.least_contacts > 0
        else Feed(kept_source, config.batch_size)
    )
    return Material(feed, sample, triples.action, held_rows, repr(triples), held_out.episode)


def _warn_of_seen(test: Transitions, triples: Transitions) -> None:
    share = test.shared_with(triples)
    if share > COINCIDENCE:
        warnings.warn(
            f"{share:.0%} of the test triples are also training triples, so scores will be too good; collect others "
            "with another seed",
            stacklevel=3,
        )


def _spread_rows(triples: Transitions) -> list[int]:
    """Evenly spaced row numbers of the whole set, as many as fit into bounded memory."""
    most = max(8, SAMPLE_BYTES * len(triples) // triples.nbytes)
    count = min(len(triples), SAMPLE_ROWS, most)
    return [i * len(triples) // count for i in range(count)]


def _evaluation(
    held_out: Batch | None, test: Labelled | None, facts: Mapping[str, Any], device: torch.device
) -> Callable[[Model], dict[str, float]] | None:
    """What is measured during the run: the label-free criterion and, with a test set, the scores."""
    if held_out is None and test is None:
        return None
    blocks = _blocks(held_out)

    def run(model: Model) -> dict[str, float]:
        explained = model.held_out(blocks) if blocks else None
        readings = {} if explained is None else {"held_out": explained}
        if test is not None:
            readings |= evaluate(Representation(model, facts, device), test).as_dict()
        return readings

    return run


def _judged(model: Model, material: Material, progress: bool) -> dict[str, Any]:
    """The label-free quality and its findings, which are also issued as warnings."""
    with torch.no_grad():
        model.recall(_blocks(material.held_out))
    unseen = material.held_out
    if unseen is None:
        unseen = Batch(*(x[:ASSESSED_ROWS] for x in material.sample))
    quality = assess(model, unseen, material.episode)
    if quality is None:
        return {"findings": []}
    findings = [str(finding) for finding in quality.findings]
    for finding in findings:
        warnings.warn(finding, stacklevel=3)
    if progress:
        say(str(quality))
    return {"quality": quality.as_dict(), "findings": findings}


def _blocks(batch: Batch | None) -> list[Batch]:
    """Pieces of bounded memory. A single remaining row is dropped, because a loss compares rows."""
    if batch is None:
        return []
    rows = max(2, min(BLOCK_ROWS, BLOCK_BYTES // (8 * batch.o[0].numel())))
    pieces = (Batch(*piece) for piece in zip(*(x.split(rows) for x in batch), strict=True))
    return [piece for piece in pieces if len(piece.a) > 1]


class _Display:
    """Shows readings beside the progress bar, and passes them to `watch`."""

    SHOWN = ("agent", "scout", "contact", "touch", "stay", "object", "reconstruction")

    def __init__(self, advance: Callable[[int, str], None], watch: Callable[[int, dict[str, float]], None] | None):
        self._advance, self._watch = advance, watch
        self._first: tuple[int, float] | None = None

    def __call__(self, step: int, readings: dict[str, float]) -> None:
        now = time.monotonic()
        self._first = self._first or (step, now)
        since, began = self._first
        shown = [f"{name} {readings[name]:.2g}" for name in self.SHOWN if name in readings]
        if "contact_share" in readings:
            selected = f", selected from {readings['pool']:.0f} batches" if "pool" in readings else ""
            shown.append(f"contacts {readings['contact_share']:.0%}{selected}")
        if "l_test" in readings:
            shown.append(f"L_test {readings['l_test']:.2g}")
        if step > since:
            shown.append(f"{(step - since) / (now - began):.3g} steps/s")
        self._advance(step, "  ".join(shown))
        if self._watch:
            self._watch(step, readings)
