"""THE loop, and what a step needs.

A step is pure device work: on a GPU it is captured in a CUDA graph and replayed; the host only sets the learning rate,
reads averages every few steps, and saves. True states never come here: evaluation is a callback.
"""

import gc
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from operator import index
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from palpate.checkpoint import read_state, used, write_state
from palpate.config import TrainingConfig
from palpate.data.sources import Source
from palpate.interrupts import interrupt_between_steps
from palpate.methods.base import Loss, Model
from palpate.optimizers import Muon, make_optimizers
from palpate.runlog import RunLog

ADAPT_EVERY = 50  # steps


class Interrupted(RuntimeError):  # noqa: N818 - the user's wish, not an error
    """Ctrl-C: the run stopped between two steps and can be continued from its folder."""


class NonFiniteLoss(RuntimeError):  # noqa: N818 - reads as what it is
    """A loss term or the gradient was not a number; no update was made from it."""


def train(
    model: Model,
    source: Source[Any],
    config: TrainingConfig,
    *,
    folder: Path | None = None,
    evaluate: Callable[[Model], dict[str, float]] | None = None,
    criterion: str | None = None,
    watch: Callable[[int, dict[str, float]], None] | None = None,
) -> None:
    """Minimise `model.loss` over batches of `source`; continues from `folder`'s checkpoint if it has one.

    `criterion` names a reading of `evaluate` to be small: the weights of the evaluation where it was smallest are the
    ones handed out. It must not need labels.
    """
    run = Run(model, source, config)
    run.restore(folder)
    log = RunLog(folder, run.step, tensorboard=config.tensorboard)
    advance = run.captured() if run.device.type == "cuda" and config.graph else run.advance
    with closing(log), interrupt_between_steps() as interrupted:
        while run.step < config.steps and not interrupted():
            run.set_schedule()
            advance()
            run.step += 1
            last = run.step == config.steps
            if last:
                run.settle()
            evaluating = evaluate is not None and (last or run.step % config.evaluate_every == 0)
            if last or evaluating or run.step % config.log_every == 0:
                readings = run.read()  # the only wait for the device
                if evaluate is not None and evaluating:
                    readings |= run.evaluated(evaluate, criterion)
                log.write(run.step, readings)
                if watch:
                    watch(run.step, readings)
            if folder and (last or run.step % config.checkpoint_every == 0):
                run.save(folder)
        if run.step < config.steps:
            if folder:
                run.save(folder)
            raise Interrupted(f"stopped after step {run.step} of {config.steps}")
    run.hand_over()


def steps_done(folder: Path) -> int:
    """How far the run in `folder` has come."""
    path = _checkpoint(folder)
    if not path.exists():
        return 0
    with used(path):
        return index(read_state(path)[1]["step"])


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoint" / "state.safetensors"


def training_device(config: TrainingConfig) -> torch.device:
    """Where this run takes place."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but torch sees no GPU here; take device='cpu' or 'auto'")
    use_cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    return torch.device("cuda" if use_cuda else "cpu")


class Run:
    """What a step reads and writes, on the device."""

    def __init__(self, model: Model, source: Source, config: TrainingConfig) -> None:
        self.device = training_device(config)
        precision = config.precision
        if precision == "auto":
            precision = "bf16-mixed" if self.device.type == "cuda" else "32-true"
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces precision and hardware at length
        self.fabric = Fabric(accelerator=self.device.type, devices=1, precision=precision)
        self.config, self.source, self.step = config, source, 0
        self.plain = model.to(self.device)
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True  # shapes hardly ever change during a run, so kernels are chosen once
        optimizers = make_optimizers(
            model.parameter_groups(),
            weight_decay=config.weight_decay,
            orthogonalise=config.optimizer != "adamw",
            device=self.device,
        )
        self.model, *self.optimizers = self.fabric.setup(model, *optimizers)
        self.model.mark_forward_method("loss")
        self.parameters = list(model.parameters())
        self.best: dict[str, Tensor] = {}
        self.best_value = math.inf
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.progress = torch.zeros((), device=self.device)
        source.ask(self.contacts, self.doubts)
        self.notes: Notes | None = None
        self.kept_notes: dict[str, Tensor] = {}
        if config.compile:
            model.compile_step()
        self.model.train()

    def advance(self, batch: Any = None) -> None:
        """One step of optimisation; nothing here waits for the device."""
        batch = self.source.draw(self.generator) if batch is None else batch
        with self.fabric.autocast():
            loss: Loss = self.model.loss(batch, self.generator, self.progress)
        if loss.contacts is not None:
            self.source.learn(loss.contacts)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.fabric.backward(torch.stack(list(loss.terms.values())).sum())
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        if self.notes is None:
            self.notes = Notes([*loss.terms, "gradient"], list(loss.readings), self.device)
            self.notes.sums += self.kept_notes.get("sums", 0.0)
            self.notes.count += self.kept_notes.get("count", 0.0)
        # Optimisers leave weights and moments alone where this flag is set, without asking the host.
        stop = self.notes.add([*loss.terms.values(), norm], list(loss.readings.values()))
        for optimizer in self.optimizers:
            optimizer.optimizer.found_inf = stop
            optimizer.step()

    def contacts(self, batch: Any) -> Tensor:
        """Which triples the model, as it is, takes for contacts."""
        with self._as_it_is(), self.fabric.autocast():
            return self.plain.contacts(batch)

    def doubts(self, o: Tensor, moves: Tensor) -> Tensor:
        """How doubtful the model, as it is, takes the outcome of each of some moves to be."""
        with self._as_it_is(), self.fabric.autocast():
            return self.plain.doubts(o, moves)

    def settle(self) -> None:
        """The model's last fit."""
        assert self.notes is not None
        self.notes.check()  # never to weights that are not finite
        with self._as_it_is():
            self.plain.settle(lambda: self.source.last(self.generator), self.config.steps)

    @contextmanager
    def _as_it_is(self) -> Iterator[None]:
        """The model as it would be handed out now: it is asked, and learns nothing from that."""
        before = self.plain.training
        self.plain.eval()
        with torch.no_grad():
            yield
        self.plain.train(before)

    def captured(self) -> Callable[[], None]:
        """`advance` as a CUDA graph: the first steps run eagerly to settle memory and choose kernels."""
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        held: Any = None  # where batches that come from the host are put for the graph to find
        eager_steps, captured, way = 3, False, self.source.way

        def step() -> None:
            nonlocal graph, held, eager_steps, captured, way
            if way != self.source.way:
                torch.cuda.synchronize()  # the graph that is dropped may be running
                graph, eager_steps, captured, way = torch.cuda.CUDAGraph(), 3, False, self.source.way
            if not self.source.capturable:
                fresh = self.source.draw(self.generator)
                held = fresh if held is None else type(fresh)(*map(Tensor.copy_, held, fresh))
            if eager_steps:
                eager_steps -= 1
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    self.advance(held)
                torch.cuda.current_stream().wait_stream(side)
                return
            if not captured:
                gc.collect()  # what a run before this one has left must not be freed while a graph is captured
                graph.register_generator_state(self.generator)
                with torch.cuda.graph(graph):
                    self.advance(held)
                captured = True
            graph.replay()

        return step

    def set_schedule(self) -> None:
        """What the host sets before a step: how batches are drawn, now and then; learning rate and progress."""
        share = self.step / self.config.steps
        if self.step % ADAPT_EVERY == 0:  # and at no other time: what is logged or measured must not change a run
            self.source.adapt(share)
        self.progress.fill_(share)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"].fill_(group.get("lr_scale", 1.0) * self.config.learning_rate_at(share))

    def read(self) -> dict[str, float]:
        """Averages since the last call; raises if a step was not finite."""
        assert self.notes is not None
        rate = self.config.learning_rate_at(self.step / self.config.steps)
        return {**self.notes.read(), **self.plain.vitals(), **self.source.vitals(), "learning_rate": rate}

    def evaluated(self, evaluate: Callable[[Model], dict[str, float]], criterion: str | None) -> dict[str, float]:
        """Evaluate as it would be handed out now, and remember the weights if they are the best so far."""
        with self._as_it_is():
            scores = evaluate(self.plain)
        if criterion is not None and scores.get(criterion, math.inf) < self.best_value:
            self.best_value = scores[criterion]
            self.best = {name: value.detach().clone() for name, value in self.plain.lasting_state().items()}
        return scores

    def hand_over(self) -> None:
        """Leave the model as users get it: with the best weights, without what only training needs."""
        self.plain.take_down_scaffold()
        if self.best:
            self.plain.load_state_dict(self.best)
        self.plain.eval()

    def save(self, folder: Path) -> None:
        assert self.notes is not None
        self.notes.check()  # never over a good checkpoint
        moments = {
            f"{i}.{name}": value
            for i, parameter in enumerate(self.parameters)
            for name, value in self.moments(parameter).items()
        }
        groups = {
            "model": self.plain.state_dict(),
            "optimizer": moments,
            "best": self.best,
            "notes": {"sums": self.notes.sums, "count": self.notes.count},
            "random": {"generator": self.generator.get_state()},
            "source": self.source.memory(),
        }
        facts = {"step": self.step, "best_value": self.best_value if self.best else None}
        write_state(_checkpoint(folder), groups, facts)

    def moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """What its optimiser remembers of a parameter; of one that is not learned, nothing."""
        mover = self._mover(parameter)
        return {} if mover is None else mover.state[parameter]

    def _mover(self, parameter: nn.Parameter) -> torch.optim.Optimizer | None:
        for wrapped in self.optimizers:
            if any(parameter is p for group in wrapped.param_groups for p in group["params"]):
                return wrapped.optimizer
        return None

    def restore(self, folder: Path | None) -> None:
        if folder is None or not _checkpoint(folder).exists():
            return
        groups, facts = read_state(_checkpoint(folder))
        with used(_checkpoint(folder)):
            self._take(groups, facts, folder)

    def _take(self, groups: dict[str, dict[str, Tensor]], facts: dict[str, Any], folder: Path) -> None:
        step, best = index(facts["step"]), facts["best_value"]
        if not 0 <= step <= self.config.steps or isinstance(best, float) != bool(groups["best"]):
            raise TypeError(f"step is {step} of {self.config.steps} and best_value {best!r}")
        try:
            self.plain.load_state_dict(groups["model"])
        except RuntimeError as error:
            raise ValueError(
                f"the run in {folder} was begun by another version of palpate, whose model differs; start another"
            ) from error
        for key, value in groups["optimizer"].items():
            number, name = key.split(".")
            parameter = self.parameters[int(number)]
            if (name == "momentum") != isinstance(self._mover(parameter), Muon):
                raise ValueError(f"the run in {folder} was begun with another optimizer; start another")
            # Moments take the parameter's memory layout, the step counter its device.
            like = torch.empty_like(parameter if value.dim() else torch.empty((), device=self.device))
            self.moments(parameter)[name] = like.copy_(value)
        if groups["best"]:
            self.best = {name: value.to(self.device) for name, value in groups["best"].items()}
            self.best_value = best
        self.kept_notes = {name: value.to(self.device) for name, value in groups["notes"].items()}
        self.generator.set_state(groups["random"]["generator"])
        for name, value in self.source.memory().items():
            value.copy_(groups["source"][name])
        self.step = step
        self.source.seek(self.step)


class Notes:
    """Running sums of what a step reports, and whether anything in it was not finite."""

    def __init__(self, terms: list[str], readings: list[str], device: torch.device) -> None:
        self.terms, self.names = terms, [*terms, *readings]
        self.sums = torch.zeros(len(self.names), device=device)
        self.count = torch.zeros((), device=device)
        self.bad = torch.zeros(len(terms), dtype=torch.bool, device=device)
        self.stop = torch.zeros((), device=device)

    def add(self, terms: list[Tensor], readings: list[Tensor]) -> Tensor:
        """Note one step; returns the flag, 1 from the first step with a non-finite term on."""
        values = torch.stack([value.detach().float() for value in (*terms, *readings)])
        # Only the first bad step is named: what follows it without an update says nothing new.
        self.bad |= ~values[: len(terms)].isfinite() & (self.stop == 0)
        self.stop.copy_(self.bad.any())
        self.sums += torch.where(self.stop > 0, 0.0, values)
        self.count += 1 - self.stop
        return self.stop

    def check(self) -> None:
        """Raise if a step since the start was not finite."""
        if self.stop.item():
            names = [name for name, bad in zip(self.terms, self.bad.tolist(), strict=True) if bad]
            raise NonFiniteLoss(
                f"not finite: {', '.join(names)}, {int(self.count)} good steps after the last reading; the weights "
                "were not touched by it. Lower the learning rate, or look for extreme values in the observations."
            )

    def read(self) -> dict[str, float]:
        """Averages since the last reading."""
        self.check()
        means = (self.sums / self.count.clamp(min=1)).tolist()
        self.sums.zero_()
        self.count.zero_()
        return dict(zip(self.names, means, strict=True))
