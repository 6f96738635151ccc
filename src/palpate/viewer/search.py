"""Rows of a log: by number, by episode and frame, or by contact.

Legend: N triples.
"""

import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from palpate.data.transitions import Transitions

Array = NDArray[Any]
SURE = 0.9  # probability from which a model is sure of a contact, and below 1 - SURE, of none
NAMED = re.compile(r"\s*(\d{1,18})\s*(?::\s*(\d{1,18})\s*)?")  # ROW, or EPISODE:FRAME
LABELS = {
    "all": "all triples",
    "contact": "contact, by the model",
    "none": "no contact, by the model",
    "doubtful": "doubtful, by the model",
    "true contact": "contact, in truth",
    "true none": "no contact, in truth",
    "wrong": "model and truth differ",
}


class Matches(NamedTuple):
    """The rows that pass a filter, rising."""

    rows: NDArray[np.intp]

    def nearest(self, row: int) -> int | None:
        """The one that is nearest to a row; None if there are none."""
        return None if not len(self.rows) else int(self.rows[np.abs(self.rows - row).argmin()])

    def beside(self, row: int, step: int) -> int | None:
        """The next one after a row, or the last one before it, by the sign of `step`; None at the end."""
        found = self.rows[self.rows > row][:1] if step > 0 else self.rows[self.rows < row][-1:]
        return None if not len(found) else int(found[0])

    def random(self) -> int | None:
        return None if not len(self.rows) else int(random.choice(self.rows))


@final
class Search:
    """Finds rows of a log: by what a user types, a row or EPISODE:FRAME, and by a filter."""

    def __init__(self, triples: "Transitions", touched: Array | None = None) -> None:
        self.count, self._touched = len(triples), touched  # [N] bool, the true contacts
        self._episode: Array | None = None  # [N]
        self._frame: Array | None = None  # [N]
        if triples.log_rows is not None:
            self._episode, self._frame, _ = triples.log_rows
        elif triples.episode is not None:
            self._episode = triples.episode.numpy()
            self._frame = _counted(self._episode)

    def where(self, row: int) -> tuple[int, int] | None:
        """Episode and frame of a row; None if the log has no episodes."""
        if self._episode is None or self._frame is None:
            return None
        return int(self._episode[row]), int(self._frame[row])

    def find(self, text: str) -> int:
        """The row that a text names. With a stride, a frame between two rows belongs to the first."""
        match = NAMED.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is neither a row, such as 17, nor an episode and a frame, such as 3:17")
        first = int(match[1])
        if match[2] is None:
            if first >= self.count:
                raise ValueError(f"there is no row {first}; the rows are 0 to {self.count - 1}")
            return first
        return self._of(first, int(match[2]))

    def instead(self, text: str) -> str:
        """What is shown instead of a named frame that begins no triple; else empty. `find` must accept the text."""
        match, place = NAMED.fullmatch(text), self.where(self.find(text))
        if match is None or match[2] is None or place is None or int(match[2]) == place[1]:
            return ""
        return f"no triple begins with frame {int(match[2])}; shown is the one before"

    def _of(self, episode: int, frame: int) -> int:
        if self._episode is None or self._frame is None:
            raise ValueError("this log has no episodes; give a row")
        rows = np.flatnonzero(self._episode == episode)
        if not len(rows):
            numbers = np.unique(self._episode)
            raise ValueError(f"there is no episode {episode}; they are {numbers[0]} to {numbers[-1]}")
        frames = self._frame[rows]
        if not frames.min() <= frame <= frames.max():
            raise ValueError(f"episode {episode} has triples that begin with frames {frames.min()} to {frames.max()}")
        before = frames <= frame
        return int(rows[before][frames[before].argmax()])

    def filters(self, *, model: bool) -> dict[str, str]:
        """The filters that this log allows, with or without a model, and their labels."""
        true = self._touched is not None
        allowed = {"all": True, "wrong": model and true, "true contact": true, "true none": true}
        return {name: label for name, label in LABELS.items() if allowed.get(name, model)}

    def matching(self, name: str, contact: Array | None) -> Matches:
        """The rows that pass a filter. `contact` [N] are the model's probabilities, NaN where they are unknown."""
        p = np.full(self.count, np.nan) if contact is None else contact
        true = np.zeros(self.count, bool) if self._touched is None else self._touched
        found = {
            "all": np.ones(self.count, bool),
            "contact": p > SURE,
            "none": p < 1 - SURE,
            "doubtful": (p >= 1 - SURE) & (p <= SURE),
            "true contact": true,
            "true none": ~true,
            "wrong": ~np.isnan(p) & ((p > 0.5) != true),
        }
        return Matches(np.flatnonzero(found[name]))


def _counted(episode: Array) -> Array:
    """How many rows before it have the same episode, `[N]`."""
    order = np.argsort(episode, kind="stable")
    ordered = episode[order]
    place = np.empty(len(episode), np.int64)
    place[order] = np.arange(len(episode)) - np.searchsorted(ordered, ordered)
    return place
