"""SoccerDriving: the agent moves along its own axes, its cameras turn with it, and the ball is Soccer's."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import palpate
from palpate.envs.driving import MOST_TURN
from palpate.envs.registration import stream_world, world
from palpate.envs.soccer import DrivingConfig, Soccer, SoccerConfig, SoccerDriving
from palpate.envs.soccer import Scene as Plain
from palpate.envs.soccer.config import AGENT_RANGE, AROUND, GAP, REACH
from palpate.envs.soccer.driving import Outcome, Scene, Triples
from palpate.groups.se2 import SE2
from palpate.pictures import backdrop

ID = "palpate/SoccerDriving-v0"
COUNT = 60
KINDS = [(sideways, motion) for sideways in (True, False) for motion in ("arc", "straight")]
AWAY = (30.0, 30.0)  # beyond what any camera sees
UPRIGHT = (1.0, 0.0, 0.0, 0.0)

each_kind = pytest.mark.parametrize(("sideways", "motion"), KINDS)


def made(sideways: bool = True, motion: str = "arc", **options: Any) -> SoccerDriving:
    found: SoccerDriving = world(ID, sideways=sideways, motion=motion, size=32, **options)
    return found


def scene(agent: tuple[float, float], heading: float, ball: tuple[float, float] = AWAY) -> Scene:
    return Scene(*(np.array([x], np.float32) for x in (agent, heading, ball, UPRIGHT)))


def poses(group: SE2, states: Scene) -> Tensor:
    return group.posed(torch.from_numpy(np.concatenate((states.agent, states.heading[:, None]), 1)).double())


def path(triples: Triples, motion: str) -> np.ndarray:
    """A slow twin, `[points, b, 2]`: actions carried out in small parts."""
    whole, group = triples.action.astype(float), SE2(triples.action.shape[1], motion)  # type: ignore[arg-type]
    complete = group.complete(torch.from_numpy(whole)).numpy()
    places, turn, points = [triples.before.agent.astype(float)], complete[:, 2], 400
    heading = triples.before.heading.astype(float)
    if motion == "arc":  # the velocity along the agent's axes is constant
        half = turn / 2
        grows = np.where(np.abs(half) < 1e-6, 1.0, half / np.tan(np.where(half == 0, 1, half)))
        ahead, left = complete[:, :2].T
        velocity, rate = np.stack((grows * ahead + half * left, grows * left - half * ahead)), turn
    else:
        velocity, rate = complete[:, :2].T, np.zeros_like(turn)
    for i in range(points):
        cos, sin = (f(heading + rate * (i + 0.5) / points) for f in (np.cos, np.sin))
        step = np.stack((cos * velocity[0] - sin * velocity[1], sin * velocity[0] + cos * velocity[1]), 1)
        places.append(places[-1] + step / points)
    return np.stack(places)


@each_kind
def test_actions_are_those_of_the_group(sideways: bool, motion: str) -> None:
    triples = made(sideways, motion).states(0, 0, COUNT)
    group = SE2(3 if sideways else 2, motion)  # type: ignore[arg-type]
    reached = group.act(poses(group, triples.before), torch.from_numpy(triples.action).double())
    assert triples.action.dtype == np.float32
    torch.testing.assert_close(reached, poses(group, triples.after), atol=3e-6, rtol=0)
    assert np.abs(triples.after.heading).max() <= math.pi + 1e-6
    assert np.abs(triples.action[:, -1]).max() <= MOST_TURN


@each_kind
def test_the_ball_moves_if_and_only_if_the_agent_touches_it_on_its_path(sideways: bool, motion: str) -> None:
    triples = made(sideways, motion).states(1, 0, COUNT)
    passed = path(triples, motion)
    np.testing.assert_allclose(passed[-1], triples.after.agent, atol=1e-5)
    nearest = np.linalg.norm(passed - triples.before.object, axis=-1).min(0)
    moved = (triples.before.object != triples.after.object).any(1)
    assert np.array_equal(moved, triples.contact)
    assert 0.1 < moved.mean() < 0.6
    assert (nearest[moved] < REACH + 1e-3).all()
    assert (nearest[~moved] > REACH - 1e-3).all()
    assert np.linalg.norm(triples.after.agent - triples.after.object, axis=1).min() > REACH + 0.99 * GAP
    for states in (triples.before, triples.after):
        for x in (states.agent, states.object):
            assert ((x >= 0) & (x <= 1)).all()


@each_kind
def test_the_agent_drives_every_way(sideways: bool, motion: str) -> None:
    triples = made(sideways, motion, contact_share=None).states(2, 0, 200)
    for x in triples.action.T:
        assert (x > 0.01).mean() > 0.3
        assert (x < -0.01).mean() > 0.3
    in_place = (triples.action[:, :-1] == 0).all(1)
    assert 0.03 < in_place.mean() < 0.2
    around = np.histogram(triples.before.heading, 4, (-math.pi, math.pi))[0]
    assert around.min() > 200 / 8  # all headings occur
    low, high = AGENT_RANGE
    passed = path(triples, motion)
    assert passed.min() > low - 1e-4
    assert passed.max() < high + 1e-4


@each_kind
def test_the_border_stops_the_agent_on_its_path(sideways: bool, motion: str) -> None:
    """At the border it is still on the path that was asked. On a straight path it then turns as asked."""
    driving = made(sideways, motion)
    asked = np.array([0.8, 0.3, 1.0] if sideways else [0.8, 1.0], np.float32)
    for x, heading in ((0.6, 0.0), (0.8, 0.3), (0.9, -0.8)):
        before = scene((x, 0.5), heading)
        after = driving.step(before, asked)
        passed = path(_as_triples(before, asked, after), motion)
        assert np.linalg.norm(passed[:, 0] - after.agent, axis=-1).min() < 2e-3
        assert AGENT_RANGE[1] - 0.01 < after.agent[0] <= AGENT_RANGE[1]
        share = after.displacement[-1] / asked[-1]
        assert share == pytest.approx(1) if motion == "straight" else 0 < share < 0.9
    free = scene((0.3, 0.3), 0.2)
    little = asked / 4
    np.testing.assert_allclose(driving.step(free, little).displacement, little, atol=1e-6)


def _as_triples(before: Scene, action: np.ndarray, after: Outcome) -> Triples:
    end = Scene(after.agent[None], np.array([after.heading]), after.object[None], after.orientation[None])
    return Triples(before, action[None], end, np.zeros(1, bool), np.zeros(1, bool), {}, np.zeros(1, bool))


def test_without_a_turn_it_is_soccer() -> None:
    """The same kick, given along the agent's own axes: the ball ends in the same place."""
    driving, soccer = made(), Soccer(SoccerConfig(size=32))
    heading, move = 0.7, np.array([0.25, 0.05], np.float32)
    cos, sin = math.cos(heading), math.sin(heading)
    own = np.array([cos * move[0] + sin * move[1], cos * move[1] - sin * move[0], 0.0], np.float32)
    one = driving.step(scene((0.4, 0.5), heading, (0.6, 0.55)), own)
    plain = Plain(*(np.array([x], np.float32) for x in ((0.4, 0.5), (0.6, 0.55), UPRIGHT)))
    other = soccer.step(plain, move)
    assert one.contact
    assert other.contact
    np.testing.assert_allclose(one.agent, other.agent, atol=1e-6)
    np.testing.assert_allclose(one.object, other.object, atol=1e-3)
    still = driving.step(scene((0.4, 0.5), heading, (0.6, 0.55)), np.array([0, 0, 1.0], np.float32))
    assert not still.contact
    assert still.heading == pytest.approx(1.7)


def test_a_ball_at_the_fence_stops_the_agent_on_its_arc() -> None:
    driving = made()
    before = scene((0.7, 0.5), 0.0, (0.829, 0.5))
    after = driving.step(before, np.array([0.2, 0.0, 0.6], np.float32))
    assert after.stopped
    group = SE2()
    end = Scene(after.agent[None], np.array([after.heading]), after.object[None], after.orientation[None])
    reached = group.act(poses(group, before), torch.from_numpy(after.displacement[None]).double())
    torch.testing.assert_close(reached, poses(group, end), atol=3e-6, rtol=0)
    assert 0.02 < after.displacement[2] < 0.3
    assert np.linalg.norm(after.agent - after.object) > REACH + 0.99 * GAP


def test_rows_depend_on_seed_and_number_alone() -> None:
    whole = made().states(3, 0, 30)
    part = made(view="ahead").states(3, 7, 19)
    again, other = made().states(3, 0, 5), made().states(4, 0, 5)
    for i, name in enumerate(Scene._fields):
        np.testing.assert_array_equal(part.before[i], whole.before[i][7:19], err_msg=name)
        np.testing.assert_array_equal(part.after[i], whole.after[i][7:19], err_msg=name)
        np.testing.assert_array_equal(again.after[i], whole.after[i][:5], err_msg=name)
    np.testing.assert_array_equal(part.action, whole.action[7:19])
    assert not np.array_equal(other.action, again.action)
    one, two = made().rows(3, 2, 5), made().rows(3, 2, 5)
    assert one.observation.shape == (3, 4, 32, 32, 3)
    assert np.array_equal(one.observation, two.observation)
    assert made(view="ahead").rows(3, 2, 5).next_observation.shape == (3, 32, 32, 3)


# Pictures


def seen(driving: SoccerDriving, states: Scene, camera: str) -> np.ndarray:
    """Pixels [h, w] that change when the ball is taken out of the picture."""
    one, other = (
        driving.render(s, camera, 100, 100)[0].astype(int) for s in (states, states._replace(object=np.array([AWAY])))
    )
    found: np.ndarray = np.abs(one - other).sum(-1) > 12
    return found


@pytest.mark.parametrize("heading", [0.0, 1.0, -2.5])
def test_cameras_turn_with_the_agent(heading: float) -> None:
    """Front, left, back, right; a ball straight ahead of one is in its middle column, one to its left is left."""
    driving = made()
    for v, camera in enumerate(AROUND):
        angle = heading + v * math.pi / 2
        ahead = np.array([math.cos(angle), math.sin(angle)])
        left = np.array([-math.sin(angle), math.cos(angle)])
        for offset, middle in ((0.0, True), (0.1, False)):
            x, y = 0.5 + 0.25 * ahead + offset * left
            pixels = seen(driving, scene((0.5, 0.5), heading, (x, y)), camera)
            column = np.nonzero(pixels)[1].mean() - 49.5
            assert column == pytest.approx(0, abs=1) if middle else column < -10
            assert not seen(driving, scene((0.5, 0.5), heading, (x, y)), AROUND[(v + 2) % 4]).any()


def test_one_camera_sees_120_degrees_ahead() -> None:
    driving = made(view="ahead")
    for angle, visible in ((0.0, True), (0.9, True), (-0.9, True), (2.6, False), (-2.6, False)):
        x, y = 0.5 + 0.3 * np.array([math.cos(0.4 + angle), math.sin(0.4 + angle)])
        assert seen(driving, scene((0.5, 0.5), 0.4, (x, y)), "ahead").any() is np.bool_(visible), angle
    assert driving.observe(scene((0.5, 0.5), 0.4)).shape == (1, 32, 32, 3)


def test_at_heading_0_the_views_are_soccers() -> None:
    with Soccer(SoccerConfig(view="first", size=32)) as soccer:
        plain = soccer.observe(Plain(*(np.array([x], np.float32) for x in ((0.4, 0.5), (0.6, 0.6), UPRIGHT))))
    assert np.abs(made().observe(scene((0.4, 0.5), 0.0, (0.6, 0.6))).astype(int) - plain).mean() < 0.1


@pytest.mark.parametrize("view", ["around", "ahead"])
def test_pictures_show_where_the_agent_is_and_faces(view: str) -> None:
    """No two of 96 poses look alike, so position and heading can be read from the pictures."""
    driving = made(view=view)
    grid = [(x, y, h) for x in (0.2, 0.4, 0.6, 0.8) for y in (0.2, 0.5, 0.8) for h in np.arange(8) * math.pi / 4]
    views = np.concatenate([driving.observe(scene((x, y), h)) for x, y, h in grid])
    flat = views.reshape(len(grid), -1).astype(float)
    distance = np.abs(flat[:, None] - flat[None]).mean(-1)
    assert distance[~np.eye(len(grid), dtype=bool)].min() > 3
    one, other = (driving.observe(scene((0.4, 0.4), h)).astype(int) for h in (0.3, 0.32))
    assert np.abs(one - other).mean() > 1


def test_the_figure_turns_in_third_person() -> None:
    driving = made()
    pictures = [driving.render(scene((0.5, 0.5), h), "above", 200, 200) for h in (0.0, 1.5, 3.0)]
    assert len({picture.tobytes() for picture in pictures}) == 3


@pytest.mark.slow
def test_the_ball_is_always_in_one_of_the_four_views() -> None:
    driving = made()
    before = driving.states(11, 0, 25).before
    for i in range(25):
        one = Scene(*(x[i : i + 1] for x in before))
        assert max(seen(driving, one, camera).sum() for camera in AROUND) > 12


# Around it


def test_positions_are_drawn_on_the_field_from_above() -> None:
    labelled = palpate.collect(ID, 10, labelled=True, size=16, progress=False)
    rows = labelled.transitions.rows(slice(None))
    drawn = backdrop(labelled.transitions.attributes, rows.o, labelled.truth)
    assert drawn is not None
    truth = labelled.truth
    assert truth.heading is not None
    states = Scene(
        truth.agent.numpy(), truth.heading.numpy(), truth.object.numpy(), np.tile(np.float32(UPRIGHT), (10, 1))
    )
    side = drawn.pictures.shape[-1]
    expected = made().render(Scene(*(x[: len(drawn.pictures)] for x in states)), "above", side, side)
    np.testing.assert_array_equal(drawn.pictures.permute(0, 2, 3, 1).numpy(), expected)


def test_collected_triples_have_headings_and_name_their_group(tmp_path: Path) -> None:
    out = tmp_path / "log.h5"
    palpate.collect(ID, 40, seed=3, size=16, motion="straight", sideways=False, out=out, progress=False)
    labelled = palpate.Labelled.open(out)
    truth, rows = labelled.truth, labelled.transitions.rows(slice(None))
    assert rows.a.shape == (40, 2)
    assert rows.o.shape == (40, 12, 16, 16)
    assert truth.heading is not None
    assert truth.heading_next is not None
    turned = torch.remainder(truth.heading_next - truth.heading - rows.a[:, 1] + math.pi, 2 * math.pi) - math.pi
    assert turned.abs().max() < 1e-5
    settings: dict[str, Any] = {"steps": 2, "batch_size": 16, "progress": False}
    with pytest.raises(ValueError, match=r"the data come from palpate/SoccerDriving-v0, .*: give group='se2'"):
        palpate.fit(labelled, **settings)
    needs = "motion is 'arc', but the data come from palpate/SoccerDriving-v0, whose agent needs 'straight'"
    with pytest.raises(ValueError, match=needs):
        palpate.fit(labelled, group="se2", **settings)
    with pytest.raises(ValueError, match=r"whose agent turns; explore moves agents along fixed axes only"):
        palpate.explore(ID, 400, out=tmp_path / "x", size=16, progress=False)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="view is 'first'; allowed is 'around' or 'ahead'"):
        world(ID, view="first")
    with pytest.raises(ValueError, match="motion is 'bent'; allowed is 'arc' or 'straight'"):
        world(ID, motion="bent")
    with pytest.raises(ValueError, match=r"stride is 0.01; allowed is 0.02 to 1 of the field"):
        DrivingConfig(stride=0.01)
    with pytest.raises(ValueError, match=r"too slowly for streaming: first `palpate collect palpate/SoccerDriving-v0"):
        stream_world(ID)
