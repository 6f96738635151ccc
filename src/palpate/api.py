"""`fit`: it combines data, model and training loop."""

import difflib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch

from palpate import __version__, counting
from palpate.checkpoint import checksum
from palpate.config import MOST, Encoder, GroupName, Motion, TrainingConfig, own_axes_hint
from palpate.data.labelled import Labelled
from palpate.data.stream import World
from palpate.data.transitions import Batch, Transitions
from palpate.disk import write_whole
from palpate.evaluation import evaluate, watched
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
from palpate.methods.store import FORMAT_VERSION, build, save_model
from palpate.plan import Asked, plan, require_objects
from palpate.progress import Rate, bar, say
from palpate.quality import Quality, assess
from palpate.ranks import ALONE, Ranks
from palpate.representation import Representation
from palpate.runfile import RUN_FILE, run_file
from palpate.runlog import demand_place, run_folder
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
        near = difflib.get_close_matches(
            name, [*inspect.signature(fit).parameters, *TrainingConfig.__dataclass_fields__], 1
        )
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"fit() got an unexpected keyword argument {name!r}{hint}")
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
    place = None if out is None or not ranks.first else Path(out)
    progress = progress and ranks.first
    demand_place(place, resume=resume, overwrite=overwrite)
    device = training_device(asked.training)
    if ranks.device is not None and ranks.device.type != device.type:
        raise ValueError(
            f"the ranks are on {ranks.device.type!r}, but device is {device.type!r}; both must be the same"
        )
    traits = traits_of(asked.name)
    opened = opened_data(data, traits, device)
    require_group(opened, asked.scene, traits)
    origin = origin_of(data) | origin_of(test, "test")
    from_file = isinstance(test, str | os.PathLike)
    test = watched(test)
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
        "format of the model": FORMAT_VERSION,
        "model": asdict(model.config),
        "training": asdict(settled),
        "data": {**log_options(opened), "data": material.name, "checksum of the data": content},
    }
    kinds = {"hardware": ranks.hardware, "source of triples": type(material.feed.source).__name__}
    ranks.require_same({**asdict(model.config), **asdict(settled), **described["data"], **kinds})
    settings = run_file(origin, asked, left_open).encode()
    with run_folder(place, described, resume=resume, overwrite=overwrite) as folder:

        def keep(quality: Quality | None) -> None:
            facts.update(_described(quality))
            if folder is not None:
                save_model(model, folder, facts)

        if folder is not None and not (folder / RUN_FILE).exists():  # also if a full disk prevented it
            write_whole(folder / RUN_FILE, settings)
        if progress:
            say("\n".join(["settings chosen by fit:", *(f"  {choice}" for choice in left_open)]) if left_open else "")
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
                    criterion=_criterion(material.held_out),
                    watch=_Display(advance, watch),
                    ranks=ranks,
                )
            finally:
                material.feed.close()
                if test is not None and from_file:
                    test.close()
        quality = _assessed(model, material)
        keep(quality)
        counts = ranks.first and asked.scene.objects != "auto" and settled.steps >= counting.STEPS
        if quality is not None and counts:
            try:
                quality = replace(quality, counted=_counted_after(opened, model, settled.seed, progress))
            except Interrupted:
                if folder is not None:
                    raise Interrupted(f"stopped while objects were counted; the model is saved in {folder}") from None
                warnings.warn("stopped while objects were counted; the model is complete", stacklevel=2)
            keep(quality)
        if quality is not None and ranks.first:
            _show(quality, progress)
        return Representation(model, facts, device)


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


def _counted_after(opened: Transitions | Labelled | World, model: Model, seed: int, progress: bool) -> int | None:
    """How many objects short runs find, up to one more than the model has; None if they cannot count."""
    config = model.config
    traits = traits_of(config.method)
    if not (traits.has_body and "vectors" in traits.several) or config.picture or config.objects == MOST:
        return None
    try:
        rows, enough = some_rows(opened, counting.ROWS, seed), config.objects + 1
        found = counting.count(
            rows, config.objective, substeps=config.substeps, enough=enough, seed=seed, progress=progress
        )
    except Interrupted:
        raise
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
            stacklevel=3,
        )


def _evaluation(
    held_out: Batch | None, test: Labelled | None, facts: Mapping[str, Any], device: torch.device
) -> Callable[[Model], dict[str, float]] | None:
    """Evaluation during the run: the label-free criterion and, with test triples, the scores."""
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


def _assessed(model: Model, material: Material) -> Quality | None:
    """The label-free quality."""
    with torch.no_grad():
        model.recall(_blocks(material.held_out))
    unseen = material.held_out
    if unseen is None:
        unseen = Batch(*(x[:ASSESSED_ROWS] for x in material.sample))
    return assess(model, unseen, material.episode)


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
