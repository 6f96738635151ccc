"""A step: its schedule, the groups that start later, and what never reaches the weights."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import BATCH, Toy, feed, make_model, resident, same, settings, train_toy, triples, weights

from palpate.bodies.base import SHAPE_FROM
from palpate.data.sources import Resident
from palpate.methods.base import Anew, Loss, Model
from palpate.methods.one_by_one import OneByOne
from palpate.training.feeds import Oversampled
from palpate.training.notes import NonFiniteLoss, Notes
from palpate.training.state import _learned
from palpate.training.step import Run

CPU = torch.device("cpu")


def steps(run: Run, count: int) -> None:
    for _ in range(count):
        run.set_schedule()
        run.advance()
        run.step += 1


def test_the_learning_rate_follows_the_schedule() -> None:
    run = Run(make_model(), resident(), settings(steps=40, learning_rate=0.01, optimizer="muon"), CPU)
    for step, factor in ((0, 0.04), (5, 0.52), (10, 1.0), (25, 0.5), (40, 0.0)):
        run.step = step
        run.set_schedule()
        matrices, others = (optimizer.param_groups for optimizer in run.optimizers)
        # The scalars follow ten times as fast.
        for group, rate in ((matrices[0], 0.01), (others[0], 0.01), (others[1], 0.1)):
            assert group["lr"].item() == pytest.approx(rate * factor, abs=1e-8)
        assert run.progress.item() == pytest.approx(step / 40)


def test_each_stage_has_a_schedule_of_its_own() -> None:
    class Staged(Toy):
        stages = 3

    def evaluate(model: Model) -> dict[str, float]:
        return {"held_out": float(model.stage)}  # later stages have larger losses

    toy = Staged()
    run = Run(toy, Oversampled(Resident(triples(), "cpu"), BATCH, 0.3), settings(steps=30, optimizer="muon"), CPU)
    seen: list[tuple[int, int, bool]] = []
    rates: list[float] = []
    for run.step in range(30):
        run.set_schedule()
        rates.append(run.optimizers[0].param_groups[0]["lr"].item())
        assert run.progress.item() == pytest.approx(run.step % 10 / 10, abs=1e-6)
        seen.append((run.step, toy.stage, bool(run.best)))
        run.feed.record(torch.zeros(BATCH), torch.ones(BATCH))
        if run.step % 10 == 5:
            toy.weight.data.fill_(run.step)
            run.evaluated(evaluate, "held_out")
            toy.weight.data.zero_()
        if run.step % 10 == 0:  # the best weights of the last stage are back, and nothing recorded counts any more
            assert toy.weight.tolist() == ([run.step - 5.0] * 2 if run.step else [1.0, -2.0])
            assert run.feed.vitals() == {"contact_share": 1.0}  # of this batch alone
    assert rates[:10] == pytest.approx(rates[10:20])
    assert rates[:10] == pytest.approx(rates[20:])
    assert [(stage, best) for _, stage, best in seen] == [(i // 10, i % 10 > 5) for i in range(30)]


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_later_stages_leave_what_was_learned_before(optimizer: Any) -> None:
    model = make_model(True, objects=2, method="one-by-one")
    assert isinstance(model, OneByOne)
    run = Run(model, feed("stream"), settings(steps=6, optimizer=optimizer), CPU)
    steps(run, 3)
    found = [weights(module) for module in (model.phi_int, model.parts[0])]
    last = weights(model.parts[1])
    steps(run, 3)
    assert all(same(old, weights(module)) for old, module in zip(found, (model.phi_int, model.parts[0]), strict=True))
    assert not same(last, weights(model.parts[1]))
    modes = [module.training for module in (model.phi_int, *model.parts)]
    assert modes == [False, False, True]  # else averages of BatchNorm would change


@pytest.mark.parametrize("body", ["outline", "ellipse"])
def test_a_shape_is_learned_from_its_share_of_the_run_on(body: str) -> None:
    """Until then neither its parameters nor their moments change, and everything else learns."""
    model = make_model(body=body)
    run = Run(model, resident(), settings(steps=10), CPU)
    late = [p for group in model.parameter_groups() if "starts" in group for p in group["params"]]
    assert late
    first, radius = [p.detach().clone() for p in late], model.vitals()["radius"]
    steps(run, int(SHAPE_FROM * 10))
    assert all(map(torch.equal, first, late))
    assert not any(dict(_learned(run))[p]["exp_avg_sq"].any() for p in late)
    assert model.vitals()["radius"] != radius
    steps(run, 1)
    assert not any(map(torch.equal, first, late))


class TestNonFinite:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("k", [1, 3, 4])
    def test_never_reaches_the_weights(self, k: int, value: float) -> None:
        toy = Toy({k: value})
        with pytest.raises(NonFiniteLoss) as error:
            train_toy(toy, log_every=6)
        assert toy.calls == 6  # good steps after the bad one were computed, and masked too
        good = train_toy(Toy(), steps=k - 1) if k > 1 else Toy()
        assert torch.equal(toy.weight, good.weight)
        assert f"not finite: other, gradient, {k - 1} good steps after the last reading" in str(error.value)

    def test_names_the_first_bad_step_only(self) -> None:
        class Both(Toy):
            def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
                loss = super().objective(outputs, progress)
                return loss._replace(
                    terms=loss.terms | {"good": loss.terms["good"] * (math.nan if self.calls == 5 else 1)}
                )

        with pytest.raises(NonFiniteLoss, match="not finite: other, gradient,"):
            train_toy(Both({3: math.nan}), log_every=6)

    def test_a_gradient_alone(self) -> None:
        """The root of 0 is a number, its slope is not."""

        class Steep(Toy):
            def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
                loss = super().objective(outputs, progress)
                root = (self.weight - self.weight.detach()).sum().abs().sqrt()
                return Loss({"good": loss.terms["good"], "root": root}, {})

        toy = Steep()
        with pytest.raises(NonFiniteLoss, match="not finite: gradient,"):
            train_toy(toy)
        assert torch.equal(toy.weight, Toy().weight)

    @pytest.mark.parametrize("optimizer", ["muon", "adamw"])
    def test_a_real_model_keeps_weights_and_moments(self, optimizer: Any) -> None:
        run = Run(make_model(), resident(), settings(schedule="paper", optimizer=optimizer), CPU)
        steps(run, 3)

        def learned() -> list[Tensor]:
            moments = [value for _, state in _learned(run) for value in state.values()]
            return [x.detach().clone() for x in (*run.parameters, *moments)]

        before = learned()
        batch = run.feed.draw(run.generator)
        run.advance(batch._replace(o=torch.full_like(batch.o, torch.nan)))
        run.advance(batch)
        assert all(map(torch.equal, before, learned()))
        with pytest.raises(NonFiniteLoss, match=r"not finite: agent, contrast, .*gradient"):
            run.read()

    def test_such_weights_are_not_refined(self) -> None:
        toy = Toy({11: math.nan})
        with pytest.raises(NonFiniteLoss):
            train_toy(toy, log_every=12)
        assert (toy.refined, train_toy(Toy()).refined) == (0, 1)

    def test_a_reading_that_is_no_number_stops_nothing(self) -> None:
        notes = Notes(["a"], ["c"], CPU)
        assert notes.add([torch.tensor(1.0)], [torch.tensor(math.nan)]).item() == 0


class Steep(Toy):
    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        return Loss({"steep": 1e3 * self.weight.sum()}, {})


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_starts_anew_forgets_which_way_it_moved(optimizer: Any) -> None:
    """Other entries keep their moments, and all keep the size of their gradients."""
    model = make_model()
    run = Run(model, resident(), settings(optimizer=optimizer), CPU)
    steps(run, 3)
    moments = dict(_learned(run))
    readout, matrix = model.phi_ext.head.weight, model.phi_ext.encoder.layers[2].weight
    scalar = next(iter(model.head[0].parameters()))
    momentum = {p: moments[p]["momentum" if "momentum" in moments[p] else "exp_avg"] for p in (readout, matrix, scalar)}
    assert all(x.any() for x in momentum.values())
    before = {p: x.clone() for p, x in momentum.items()}
    sizes = moments[readout]["exp_avg_sq"].clone()
    model.adapt = lambda share: [Anew(readout, slice(0, 1)), Anew(matrix, 2), Anew(scalar)]  # type: ignore[method-assign]
    run.step = 0
    run.set_schedule()
    assert not any(x.any() for x in (momentum[readout][0], momentum[matrix][2], momentum[scalar]))
    assert torch.equal(momentum[readout][1:], before[readout][1:])
    assert torch.equal(momentum[matrix][3:], before[matrix][3:])
    assert torch.equal(moments[readout]["exp_avg_sq"], sizes)


def test_a_step_uses_its_own_gradient_alone() -> None:
    run = Run(Steep(), resident(), settings(schedule="paper"), CPU)
    for _ in range(2):
        steps(run, 1)
        assert run.read()["gradient"] == pytest.approx(1e3 * 2**0.5, rel=1e-4)


def test_gradients_are_clipped_unless_as_the_paper_trains() -> None:
    """AdamW's first step does not depend on the gradient's size, its moments do."""

    def first_moment(model: Model, schedule: str) -> float:
        run = Run(model, resident(), settings(schedule=schedule), CPU)
        steps(run, 1)
        return float(dict(_learned(run))[run.parameters[0]]["exp_avg"].norm())

    assert first_moment(Steep(), "one-cycle") == pytest.approx(0.1 * 10, rel=1e-4)
    assert first_moment(Steep(), "paper") == pytest.approx(0.1 * 1e3 * 2**0.5, rel=1e-4)
