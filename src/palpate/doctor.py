"""`palpate.check`: can these triples give positions? The arrays first, then a short training run for the rest.

Legend: b triples, n ambient dimension.
"""

import os
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.choices import choose
from palpate.config import ModelConfig, TrainingConfig
from palpate.data.check import Checkup, Finding, Severity, check_arrays, worst_first
from palpate.data.sources import Resident
from palpate.data.transitions import Batch, Transitions
from palpate.encoders import MLP
from palpate.models.inputs import Branch
from palpate.models.interaction import Interaction
from palpate.models.store import build
from palpate.objectives.split import SEPARABLE
from palpate.progress import bar
from palpate.quality import Reading, read
from palpate.training import train

PROBE_ROWS, HELD_ROWS = 12_000, 2000  # at most
PROBE_SIDE = 32  # pixels
PROBE_WIDTH = 96
PROBE_SECONDS = 50.0  # for training; measuring takes the rest of a minute


def check(data: Transitions | str | os.PathLike[str], *, probe: bool = True, progress: bool = False) -> Checkup:
    """Findings about a log: what its arrays tell at once and, unless `probe` is off or the arrays already forbid
    training, what only a model can see, after less than a minute of training.

    A frame that is scaled or mirrored as a whole cannot be seen from triples: it is as good as the right one.
    """
    if isinstance(data, str | os.PathLike):
        with Transitions.open(data) as opened:
            return check(opened, probe=probe, progress=progress)
    arrays = check_arrays(data)
    if not probe or not arrays.good:
        return arrays
    measured, findings = probe_run(data, in_order=arrays.measured["in_order"], progress=progress)
    return Checkup(
        findings=worst_first([*arrays.findings, *findings]), measured=arrays.measured | measured, probed=True
    )


class Trial(NamedTuple):
    """A model after a short run, and what it says of triples it was not trained on."""

    model: Interaction
    held: Reading
    embedding: Tensor  # [b, m] w of o, of the held-out triples
    steps: int


def probe_run(triples: Transitions, *, in_order: float, progress: bool) -> tuple[dict[str, float], list[Finding]]:
    small = _small(triples)
    trial = _train(small, progress)
    return _measure(trial), []


def _small(triples: Transitions, seed: int = 0) -> Batch:
    """Random rows, pictures averaged down to what a quick network needs."""
    count = min(len(triples), PROBE_ROWS)
    rows = np.sort(np.random.default_rng(seed).permutation(len(triples))[:count])
    shape = triples.observation_shape
    shrink = max(1, max(shape[1:]) // PROBE_SIDE) if len(shape) == 3 else 1
    parts = []
    chosen = triples.subset(rows)
    for block in chosen.blocks():
        o, a, o_next = chosen.rows(block)
        parts.append((_averaged(o, shrink), a, _averaged(o_next, shrink)))
    return Batch(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _averaged(o: Tensor, shrink: int) -> Tensor:
    return o.float() if shrink == 1 else F.avg_pool2d(o.float(), shrink)


def _train(rows: Batch, progress: bool) -> Trial:
    order = torch.randperm(len(rows.a), generator=torch.Generator().manual_seed(0))
    held_count = min(HELD_ROWS, len(order) // 5)
    held, kept = (Batch(*(x[part] for x in rows)) for part in (order[:held_count], order[held_count:]))
    picture, n = rows.o.dim() == 4, rows.a.shape[1]
    batch_size = min(128, len(kept.a) // 2)
    steps = 300 if picture else 400
    config = TrainingConfig(
        steps=steps, batch_size=batch_size, learning_rate=3e-3, device="cpu", log_every=10, seed=0
    )
    radius = {"radius": float(kept.a.square().sum(1).mean().sqrt()) / 4} if n == 1 else {}
    from palpate.config import ObjectiveConfig
    model_config = ModelConfig(
        encoder="small" if picture else "mlp",
        observation_shape=tuple(rows.o.shape[1:]),
        observation_dtype="float32",
        n=n,
        objective=ObjectiveConfig(**radius),
    )
    torch.manual_seed(0)
    model = build(model_config)
    if not picture:
        shape = model_config.observation_shape
        model.phi_int, model.phi_ext, model.phi_cont = (
            Branch(MLP(shape, PROBE_WIDTH), branch.head.out_features)
            for branch in (model.phi_int, model.phi_ext, model.phi_cont)
        )
    model.inputs.measure(kept)
    source = Resident(
        Transitions(observation=kept.o, action=kept.a, next_observation=kept.o_next, layout="channel-first"),
        batch_size,
        "cpu",
    )
    deadline, done = time.monotonic() + PROBE_SECONDS, 0

    def watch(step: int, readings: dict[str, float]) -> None:
        nonlocal done
        done = step
        advance(step)
        if time.monotonic() > deadline:
            raise _TimeUp

    with bar("probe", steps, show=progress) as advance:
        try:
            train(model, source, config, watch=watch)
        except _TimeUp:
            model.eval()
    with torch.no_grad():
        w = torch.cat([F.normalize(model.phi_cont(model.inputs(o)), dim=-1) for o in held.o.split(256)])
    return Trial(model, read(model, held), w, done)


class _TimeUp(Exception):
    pass


def _measure(trial):
    r, m = trial.held, trial.model
    unit=float(m.inputs.unit)
    res=r.residual.norm(dim=1)/unit
    a=r.action.norm(dim=1)
    moved=((r.agent_next-r.agent)*r.action).sum(1)/a.clamp(min=1e-9)
    q=a.quantile(torch.tensor([.0,.2,.4,.6,.8,1.0],dtype=a.dtype))
    slopes=[float((moved[(a>=lo)&(a<=hi)]*a[(a>=lo)&(a<=hi)]).sum()/(a[(a>=lo)&(a<=hi)]**2).sum()) for lo,hi in zip(q[:-1],q[1:])]
    w=trial.embedding; unrel=(w-w.roll(1,0)).square().sum(1)
    from palpate.quality import _border,_rms
    out={"steps":trial.steps,"equi":float(res.square().mean().sqrt()),"equi_med":float(res.median()),"tail":float((res>.5).double().mean()),
      "slope_lo":slopes[0],"slope_hi":slopes[-1],"sep":m.split.separation(),"share":float(r.touched.double().mean()),
      "un_med":float(unrel.median()), "below":float((r.scene>unrel.quantile(.1)).double().mean()), "dw_med":float(r.scene.median()/unrel.median())}
    if r.touched.any() and not r.touched.all():
        b=_border(r.distance,r.touched); out|={"acc":b.accuracy,"spread":b.spread/unit,"stay":_rms(r.object_next-r.object,~r.touched)/unit,"radius":b.radius/unit}
    return out
