"""fit and evaluate: data, model and loop put together."""

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
from palpate.config import BaselineConfig, Body, Encoder, Method, Objective, TrainingConfig
from palpate.contacts.split import SEPARABLE
from palpate.data.labelled import Labelled, LabelledResident, LabelledStream
from palpate.data.sources import Source, source
from palpate.data.stream import Stream
from palpate.data.transitions import Batch, Transitions
from palpate.envs.registration import SPRITES, stream_world
from palpate.envs.sprites import Sprites
from palpate.methods.base import Encoding, Model
from palpate.methods.interaction import Interaction
from palpate.methods.store import build
from palpate.metrics import Scores, measure
from palpate.plan import Asked, plan
from palpate.progress import bar, say
from palpate.quality import assess
from palpate.representation import Representation
from palpate.runlog import run_folder
from palpate.training.loop import steps_done, train, training_device

COINCIDENCE = 0.02  # share of test triples that may be among those learned from by chance
HELD_OUT_SHARE, HELD_OUT_MOST = 0.1, 1000  # of a fixed set: never trained on
HELD_OUT_BLOCK = 256  # rows looked at together
ASSESSED_ROWS = 512  # fresh triples of a stream, to judge the model by
SAMPLE_ROWS, SAMPLE_BYTES = 2048, 256 * 1024**2  # to take the scales from

Data = Transitions | Labelled | Sprites | str | os.PathLike[str]


def evaluate(model: Representation, labelled: Labelled, *, reference: Labelled | None = None) -> Scores:
    """Measure a representation on labelled triples it was not trained on; see `palpate.metrics.Scores`.

    What needs true states to be read (one common translation, the order of keypoints, a probe of a latent) is fitted on
    `reference`, labelled triples of the training data; without them on every second row of `labelled`.
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
    """What a representation says of every triple, block by block."""
    interaction = model.config.method == "interaction"
    geometric = interaction and model.config.objective.external == "likelihood"
    encodings, contacts, touches = [], [], []
    for block in labelled.transitions.blocks():
        rows = labelled.transitions.rows(block)
        encodings.append(model.encode(rows.o))
        if interaction:
            contacts.append(model.contact(rows.o, rows.a, rows.o_next))
        if geometric:
            touches.append(model.would_touch(rows.o, rows.a))
    encoding = Encoding(*map(_joined, zip(*encodings, strict=True)))  # type: ignore[arg-type]
    return encoding, _joined(contacts), _joined(touches)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    return torch.cat(parts) if parts and parts[0] is not None else None  # type: ignore[arg-type]


def fit(
    data: Data,
    *,
    out: str | os.PathLike[str] | None = None,
    method: Method = "interaction",
    objective: Objective = "contact",
    encoder: Encoder = "auto",
    shrink: int | None = None,
    body: Body | None = None,
    radius: float | None = None,
    switches: Mapping[str, Any] | None = None,
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

    `data` are `Transitions`, a file of them, or a world that streams fresh ones (an id such as "palpate/Sprites-v0").
    What is left open is chosen to suit them, said, and kept with the reason in `facts["choices"]`: encoder, shrink (of
    large pictures), body, outline, rim, steps, batch_size, optimizer, learning_rate, jitter, sway, probing,
    contrast_floor, stay_weight, stay_rise, bend.
    `switches` changes fields of `ObjectiveConfig`, further keywords those of `TrainingConfig` (steps, seed, device...);
    `baseline` is for the methods "vae" and "transporter", which look neither at the objective nor at the body.
    With `out` the run is a folder: it can be stopped and resumed, and holds the model at the end. `test`, labelled
    triples, is only measured on; `watch` is called with every reading. Of a fixed set a tenth is held out, in whole
    episodes where they are known; the weights that explain it best are kept, and `facts["quality"]` says, without
    labels, how well.
    """
    config = replace(training or TrainingConfig(steps=0, batch_size=0), **changes)
    device = training_device(config)
    torch.manual_seed(config.seed)
    data = _opened(data, method, device)
    triples = data.transitions if isinstance(data, Labelled) else data
    if test is not None and not isinstance(test, Labelled):
        raise ValueError(f"test is {test!r}; allowed are labelled triples, palpate.Labelled")
    if test is not None and isinstance(triples, Transitions):
        _warn_of_seen(test.transitions, triples)
    model_config, config, choices, left_open = plan(
        Asked(
            method=method,
            objective=objective,
            encoder=encoder,
            shrink=shrink,
            body=body,
            radius=radius,
            switches=switches or {},
            baseline=baseline or BaselineConfig(),
            training=config,
        ),
        shape=triples.observation_shape,
        n=triples.n,
        triples=None if isinstance(triples, Sprites) else len(triples),
        device=device.type,
    )
    feed = _feed(data, method, config, device)
    model_config = replace(model_config, observation_dtype="uint8" if feed.sample.o.dtype == torch.uint8 else "float32")
    facts: dict[str, Any] = {"palpate_version": __version__, "training": asdict(config), "data": feed.name}
    facts["choices"] = [choice._asdict() for choice in choices]
    model = build(model_config).to(device)
    model.inputs.measure(Batch(*(x.to(device) for x in feed.sample)), feed.actions)
    model.inputs.jitter, model.inputs.sway = config.jitter or 0.0, config.sway or 0.0
    described = {"model": asdict(model_config), "training": asdict(config), "data": {"data": feed.name}}
    place = None if out is None else Path(out)
    with run_folder(place, described, resume=resume, overwrite=overwrite) as folder:
        if progress:
            say("\n".join(["chosen, since not given:", *(f"  {choice}" for choice in left_open)]) if left_open else "")
            if resume and folder is not None:
                done = steps_done(folder)
                say(f"going on after step {done} of {config.steps}" if done < config.steps else "this run was finished")

        first: tuple[int, float] | None = None
        with bar(f"{method}, {model_config.encoder} on {device.type}", config.steps, show=progress) as advance:

            def show(step: int, readings: dict[str, float]) -> None:
                nonlocal first
                now = time.monotonic()
                first = first or (step, now)
                speed = (step - first[0]) / (now - first[1]) if step > first[0] else None
                advance(step, _note(readings, speed))
                if watch:
                    watch(step, readings)

            try:
                train(
                    model,
                    feed.batches,
                    config,
                    folder=folder,
                    evaluate=_evaluation(feed.held_out, test, facts, device),
                    criterion=None if feed.held_out is None else "held_out",
                    watch=show,
                )
            finally:
                feed.batches.close()
        facts["findings"] = []
        if isinstance(model, Interaction):
            with torch.no_grad():
                model.recall(_blocks(feed.held_out))
            unseen = Batch(*(x[:ASSESSED_ROWS] for x in feed.sample)) if feed.held_out is None else feed.held_out
            quality = assess(model, unseen, feed.episode)
            facts |= {"quality": quality.as_dict(), "findings": [str(finding) for finding in quality.findings]}
            for finding in facts["findings"]:
                warnings.warn(finding, stacklevel=2)
            if progress:
                say(str(quality))
        representation = Representation(model, facts, device)
        if folder is not None:
            representation.save(folder, overwrite=True)
        return representation


class Feed(NamedTuple):
    """What a run learns from."""

    batches: Source[Any]
    sample: Batch  # some rows to take the scales from
    actions: Tensor  # all there are, for the unit
    held_out: Batch | None  # rows of a fixed set that choose the weights
    name: str
    episode: Tensor | None = None  # of the rows held out


def _opened(data: Data, method: Method, device: torch.device) -> Transitions | Labelled | Sprites:
    if isinstance(data, str) and (data in SPRITES or (data.startswith("palpate/") and not Path(data).exists())):
        return stream_world(data, device=device)
    if isinstance(data, str | os.PathLike):
        return Labelled.open(data) if method == "supervised" else Transitions.open(data)
    return data


def _feed(data: Transitions | Labelled | Sprites, method: Method, config: TrainingConfig, device: torch.device) -> Feed:
    supervised = method == "supervised"
    if isinstance(data, Sprites):
        if data.device.type != device.type:
            raise ValueError(
                f"the world is on {data.device}, the training on {device}; build it with device={device.type!r}"
            )
        if config.compile:
            data.compile()
        sample = Stream(data, SAMPLE_ROWS).draw(torch.Generator(device).manual_seed(config.seed + 1))
        batches: Source[Any] = Stream(
            data, config.batch_size, least_contacts=config.least_contacts, probing=config.probing or 0.0
        )
        if supervised:
            batches = LabelledStream(data, config.batch_size)
        return Feed(batches, sample, sample.a, None, f"stream of {data.config}")
    triples = data.transitions if isinstance(data, Labelled) else data
    if len(triples) < config.batch_size + 2:
        raise ValueError(
            f"there are {len(triples)} triples for batches of {config.batch_size}; collect more, or take a smaller "
            "batch_size"
        )
    sample = triples.rows(_spread_rows(triples))
    if supervised:
        if not isinstance(data, Labelled):
            raise ValueError("method is 'supervised', but the data hold no truth; give a Labelled set or a world")
        labelled = LabelledResident(data, config.batch_size, device)
        return Feed(labelled, sample, triples.action, None, repr(data))
    share = max(
        min(HELD_OUT_SHARE, HELD_OUT_MOST / len(triples), 1 - config.batch_size / len(triples)), 2 / len(triples)
    )
    held_out, kept = triples.split(share, seed=config.seed)
    if len(held_out) > HELD_OUT_MOST:  # a long episode: all of it would cost more at each evaluation than it tells
        held_out = held_out.subset(slice(0, HELD_OUT_MOST))
    held_rows = Batch(*(x.to(device) for x in held_out.rows(slice(None))))
    kept_source = source(kept, config.batch_size, device, config.seed, least_contacts=config.least_contacts)
    return Feed(kept_source, sample, triples.action, held_rows, repr(triples), held_out.episode)


def _warn_of_seen(test: Transitions, triples: Transitions) -> None:
    share = test.shared_with(triples)
    if share > COINCIDENCE:
        warnings.warn(
            f"{share:.0%} of the test triples are among those to learn from, so scores will be too good; collect "
            "others, with another seed",
            stacklevel=3,
        )


def _spread_rows(triples: Transitions) -> list[int]:
    """Row numbers from the whole set, evenly, as many as bounded memory takes."""
    most = max(64, SAMPLE_BYTES * len(triples) // triples.nbytes)
    count = min(len(triples), SAMPLE_ROWS, most)
    return [i * len(triples) // count for i in range(count)]


def _evaluation(
    held_out: Batch | None, test: Labelled | None, facts: Mapping[str, Any], device: torch.device
) -> Callable[[Model], dict[str, float]] | None:
    """What is measured during the run: the label-free criterion and, where truth is at hand, the scores."""
    if held_out is None and test is None:
        return None
    blocks = _blocks(held_out)

    def run(model: Model) -> dict[str, float]:
        readings: dict[str, float] = {}
        # A split that finds one class makes everything easy to explain; such weights are not to be chosen.
        telling = not isinstance(model, Interaction) or model.telling.separation() >= SEPARABLE
        if blocks and telling:
            readings["held_out"] = model.held_out(blocks)
        if test is not None:
            readings |= evaluate(Representation(model, facts, device), test).as_dict()
        return readings

    return run


def _blocks(batch: Batch | None) -> list[Batch]:
    """In pieces that any memory takes; a single row left over is none, since a loss compares rows."""
    if batch is None:
        return []
    pieces = (Batch(*piece) for piece in zip(*(x.split(HELD_OUT_BLOCK) for x in batch), strict=True))
    return [piece for piece in pieces if len(piece.a) > 1]


def _note(readings: Mapping[str, float], speed: float | None) -> str:
    """What stands beside the bar."""
    losses = [
        f"{name} {readings[name]:.2g}"
        for name in ("agent", "scout", "contact", "touch", "stay", "object", "reconstruction")
        if name in readings
    ]
    if "contact_share" in readings:
        chosen = f", chosen from {readings['pool']:.0f} batches" if "pool" in readings else ""
        losses.append(f"contacts {readings['contact_share']:.0%}{chosen}")
    if "l_test" in readings:
        losses.append(f"L_test {readings['l_test']:.2g}")
    if speed is not None:
        losses.append(f"{speed:.3g} steps/s")
    return "  ".join(losses)
