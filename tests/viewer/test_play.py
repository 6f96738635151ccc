"""Worlds to play in, without a browser."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from test_own_streamed_world import SteeredDiscs
from torch import Tensor

from palpate.api import fit
from palpate.collecting.collect import collect
from palpate.envs.registration import world
from palpate.representation import Representation
from palpate.viewer.grounds import Ground, Streamed, ground
from palpate.viewer.play import STRIDE, Play, assigned

pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact", "ignore:too few held-out")
SPRITES = {"env": "palpate/Sprites-v0", "size": 20}
WORLDS = [
    "palpate/Sprites-v0",
    "palpate/SpritesMany-v0",
    pytest.param("palpate/Soccer-v0", marks=pytest.mark.slow),
    pytest.param("palpate/Table-v0", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", WORLDS)
def test_a_ground_moves_its_agent(name: str) -> None:
    found = ground({"env": name, "size": 20, "contact_share": 0.9})
    agent, before = np.array(found.agent()), found.observation()
    toward = np.array([0.05, 0.0]) if agent[0] < 0.5 else np.array([-0.05, 0.0])
    moved = found.move(toward)
    assert torch.equal(moved.triple.o, before)
    assert torch.equal(moved.triple.o_next, found.observation())
    assert not torch.equal(moved.triple.o, moved.triple.o_next)
    assert np.allclose(moved.triple.a[0], found.agent() - agent, atol=1e-6)
    assert moved.contact is not None
    assert len(moved.contact) == len(found.objects())
    picture, project = found.picture()
    assert project is not None
    at = project(np.array(found.agent())[None])[0]
    assert (at > 0).all()
    assert (at < picture.shape[0]).all()
    known = found.known(3)
    assert known is not None
    assert known["observation"].shape == (3, *found.observation().shape[1:])


def test_a_ground_of_several_balls_has_all_of_them() -> None:
    found = ground({"env": "palpate/Soccer-v0", "size": 20, "balls": 2})
    before = np.array(found.objects())
    assert before.shape == (2, 2)
    moved = found.move(before[1] - found.agent())  # onto the second ball
    assert moved.contact is not None
    assert moved.contact.tolist() == (found.objects() != before).any(1).tolist()
    assert moved.contact[1]


def test_the_picture_shows_the_agent_where_it_is() -> None:
    found = ground({"env": "palpate/Sprites-v0", "size": 50})
    picture, project = found.picture()
    assert project is not None
    x, y = project(np.array(found.agent())[None])[0]
    red, green, _ = picture[int(y), int(x)].astype(int)
    assert red > green + 50


def test_errors_of_several_objects_are_measured_by_assignment() -> None:
    true = np.array([[0.0, 0], [1, 0], [0, 1]])
    near = true[[2, 0, 1]] + (0.1, 0)
    assert assigned(near, true) == pytest.approx([0.1] * 3)
    # Two estimates of one object: the nearest true positions would leave an object out.
    assert sorted(assigned(np.array([[0.0, 0], [0, 0.1], [0, 1]]), true)) == pytest.approx([0, 0, 1.0050], abs=1e-3)
    assert assigned(near[:1], true) == pytest.approx([0.1])
    assert assigned(near, true[:1]) == pytest.approx([0.1])
    assert len(assigned(near[:0], true)) == 0


def test_a_view_is_encoded_once_for_each_scene(model: Representation, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr("palpate.viewer.play.data_uri", lambda picture: f"{made.append(1)}{len(made)}")
    play = Play(model, ground(SPRITES))
    play.drag(10, 10)
    first = play.view()
    play.drag(10, 10)  # it is there already
    play.plan(3, 3)
    assert play.view().source == first.source
    play.drag(12, 10)
    assert play.view().source != first.source
    assert len(made) == 2


def test_unknown_worlds_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"other/World-v0, which Play cannot move; these worlds can be played: palpate/S"
    ):
        ground({"env": "other/World-v0"})


def at_agent(play: Play) -> tuple[float, float]:
    x, y = play._project(play.at[None])[0]
    return float(x), float(y)


def test_dragging_moves_the_agent_to_the_mouse(model: Representation) -> None:
    play = Play(model, ground(SPRITES))
    assert play.grabbed(*at_agent(play))
    assert not play.grabbed(-10, -10)
    before = play.view()
    for x, y in ((3, 3), (16, 4), (10, 17)):
        play.drag(x, y)
        assert at_agent(play) == pytest.approx((x, y), abs=0.01)
        after = play.view()
        assert (after.source, after.marks) != (before.source, before.marks)
        before = after
    assert before.answer is None
    play.explain()
    assert play.view().answer is not None
    play.truth = False
    assert play.view().marks.count("<circle") < before.marks.count("<circle")


TURNING = [
    {"env": "palpate/SpritesTurning-v0"},
    pytest.param({"env": "palpate/SoccerDriving-v0"}, marks=pytest.mark.slow),
    {"env": "palpate/SoccerDriving-v0", "view": "ahead", "sideways": False},
]


@pytest.mark.parametrize("recipe", TURNING)
def test_a_robot_that_turns_faces_the_way_it_is_dragged(recipe: dict[str, Any]) -> None:
    found = ground({**recipe, "size": 20})
    small: dict[str, Any] = {"steps": 1, "batch_size": 8, "progress": False, "device": "cpu", "encoder": "small"}
    options = {name: x for name, x in recipe.items() if name != "env"}
    trained = fit(collect(recipe["env"], 40, size=20, progress=False, **options), group="se2", **small)
    play = Play(trained, found)
    middle, unit = np.array([play.pixels / 2] * 2), play.pixels / 20
    play.drag(*middle)
    for right, up, heading in ((5, 0, 0), (5, 5, np.pi / 2), (0, 5, np.pi)):
        x, y = middle + unit * np.array([right, -up])
        play.drag(x, y)
        assert found.heading() is not None
        assert np.cos(found.heading() - heading) == pytest.approx(1, abs=1e-3)
        assert at_agent(play) == pytest.approx((x, y), abs=0.01 * unit)
    play.explain()
    view = play.view()
    assert view.answer is not None
    assert "heading" in dict(view.facts)


@pytest.mark.parametrize(("name", "group"), [("Lidar", "translations"), ("LidarTurning", "se2")])
def test_a_robot_with_a_scanner_is_dragged_on_an_empty_plane(name: str, group: Any) -> None:
    made = world(f"palpate/{name}-v0", rays=20)
    small: dict[str, Any] = {"steps": 1, "batch_size": 8, "progress": False, "device": "cpu"}
    found = Streamed(made, f"palpate/{name}-v0")
    play = Play(fit(made, group=group, **small), found)
    before = found.agent()
    play.drag(160, 160)
    assert before is not None
    assert not np.array_equal(play.at, before)
    play.explain()
    assert play.view().answer is not None


def test_a_drag_beyond_the_border_stops_there(model: Representation) -> None:
    play = Play(model, ground(SPRITES))
    play.drag(-50, 10)
    assert play.at[0] == pytest.approx(0.045)


def test_a_path_is_walked_in_small_steps(model: Representation) -> None:
    play = Play(model, ground(SPRITES))
    assert not play.walk()
    play.plan(4, 16)
    assert play.path is not None
    end, places = play.path.points[-1], [play.at]
    while play.walk():
        places.append(play.at)
    places.append(play.at)
    if not play.touched:
        assert play.at == pytest.approx(end, abs=1e-3)
    assert np.linalg.norm(np.diff(places, axis=0), axis=1).max() < STRIDE * play.width + 1e-6
    assert len(places) > 3


def test_a_new_scene_forgets(model: Representation) -> None:
    play = Play(model, ground(SPRITES))
    play.drag(4, 4)
    play.plan(16, 16)
    play.reset()
    assert (play.path, play.view().answer, play.view().contact) == (None, None, None)


class Own:
    """Sprites as a user's own world, with another class and no projection that we know."""

    def __init__(self) -> None:
        self._inner: Any = world("palpate/Sprites-v0", size=20)
        self.device, self.observation_shape, self.n = self._inner.device, self._inner.observation_shape, 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sample(self, count: int, generator: torch.Generator) -> Any:
        return self._inner.sample(count, generator)

    def render(self, scene: Any) -> Tensor:
        found: Tensor = self._inner.render(scene)
        return found


def test_your_own_world_is_drawn_on_an_empty_plane(model: Representation) -> None:
    found: Ground = Streamed(Own(), "Own")  # type: ignore[arg-type]
    assert found.picture()[1] is None
    play = Play(model, found)
    target = np.array([0.5, 0.3])
    play.drag(*play._project(target[None])[0])
    assert play.at == pytest.approx(target, abs=1e-3)


class Discs(SteeredDiscs):
    """A user's world whose scenes have names."""

    class Scene(NamedTuple):
        agent: Tensor
        object: Tensor

    class After(NamedTuple):
        agent_next: Tensor
        object_next: Tensor
        displacement: Tensor
        triple: Any

    def reset(self, count: int, generator: torch.Generator) -> Any:
        return self.Scene(*super().reset(count, generator))

    def step(self, scene: Any, displacement: Tensor, generator: torch.Generator) -> Any:
        triple = super().step(scene, displacement, generator)
        return self.After(triple.agent + displacement, triple.object_next, displacement, triple)

    def render_pair(self, states: Any) -> tuple[Tensor, Tensor]:
        return super().render_pair(getattr(states, "triple", states))


def test_a_world_with_named_scenes_is_played() -> None:
    found = Streamed(Discs(), "Discs")
    moved = found.move(np.array([0.1, 0.2]))
    assert moved.triple.a[0].tolist() == pytest.approx([0.1, 0.2])
    assert moved.contact is None


class Unnamed(Discs):
    def reset(self, count: int, generator: torch.Generator) -> Any:
        return tuple(super().reset(count, generator))


class Ending(Discs):
    def step(self, scene: Any, displacement: Tensor, generator: torch.Generator) -> Any:
        return super().step(scene, displacement, generator).triple


class Failing(Discs):
    def step(self, scene: Any, displacement: Tensor, generator: torch.Generator) -> Any:
        raise KeyError("arm")


class Sampled:
    device, observation_shape, n = torch.device("cpu"), (16,), 2


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (Unnamed, "Unnamed cannot be played: its reset gives a tuple, whose parts have no names; give a named tuple"),
        (Ending, "its reset gives agent, object, but its step gives no agent_next; each NAME needs a NAME_next"),
        (Failing, "Failing: step raised KeyError: 'arm'"),
        (Sampled, "Sampled cannot be played: it needs reset, render, moves and step"),
    ],
)
def test_a_world_that_cannot_be_played_is_named(own: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Streamed(own(), own.__name__)


def test_a_world_that_the_model_does_not_read_is_named(model: Representation) -> None:
    with pytest.raises(ValueError, match=r"Discs gives observations \(16,\), and the model reads \(3, 20, 20\)"):
        Play(model, Streamed(Discs(), "Discs"))


def test_a_method_without_bodies_plans_straight_paths() -> None:
    trained = fit(
        world("palpate/Sprites-v0", size=20),
        method="transporter",
        steps=1,
        batch_size=8,
        progress=False,
        device="cpu",
        encoder="small",
    )
    play = Play(trained, ground(SPRITES))
    play.plan(4, 4)
    assert play.path is not None
    assert "no body to avoid" in play.path.note
    assert play.view().marks
