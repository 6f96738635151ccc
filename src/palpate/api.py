"""`fit`: it combines data, model and training loop."""

import inspect
import os
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from palpate import __version__, counting
from palpate.checkpoint import checksum
from palpate.choices import Choice
from palpate.config import MOST, Encoder, GroupName, Motion, SettledTraining, TrainingConfig, own_axes_hint
from palpate.data.labelled import Labelled
from palpate.data.stream import World
from palpate.data.transitions import Batch, Transitions
from palpate.disk import write_whole
from palpate.evaluation import evaluate, opened_test
from palpate.groups import make_group
from palpate.material import (
    Data,
    Material,
    facts_of,
    log_options,
    make_material,
    opened_data,
    origin_of,
    require_group,
    some_rows,
    triples_of,
    world_of,
)
from palpate.methods.base import Model
from palpate.methods.store import build, save_model
from palpate.plan import Asked, plan, require_objects
from palpate.progress import Rate, bar, say
from palpate.quality import Quality, assess
from palpate.ranks import ALONE, Ranks
from palpate.representation import Representation
from palpate.runfile import RUN_FILE, run_file
from palpate.runlog import MODEL_FORMAT, demand_place, run_folder
from palpate.spelling import did_you_mean
from palpate.training.loop import Interrupted, train, training_device
from palpate.training.state import steps_done
from palpate.training.step import precision_on
from palpate.traits import traits_of

COINCIDENCE = 0.02  # share of test triples that may be training triples by chance
BLOCK_ROWS, BLOCK_BYTES = 256, 256 * 1024**2  # of held-out triples per block, as float32
FEWEST_JUDGES = 128  # held-out triples; the losses of fewer are mostly chance
ASSESSED_ROWS = 512  # fresh triples that the quality of a streamed run is estimated from


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
    objects: int | Literal["auto"] = 1,
    egocentric: bool | None = None,
    group: GroupName = "translations",
    motion: Motion = "arc",
    refine: bool | None = None,
    rest_floor: float | None = None,
    training: TrainingConfig | None = None,
    test: Labelled | str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    watch: Callable[[int, dict[str, float]], None] | None = None,
    ranks: Ranks = ALONE,
    **changes: Any,
) -> Representation:
    """Learn a representation from triples.

    `data` are `Transitions`, a file of them, or a world that streams fresh ones: an id such as "palpate/Sprites-v0", or
    any object with the protocol `palpate.data.stream.World`. `fit` chooses settings that are left out, shows them, and
    keeps them with the reason in `facts["choices"]`. `body`, `radius`, `objects`, `egocentric`, `group`, `motion`,
    `refine` and `rest_floor` are those of `ObjectiveConfig`; further keywords are those of `TrainingConfig` (steps,
    seed, device...).

    With `out` the run is a folder: it can be interrupted and resumed, and holds the model at the end. `test`, labelled
    triples or a file of them, is only for measuring; the curve uses its first thousand triples. `watch` is called with
    every reading. A tenth of a data set is held out, in whole episodes if they are known. `fit` returns the weights
    that explain the held-out triples best; `facts["quality"]` holds their quality.

    Several processes train one model if each calls `fit` with its `ranks`, as `palpate.ranks.joined` gives them; only
    the first one writes, reports and counts objects after the run.
    """
    for name in changes.keys() - TrainingConfig.__dataclass_fields__.keys():
        allowed = [*inspect.signature(fit).parameters, *TrainingConfig.__dataclass_fields__]
        raise TypeError(f"fit() got an unexpected keyword argument {name!r}{did_you_mean(name, allowed)}")
    asked = Asked.of(
        method=method,
        objective=objective,
        encoder=encoder,
        shrink=shrink,
        body=body,
        radius=radius,
        objects=objects,
        egocentric=egocentric,
        group=group,
        motion=motion,
        refine=refine,
        rest_floor=rest_floor,
        training=training,
        **changes,
    )
    if not ranks.first:  # which alone writes, measures and reports
        run = _prepared(data, asked, ranks)
        run.train(ranks)
        return run.finished(run.assess())
    place = None if out is None else Path(out)
    demand_place(place, resume=resume, overwrite=overwrite)
    with opened_test(test) as watched:
        run = _prepared(data, asked, ranks, watched, progress)
        settings = run_file(origin_of(data) | origin_of(test, "test"), asked, run.left_open).encode()
        steps = run.training.steps
        with run_folder(place, run.described, resume=resume, overwrite=overwrite) as folder:
            if folder is not None and not (folder / RUN_FILE).exists():  # also if a full disk prevented it
                write_whole(folder / RUN_FILE, settings)
            if progress:
                heading = ["settings chosen by fit:"] if run.left_open else []
                say("\n".join([*heading, *(f"  {choice}" for choice in run.left_open)]))
                if resume and folder is not None:
                    say(f"continuing after step {steps_done(folder)} of {steps}")
            with bar(run.title, steps, show=progress) as advance:
                run.train(ranks, folder=folder, evaluate=_evaluation(run, watched), watch=_Display(advance, watch))
            quality = run.assess()
            found = run.finished(quality, folder)
            if quality is not None and asked.scene.objects != "auto" and steps >= counting.STEPS:
                quality = replace(quality, counted=_counted_after(run, folder, progress))
                found = run.finished(quality, folder)
            if quality is not None:
                _show(quality, progress)
            return found


class _Run(NamedTuple):
    """What every rank prepares for a run."""

    data: Transitions | Labelled | World
    material: Material
    model: Model
    training: SettledTraining
    left_open: list[Choice]
    described: dict[str, Any]  # for the run's folder
    facts: dict[str, Any]  # for the model's file
    device: torch.device

    @property
    def title(self) -> str:
        return f"{self.model.config.method}, {self.model.config.encoder} on {self.device.type}"

    def train(self, ranks: Ranks, **recorded: Any) -> None:
        with closing(self.material.feed) as feed:
            train(
                self.model, feed, self.training, criterion=_criterion(self.material.held_out), ranks=ranks, **recorded
            )

    def assess(self) -> Quality | None:
        """The label-free quality of the trained model."""
        held_out, sample = self.material.held_out, self.material.sample
        with torch.no_grad():
            self.model.recall(_blocks(held_out))
        unseen = Batch(*(x[:ASSESSED_ROWS] for x in sample)) if held_out is None else held_out
        return assess(self.model, unseen, self.material.episode)

    def finished(self, quality: Quality | None, folder: Path | None = None) -> Representation:
        """The trained model, which is also saved if there is a folder."""
        facts = self.facts | _described(quality)
        if folder is not None:
            save_model(self.model, folder, facts)
        return Representation(self.model, facts, self.device)


def _prepared(data: Data, asked: Asked, ranks: Ranks, test: Labelled | None = None, progress: bool = False) -> _Run:
    """Open the data, choose the settings and build the model; refuse what does not fit together."""
    device = training_device(asked.training)
    if ranks.device is not None and ranks.device.type != device.type:
        raise ValueError(
            f"the ranks are on {ranks.device.type!r}, but device is {device.type!r}; both must be the same"
        )
    traits = traits_of(asked.name)
    opened = opened_data(data, traits, device)
    require_group(opened, asked.scene, traits)
    if test is not None and isinstance(opened, Transitions | Labelled):
        _warn_of_seen(test.transitions, triples_of(opened))
    known = facts_of(opened, device)
    require_objects(asked.name, asked.scene.objects, known)
    if asked.scene.objects == "auto":
        known = known._replace(objects=ranks.from_first(lambda: _objects_in(opened, asked, known.substeps, progress)))
    torch.manual_seed(asked.training.seed)
    model_config, settled, choices, left_open = plan(asked, known)
    if test is not None and (count := test.truth.objects.shape[1]) != model_config.objects:
        raise ValueError(
            f"the test triples have {count} objects, and objects is {model_config.objects}; give objects={count}, or "
            "other test triples"
        )
    if test is not None and (count := test.truth.agent.shape[1]) != model_config.n:
        raise ValueError(
            f"the true positions of the test triples have {count} numbers, and those of the model {model_config.n}; "
            f"{own_axes_hint(count)}"
        )
    settled = replace(settled, device=device.type, precision=precision_on(device, settled))  # type: ignore[arg-type]
    material = make_material(opened, traits, settled, device, make_group(model_config))
    uint8 = material.sample.o.dtype == torch.uint8
    model = build(replace(model_config, observation_dtype="uint8" if uint8 else "float32")).to(device)
    model.measure(Batch(*(x.to(device) for x in material.sample)), material.actions)
    model.inputs.augment = settled.augment or "none"
    facts: dict[str, Any] = {
        "palpate_version": __version__,
        "training": asdict(settled),
        "data": material.name,
        "world": world_of(opened),
        "choices": [choice._asdict() for choice in choices],
    }
    content = checksum({**material.sample._asdict(), "actions": material.actions})[:16]
    described: dict[str, Any] = {
        "format of the model": MODEL_FORMAT,
        "model": asdict(model.config),
        "training": asdict(settled),
        "data": {**log_options(opened), "data": material.name, "checksum of the data": content},
    }
    kinds = {"hardware": ranks.hardware, "source of triples": type(material.feed.source).__name__}
    ranks.require_same({**asdict(model.config), **asdict(settled), **described["data"], **kinds})
    return _Run(opened, material, model, settled, left_open, described, facts, device)


def _objects_in(opened: Transitions | Labelled | World, asked: Asked, substeps: int, progress: bool) -> tuple[int, str]:
    """How many objects short runs find, at least 1, and why."""
    seed = asked.training.seed
    rows = some_rows(opened, counting.ROWS, seed)
    found = counting.count(rows, asked.scene, substeps=substeps, seed=seed, progress=progress)
    if found is None:
        raise ValueError(
            "objects is 'auto', but there are too few triples to count objects; wanted at least "
            f"{counting.FEWEST_ROWS}: collect more, or give the number of objects"
        )
    return max(1, len(found.found)), found.reason


def _counted_after(run: _Run, saved: Path | None, progress: bool) -> int | None:
    """How many objects short runs find, up to one more than the model has; None if they cannot count."""
    config, seed = run.model.config, run.training.seed
    if config.objects == MOST or not traits_of(config.method).counts(picture=config.picture):
        return None
    try:
        rows, enough = some_rows(run.data, counting.ROWS, seed), config.objects + 1
        found = counting.count(
            rows, config.objective, substeps=config.substeps, enough=enough, seed=seed, progress=progress
        )
    except Interrupted:
        if saved is not None:
            raise Interrupted(f"stopped while objects were counted; the model is saved in {saved}") from None
        warnings.warn("stopped while objects were counted; the model is complete", stacklevel=3)
        return None
    except Exception as error:  # a trained model is worth more than the count
        warnings.warn(f"the objects were not counted after training: {error}", stacklevel=3)
        return None
    return None if found is None or found.unknown else len(found.found)


def _criterion(held_out: Batch | None) -> str | None:
    """The reading that chooses the weights, if enough triples are held out; the last weights otherwise."""
    return None if held_out is None or len(held_out.a) < FEWEST_JUDGES else "held_out"


def _warn_of_seen(test: Transitions, triples: Transitions) -> None:
    share = test.shared_with(triples)
    if share > COINCIDENCE:
        warnings.warn(
            f"{share:.0%} of the test triples are also training triples, so scores will be too good; collect others "
            "with another seed",
            stacklevel=4,
        )


def _evaluation(run: _Run, test: Labelled | None) -> Callable[[Model], dict[str, float]] | None:
    """Evaluation during the run: the label-free criterion and, with test triples, the scores."""
    if run.material.held_out is None and test is None:
        return None
    blocks = _blocks(run.material.held_out)

    def evaluated(model: Model) -> dict[str, float]:
        explained = model.held_out(blocks) if blocks else None
        readings = {} if explained is None else {"held_out": explained}
        if test is not None:
            readings |= evaluate(Representation(model, run.facts, run.device), test).as_dict()
        return readings

    return evaluated


def _show(quality: Quality, progress: bool) -> None:
    """Issue the findings as warnings."""
    for finding in quality.findings:
        warnings.warn(str(finding), stacklevel=3)
    if progress:
        say(str(quality))


def _described(quality: Quality | None) -> dict[str, Any]:
    """The quality and its findings for a model's file."""
    if quality is None:
        return {"findings": []}
    return {"quality": quality.as_dict(), "findings": [finding._asdict() for finding in quality.findings]}


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
        self._advance, self._watch, self._rate = advance, watch, Rate()

    def __call__(self, step: int, readings: dict[str, float]) -> None:
        rate = self._rate(step)
        shown = [f"{name} {readings[name]:.2g}" for name in self.SHOWN if name in readings]
        if "contact_share" in readings:
            selected = f", selected from {readings['pool']:.0f} batches" if "pool" in readings else ""
            shown.append(f"contacts {readings['contact_share']:.0%}{selected}")
        if "l_test" in readings:
            shown.append(f"L_test {readings['l_test']:.2g}")
        if rate:
            shown.append(f"{rate:.3g} steps/s")
        self._advance(step, "  ".join(shown))
        if self._watch:
            self._watch(step, readings)
