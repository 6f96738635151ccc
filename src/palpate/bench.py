"""How fast the hot paths are on this machine; ratios within one run are what compares."""

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
from palpate.training.feeds import Selected
from palpate.training.step import Run

MEASURE_SECONDS = 2.0
ENCODED: dict[str, tuple[int, ...]] = {"small": (3, 50, 50), "resnet18": (3, 100, 100), "mlp": (64,)}


class Speed(NamedTuple):
    path: str
    each: float  # seconds for one call
    rate: float  # items a second
    items: str


def bench(device: torch.device, compiled: bool) -> Iterator[Speed]:
    """Time generation, training steps and encoding, one after another."""
    count = 512 if device.type == "cpu" else 8192
    for env in SPRITES:
        sprites = world(env, device=device)
        if compiled:
            sprites.compile()
        draw = partial(Stream(sprites).draw, count, torch.Generator(device).manual_seed(0))
        each = _time(draw, device)
        yield Speed(f"generate and draw {env.removeprefix('palpate/')}, 100 px", each, count / each, "triples")
    encoders = ["small", "resnet18"] if device.type == "cuda" else ["small"]
    for encoder in encoders:
        size = 50 if encoder == "small" else 100
        run = _run(encoder, size, device, compiled)
        step = run.captured() if device.type == "cuda" else run.advance
        each = _time(step, device, warm_up=12)
        yield Speed(f"training step, three {encoder}, {size} px, batch 128", each, 128 / each, "triples")
    yield from _encoding(device)


def _encoding(device: torch.device) -> Iterator[Speed]:
    """Latency, and throughput with batches that fill the device."""
    for encoder, shape in ENCODED.items():
        picture = len(shape) == 3
        model = Representation(build(_planned(encoder, shape, device, False).model), {}, device)
        size = f"{shape[-1]} px" if picture else f"{shape[0]} numbers"
        for rows in (1, 64) if device.type == "cpu" else (1, 64, 256):
            o = torch.zeros((rows, *shape), dtype=torch.uint8 if picture else torch.float32, device=device)
            each = _time(partial(model.encode, o), device)
            yield Speed(f"encode, {encoder}, {size}, batch {rows}", each, rows / each, "observations")


def _planned(encoder: str, shape: tuple[int, ...], device: torch.device, compiled: bool) -> Plan:
    """What `fit` trains on a stream of such observations."""
    training = TrainingConfig(device=device.type, compile=compiled)  # type: ignore[arg-type]
    asked = Asked(encoder=encoder, training=training)  # type: ignore[arg-type]
    found = plan(asked, Facts(shape, 2, None, steerable=True, device=device.type))
    dtype = "uint8" if len(shape) == 3 else "float32"
    return found._replace(model=replace(found.model, observation_dtype=dtype))  # type: ignore[arg-type]


def _run(encoder: str, size: int, device: torch.device, compiled: bool) -> Run:
    sprites = world("palpate/Sprites-v0", device=device, size=size)
    if compiled:
        sprites.compile()
    planned = _planned(encoder, sprites.observation_shape, device, compiled)
    model, config = build(planned.model).to(device), planned.training
    model.measure(Stream(sprites).draw(config.batch_size, torch.Generator(device).manual_seed(0)))
    feed = Selected(
        sprites, config.batch_size, least_contacts=config.least_contacts, chosen_moves=config.chosen_moves or 0.0
    )
    run = Run(model, feed, config, device)
    run.set_schedule()
    return run


def _time(call: Callable[[], object], device: torch.device, warm_up: int = 2) -> float:
    """Median seconds of a call; on a GPU of groups of calls, so that waiting for it is not what is measured."""
    for _ in range(warm_up):
        call()
    group = 10 if device.type == "cuda" else 1
    times: list[float] = []
    end = time.perf_counter() + MEASURE_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(group):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / group)
    return sorted(times)[len(times) // 2]
