"""Which triples a step is trained on: rare contacts are oversampled, and uncertain moves are chosen."""

import itertools
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from palpate.data import sources
from palpate.data.sources import Resident
from palpate.data.transitions import Batch, Transitions
from palpate.training.feeds import CHOOSE_FROM, JUDGED, LAST_MOVES, LAST_SHARE, MOVES, POOL, Oversampled, Selected

BATCH = 64


def numbered(count: int = 1000) -> Resident:
    """Row i shows i."""
    i = torch.arange(count).float()[:, None]
    return Resident(Transitions(observation=i, action=i + 1, next_observation=i), "cpu")


class TestOversampled:
    @staticmethod
    def shares(feed: Oversampled, every: int, batches: int = 200) -> Tensor:
        """Contacts in each batch, where every so manieth row is one."""
        generator, shares = torch.Generator().manual_seed(0), []
        for _ in range(batches):
            contact = feed.draw(generator).o[:, 0].int() % every == 0
            feed.record(contact, contact)
            shares.append(contact.float().mean())
        return torch.stack(shares)

    @pytest.mark.parametrize("sorted_rows", [1000, 10])
    def test_rare_contacts_are_drawn_more_often_once_they_are_known(
        self, monkeypatch: pytest.MonkeyPatch, sorted_rows: int
    ) -> None:
        monkeypatch.setattr(sources, "SORTED_ROWS", sorted_rows)
        feed = Oversampled(numbered(), 100, 0.25)
        shares = self.shares(feed, 20)
        assert shares[0] < 0.12
        assert 0.2 < shares[100:].mean() < 0.27
        assert feed.vitals()["contact_share"] == pytest.approx(0.05, abs=0.005)
        if sorted_rows == 1000:  # a row never meets itself
            assert len(feed.draw(torch.Generator()).o.unique()) == 100

    def test_contacts_that_are_not_rare_come_as_they_are(self) -> None:
        assert self.shares(Oversampled(numbered(), 100, 0.05), 10).mean() == pytest.approx(0.1, abs=0.01)

    def test_a_contact_may_turn_out_to_be_none(self) -> None:
        feed = Oversampled(numbered(100), 100, 0.5)
        for contact in (True, False):
            feed.draw(torch.Generator())
            feed.record(*[torch.full((100,), contact)] * 2)
        assert feed.vitals() == {}


class States(NamedTuple):
    displacement: Tensor
    contact: Tensor


class Lines:
    """An agent at 0 that moves in the unit square; of random moves a share are contacts, of chosen ones x > 0.7.

    Observations are nothing but whether the triple is a contact.
    """

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

    def reset(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.zeros(count, 1, dtype=torch.uint8)

    def render(self, scene: Tensor) -> Tensor:
        return scene

    def moves(self, scene: Tensor, count: int, generator: torch.Generator) -> Tensor:
        return torch.rand(len(scene), count, 2, generator=generator)

    def step(self, scene: Tensor, displacement: Tensor, generator: torch.Generator) -> States:
        return States(displacement, displacement[:, 0] > 0.7)


def truth(batch: Batch) -> Tensor:
    return batch.o[:, 0].bool()


def blind(batch: Batch) -> Tensor:
    return torch.zeros(len(batch.a), dtype=torch.bool)


def near_the_edge(o: Tensor, moves: Tensor) -> Tensor:
    return -(moves[..., 0] - 0.7).abs()


def go_on(feed: Selected, batches: int, over: float = 0.5, contacts: Any = truth, seed: int = 0) -> list[Batch]:
    generator, drawn = torch.Generator().manual_seed(seed), []
    for _ in range(batches):
        drawn.append(feed.draw(generator))
        feed.record(*[contacts(drawn[-1])] * 2)
        feed.adapt(over)
    return drawn


def after(
    batches: int, share: float, *, least: float = 0.15, moves: float = 0.0, over: float = 0.5, contacts: Any = truth
) -> Selected:
    """A feed that has drawn so many batches of a world with this share of contacts."""
    feed = Selected(Lines(share), BATCH, least_contacts=least, chosen_moves=moves)
    feed.connect(contacts, near_the_edge)
    go_on(feed, batches, over, contacts)
    return feed


def drawn(feed: Selected, count: int = 50, seed: int = 1) -> list[Batch]:
    """Some batches, without a change of the feed's way."""
    generator = torch.Generator().manual_seed(seed)
    return [feed.draw(generator) for _ in range(count)]


def shares(feed: Selected) -> Tensor:
    return torch.stack([truth(batch).float().mean() for batch in drawn(feed)])


class TestPool:
    @pytest.mark.parametrize(
        ("share", "selected"), [(0.03, 4 * 0.03), (0.1, 4 * 0.1), (0.14, 0.5), (0.9, 0.6), (0.97, 0.88)]
    )
    def test_the_rare_are_selected_up_to_half_a_batch(self, share: float, selected: float) -> None:
        feed = after(2 * JUDGED, share)
        assert feed.vitals() == {"contact_share": pytest.approx(share, abs=0.02), "pool": POOL}
        found = shares(feed)
        assert found.mean() == pytest.approx(selected, abs=0.03)
        assert torch.minimum(found, 1 - found).max() <= 0.5

    @pytest.mark.parametrize(
        ("batches", "share", "options"),
        [
            (2 * JUDGED, 0.5, {}),
            (2 * JUDGED, 0.2, {}),
            (JUDGED - 1, 0.03, {}),  # too early to judge
            (2 * JUDGED, 0.03, {"least": 0.0}),
            (2 * JUDGED, 0.03, {"contacts": blind}),  # the model does not tell contacts apart yet
        ],
    )
    def test_else_they_are_taken_as_they_come(self, batches: int, share: float, options: dict[str, Any]) -> None:
        feed = after(batches, share, **options)
        assert feed.way == (1, 0)
        assert feed.vitals() == {}
        assert shares(feed).mean() == pytest.approx(share, abs=0.03)

    def test_batches_before_the_classes_separate_do_not_count(self) -> None:
        feed = after(JUDGED, 0.5, contacts=blind)
        go_on(feed, JUDGED)
        assert float(feed.memory()["share"]) == pytest.approx(0.5, abs=0.03)

    def test_what_was_rare_at_first_may_not_be_so_later(self) -> None:
        feed = after(2 * JUDGED, 0.03)
        feed.source.world.share = 0.4  # type: ignore[attr-defined]
        go_on(feed, 2 * JUDGED, seed=3)
        assert feed.pool == 1

    def test_a_share_at_the_border_does_not_flicker(self) -> None:
        feed, pools = after(0, 0.15), []
        for seed in range(12 * JUDGED):
            go_on(feed, 1, seed=seed)
            pools.append(feed.pool)
        assert sum(one != two for one, two in itertools.pairwise(pools)) <= 1


class TestChosenMoves:
    def test_of_some_moves_the_most_uncertain_is_taken(self) -> None:
        feed = after(2 * JUDGED, 0.5, moves=0.25)
        assert feed.way == (1, BATCH // 4)
        assert feed.vitals() == {"chosen_moves": 0.25}
        batches, first = drawn(feed, 20), BATCH // 4
        assert {len(batch.a) for batch in batches} == {BATCH}
        chosen = torch.cat([batch.a[:first, 0] for batch in batches])
        # The nearest of 32 uniform numbers to a point is 1/66 away on average, and as often beyond it as before.
        assert (chosen - 0.7).abs().mean() == pytest.approx(1 / (2 * MOVES["cpu"] + 2), rel=0.15)
        contact = torch.cat([truth(batch)[:first] for batch in batches])
        assert contact.float().mean() == pytest.approx(0.5, abs=0.1)
        assert torch.equal(contact, chosen > 0.7)
        assert torch.cat([batch.a[first:, 0] for batch in batches]).mean() == pytest.approx(0.5, abs=0.05)

    @pytest.mark.parametrize(
        ("batches", "options"),
        [
            (JUDGED - 1, {}),  # too early to judge
            (2 * JUDGED, {"over": CHOOSE_FROM - 0.01}),
            (2 * JUDGED, {"contacts": blind}),  # a model that does not tell contacts apart predicts none
        ],
    )
    def test_else_moves_are_random(self, batches: int, options: dict[str, Any]) -> None:
        feed = after(batches, 0.5, moves=0.25, **options)
        assert feed.way == (1, 0)
        assert torch.cat([batch.a[:, 0] for batch in drawn(feed, 20)]).mean() == pytest.approx(0.5, abs=0.03)
        last, plain = (draw(torch.Generator().manual_seed(4)) for draw in (feed.last, feed.draw))
        assert torch.equal(last.a, plain.a)  # also for the refinement

    def test_contacts_that_were_found_before_it_is_time_are_enough(self) -> None:
        feed = after(JUDGED, 0.5, moves=0.25, over=0.0)
        assert feed.way == (1, 0)
        feed.adapt(CHOOSE_FROM)
        assert feed.way == (1, BATCH // 4)

    def test_one_move_at_least_stays_random(self) -> None:
        assert after(2 * JUDGED, 0.5, moves=0.999).way == (1, BATCH - 1)

    def test_rare_contacts_are_selected_among_the_rest_and_the_chosen_do_not_show_how_rare(self) -> None:
        """Half of the chosen moves are contacts, in a world where contacts are rare."""
        feed = after(4 * JUDGED, 0.5, moves=0.5)
        assert feed.way == (1, BATCH // 2)
        feed.source.world.share = 0.03  # type: ignore[attr-defined]
        go_on(feed, 4 * JUDGED, seed=6)
        assert feed.way == (POOL, BATCH // 2)
        rest = torch.cat([truth(batch)[BATCH // 2 :] for batch in drawn(feed)])
        assert rest.float().mean() == pytest.approx(POOL * 0.03, abs=0.03)

    def test_for_the_refinement_nearly_all_moves_are_chosen(self) -> None:
        feed, before = after(2 * JUDGED, 0.5, moves=0.25), after(2 * JUDGED, 0.5, moves=0.25)
        generator = torch.Generator().manual_seed(1)
        batches = [feed.last(generator) for _ in range(20)]
        assert {len(batch.a) for batch in batches} == {BATCH}
        chosen = torch.cat([batch.a[: int(LAST_SHARE * BATCH), 0] for batch in batches])
        assert (chosen - 0.7).abs().mean() == pytest.approx(1 / (2 * LAST_MOVES + 2), rel=0.15)
        assert all(torch.equal(value, before.memory()[name]) for name, value in feed.memory().items())


@pytest.mark.parametrize("moves", [0.0, 0.25])
def test_its_memory_makes_another_feed_go_on_like_it(moves: float) -> None:
    feed, other = after(JUDGED + 30, 0.03, moves=moves), after(0, 0.03, moves=moves)
    for name, value in other.memory().items():
        value.copy_(feed.memory()[name])
    assert other.way == feed.way == (POOL, BATCH * moves)
    for one, two in zip(go_on(feed, JUDGED, seed=4), go_on(other, JUDGED, seed=4), strict=True):
        assert torch.equal(one.o, two.o)
        assert torch.equal(one.a, two.a)
    assert other.vitals() == feed.vitals()
