"""Splitting distances in two: Otsu against trying every cut, and the split over many batches on synthetic distances."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from palpate.contacts.scenes import Scenes
from palpate.contacts.split import SEPARABLE, SMALLEST, Split, otsu

quick = settings(deadline=None, max_examples=60, derandomize=True, database=None)
CONTACT_SHARES = [0.03, 0.1, 0.5, 0.9]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# otsu


def brute_force(values: list[float]) -> list[float]:
    """Every threshold, midway between neighbours, that leaves the least variance within the two classes."""
    ordered = sorted(values)
    found: list[tuple[float, float]] = []
    for low, high in itertools.pairwise(sorted(set(values))):
        within = 0.0
        for part in ([x for x in ordered if x <= low], [x for x in ordered if x >= high]):
            mean = sum(part) / len(part)
            within += sum((x - mean) ** 2 for x in part)
        found.append((within, (low + high) / 2))
    least = min(within for within, _ in found)
    return [threshold for within, threshold in found if within <= least + 1e-9 * (1 + least)]


@pytest.mark.parametrize(
    ("values", "threshold"),
    [
        ([1.0, 9.0, 2.0, 8.0, 3.0], 5.5),
        ([0.0, 0.0, 0.0, 10.0], 5.0),
        ([4.0, 1.0], 2.5),
        ([3.0, 3.0, 3.0], 3.0),  # values > threshold is empty
        ([3.0], 3.0),
    ],
)
def test_otsu_by_hand(values: list[float], threshold: float) -> None:
    assert otsu(torch.tensor(values)).item() == threshold
    mixed, valid = torch.tensor([*values, -7.0, 70.0]), torch.tensor([True] * len(values) + [False] * 2)
    assert otsu(mixed, valid).item() == threshold


def test_otsu_keeps_the_dtype_and_is_exact_on_a_large_offset() -> None:
    values = 1e4 + torch.cat((torch.rand(500, generator=generator()), 3 + torch.rand(500, generator=generator(1))))
    threshold = otsu(values)
    assert threshold.dtype == values.dtype
    assert 1e4 + 1 < threshold < 1e4 + 3


numbers = st.lists(st.integers(-50, 50).map(lambda x: x / 4), min_size=2, max_size=14)


@quick
@given(values=numbers)
def test_otsu_agrees_with_every_cut(values: list[float]) -> None:
    assume(len(set(values)) > 1)
    threshold = otsu(torch.tensor(values, dtype=torch.float64)).item()
    assert any(threshold == pytest.approx(best) for best in brute_force(values))


@quick
@given(values=numbers, others=numbers, seed=st.integers(0, 1000))
def test_otsu_counts_only_valid_entries(values: list[float], others: list[float], seed: int) -> None:
    """Others among the values, in any order, change nothing: not even the middle between the classes."""
    assume(len(set(values)) > 1)
    order = torch.randperm(len(values) + len(others), generator=generator(seed))
    mixed = torch.tensor(values + others, dtype=torch.float64)[order]
    valid = (torch.arange(len(order)) < len(values))[order]
    threshold = otsu(mixed, valid).item()
    assert any(threshold == pytest.approx(best) for best in brute_force(values))


@quick
@given(values=numbers, scale=st.sampled_from([0.5, 2.0, 8.0]), shift=st.integers(-8, 8))
def test_otsu_follows_scale_and_shift_and_ignores_order(values: list[float], scale: float, shift: int) -> None:
    assume(len(set(values)) > 1)
    assume(len(brute_force(values)) == 1)
    x = torch.tensor(values, dtype=torch.float64)
    threshold = otsu(x)
    torch.testing.assert_close(otsu(scale * x + shift), scale * threshold + shift)
    order = torch.randperm(len(values), generator=generator(len(values)))
    torch.testing.assert_close(otsu(x[order]), threshold)
    torch.testing.assert_close(otsu(-x), -threshold)


# Split on synthetic distances


def unrelated_distances(count: int, seed: int) -> Tensor:
    """d_W of random scenes: random unit vectors of R^8."""
    one, two = normalize(torch.randn(2, count, 8, generator=generator(seed)), dim=-1)
    return (one - two).square().sum(-1)


def distances(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """d_W of triples and which were touched: log-normal over orders of magnitude, or those of unrelated scenes."""
    touched = torch.rand(count, generator=generator(seed + 1)) < share
    log_untouched = -7.5 + 2 * torch.randn(count, generator=generator(seed + 2))
    return torch.where(touched, unrelated_distances(count, seed + 3), log_untouched.exp()), touched


def fed(share: float, *, on: str = "log", window: int = 4096, floor: float = 0.001, batches: int = 40) -> Split:
    split = Split(on=on, window=window, floor=floor)
    for i in range(batches):
        split.update(distances(128, share, seed=10 * i)[0], unrelated_distances(128, seed=10 * i + 5))
    return split


def accuracy(split: Split, share: float) -> float:
    d, touched = distances(20_000, share, seed=777_777)
    return (split(d) == touched).double().mean().item()


@pytest.mark.parametrize("share", CONTACT_SHARES)
def test_split_is_right_at_every_share_of_contacts(share: float) -> None:
    """Otsu alone, midway between floor and contacts, would take one contact in thirty for none."""
    assert accuracy(fed(share), share) > 0.995


def test_the_threshold_lies_in_the_emptiest_place_once_there_is_a_valley() -> None:
    """An uneven gap: contacts thin out towards the floor, and the best cut is close above it."""
    split = Split(on="log", window=4096, floor=0.001)
    unrelated = torch.linspace(-4, 0, 4096).exp()  # the floor lies at e^-4
    contacts = -4 + 4 * torch.rand(2048, generator=generator()) ** 0.25  # ever denser from the floor on
    split.update(torch.cat((torch.full((2048,), 1e-4), contacts.exp())), unrelated)
    assert -4 < split.threshold.item() < -3.5 < otsu(split.scaled(split.distances)).item()
    assert split.share.item() == pytest.approx(0.5, abs=0.02)


def test_between_classes_far_apart_the_threshold_lies_in_the_middle() -> None:
    """Triples that were not trained on are told less sharply: a threshold beside either class would cut into it."""
    split = Split(on="log", window=4096, floor=0.001)
    untouched, contacts = (at + 0.01 * torch.randn(2048, generator=generator()) for at in (-8.0, 0.0))
    split.update(torch.cat((untouched, contacts)).exp(), torch.full((4096,), math.exp(-9.0)))
    assert split.threshold.item() == pytest.approx(-4.0, abs=0.3)


def test_of_two_empty_stretches_the_threshold_lies_in_the_lower_one() -> None:
    """Contacts that move little, apart from the others: they are contacts all the same."""
    split = Split(on="log", window=4096, floor=0.001)
    untouched, little, far = (at + 0.01 * torch.randn(1024, generator=generator()) for at in (-8.0, -4.0, 0.0))
    distances = torch.cat((untouched, untouched, little[:300], far, far))[:4096].exp()
    split.update(distances, torch.full((4096,), math.exp(-9.0)))
    assert -7.5 < split.threshold.item() < -4.5


def test_without_a_valley_the_threshold_is_otsus() -> None:
    """Early in a run: one wide class, of which any emptiest place would be an accident."""
    split = Split(on="log", window=4096, floor=0.001)
    d = (torch.randn(4096, generator=generator()) - 4).exp()
    split.update(d, d * 0 + d.min())
    assert split.valley < 0.2
    assert split.threshold.item() == otsu(d.log()).item()


def test_without_the_floor_rare_contacts_are_lost() -> None:
    """What the floor is for: the wide untouched class is cut in two instead."""
    assert accuracy(fed(0.03, floor=0.0), 0.03) < 0.8
    assert accuracy(fed(0.5, floor=0.0), 0.5) > 0.98


@pytest.mark.parametrize(("on", "scale"), [("d", lambda d: d), ("log", lambda d: d.clamp(min=SMALLEST).log())])
def test_a_batch_alone_is_split_by_otsu_of_its_scale(on: str, scale: Callable[[Tensor], Tensor]) -> None:
    split, d = Split(on=on, window=0, floor=0.0), distances(500, 0.5, seed=3)[0].requires_grad_()
    split.update(d, unrelated_distances(500, seed=4))
    assert split.threshold.item() == pytest.approx(otsu(scale(d)).item())
    assert torch.equal(split(d), scale(d) > otsu(scale(d)))
    assert not split.threshold.requires_grad


def test_log_is_right_where_d_is_not() -> None:
    """The threshold on d falls inside the touched class (METHOD, "Why log")."""
    for share, gain in ((0.5, 0.03), (0.9, 0.2)):
        assert accuracy(fed(share, on="log"), share) > accuracy(fed(share, on="d", floor=0.0), share) + gain


@pytest.mark.parametrize("on", ["log", "d"])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_batches_with_no_contact_or_nothing_else_are_split_like_any_other(share: float, on: str) -> None:
    split = fed(share, on=on)
    none, all_touched = distances(128, 0.0, seed=50)[0], distances(128, 1.0, seed=60)[0]
    split.update(none, unrelated_distances(128, seed=61))
    assert split(none).double().mean() < 0.02
    split.update(all_touched, unrelated_distances(128, seed=62))
    assert split(all_touched).double().mean() > (0.95 if on == "log" else 0.85)


def test_a_batch_alone_cannot_tell_that_it_has_no_contact() -> None:
    """The paper's reading, window 0: Otsu always splits."""
    split = Split(on="log", window=0, floor=0.0)
    none = distances(128, 0.0, seed=50)[0]
    split.update(none, unrelated_distances(128, seed=61))
    assert 0.2 < split(none).double().mean() < 0.8


@pytest.mark.parametrize("batch", [3, 8, 11])
def test_the_window_keeps_the_last_distances_only(batch: int) -> None:
    """Also when a batch does not divide the window, or is larger than it."""
    window, batches = 8, 5
    split = Split(on="d", window=window, floor=0.0)
    stream = torch.rand(batch * batches, generator=generator()) + 0.1
    for part in stream.split(batch):
        split.update(part, 2 * part)
        seen = stream[: int(split.seen)][-window:]
        known = split.distances[~split.distances.isnan()]
        assert sorted(known.tolist()) == sorted(seen.tolist())
        assert torch.equal(split.unrelated[~split.distances.isnan()], 2 * known)
        assert split.threshold.item() == pytest.approx(otsu(seen).item())


def test_a_window_not_yet_full_counts_what_it_has() -> None:
    d, other = distances(100, 0.5, seed=1)[0], unrelated_distances(100, seed=2)
    partly, alone = Split(on="log", window=4096, floor=0.01), Split(on="log", window=0, floor=0.01)
    for split in (partly, alone):
        split.update(d, other)
    assert partly.smallest.item() == alone.smallest.item() == other.sort().values[1].item()
    assert partly.threshold.item() == pytest.approx(alone.threshold.item())


def test_a_world_that_changes_is_followed() -> None:
    """Distances shrink while w is learned: after one window the threshold has forgotten the old ones."""
    split = fed(0.5, window=512, floor=0.0, batches=8)
    old = split.threshold.item()
    for i in range(4):
        split.update(distances(128, 0.5, seed=10 * i)[0] / 100, unrelated_distances(128, seed=i))
    assert split.threshold.item() == pytest.approx(old - math.log(100), abs=1.5)


@pytest.mark.parametrize("on", ["log", "d"])
@pytest.mark.parametrize("floor", [0.0, 0.01])
def test_all_distances_equal_or_zero_are_no_contacts(floor: float, on: str) -> None:
    for value in (0.0, 0.5):
        split = Split(on=on, window=64, floor=floor)
        d = torch.full((32,), value)
        split.update(d, torch.full((32,), value))
        assert not split(d).any()
        assert (split.separation(), bool(split.has_two_classes())) == (0, False)


# separation


def separation(log_distances: Tensor, on: str = "log") -> float:
    d = log_distances.exp()
    split = Split(on=on, window=len(d), floor=0.0)
    split.update(d, d)
    return split.separation()


ONE_CLASS = {
    "normal": lambda count, seed: torch.randn(count, generator=generator(seed)) - 4,
    "uniform": lambda count, seed: 6 * torch.rand(count, generator=generator(seed)) - 8,
    "exponential": lambda count, seed: -torch.rand(count, generator=generator(seed)).log() - 8,
    "exponential down": lambda count, seed: torch.rand(count, generator=generator(seed)).log(),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", list(ONE_CLASS))
def test_one_class_of_any_shape_has_no_valley(shape: str, seed: int) -> None:
    assert separation(ONE_CLASS[shape](4096, seed)) <= 0.2


@pytest.mark.parametrize("share", CONTACT_SHARES)
def test_two_classes_have_an_empty_valley(share: float) -> None:
    noise = torch.randn(4096, generator=generator(1))
    touched = torch.rand(4096, generator=generator(2)) < share
    assert separation(torch.where(touched, 0.3 * noise, noise - 7)) > 0.9
    assert separation(torch.where(touched, 1 + 0.1 * noise, 0.1 * noise).log().nan_to_num(-9), on="d") > 0.9


@pytest.mark.parametrize(("share", "two"), [(0.0, False), (0.1, True), (0.5, True), (1.0, False)])
def test_the_synthetic_world_has_two_classes_where_it_has_contacts_and_others(share: float, two: bool) -> None:
    split, of_one_batch = fed(share), fed(share, window=0)
    assert (split.separation() >= SEPARABLE) == bool(split.has_two_classes()) == two
    assert split.has_valley() or not two
    assert not of_one_batch.has_valley()


@pytest.mark.parametrize(("most", "few"), [(1e-4, 1.0), (1.0, 1e-4)])
def test_a_few_outliers_are_no_class(most: float, few: float) -> None:
    split = Split(window=4096)
    split.update(torch.cat((torch.full((4090,), most), torch.full((6,), few))), torch.full((4096,), 1e-3))
    assert split.has_valley()
    assert Scenes([split, Split()]).has_valley.tolist() == [True, False]
    assert not split.has_two_classes()
    assert split.separation() == 0


def test_a_threshold_of_one_batch_is_judged_over_several() -> None:
    split = Split(on="d", window=0, floor=0.0)
    for batches in range(1, 5):
        split.update(torch.arange(100.0) % 2 + 0.01 * torch.rand(100, generator=generator()), torch.ones(100))
        assert (split.separation() > 0.9) == (batches >= 3)  # 256 distances are enough


def test_recall_keeps_the_lower_separation() -> None:
    split = overfitted()
    split.valley.fill_(0.6)
    split.recall(two_classes(-3.0, 0.0, seed=1))
    assert split.separation() == pytest.approx(0.6)


def test_separation_falls_as_the_classes_come_together() -> None:
    noise = torch.randn(4000, generator=generator())
    side = torch.arange(4000) % 2
    values = [separation(noise + gap * side - 9) for gap in (8, 4, 3, 0)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.95
    assert values[-1] <= 0.2


# probability and persistence


def test_probability_is_even_at_the_threshold_and_grows() -> None:
    split = fed(0.5)
    at = split.threshold.exp()
    d = torch.stack((at / 100, at / 1.2, at, 1.2 * at, 100 * at))
    probability = split.probability(d)
    assert probability[2].item() == pytest.approx(0.5, abs=1e-3)
    assert probability.tolist() == sorted(probability.tolist())
    assert probability.min() >= 0
    assert probability.max() <= 1


@pytest.mark.parametrize("share", CONTACT_SHARES)
def test_probability_agrees_with_the_split_and_is_sure_of_itself(share: float) -> None:
    split = fed(share)
    d, touched = distances(5000, share, seed=31)
    probability = split.probability(d)
    assert torch.equal(probability > 0.5, split(d))
    assert (probability - touched.float()).abs().mean() < 0.1


def test_state_dict_round_trip_splits_the_same_and_goes_on_the_same() -> None:
    one = fed(0.1, batches=5)
    two = Split(on="log", window=4096, floor=0.001)
    two.load_state_dict(one.state_dict())
    d = distances(500, 0.1, seed=8)[0]
    assert torch.equal(one(d), two(d))
    assert torch.equal(one.probability(d), two.probability(d))
    for split in (one, two):
        split.update(d, unrelated_distances(500, seed=9))
    assert torch.equal(one.threshold, two.threshold)
    assert all(torch.equal(x, y) or x.isnan().any() for x, y in zip(one.buffers(), two.buffers(), strict=True))
    torch.testing.assert_close(one.distances, two.distances, equal_nan=True)


# Triples that were not trained on


def two_classes(untouched: float, contacts: float, count: int = 512, seed: int = 0) -> Tensor:
    """log d_W around these two values, half of each."""
    noise = 0.2 * torch.randn(2, count, generator=generator(seed))
    return (noise + torch.tensor([[untouched], [contacts]])).flatten().exp()


def overfitted() -> Split:
    """Untouched pairs that were trained on are at e^-8, contacts at 1."""
    split = Split(on="log", window=4096, floor=0.001)
    split.update(two_classes(-8.0, 0.0), torch.full((1024,), math.exp(-9.0)))
    return split


def state(split: Split) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in split.named_buffers()}


def same_state(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name].nan_to_num(-1), two[name].nan_to_num(-1)) for name in one)


def test_recall_takes_the_threshold_from_what_was_not_trained_on() -> None:
    split, unseen = overfitted(), two_classes(-3.0, 0.0, seed=1)
    assert split(unseen).all()  # those that were not touched, too
    split.recall(unseen)
    assert split(unseen).tolist() == [False] * 512 + [True] * 512
    assert split.share.item() == 0.5
    assert split.probability(unseen).round().tolist() == [0] * 512 + [1] * 512
    before = state(split)
    split.recall(unseen)
    assert same_state(state(split), before)


def outliers(count: int) -> Tensor:
    """One class that lies mostly under the floor, with a few far away."""
    return torch.cat((torch.full((count - 5,), -9.0), torch.tensor([-1.0, -0.9, -0.5, -0.2, 0.0]))).exp()


@pytest.mark.parametrize(
    "distances",
    [two_classes(-3.0, -3.0), two_classes(-3.0, 0.0, count=100), outliers(256), outliers(1000)],
    ids=["one class", "few", "outliers", "outliers of many"],
)
def test_recall_of_one_class_or_of_few_triples_keeps_the_threshold(distances: Tensor) -> None:
    split = overfitted()
    before = state(split)
    split.recall(distances)
    assert torch.equal(split.threshold, before["threshold"])
    assert torch.equal(split.distances.nan_to_num(-1), before["distances"].nan_to_num(-1))


def test_recall_cannot_make_two_classes_of_one() -> None:
    split = Split(on="log", window=4096, floor=0.001)
    split.update((torch.randn(4096, generator=generator()) - 4).exp(), torch.full((4096,), math.exp(-9.0)))
    before = state(split)
    split.recall(two_classes(-3.0, 0.0))
    assert same_state(state(split), before)


def test_unseen_triples_that_do_not_separate_are_said_to() -> None:
    split = overfitted()
    split.recall((torch.randn(1000, generator=generator()) - 2).exp())
    assert split.separation() < SEPARABLE


def test_recall_with_a_shorter_memory_takes_some_of_all() -> None:
    split = Split(on="log", window=256, floor=0.001)
    split.update(two_classes(-8.0, 0.0)[::4], torch.full((256,), math.exp(-9.0)))
    split.recall(two_classes(-3.0, 0.0, seed=1))  # the untouched ones first
    assert split.share.item() == 0.5
    assert (split.distances.log() > -1.5).double().mean() == 0.5


def test_the_papers_threshold_of_one_batch_stays() -> None:
    split = Split(on="d", window=0, floor=0.0)
    split.update(two_classes(-8.0, 0.0), torch.ones(1024))
    before = state(split)
    split.recall(two_classes(-3.0, 0.0))
    assert same_state(state(split), before)


@pytest.mark.parametrize(("rows", "above"), [(60, [25 / 32, 7 / 32]), (10, [5 / 7, 2 / 7]), (1, [1 / 3, 1 / 2])])
def test_held_out_triples_show_how_far_distances_agree_with_geometry(rows: int, above: list[float]) -> None:
    """On trained triples both fit the same mistakes. A few held-out triples show little, but more than those."""
    split = Split()
    split.above.copy_(torch.tensor([1.0, 0.0]))
    touching = torch.arange(rows) % 2 == 0
    far = torch.where(touching, torch.arange(rows) % 10 != 0, torch.arange(rows) % 10 == 1)
    split.recall(torch.where(far, 10.0, 0.1), touching)
    assert split.above.tolist() == pytest.approx(above)


@pytest.mark.parametrize("count", [100, 1000])
@pytest.mark.parametrize(("agreed", "most"), [(True, 0.6), (False, 1.0)])
def test_distances_of_new_triples_are_doubted_if_geometry_explains_only_the_trained_ones(
    agreed: bool, most: float, count: int
) -> None:
    split, rows, held_out = Split(), torch.arange(1024), torch.arange(count)
    touching = rows % 2 == 0
    far = touching if agreed else rows % 4 < 2
    split.update(torch.where(far, 1.0, 1e-4), torch.full((1024,), 1e-4), touching)
    far = torch.where(held_out % 2 == 0, held_out % 5 < 3, held_out % 5 >= 3)
    split.recall(torch.where(far, 1.0, 1e-4), held_out % 2 == 0)
    assert split.above.tolist() == pytest.approx([0.6, 0.4], abs=0.005)
    assert split.probability(torch.tensor([1.0, 1e-4])).tolist() == pytest.approx([most, 1 - most], abs=0.01)
