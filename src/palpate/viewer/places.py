"""The positions in a triple as a table: those of the model, and the true ones where they are known.

Legend: n dimension of positions, k objects.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from palpate.data.labelled import Truth
from palpate.viewer.marks import Marks, degrees

Array = NDArray[Any]
Line = tuple[str, str, str]  # name, value in o, value in o'


class Place(NamedTuple):
    """True positions in one observation; None where unknown."""

    agent: Array | None = None  # [n]
    objects: Array | None = None  # [k, n]
    angles: Array | None = None  # [k] radians

    @property
    def points(self) -> Array | None:
        """All positions, [1 + k, n]."""
        if self.agent is None or self.objects is None:
            return None
        return np.concatenate((self.agent[None], self.objects))


def true_places(truth: Truth | None, row: int) -> tuple[Place, Place]:
    """The true positions in o and in o' of a triple."""
    if truth is None:
        return Place(), Place()
    n = truth.agent.shape[-1]

    def place(agent: Any, objects: Any, angles: Any) -> Place:
        return Place(
            None if agent is None else agent[row].numpy(),
            None if objects is None else objects[row].reshape(-1, n).numpy(),
            None if angles is None else angles[row].reshape(-1).numpy(),
        )

    return (
        place(truth.agent, truth.object, truth.angle),
        place(truth.agent_next, truth.object_next, truth.angle_next),
    )


def table(marks: tuple[Marks, Marks], true: tuple[Place, Place]) -> list[Line]:
    """Lines of the table, without those that are unknown in both observations."""
    lines = [_line("agent", *(_numbers(each.agent) for each in marks))]
    lines.append(_line("agent, true", *(_numbers(each.agent) for each in true)))
    count = max((len(each.objects) for each in (*marks, *true) if each.objects is not None), default=0)
    for i in range(count):
        name = "object" if count == 1 else f"object {i + 1}"
        lines.append(_line(name, *(_numbers(_of(each.objects, i)) for each in marks)))
        lines.append(_line(f"{name}, long axis", *(degrees(_of(each.angles, i)) for each in marks)))
        lines.append(_line(f"{name}, visible", *(_share(_of(each.confidences, i)) for each in marks)))
    for i in range(count):  # the order of true objects is not that of the model
        name = "object, true" if count == 1 else f"true object {i + 1}"
        lines.append(_line(name, *(_numbers(_of(each.objects, i)) for each in true)))
        lines.append(_line(f"{name} angle", *(degrees(_of(each.angles, i)) for each in true)))
    return [line for line in lines if line[1] or line[2]]


def _line(name: str, before: str, after: str) -> Line:
    return name, before, after


def _of(values: Array | None, i: int) -> Any:
    return None if values is None or i >= len(values) else values[i]


def _numbers(values: Array | None) -> str:
    return "" if values is None else ", ".join(f"{x:.3f}" for x in values)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
