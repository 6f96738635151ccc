"""Collect triples while learning from them."""

import inspect
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from palpate import __version__, api
from palpate.choices import Facts
from palpate.collecting.blocks import COMMAND, Span, make
from palpate.collecting.collect import fill
from palpate.collecting.origins import Origin, Source, stepped
from palpate.collecting.parts import NOTE, Parts, parts_of
from palpate.collecting.stepped import Chooser
from palpate.config import Device, TrainingConfig
from palpate.data.files import dataset, open_hdf5, read_from, take
from palpate.data.transitions import Transitions
from palpate.disk import LOCK, remove
from palpate.envs.registration import group_of
from palpate.evaluation import evaluate, opened_test
from palpate.exploring.doubts import LeastCertain
from palpate.exploring.rounds import CHOSEN, RANDOM, Round, Table, moves_of, reading, stops, trusted
from palpate.exploring.steering import Steering, fit_steering
from palpate.folders import Kind, claimed, require_free
from palpate.methods.base import Model
from palpate.methods.store import build
from palpate.plan import Asked, plan
from palpate.progress import Rate, bar, say
from palpate.representation import Representation, load
from palpate.runlog import COMPLETE, RUN, RUNS
from palpate.spelling import did_you_mean
from palpate.training.loop import training_device
from palpate.traits import resolve, traits_of

ROUNDS, TRIPLES, MODEL, MODELS = "rounds.jsonl", "triples.h5", "model", "rounds"
PARTS = parts_of(TRIPLES).name
EXPLORATIONS = Kind(
    noun="exploration",
    one="an exploration",
    note="explore.json",
    format=1,
    settings=("rounds", "chosen_moves", "settings_of_fit"),
    files=(
        *(f"{MODEL}/{name}" for name in (*RUNS.files, RUN, LOCK)), ROUNDS, TRIPLES, f"{PARTS}/*",
        *(f"{MODELS}/*/{name}" for name in (*RUNS.files, RUN, LOCK)),
    ),
    folders=(MODEL, MODELS, PARTS),
)  # fmt: skip
STEERED = 2000  # triples from which steering is fitted
POSE_ROWS = 64  # observations whose poses are computed at a time
LEAST_EXPLAINED = 0.5  # share of the displacements' variance that commands must explain
EXPLORES = ("out", "seed", "device", "resume", "overwrite", "progress", "chosen_moves")  # arguments of `explore`
OURS = (*EXPLORES, "data", "watch", "ranks")  # settings of `fit` that are set here


def explore(
    env: Source,
    num: int,
    *,
    out: str | os.PathLike[str],
    rounds: int = 3,
    first: int | None = None,
    chosen_moves: float = 0.5,
    seed: int = 0,
    device: Device | None = None,
    fit: Mapping[str, Any] | None = None,
    workers: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> Representation:
    """Collect `num` triples from an environment and learn from them meanwhile; returns the model of all triples.

    `env` and `options` are those of `palpate.collect`; our own ids are stepped like any other. The first round has
    `first` random moves, or those of `approach`. Then a model is trained on all triples so far. In each of `rounds`
    further rounds that model chooses a share of the moves, `chosen_moves`: of 32 drawn moves, the one whose contact is
    least certain. The map from the environment's actions to displacements is fitted to the triples. Moves are not
    chosen while the model cannot predict contacts. By default each round doubles the number of triples.

    `fit` holds settings of `palpate.fit` for all models, such as {"steps": 400}; every model starts from new weights.
    `out` is a folder. It holds `triples.h5` as `palpate.collect` writes it, with the true states if they are known,
    `rounds.jsonl`, a line for each round, and `model`, the run of the last model. With `test` in `fit` each round is
    also measured. `resume` continues an interrupted exploration with the same settings; the result is the same as
    without the interruption, bit for bit on the CPU. `overwrite` replaces the exploration in the folder when the new
    one is complete.
    """
    for name, value, least in (("num", num, 1), ("rounds", rounds, 1), ("workers", workers, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}; allowed are whole numbers from {least}")
    if not 0 <= chosen_moves <= 0.9:
        raise ValueError(f"chosen_moves is {chosen_moves!r}; allowed is 0 to 0.9")
    settings = _fit_settings(fit or {}) | {"seed": seed, "device": device}
    training_device(TrainingConfig(device=device))  # refuses a GPU that is not there
    if isinstance(env, str) and env.startswith("palpate/") and "contact_share" in options:
        raise ValueError("contact_share is for collect; in explore the moves determine how many contacts there are")
    require_free(EXPLORATIONS, Path(out), resume=resume, overwrite=overwrite)
    import palpate.envs  # noqa: F401 - registers our ids

    ends = stops(num, rounds, first)
    exploration = _Exploration(Path(out), ends, chosen_moves, settings, env, options, seed, workers, progress)
    if not resume:
        exploration.rehearse()
    with claimed(EXPLORATIONS, Path(out), exploration.described, resume=resume, overwrite=overwrite) as folder:
        return exploration.run(folder)


@final
class _Exploration:
    """An exploration in its folder. All that it did is in files, so that it continues after a kill at any point."""

    def __init__(
        self,
        out: Path,
        ends: list[int],
        share: float,
        settings: dict[str, Any],
        env: Source,
        options: dict[str, Any],
        seed: int,
        workers: int,
        progress: bool,
    ) -> None:
        self._out, self._ends, self._share, self._settings = out, ends, share, settings
        self._env, self._options, self._seed, self._workers = env, options, seed, workers
        self._progress = progress
        self._folder = out  # until it is claimed
        with closing(self._origin(None)) as origin:  # bad options raise here
            self._attributes = origin.attributes | {
                "rounds": " ".join(map(str, ends)),
                "chosen_moves": share,
                "settings_of_fit": json.dumps(_plain(settings), sort_keys=True),
            }

    @property
    def described(self) -> dict[str, Any]:
        return {"palpate_version": __version__, **self._attributes}

    @property
    def _file(self) -> Path:
        return self._folder / TRIPLES

    def rehearse(self) -> None:
        """Refuse settings that cannot work, before anything is collected: only the first triple is made for it."""
        with closing(self._origin(None)) as origin:
            first = make(origin.world, self._seed, Span(0, 1)).columns
            space = origin.world.env.action_space
        if self._share and COMMAND not in first:
            raise ValueError(
                f"the action space is {space}; explore can choose moves only if an action is a fixed number of "
                "numbers (Box, Discrete, MultiDiscrete, MultiBinary, or a Tuple or Dict of them); use chosen_moves=0"
            )
        shape, n = first["observation"].shape[1:], first["action"].shape[1]
        asked = Asked.of(**{name: x for name, x in self._settings.items() if name != "test"})
        turning = {"group": asked.scene.group} | {
            name: self._options.get(name) for name in ("agent_heading", "agent_rotation")
        }
        for name, value in turning.items():
            if value not in ("translations", None):
                raise ValueError(f"{name} is {value!r}; explore moves agents along fixed axes only; leave it out")
        env = self._env if isinstance(self._env, str) else ""
        if group_of(env) not in ("translations", None):
            raise ValueError(
                f"env is {env!r}, whose agent turns; explore moves agents along fixed axes only: collect, then train "
                f"with group={group_of(env)!r}"
            )
        device = training_device(asked.training)
        with opened_test(self._settings.get("test")) as test:
            if test is not None and (test.transitions.observation_shape, test.transitions.n) != (shape, n):
                raise ValueError(
                    f"test is {test.transitions}, but the environment has observations {list(shape)} and actions of "
                    f"dimension {n}; collect test triples from the same environment"
                )
        try:
            build(plan(asked, Facts(shape, n, self._ends[0], False, device.type)).model)
        except ValueError as error:
            raise ValueError(f"fit cannot train a model after the first round: {error}") from error

    def run(self, folder: Path) -> Representation:
        """Do what is left to do in a folder, which may become `out` later."""
        self._folder = folder
        table = Table(self._folder / ROUNDS)
        table.require_complete(self._ends, _rows(self._file))
        if self._progress:
            say("\n".join([Round.heading(), *map(str, table.rounds)]))
        for number, end in enumerate(self._ends):
            self._collect(number, end, moves_of(table.rounds[:number]))
            if number < len(table) and number < len(self._ends) - 1:
                continue
            model = self._learn(number)
            if number == len(table):
                table.add(self._judged(number, model, moves_of(table.rounds)))
                if self._progress:
                    say(str(table.rounds[-1]))
        remove(self._folder / MODELS)
        if self._share and not any(made.moves == CHOSEN for made in table.rounds):
            last = table.rounds[-1].moves
            warnings.warn(
                f"no move was chosen; the last moves were {last}. Use more triples, or give an approach", stacklevel=3
            )
        return model

    def _origin(self, chooser: Chooser | None) -> Origin:
        return stepped(self._env, self._seed, self._workers, self._options, chooser=chooser)

    def _collect(self, number: int, end: int, moves: str) -> None:
        """Collect the triples of a round, and join all so far into the file."""
        held = parts_of(self._file)
        if _rows(self._file) >= self._ends[-1]:  # perhaps stopped while the parts were removed
            remove(held)
            return
        started = (held / NOTE).exists()
        parts = Parts(self._file, self._attributes, resume=started, overwrite=not started)
        if parts.missing(end):
            chooser = None
            if moves == CHOSEN:
                model = load(self._model_folder(number - 1))
                chooser = LeastCertain(model, self._steering(model, self._ends[number - 1]), self._share)
            rate = Rate()
            with (
                bar(f"collecting, round {number}", end, self._progress) as advance,
                closing(self._origin(chooser)) as o,
            ):
                fill(o, end, parts, lambda done, total: advance(done, f"{rate(done):,.0f}/s"))
        if _rows(self._file) < end:
            parts.join(end)
        if end == self._ends[-1]:
            parts.remove()

    def _learn(self, number: int) -> Representation:
        """The model of all triples so far: trained from new weights, or loaded if the run is complete."""
        folder, last = self._model_folder(number), number == len(self._ends) - 1
        if (folder / COMPLETE).exists():
            return load(folder, training_device(TrainingConfig(device=self._settings["device"])))
        folder.parent.mkdir(exist_ok=True)
        with warnings.catch_warnings():
            if not last:  # the table shows the verdict of a round
                warnings.simplefilter("ignore", UserWarning)
            resume = (folder / RUN).exists()
            with Transitions.open(self._file) as triples:
                triples.moves_to(self._out / TRIPLES)
                model = api.fit(triples, out=folder, resume=resume, progress=self._progress, **self._settings)
        if number:
            remove(self._model_folder(number - 1))
        return model

    def _judged(self, number: int, model: Representation, moves: str) -> Round:
        quality = model.facts.get("quality")
        steering, then = None, RANDOM
        if number < len(self._ends) - 1 and self._share:
            if trusted(quality):
                steering = self._steering(load(self._model_folder(number)), self._ends[number]).explained
                known = steering >= LEAST_EXPLAINED
                then = CHOSEN if known else f"{RANDOM}: commands explain {steering:.0%} of the agent's displacements"
            else:
                then = f"{RANDOM}: contacts are not found yet"
        return Round(
            round=number,
            triples=self._ends[number],
            moves=moves,
            contact_share=reading(quality, "contact_share"),
            error=reading(quality, "error"),
            verdict=reading(quality, "verdict"),
            steering=steering,
            l_test=self._measured(model),
            then=then,
        )

    def _measured(self, model: Representation) -> float | None:
        with opened_test(self._settings.get("test")) as test:
            return None if test is None else float(evaluate(model, test).l_test)

    def _steering(self, model: Representation, rows: int) -> Steering:
        """The map from commands to displacements, by the first `rows` triples. The model is on the CPU."""
        index = np.linspace(0, rows - 1, min(rows, STEERED)).astype(np.int64)
        with Transitions.open(self._file) as triples:
            batch = triples.rows(index)
        agent = torch.cat([_pose(model.model, o) for o in batch.o.split(POSE_ROWS)])
        command = _commands(self._file, index)
        return fit_steering(model.model.group, agent.double(), command.double(), batch.a.double())

    def _model_folder(self, number: int) -> Path:
        last = number == len(self._ends) - 1
        return self._folder / MODEL if last else self._folder / MODELS / str(number)


def _fit_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `fit`, checked by name."""
    allowed = {*inspect.signature(api.fit).parameters, *TrainingConfig.__dataclass_fields__}
    allowed -= {*OURS, "changes"}
    for name in given:
        if name in OURS:
            advice = "give it to explore itself" if name in EXPLORES else "leave it out"
            raise ValueError(f"fit holds {name!r}, which explore sets for all models; {advice}")
        if name not in allowed:
            meant = did_you_mean(name, allowed, "see help(palpate.fit)")
            raise ValueError(f"fit holds {name!r}, which is not a setting of palpate.fit{meant}")
    if given.get("objects") == "auto":
        raise ValueError(
            "fit holds objects 'auto', but explore does not count objects; give their number, or leave it out for one"
        )
    method, objective = given.get("method", "interaction"), given.get("objective", "contact")
    if not traits_of(resolve(method, objective, bool(given.get("egocentric")))).predicts:
        raise ValueError(
            f"fit holds method {method!r} and objective {objective!r}, which predict no contacts, so that no move can "
            "be chosen; leave both out"
        )
    return dict(given)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `fit` for a file. Test triples only measure."""
    flat = {name: asdict(x) if is_dataclass(x) and not isinstance(x, type) else x for name, x in settings.items()}
    return {name: x for name, x in flat.items() if x is not None and name != "test"}


def _rows(path: Path) -> int:
    """Triples in a file; 0 if it does not exist."""
    if not path.exists():
        return 0
    with open_hdf5(path) as file, read_from(path):
        return len(dataset(file, "action"))


@torch.no_grad()
def _pose(model: Model, o: torch.Tensor) -> torch.Tensor:
    pose = model.pose(o)
    assert pose is not None  # `explore` refuses methods that predict no contacts
    return pose


def _commands(path: Path, rows: np.ndarray) -> torch.Tensor:
    with open_hdf5(path) as file, read_from(path):
        return torch.from_numpy(take(dataset(file, COMMAND), rows))
