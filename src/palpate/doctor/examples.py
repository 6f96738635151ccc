"""Rows of a log that show a finding.

Legend: N triples, b triples by which the short training run was judged, n dimension of the action, m dimension of W.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from palpate.contacts.split import SMALLEST
from palpate.data.transitions import Transitions
from palpate.doctor.arrays import contradicted, is_motion, moves
from palpate.doctor.frames import WORDS
from palpate.doctor.probe import RELATED, Trial, reached, stray
from palpate.findings import Finding
from palpate.groups.base import Group
from palpate.quality import boundary, examine

EXAMPLES = 8  # rows of a finding, at most
# Findings about the whole log: no row shows them better than another.
WHOLE = frozenset(
    (
        "too-few",
        "no-motion",
        "constant-observation",
        "flat",
        "one-dimension",
        "many-dimensions",
        "large-pictures",
        "never-turns",
    )
) | {"own-actions", "no-contacts", "objects-not-counted", "carried-scanner"}

ABOUT_FRAMES = tuple(name for name, _, _ in WORDS.values())

Shows = Mapping[str, Callable[[], list[int]]]


def examples(findings: Iterable[Finding], shows: Shows) -> dict[str, list[int]]:
    """The rows that show each of the findings; findings about the whole log are left out."""
    return {finding.name: shows[finding.name]() for finding in findings if finding.name in shows}


def first(found: np.ndarray) -> list[int]:
    """The first rows of a mask, or the rows with the largest values, without those of minus infinity."""
    if found.dtype == bool:
        rows: list[int] = np.flatnonzero(found)[:EXAMPLES].tolist()
        return rows
    order = np.argsort(-found, kind="stable")[:EXAMPLES]
    return [int(row) for row in order if found[row] > -np.inf]


def _first(found: Callable[[], np.ndarray]) -> list[int]:
    return first(found())


class Arrays:
    """Rows that show the findings of the arrays, from `fingerprints` [N, 2]."""

    def __init__(self, triples: Transitions, pair: np.ndarray, group: Group) -> None:
        self._action, self._pair = triples.action.numpy(), pair
        self._move, self._unit = moves(triples.action.double(), group)

    @property
    def shows(self) -> Shows:
        found: dict[str, Callable[[], np.ndarray]] = {
            "idle": lambda: ~self._moved(),
            "unchanged": lambda: (self._pair[:, 0] == self._pair[:, 1]) & self._moved(),
            "duplicates": self._duplicates,
            "contradictions": lambda: contradicted(self._pair, self._move, self._unit),
            "clipped-actions": self._extreme,
        }
        return {name: partial(_first, rows) for name, rows in found.items()}

    def _moved(self) -> np.ndarray:
        return is_motion(self._move, self._unit)

    def _duplicates(self) -> np.ndarray:
        whole = np.concatenate((self._pair, self._action.view(np.int32)), 1)
        _, group, count = np.unique(whole, axis=0, return_inverse=True, return_counts=True)
        return count[group.reshape(-1)] > 1

    def _extreme(self) -> np.ndarray:
        a = self._action
        extreme: np.ndarray = ((a == a.min(0)) | (a == a.max(0))).any(1)
        return extreme


class Probed:
    """Rows that show the findings of a short training run, out of those that it was judged by.

    `rows` are the rows of the log that the run received; `episode` [N] are the log's episodes, if they are long enough.
    """

    @torch.no_grad()
    def __init__(self, trial: Trial, rows: np.ndarray, episode: np.ndarray | None) -> None:
        seen = examine(trial.model, trial.held)
        assert seen is not None
        self._seen, self._trial, self._episode = seen, trial, episode
        self._rows = rows[trial.held_rows.numpy()]  # [b]
        self._w, w_next = (torch.cat([trial.model.scene(o)[:, 0] for o in side.split(256)]) for side in trial.held[::2])
        self._change = (self._w - w_next).square().sum(1).double()  # [b]
        self._visible = seen.visible[:, 0]
        self._contact = seen.contact[:, 0] & self._visible

    @property
    def shows(self) -> Shows:
        found: dict[str, Callable[[], Tensor]] = {
            "saturated-actions": self._short,
            "disconnected": self._strays,
            "no-lasting-scene": lambda: self._change,
            "few-contacts": lambda: self._moves() | self._contact,
            "no-two-classes": self._between_classes,
            "unexplained-contacts": self._unexplained,
            "hidden-object": lambda: ~self._visible,
            "unreachable": self._unreachable,
            "never-misses": lambda: self._contact,
            "corridor": self._ends,
        }
        found |= dict.fromkeys(
            ("not-displacements", "changing-scale", "shifted-actions", "target-actions", *ABOUT_FRAMES),
            self._unfollowed,
        )
        shows = {name: partial(self._of_log, rows) for name, rows in found.items()}
        return {**shows, "moved-between-episodes": self._first_of_episodes}

    def _of_log(self, found: Callable[[], Tensor]) -> list[int]:
        return [int(self._rows[row]) for row in first(found().numpy())]

    def _unfollowed(self) -> Tensor:
        """Distance of the agent from where the action would move it."""
        group, seen = self._trial.model.group, self._seen
        return group.distance2(seen.agent_next, group.act(seen.agent, self._trial.held.a.double()))

    def _short(self) -> Tensor:
        """How much of a long action is missing."""
        group, seen, a = self._trial.model.group, self._seen, self._trial.held.a.double()
        length2 = group.length2(a)
        moved = group.displacement(group.between(seen.agent, seen.agent_next))
        missing = length2 - (moved * group.displacement(a)).sum(1)
        return torch.where(length2 >= length2.quantile(0.8), missing, -torch.inf)

    def _strays(self) -> Tensor:
        count = len(self._contact)
        found = torch.zeros(count, dtype=torch.bool)
        outside = stray(self._trial.model.group, self._seen)
        half = len(outside) // 2  # the agent before the moves, and after them
        found[:half] = outside[:half] | outside[half:]
        return found

    def _moves(self) -> Tensor:
        """Whether the scene changes as much as if it were another one."""
        unrelated = (self._w - self._w.roll(1, 0)).square().sum(1).double()
        return self._change > unrelated.quantile(RELATED)

    def _between_classes(self) -> Tensor:
        """How near a distance is to the threshold."""
        threshold = self._trial.model.threshold()
        assert threshold is not None
        cut = threshold.value if threshold.on == "log" else float(np.log(max(threshold.value, SMALLEST)))
        return -(self._seen.scene[:, 0].clamp(min=SMALLEST).log() - cut).abs()

    def _unexplained(self) -> Tensor:
        """How far a path without contact enters the body, or a contact is away from it."""
        distance, visible = self._seen.distance[:, 0], self._visible
        radius = boundary(distance[visible], self._contact[visible]).radius
        wrong = torch.where(self._contact, distance - radius, radius - distance)
        return torch.where(visible & (wrong > 0), wrong, -torch.inf)

    def _unreachable(self) -> Tensor:
        found = reached(self._w, self._contact)
        return torch.zeros_like(self._contact) if found is None else ~found

    def _ends(self) -> Tensor:
        """Distance from the middle, along the corridor."""
        place = self._trial.model.group.position(self._seen.agent)
        centred = place - place.mean(0)
        along: Tensor = (centred @ torch.linalg.svd(centred, full_matrices=False).Vh[0]).abs()
        return along

    def _first_of_episodes(self) -> list[int]:
        if self._episode is None:
            return []
        return first(np.append(True, self._episode[1:] != self._episode[:-1]))
