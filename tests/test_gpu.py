"""What only a GPU can show: the captured, compiled and parallel step against the plain one. Run with `-m gpu`."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import palpate.contacts.split
import palpate.methods.contact
import palpate.methods.located
import palpate.training.feeds
import palpate.training.step
from palpate.api import fit
from palpate.bodies.base import clearance
from palpate.bodies.ellipse import Ellipse
from palpate.bodies.outline import Outline
from palpate.collecting.collect import collect
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.control.wrapping import Reader
from palpate.envs.registration import world
from palpate.geometry import Segment
from palpate.methods.store import build
from palpate.objectives.contact import change_nll
from palpate.representation import Representation
from palpate.training.step import Run

# Forty steps learn nothing, and `fit` says so.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:triples with and without contact"),
    pytest.mark.filterwarnings("ignore:the positions of agent and object do not explain"),
    # Torch's own compiler, which looks at all tensors; phases and read-outs are float32 on purpose.
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]
SHORT: dict[str, Any] = {
    "steps": 40,
    "log_every": 10,
    "evaluate_every": 20,
    "device": "cuda",
    "progress": False,
    "encoder": "small",
    "batch_size": 64,
}


def readings(data: Any, **changes: Any) -> list[dict[str, float]]:
    seen: list[dict[str, float]] = []
    fit(data, watch=lambda step, values: seen.append(values), **SHORT | changes)
    return seen


def without_graph(data: Any, **changes: Any) -> list[dict[str, float]]:
    """The same with every step run as it is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "captured", lambda self: self.advance)
        return readings(data, **changes)


def stream() -> Any:
    return world("palpate/Sprites-v0", device="cuda", size=32)


def assert_alike(captured: list[dict[str, float]], plain: list[dict[str, float]], rel: float = 1e-2) -> None:
    for mine, expected in zip(captured, plain, strict=True):
        # A share of a few distances around a cut: one of them on its other side, and it moves.
        for name in {"separation", "scout_separation"} & expected.keys():
            assert mine.pop(name) == pytest.approx(expected.pop(name), abs=0.1)
        assert mine == pytest.approx(expected, rel=rel, abs=1e-4)


@pytest.fixture
def select_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contacts count as reliable from the first batch on, and feeds act on them after ten steps."""
    monkeypatch.setattr(palpate.training.feeds, "JUDGED", 10)
    monkeypatch.setattr(palpate.training.feeds, "CHOOSE_FROM", 0.0)
    monkeypatch.setattr(palpate.training.step, "ADAPT_EVERY", 10)
    monkeypatch.setattr(palpate.contacts.split, "SEPARABLE", -math.inf)
    monkeypatch.setattr(palpate.methods.located, "SEPARABLE", -math.inf)


def test_three_streams_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = readings(stream())
    monkeypatch.setattr(palpate.methods.contact, "side_by_side", lambda branches, x: [each(x) for each in branches])
    assert readings(stream()) == parallel


def test_the_captured_step_of_a_stream_is_the_plain_step() -> None:
    assert_alike(readings(stream()), without_graph(stream()), rel=1e-3)


@pytest.mark.parametrize(
    ("size", "options", "rel"),
    # The grid of a backdrop is summed up in no particular order.
    [(32, {"augment": "shift"}, 1e-2), (64, {"egocentric": True, "augment": "light"}, 5e-2)],
)
def test_the_captured_step_of_a_set_is_the_plain_step(size: int, options: dict[str, Any], rel: float) -> None:
    triples = collect("palpate/Sprites-v0", 1000, size=size)
    assert_alike(readings(triples, **options), without_graph(triples, **options), rel)


@pytest.mark.usefixtures("select_at_once")
def test_the_step_is_captured_anew_when_more_is_drawn() -> None:
    pool: dict[str, Any] = {"least_contacts": 0.51, "chosen_moves": 0.0}
    plain, as_they_come = without_graph(stream(), **pool), readings(stream(), least_contacts=0.0, chosen_moves=0.0)
    assert plain[-1]["pool"] > 1
    same = plain[-1].keys() & as_they_come[-1].keys()
    mine, others = ({name: seen[-1][name] for name in same} for seen in (plain, as_they_come))
    assert mine != pytest.approx(others, rel=1e-2, abs=1e-4)
    assert_alike(readings(stream(), **pool), plain)


@pytest.mark.usefixtures("select_at_once")
def test_and_when_moves_are_chosen() -> None:
    plain = without_graph(stream(), chosen_moves=0.5)
    assert plain[-1]["chosen_moves"] == 0.5
    contact = plain[-1]["contact"]
    assert_alike(readings(stream(), chosen_moves=0.5), plain)
    # Compiled, a move that is about as uncertain as another may be taken in its place, and from then on the runs
    # differ; but chosen moves are harder to predict.
    random, compiled = (readings(stream(), compile=True, chosen_moves=share)[-1]["contact"] for share in (0.0, 0.5))
    assert abs(compiled - contact) < 0.5 * abs(compiled - random)


@pytest.mark.parametrize("method", ["transporter", "vae", "supervised"])
def test_the_captured_step_of_a_baseline_is_the_plain_step(method: Any) -> None:
    captured, compiled = readings(stream(), method=method), readings(stream(), method=method, compile=True)
    assert captured[-1].keys() == compiled[-1].keys()
    assert all(math.isfinite(value) for value in compiled[-1].values())
    assert_alike(captured, without_graph(stream(), method=method))


def test_compiled_with_held_out_rows_of_an_odd_number() -> None:
    """A fixed set is evaluated in blocks, the last of which is smaller."""
    triples = collect("palpate/Sprites-v0", 2718, size=32)
    for compiled, plain in zip(readings(triples, compile=True), readings(triples), strict=True):
        assert compiled["agent"] == pytest.approx(plain["agent"], rel=0.1)
    assert math.isfinite(readings(stream(), compile=True)[-1]["contact"])


@pytest.mark.parametrize("kind", [Outline, Ellipse])
def test_the_compiled_gradient_of_a_body(kind: type[Outline | Ellipse]) -> None:
    """A maximum over directions, computed again in the backward pass, may be none of them by a rounding.

    Of two directions in which a path is about as far away either may be taken, so a few triples may differ a little.
    """
    body = kind(2).cuda()

    def loss(centre: Tensor, start: Tensor, move: Tensor, raw: Tensor) -> Tensor:
        gap = clearance(body, centre, body.pose(raw), Segment(start, move))
        return change_nll(-gap / 0.01, start[:, 0] > 0).mean()

    compiled, generator = torch.compile(loss), torch.Generator("cuda").manual_seed(0)
    first = [parameter.detach().clone() for parameter in body.parameters()]
    for _ in range(50):
        with torch.no_grad():
            for parameter, value in zip(body.parameters(), first, strict=True):
                parameter.copy_(value + 0.05 * torch.randn(value.shape, generator=generator, device="cuda"))
        places = torch.randn((3, 128, 2), generator=generator, device="cuda") * 0.3
        raw = torch.randn((128, body.pose_width), generator=generator, device="cuda")
        given = [x.requires_grad_() for x in (*places, raw)]
        learned = [*(x for x in given if x.numel()), *body.parameters()]
        mine, plain = (torch.autograd.grad(f(*given), learned) for f in (compiled, loss))
        for one, other in zip(mine, plain, strict=True):
            apart, largest = (one - other).abs(), other.abs().max()
            assert apart.max() < 0.1 * largest
            assert apart.mean() < 1e-3 * largest


def test_observations_are_read_by_a_graph_as_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of several sizes, each through a graph of its own or a larger one."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # a GPU's short floats are not what is compared
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.02)
    config = ModelConfig(encoder="resnet18", observation_shape=(3, 100, 100), n=2, objective=scene)
    model = Representation(build(config), {"origin": [1.0, -2.0]})
    captured, plain = Reader(model, device="cuda"), Reader(model, device="cpu")
    rng = np.random.default_rng(0)
    for rows in (16, 32, 16, 19, 1):
        pictures = rng.integers(0, 256, (rows, 100, 100, 3), np.uint8)
        assert captured(pictures) == pytest.approx(plain(pictures), abs=2e-2)
