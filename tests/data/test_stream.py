"""A stream from which more is drawn where one kind of triple is rare."""

import itertools
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from palpate.data.stream import JUDGED, POOL, Stream
from palpate.data.transitions import Batch

BATCH = 64


class States(NamedTuple):
    displacement: Tensor
    contact: Tensor


class Worlds:
    """Observations that are nothing but whether the triple is a contact."""

    device = torch.device("cpu")
    observation_shape = (1,)
    n = 2

    def __init__(self, share: float) -> None:
        self.share = share

    def sample(self, count: int, generator: torch.Generator) -> States:
        return States(torch.rand(count, 2, generator=generator), torch.rand(count, generator=generator) < self.share)

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        seen = states.contact[:, None].to(torch.uint8)
        return seen, seen


def truth(batch: Batch) -> Tensor:
    return batch.o[:, 0].bool()


def after(batches: int, share: float, *, least_contacts: float = 0.15, blind: bool = False) -> Stream:
    """A stream of which so many batches were drawn, with a reading after each."""
    stream = Stream(Worlds(share), BATCH, least_contacts=least_contacts)
    judge = (lambda batch: torch.zeros(len(batch.a), dtype=torch.bool)) if blind else truth
    stream.ask(judge)
    generator = torch.Generator().manual_seed(0)
    for _ in range(batches):
        stream.learn(judge(stream.draw(generator)))
        stream.adapt()
    return stream


def shares(stream: Stream, count: int = 50) -> Tensor:
    """Contacts in each of some batches."""
    generator = torch.Generator().manual_seed(1)
    return torch.stack([truth(stream.draw(generator)).float().mean() for _ in range(count)])


@pytest.mark.parametrize(("share", "chosen"), [(0.03, 4 * 0.03), (0.1, 4 * 0.1), (0.14, 0.5), (0.9, 0.6), (0.97, 0.88)])
def test_the_rare_are_chosen_up_to_half_a_batch(share: float, chosen: float) -> None:
    stream = after(2 * JUDGED, share)
    assert stream.pool == POOL
    assert shares(stream).mean() == pytest.approx(chosen, abs=0.03)
    assert stream.vitals() == {"contact_share": pytest.approx(share, abs=0.02), "pool": POOL}


def test_a_batch_is_never_more_than_half_rare() -> None:
    assert shares(after(2 * JUDGED, 0.14)).max() <= 0.5


@pytest.mark.parametrize(
    ("batches", "share", "options"),
    [
        (2 * JUDGED, 0.5, {}),
        (2 * JUDGED, 0.2, {}),
        (JUDGED - 1, 0.03, {}),  # too early to say
        (2 * JUDGED, 0.03, {"least_contacts": 0.0}),
        (2 * JUDGED, 0.03, {"blind": True}),  # a model that cannot tell
    ],
)
def test_else_they_are_taken_as_they_come(batches: int, share: float, options: dict[str, float]) -> None:
    stream = after(batches, share, **options)  # type: ignore[arg-type]
    assert stream.pool == 1
    assert shares(stream).mean() == pytest.approx(share, abs=0.03)
    assert stream.vitals() == {}


def test_what_was_rare_at_first_may_not_be_so_later() -> None:
    stream = after(2 * JUDGED, 0.03)
    stream._world.share = 0.4  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(3)
    for _ in range(2 * JUDGED):
        stream.learn(truth(stream.draw(generator)))
        stream.adapt()
    assert stream.pool == 1


def test_a_share_at_the_border_does_not_flicker() -> None:
    stream = after(0, 0.15)
    stream.ask(truth)
    generator, pools = torch.Generator().manual_seed(5), []
    for _ in range(40 * JUDGED):
        stream.learn(truth(stream.draw(generator)))
        stream.adapt()
        pools.append(stream.pool)
    assert sum(one != two for one, two in itertools.pairwise(pools)) <= 1


def test_its_memory_makes_another_stream_go_on_like_it() -> None:
    stream, other = after(JUDGED + 30, 0.03), after(0, 0.03)
    assert all(value.count_nonzero() for value in stream.memory().values())
    for name, value in other.memory().items():
        value.copy_(stream.memory()[name])
    assert other.vitals() == stream.vitals() != {}
    one, two = (torch.Generator().manual_seed(4) for _ in range(2))
    for _ in range(JUDGED):
        assert torch.equal(stream.draw(one).o, other.draw(two).o)
        stream.adapt()
        other.adapt()
        assert other.vitals() == stream.vitals()
