"""A log: one triple at a time, with a model's outputs. Only the shown triple is encoded."""

from typing import NamedTuple, final

import numpy as np

from palpate.data.arrays import count_views
from palpate.data.labelled import Truth
from palpate.data.transitions import Transitions
from palpate.envs.registration import SOCCER
from palpate.pictures import backdrop, learned_projection, spread
from palpate.projection import MOST_PICTURES, Homography
from palpate.representation import Representation
from palpate.viewer.answers import Answer, aligned, answer
from palpate.viewer.marks import Array, Marks, as_picture, data_uri, svg


class Panel(NamedTuple):
    """One observation for the page."""

    title: str
    source: str  # of the picture; empty for a vector
    marks: str  # SVG in the picture's pixels
    values: list[float]  # of a vector; empty for a picture


class ShownTriple(NamedTuple):
    row: int
    panels: list[Panel]  # o and o'
    plane: str  # SVG of the plane; empty if there is none
    touched: bool | None  # the true contact, if it is known
    action: list[float]
    answer: Answer | None  # None without a model


@final
class Log:
    """Triples, and a model if there is one. Known true states align the model, and are drawn as rings."""

    def __init__(self, triples: Transitions, model: Representation | None = None, truth: Truth | None = None) -> None:
        self.triples, self.model, self.truth = triples, model, truth
        self.projection: Homography | None = None  # of the learned plane, once it is found
        self._borders: Array | None = None  # of the triple before; they are the same for bodies that do not turn
        self.note = ""  # about the alignment
        self.aligned = False  # whether the model is in the frame of the true positions
        if model is not None and (model.config.observation_shape, model.config.n) != (
            triples.observation_shape,
            triples.n,
        ):
            raise ValueError(
                f"the triples have observations {triples.observation_shape} and actions of {triples.n} numbers; this "
                f"model reads {model.config.observation_shape} and {model.config.n}"
            )

    def __len__(self) -> int:
        return len(self.triples)

    def project(self) -> bool:
        """Find the projection of the learned plane from some pictures; takes about a second."""
        if self.model is None or self.projection is not None:
            return self.projection is not None
        rows = spread(self.triples, MOST_PICTURES)
        o, attributes = self.triples.rows(rows).o, self.triples.attributes
        if self.truth is not None and self.model.model.tells_apart and attributes.get("environment") not in SOCCER:
            truth = Truth(**{name: x[rows] for name, x in self.truth.known().items()})
            shown = backdrop(attributes, o, truth)
            if shown is not None:
                self.model, self.note = aligned(self.model, {"observation": o, "agent": truth.agent})
                self.projection, self.aligned = shown.project, True
                return True
        self.projection = learned_projection(self.model, o, attributes)
        return self.projection is not None

    def row(self, number: float | str | None) -> int:
        """The nearest row number that exists."""
        try:
            wanted = int(float(number or 0))
        except (ValueError, OverflowError):
            wanted = 0
        return min(max(wanted, 0), len(self) - 1)

    def show(self, row: int, *, whole: bool = True) -> ShownTriple:
        """One triple for the page. `whole=False` is faster and leaves out the outputs about contact."""
        batch = self.triples.rows([row])
        found = None if self.model is None else answer(self.model, batch, whole=whole, borders=self._borders)
        self._borders = None if found is None else found.before.borders
        panels = []
        for title, o, marks, late in (
            ("o", batch.o[0], found and found.before, False),
            ("o'", batch.o_next[0], found and found.after, True),
        ):
            if o.dim() == 1:
                panels.append(Panel(title, "", "", o.tolist()))
                continue
            picture, drawn = as_picture(o, self.triples.attributes), ""
            if marks and self.projection is not None:
                views = count_views(tuple(o.shape), self.triples.attributes)
                marks = marks._replace(true=self._true(row, late))
                drawn = svg(marks, self.projection, picture.shape[1] // views)
            panels.append(Panel(title, data_uri(picture), drawn, []))
        plane = "" if found is None else plane_svg(found)
        return ShownTriple(row, panels, plane, self._touched(row), batch.a[0].tolist(), found)

    def _true(self, row: int, late: bool) -> Array | None:
        """The true positions in o or in o', `[m, 2]`."""
        if self.truth is None or not self.aligned:
            return None
        truth = self.truth
        agent, objects = (truth.agent_next, truth.object_next) if late else (truth.agent, truth.object)
        if agent is None or objects is None:
            return None
        return np.concatenate([x[row].reshape(-1, 2).numpy() for x in (agent, objects)])

    def _touched(self, row: int) -> bool | None:
        known = None if self.truth is None else self.truth.contacts
        return None if known is None else bool(known[row].any())


PLANE_SIDE = 260  # of the plane's drawing, in its own units


def plane_svg(found: Answer) -> str:
    """A drawing of a triple in the learned plane: the agent's path, and the bodies before and after it."""
    before, after = found.before, found.after
    if before.agent is None or len(before.agent) != 2:
        return ""
    path = np.stack((before.agent, before.agent + found.action))
    parts = [path]
    for marks in (before, after):
        if marks.objects is not None and marks.objects.shape[1] == 2:
            parts.append(marks.objects)
            if marks.borders is not None:
                parts.append((marks.objects[:, None] + marks.borders).reshape(-1, 2))
    points = np.concatenate(parts)
    low, high = points.min(0), points.max(0)
    middle, reach = (low + high) / 2, max(float((high - low).max()) / 2 * 1.12, 1e-9)
    extent = (middle[0] - reach, middle[0] + reach, middle[1] - reach, middle[1] + reach)
    project = Homography.of_extent(extent, PLANE_SIDE, PLANE_SIDE)
    drawn = svg(before._replace(path=path), project, PLANE_SIDE)
    moved = svg(Marks(objects=after.objects, borders=after.borders), project, PLANE_SIDE)
    return (
        f'<svg viewBox="0 0 {PLANE_SIDE} {PLANE_SIDE}" class="plane" role="img" aria-label="the learned plane">'
        f'<rect width="100%" height="100%" fill="#3b4252"/><g opacity="0.4">{moved}</g>{drawn}</svg>'
    )
