"""The label-free quality: values by hand, and an order of models that true states confirm."""

from typing import Any

import numpy as np
import pytest
import torch
from balls import balls

import palpate
from palpate import quality
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.contacts.slots import Slot
from palpate.data.transitions import Batch
from palpate.groups.translations import Translations
from palpate.inputs import Inputs
from palpate.methods.base import Examination, Model
from palpate.methods.store import build
from palpate.quality import Quality, assess, boundary

GOOD: dict[str, Any] = {
    "triples": 100,
    "separation": 0.9,
    "contact_share": 0.3,
    "hidden": 0.0,
    "equivariance": 0.05,
    "stay": 0.02,
    "closure": None,
    "tracking": 0.99,
    "consistency": 0.95,
    "elongation": 2.0,
    "misplaced": 0.03,
    "error": 0.06,
    "objects": 1,
    "unit": 1.0,
}
OBJECT = Slot("object", 0.95, 0.02, 0.1)


class TestBoundary:
    def paths(self, count: int = 20_000) -> torch.Tensor:
        return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def test_exact_contacts(self) -> None:
        found = boundary(self.paths(), self.paths() < 0.25)
        assert found.radius == pytest.approx(0.25, abs=0.02)
        assert found.accuracy > 0.97
        assert found.spread < 0.02

    @pytest.mark.parametrize("spread", [0.02, 0.08])
    def test_the_position_error_follows_from_wrong_predictions(self, spread: float) -> None:
        """Distances measured with an error of a known spread."""
        true = self.paths()
        error = spread * torch.randn(len(true), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        assert boundary((true + error).abs(), true < 0.4).spread == pytest.approx(spread, rel=0.25)

    @pytest.mark.parametrize("seed", range(3))
    def test_paths_through_the_centre(self, seed: int) -> None:
        """As on a line: many distances are 0, and so may be the best border."""
        generator = torch.Generator().manual_seed(seed)
        distance = torch.rand(30, dtype=torch.float64, generator=generator)
        distance[torch.rand(30, generator=generator) < 0.6] = 0
        assert np.isfinite(boundary(distance, torch.rand(30, generator=generator) < 0.5)).all()

    def test_chance(self) -> None:
        coin = torch.rand(20_000, generator=torch.Generator().manual_seed(1)) < 0.3
        assert boundary(self.paths(), coin).accuracy == pytest.approx(0.5, abs=0.03)

    def test_rare_contacts_weigh_the_same(self) -> None:
        true = self.paths() ** 0.5  # few near 0
        assert boundary(true, true < 0.15).accuracy > 0.95


class Puppet:
    """A model with a given examination."""

    def __init__(self, seen: Examination, separation: float = 1.0, unit: float = 1.0) -> None:
        self.seen, self.valley = seen, separation
        self.group, self.inputs = Translations(seen.agent.shape[1]), Inputs((4,), Translations(2))
        self.inputs.unit.fill_(unit)
        self.config = ModelConfig(encoder="mlp", observation_shape=(4,), n=2)
        self.rows = 0

    def separations(self) -> list[float]:
        return [self.valley] * self.seen.objects.shape[1]

    def examine(self, batch: Batch) -> Examination:
        part = slice(self.rows, self.rows + len(batch.a))
        self.rows += len(batch.a)
        return Examination(*(None if x is None else x[part] for x in self.seen))  # type: ignore[arg-type]


def walk(count: int = 30, slip: float = 0.0, rest: float = 0.0) -> tuple[Examination, Batch]:
    """A walk whose actions are `slip` too long; objects drift by `rest`. Every third triple is in contact."""
    generator = torch.Generator().manual_seed(0)
    agent = torch.rand(count + 1, 2, generator=generator)
    thing, touched = torch.rand(count, 1, 2, generator=generator), torch.arange(count)[:, None] % 3 == 0
    distance = torch.rand(count, 1, generator=generator) + (~touched).float()
    drift = torch.where(touched[..., None], 9.0, torch.tensor([rest, 0.0]))
    visible = torch.ones_like(touched)
    seen = Examination(agent[:-1], agent[1:], thing, thing + drift, distance, touched, visible, touched, distance, None)
    return seen, Batch(agent[:-1].clone(), agent.diff(dim=0) + torch.tensor([slip, 0.0]), agent[1:].clone())


def assessed(seen: Examination, batch: Batch, episode: torch.Tensor | None = None, **about: Any) -> Quality:
    model: Any = Puppet(seen, **about)
    found = assess(model, batch, episode)
    assert found is not None
    return found


class TestAssess:
    def test_by_hand(self) -> None:
        found = assessed(*walk(90, slip=0.03, rest=0.04), unit=0.5)
        assert (found.triples, found.contact_share, found.unit) == (90, pytest.approx(1 / 3), 0.5)
        assert (found.equivariance, found.stay) == (pytest.approx(0.03, rel=1e-4), pytest.approx(0.04, rel=1e-4))
        assert found.consistency is not None
        assert found.consistency > 0.9  # a quantile of so few distances
        assert (found.closure, found.elongation) == (None, None)
        assert found.findings == []

    @pytest.mark.parametrize("touched", [True, False])
    def test_one_class_alone_gives_no_consistency(self, touched: bool) -> None:
        seen, batch = walk()
        found = assessed(seen._replace(contact=torch.full((30, 1), touched)), batch)
        assert found.consistency is None
        assert (found.stay is None) == touched
        spread = float((seen.agent - seen.agent.mean(0)).square().sum(1).mean().sqrt())
        assert found.error >= spread * 0.999  # the object may be anywhere

    def test_a_slot_without_an_object_does_not_spoil_the_measurements_of_the_others(self) -> None:
        """The second slot jumps about wherever the agent moves."""
        seen, batch = walk(900, rest=0.04)
        jumps = torch.randn(900, 1, 2, generator=torch.Generator().manual_seed(1))
        both = seen._replace(
            objects=torch.cat((seen.objects, seen.objects), 1),
            objects_next=torch.cat((seen.objects_next, seen.objects + jumps), 1),
            contact=torch.cat((seen.contact, jumps[..., 0] > 0), 1),
            visible=seen.visible.expand(-1, 2),
            far=torch.cat((seen.far, jumps.norm(dim=-1) > 0.1), 1),
            distance=seen.distance.expand(-1, 2),
        )
        found, alone = assessed(both, batch), assessed(seen, batch)
        assert [slot.holds for slot in found.slots] == ["object", "mover"]
        assert (found.objects, alone.objects, alone.slots) == (1, 1, ())
        assert found.as_dict() == alone.as_dict() | {"verdict": "doubtful"}
        (finding,) = found.findings
        assert (finding.name, finding.evidence["index"]) == ("moves-by-itself", 1)
        assert "objects=1" in finding.advice

    def test_hidden_objects_are_left_out_and_counted(self) -> None:
        seen, batch = walk(90, rest=0.04)
        visible = torch.arange(90)[:, None] % 5 != 0
        lost = torch.where(visible[..., None], seen.objects_next, 50.0)
        found = assessed(seen._replace(objects_next=lost, visible=visible), batch)
        assert (found.stay, found.hidden) == (pytest.approx(0.04, rel=1e-4), pytest.approx(0.2))
        assert [finding.name for finding in found.findings] == ["hidden-object"]

    def test_displacements_add_up_within_an_episode(self) -> None:
        for slip in (0.0, 0.01):
            seen, batch = walk(slip=slip)
            assert assessed(seen, batch, torch.zeros(30)).closure == pytest.approx(10 * slip, abs=1e-5)
        seen, batch = walk()
        batch.a[14] += 100  # from one episode to the next
        assert assessed(seen, batch, torch.tensor([0] * 14 + [1] * 2 + [2] * 14)).closure == pytest.approx(0, abs=1e-5)
        assert assessed(seen, batch, torch.arange(30)).closure is None
        assert assessed(*walk(count=6), torch.zeros(6)).closure is None  # too few rows
        batch.o[::5] += 1  # rows of one episode that do not follow each other
        assert assessed(seen, batch, torch.zeros(30)).closure is None

    def test_memory_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen, batch = walk()
        whole, blocks = assessed(seen, batch), []
        monkeypatch.setattr(quality, "BLOCK_BYTES", 8 * 2 * 7)  # seven rows of two numbers, o and o' in float32
        monkeypatch.setattr(Puppet, "examine", _noting(Puppet.examine, blocks))
        assert assessed(seen, batch) == whole
        assert blocks == [7, 7, 7, 7, 2]

    def test_every_body_has_a_consistency(self) -> None:
        for body in ("ball", "outline", "ellipse"):
            model, batch = random_model(body)
            with torch.no_grad():
                found, seen = assess(model, batch), model.examine(batch)
            assert found is not None
            assert seen is not None
            assert found.consistency == pytest.approx(
                boundary(seen.distance[:, 0].double(), seen.contact[:, 0]).accuracy, abs=1e-6
            )

    @pytest.mark.parametrize("ratio", [1.0, 3.0, 1 / 3, 1e9])
    def test_elongation(self, ratio: float) -> None:
        model, batch = random_model("ellipse")
        with torch.no_grad():
            dict(model.named_parameters())["head.bodies.0.log_ratio"].fill_(ratio).log_()
            dict(model.named_parameters())["phi_ext.head.weight"][2:] *= 1e3  # sure of its axis, whichever that is
            found = assess(model, batch)
        assert found is not None
        assert found.elongation == pytest.approx(min(max(ratio, 1 / ratio), 1e4), rel=0.01)  # a needle is no thinner

    def test_no_elongation_for_a_method_without_bodies(self) -> None:
        model, batch = random_model(None, method="paper-gaussian")
        found = assess(model, batch)
        assert found is not None
        assert found.elongation is None

    def test_no_quality_for_a_model_without_contacts(self) -> None:
        model, batch = random_model(None, method="vae")
        assert assess(model, batch) is None


def _noting(examine: Any, blocks: list[int]) -> Any:
    return lambda self, batch: (blocks.append(len(batch.a)), examine(self, batch))[1]


def random_model(body: str | None, method: str = "contact") -> tuple[Model, Batch]:
    """Its split remembers the distances of the batch."""
    torch.manual_seed(0)
    scene = ObjectiveConfig() if body is None else ObjectiveConfig(body=body, refine=False, rest_floor=0.1)
    config = ModelConfig(
        method=method, encoder="mlp", observation_shape=(6,), observation_dtype="float32", n=2, objective=scene
    )
    model = build(config)
    batch = Batch(torch.randn(300, 6), torch.randn(300, 2), torch.randn(300, 6))
    model.loss(batch, torch.Generator(), torch.tensor(0.5))
    return model.eval(), batch


@pytest.mark.parametrize("missed", [0.0, 0.1])
@pytest.mark.parametrize("error", [0.01, 0.03])
def test_wrong_labels_are_no_position_errors(missed: float, error: float) -> None:
    """Distances of paths with a known error, and contacts of which some were missed, wherever the path led."""
    generator = torch.Generator().manual_seed(0)
    true = torch.rand(40_000, generator=generator, dtype=torch.float64)
    seen = (true + error * torch.randn(len(true), generator=generator, dtype=torch.float64)).abs()
    contact = (true < 0.2) & (torch.rand(len(true), generator=generator) >= missed)
    assert boundary(seen, contact).spread == pytest.approx(error, rel=0.35)


@pytest.mark.parametrize(("still", "tracking"), [(False, 1.0), (True, 0.5)])
def test_an_object_that_ignores_its_contacts_is_noticed(still: bool, tracking: float) -> None:
    """In every second triple there is a contact; the object's learned position then moves, or it does not."""
    model, batch = random_model("ball")
    batch = Batch(*(x[:256] for x in batch))  # one block
    seen = model.examine(batch)
    assert seen is not None
    contact = torch.arange(256)[:, None] % 2 == 0
    step = 1e-3 * torch.randn(256, 1, 2, generator=torch.Generator().manual_seed(0))
    after = seen.objects.detach() + step + (0.0 if still else 1.0) * contact[..., None]
    model.examine = lambda rows: seen._replace(objects_next=after, contact=contact)  # type: ignore[method-assign]
    quality = assess(model, batch)
    assert quality is not None
    assert quality.tracking == pytest.approx(tracking, abs=0.1)


class TestFindings:
    def names(self, **changes: Any) -> list[str]:
        return [finding.name for finding in Quality(**(GOOD | changes)).findings]

    def test_none(self) -> None:
        assert self.names() == []
        assert self.names(stay=None, tracking=None, consistency=None, elongation=None) == []

    @pytest.mark.parametrize(
        ("changes", "name"),
        [
            ({"separation": 0.4, "consistency": 0.85}, "inseparable"),
            ({"separation": 0.4, "consistency": None}, "inseparable"),
            ({"separation": -0.4, "consistency": 0.92}, "weak-contacts"),
            ({"contact_share": 0.1}, "few-held-out-contacts"),  # ten
            ({"equivariance": 0.3}, "agent-residual"),
            ({"stay": 0.3}, "restless-object"),
            ({"tracking": 0.6}, "stuck-object"),
            ({"consistency": 0.7}, "unexplained-contacts"),
            ({"elongation": 1.05}, "no-angle"),
            ({"counted": 2}, "more-objects"),
            ({"slots": (OBJECT, Slot("nothing", 0.1, 0.1, 0.0))}, "empty-slot"),
            ({"slots": (OBJECT, Slot("duplicate", 0.9, 0.1, 0.8))}, "duplicate-object"),
            ({"slots": (OBJECT, Slot("mover", 0.5, 0.4, 0.0))}, "moves-by-itself"),
        ],
    )
    def test_each(self, changes: dict[str, Any], name: str) -> None:
        assert self.names(**changes) == [name]

    def test_a_slot_that_cannot_be_judged_is_none(self) -> None:
        unknown = Slot("unknown", 0.0, 0.0, 0.0)
        assert self.names(slots=(OBJECT, unknown)) == self.names(slots=(unknown, unknown)) == []

    def test_lengths_are_relative_to_the_actions(self) -> None:
        assert self.names(equivariance=300.0, stay=20.0, unit=2000.0) == []

    @pytest.mark.parametrize(
        ("changes", "verdict"),
        [
            ({}, "good"),
            ({"hidden": 0.1}, "good"),
            ({"stay": 0.3, "hidden": 0.1}, "doubtful"),
            ({"equivariance": 0.5}, "doubtful"),
            ({"equivariance": 0.7}, "not to be trusted"),
            ({"separation": 0.1, "consistency": 0.95}, "doubtful"),
            ({"separation": 0.1, "consistency": 0.6}, "not to be trusted"),
            ({"tracking": 0.55}, "not to be trusted"),
            ({"counted": 1}, "good"),
            ({"counted": 2}, "doubtful"),
            ({"objects": 2, "counted": 2, "slots": (OBJECT, OBJECT)}, "good"),
            ({"slots": (OBJECT, Slot("duplicate", 0.9, 0.1, 0.8))}, "doubtful"),
            ({"slots": (Slot("nothing", 0.1, 0.1, 0.0),) * 2}, "not to be trusted"),
        ],
    )
    def test_the_verdict(self, changes: dict[str, Any], verdict: str) -> None:
        quality = Quality(**(GOOD | changes))
        assert (quality.verdict, quality.as_dict()["verdict"]) == (verdict, verdict)
        assert str(quality).startswith(f"{verdict}; ")

    def test_inseparable_contacts_are_the_only_finding_but_for_more_objects(self) -> None:
        assert self.names(separation=0.1, equivariance=9.0, consistency=0.1) == ["inseparable"]
        assert self.names(separation=0.1, equivariance=9.0, consistency=0.1, counted=2) == [
            "more-objects",
            "inseparable",
        ]


@pytest.mark.slow
def test_a_longer_run_has_a_better_quality() -> None:
    """Also in the right order of magnitude, in the action's unit."""
    train = balls(2000, seed=0, sides=(100.0, 100.0), contact_share=0.3)
    test = balls(500, seed=1, sides=(100.0, 100.0))
    settings: dict[str, Any] = {"batch_size": 128, "learning_rate": 4e-3, "device": "cpu", "progress": False}
    with pytest.warns(UserWarning, match="triples with and without contact do not separate"):
        short = palpate.fit(train.transitions, steps=15, **settings)
    long = palpate.fit(train.transitions, steps=150, evaluate_every=75, **settings)
    for model in (short, long):
        true = palpate.evaluate(model, test).l_test ** 0.5
        assert 1 / 3 < model.facts["quality"]["error"] / true < 3
    assert long.facts["quality"]["error"] < 0.7 * short.facts["quality"]["error"]
    assert long.facts["findings"] == []
    assert long.facts["quality"]["triples"] == 200
