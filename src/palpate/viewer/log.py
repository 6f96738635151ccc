"""A log: one triple at a time, with a model's outputs. Only the shown triple is encoded."""

import threading
from typing import NamedTuple, final

import numpy as np
from torch import Tensor

from palpate.config import GroupName, ObjectiveConfig
from palpate.data.arrays import count_views
from palpate.data.labelled import Truth
from palpate.data.transitions import Batch, Transitions
from palpate.envs.registration import FIELDS
from palpate.groups import group_of_actions
from palpate.material import known_group
from palpate.networks import few_threads, one_thread
from palpate.pictures import backdrop, learned_projection, spread
from palpate.projection import MOST_PICTURES, Homography
from palpate.representation import Representation
from palpate.viewer.answers import Answer, aligned, estimate, explained, require_fit
from palpate.viewer.marks import Array, Marks, as_picture, data_uri, svg
from palpate.viewer.places import Line, Place, table, true_places
from palpate.viewer.search import Search

NO_PROJECTION = (
    "Positions are not drawn on the pictures: no projection was found from them to the pixels that change with them."
)


class Panel(NamedTuple):
    """One observation for the page."""

    title: str
    source: str  # of the picture; empty for a vector
    marks: str  # SVG in the picture's pixels
    values: list[float]  # of a vector; empty for a picture


class ShownTriple(NamedTuple):
    row: int
    panels: list[Panel]  # o and o'
    plane: str  # SVG of the plane, or of the action without a model; empty if there is none
    touched: bool | None  # the true contact, if it is known
    action: list[float]
    answer: Answer | None  # None without a model
    places: list[Line]  # positions in o and o'


class _Kept(NamedTuple):
    """The triple that was shown last. It is shown twice: at once, and with the outputs about contact."""

    key: tuple[int, int]  # row and version
    batch: Batch
    shown: ShownTriple


@final
class Log:
    """Triples, a model and true states, if there are any. True states align the model, and are drawn as rings."""

    def __init__(
        self,
        triples: Transitions,
        model: Representation | None = None,
        truth: Truth | None = None,
        group: GroupName | None = None,
    ) -> None:
        """`group` is that of the actions; by default the model's, else what the log records."""
        if truth is not None and truth.angle is not None and (truth.angle == truth.angle.reshape(-1)[0]).all():
            truth = truth._replace(angle=None, angle_next=None)  # an object that never turns
        self.triples, self.model, self.truth = triples, model, truth
        known = None if truth is None else truth.contacts
        self.touched: Array | None = None if known is None else known.any(1).numpy()  # [N] in truth
        self.search = Search(triples, self.touched)
        self.projection: Homography | None = None  # of the learned plane, once it is found
        self._borders: Array | None = None  # of the triple before; they are the same for bodies that do not turn
        self.note = ""  # about the alignment
        self.aligned = False  # whether the model is in the frame of the true positions
        self._prepared, self._preparing = False, threading.Lock()  # several pages may ask at once
        self._version = 0  # counts the changes of model and projection
        self._kept: _Kept | None = None
        if model is not None:
            require_fit(model, triples)
        self.scene = _scene(triples, model, group)
        self._group = group_of_actions(triples.action_shape, self.scene)
        self._longest = float(self._group.displacement(triples.action).abs().max())  # largest number of any move

    def __len__(self) -> int:
        return len(self.triples)

    def prepare(self) -> bool:
        """Align the model with true positions, and find the projection of the plane; takes about a second.

        Returns whether this changes how a triple is shown.
        """
        with self._preparing:
            if not self._prepared:
                self._prepared = True
                if self.model is not None or self.truth is not None:
                    with few_threads():
                        self._prepare()
                    self._version += 1
        return self._version > 0

    def _prepare(self) -> None:
        rows = spread(self.triples, MOST_PICTURES)
        o, attributes = self.triples.rows(rows).o, self.triples.attributes
        if self.truth is not None and (self.model is None or self.model.model.tells_apart):
            truth = Truth(**{name: x[rows] for name, x in self.truth.known().items()})
            if self.model is not None:
                self.model, self.note = aligned(self.model, {"observation": o, "agent": truth.agent})
            self.aligned = True
            if o.dim() == 4 and attributes.get("environment") not in FIELDS:  # whose figure is from above
                shown = backdrop(attributes, o, truth)
                self.projection = None if shown is None else shown.project
        if self.projection is None and self.model is not None:
            self.projection = learned_projection(self.model, o, attributes)
        if self.projection is None and o.dim() == 4:
            self.note = f"{self.note}. {NO_PROJECTION}" if self.note else NO_PROJECTION

    def row(self, number: float | None) -> int:
        """The nearest row number that exists."""
        wanted = int(number) if number is not None and np.isfinite(number) else 0
        return min(max(wanted, 0), len(self) - 1)

    def show(self, row: int, *, whole: bool = True) -> ShownTriple:
        """One triple for the page. `whole=False` is faster and leaves out the outputs about contact."""
        kept, key = self._kept, (row, self._version)
        with one_thread():
            if kept is None or kept.key != key:
                batch = self.triples.rows([row])
                self._kept = kept = _Kept(key, batch, self._drawn(row, batch))
            shown = kept.shown
            if not whole or self.model is None or shown.answer is None:
                return shown
            return shown._replace(answer=explained(self.model, kept.batch, shown.answer))

    def _drawn(self, row: int, batch: Batch) -> ShownTriple:
        """A triple with its pictures and the estimates."""
        found = None if self.model is None else estimate(self.model, batch, self._borders)
        self._borders = None if found is None else found.before.borders
        marks = (Marks(), Marks()) if found is None else (found.before, found.after)
        true = true_places(self.truth, row)
        sides = zip(("o", "o'"), (batch.o[0], batch.o_next[0]), marks, true, strict=True)
        return ShownTriple(
            row=row,
            panels=[self._panel(*side) for side in sides],
            plane=self._arrow(batch) if found is None else plane_svg(found),
            touched=None if self.touched is None else bool(self.touched[row]),
            action=batch.a[0].tolist(),
            answer=found,
            places=table(marks, true),
        )

    def _arrow(self, batch: Batch) -> str:
        """The displacement of a triple's action; along the agent's own axes ahead is up."""
        move = self._group.displacement(batch.a)[0].numpy()
        ahead_is_up = self._group.turns and not self._group.own_zero and len(move) == 2
        return arrow_svg(np.array([-move[1], move[0]]) if ahead_is_up else move, self._longest)

    def _panel(self, title: str, o: Tensor, marks: Marks, true: Place) -> Panel:
        if o.dim() == 1:
            return Panel(title, "", "", o.tolist())
        picture, drawn = as_picture(o, self.triples.attributes), ""
        if self.projection is not None:
            width = picture.shape[1] // count_views(tuple(o.shape), self.triples.attributes)
            drawn = svg(marks._replace(true=true.points if self.aligned else None), self.projection, width)
        return Panel(title, data_uri(picture), drawn, [])


def _scene(triples: Transitions, model: Representation | None, group: GroupName | None) -> ObjectiveConfig:
    """What the actions are."""
    if model is not None:
        objective = model.config.objective
        return ObjectiveConfig(group=objective.group, motion=objective.motion)
    found = ObjectiveConfig(group=group or known_group(triples)[0] or "translations")  # type: ignore[arg-type]
    found.dimension(triples.n)  # refuses actions that are not the group's
    return found


PLANE_SIDE = 260  # of the plane's drawing, in its own units


def plane_svg(found: Answer) -> str:
    """A drawing of a triple in the learned plane: the agent's path, and the bodies before and after it."""
    before, after = found.before, found.after
    if found.path is None or found.path.shape[1] != 2:
        return ""
    parts = [found.path]
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
    drawn = svg(before._replace(path=found.path), project, PLANE_SIDE)
    moved = svg(Marks(objects=after.objects, borders=after.borders, angles=after.angles), project, PLANE_SIDE)
    return _plane(f'<g opacity="0.4">{moved}</g>{drawn}', "the learned plane")


def arrow_svg(action: Array, longest: float) -> str:
    """A drawing of a displacement of two numbers, the first to the right and the second up. `longest`, the largest
    number of any displacement of the log, sets the scale."""
    if len(action) != 2:
        return ""
    reach = 1.2 * max(longest, 1e-9)
    project = Homography.of_extent((-reach, reach, -reach, reach), PLANE_SIDE, PLANE_SIDE)
    return _plane(svg(Marks(path=np.stack((0 * action, action))), project, PLANE_SIDE), "the action")


def _plane(drawn: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {PLANE_SIDE} {PLANE_SIDE}" class="plane" role="img" aria-label="{label}">'
        f'<rect width="100%" height="100%" fill="#3b4252"/>{drawn}</svg>'
    )
