"""Speed of the hot paths on this machine. Compare ratios within one call, not numbers from two machines."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from palpate.choices import Facts
from palpate.config import TrainingConfig
from palpate.data.stream import Stream
from palpate.envs.registration import SPRITES, world
from palpate.methods.store import build
from palpate.plan import Asked, Plan, plan
from palpate.representation import Representation
from palpate.training.feeds import CHOOSE_FROM, Selected
from palpate.training.step import ADAPT_EVERY, Run

MEASURE_SECONDS = 2.0
CONTACT_SHARE = 0.5  # of Sprites
ENCODED: dict[str, tuple[int, ...]] = {"small": (3, 50, 50), "resnet18": (3, 100, 100), "mlp": (64,)}


class Speed(NamedTuple):
    path: str
    each: float  # seconds for one call
    rate: float  # items a second
    items: str


def bench(device: torch.device) -> Iterator[Speed]:
    """Time generation, training steps with chosen moves, and encoding, one after another."""
    gpu = device.type == "cuda"
    count = 8192 if gpu else 512
    for env in SPRITES:
        draw = partial(Stream(world(env, device=device)).draw, count, torch.Generator(device).manual_seed(0))
        each = _time(draw, device)
        yield Speed(f"generate and draw {env.removeprefix('palpate/')}, 100 px", each, count / each, "triples")
    for encoder, size in (("small", 50), ("resnet18", 100)) if gpu else (("small", 50),):
        run = _run(encoder, size, device)
        each = _time(run.captured() if gpu else run.advance, device, warm_up=12)
        yield Speed(f"training step, three {encoder}, {size} px, batch 128", each, 128 / each, "triples")
    for encoder, shape in ENCODED.items():
        picture = len(shape) == 3
        model = Representation(build(_planned(encoder, shape, device).model), {}, device)
        for rows in (1, 64, 256) if gpu else (1, 64):  # latency, then batches that fill the device
            o = torch.zeros((rows, *shape), dtype=torch.uint8 if picture else torch.float32, device=device)
            each = _time(partial(model.encode, o), device)
            size_of = f"{shape[-1]} px" if picture else f"{shape[0]} numbers"
            yield Speed(f"encode, {encoder}, {size_of}, batch {rows}", each, rows / each, "observations")


def _planned(encoder: str, shape: tuple[int, ...], device: torch.device) -> Plan:
    """The settings of `fit` for a stream of such observations."""
    asked = Asked(encoder=encoder, training=TrainingConfig(device=device.type))  # type: ignore[arg-type]
    found = plan(asked, Facts(shape, 2, None, steerable=True, device=device.type))
    dtype = "uint8" if len(shape) == 3 else "float32"
    return found._replace(model=replace(found.model, observation_dtype=dtype))  # type: ignore[arg-type]


def _run(encoder: str, size: int, device: torch.device) -> Run:
    """A run of `fit` at the step from which it chooses moves."""
    sprites = world("palpate/Sprites-v0", device=device, size=size)
    planned = _planned(encoder, sprites.observation_shape, device)
    model, config = build(planned.model).to(device), planned.training
    model.measure(Stream(sprites).draw(config.batch_size, torch.Generator(device).manual_seed(0)))
    moves = config.chosen_moves or 0.0
    feed = Selected(sprites, config.batch_size, least_contacts=config.least_contacts, chosen_moves=moves)
    feed.assume(CONTACT_SHARE)
    run = Run(model, feed, config, device)
    run.step = ADAPT_EVERY * math.ceil(CHOOSE_FROM * config.steps / ADAPT_EVERY)
    run.set_schedule()
    return run


def _time(call: Callable[[], object], device: torch.device, warm_up: int = 2) -> float:
    """Median seconds of a call; on a GPU of groups of calls, so that synchronisation costs little."""
    for _ in range(warm_up):
        call()
    wait, group = (torch.cuda.synchronize, 10) if device.type == "cuda" else (lambda: None, 1)
    times: list[float] = []
    end = time.perf_counter() + MEASURE_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        wait()
        began = time.perf_counter()
        for _ in range(group):
            call()
        wait()
        times.append((time.perf_counter() - began) / group)
    return sorted(times)[len(times) // 2]
