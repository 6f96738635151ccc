"""A stream from which more is drawn where one kind of triple is rare."""

import itertools
from typing import Any, NamedTuple

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


def no_doubts(o: Tensor, moves: Tensor) -> Tensor:
    raise AssertionError("nobody probes here")


def after(batches: int, share: float, *, least_contacts: float = 0.15, blind: bool = False) -> Stream:
    """A stream of which so many batches were drawn, with a reading after each."""
    stream = Stream(Worlds(share), BATCH, least_contacts=least_contacts)
    judge = (lambda batch: torch.zeros(len(batch.a), dtype=torch.bool)) if blind else truth
    stream.ask(judge, no_doubts)
    generator = torch.Generator().manual_seed(0)
    for _ in range(batches):
        stream.learn(judge(stream.draw(generator)))
        stream.adapt(0.0)
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
        stream.adapt(0.0)
    assert stream.pool == 1


def test_a_share_at_the_border_does_not_flicker() -> None:
    stream = after(0, 0.15)
    stream.ask(truth, no_doubts)
    generator, pools = torch.Generator().manual_seed(5), []
    for _ in range(40 * JUDGED):
        stream.learn(truth(stream.draw(generator)))
        stream.adapt(0.0)
        pools.append(stream.pool)
    assert sum(one != two for one, two in itertools.pairwise(pools)) <= 1


def test_its_memory_makes_another_stream_go_on_like_it() -> None:
    stream, other = after(JUDGED + 30, 0.03), after(0, 0.03)
    assert all(value.count_nonzero() for name, value in stream.memory().items() if name != "probed")
    for name, value in other.memory().items():
        value.copy_(stream.memory()[name])
    assert other.vitals() == stream.vitals() != {}
    one, two = (torch.Generator().manual_seed(4) for _ in range(2))
    for _ in range(JUDGED):
        assert torch.equal(stream.draw(one).o, other.draw(two).o)
        stream.adapt(0.0)
        other.adapt(0.0)
        assert other.vitals() == stream.vitals()


class Lines(Worlds):
    """An agent at 0 that goes along two axes; what it sees is how far along the first it went, in steps of 0.01."""

    def reset(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.zeros(count, 1, dtype=torch.uint8)

    def render(self, scene: Tensor) -> Tensor:
        return scene

    def moves(self, scene: Tensor, count: int, generator: torch.Generator) -> Tensor:
        return torch.rand(len(scene), count, 2, generator=generator)

    def step(self, scene: Tensor, displacement: Tensor, generator: torch.Generator) -> States:
        return States(displacement, displacement[:, 0] > 0.7)


def near_the_edge(o: Tensor, moves: Tensor) -> Tensor:
    return -(moves[..., 0] - 0.7).abs()


class TestProbing:
    @staticmethod
    def probing(share: float, batches: int = 2 * JUDGED, *, over: float = 0.5, blind: bool = False) -> Stream:
        stream = Stream(Lines(0.5), BATCH, probing=share)
        judge = (lambda batch: torch.zeros(len(batch.a), dtype=torch.bool)) if blind else truth
        stream.ask(judge, near_the_edge)
        generator = torch.Generator().manual_seed(0)
        for _ in range(batches):
            stream.learn(judge(stream.draw(generator)))
            stream.adapt(over)
        return stream

    def test_the_most_doubtful_of_some_moves_is_taken(self) -> None:
        stream = self.probing(0.25)
        generator = torch.Generator().manual_seed(1)
        drawn = [stream.draw(generator) for _ in range(20)]
        assert {len(batch.a) for batch in drawn} == {BATCH}
        first, rest = BATCH // 4, BATCH - BATCH // 4
        chosen = torch.cat([batch.a[:first, 0] for batch in drawn])
        # The nearest of 32 uniform numbers to a point is 1/66 away on average, and as often beyond it as before.
        assert (chosen - 0.7).abs().mean() == pytest.approx(1 / 66, rel=0.15)
        assert torch.cat([truth(batch)[:first] for batch in drawn]).float().mean() == pytest.approx(0.5, abs=0.1)
        assert torch.equal(torch.cat([truth(batch)[:first] for batch in drawn]), chosen > 0.7)
        assert torch.cat([batch.a[-rest:, 0] for batch in drawn]).mean() == pytest.approx(0.5, abs=0.05)

    @pytest.mark.parametrize(
        ("share", "batches", "options"),
        [
            (0.0, 2 * JUDGED, {}),
            (0.25, JUDGED - 1, {}),  # too early to say
            (0.25, 2 * JUDGED, {"over": 0.29}),
            (0.25, 2 * JUDGED, {"blind": True}),  # a model that cannot tell contacts knows no borders
        ],
    )
    def test_else_moves_are_random(self, share: float, batches: int, options: dict[str, Any]) -> None:
        stream = self.probing(share, batches, **options)
        assert stream.way == (1, 0)
        drawn = torch.cat([stream.draw(torch.Generator().manual_seed(seed)).a[:, 0] for seed in range(20)])
        assert drawn.mean() == pytest.approx(0.5, abs=0.03)

    def test_its_memory(self) -> None:
        stream, other = self.probing(0.25), self.probing(0.25, 0)
        assert stream.way == (1, BATCH // 4) != other.way
        assert (stream.vitals(), other.vitals()) == ({"probing": 0.25}, {})
        for name, value in other.memory().items():
            value.copy_(stream.memory()[name])
        one, two = (stream.draw(torch.Generator().manual_seed(4)) for stream in (stream, other))
        assert torch.equal(one.a, two.a)

    def test_moves_that_were_chosen_do_not_say_how_common_contacts_are(self) -> None:
        """Half of them are contacts, in a world where those are rare."""
        stream = self.probing(0.5)
        stream._world.share = 0.03  # type: ignore[attr-defined]
        stream._least_contacts = 0.15
        generator = torch.Generator().manual_seed(6)
        for _ in range(4 * JUDGED):
            stream.learn(truth(stream.draw(generator)))
            stream.adapt(0.5)
        assert stream.way == (POOL, BATCH // 2)

    def test_contacts_that_were_told_before_it_is_time_are_enough(self) -> None:
        stream = self.probing(0.25, JUDGED, over=0.29)
        assert stream.way == (1, 0)
        stream.adapt(0.3)
        assert stream.way == (1, BATCH // 4)

    @pytest.mark.parametrize("share", [0.5, 0.99, 0.999])
    def test_some_moves_stay_random(self, share: float) -> None:
        assert self.probing(share).way[1] == min(round(share * BATCH), BATCH - 1)

    def test_for_a_last_fit_nearly_all_are_chosen_from_more(self) -> None:
        stream, before = self.probing(0.25), self.probing(0.25)
        generator = torch.Generator().manual_seed(1)
        drawn = [stream.last(generator) for _ in range(20)]
        assert {len(batch.a) for batch in drawn} == {BATCH}
        chosen = torch.cat([batch.a[: int(0.9 * BATCH), 0] for batch in drawn])
        assert (chosen - 0.7).abs().mean() == pytest.approx(1 / 258, rel=0.15)
        assert all(torch.equal(value, before.memory()[name]) for name, value in stream.memory().items())

    def test_not_where_none_were_chosen_before(self) -> None:
        stream = self.probing(0.25, 0)
        one, two = stream.last(torch.Generator().manual_seed(4)), stream.draw(torch.Generator().manual_seed(4))
        assert torch.equal(one.a, two.a)

    def test_rare_contacts_are_still_chosen_among_the_rest(self) -> None:
        stream = Stream(Lines(0.03), BATCH, least_contacts=0.15, probing=0.5)
        stream.ask(truth, near_the_edge)
        generator = torch.Generator().manual_seed(0)
        for _ in range(4 * JUDGED):
            stream.learn(truth(stream.draw(generator)))
            stream.adapt(0.5)
        assert stream.way == (POOL, BATCH // 2)
        rest = torch.cat([truth(stream.draw(generator))[BATCH // 2 :] for _ in range(50)])
        assert rest.float().mean() == pytest.approx(4 * 0.03, abs=0.03)
