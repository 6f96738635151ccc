"""Play: the agent is dragged in a world, and the estimate follows.

Legend: n dimension of the plane, k objects, p points of a path.
"""

import itertools
import math
from collections import deque
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palpate.networks import few_threads, one_thread
from palpate.projection import Homography
from palpate.representation import Representation
from palpate.viewer.answers import Answer, aligned, answer, marks_of
from palpate.viewer.grounds import Ground, Moved
from palpate.viewer.marks import Marks, data_uri, degrees, svg
from palpate.viewer.paths import Path, around

Array = NDArray[Any]
KNOWN = 64  # scenes with known positions that align the frame
NEAR = 0.09  # of the picture's width: a press this near to the agent starts a drag
STRIDE = 0.02  # of the plane's width: one step along a path
RECENT = 50  # moves whose errors are averaged
MOST_TURN = np.pi / 2  # of one move
VISIBLE = 0.5  # confidence below which an object's position means nothing
STILL = 1e-4  # of the plane's width: shorter moves are not carried out


class View(NamedTuple):
    """What the page shows."""

    source: str  # of the picture
    marks: str  # SVG in its pixels
    facts: list[tuple[str, str]]
    answer: Answer | None  # of the last move
    contact: bool | None  # whether the last move touched, in truth
    note: str


@final
class Play:
    """A world, a model aligned to it, and the planned path."""

    def __init__(self, model: Representation, ground: Ground) -> None:
        self.ground, self.note = ground, ""
        _require_fit(model, ground)
        known = ground.known(KNOWN)
        with few_threads():
            self.model = self._aligned(model, known)
        self.path: Path | None = None
        self.truth = True  # whether true positions are drawn
        self.answer: Answer | None = None
        self.touched: bool | None = None
        self._moved: Moved | None = None
        self.contacts = 0
        self._errors: deque[float] = deque(maxlen=RECENT)
        self._plane = self._extent(known)
        self._marks = Marks()
        self._source: str | None = None  # the picture as text, once for each scene
        self._look()

    def _aligned(self, model: Representation, known: dict[str, Tensor] | None) -> Representation:
        if known is None or not model.model.tells_apart:
            self.note = "The world's true positions are not known, so the learned frame is used as it is."
            return model
        model, self.note = aligned(model, known)
        return model

    def _extent(self, known: dict[str, Tensor] | None) -> tuple[Array, Array]:
        """Corners of the rectangle that the agent reaches, from known or estimated positions."""
        agents = self.model.encode(self.ground.observation()).agent if known is None else known["agent"]
        spread = 0.5 * float(self.model.model.inputs.unit) if known is None else 0.0
        found = agents.numpy()
        return found.min(0) - spread, found.max(0) + spread

    @property
    def width(self) -> float:
        return float((self._plane[1] - self._plane[0]).max())

    @property
    def at(self) -> Array:
        """The agent's position: true if it is known, else estimated."""
        true = self.ground.agent()
        if true is not None:
            return np.asarray(true, float)
        assert self._marks.agent is not None
        return np.asarray(self._marks.agent, float)

    @property
    def pixels(self) -> int:
        """Width of the picture."""
        return int(self._picture.shape[1])

    def _own_plane(self, picture: Array) -> Homography:
        """The projection onto an empty picture, for a world whose projection is not known."""
        low, high = self._plane
        margin = 0.1 * self.width
        extent = (low[0] - margin, high[0] + margin, low[1] - margin, high[1] + margin)
        return Homography.of_extent(extent, picture.shape[1], picture.shape[0])

    def grabbed(self, x: float, y: float) -> bool:
        """Whether a pixel is near enough to the agent to drag it."""
        pixel = self._project(self.at[None])[0]
        return bool(np.hypot(x - pixel[0], y - pixel[1]) < NEAR * self.pixels)

    def plane(self, x: float, y: float) -> Array:
        """The point of the plane at a pixel."""
        found = np.linalg.inv(self._project.matrix) @ (x, y, 1.0)
        point: Array = found[:2] / found[2]
        return point

    def drag(self, x: float, y: float) -> None:
        """Move the agent towards a pixel; the world determines where it stops."""
        self.path = None
        self._go(self.plane(x, y))

    def _go(self, target: Array) -> None:
        if np.abs(target - self.at).max() < STILL * self.width:
            return
        self.answer, self.touched = None, None
        for action in self._actions(target):
            with one_thread():
                self._moved = moved = self.ground.move(action)
            if moved.contact is not None:
                self.touched = bool(self.touched) or bool(moved.contact.any())
        self.contacts += bool(self.touched)
        self._look()

    def _actions(self, target: Array) -> list[Array]:
        """The actions that lead to a point. An agent that turns first faces the way, by moves that turn it at most by
        `MOST_TURN`."""
        group, heading = self.model.model.group, self.ground.heading()
        here = list(self.at)
        if group.heading(group.origin()) is not None:
            heading = self._marks.heading if heading is None else heading
            assert heading is not None
            here = [*here, heading]
        z, place = group.posed(torch.tensor(here, dtype=torch.float64)), torch.tensor(target, dtype=torch.float64)
        actions = []
        for action in group.towards(z, place):
            parts = max(1, math.ceil(float(group.turn(action).abs()) / MOST_TURN))
            if action.abs().max() > 0:
                actions += [(action / parts).numpy()] * parts
        return actions

    def explain(self) -> None:
        """Compute the model's outputs for the last move. They take longer than the estimate, so they may come later."""
        if self._moved is not None and self.answer is None:
            with one_thread():
                self.answer = answer(self.model, self._moved.triple)

    def plan(self, x: float, y: float) -> None:
        """Plan a path from the agent to a pixel that avoids the learned bodies."""
        target = np.clip(self.plane(x, y), *self._plane)
        bodies = []
        if self._marks.objects is not None and self._marks.borders is not None:
            bodies = [centre + line for centre, line in zip(self._marks.objects, self._marks.borders, strict=True)]
        self.path = around(self.at, target, bodies, *self._plane)
        if not bodies:
            self.path = self.path._replace(note="straight: this model has no body to avoid")

    def walk(self) -> bool:
        """One step along the path; False at its end, or when the scene has changed."""
        if self.path is None or len(self.path.points) < 2:
            return False
        points, stride = self.path.points, STRIDE * self.width
        way = points[1] - points[0]
        length = float(np.linalg.norm(way))
        end = points[1] if length <= stride else points[0] + way * (stride / length)
        kept = points[2:] if length <= stride else points[1:]
        path = self.path
        self._go(end)
        self.path = Path(np.concatenate((end[None], kept)), path.note) if len(kept) else None
        if self.touched:
            self.path = None
        return self.path is not None

    def reset(self) -> None:
        """A new random scene."""
        self.ground.reset()
        self.path, self.answer, self.touched, self._moved = None, None, None, None
        self._look()

    def _look(self) -> None:
        """Estimate the scene, and take its picture."""
        with one_thread():
            self._marks = marks_of(self.model, self.ground.observation(), self._marks.borders)
        self._picture, project = self.ground.picture()
        self._project = self._own_plane(self._picture) if project is None else project
        self._source = None
        true, found = self.ground.objects(), self._marks.objects
        if true is not None and found is not None and found.shape[1] == true.shape[1]:
            sure = self._marks.confidences
            gaps = assigned(found if sure is None else found[sure > VISIBLE], true)
            if len(gaps):
                self._errors.append(float(gaps.mean()))

    def view(self) -> View:
        agent, objects = self.ground.agent(), self.ground.objects()
        true = None if agent is None or objects is None or not self.truth else np.concatenate((agent[None], objects))
        marks = self._marks._replace(true=true, path=None if self.path is None else self.path.points)
        drawn = svg(marks, self._project, self.pixels)
        if self._source is None:
            self._source = data_uri(self._picture)
        return View(self._source, drawn, self._facts(), self.answer, self.touched, self.note)

    def _facts(self) -> list[tuple[str, str]]:
        facts = []
        if self._marks.agent is not None:
            facts.append(("agent", _numbers(self._marks.agent)))
        if self._marks.heading is not None:
            facts.append(("heading", f"{round(np.degrees(self._marks.heading)) % 360}°"))
        objects = [] if self._marks.objects is None else list(self._marks.objects)
        for i, place in enumerate(objects):
            name = "object" if len(objects) == 1 else f"object {i + 1}"
            sure = "" if self._marks.confidences is None else f", visible {self._marks.confidences[i]:.0%}"
            facts.append((name, _numbers(place) + sure))
            if self._marks.angles is not None:
                facts.append((f"{name}, long axis", degrees(self._marks.angles[i])))
        if self._errors:
            facts.append(("object error, mean", f"{np.mean(self._errors):.2g}"))
        facts.append(("contacts so far", str(self.contacts)))
        if self.path is not None:
            facts.append(("path", self.path.note))
        return facts


def assigned(estimates: Array, true: Array) -> Array:
    """Distances of estimates [k, n] from the true positions [m, n] that they are assigned to, `[min(k, m)]`.

    Each estimate gets another true position. Of all such assignments, this one has the smallest sum.
    """
    distance = np.linalg.norm(estimates[:, None] - true, axis=-1)  # [k, m]
    if len(estimates) > len(true):
        distance = distance.T
    few, many = distance.shape
    orders = np.array(list(itertools.permutations(range(many), few)), int)
    gaps = distance[np.arange(few), orders]  # [orders, few]
    best: Array = gaps[gaps.sum(1).argmin()]
    return best


def _require_fit(model: Representation, ground: Ground) -> None:
    """Refuse a world that is not in the plane, and one whose observations or actions the model does not read."""
    group, shape = model.model.group, tuple(ground.observation().shape[1:])
    if group.n != 2:
        raise ValueError(f"the positions have {group.n} numbers; only worlds in the plane can be played")
    if shape != model.config.observation_shape:
        raise ValueError(
            f"{ground.name} gives observations {shape}, and the model reads {model.config.observation_shape}; give the "
            "world that it was trained in"
        )


def _numbers(values: Array) -> str:
    return ", ".join(f"{x:.3f}" for x in values)
