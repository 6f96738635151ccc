"""Lists of triples, computed in the background: the most doubtful, the worst explained, the nearest in W.

One thread goes through the rows in blocks of random order, so partial lists are representative. For each row it keeps
two numbers and the points of W, in half precision.
Legend: N triples, k objects, m dimension of W.
"""

import threading
import time
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from palpate.data.transitions import Transitions
from palpate.networks import few_threads
from palpate.representation import Representation

Array = NDArray[Any]
BLOCK = 64  # rows: a page waits for the rest of a block
CALM_SECONDS = 0.6  # of pause after each action of the user, so that the page answers faster
LEAST = 1e-6  # probability


@final
class Ranking:
    """Computes the lists in a daemon thread; all methods may be called at any time."""

    def __init__(self, model: Representation, triples: Transitions) -> None:
        self.model, self.triples = model, triples
        self.total, self.done = len(triples), 0
        self.error = ""
        self.contact = np.full(self.total, np.nan, np.float32)  # [N] largest probability; NaN until it is known
        self._doubt = np.full(self.total, np.nan, np.float32)
        self._surprise = np.full(self.total, np.nan, np.float32)
        self._scenes: Array | None = None  # [N, k * m] float16
        self._known = np.zeros(self.total, bool)
        self._touched, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._work, name="ranking", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Let the thread end after its block, without waiting for it."""
        self._ended.set()

    def stop(self) -> None:
        """End the thread after its block, and wait a moment for it."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(timeout=1)

    def yield_to_user(self) -> None:
        """Pause for a moment."""
        self._touched = time.monotonic()

    @property
    def finished(self) -> bool:
        return self.done == self.total or bool(self.error)

    def doubtful(self, count: int) -> list[tuple[int, float]]:
        """Rows whose contact is least certain, with the distance of its probability from 0 or 1: at most 1/2."""
        return _largest(self._doubt, count)

    def unexplained(self, count: int) -> list[tuple[int, float]]:
        """Rows whose contact geometry explains worst, with the cross-entropy in nats."""
        return _largest(self._surprise, count)

    def nearest(self, row: int, count: int) -> list[tuple[int, float]]:
        """Rows whose o is nearest in W to that of `row`, with the squared distance; none before W is computed."""
        if self._scenes is None:
            return []
        (own,) = self._points([row])
        distances = ((self._scenes.astype(np.float32) - own) ** 2).sum(1)
        distances[~self._known] = np.nan
        distances[row] = np.nan
        return [(i, -d) for i, d in _largest(-distances, count)]

    def _work(self) -> None:
        try:
            with few_threads():
                self._rank()
        except Exception as error:  # a file that vanished, a model that does not fit: the page shows it
            self.error = str(error) or type(error).__name__

    def _rank(self) -> None:
        for start in np.random.default_rng(0).permutation(np.arange(0, self.total, BLOCK)):
            while time.monotonic() - self._touched < CALM_SECONDS and not self._ended.is_set():
                time.sleep(0.05)
            if self._ended.is_set():
                return
            self._block(np.arange(start, min(start + BLOCK, self.total)))

    def _block(self, rows: Array) -> None:
        batch = self.triples.rows(slice(int(rows[0]), int(rows[-1]) + 1))
        contact, would = self.model.contact(*batch), self.model.would_touch(batch.o, batch.a)
        if contact is not None:
            self.contact[rows] = _worst(contact)
            self._doubt[rows] = _worst(0.5 - (contact - 0.5).abs())
            if would is not None:
                would = would.clamp(LEAST, 1 - LEAST)
                self._surprise[rows] = _worst(-(contact * would.log() + (1 - contact) * (1 - would).log()))
        points = self._points_of(batch.o)
        if points is not None:
            if self._scenes is None:
                self._scenes = np.zeros((self.total, points.shape[1]), np.float16)
            self._scenes[rows] = points
        self._known[rows] = True
        self.done += len(rows)

    def _points(self, rows: list[int]) -> Array:
        points = self._points_of(self.triples.rows(rows).o)
        assert points is not None
        return points

    @torch.no_grad()
    def _points_of(self, o: torch.Tensor) -> Array | None:
        """Points of W [b, k * m], if the model has them."""
        scene = getattr(self.model.model, "scene", None)
        if scene is None:
            return None
        device = self.model.model.inputs.unit.device
        found: Array = scene(self.model.canonical(o).to(device)).flatten(1).cpu().numpy()
        return found


def _worst(values: torch.Tensor) -> Array:
    """The largest value over the objects, `[b]`."""
    worst: Array = values.reshape(len(values), -1).amax(1).numpy()
    return worst


def _largest(values: Array, count: int) -> list[tuple[int, float]]:
    known = np.flatnonzero(~np.isnan(values))
    if len(known) > count:
        known = known[np.argpartition(-values[known], count)[:count]]
    order = known[np.argsort(-values[known], kind="stable")]
    return [(int(row), float(values[row])) for row in order]
