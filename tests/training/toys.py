"""Small models, sets and feeds for tests of the loop."""

import math
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import palpate.contacts.split
import palpate.methods.located
import palpate.training.step
from palpate.config import ModelConfig, ObjectiveConfig, SettledTraining
from palpate.data.sources import OnDisk, Resident
from palpate.data.transitions import Batch, Transitions
from palpate.envs.sprites import Sprites, SpritesConfig
from palpate.methods.base import Encoding, Loss, Model
from palpate.methods.store import build
from palpate.training import feeds
from palpate.training.feeds import Feed, Oversampled, Selected
from palpate.training.loop import train

BATCH = 16
FEEDS = ("stream", "pool", "chosen moves", "set", "oversampled", "on disk")
WORLD = Sprites(SpritesConfig(size=20))


def settings(**changes: Any) -> SettledTraining:
    """A short run. AdamW, because a step of Muon costs four times as much on a CPU."""
    short = {"steps": 12, "batch_size": BATCH, "device": "cpu", "log_every": 4, "checkpoint_every": 5}
    short |= {"optimizer": "adamw"}
    return SettledTraining(**short | changes)  # type: ignore[arg-type]


def triples(count: int = 200) -> Transitions:
    """Vectors of agent and object; the object moves in half of the triples."""
    rng = np.random.default_rng(0)
    agent, agent_next, thing, thrown = rng.random((4, count, 2))
    thing_next = np.where(rng.random((count, 1)) < 0.5, thrown, thing)
    return Transitions(
        observation=np.hstack((agent, thing)),
        action=agent_next - agent,
        next_observation=np.hstack((agent_next, thing_next)),
    )


def resident() -> Feed:
    return Feed(Resident(triples(), "cpu"), BATCH)


def feed(kind: str) -> Feed:
    """A new one of `FEEDS`."""
    if kind == "stream":
        return Selected(WORLD, BATCH)
    if kind == "pool":
        return Selected(WORLD, BATCH, least_contacts=0.51)
    if kind == "chosen moves":
        return Selected(WORLD, BATCH, chosen_moves=0.5)
    if kind == "oversampled":
        return Oversampled(Resident(triples(), "cpu"), BATCH, 0.7)
    if kind == "on disk":
        return Feed(OnDisk(triples(), "cpu", seed=3, group_bytes=2000), BATCH)
    return resident()


def select_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contacts are reliable from the first batch, and feeds act on them from the second step."""
    monkeypatch.setattr(feeds, "JUDGED", 1)
    monkeypatch.setattr(feeds, "CHOOSE_FROM", 0.0)
    monkeypatch.setattr(palpate.training.step, "ADAPT_EVERY", 2)
    monkeypatch.setattr(palpate.contacts.split, "SEPARABLE", -math.inf)
    monkeypatch.setattr(palpate.methods.located, "SEPARABLE", -math.inf)


def make_model(
    picture: bool = False,
    *,
    body: str = "ball",
    refine: bool = False,
    objects: int = 1,
    method: str = "contact",
) -> Model:
    torch.manual_seed(0)
    return build(
        ModelConfig(
            method=method,
            encoder="small" if picture else "mlp",
            observation_shape=WORLD.observation_shape if picture else (4,),
            n=2,
            objective=ObjectiveConfig(body=body, refine=refine, rest_floor=0.02, objects=objects),
        )
    )


def trained(
    kind: str,
    config: SettledTraining | None = None,
    *,
    refine: bool = False,
    objects: int = 1,
    method: str = "contact",
    **options: Any,
) -> Model:
    """A new model, trained on a new feed."""
    made = feed(kind)
    model = make_model(isinstance(made, Selected), refine=refine, objects=objects, method=method)
    try:
        train(model, made, config or settings(), **options)
    finally:
        made.close()
    return model


def weights(model: nn.Module) -> dict[str, Tensor]:
    state = model.lasting_state() if isinstance(model, Model) else model.state_dict()
    return {name: value.clone() for name, value in state.items()}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    """Bit for bit; a slot that is not filled yet is NaN."""
    return one.keys() == two.keys() and all(np.array_equal(one[k], two[k], equal_nan=True) for k in one)


def stop_at(step: int) -> Callable[[int, dict[str, float]], None]:
    """Ctrl-C at the reading of a step."""

    def watch(now: int, readings: dict[str, float]) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


class Toy(Model):
    """A weight pulled to the batch; its second term is multiplied by `bad` in the steps named."""

    def __init__(self, bad: dict[int, float] | None = None) -> None:
        super().__init__(ModelConfig(encoder="mlp", observation_shape=(4,), n=2))
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.bad, self.values, self.refined = bad or {}, list[float](), 0

    @property
    def calls(self) -> int:
        return len(self.values)

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        return (self.weight - batch.a,)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        good = outputs[0].square().sum(-1).mean()
        self.values.append(float(good.detach()))
        other = self.weight.sum() * self.bad.get(self.calls, 0.1)
        return Loss({"good": good, "other": other}, {"reading": good.detach() * 2})

    def vitals(self) -> dict[str, float]:
        return {"pulse": 60.0}

    def refine(self, draw: Callable[[], Any], steps: int) -> None:
        self.refined += 1

    def encode(self, o: Tensor) -> Encoding:
        raise NotImplementedError


def train_toy(toy: Toy, folder: Any = None, **changes: Any) -> Toy:
    train(toy, resident(), settings(schedule="paper", **changes), folder=folder)
    return toy
