"""What every model promises, whatever its objective, observation and dimension."""

import copy
import functools
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.labelled import LabelledBatch
from palpate.data.transitions import Batch
from palpate.methods.store import MODELS, build, load_model, save_model

ROWS = 24
PICTURE, VECTOR = (3, 20, 20), (12,)


class Case(NamedTuple):
    method: str
    objective: str
    encoder: str
    n: int
    changes: dict[str, Any]

    def __str__(self) -> str:
        parts = [self.method, self.objective, self.encoder, str(self.n), *map(str, self.changes.values())]
        return "-".join(parts)

    @property
    def config(self) -> ModelConfig:
        return ModelConfig(
            method=self.method,  # type: ignore[arg-type]
            encoder=self.encoder,  # type: ignore[arg-type]
            observation_shape=VECTOR if self.encoder == "mlp" else PICTURE,
            observation_dtype="float32" if self.encoder == "mlp" else "uint8",
            n=self.n,
            objective=ObjectiveConfig.named(self.objective, **{"split_window": 64, **self.changes}),
        )


def cases() -> list[Case]:
    found = []
    for method, objective, encoder in itertools.product(
        MODELS, ("contact", "paper", "paper-gaussian"), ("mlp", "small")
    ):
        if method != "interaction" and objective != "contact":
            continue  # they have no use for an objective
        if method == "transporter" and encoder == "mlp":
            continue
        found += [Case(method, objective, encoder, n, {}) for n in ((2,) if method == "transporter" else (2, 3))]
        if objective == "contact" and method in ("interaction", "supervised"):
            found.append(Case(method, objective, encoder, 2, {"body": "axes"}))
    found += [
        Case("interaction", "contact", "mlp", 1, {"radius": 0.3}),
        Case("supervised", "contact", "mlp", 1, {}),
        Case("vae", "contact", "mlp", 1, {}),
        Case("interaction", "contact", "mlp", 2, {"body": "axes", "radius": 0.3}),
        Case("interaction", "contact", "mlp", 2, {"outline": 4}),
        Case("interaction", "contact", "mlp", 2, {"body": "axes", "rim": True}),
        Case("interaction", "contact", "mlp", 2, {"shared_network": True}),
        Case("interaction", "contact", "mlp", 3, {"egocentric": True}),
        Case("interaction", "contact", "small", 2, {"egocentric": True, "body": "axes"}),
        Case("supervised", "contact", "small", 2, {"egocentric": True}),
        Case("interaction", "paper", "mlp", 2, {"segment_gradient": True}),
        Case("interaction", "contact", "mlp", 2, {"split_on": "d", "split_window": 0}),
    ]
    return found


CASES = cases()
UNLABELLED = [case for case in CASES if case.method != "supervised"]
INTERACTION = [case for case in CASES if case.method == "interaction"]
# A known radius is a length, which would have to change its unit with the actions.
WITHOUT_LENGTHS = [case for case in CASES if "radius" not in case.changes]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


def rows(config: ModelConfig, seed: int = 0, scale: float = 1.0) -> Any:
    """Random triples, half of which show the same scene after; with truth for the model that needs it."""
    generator = torch.Generator().manual_seed(seed)
    shape = (ROWS, *config.observation_shape)
    if config.observation_dtype == "uint8":
        o, o_next = torch.randint(256, (2, *shape), generator=generator, dtype=torch.uint8)
    else:
        o, o_next = torch.randn((2, *shape), generator=generator)
    o_next[: ROWS // 2] = o[: ROWS // 2]
    a = scale * torch.randn(ROWS, config.n, generator=generator)
    batch = Batch(o, a, o_next)
    if config.method != "supervised":
        return batch
    agent, agent_next, thing, thing_next = scale * torch.rand(4, ROWS, config.n, generator=generator)
    angle, angle_next = torch.rand(2, ROWS, generator=generator)
    return LabelledBatch(batch, agent, thing, angle, agent_next, thing_next, angle_next)


def triples(given: Any) -> Batch:
    return given.batch if isinstance(given, LabelledBatch) else given


def make(config: ModelConfig, scale: float = 1.0) -> Any:
    torch.manual_seed(0)
    model = build(config)
    model.inputs.measure(triples(rows(config, scale=scale)))  # type: ignore[operator, union-attr]
    return model


def losses(model: Any, given: Any, progress: float = 0.6) -> dict[str, Tensor]:
    loss = model.loss(given, torch.Generator().manual_seed(1), torch.tensor(progress))
    assert all(value.shape == () and not value.requires_grad for value in loss.readings.values())
    terms: dict[str, Tensor] = loss.terms
    return terms


def trained(case: Case) -> Any:
    """After a few steps: buffers hold something, and a radius is not its first value."""
    return copy.deepcopy(_trained(str(case)))


@functools.cache
def _trained(name: str) -> Any:
    config = next(case for case in CASES if str(case) == name).config
    model = make(config)
    optimizer = torch.optim.SGD(model.parameter_groups(), lr=1e-3)
    for seed in range(3):
        optimizer.zero_grad()
        sum(losses(model, rows(config, seed)).values()).backward()  # type: ignore[union-attr]
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_buffers()}


def equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k].nan_to_num(-1), two[k].nan_to_num(-1)) for k in one)


class TestLoss:
    @pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
    def test_is_finite_and_one_number_per_term(self, case: Case, progress: float) -> None:
        terms = losses(make(case.config), rows(case.config), progress)
        assert terms
        assert all(term.shape == () and term.isfinite() for term in terms.values())
        assert all(term.requires_grad for term in terms.values())

    def test_every_weight_learns(self, case: Case) -> None:
        model = make(case.config)
        sum(losses(model, rows(case.config)).values()).backward()  # type: ignore[union-attr]
        still = [
            name
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and (parameter.grad is None or not parameter.grad.any())
        ]
        assert still == []
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)

    def test_the_optimizer_gets_every_weight_once(self, case: Case) -> None:
        model = make(case.config)
        given = [id(p) for group in model.parameter_groups() for p in group["params"]]
        assert len(given) == len(set(given))
        assert set(given) == {id(p) for p in model.parameters() if p.requires_grad}

    @pytest.mark.parametrize("case", WITHOUT_LENGTHS, ids=str)
    def test_the_unit_does_not_matter(self, case: Case) -> None:
        """Metres or millimetres: the same losses, up to rounding."""
        one, thousand = (losses(make(case.config, scale), rows(case.config, scale=scale)) for scale in (1.0, 1000.0))
        for name, value in one.items():
            torch.testing.assert_close(thousand[name], value, rtol=1e-3, atol=1e-5)

    def test_evaluation_leaves_the_buffers_alone(self, case: Case) -> None:
        model = trained(case)
        before = buffers(model)
        losses(model, rows(case.config, 7))
        model.encode(triples(rows(case.config)).o)
        assert equal(buffers(model), before)
        model.train()
        losses(model, rows(case.config, 7))
        changed = not equal(buffers(model), before)
        assert changed == (case.method in ("interaction", "transporter"))  # the split remembers, and batch norms do

    @pytest.mark.parametrize("case", UNLABELLED, ids=str)
    def test_small_batches(self, case: Case) -> None:
        """Two triples are enough, touched or not."""
        model, batch = make(case.config), triples(rows(case.config))
        for part in (slice(0, 2), slice(ROWS - 2, ROWS)):
            terms = losses(model, Batch(*(x[part] for x in batch)))
            assert all(term.isfinite() for term in terms.values())


def test_what_is_compiled_serves_batches_of_training_only(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out rows and users' observations come in any number; each would be compiled anew."""
    calls: list[Any] = []

    def note(function: Any, *, dynamic: bool) -> Any:
        assert not dynamic
        return lambda *inputs: (calls.append(len(inputs[0])), function(*inputs))[1]

    monkeypatch.setattr(torch, "compile", note)
    plain, model = make(case.config), make(case.config)
    model.compile_step()
    given = rows(case.config)
    torch.testing.assert_close(losses(model.train(), given), losses(plain.train(), given))
    assert calls
    assert set(calls) == {2 * ROWS}
    calls.clear()
    model.eval()
    model.encode(triples(given).o[:3])
    losses(model, given)
    assert not calls


class TestEncode:
    def test_shapes_and_dtypes(self, case: Case) -> None:
        config = case.config
        model = trained(case)
        for count in (1, 5):
            with torch.no_grad():
                encoding = model.encode(triples(rows(config)).o[:count])
            assert encoding.agent.shape == (count, config.n)
            latent = config.baseline.latent_dim
            assert encoding.object.shape == (count, config.n if model.places_object else latent)
            assert encoding.agent.dtype == encoding.object.dtype == torch.float32
            body = config.method == "interaction" and config.objective.external != "point"
            assert (encoding.covariance is not None) == body
            if body:
                assert encoding.covariance.shape == (count, config.n, config.n)
                assert encoding.covariance.dtype == torch.float32
            turns = config.objective.body == "axes" or (config.objective.external == "gaussian" and config.n == 2)
            assert (encoding.orientation is not None) == turns
            if turns:
                assert encoding.orientation.shape == (count,)
                assert ((encoding.orientation >= 0) & (encoding.orientation < torch.pi)).all()

    def test_covariance_is_an_ellipsoid(self, case: Case) -> None:
        model = trained(case)
        covariance = model.encode(triples(rows(case.config)).o).covariance
        if covariance is None:
            assert case.method != "interaction" or case.objective == "paper"
            return
        torch.testing.assert_close(covariance, covariance.mT, rtol=1e-6, atol=0)
        assert (torch.linalg.eigvalsh(covariance.double()) > 0).all()

    def test_orientation_is_that_of_the_long_axis(self, case: Case) -> None:
        """Of the ellipsoid the model itself gives, also when its first axis became the short one."""
        model = trained(case)
        for ratio in (3.0, 1 / 3):
            if hasattr(model, "body"):
                model.body.log_ratio.data.fill_(ratio).log_()
            encoding = model.encode(triples(rows(case.config)).o)
            if encoding.orientation is None or encoding.covariance is None:
                return
            along = torch.stack((encoding.orientation.cos(), encoding.orientation.sin()), -1)[:, :, None]
            values, _ = torch.linalg.eigh(encoding.covariance)
            reached = (along.mT @ encoding.covariance @ along).flatten()
            torch.testing.assert_close(reached, values[:, -1], rtol=1e-4, atol=0)

    @pytest.mark.parametrize("case", WITHOUT_LENGTHS, ids=str)
    def test_a_thousand_times_the_actions_are_a_thousand_times_the_positions(self, case: Case) -> None:
        config = case.config
        model, o = trained(case), triples(rows(config)).o
        one = model.encode(o)
        model.inputs.measure(triples(rows(config, scale=1000.0)))
        thousand = model.encode(o)
        if case.method == "transporter":  # in pictures, whatever the actions' unit
            assert torch.equal(thousand.agent, one.agent)
            assert torch.equal(thousand.object, one.object)
            return
        torch.testing.assert_close(thousand.agent, 1000 * one.agent)
        torch.testing.assert_close(thousand.object, (1000 if model.places_object else 1) * one.object)
        if one.covariance is not None:
            torch.testing.assert_close(thousand.covariance, 1e6 * one.covariance)
        if one.orientation is not None:
            assert torch.equal(thousand.orientation, one.orientation)

    def test_a_row_does_not_know_its_neighbours(self, case: Case) -> None:
        model, o = trained(case), triples(rows(case.config)).o
        whole, part = model.encode(o), model.encode(o[3:7])
        torch.testing.assert_close(part.agent, whole.agent[3:7], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(part.object, whole.object[3:7], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("case", INTERACTION, ids=str)
    def test_contact_and_would_touch_are_probabilities(self, case: Case) -> None:
        model, given = trained(case), triples(rows(case.config))
        contact = model.contact(given.o, given.o_next)
        assert contact.shape == (ROWS,)
        assert ((contact >= 0) & (contact <= 1)).all()
        # The same picture twice is no contact.
        assert (contact[: ROWS // 2] < 0.5).all()
        if case.objective != "contact":
            with pytest.raises(ValueError, match="would_touch needs the 'contact' objective"):
                model.would_touch(given.o, given.a)
            return
        before = model.would_touch(given.o, given.a)
        assert before.shape == (ROWS,)
        assert ((before >= 0) & (before <= 1)).all()
        onto = model.encode(given.o)
        assert (model.would_touch(given.o, onto.object - onto.agent) > 0.5).all()  # straight to the object

    def test_all_actions_zero(self, case: Case) -> None:
        batch = triples(rows(case.config))
        with pytest.raises(ValueError, match="all actions are zero"):
            build(case.config).inputs.measure(batch._replace(a=torch.zeros_like(batch.a)))  # type: ignore[operator, union-attr]


class TestHeldOut:
    @pytest.mark.parametrize("case", UNLABELLED, ids=str)
    def test_is_a_number_without_a_trace(self, case: Case) -> None:
        model, given = trained(case), triples(rows(case.config, 9))
        before = buffers(model)
        with torch.no_grad():
            value, again = model.held_out([given]), model.held_out([given])
        assert isinstance(value, float)
        assert value == pytest.approx(value)  # not NaN
        assert value == again
        assert equal(buffers(model), before)

    def test_sees_positions_not_contrast(self) -> None:
        case = Case("interaction", "contact", "mlp", 2, {})
        model, given = trained(case), triples(rows(case.config, 9))
        with torch.no_grad():
            terms = losses(model, given, 1.0)
            assert model.held_out([given]) == pytest.approx(float(terms["agent"] + terms["contact"]))


class TestStore:
    def test_save_and_load_agree_exactly(self, case: Case, tmp_path: Path) -> None:
        model, given = trained(case), triples(rows(case.config))
        save_model(model, tmp_path / "m", {"origin": [0.5] * case.n})
        assert sorted(file.name for file in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors"]
        loaded, facts = load_model(tmp_path / "m")
        assert facts == {"origin": [0.5] * case.n}
        assert loaded.config == case.config
        assert not loaded.training
        assert equal(dict(loaded.state_dict()), model.lasting_state())
        for one, two in zip(model.encode(given.o), loaded.encode(given.o), strict=True):  # type: ignore[operator]
            assert (one is None and two is None) or torch.equal(one, two)
        if case.method == "interaction":
            assert torch.equal(model.contact(given.o, given.o_next), loaded.contact(given.o, given.o_next))  # type: ignore[operator]


@pytest.mark.parametrize("method", MODELS)
def test_resnet18_learns_and_encodes(method: str, tmp_path: Path) -> None:
    """Eleven million weights and running means: the same promises, asked once."""
    config = Case(method, "contact", "resnet18", 2, {}).config
    model, whole = make(config), rows(config)
    batch = Batch(*(x[:4] for x in triples(whole)))
    given = LabelledBatch(batch, *(x[:4] for x in whole[1:])) if method == "supervised" else batch
    terms = losses(model, given)
    sum(terms.values()).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    model.eval()
    before = buffers(model)
    with torch.no_grad():
        encoding = model.encode(batch.o)
        save_model(model, tmp_path, {})
        again = load_model(tmp_path)[0].encode(batch.o)  # type: ignore[operator]
    assert equal(buffers(model), before)
    assert encoding.agent.shape == (4, 2)
    assert encoding.object.shape == (4, 2 if model.places_object else 32)
    assert torch.equal(encoding.agent, again.agent)
    assert torch.equal(encoding.object, again.object)


class TestSupervised:
    def test_needs_both_ends(self) -> None:
        config = Case("supervised", "contact", "mlp", 2, {"body": "axes"}).config
        model, given = make(config), rows(config)
        for missing, says in (("agent_next", "agent_next or object_next"), ("angle", "angle or angle_next")):
            with pytest.raises(ValueError, match=says):
                losses(model, given._replace(**{missing: None}))

    def test_the_truth_has_no_loss(self) -> None:
        """Regression: the terms are squared distances to the truth in units of the actions' root mean square."""
        config = Case("supervised", "contact", "mlp", 2, {}).config
        model, given = make(config), rows(config)
        both = model.encode(torch.cat((given.batch.o, given.batch.o_next)))
        agent, agent_next = both.agent.detach().chunk(2)
        thing, thing_next = both.object.detach().chunk(2)
        told = given._replace(agent=agent, agent_next=agent_next, object=thing, object_next=thing_next)
        assert all(term.detach() < 1e-10 for term in losses(model, told).values())
        off = told._replace(agent=agent + model.inputs.unit * torch.tensor([3.0, 4.0]))
        assert float(losses(model, off)["agent"].detach()) == pytest.approx(25 / 2, rel=1e-4)
