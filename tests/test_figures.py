import io
import math

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from palpate.data.labelled import Truth
from palpate.envs.sprites import Scene, Sprites, SpritesConfig
from palpate.figures import BLUE, FAINTEST, ORANGE, curves, distance_histogram, draw_errors, error_map, overlay
from palpate.methods.base import Encoding, Threshold

ROWS = [
    {"step": s, "agent": 1 / s, "contrast": 5 / s, "contact": 2 / s, "stay": 3 / s}
    | ({"l_test": 0.2 / s, "constant l_test": 0.21} if s % 20 == 0 else {})
    for s in range(10, 101, 10)
]


def save(figure: Figure) -> None:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    assert png.getvalue().startswith(b"\x89PNG")
    assert len(png.getvalue()) < 300_000


def scenes(count: int) -> tuple[Tensor, Encoding, Truth]:
    """Pictures, estimates a little off, and the truth."""
    world = Sprites(SpritesConfig(size=32, background=True))
    generator = torch.Generator().manual_seed(0)
    states = world.sample(count, generator)
    scene = Scene(states.agent, states.object, states.angle)
    learned = Encoding(states.agent + 0.01, states.object[:, None] - 0.02)
    return world.render(scene), learned, Truth(states.agent, states.object, states.angle, states.contact)


def line(axes: Axes, label: str) -> Line2D:
    (found,) = (line for line in axes.lines if line.get_label() == label)
    return found


def on_picture(points: Tensor | np.ndarray) -> np.ndarray:
    """Pixels of the unit square in a picture of 32 pixels on a side."""
    x, y = np.moveaxis(np.asarray(points, float), -1, 0)
    return np.stack((32 * x, 32 * (1 - y)), -1)


def test_overlay_marks_the_right_places() -> None:
    o, learned, truth = scenes(8)
    figure = overlay(o, learned, truth, border=torch.full((8, 3, 2), 0.1))
    assert len(figure.axes) == 8
    for i, axes in enumerate(figure.axes):
        true = np.stack((truth.agent[i], truth.object[i]))
        assert line(axes, "agent, estimated").get_xydata()[0] == pytest.approx(on_picture(learned.agent[i]))
        assert line(axes, "object, estimated").get_xydata()[0] == pytest.approx(on_picture(learned.object[i]))
        assert line(axes, "true").get_xydata() == pytest.approx(on_picture(true))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "agent, estimated", "object, estimated", "learned body", "true"
    ]  # fmt: skip
    save(figure)


def test_overlay_draws_the_border() -> None:
    o, learned, _ = scenes(2)
    corners = torch.tensor([[[0.1, 0.0], [0.0, 0.1], [-0.1, 0.0], [0.0, -0.1]]]).expand(2, -1, -1)
    for i, axes in enumerate(overlay(o, learned, border=corners).axes):
        wanted = on_picture(learned.object[i] + corners[i][[0, 1, 2, 3, 0]])
        assert line(axes, "learned body").get_xydata() == pytest.approx(wanted, abs=1e-4)


def test_overlay_shows_the_long_axis_of_a_body_that_turns() -> None:
    o, learned, _ = scenes(1)
    corners = torch.tensor([[[0.1, 0.0], [0.0, 0.2], [-0.1, 0.0], [0.0, -0.2]]])
    turned = learned._replace(orientations=torch.full((1, 1), math.pi / 2))
    (axes,) = overlay(o, turned, border=corners).axes
    ends = on_picture(learned.object[0] + torch.tensor([[0.0, -0.2], [0.0, 0.2]]))
    assert line(axes, "long axis").get_xydata() == pytest.approx(ends, abs=1e-4)


def test_overlay_by_a_projection() -> None:
    """A function in place of an extent; it is the one mapping of agent, object, body and truth."""
    o, learned, truth = scenes(2)
    corners = torch.tensor([[[0.1, 0.0], [0.0, 0.1], [-0.1, 0.0]]]).expand(2, -1, -1)

    def project(points: np.ndarray) -> np.ndarray:
        return 5 + 10 * points[:, ::-1]

    for i, axes in enumerate(overlay(o, learned, truth, project=project, border=corners).axes):
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 32), (32, 0))
        assert axes.images[0].get_extent() == [0, 32, 32, 0]
        wanted = {
            "agent, estimated": learned.agent[i][None],
            "object, estimated": learned.object[i][None],
            "learned body": learned.object[i] + corners[i][[0, 1, 2, 0]],
            "true": torch.stack((truth.agent[i], truth.object[i])),
        }
        for label, points in wanted.items():
            assert line(axes, label).get_xydata() == pytest.approx(project(points.numpy())), label
    with pytest.raises(ValueError, match="both extent and project are given"):
        overlay(o, learned, project=project, extent=(0, 1, 0, 1))
    with pytest.raises(ValueError, match=r"project returns shape \(1,\) for points \(1, 2\)"):
        overlay(o, learned, project=lambda points: points[:, 0])


def test_overlay_stands_upright_in_its_extent() -> None:
    """The estimate lies on the agent's own pixels: y is up, x is right."""
    world = Sprites(SpritesConfig(size=50))
    scene = Scene(torch.tensor([[0.2, 0.9]]), torch.tensor([[0.7, 0.3]]), torch.zeros(1))
    extent = (-1.0, 3.0, 0.0, 2.0)
    at = torch.tensor([[-1 + 4 * 0.2, 2 * 0.9]])
    (axes,) = overlay(world.render(scene), Encoding(at, at[:, None]), extent=extent).axes
    (image,) = axes.images
    assert image.get_extent() == [0, 50, 50, 0]
    assert axes.get_aspect() == 0.5  # the rectangle is twice as wide as high
    x, y = line(axes, "agent, estimated").get_xydata()[0]
    assert image.origin == "upper"
    red, green, _ = image.get_array()[int(y), int(x)].tolist()
    assert red > 100 > 2 * green


def test_overlay_of_a_world_whose_y_points_down() -> None:
    pictures = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    pictures[0, :, 2, 5] = 255
    at = torch.tensor([[5.5, 2.5]]) * 64
    figure = overlay(pictures, Encoding(at, at[:, None]), extent=(0.0, 512.0, 512.0, 0.0))
    assert figure.get_figheight() > figure.get_figwidth()  # a square and the legend
    (axes,) = figure.axes
    (image,) = axes.images
    assert image.origin == "upper"  # its first row is y = 0
    x, y = line(axes, "agent, estimated").get_xydata()[0]
    assert image.get_array()[int(y), int(x)].tolist() == [255, 255, 255]


@pytest.mark.parametrize(("channels", "shape"), [(1, (8, 6)), (2, (8, 6)), (3, (8, 6, 3)), (12, (8, 6, 3))])
def test_overlay_takes_any_number_of_channels(channels: int, shape: tuple[int, ...]) -> None:
    o = torch.zeros(2, channels, 8, 6, dtype=torch.uint8)
    points = torch.full((2, 2), 0.5)
    figure = overlay(o, Encoding(points, points[:, None]))
    assert [axes.images[0].get_array().shape for axes in figure.axes] == [shape] * 2


def test_curves_show_every_loss_and_the_constant_answer() -> None:
    figure = curves(ROWS)
    losses, test = figure.axes
    assert [line.get_label() for line in losses.lines] == ["agent", "contrast", "contact", "stay"]
    assert line(losses, "stay").get_xydata().tolist() == [[row["step"], row["stay"]] for row in ROWS]
    assert line(test, "learned").get_xdata().tolist() == [20, 40, 60, 80, 100]
    assert set(line(test, "constant predictor").get_ydata()) == {0.21}
    assert line(test, "constant predictor").get_linestyle() == ":"
    assert (losses.get_yscale(), test.get_yscale()) == ("log", "log")
    save(figure)


def test_negative_losses_have_a_panel_with_a_linear_axis() -> None:
    figure = curves([{"step": step, "agent": 0.1 / step, "contrast": 1.5 - step} for step in (1, 2, 3)])
    positive, signed = figure.axes
    assert (positive.get_yscale(), signed.get_yscale()) == ("log", "linear")
    assert [line.get_label() for line in positive.lines] == ["agent"]
    assert line(signed, "contrast").get_ydata().tolist() == [0.5, -0.5, -1.5]
    save(figure)


def test_a_loss_that_begins_later_keeps_its_logarithmic_axis() -> None:
    """Where a scout goes ahead, others are exactly 0 at first."""
    steps = [{"step": step, "scout": 9.0 / step, "stay": 0.0 if step < 3 else 0.1} for step in (1, 2, 3, 4)]
    (axes,) = curves(steps).axes
    assert axes.get_yscale() == "log"
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"scout", "stay"}


def test_curves_without_losses_or_anything() -> None:
    (test,) = curves([{"step": 1, "l_test": 0.1}]).axes
    assert [line.get_label() for line in test.lines] == ["learned"]
    with pytest.raises(ValueError, match="1 rows hold none of agent"):
        curves([{"step": 1}])


@pytest.mark.parametrize(("on", "threshold"), [("log", math.log(0.02)), ("d", 0.02)])
def test_histogram_counts_each_class_around_the_threshold(on: str, threshold: float) -> None:
    d = torch.tensor([0.0, 1e-4, 1e-3, 1e-3, 0.5, 1.0, 2.0])
    contact = torch.tensor([False] * 4 + [True] * 3)
    figure = distance_histogram(d, Threshold(threshold, on), contact)
    (axes,) = figure.axes
    untouched, touched = axes.containers
    assert (sum(bar.get_height() for bar in untouched), sum(bar.get_height() for bar in touched)) == (4, 3)
    assert [to_hex(bars[0].get_facecolor()).upper() for bars in (untouched, touched)] == [BLUE, ORANGE]
    dotted = line(axes, "threshold")
    assert dotted.get_xdata()[0] == pytest.approx(0.02, rel=1e-5)
    assert dotted.get_linestyle() == ":"
    assert axes.get_xscale() == "log"
    save(figure)


def test_histogram_without_truth_is_one_class() -> None:
    (axes,) = distance_histogram(torch.full((5,), 0.1), Threshold(-1.0)).axes  # all equal
    (bars,) = axes.containers
    assert sum(bar.get_height() for bar in bars) == 5


def test_a_histogram_names_the_distances_that_it_shows() -> None:
    labels = [
        distance_histogram(torch.rand(9), Threshold(-1.0, positions=positions)).axes[0].get_xlabel()
        for positions in (False, True)
    ]
    assert labels == ["$d_W(w, w')$", "$|z_{ext} - z_{ext}'|^2$"]


def test_error_map_means_and_arrows() -> None:
    """Four cells with an object in three corners; the middle of each cell is known."""
    at = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    off = torch.tensor([[0.3, 0.0], [-0.1, 0.0], [0.0, 0.4], [0.0, 0.0]])
    truth = Truth(at, at)
    figure = error_map(Encoding(at, (at + off)[:, None]), truth)
    save(figure)
    axes = Figure().add_subplot()
    draw_errors(axes, (at + off).numpy(), at.numpy(), bins=2)
    mesh, arrows = axes.collections
    assert axes.get_title().endswith("a bias of 0.4")
    assert np.ma.filled(mesh.get_array(), np.nan).reshape(2, 2) == pytest.approx(
        np.array([[0.2, 0.4], [math.nan, 0.0]]), nan_ok=True, abs=1e-6
    )
    assert np.asarray(arrows.get_offsets())[:2] == pytest.approx(np.array([[0.25, 0.25], [0.75, 0.25]]))
    assert np.stack((arrows.U, arrows.V), 1)[:2] == pytest.approx(np.array([[0.1, 0], [0, 0.4]]), abs=1e-6)


def test_error_map_of_a_perfect_estimate_and_of_many() -> None:
    _, learned, truth = scenes(2_000)
    save(error_map(Encoding(truth.agent, truth.objects), truth))
    save(error_map(learned, truth))


def test_several_objects_have_colours_of_their_own() -> None:
    o, at = torch.zeros(1, 3, 20, 20, dtype=torch.uint8), torch.tensor([[[0.2, 0.2], [0.8, 0.4]]])
    learned = Encoding(torch.full((1, 2), 0.5), at, confidences=torch.tensor([[1.0, 0.0]]))
    border = 0.1 * torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]).expand(1, 2, 3, 2)
    (axes,) = overlay(o, learned, Truth(torch.full((1, 2), 0.5), at), border=border).axes
    dots, lines = ([x for x in axes.lines if x.get_label() == label] for label in ("object, estimated", "learned body"))
    for marks in (dots, lines):
        assert len({mark.get_color() for mark in marks}) == 2
        assert [mark.get_alpha() for mark in marks] == [1.0, FAINTEST]
    for dot, line, place in zip(dots, lines, at[0].tolist(), strict=True):
        pixel = [20 * place[0], 20 * (1 - place[1])]
        assert dot.get_xydata()[0].tolist() == pytest.approx(pixel)
        assert line.get_xydata()[0].tolist() == pytest.approx([pixel[0] + 2, pixel[1]])
    (ring,) = (x for x in axes.lines if x.get_label() == "true")
    assert len(ring.get_xydata()) == 3
