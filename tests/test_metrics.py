import itertools
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from palpate.data.labelled import Truth
from palpate.groups.translations import Translations
from palpate.methods.base import Encoding
from palpate.metrics import formulas, reading
from palpate.metrics import measure as measuring
from palpate.metrics.formulas import affine_probe, auroc, axis_error, rigid_offset
from palpate.metrics.scores import TITLES

agent_frame, aligned, isometry, l_test, measure = (
    partial(function, Translations(2))
    for function in (formulas.agent_frame, reading.aligned, formulas.isometry, formulas.l_test, measuring.measure)
)


def random_truth(count: int = 400, n: int = 2) -> Truth:
    generator = torch.Generator().manual_seed(0)
    agent, thing = torch.rand(2, count, n, generator=generator)
    angle, contact = torch.rand(2, count, generator=generator)
    return Truth(agent, thing, math.pi * angle, contact < 0.3)


def at(agent: Tensor, thing: Tensor, angle: Tensor | None = None) -> Encoding:
    """One object."""
    return Encoding(agent, thing[:, None], None, None if angle is None else angle[:, None])


def answer(truth: Truth, agent_shift: object = 0.0, object_shift: object = 0.0) -> Encoding:
    """The truth, moved."""
    shift_agent, shift_object = torch.as_tensor(agent_shift), torch.as_tensor(object_shift)
    return at(truth.agent + shift_agent, truth.object + shift_object, truth.angle)


class Operations(TorchFunctionMode):
    """Counts the operations on tensors."""

    count = 0

    def __torch_function__(self, operation: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("known", [{"places_object": False}, {"tells_apart": False}], ids=["probe", "order"])
def test_what_is_read_by_true_states_is_read_where_the_object_is_visible(known: dict[str, bool]) -> None:
    truth = random_truth()._replace(visible=torch.arange(400) % 3 != 1)
    lost = torch.where(truth.visible, 0.0, 5.0)[:, None]
    found = answer(truth, object_shift=lost)
    scores = measure(found, truth, **known)
    assert scores.object_error == pytest.approx(0, abs=1e-6)
    if "places_object" in known:
        assert scores.probe_rows == int(truth.visible[::2].sum())
    else:
        assert scores.swap_rate == 0
        assert scores.probed_l_test == pytest.approx(0, abs=1e-9)
    shown = aligned(found, truth, **known)
    seen = truth.visible.bool()
    torch.testing.assert_close(shown.object[seen], truth.object[seen].double(), atol=1e-6, rtol=0)


def test_objects_that_never_turn_have_no_orientation() -> None:
    truth = random_truth()
    fixed = truth._replace(angle=torch.full((400,), 0.7))
    assert measure(answer(fixed), fixed).orientation_error is None
    angles = torch.tensor([0.2, 1.1]).expand(400, 2)
    two = Truth(truth.agent, torch.stack((truth.object, truth.object + 0.2), 1), angles)
    found = Encoding(two.agent, two.objects, None, angles)
    assert measure(found, two).orientation_error is None


@pytest.mark.parametrize("n", [2, 3])
def test_truth_plus_a_translation_is_perfect(n: int) -> None:
    truth = random_truth(n=n)
    certain = truth.contact.float()
    h = torch.arange(1.0, n + 1)
    scores = measure(answer(truth, h, h), truth, contact=certain, would_touch=certain)
    zero = ["l_test", "agent_error", "object_error", "object_bias", "object_spread", "isometry", "orientation_error"]
    zero += ["object_rigid"] if n == 2 else []
    assert [getattr(scores, name) for name in zero] == pytest.approx([0] * len(zero), abs=1e-6)
    assert [score for name in TITLES if name not in zero and (score := getattr(scores, name)) is not None] == [1.0] * 4


def test_shifting_the_object_alone_costs_its_square() -> None:
    truth = random_truth()
    shifted = answer(truth, object_shift=[0.3, -0.4])
    assert float(l_test(shifted, truth)) == pytest.approx(0.25, rel=1e-5)
    scores = measure(shifted, truth)
    assert agent_frame(shifted, truth).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert (scores.l_test, scores.object_error, scores.object_bias) == pytest.approx((0.25, 0.5, 0.5), rel=1e-5)
    assert (scores.agent_error, scores.object_spread) == pytest.approx((0, 0), abs=1e-6)  # the bias is the object's own


def test_bias_and_spread_are_apart() -> None:
    """An offset of (3, 4) and an error of 0.1 that changes sign: neither is taken for the other."""
    truth = random_truth()
    wobble = torch.tensor([0.1, 0.0]) * torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(100)[:, None]
    scores = measure(answer(truth, 7.0, 7.0 + torch.tensor([3.0, 4.0]) + wobble), truth)
    assert (scores.object_bias, scores.object_spread) == pytest.approx((5, 0.1), rel=1e-4)
    assert scores.object_error == pytest.approx(5, rel=1e-3)
    assert scores.l_test == pytest.approx(25.01, rel=1e-4)  # Eq. 8 has both
    assert scores.constant["object_spread"] == scores.constant["object_error"]
    only_agent = measure(answer(truth, wobble, 0.0), truth)
    assert (only_agent.agent_error, only_agent.object_spread) == pytest.approx((0.1, 0.0), abs=1e-6)


def test_the_own_offset_is_fitted_on_the_reference() -> None:
    truth = random_truth()
    scores = measure(answer(truth), truth, reference=(answer(truth, 0.0, [0.0, 0.5]), truth))
    assert (scores.object_bias, scores.object_spread) == pytest.approx((0.0, 0.5), abs=1e-6)


def test_another_point_of_a_rigid_object_is_no_error_of_object_rigid() -> None:
    """An offset of 0.5 that turns with the object, a constant one, and an error of 0.1 that neither explains."""
    truth = random_truth(4_000)
    assert truth.angle is not None
    turning = 0.5 * torch.stack((truth.angle.cos(), truth.angle.sin()), -1)
    wobble = torch.tensor([0.1, 0.0]) * torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(1_000)[:, None]
    scores = measure(answer(truth, 0.0, turning + wobble + torch.tensor([3.0, 4.0])), truth)
    assert scores.object_rigid == pytest.approx(0.1, rel=0.01)
    assert scores.object_spread > 0.2
    assert scores.constant["object_rigid"] == scores.constant["object_error"]
    assert "any point of a rigid object" in str(scores)
    still = measure(answer(truth, 0.0, turning), truth._replace(angle=torch.zeros(4_000)))
    assert still.object_rigid is None
    assert "rigid" not in str(still)


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_a_rigid_offset_is_found(e: float, f: float, c: float, d: float) -> None:
    """Errors made with complex numbers: e + c exp(i angle)."""
    angle = torch.linspace(0, 5, 20, dtype=torch.float64)
    wrong = torch.view_as_real(complex(e, f) + complex(c, d) * torch.exp(1j * angle))
    assert rigid_offset(wrong, angle).tolist() == pytest.approx([e, f, c, d], abs=1e-9)


def test_positions_are_measured_where_the_object_is_visible() -> None:
    truth = random_truth()._replace(visible=torch.arange(400) % 4 != 1)
    lost = torch.where(truth.visible, 0.0, 5.0)[:, None]
    scores = measure(answer(truth, 0.2, lost + 0.2)._replace(confidences=truth.visible[:, None].float()), truth)
    assert (scores.object_error, scores.object_bias, scores.l_test) == pytest.approx((0, 0, 0), abs=1e-6)
    assert (scores.count, scores.hidden_rows, scores.confidence_auroc) == (200, 100, 1.0)
    assert "the object is hidden in 100 observations" in str(scores)
    assert scores.orientation_error == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="no row shows every object; give rows"):
        measure(answer(truth), truth._replace(visible=torch.zeros(400)))


def test_what_is_worse_than_no_answer_is_said_to_be() -> None:
    """Turned by half a turn, as by actions of the wrong sign."""
    truth = random_truth()
    turned = at(-truth.agent, -truth.object)
    assert "worse than the constant predictor" in str(measure(turned, truth))
    assert "worse" not in str(measure(answer(truth, 1.0, 1.0), truth))


def test_an_error_common_to_both_shows_beside_l_test() -> None:
    truth = random_truth()
    wobble = 0.1 * torch.tensor([1.0, -1.0]).repeat(200)[:, None].expand(-1, 2)
    reference = answer(truth), truth
    scores = measure(answer(truth, wobble, wobble), truth, reference=reference)
    assert scores.l_test == pytest.approx(0, abs=1e-9)
    assert scores.agent_error == pytest.approx(0.1 * math.sqrt(2), rel=1e-5)


def test_the_reference_fits_and_is_not_evaluated() -> None:
    truth = random_truth()
    scores = measure(answer(truth), truth, reference=(answer(truth, 0.5, 0.5), truth))
    assert scores.count == 400
    assert scores.agent_error == pytest.approx(0.5 * math.sqrt(2), rel=1e-5)


def test_without_a_reference_even_rows_fit_and_odd_rows_count() -> None:
    truth = random_truth()
    odd = (torch.arange(400) % 2)[:, None].float()
    touched = truth.contact.clone()
    touched[::2] = ~touched[::2]
    scores = measure(answer(truth, odd, odd), truth, contact=touched.float())
    assert scores.count == 200
    assert scores.object_error == pytest.approx(math.sqrt(2), rel=1e-5)
    assert scores.contact_accuracy == 1.0


def test_constant_answers() -> None:
    truth = random_truth(40_000)
    constant = measure(answer(truth), truth, contact=torch.rand(40_000), would_touch=torch.rand(40_000)).constant
    assert constant["l_test"] == pytest.approx(4 / 12, rel=0.02)  # variances of four uniform coordinates
    middle_of_square = (math.sqrt(2) + math.asinh(1)) / 6  # mean distance to the centre of the unit square
    assert constant["agent_error"] == pytest.approx(middle_of_square, rel=0.02)
    assert constant["object_error"] == pytest.approx(middle_of_square, rel=0.02)
    assert constant["isometry"] == 1.0
    assert constant["orientation_error"] == pytest.approx(math.pi / 4, rel=0.02)
    for name in ("contact", "would_touch"):
        assert constant[f"{name}_auroc"] == 0.5
        assert constant[f"{name}_accuracy"] == pytest.approx(0.7, rel=0.02)


def test_a_constant_answer_scores_what_is_said_of_it() -> None:
    truth = random_truth(2_000)
    middle = at(truth.agent.mean(0).expand(2_000, 2), truth.object.mean(0).expand(2_000, 2))
    scores = measure(middle, truth, reference=(answer(truth), truth), contact=torch.ones(2_000))
    for name in ("l_test", "agent_error", "object_error", "contact_auroc"):
        assert getattr(scores, name) == pytest.approx(scores.constant[name], rel=1e-5), name


def test_an_axis_that_never_turns_is_no_achievement() -> None:
    truth = random_truth()._replace(angle=torch.full((400,), 0.3))
    assert measure(answer(truth), truth).orientation_error is None


def test_isometry_of_a_stretched_a_mirrored_and_a_collapsed_frame() -> None:
    truth = random_truth()
    pairs = torch.randint(800, (2, 5_000), generator=torch.Generator().manual_seed(1))
    stretched = at(1.1 * truth.agent, 1.1 * truth.object)
    mirrored = at(-truth.agent, -truth.object)
    nowhere = at(0 * truth.agent, 0 * truth.object)
    assert float(isometry(stretched, truth, pairs)) == pytest.approx(0.1, rel=1e-4)
    assert float(isometry(mirrored, truth, pairs)) == pytest.approx(0, abs=1e-5)
    assert float(isometry(nowhere, truth, pairs)) == 1.0


def test_isometry_leaves_out_what_is_near() -> None:
    """Three points on a line at 0, 0.01 and 1: only the distances to the last count."""
    truth = Truth(torch.tensor([[0.0, 0], [0.01, 0]]), torch.tensor([[1.0, 0], [1.0, 0]]))
    blurred = at(torch.tensor([[0.0, 0], [0.0, 0]]), truth.object)
    pairs = torch.tensor([[0, 0, 1], [1, 2, 2]])  # the first is 0.01 apart and collapses
    assert float(isometry(blurred, truth, pairs)) == pytest.approx((0 + (1 / 0.99 - 1)) / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(0.1, 0.1 + math.pi, 0), (0.05, math.pi - 0.05, 0.1), (0.0, math.pi / 2, math.pi / 2), (2.0, -1.5, 3.5 - math.pi)],
)
def test_axes_have_no_front(one: float, other: float, expected: float) -> None:
    error = axis_error(torch.tensor([one, other]), torch.tensor([other, one]))
    assert error.tolist() == pytest.approx([expected] * 2, abs=1e-6)


def pairwise_auroc(score: Tensor, touched: Tensor) -> float:
    """The definition, one pair at a time."""
    wins = [1.0 if p > q else 0.5 if p == q else 0.0 for p in score[touched].tolist() for q in score[~touched].tolist()]
    return sum(wins) / len(wins)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    score, touched = torch.tensor([row[0] / 5 for row in rows]), torch.tensor([row[1] for row in rows])
    assume(touched.any() and not touched.all())
    assert float(auroc(score, touched)) == pytest.approx(pairwise_auroc(score, touched))


def test_contact_scores_by_hand() -> None:
    """One of three contacts has 1/2, which counts as no contact; there is one false positive."""
    truth = random_truth(5)._replace(contact=torch.tensor([True, True, True, False, False]))
    p, reference = torch.tensor([0.9, 0.8, 0.5, 0.7, 0.1]), (answer(truth), truth)
    scores = measure(answer(truth), truth, contact=p, reference=reference)
    assert (scores.contact_auroc, scores.contact_accuracy) == pytest.approx((5 / 6, 3 / 5))
    truth = truth._replace(contact=torch.ones(5, dtype=torch.bool))
    scores = measure(answer(truth), truth, contact=p, reference=reference)
    assert (scores.contact_auroc, scores.contact_accuracy) == (None, pytest.approx(3 / 5))


def test_what_is_not_there_is_left_out() -> None:
    truth = random_truth()._replace(angle=None, contact=None)
    scores = measure(at(truth.agent, truth.object), truth, contact=torch.zeros(400))
    assert scores.orientation_error is None
    assert scores.contact_auroc is None
    names = ["l_test", "agent_error", "object_error", "object_bias", "object_spread", "isometry"]
    assert list(scores.as_dict()) == ["count", *names, *(f"constant {name}" for name in names)]
    assert len(scores.table()) == 6


def test_scores_read_well_and_fit_into_json() -> None:
    truth = random_truth()
    scores = measure(answer(truth, object_shift=[0.3, -0.4]), truth, contact=truth.contact.float())
    flat = json.loads(json.dumps(scores.as_dict(), allow_nan=False))
    assert flat["l_test"] == scores.l_test
    assert flat["constant l_test"] == scores.constant["l_test"]
    header, first, *_, offset, units, _, note = lines = str(scores).splitlines()
    assert "a constant offset, which contacts cannot determine" in offset
    assert header.split() == ["200", "observations", "score", "constant"]
    assert first.split() == ["L_test", "0.25", f"{scores.constant['l_test']:.4g}"]
    assert note == "the translation was fitted to the other 200 observations, every second row"
    assert units == "lengths are in the action's unit, L_test in its square"
    assert len({len(line) for line in lines[:-4]}) == 1
    by_others = measure(answer(truth), truth, reference=(answer(truth), truth))
    assert "every second row" not in str(by_others)


def test_numpy_and_gradients_are_welcome() -> None:
    truth = random_truth()
    arrays = Truth(*(None if x is None else x.numpy() for x in truth))
    learned = at(truth.agent.clone().requires_grad_(), truth.object, truth.angle)
    assert measure(learned, arrays) == measure(answer(truth), truth)
    assert isinstance(arrays.agent, np.ndarray)


def a_latent(truth: Truth, k: int = 5, seed: int = 1) -> tuple[Encoding, Tensor]:
    """Agents shifted by (1, 2), and objects as k numbers: an affine map of their position and noise beside it."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(4, k, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(len(truth.agent), 2, generator=generator)
    latent = torch.cat((truth.object, noise), -1) @ mix + 3
    return at(truth.agent + torch.tensor([1.0, 2.0]), latent), mix


class TestProbe:
    def test_reads_a_latent_into_the_agents_frame(self) -> None:
        truth = random_truth()
        scores = measure(a_latent(truth)[0], truth, reference=(a_latent(truth)[0], truth), places_object=False)
        assert scores.probe_rows == 400
        assert (scores.l_test, scores.agent_error, scores.object_error) == pytest.approx((0, 0, 0), abs=1e-5)

    def test_is_fitted_on_the_reference_alone(self) -> None:
        """Where the latent of the reference says nothing of the object, neither do the scores."""
        truth = random_truth()
        learned, _ = a_latent(truth)
        silent = learned._replace(objects=torch.randn(400, 1, 5, generator=torch.Generator().manual_seed(3)))
        scores = measure(learned, truth, reference=(silent, truth), places_object=False)
        assert scores.l_test > 0.3 * scores.constant["l_test"]
        even = torch.arange(400)[:, None, None] % 2 == 0
        halves = measure(learned._replace(objects=torch.where(even, learned.objects, 0.0)), truth, places_object=False)
        assert halves.probe_rows == halves.count == 200
        assert halves.object_error > 0.1  # the odd rows are the ones evaluated

    def test_sees_the_object_alone(self) -> None:
        """The agent's error stays in L_test, though a probe of both could take it out."""
        truth = random_truth()
        wobble = 0.1 * torch.randn(400, 2, generator=torch.Generator().manual_seed(4))
        learned = a_latent(truth)[0]._replace(agent=truth.agent + wobble)
        scores = measure(learned, truth, reference=(learned, truth), places_object=False)
        assert scores.l_test == pytest.approx(float((wobble - wobble.mean(0)).square().sum(-1).mean()), rel=1e-4)

    def test_agrees_with_the_normal_equations(self) -> None:
        x, target = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        one = np.c_[x.numpy(), np.ones(50)]
        twin = np.linalg.solve(one.T @ one, one.T @ target.numpy())
        np.testing.assert_allclose(affine_probe(x, target).numpy(), twin, rtol=1e-8)

    def test_idle_dimensions_do_no_harm(self) -> None:
        truth = random_truth()
        learned, _ = a_latent(truth)
        idle = learned._replace(
            objects=torch.cat((learned.objects, torch.zeros(400, 1, 2), learned.objects[..., :1]), -1)
        )
        scores = measure(idle, truth, reference=(idle, truth), places_object=False)
        assert scores.object_error == pytest.approx(0, abs=1e-4)

    def test_says_so(self) -> None:
        truth = random_truth()
        probed = measure(a_latent(truth)[0], truth, places_object=False)
        text = str(probed)
        assert "affine map, fitted to the true states of 200 observations" in text
        assert probed.as_dict()["probe_rows"] == 200
        assert "probe" not in str(measure(answer(truth), truth)) + str(measure(answer(truth), truth).as_dict())

    def test_a_latent_is_not_taken_for_a_position(self) -> None:
        truth = random_truth()
        with pytest.raises(ValueError, match=r"encoding's objects has shape \(400, 1, 5\)"):
            measure(a_latent(truth)[0], truth)
        with pytest.raises(ValueError, match=r"encoding's agent has shape \(399, 2\)"):
            measure(a_latent(random_truth(399))[0], truth, places_object=False)


def three_points() -> Truth:
    """Of an agent and two objects."""
    places = torch.rand(400, 3, 2, generator=torch.Generator().manual_seed(0))
    return Truth(places[:, 0], places[:, 1:])


class TestKeypoints:
    def test_one_order_for_the_run(self) -> None:
        truth = random_truth()
        crossed = at(truth.object, truth.agent)
        for learned in (answer(truth)._replace(orientations=None), crossed):
            scores = measure(learned, truth, tells_apart=False)
            assert (scores.l_test, scores.swap_rate, scores.probed_l_test) == pytest.approx((0, 0, 0), abs=1e-6)
        assert measure(crossed, truth).l_test > 0.3

    def test_the_order_is_chosen_on_the_reference(self) -> None:
        truth = random_truth()
        crossed = at(truth.object, truth.agent)
        scores = measure(
            answer(truth)._replace(orientations=None), truth, reference=(crossed, truth), tells_apart=False
        )
        assert scores.swap_rate == 1
        assert scores.l_test == pytest.approx(4 * float((truth.agent - truth.object).square().sum(-1).mean()), rel=1e-4)

    @pytest.mark.parametrize("objects", [1, 2, 3])
    def test_swapped_rows_are_those_that_a_search_over_all_orders_finds(self, objects: int) -> None:
        draw = torch.Generator().manual_seed(objects)
        points = torch.rand(200, objects + 1, 2, generator=draw)
        learned = points + 0.2 * torch.randn(points.shape, generator=draw)
        encoding = Encoding(agent=learned[:, 0], objects=learned[:, 1:])
        truth = Truth(agent=points[:, 0], object=points[:, 1:], contact=torch.zeros(200, objects, dtype=torch.bool))
        apart, true = learned[:, None] - learned[:, :, None], points[:, 1:] - points[:, :1]
        orders = list(itertools.permutations(range(objects + 1)))
        sums = [(apart[:, order[0], list(order[1:])] - true).square().sum((1, 2)) for order in orders]
        expected = torch.stack(sums[1:]).amin(0) < sums[0]
        assert 0 < expected.sum() < 200
        assert torch.equal(reading.mistaken(Translations(2), encoding, truth), expected)
        same_agent = [i for i, order in enumerate(orders) if order[0] == 0]
        among_objects = torch.stack([sums[i] for i in same_agent]).amin(0) < sums[0]
        assert torch.equal(reading.swapped(Translations(2), encoding, truth), among_objects)

    @pytest.mark.parametrize(("search", "orders"), [("mistaken", 5040), ("swapped", 720)])
    def test_six_objects_take_fewer_operations_than_they_have_orders(self, search: str, orders: int) -> None:
        points = torch.rand(20, 7, 2, generator=torch.Generator().manual_seed(0))
        encoding, truth = Encoding(points[:, 0], points[:, 1:]), Truth(points[:, 0], points[:, 1:])
        with Operations() as done:
            wrong = getattr(reading, search)(Translations(2), encoding, truth)
        assert not wrong.any()
        assert done.count < orders

    def test_swaps_are_counted_and_cost(self) -> None:
        truth = random_truth()
        wrong = (torch.arange(400) % 8 == 1)[:, None]  # a quarter of the odd rows
        learned = at(torch.where(wrong, truth.object, truth.agent), torch.where(wrong, truth.agent, truth.object))
        scores = measure(learned, truth, tells_apart=False)
        assert scores.swap_rate == 0.25
        assert scores.constant["swap_rate"] == 0.5
        assert scores.l_test > 0.05
        assert "agent and object swapped" in str(scores)
        assert "one order for all observations" in str(scores)

    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
    def test_one_order_of_the_agent_and_several_objects(self, order: list[int]) -> None:
        truth = three_points()
        points = torch.cat((truth.agent[:, None], truth.objects), 1)[:, order]
        learned = Encoding(points[:, 0], points[:, 1:])
        scores = measure(learned, truth, tells_apart=False)
        found = (scores.l_test, scores.swap_rate, scores.probed_l_test, scores.object_swap_rate)
        assert found == pytest.approx((0, 0, 0, 0), abs=1e-6)
        assert [one.l_test for one in scores.each] == pytest.approx([0, 0], abs=1e-9)
        assert scores.constant["swap_rate"] == pytest.approx(5 / 6)
        torch.testing.assert_close(aligned(learned, truth, tells_apart=False).objects.float(), truth.objects)

    def test_rows_in_which_any_points_are_exchanged_are_counted(self) -> None:
        truth = three_points()
        points = torch.cat((truth.agent[:, None], truth.objects), 1)
        kind = (torch.arange(400) % 8)[:, None, None]  # of the odd rows a quarter has an agent among the objects
        points = torch.where(kind == 1, points[:, [1, 0, 2]], points)
        points = torch.where(kind == 3, points[:, [0, 2, 1]], points)
        scores = measure(Encoding(points[:, 0], points[:, 1:]), truth, tells_apart=False)
        assert scores.swap_rate == 0.5
        assert scores.object_swap_rate is not None
        assert 0.25 <= scores.object_swap_rate < 0.5

    def test_the_probe_stands_beside_the_raw_error(self) -> None:
        """A picture plane that is stretched, sheared and mirrored: raw it is wrong, an affine map mends it."""
        truth = random_truth()
        camera = torch.tensor([[0.5, 0.2], [0.0, 0.7]])
        seen = at(truth.agent @ camera + 0.1, truth.object @ camera + 0.1)
        scores = measure(seen, truth, tells_apart=False)
        assert scores.l_test > 0.02
        assert scores.probed_l_test == pytest.approx(0, abs=1e-6)
        assert scores.as_dict()["probed_l_test"] == scores.probed_l_test
        assert scores.as_dict()["constant probed_l_test"] == scores.constant["l_test"]


class TestSeveralObjects:
    """Learned objects have no order."""

    def truth(self) -> Truth:
        generator = torch.Generator().manual_seed(0)
        places = torch.rand(400, 4, 2, generator=generator)
        return Truth(places[:, 0], places[:, 1:], contact=torch.rand(400, 3, generator=generator) < 0.3)

    def test_one_permutation_for_all_rows(self) -> None:
        truth = self.truth()
        learned = Encoding(truth.agent + 3, truth.objects[:, [2, 0, 1]] + 3)
        certain = truth.contacts[:, [2, 0, 1]].float()
        scores = measure(learned, truth, contact=certain, would_touch=1 - certain)
        found = (scores.l_test, scores.object_error, scores.object_swap_rate, scores.isometry)
        assert found == pytest.approx((0, 0, 0, 0), abs=1e-6)
        assert (scores.contact_accuracy, scores.would_touch_accuracy) == (1, 0)
        assert [one.l_test for one in scores.each] == pytest.approx([0, 0, 0], abs=1e-9)
        torch.testing.assert_close(aligned(learned, truth).objects.float(), truth.objects)

    def test_each_has_its_own_score(self) -> None:
        truth = self.truth()
        off = torch.tensor([[0.3, 0.4], [0.0, 0.0], [0.0, 0.1]])
        scores = measure(Encoding(truth.agent, truth.objects + off), truth)
        assert [one.l_test for one in scores.each] == pytest.approx([0.25, 0, 0.01], abs=1e-6)
        assert [one.error for one in scores.each] == pytest.approx([0.5, 0, 0.1], abs=1e-6)
        assert scores.l_test == pytest.approx(0.26 / 3, rel=1e-5)
        assert all(one.constant_l_test == pytest.approx(1 / 3, rel=0.2) for one in scores.each)
        assert scores.as_dict()["l_test 2"] == pytest.approx(0.01, rel=1e-5)
        assert "L_test of object 0" in str(scores)

    def test_rows_with_another_order_are_counted(self) -> None:
        truth = self.truth()
        crossed = torch.where((torch.arange(400) % 4 == 1)[:, None, None], truth.objects[:, [1, 0, 2]], truth.objects)
        scores = measure(Encoding(truth.agent, crossed), truth)
        assert scores.object_swap_rate == pytest.approx(0.5)  # of the odd rows, which are measured

    def test_objects_that_look_alike_are_matched_row_by_row(self) -> None:
        truth = self.truth()
        order = torch.rand(400, 3, generator=torch.Generator().manual_seed(1)).argsort(1)
        places = truth.objects.take_along_dim(order[..., None], 1) + torch.tensor([0.0, 0.01])
        contact = truth.contacts.take_along_dim(order, 1).float()
        learned = Encoding(truth.agent, places)
        ordered, alike = (measure(learned, truth, contact=contact, alike=answer) for answer in (False, True))
        assert ordered.l_test > 0.1 > 1000 * (alike.l_test - 1e-4)
        assert (alike.object_error, alike.object_bias) == pytest.approx((0.01, 0.01), rel=1e-3)
        assert ordered.contact_accuracy < 0.8 < alike.contact_accuracy == 1
        assert [one.error for one in alike.each] == pytest.approx([0.01] * 3, rel=1e-3)
        assert alike.object_swap_rate is None
        one = Truth(truth.agent, truth.objects[:, 0])
        assert measure(Encoding(one.agent, one.objects), one, alike=True).l_test == pytest.approx(0, abs=1e-9)

    def test_rows_in_which_any_is_hidden_are_left_out(self) -> None:
        truth = self.truth()
        visible = torch.ones(400, 3, dtype=torch.bool)
        visible[::3, 1] = False
        wrong = torch.where(visible[..., None], truth.objects, 9.0)
        scores = measure(Encoding(truth.agent, wrong, None, None, visible.float()), truth._replace(visible=visible))
        assert scores.l_test == pytest.approx(0, abs=1e-9)
        assert scores.hidden_rows == pytest.approx(200 / 3, abs=1)
        assert scores.confidence_auroc == 1

    def test_another_number_of_objects_is_refused(self) -> None:
        truth = self.truth()
        with pytest.raises(ValueError, match="the model has 2 objects and the truth 3; train with objects=3"):
            measure(Encoding(truth.agent, truth.objects[:, :2]), truth)


def test_aligned_is_what_a_picture_shows() -> None:
    truth = random_truth()
    learned, _ = a_latent(truth)
    crossed = at(truth.object + 5, truth.agent + 5)
    for shown in (aligned(learned, truth, places_object=False), aligned(crossed, truth, tells_apart=False)):
        torch.testing.assert_close(shown.agent.float(), truth.agent, atol=1e-5, rtol=0)
        torch.testing.assert_close(shown.object.float(), truth.object, atol=1e-5, rtol=0)


def test_mistakes_are_named() -> None:
    truth = random_truth(10)
    good = answer(truth)
    with pytest.raises(ValueError, match=r"encoding's objects has shape \(9, 1, 2\), the truth's \(10, 1, 2\)"):
        measure(good._replace(objects=good.objects[1:]), truth)
    with pytest.raises(ValueError, match="there are 1 rows; give at least 2, or a reference"):
        measure(answer(random_truth(1)), random_truth(1))
