"""The rounds of an exploration: how many triples each ends with, and the table of what each found."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from palpate.collecting.blocks import BLOCK_ROWS
from palpate.disk import from_json, write_whole

FEWEST = 2 * BLOCK_ROWS  # triples of the first round: fewer show hardly any contact
RANDOM, CHOSEN = "random", "chosen"


def stops(num: int, rounds: int, first: int | None) -> list[int]:
    """Number of triples at the end of each round: equal factors from `first` to `num`, in whole blocks.

    By default each round doubles the number of triples, from at least `FEWEST`.
    """
    begin = max(num / 2**rounds, FEWEST) if first is None else first
    if begin <= 0:
        raise ValueError(f"first is {first}; allowed are whole numbers from 1")
    if begin > num - BLOCK_ROWS:
        raise ValueError(
            f"num is {num}, but the first round alone has {begin:.0f} triples; num must be at least "
            f"{begin + BLOCK_ROWS:.0f}. Increase num, or set a smaller first"
        )
    wanted = (begin * (num / begin) ** (i / rounds) for i in range(rounds))
    found: list[int] = []
    for each in wanted:
        stop = max(BLOCK_ROWS * round(each / BLOCK_ROWS), (found[-1] if found else 0) + BLOCK_ROWS)
        if stop < num:
            found.append(stop)
    return [*found, num]


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round: its triples, and the quality of the model that was trained on all triples so far."""

    round: int
    triples: int  # so far
    moves: str  # random or chosen; random with the reason if a model was there to choose
    contact_share: float | None
    error: float | None  # label-free, in the action's unit
    verdict: str | None
    steering: float | None  # share of the displacements' variance that commands explain
    l_test: float | None  # with test triples
    then: str  # the moves of the next round

    @staticmethod
    def heading() -> str:
        return f"{'round':>5} {'triples':>8} {'contacts':>9} {'error':>9} {'L_test':>9}  {'verdict':<18} moves"

    def __str__(self) -> str:
        share = "-" if self.contact_share is None else f"{self.contact_share:.0%}"
        error, l_test = ("-" if x is None else f"{x:.2g}" for x in (self.error, self.l_test))
        return (
            f"{self.round:>5} {self.triples:>8,} {share:>9} {error:>9} {l_test:>9}  {self.verdict or '-':<18} "
            f"{self.moves}"
        )


class Table:
    """The rounds so far, in a file of JSON lines that is written whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_bytes().splitlines() if path.exists() else []
        self.rounds = [self._parsed(number, line) for number, line in enumerate(lines)]

    def __len__(self) -> int:
        return len(self.rounds)

    def require_complete(self, ends: Sequence[int], rows: int) -> None:
        """Refuse a file that lacks rounds: `rows` triples are joined, and a round ends with each number of `ends`."""
        if [made.triples for made in self.rounds] != list(ends[: len(self)]):
            raise self._damaged("its rounds are not those of this exploration")
        if len(self) < len(ends) and rows > ends[len(self)]:
            raise self._damaged(f"it has {len(self)} rounds, which is too few for {rows:,} triples")

    def add(self, made: Round) -> None:
        self.rounds.append(made)
        write_whole(self._path, "".join(f"{json.dumps(asdict(each))}\n" for each in self.rounds).encode())

    def _parsed(self, number: int, line: bytes) -> Round:
        try:
            return Round(**from_json(line))
        except (ValueError, TypeError) as error:
            raise self._damaged(f"line {number + 1} is not a round") from error

    def _damaged(self, what: str) -> ValueError:
        """The models of earlier rounds are gone, so the rounds cannot be repeated."""
        return ValueError(
            f"{self._path} is damaged: {what}. The triples beside it are kept: train on them (palpate.fit, palpate "
            "train), or start again (overwrite=True, --force)"
        )


def reading(quality: Mapping[str, Any] | None, name: str) -> Any:
    return None if quality is None else quality[name]


def trusted(quality: Mapping[str, Any] | None) -> bool:
    """Whether a model may choose moves. One that has not found the contacts would choose worse than at random."""
    return reading(quality, "verdict") in ("good", "doubtful")


def moves_of(rounds: Sequence[Round]) -> str:
    """The moves of the round after these."""
    return rounds[-1].then if rounds else RANDOM
