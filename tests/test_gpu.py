"""What only a GPU can show: the captured, compiled and parallel step against the plain one. Run with `-m gpu`."""

import math
from typing import Any

import numpy as np
import palpate.methods.interaction
import pytest
import torch
from torch import Tensor

import palpate.data.stream
import palpate.training.loop
from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.config import ModelConfig
from palpate.control.wrapping import Reader
from palpate.envs.registration import world
from palpate.geometry import Segment
from palpate.methods.store import build
from palpate.objectives.contact import clearance, contact_nll, outline, rimmed
from palpate.representation import Representation

# Forty steps learn nothing, and `fit` says so.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:touched and untouched"),
    pytest.mark.filterwarnings("ignore:contacts do not follow"),
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


def stream() -> Any:
    return world("palpate/Sprites-v0", device="cuda", size=32)


def test_three_streams_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = readings(stream())
    monkeypatch.setattr(palpate.methods.interaction, "side_by_side", lambda branches, x: [each(x) for each in branches])
    assert readings(stream()) == parallel


def test_the_captured_step_is_the_plain_step() -> None:
    """Of a stream, and of a set whose pictures are disturbed anew at every step, also before a backdrop."""
    for captured, plain in zip(readings(stream()), readings(stream(), graph=False), strict=True):
        assert captured == pytest.approx(plain, rel=1e-3, abs=1e-5)
    ways: list[dict[str, Any]] = [{"sway": 0.1, "jitter": 0.1}, {"switches": {"egocentric": True}, "jitter": 0.1}]
    for size, way in zip((32, 64), ways, strict=True):
        triples = collect("palpate/Sprites-v0", 1000, size=size)
        together = zip(readings(triples, **way), readings(triples, graph=False, **way), strict=True)
        for captured, plain in together:
            # A share of a few distances around a cut: one of them on its other side, and it moves.
            for name in {"separation", "scout_separation"} & plain.keys():
                assert captured.pop(name) == pytest.approx(plain.pop(name), abs=0.1)
            # The grid of a backdrop is summed up in no particular order.
            assert captured == pytest.approx(plain, rel=5e-2 if "switches" in way else 1e-2, abs=1e-4)


def test_the_step_is_captured_anew_when_more_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palpate.data.stream, "JUDGED", 10)
    monkeypatch.setattr(palpate.methods.interaction, "SEPARABLE", -math.inf)
    monkeypatch.setattr(palpate.training.loop, "ADAPT_EVERY", 10)
    choosy: dict[str, Any] = {"least_contacts": 0.51, "probing": 0.0}
    plain, as_they_come = readings(stream(), graph=False, **choosy), readings(stream(), least_contacts=0.0, probing=0.0)
    for captured, expected in zip(readings(stream(), **choosy), plain, strict=True):
        assert captured.pop("separation") == pytest.approx(expected.pop("separation"), abs=0.1)
        assert captured == pytest.approx(expected, rel=1e-2, abs=1e-4)
    assert plain[-1]["pool"] > 1
    same = plain[-1].keys() & as_they_come[-1].keys()
    mine, others = ({name: readings[-1][name] for name in same} for readings in (plain, as_they_come))
    assert mine != pytest.approx(others, rel=1e-2, abs=1e-4)


def test_and_when_moves_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palpate.data.stream, "JUDGED", 10)
    monkeypatch.setattr(palpate.data.stream, "PROBE_FROM", 0.0)
    monkeypatch.setattr(palpate.methods.interaction, "SEPARABLE", -math.inf)
    monkeypatch.setattr(palpate.training.loop, "ADAPT_EVERY", 10)
    captured, plain = readings(stream(), probing=0.5), readings(stream(), graph=False, probing=0.5)
    for mine, expected in zip(captured, plain, strict=True):
        assert mine.pop("separation") == pytest.approx(expected.pop("separation"), abs=0.1)
        assert mine == pytest.approx(expected, rel=1e-2, abs=1e-4)
    # Compiled, a move that is about as doubtful as another may be taken in its place, and from then on the runs differ;
    # but moves that are chosen are harder to foretell.
    random, compiled = (readings(stream(), compile=True, probing=probing)[-1]["contact"] for probing in (0.0, 0.5))
    assert abs(compiled - plain[-1]["contact"]) < 0.5 * abs(compiled - random)


@pytest.mark.parametrize("method", ["transporter", "vae", "supervised"])
def test_the_captured_step_of_a_baseline_is_the_plain_step(method: Any) -> None:
    captured, compiled = readings(stream(), method=method), readings(stream(), method=method, compile=True)
    for mine, plain in zip(captured, readings(stream(), method=method, graph=False), strict=True):
        assert mine == pytest.approx(plain, rel=1e-2, abs=1e-4)
    assert captured[-1].keys() == compiled[-1].keys()
    assert all(math.isfinite(value) for value in compiled[-1].values())


def test_compiled_with_held_out_rows_of_an_odd_number() -> None:
    """A stream is compiled too; a fixed set is evaluated in blocks, the last of which is smaller."""
    triples = collect("palpate/Sprites-v0", 2718, size=32)
    for compiled, plain in zip(readings(triples, compile=True), readings(triples), strict=True):
        assert compiled["agent"] == pytest.approx(plain["agent"], rel=0.1)
    assert torch.isfinite(torch.tensor(readings(stream(), compile=True)[-1]["contact"]))


def test_the_compiled_gradient_of_a_body() -> None:
    """A maximum over directions, computed again in the backward pass, may be none of them by a rounding.

    Of two directions in which a path is about as far away either may be taken, so a few triples may differ a little.
    """

    def outlined(centre: Tensor, start: Tensor, move: Tensor, radius: Tensor, waves: Tensor) -> Tensor:
        gap = clearance(centre, Segment(start, move), lambda u: radius.exp() * outline(u, *waves).exp())
        return contact_nll(-gap / 0.01, start[:, 0] > 0).mean()

    def with_a_rim(centre: Tensor, start: Tensor, move: Tensor, radius: Tensor, axis: Tensor, ratio: Tensor) -> Tensor:
        share = ratio - 0.2
        gap = clearance(centre, Segment(start, move), lambda u: rimmed(u, axis[:, None], radius.exp(), ratio, share))
        return contact_nll(-gap / 0.01, start[:, 0] > 0).mean()

    generator = torch.Generator("cuda").manual_seed(0)
    for loss in (outlined, with_a_rim):
        compiled = torch.compile(loss)
        for _ in range(50):
            places = torch.randn((3, 128, 2), generator=generator, device="cuda") * 0.3
            waves = torch.randn((2, 3), generator=generator, device="cuda") * 0.05
            axis = torch.nn.functional.normalize(torch.randn((128, 2), generator=generator, device="cuda"), dim=-1)
            form = [waves] if loss is outlined else [axis, torch.tensor(1.1, device="cuda")]
            given = [x.requires_grad_() for x in (*places, torch.tensor(-1.6, device="cuda"), *form)]
            mine, plain = (torch.autograd.grad(f(*given), given) for f in (compiled, loss))
            for one, other in zip(mine, plain, strict=True):
                apart, largest = (one - other).abs(), other.abs().max()
                assert apart.max() < 0.1 * largest
                assert apart.mean() < 1e-3 * largest


def test_observations_are_read_by_a_graph_as_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of several sizes, each through a graph of its own or a larger one."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # a GPU's short floats are not what is compared
    config = ModelConfig(encoder="resnet18", observation_shape=(3, 100, 100), n=2)
    model = Representation(build(config), {"origin": [1.0, -2.0]})
    captured, plain = Reader(model, device="cuda"), Reader(model, device="cpu")
    rng = np.random.default_rng(0)
    for rows in (16, 32, 16, 19, 1):
        pictures = rng.integers(0, 256, (rows, 100, 100, 3), np.uint8)
        assert captured(pictures) == pytest.approx(plain(pictures), abs=2e-2)
