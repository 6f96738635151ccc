"""A short training run, and its measurements.

Legend: b triples, n ambient dimension, m dimension of W.
"""

import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.choices import rest_floor
from palpate.config import ModelConfig, ObjectiveConfig, SettledTraining
from palpate.contacts.split import Split
from palpate.data.sources import Resident
from palpate.data.transitions import Batch, Transitions
from palpate.doctor.sensors import carried_scanner
from palpate.encoders import MLP
from palpate.groups.base import Group
from palpate.methods.base import Examination
from palpate.methods.contact import Contact
from palpate.networks import Branch
from palpate.progress import bar
from palpate.quality import boundary, examine, residual
from palpate.training.feeds import Feed
from palpate.training.loop import Interrupted, train

PROBE_ROWS, HELD_ROWS = 12_000, 2000  # at most
PROBE_SIDE, PROBE_WIDTH, PROBE_BATCH = 32, 96, 128  # pixels, width of an MLP, triples: quick to train
STEPS, MORE_STEPS = (400, 300), (1200, 500)  # for numbers and for pictures; more if the first are not conclusive
RELATED = 0.1  # quantile of unrelated scenes' distances: a pair farther apart counts as unrelated
EXPECTED = 6.0  # expected contacts around a place; by chance there are none once in 400
LINKS = 8  # linked neighbours


class Trial:
    """A small model, trained for a short time on some rows, and judged by the others."""

    def __init__(self, rows: Batch, deadline: float, progress: bool, scene: ObjectiveConfig, substeps: int = 1) -> None:
        order = torch.randperm(len(rows.a), generator=torch.Generator().manual_seed(0))
        count = min(HELD_ROWS, len(order) // 5)
        self.held_rows, self.kept_rows = order[:count], order[count:]
        self.held, self.kept = (Batch(*(x[part] for x in rows)) for part in (self.held_rows, self.kept_rows))
        self.deadline, self.progress, self.steps, self.planned = deadline, progress, 0, 0
        self.followed = True  # whether `following.followed` had time for all its steps
        self.picture = rows.o.dim() == 4
        self.sensor = [] if self.picture else carried_scanner(self.held)  # a note if the agent carries it
        torch.manual_seed(0)
        self.scene, actions = scene, rows.a.shape[1] // substeps
        n = scene.dimension(actions)
        # In one dimension any radius will do: the position is not judged.
        radius = float(rows.a.square().sum(1).mean().sqrt()) / 4 if n == 1 else None
        self.model = _Probe(
            ModelConfig(
                encoder="small" if self.picture else "mlp",
                observation_shape=tuple(rows.o.shape[1:]),
                observation_dtype="float32",
                n=n,
                actions=actions,
                substeps=substeps,
                objective=replace(scene, body="ball", radius=radius, refine=False, rest_floor=rest_floor(n)),
            )
        )
        if not self.picture:
            for name in ("phi_int", "phi_ext", "phi_cont"):
                out = getattr(self.model, name).head.out_features
                setattr(self.model, name, Branch(self.vector_encoder(rows.o.shape[1]), out))
        self.model.measure(self.kept)

    @staticmethod
    def vector_encoder(features: int) -> MLP:
        return MLP((features,), PROBE_WIDTH)

    @property
    def done(self) -> bool:
        """Whether the first run is complete."""
        return self.steps >= STEPS[self.picture]

    def train(self, *, first: bool) -> bool:
        """Train until the deadline at most; returns whether there was time."""
        steps = (STEPS if first else MORE_STEPS)[self.picture]
        self.planned += steps
        if time.thread_time() > self.deadline:
            return False
        size = min(PROBE_BATCH, len(self.kept.a) // 2)
        config = SettledTraining(
            steps=steps, batch_size=size, optimizer="adamw", learning_rate=3e-3, device="cpu", log_every=10
        )
        kept = Transitions(
            observation=self.kept.o, action=self.kept.a, next_observation=self.kept.o_next, layout="channel-first"
        )
        feed = Feed(Resident(kept, "cpu"), size)
        before = self.steps

        def watch(step: int, readings: dict[str, float]) -> None:
            self.steps = before + step
            advance(step)
            if time.thread_time() > self.deadline:
                raise _TimeUp

        with bar("probe" if first else "probe, longer", steps, show=self.progress) as advance:
            try:
                train(self.model, feed, config, watch=watch)
            except _TimeUp:
                self.model.eval()
            except Interrupted:  # a probe cannot be resumed
                raise KeyboardInterrupt from None
        return True

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Measurements on rows that were not trained on; lengths relative to the actions' root mean square. With a
        carried sensor only those of the agent: W of a probe does not show the object then."""
        seen, unit, group = examine(self.model, self.held), float(self.model.inputs.unit), self.model.group
        action = self.held.a.double()
        assert seen is not None
        found = {
            "probe_steps": float(self.steps),
            "held_rows": float(len(action)),
            "residual": residual(group, seen.agent, action, seen.agent_next, unit) / (unit * group.usual(action)),
            "reach_of_long_moves": _evenness(group, seen, action),
            "direction": _direction(group, seen, action),
            "stray_share": float(stray(group, seen).double().mean()),
        }
        return found if self.sensor else found | self._measure_scenes(seen)

    def _measure_scenes(self, seen: Examination) -> dict[str, float]:
        w, w_next = (torch.cat([self.model.scene(o)[:, 0] for o in side.split(256)]) for side in self.held[::2])
        unrelated = (w - w.roll(1, 0)).square().sum(1).double()
        moved = (w - w_next).square().sum(1).double()  # in W, even if positions are the leading witness
        visible = seen.visible[:, 0]
        contact = seen.contact[:, 0] & visible
        found = {
            "scene_spread": float(unrelated.median()),
            "moving_share": float((moved > unrelated.quantile(RELATED)).double().mean()),
            "contact_share": float(contact.double().mean()),
            "separation": min(self.model.separations()),
            "hidden_share": float((~visible).double().mean()),
        }
        if contact.any() and not contact.all():
            found["explained"] = boundary(seen.distance[visible, 0], contact[visible]).accuracy
            if (near := reached(w, contact)) is not None:
                found["unreached_share"] = float((~near).double().mean())
        return found


class _Probe(Contact):
    """Our method with a shorter window of distances: a probe has few steps."""

    def make_split(self) -> Split:
        return Split(window=2048)


class _TimeUp(Exception):  # noqa: N818 - not an error
    pass


def chosen(count: int) -> np.ndarray:
    """Which of `count` rows a probe uses, rising."""
    return np.sort(np.random.default_rng(0).permutation(count)[:PROBE_ROWS])


def small(triples: Transitions, rows: np.ndarray) -> Batch:
    """The chosen ones of these rows, with averaged, smaller pictures."""
    shape = triples.observation_shape
    shrink = -(-max(shape[1:]) // PROBE_SIDE) if len(shape) == 3 else 1
    shrink = min(shrink, max(1, min(shape[1:], default=1) // 8))

    def averaged(o: Tensor) -> Tensor:
        return o.float() if shrink == 1 else F.avg_pool2d(o.float(), shrink)

    part, blocks = triples.subset(rows[chosen(len(rows))]), []
    for block in part.blocks():
        o, a, o_next = part.rows(block)
        blocks.append((averaged(o), a, averaged(o_next)))
    return Batch(*(torch.cat(column) for column in zip(*blocks, strict=True)))


def _evenness(group: Group, seen: Examination, action: Tensor) -> float:
    """Distance along the action per length of action: of the longest fifth of moves over the shortest two fifths."""
    length, move = group.length2(action).sqrt(), group.displacement(action)
    along = (group.displacement(group.between(seen.agent, seen.agent_next)) * move).sum(1)

    def gain(rows: Tensor) -> Tensor:
        return along[rows].sum() / length[rows].square().sum().clamp(min=1e-12)

    short, long = gain(length <= length.quantile(0.4)), gain(length >= length.quantile(0.8))
    return float(long / short.clamp(min=1e-6))


def _direction(group: Group, seen: Examination, action: Tensor) -> float:
    """Median cosine of the angle between a displacement and its action."""
    moved = group.displacement(group.between(seen.agent, seen.agent_next))
    return float(F.cosine_similarity(moved, group.displacement(action)).median())


def reached(w: Tensor, contact: Tensor) -> Tensor | None:
    """Whether the scenes [b] have a contact among their neighbours, where several are expected.

    The number of neighbours is such that they hold `EXPECTED` contacts on average. None if the set is too small.
    """
    count = round(EXPECTED / float(contact.double().mean()))
    if count > len(w) // 3:
        return None
    near = torch.cdist(w, w).topk(count, largest=False).indices  # [b, count]
    return contact[near].any(1)


def stray(group: Group, seen: Examination) -> Tensor:
    """Which of the agent's positions, before moves and then after them, lie outside the largest set that moves and near
    neighbours link; of at most 1,000 triples."""
    half = min(len(seen.agent), 1000)
    places = group.position(torch.cat((seen.agent[:half], seen.agent_next[:half])))
    near = torch.cdist(places, places).topk(min(LINKS + 1, len(places)), largest=False).indices[:, 1:]
    ends = torch.cat((torch.arange(half, 2 * half), torch.arange(half)))[:, None]
    links = torch.cat((near, ends), 1)  # [2 half, LINKS + 1]
    label = torch.arange(2 * half)
    while True:
        low = torch.minimum(label, label[links].amin(1))
        # A link holds in both directions.
        low = low.scatter_reduce(0, links.flatten(), low.repeat_interleave(links.shape[1]), "amin")
        if torch.equal(low, label):
            break
        label = low
    return label != label.bincount().argmax()
