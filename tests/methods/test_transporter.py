from typing import Any

import pytest
import torch
from torch import Tensor

import palpate
from palpate.collecting.collect import collect
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.envs.registration import stream_world
from palpate.methods import transporter as module
from palpate.methods.store import build
from palpate.methods.transporter import FIRST_STD, LAST_STD, SHRUNK_AT, FeatureMap
from palpate.objectives.keypoints import heat


def transporter(shape: tuple[int, int, int] = (3, 20, 20), encoder: Any = "small", objects: int = 1) -> Any:
    torch.manual_seed(0)
    scene = ObjectiveConfig(objects=objects)
    return build(ModelConfig(method="transporter", encoder=encoder, observation_shape=shape, n=2, objective=scene))


def batch(shape: tuple[int, ...] = (3, 20, 20), count: int = 8) -> Batch:
    generator = torch.Generator().manual_seed(0)
    o, o_next = torch.randint(256, (2, count, *shape), generator=generator, dtype=torch.uint8)
    return Batch(o, torch.randn(count, 2, generator=generator), o_next)


def loss(model: Any, given: Batch, progress: float = 1.0) -> Any:
    return model.loss(given, torch.Generator(), torch.tensor(progress)).terms["reconstruction"]


@pytest.mark.parametrize("shape", [(3, 20, 20), (1, 37, 50), (4, 100, 30)], ids=str)
@pytest.mark.parametrize("encoder", ["small", "resnet18"])
def test_any_picture(shape: tuple[int, int, int], encoder: str) -> None:
    model, given = transporter(shape, encoder).eval(), batch(shape, 2)
    with torch.no_grad():
        encoding = model.encode(given.o)
        assert loss(model, given).isfinite()
    for point in (encoding.agent, encoding.object):
        assert ((point >= 0) & (point <= 1)).all()


def test_saved_weights_hold_no_coordinates() -> None:
    """They follow from the picture's size."""
    assert not {"rows", "columns", "stretch"} & set(transporter((3, 20, 20), "small").state_dict())


@pytest.mark.parametrize("size", [20, 50, 100])
def test_cells_lie_where_they_look(size: int) -> None:
    """A bright pixel at a known place moves the features around that place: x to the right, y up, in pictures."""
    model = transporter((1, size, size)).eval()
    features = FeatureMap((1, size, size), residual=False).eval()
    for layer in features.layers:
        if isinstance(layer, torch.nn.Conv2d):
            layer.weight.data.fill_(1.0)  # symmetric, so that only the grid can shift anything
    picture = torch.zeros(1, 1, size, size)
    row, column = size // 4, size // 2
    picture[0, 0, row, column] = 1.0
    with torch.no_grad():
        seen = features(picture).sum(1)[0]
    x = float((seen.sum(0) * model.columns).sum() / seen.sum())
    y = float((seen.sum(1) * model.rows).sum() / seen.sum())
    within = 2.01 / size  # half a cell
    assert x == pytest.approx((column + 0.5) / size, abs=within)
    assert y == pytest.approx(1 - (row + 0.5) / size, abs=within)


def test_keypoints_follow_the_maps() -> None:
    """With logits that are the red and the blue of a cell, the keypoints are where these colours are."""
    model = transporter((3, 40, 40)).eval()
    cells = torch.zeros(1, 32, 10, 10)
    cells[0, 0, 0, 9] = cells[0, 1, 9, 0] = 50.0
    model.psi.forward = lambda x: cells
    model.head.weight.data.zero_()
    model.head.weight.data[0, 0] = model.head.weight.data[1, 1] = 1.0
    encoding = model.encode(torch.zeros(1, 3, 40, 40, dtype=torch.uint8))
    assert encoding.agent.tolist()[0] == pytest.approx([0.95, 0.95])  # top right
    assert encoding.object.tolist()[0] == pytest.approx([0.05, 0.05])


def test_each_object_has_a_keypoint_of_its_own() -> None:
    """With as many maps as colours: red, green and blue cells in three corners."""
    model = transporter((3, 40, 40), objects=2).eval()
    cells = torch.zeros(1, 32, 10, 10)
    cells[0, 0, 0, 9] = cells[0, 1, 9, 0] = cells[0, 2, 9, 9] = 50.0
    model.psi.forward = lambda x: cells
    model.head.weight.data = torch.eye(3, 32)[:, :, None, None]
    encoding = model.encode(torch.zeros(1, 3, 40, 40, dtype=torch.uint8))
    assert encoding.agent.tolist()[0] == pytest.approx([0.95, 0.95])
    assert encoding.objects[0, 0].tolist() == pytest.approx([0.05, 0.05])
    assert encoding.objects[0, 1].tolist() == pytest.approx([0.95, 0.05])


def test_nothing_is_learned_as_a_source() -> None:
    """Of a picture that is only ever a source, neither features nor keypoints get a gradient."""
    model = transporter().eval()
    x = model.inputs(torch.cat((batch().o, batch().o_next))).requires_grad_()
    drawn = model._transported(x, torch.tensor(1.0))
    (gradient,) = torch.autograd.grad(drawn[:8].sum(), x)
    assert gradient[:8].any()
    assert not gradient[8:].any()


def test_each_picture_is_drawn_from_its_partner() -> None:
    """o' is what o' explains of itself, put into o: with blind keypoints, the drawing is of the partner."""
    model = transporter().eval()
    x = model.inputs(torch.cat((batch().o, batch().o_next)))
    model._points = lambda x: torch.full((len(x), 2, 2), -100.0)  # far outside: both masks are empty
    model.decoder.forward = lambda features: features
    drawn = model._transported(x, torch.tensor(1.0))
    torch.testing.assert_close(drawn[:8], model.phi(x)[8:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(drawn[8:], model.phi(x)[:8], rtol=1e-4, atol=1e-5)


def test_heat_maps_shrink_to_their_size_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []

    def recorded(points: Tensor, rows: Tensor, columns: Tensor, std: Tensor) -> Tensor:
        used.extend(std[:1].tolist())
        return heat(points, rows, columns, std)

    monkeypatch.setattr(module, "heat", recorded)
    for progress in (0.0, SHRUNK_AT / 2, SHRUNK_AT, 1.0):
        loss(transporter().eval(), batch(), progress)
    assert used == pytest.approx([FIRST_STD, (FIRST_STD * LAST_STD) ** 0.5, LAST_STD, LAST_STD])


def test_heat_maps_are_round_in_pixels() -> None:
    assert transporter((3, 20, 40)).stretch.tolist() == [1, 2]
    assert transporter((3, 40, 20)).stretch.tolist() == [2, 1]


def test_the_picture_to_draw_is_not_disturbed() -> None:
    model, given = transporter(), batch()
    model.inputs.augment = "shift"
    model.decoder.forward = lambda features: torch.zeros(16, 3, 20, 20)
    still = model.inputs(torch.cat((given.o, given.o_next)))
    torch.testing.assert_close(loss(model, given), still.square().mean() / 2)


@pytest.mark.slow
def test_keypoints_sit_on_two_objects() -> None:
    size, env = 28, "palpate/SpritesMany-v0"
    test = collect(env, 1000, seed=9, labelled=True, size=size, objects=2)
    stream = stream_world(env, size=size, objects=2)
    settings: dict[str, Any] = {"method": "transporter", "encoder": "small", "device": "cpu", "progress": False}
    model = palpate.fit(stream, objects=2, steps=300, batch_size=64, **settings)
    scores = palpate.evaluate(model, test)
    assert scores.l_test < 0.3 * scores.constant["l_test"]
    assert scores.swap_rate is not None
    assert scores.swap_rate < 0.3


@pytest.mark.slow
def test_keypoints_sit_on_the_sprites() -> None:
    size = 28
    test = collect("palpate/Sprites-v0", 1000, seed=9, labelled=True, size=size)
    stream = stream_world("palpate/Sprites-v0", size=size)
    settings: dict[str, Any] = {"method": "transporter", "encoder": "small", "device": "cpu", "progress": False}
    before, model = (palpate.fit(stream, steps=steps, batch_size=64, **settings) for steps in (1, 150))
    untrained, scores = palpate.evaluate(before, test), palpate.evaluate(model, test)
    assert untrained.object_error > 0.15
    assert scores.agent_error < 0.06
    assert scores.object_error < 0.06
    assert scores.l_test < 0.01
    assert scores.swap_rate is not None
    assert scores.swap_rate < 0.05
    with pytest.raises(ValueError, match="whose points have no order"):
        model.align({"observation": test.transitions.rows(slice(0, 2)).o, "agent": test.truth.agent[:2]})
