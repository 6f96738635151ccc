"""Triples with true states, for evaluation and for the supervised model only.

Only modules that evaluate, the supervised model and `collecting.collect`, which records true states, may import this
module. So supervision cannot leak; `tests/test_layering.py` checks the imports.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, final

import h5py
import numpy as np
import torch
from torch import Tensor

from palpate.data.files import OF_AGENT, member, new_file, read_from
from palpate.data.sources import Resident, Source
from palpate.data.stream import Stream, World
from palpate.data.transitions import Batch, Index, Transitions, positions
from palpate.rotations import attitude

Values = TypeVar("Values", Tensor, Tensor | None)


class Truth(NamedTuple):
    """True states of N triples, in the action's unit; None where unknown.

    For k objects, all fields except those of the agent have an object axis: positions [N, k, n], others [N, k].
    """

    agent: Tensor  # [N, n]
    object: Tensor  # [N, n]
    angle: Tensor | None = None  # [N] of the object, radians
    contact: Tensor | None = None  # [N] bool: the agent touched the object
    agent_next: Tensor | None = None  # [N, n]
    object_next: Tensor | None = None  # [N, n]
    angle_next: Tensor | None = None  # [N]
    visible: Tensor | None = None  # [N] bool: the object can be seen in o
    heading: Tensor | None = None  # [N] direction in which the agent faces in the plane, radians
    heading_next: Tensor | None = None  # [N]
    rotation: Tensor | None = None  # [N, 3, 3] its columns are the agent's axes in space
    rotation_next: Tensor | None = None  # [N, 3, 3]

    @property
    def attitude(self) -> Tensor | None:
        """The agent's axes in the common frame, the columns of `[N, n, n]`."""
        return attitude(self.heading, self.rotation)

    @property
    def objects(self) -> Tensor:
        """The objects' positions, `[N, k, n]`."""
        return _with_axis(self.object, 3)

    @property
    def objects_next(self) -> Tensor | None:
        """The objects' positions in o', `[N, k, n]`."""
        return _with_axis(self.object_next, 3)

    def squeezed(self) -> "Truth":
        """Without the object axis, if there is one object."""
        if self.object.dim() != 3 or self.object.shape[1] != 1:
            return self
        known = self.known()
        return Truth(**{name: x if name.startswith(OF_AGENT) else x.squeeze(1) for name, x in known.items()})

    @property
    def angles(self) -> Tensor | None:
        """The objects' angles, `[N, k]`."""
        return _with_axis(self.angle, 2)

    @property
    def angles_next(self) -> Tensor | None:
        """The objects' angles in o', `[N, k]`."""
        return _with_axis(self.angle_next, 2)

    @property
    def contacts(self) -> Tensor | None:
        """Contacts of each object, `[N, k]`."""
        return _with_axis(self.contact, 2)

    @property
    def visibles(self) -> Tensor | None:
        """Which objects can be seen in o, `[N, k]`."""
        return _with_axis(self.visible, 2)

    def known(self) -> dict[str, Tensor]:
        return {name: x for name, x in self._asdict().items() if x is not None}


def _with_axis(x: Values, dimensions: int) -> Values:
    """Values [N, ...] of one object, or [N, k, ...] of several, with the axis of the objects."""
    return x if x is None or x.dim() == dimensions else x[:, None]


class LabelledBatch(NamedTuple):
    """A batch and the true states of its rows, None where unknown; those of the k objects have an object axis."""

    o: Tensor  # [b, ...]
    a: Tensor  # [b, n]
    o_next: Tensor  # [b, ...]
    agent: Tensor  # [b, n]
    objects: Tensor  # [b, k, n]
    angles: Tensor | None  # [b, k]
    agent_next: Tensor | None  # [b, n]
    objects_next: Tensor | None  # [b, k, n]
    angles_next: Tensor | None  # [b, k]


@final
class Labelled:
    """Triples and, row for row, their true states."""

    def __init__(self, transitions: Transitions, truth: Truth) -> None:
        self.transitions = transitions
        fields = {name: _as_tensor(name, x) for name, x in truth.known().items()}
        self.truth = Truth(**fields).squeezed()
        fields = self.truth.known()
        objects = self.truth.object.shape[1:-1] if self.truth.object.dim() == 3 else ()  # (k,) with an object axis
        # The actions of an agent that turns have as many numbers as the group says, not as a position.
        planar = self.truth.heading is not None and self.truth.agent.shape[-1:] == (2,)
        dimension = 2 if planar else 3 if self.truth.rotation is not None else transitions.n
        for name, x in fields.items():
            per_object = () if name.startswith(OF_AGENT) else objects
            per_row: tuple[int, ...] = (dimension,) if name.startswith(("agent", "object")) else ()
            per_row = (3, 3) if name.startswith("rotation") else per_row
            shape = (len(transitions), *per_object, *per_row)
            if x.shape != shape:
                known = {(3, 2): "heading", (6, 3): "rotation"}.get((*per_row, *x.shape[-1:]))
                hint = f"; if the agent turns, give its true {known} too" if known else ""
                raise ValueError(f"truth {name} has shape {tuple(x.shape)}; these triples need {shape}{hint}")
            bad = ~x.isfinite().flatten(1).all(1) if x.dim() > 1 else ~x.isfinite()
            if bad.any():
                row = int(bad.int().argmax())
                raise ValueError(f"truth {name} is {x[row].tolist()} in row {row}; all values must be finite")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Triples and true states in an HDF5 file; the observations stay on disk."""
        with ExitStack() as on_error:
            transitions = on_error.enter_context(Transitions.open(path))
            with read_from(Path(path)), h5py.File(path, "r") as file:
                labelled = cls(transitions, _read_truth(file))
            on_error.pop_all()
        return labelled

    def close(self) -> None:
        """Close the file, for all subsets too."""
        self.transitions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.transitions)

    def __repr__(self) -> str:
        return f"Labelled({self.transitions!r}, truth: {', '.join(self.truth.known())})"

    def subset(self, index: Index) -> Self:
        """A set of these rows; the observations are not copied."""
        rows = positions(index, len(self))
        truth = Truth(**{name: x[rows] for name, x in self.truth.known().items()})
        return type(self)(self.transitions.subset(rows), truth)

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Two disjoint random subsets with the same rows as `Transitions.split`."""
        first, second = self.transitions.split_rows(fraction, seed)
        return self.subset(first), self.subset(second)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write an HDF5 file with the group `truth`, which `Transitions.open` does not read."""
        triples, truth = self.transitions, self.truth.known()
        with new_file(path, triples.attributes, overwrite=overwrite) as table:
            for block in triples.blocks():
                table.append(triples.columns(block) | {f"truth/{name}": x[block].numpy() for name, x in truth.items()})


@final
class LabelledResident(Source[LabelledBatch]):
    """`Resident` with the true states of the drawn rows."""

    def __init__(self, labelled: Labelled, device: torch.device | str) -> None:
        self._resident = Resident(labelled.transitions, device)
        self._truth = Truth(**{name: x.to(device) for name, x in labelled.truth.known().items()})

    def draw(self, count: int, generator: torch.Generator) -> LabelledBatch:
        rows = self._resident.choose(count, generator)
        truth = Truth(**{name: x.index_select(0, rows) for name, x in self._truth.known().items()})
        o, a, o_next = self._resident.take(rows)[:3]
        return _labelled_batch(Batch(o, a, o_next), truth)


@final
class LabelledStream(Source[LabelledBatch]):
    """`Stream` with true states: the world's states must have fields named as in `Truth`."""

    def __init__(self, world: World) -> None:
        self._stream = Stream(world)

    def draw(self, count: int, generator: torch.Generator) -> LabelledBatch:
        states = self._stream.world.sample(count, generator)
        truth = Truth(**{name: getattr(states, name, None) for name in Truth._fields})  # type: ignore[arg-type]
        return _labelled_batch(self._stream.triples(states), truth)


def _labelled_batch(batch: Batch, truth: Truth) -> LabelledBatch:
    return LabelledBatch(*batch, **{name: getattr(truth, name) for name in LabelledBatch._fields[3:]})


def _as_tensor(name: str, values: Any) -> Tensor:
    values = values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)
    if name in ("contact", "visible"):
        if values.dtype != bool:
            raise ValueError(f"truth {name} has dtype {values.dtype}; allowed is bool: convert it with .astype(bool)")
        return torch.from_numpy(values.copy())
    if values.dtype.kind not in "iuf":
        raise ValueError(f"truth {name} has dtype {values.dtype}; allowed are real numbers")
    return torch.from_numpy(values.astype(np.float32))


def _read_truth(file: h5py.File) -> Truth:
    group = member(file, "truth")
    if not isinstance(group, h5py.Group):
        raise ValueError(
            "there is no group 'truth'; `palpate collect` and Labelled.save write one. Transitions.open needs none"
        )
    held = {name: member(group, name) for name in Truth._fields}
    fields = {name: found[...] for name, found in held.items() if isinstance(found, h5py.Dataset)}
    missing = [name for name in ("agent", "object") if name not in fields]
    if missing:
        there = ", ".join(sorted(group)) or "nothing"
        raise ValueError(f"the group 'truth' has no dataset {missing[0]!r}; it holds {there}")
    return Truth(**fields)
