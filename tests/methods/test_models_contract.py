"""What every method promises, whatever its observation, body and dimension."""

import copy
import functools
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tilted import Tilted
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from palpate.config import Encoder, ModelConfig, ObjectiveConfig
from palpate.data.labelled import LabelledBatch
from palpate.data.transitions import Batch
from palpate.methods.base import Encoding, Model
from palpate.methods.geometric import GEOMETRY_DOUBT
from palpate.methods.store import build, load_model, save_model
from palpate.methods.vae import LATENT
from palpate.traits import METHODS, method_class

ROWS = 24
PICTURE, VECTOR = (3, 20, 20), (12,)


class Case(NamedTuple):
    method: str
    encoder: Encoder
    n: int
    scene: dict[str, Any]
    tilted: bool = False  # with the second group

    def __str__(self) -> str:
        parts = [self.method, self.encoder, str(self.n)]
        parts += [f"{x}-objects" if name == "objects" else str(x) for name, x in self.scene.items()]
        return "-".join([*parts, "tilted"] if self.tilted else parts)

    @property
    def config(self) -> ModelConfig:
        settled: dict[str, Any] = {} if METHODS[self.method].unsupervised else {"body": "ball"}
        settled |= {"body": "ball", "refine": False, "rest_floor": 0.1} if METHODS[self.method].has_body else {}
        return ModelConfig(
            method=self.method,
            encoder=self.encoder,
            observation_shape=VECTOR if self.encoder == "mlp" else PICTURE,
            observation_dtype="float32" if self.encoder == "mlp" else "uint8",
            n=self.n,
            objective=ObjectiveConfig(**settled | self.scene),
        )


def cases() -> list[Case]:
    return [
        *(Case(method, "small", 2, {}) for method in METHODS),
        *(Case(method, "mlp", 3, {}) for method in METHODS if method != "transporter"),
        Case("contact", "mlp", 1, {"radius": 0.3}),
        Case("contact", "mlp", 2, {"body": "outline"}),
        Case("contact", "mlp", 2, {"body": "ellipse", "refine": True}),
        Case("egocentric", "mlp", 2, {"body": "ellipse"}),
        Case("supervised", "mlp", 2, {"body": "ellipse", "egocentric": True}),
        Case("vae", "mlp", 1, {}),
        *(Case(method, "mlp", 2, {}, tilted=True) for method in METHODS if method != "transporter"),
        Case("contact", "small", 2, {"body": "ellipse", "refine": True}, tilted=True),
        *(Case(name, "small", 2, {"objects": 2}) for name, traits in METHODS.items() if "pictures" in traits.several),
        *(Case(name, "mlp", 3, {"objects": 3}) for name, traits in METHODS.items() if "vectors" in traits.several),
        Case("supervised", "mlp", 2, {"objects": 2, "body": "ellipse"}),
    ]


CASES = cases()
# A known radius is a length, which would have to change its unit with the actions.
WITHOUT_LENGTHS = [case for case in CASES if "radius" not in case.scene]
ONE_EACH = [case for case in CASES if case.encoder == "small" and not case.scene]
WITH_CONTACTS = [
    case
    for case in CASES
    if case.method in ("contact", "one-by-one", "egocentric", "carried", "paper", "paper-gaussian")
]
PREDICTING = [case for case in CASES if METHODS[case.method].predicts]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


@pytest.fixture(autouse=True)
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "case" in request.fixturenames and request.getfixturevalue("case").tilted:
        monkeypatch.setattr("palpate.methods.base.make_group", lambda config: Tilted(config.n))


def rows(config: ModelConfig, seed: int = 0, scale: float = 1.0) -> Any:
    """Random triples, half of which show the same scene after; with truth for a method that needs it."""
    generator = torch.Generator().manual_seed(seed)
    shape = (ROWS, *config.observation_shape)
    if config.observation_dtype == "uint8":
        o, o_next = torch.randint(256, (2, *shape), generator=generator, dtype=torch.uint8)
    else:
        o, o_next = torch.randn((2, *shape), generator=generator)
    o_next[: ROWS // 2] = o[: ROWS // 2]
    batch = Batch(o, scale * torch.randn(ROWS, config.n, generator=generator), o_next)
    if METHODS[config.method].unsupervised:
        return batch
    agent, agent_next = scale * torch.rand(2, ROWS, config.n, generator=generator)
    things, things_next = scale * torch.rand(2, ROWS, config.objects, config.n, generator=generator)
    angles, angles_next = torch.rand(2, ROWS, config.objects, generator=generator)
    return LabelledBatch(*batch, agent, things, angles, agent_next, things_next, angles_next)


def triples(given: Any) -> Batch:
    return Batch(given.o, given.a, given.o_next)


def make(config: ModelConfig, scale: float = 1.0) -> Model:
    torch.manual_seed(0)
    model = build(config)
    model.measure(triples(rows(config, scale=scale)))
    return model


def losses(model: Model, given: Any, progress: float = 0.6) -> dict[str, Tensor]:
    return model.loss(given, torch.Generator().manual_seed(1), torch.tensor(progress)).terms


def trained(case: Case) -> Model:
    """After a few steps: buffers hold something, and scalars are not their first values."""
    return copy.deepcopy(_trained(str(case)))


@functools.cache
def _trained(name: str) -> Model:
    config = next(case for case in CASES if str(case) == name).config
    model = make(config)
    optimizer = torch.optim.SGD(model.parameter_groups(), lr=1e-3)
    for stage in range(model.stages):
        model.stage = stage
        model.train()
        for seed in range(3):
            optimizer.zero_grad()
            torch.stack(list(losses(model, rows(config, seed)).values())).sum().backward()
            optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


def equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k].nan_to_num(-1), two[k].nan_to_num(-1)) for k in one)


class TestLoss:
    def test_is_finite_and_one_number_per_term(self, case: Case) -> None:
        model, given = make(case.config), rows(case.config)
        for progress in (0.0, 1.0):
            loss = model.loss(given, torch.Generator(), torch.tensor(progress))
            assert all(term.shape == () and term.isfinite() and term.requires_grad for term in loss.terms.values())
            assert all(value.shape == () and not value.requires_grad for value in loss.readings.values())
            assert loss.contacts is None or (loss.contacts.shape, loss.contacts.dtype) == ((ROWS,), torch.bool)
        for part in (slice(0, 2), slice(ROWS - 2, ROWS)):  # two triples without contact, two in contact
            terms = losses(model, type(given)(*(x[part] for x in given)))
            assert all(term.isfinite() for term in terms.values())

    def test_every_weight_learns_and_the_optimizer_gets_it_once(self, case: Case) -> None:
        model = make(case.config)
        for stage in range(model.stages):
            model.stage = stage
            model.train()
            torch.stack(list(losses(model, rows(case.config)).values())).sum().backward()
        learned = {name: p for name, p in model.named_parameters() if p.requires_grad}
        still = {name for name, p in learned.items() if p.grad is None or not p.grad.any()}
        # L_- waits until contacts separate; with several objects, until a slot is known to hold one.
        loose = case.method == "carried" or (case.method == "contact" and case.config.objects > 1)
        waits = {"log_rest_scale"} if loose else set()
        assert still <= {"phi_int.head.bias", *waits}  # the agent's frame is free, up to rounding
        assert all(p.grad is not None and p.grad.isfinite().all() for p in learned.values())
        given = [id(p) for group in model.parameter_groups() for p in group["params"]]
        assert sorted(given) == sorted(map(id, learned.values()))

    def test_rows_of_the_outputs_are_those_of_the_batch(self, case: Case) -> None:
        """Triples in another order: the same outputs in that order. Outside of training nothing is random but noise."""
        model, given = trained(case), rows(case.config)
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(2))

        def outputs(order: Tensor) -> list[Tensor]:
            batch = type(given)(*(x[order] for x in given))
            return list(model.outputs(batch, torch.Generator().manual_seed(1), torch.tensor(0.6)))

        straight, shuffled = outputs(torch.arange(ROWS)), outputs(order)
        assert {len(x) for x in straight} == {ROWS}
        noisy = {"vae": 1, "paper": 1, "paper-gaussian": 1}.get(case.method, 0)  # drawing from z_ext, and t
        different = [
            not torch.allclose(x[order], y, rtol=1e-4, atol=1e-4) for x, y in zip(straight, shuffled, strict=True)
        ]
        assert sum(different) == noisy

    @pytest.mark.parametrize("case", WITHOUT_LENGTHS, ids=str)
    def test_the_unit_does_not_matter(self, case: Case) -> None:
        """Metres or millimetres: the same losses, up to rounding, and a thousand times the positions."""
        one, thousand = make(case.config), make(case.config, 1000.0)
        torch.testing.assert_close(
            losses(thousand, rows(case.config, scale=1000.0)), losses(one, rows(case.config)), rtol=1e-3, atol=1e-5
        )
        o = triples(rows(case.config)).o
        here, there = one.eval().encode(o), thousand.eval().encode(o)
        length = 1.0 if case.method == "transporter" else 1000.0  # keypoints are in the picture's unit
        torch.testing.assert_close(there.agent, length * here.agent)
        torch.testing.assert_close(there.objects, (length if one.places_object else 1) * here.objects)
        torch.testing.assert_close(there.orientations, here.orientations)
        if here.covariances is not None and there.covariances is not None:
            torch.testing.assert_close(there.covariances, 1e6 * here.covariances)

    def test_evaluation_leaves_the_buffers_alone(self, case: Case) -> None:
        model = trained(case)
        before = buffers(model)
        losses(model, rows(case.config, 7))
        model.encode(triples(rows(case.config)).o)
        assert equal(buffers(model), before)


@pytest.mark.parametrize("case", ONE_EACH, ids=str)
def test_what_is_compiled_serves_batches_of_training_only(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out rows and users' observations come in any number; each would be compiled anew."""
    calls: list[Any] = []

    def note(function: Any, *, dynamic: bool) -> Any:
        assert not dynamic
        return lambda *inputs: (calls.append(function), function(*inputs))[1]

    monkeypatch.setattr(torch, "compile", note)
    plain, model = make(case.config), make(case.config)
    model.compile_step()
    given = rows(case.config)
    torch.testing.assert_close(losses(model.train(), given), losses(plain.train(), given))
    assert calls
    calls.clear()
    model.eval()
    model.encode(triples(given).o[:3])
    losses(model, given)
    assert not calls


class TestEncode:
    def test_shapes_and_dtypes(self, case: Case) -> None:
        config, model = case.config, trained(case)
        for count in (1, 5):
            with torch.no_grad():
                encoding = model.encode(triples(rows(config)).o[:count])
            assert encoding.agent.shape == (count, config.n)
            assert encoding.objects.shape == (count, config.objects, config.n if model.places_object else LATENT)
            assert config.objects > 1 or torch.equal(encoding.object, encoding.objects[:, 0])
            assert {x.dtype for x in encoding if x is not None} == {torch.float32}
            volume = METHODS[case.method].has_body or case.method == "paper-gaussian"
            assert (encoding.covariances is not None) == volume
            if encoding.covariances is not None:
                assert encoding.covariances.shape == (count, config.objects, config.n, config.n)
                assert (torch.linalg.eigvalsh(encoding.covariances.double()) > 0).all()
            turns = config.objective.body == "ellipse" or (case.method == "paper-gaussian" and config.n == 2)
            assert (encoding.orientations is not None) == turns
            if encoding.orientations is not None:
                assert encoding.orientations.shape == (count, config.objects)
                assert ((encoding.orientations >= 0) & (encoding.orientations < torch.pi)).all()

    @pytest.mark.parametrize("case", [case for case in CASES if case.scene.get("body") == "ellipse"], ids=str)
    def test_the_orientation_is_that_of_the_long_axis(self, case: Case) -> None:
        """Of the model's own ellipsoid, also if the network's axis has become the short one."""
        model = trained(case)
        for ratio in (3.0, 1 / 3):
            for name, parameter in model.named_parameters():
                if name.endswith("log_ratio"):
                    parameter.data.fill_(ratio).log_()
            encoding = model.encode(triples(rows(case.config)).o)
            assert encoding.orientations is not None
            if encoding.covariances is None:  # the supervised limit has none
                return
            along = torch.stack((encoding.orientation.cos(), encoding.orientation.sin()), -1)[:, :, None]
            reached = (along.mT @ encoding.covariance @ along).flatten()
            torch.testing.assert_close(reached, torch.linalg.eigvalsh(encoding.covariance)[:, -1], rtol=1e-4, atol=0)

    def test_a_row_does_not_depend_on_its_neighbours(self, case: Case) -> None:
        model, o = trained(case), triples(rows(case.config)).o
        whole, part = model.encode(o), model.encode(o[3:7])
        for x, y in zip(whole, part, strict=True):
            assert (x is None and y is None) or torch.allclose(x[3:7], y, rtol=1e-4, atol=1e-5)


class TestOutputs:
    def test_none_for_what_a_method_does_not_have(self, case: Case) -> None:
        model, traits, batch = trained(case), METHODS[case.method], triples(rows(case.config))
        moves = batch.a[:, None].repeat(1, 3, 1)
        would, uncertainty = model.would_touch(batch.o, batch.a), model.uncertainty(batch.o, moves)
        assert (would is not None) == (uncertainty is not None) == traits.predicts
        k = case.config.objects
        assert would is None or (would.shape == (ROWS, k) and ((would >= 0) & (would <= 1)).all())
        assert uncertainty is None or uncertainty.shape == (ROWS, 3)
        outputs = [
            model.contact(*batch),
            model.scene_distance(batch.o, batch.o_next),
            model.contacts(batch),
            model.examine(batch),
            model.separations(),
        ]
        assert [each is not None for each in outputs] == [case in WITH_CONTACTS] * len(outputs)
        # Several objects have no common threshold.
        assert (model.threshold() is not None) == (case in WITH_CONTACTS and case.config.objects == 1)
        line, volume = model.border(batch.o), model.encode(batch.o).covariances
        assert (line is not None) == (volume is not None and case.n == 2)
        assert line is None or (line.shape[:2], line.shape[3:]) == ((ROWS, k), (2,))

    @pytest.mark.parametrize("case", WITH_CONTACTS, ids=str)
    def test_contacts_are_probabilities_and_equal_observations_speak_against_them(self, case: Case) -> None:
        """A scene that did not change makes a contact less likely than geometry alone, or less than even without it."""
        model, batch = trained(case), triples(rows(case.config))
        contact = model.contact(*batch)
        assert contact is not None
        assert contact.shape == (ROWS, case.config.objects)
        assert ((contact >= 0) & (contact <= 1)).all()
        geometry = model.would_touch(batch.o, batch.a)
        before = torch.full_like(contact, 0.5) if geometry is None else geometry.clamp(GEOMETRY_DOUBT, 1)
        assert (contact <= before + 1e-6)[: ROWS // 2].all()

    @pytest.mark.parametrize("case", PREDICTING, ids=str)
    def test_a_move_straight_to_the_object_would_touch_it(self, case: Case) -> None:
        model, o = trained(case), triples(rows(case.config)).o
        onto = model.encode(o)
        for i, place in enumerate(onto.objects.unbind(1)):
            would = model.would_touch(o, place - onto.agent)
            assert would is not None
            assert (would[:, i] > 0.5).all()

    @pytest.mark.parametrize("case", WITH_CONTACTS, ids=str)
    def test_an_examination_has_all_axes(self, case: Case) -> None:
        model, batch = trained(case), triples(rows(case.config))
        seen = model.examine(batch)
        assert seen is not None
        encoding = model.encode(batch.o)
        assert seen.agent.shape == (ROWS, model.group.pose_width)
        torch.testing.assert_close(model.group.position(seen.agent), encoding.agent)
        torch.testing.assert_close(model.pose(batch.o), seen.agent)
        torch.testing.assert_close(seen.objects, encoding.objects)
        assert seen.agent_next.shape == seen.agent.shape
        assert seen.objects_next.shape == seen.objects.shape
        each = ROWS, case.config.objects
        assert {seen.scene.shape, seen.contact.shape, seen.distance.shape} == {each}
        assert seen.elongation is None or (seen.elongation.shape == each and (seen.elongation >= 1).all())

    def test_held_out_is_a_number_without_a_trace(self, case: Case) -> None:
        model, given = trained(case), rows(case.config, 9)
        before = buffers(model)
        for name, value in model.named_buffers():
            if name.endswith("valley"):
                value.fill_(1.0)
        with torch.no_grad():
            value, again = model.held_out([given]), model.held_out([given])
        assert value == again
        assert value is None or abs(value) < 1e6
        for name, x in model.named_buffers():
            if not name.endswith("valley"):
                assert torch.equal(x.nan_to_num(-1), before[name].nan_to_num(-1)), name


class Exportable(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, o: Tensor) -> dict[str, Tensor]:
        return self.model.encode(o).known()


def agree(one: Encoding, two: Encoding) -> bool:
    return all((x is None and y is None) or torch.equal(x, y) for x, y in zip(one, two, strict=True))


class TestStore:
    def test_save_and_load_agree_exactly(self, case: Case, tmp_path: Path) -> None:
        model, batch = trained(case), triples(rows(case.config))
        origin = [0.5] * len(model.group.identity())
        save_model(model, tmp_path / "m", {"origin": origin})
        loaded, facts = load_model(tmp_path / "m")
        assert facts == {"origin": origin}
        assert (loaded.config, loaded.training) == (case.config, False)
        assert equal(dict(loaded.state_dict()), model.lasting_state())
        assert agree(model.encode(batch.o), loaded.encode(batch.o))
        contact, again = model.contact(*batch), loaded.contact(*batch)
        assert (contact is None and again is None) or torch.equal(contact, again)  # type: ignore[arg-type]

    @pytest.mark.parametrize("case", ONE_EACH, ids=str)
    @pytest.mark.slow
    def test_an_exported_program_agrees(self, case: Case) -> None:
        model, o = trained(case), triples(rows(case.config)).o
        with torch.no_grad():
            batch = torch.export.Dim("batch", min=1)
            program = torch.export.export(Exportable(model), (o[:3],), dynamic_shapes={"o": {0: batch}})
            torch.testing.assert_close(program.module()(o), model.encode(o).known())


@pytest.mark.slow
def test_resnet18_learns_and_encodes(tmp_path: Path) -> None:
    """Eleven million weights and running means: the same promises, once."""
    config = Case("contact", "resnet18", 2, {}).config
    model, given = make(config), rows(config)
    given = type(given)(*(x[:4] for x in given))
    torch.stack(list(losses(model, given).values())).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    model.eval()
    with torch.no_grad():
        encoding = model.encode(given.o)
        save_model(model, tmp_path, {})
        assert agree(encoding, load_model(tmp_path)[0].encode(given.o))
    assert encoding.agent.shape == (4, 2)


def test_all_actions_zero() -> None:
    config = ONE_EACH[0].config
    batch = triples(rows(config))
    with pytest.raises(ValueError, match="all actions are zero"):
        build(config).measure(batch._replace(a=torch.zeros_like(batch.a)))


def test_a_name_is_a_class_of_its_own() -> None:
    assert len({method_class(name) for name in METHODS}) == len(METHODS)
    with pytest.raises(ValueError, match="method is 'gan'; allowed is one of contact, "):
        method_class("gan")


class TestSupervised:
    def test_needs_both_ends(self) -> None:
        config = Case("supervised", "mlp", 2, {"body": "ellipse"}).config
        model, given = make(config), rows(config)
        for missing, says in (("agent_next", "agent_next or object_next"), ("angles", "angle or angle_next")):
            with pytest.raises(ValueError, match=says):
                losses(model, given._replace(**{missing: None}))

    def test_an_angle_is_right_however_certain_it_is(self) -> None:
        config = Case("supervised", "mlp", 2, {"body": "ellipse"}).config
        model, given = make(config), rows(config)
        with torch.no_grad():
            angles = [model.encode(o).orientations for o in (given.o, given.o_next)]
            right = given._replace(angles=angles[0], angles_next=angles[1])
            assert float(losses(model, right)["angle"]) == pytest.approx(0, abs=1e-6)
            assert float(losses(model, given)["angle"]) > 0.1

    def test_several_objects_are_those_of_the_truth_in_its_order(self) -> None:
        config = Case("supervised", "mlp", 2, {"objects": 3}).config
        model, given = make(config), rows(config)
        with torch.no_grad():
            before, after = model.encode(given.o), model.encode(given.o_next)
            truth = given._replace(objects=before.objects, objects_next=after.objects)
            assert float(losses(model, truth)["object"]) < 1e-10
            other = truth._replace(objects=before.objects[:, [1, 0, 2]])
            assert float(losses(model, other)["object"]) > 1e-3
        with pytest.raises(ValueError, match="the truth has 1 objects and the model 3; train with objects=1"):
            losses(model, given._replace(objects=given.objects[:, :1], objects_next=given.objects_next[:, :1]))

    def test_the_object_does_not_move_the_agent(self) -> None:
        """With cameras on the agent, positions are relative to it."""
        config = Case("supervised", "mlp", 2, {"egocentric": True}).config
        model = make(config)
        losses(model, rows(config))["object"].backward()
        assert {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None} == {"phi_ext"}

    def test_the_terms_are_squared_distances_to_the_truth(self) -> None:
        """In units of the actions' root mean square, over o and o'."""
        config = Case("supervised", "mlp", 2, {}).config
        model, given = make(config), rows(config)
        with torch.no_grad():
            before, after = model.encode(given.o), model.encode(given.o_next)
            truth = given._replace(
                agent=before.agent, agent_next=after.agent, objects=before.objects, objects_next=after.objects
            )
            assert all(term < 1e-10 for term in losses(model, truth).values())
            off = truth._replace(agent=truth.agent + model.inputs.unit * torch.tensor([3.0, 4.0]))
            assert float(losses(model, off)["agent"]) == pytest.approx(25 / 2, rel=1e-4)


class HostWork(TorchDispatchMode):
    """Records what a CUDA graph cannot capture: numbers read by the host, or copied from it, and dynamic shapes."""

    FORBIDDEN = ("aten._local_scalar_dense", "aten.lift_fresh", "aten.nonzero", "aten.masked_select")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        self.found += [name for part in self.FORBIDDEN if name.startswith(part)]
        return function(*args, **(kwargs or {}))


def test_host_work_is_recorded() -> None:
    with HostWork() as work:
        x = torch.zeros(3)
        assert not work.found
        x + torch.as_tensor(1.0)
        bool(x.any())
        x.nonzero()
    assert [name.split(".")[1] for name in work.found] == ["lift_fresh", "_local_scalar_dense", "nonzero"]


def test_a_training_step_is_device_work(case: Case) -> None:
    """Otherwise a GPU could not capture it."""
    model, given = make(case.config).train(), rows(case.config)
    generator, progress = torch.Generator().manual_seed(0), torch.tensor(0.6)
    with HostWork() as work:
        sum(model.loss(given, generator, progress).terms.values()).backward()
    assert not work.found
