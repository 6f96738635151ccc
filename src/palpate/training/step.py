"""One training step, and its state on the device."""

import gc
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from palpate.config import Precision, SettledTraining, TrainingConfig
from palpate.methods.base import Anew, Loss, Model
from palpate.optimizers import make_optimizers
from palpate.ranks import ALONE, Ranks
from palpate.training.feeds import Feed
from palpate.training.notes import Notes

ADAPT_EVERY = 50  # steps
# Held-out losses this close, relative to the lowest, do not differ: of two models the later one has better positions.
TIE = 0.03
EAGER_STEPS = 3  # before a graph is captured: memory settles and kernels are chosen


def precision_on(device: torch.device, config: TrainingConfig) -> Precision:
    """The arithmetic of the encoders: the given one, or that of the device."""
    return config.precision or ("bf16-mixed" if device.type == "cuda" else "32-true")


class Run:
    """A model, its feed and its optimisers on the device."""

    def __init__(
        self, model: Model, feed: Feed, config: SettledTraining, device: torch.device, ranks: Ranks = ALONE
    ) -> None:
        self.device, self.ranks = device, ranks
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else it prints precision and hardware
        # Only for precision and placement; `ranks` connects processes.
        one: Any = [ranks.device.index] if ranks.device and device.type == "cuda" else 1
        self.fabric = Fabric(accelerator=device.type, devices=one, precision=precision_on(device, config))
        self.config, self.feed, self.step = config, feed, 0
        self.plain = model.to(device)
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = True  # shapes hardly change, so kernels are chosen once
        optimizers = make_optimizers(
            model.parameter_groups(),
            weight_decay=config.weight_decay,
            orthogonalise=config.optimizer != "adamw",
            device=device,
        )
        self.model, *self.optimizers = self.fabric.setup(model, *optimizers)
        self.model.mark_forward_method("loss")
        self.parameters = list(model.parameters())
        # Gradients of groups that start later are multiplied by 0 until then.
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups if "starts" in group]
        self.gates = [(group, torch.zeros((), device=device)) for group in groups]
        self.best: dict[str, Tensor] = {}
        self.best_value = math.inf
        self.generator = torch.Generator(device).manual_seed(config.seed)
        self.progress = torch.zeros((), device=device)
        feed.connect(self._contacts, self._uncertainty)
        self.notes: Notes | None = None
        self.restore_notes: Callable[[Notes], None] = lambda notes: None  # the first step makes the notes
        if ranks.count > 1:
            model.divide(ranks)
        if config.compile:
            model.compile_step()
        self.model.train()

    def advance(self, batch: Any = None) -> None:
        """One step of optimisation; nothing here waits for the device."""
        with self.ranks.divided():
            batch = self.feed.draw(self.generator) if batch is None else batch
            with self.fabric.autocast():
                loss: Loss = self.model.loss(batch, self.generator, self.progress)
        if loss.contacts is not None:
            self.feed.record(loss.contacts, loss.contacts if loss.wanted is None else loss.wanted)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.fabric.backward(torch.stack(list(loss.terms.values())).sum())
        self.ranks.average([p.grad for p in self.parameters if p.grad is not None])
        for group, gate in self.gates:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(gate)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        if self.notes is None:
            self.notes = Notes([*loss.terms, "gradient"], list(loss.readings), self.device)
            self.restore_notes(self.notes)
        # If this flag is set, optimisers change neither weights nor moments; the host is not involved.
        stop = self.notes.add([*loss.terms.values(), norm], list(loss.readings.values()))
        for optimizer in self.optimizers:
            optimizer.optimizer.found_inf = stop
            optimizer.step()

    def _forget(self, anew: Anew) -> None:
        """Forget which way these entries were moving. The size of their gradients is kept: without it, the first steps
        of Adam would be several times too large."""
        for optimizer in self.optimizers:
            moments = optimizer.optimizer.state.get(anew.parameter, {})
            for name in moments.keys() & {"momentum", "exp_avg"}:
                moments[name][anew.entries] = 0

    def captured(self) -> Callable[[], None]:
        """`advance` as a CUDA graph, which is captured again when the feed draws in another way."""
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        held: Any = None  # fixed memory for batches from the host, which the graph reads
        eager_steps, captured, way = EAGER_STEPS, False, (self.feed.way, self.plain.stage)

        def step() -> None:
            nonlocal graph, held, eager_steps, captured, way
            if way != (self.feed.way, self.plain.stage):
                torch.cuda.synchronize()  # the old graph may still be running
                graph, eager_steps, captured = torch.cuda.CUDAGraph(), EAGER_STEPS, False
                way = self.feed.way, self.plain.stage
            if not self.feed.capturable:
                fresh = self.feed.draw(self.generator)
                held = fresh if held is None else type(fresh)(*map(Tensor.copy_, held, fresh))
            if eager_steps:
                eager_steps -= 1
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    self.advance(held)
                torch.cuda.current_stream().wait_stream(side)
                return
            if not captured:
                gc.collect()  # memory of an earlier run must not be freed while a graph is captured
                graph.register_generator_state(self.generator)
                with torch.cuda.graph(graph):
                    self.advance(held)
                captured = True
            graph.replay()

        return step

    def set_schedule(self) -> None:
        """Set progress, gates and learning rates before a step and, every few steps, the way of drawing."""
        self._take_stage()
        share = self._share(self.step)
        if self.step % ADAPT_EVERY == 0:  # not when readings are made: logging must not change a run
            self._align()
            self.feed.adapt(share)
            for anew in self.plain.adapt(share):
                self._forget(anew)
        self.progress.fill_(share)
        for group, gate in self.gates:
            gate.fill_(share >= group["starts"])
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"].fill_(group.get("lr_scale", 1.0) * self.config.learning_rate_at(share))

    def read(self) -> dict[str, float]:
        """Averages since the last call; raises if a step was not finite."""
        assert self.notes is not None
        rate = self.config.learning_rate_at(self._share(self.step))
        return {**self.notes.read(), **self.plain.vitals(), **self.feed.vitals(), "learning_rate": rate}

    def refine(self) -> None:
        """The model's refinement, on each rank; that of the first one counts. Raises if a step was not finite."""
        assert self.notes is not None
        self.notes.check()
        with self._frozen():
            self.plain.refine(lambda: self.feed.last(self.generator), self.config.steps)

    def evaluated(self, evaluate: Callable[[Model], dict[str, float]], criterion: str | None) -> dict[str, float]:
        """Evaluate the model, and keep a copy of its weights unless earlier ones are clearly better.

        If the criterion is not available, the stored copy is discarded: nothing shows that it is better.
        """
        with self._frozen():
            scores = evaluate(self.plain)
        value = math.inf if criterion is None else scores.get(criterion, math.inf)
        if value == math.inf:
            self.best, self.best_value = {}, math.inf
        elif value <= self.best_value + TIE * abs(self.best_value):
            self.best_value = min(value, self.best_value)
            self.best = {name: x.detach().clone() for name, x in self.plain.lasting_state().items()}
        return scores

    def _share(self, step: int) -> float:
        """Finished share of the present stage."""
        return step * self.plain.stages / self.config.steps - self.plain.stage

    @property
    def ends_stage(self) -> bool:
        """Whether the last step was the last of its stage."""
        return self.step == self.config.steps or self._next_stage != self.plain.stage

    @property
    def _next_stage(self) -> int:
        """The stage of the next step."""
        return min(self.step * self.plain.stages // self.config.steps, self.plain.stages - 1)

    def _take_stage(self) -> None:
        """Begin the next stage when its time has come, with the best weights of the last one."""
        if self._next_stage == self.plain.stage:
            return
        if self.best:
            self.plain.load_state_dict(self.best, strict=False)  # the scaffold stays
        self.best, self.best_value = {}, math.inf
        self.plain.stage = self._next_stage
        self.plain.train()
        self.feed.renew()
        self._align()  # only the first rank has the best weights

    def hand_over(self) -> None:
        """Prepare the model for users: the best weights, without the parts that only training needs."""
        self.plain.take_down_scaffold()
        if self.best:
            self.plain.load_state_dict(self.best)
        self._align()
        self.plain.eval()

    def _align(self) -> None:
        """Remove differences of rounding between ranks, before they decide differently."""
        self.ranks.align([*self.plain.state_dict().values(), *self.feed.memory().values()])

    def _contacts(self, batch: Any) -> Tensor | None:
        with self._frozen(), self.fabric.autocast():
            return self.plain.contacts(batch)

    def _uncertainty(self, o: Tensor, moves: Tensor) -> Tensor | None:
        with self._frozen(), self.fabric.autocast():
            return self.plain.uncertainty(o, moves)

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """The model in evaluation mode, without gradients."""
        before = self.plain.training
        self.plain.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.plain.train(before)
