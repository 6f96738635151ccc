"""Table: what a triple promises, what the cameras see, and what the arm hides."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from palpate.collecting.collect import collect
from palpate.envs.table import Scene, Table, TableConfig
from palpate.envs.table.config import BLOCKS, CAMERAS, GAP, GRIPPER_RANGE, MOVED_EPSILON
from palpate.envs.table.physics import Physics, clearance, farthest
from palpate.envs.table.scene import homography, joints
from palpate.envs.table.world import Triples

SIZE = 64
every_block = pytest.mark.parametrize("block", BLOCKS)


def scene(agent: Any, thing: Any, angle: float = 0.0) -> Scene:
    return Scene(np.array([agent], np.float32), np.array([thing], np.float32), np.array([angle], np.float32))


@pytest.fixture(scope="module", params=["cube", "tee"])
def table(request: pytest.FixtureRequest) -> Table:
    return Table(TableConfig(block=request.param, size=SIZE))


@pytest.fixture(scope="module")
def triples(table: Table) -> Triples:
    return table.states(0, 0, 120)


class TestTriples:
    def test_contact_means_moved(self, triples: Triples) -> None:
        still = (triples.before.object == triples.after.object).all(1) & (triples.before.angle == triples.after.angle)
        assert np.array_equal(triples.contact, ~still)
        assert 0.2 < triples.contact.mean() < 0.4
        assert not (triples.nudge & ~triples.contact).any()

    def test_the_path_explains_the_contacts(self, table: Table, triples: Triples) -> None:
        touching = table.touches(triples.before, triples.after.agent)
        assert (touching == triples.contact).mean() > 0.98  # a proposal is compared at steps along the path

    def test_bodies_are_apart_and_in_their_ranges(self, table: Table, triples: Triples) -> None:
        for states in (triples.before, triples.after):
            assert (clearance(BLOCKS[table.config.block], *states) > GAP * 0.99).all()
            assert ((states.agent >= GRIPPER_RANGE[0]) & (states.agent <= GRIPPER_RANGE[1])).all()
            assert not any(map(table.left, states.object))

    def test_the_action_is_the_displacement(self, triples: Triples) -> None:
        assert np.array_equal(triples.action, triples.after.agent - triples.before.agent)

    def test_a_pushed_block_goes_ahead_and_turns(self, triples: Triples) -> None:
        pushed = triples.contact & ~triples.nudge
        way = (triples.after.object - triples.before.object)[pushed]
        assert ((way * triples.action[pushed]).sum(1) > 0).mean() > 0.9
        assert (np.abs(triples.after.angle - triples.before.angle)[pushed] > 0.01).mean() > 0.5

    def test_rows_do_not_depend_on_where_a_part_begins(self, table: Table, triples: Triples) -> None:
        again = table.states(0, 7, 9)
        assert np.array_equal(again.after.object, triples.after.object[7:9])
        assert not np.array_equal(table.states(1, 7, 9).after.object, again.after.object)

    def test_rows_that_do_not_exist(self, table: Table) -> None:
        with pytest.raises(ValueError, match="rows 5 to 2 of seed 0 do not exist"):
            table.states(0, 5, 2)


@every_block
class TestPush:
    def test_straight_through_the_middle(self, block: Any) -> None:
        """The fingers push a block that is in their way, by about as far as they go beyond the touch."""
        physics, start = Physics(block), np.array((0.1, 0.5), np.float32)
        found = physics.step(start, np.array((0.4, 0.5), np.float32), 0.0, np.array((0.4, 0.5), np.float32))
        assert found.contact
        assert found.settled
        assert not found.nudge
        assert clearance(BLOCKS[block], found.agent[None], found.object, found.angle)[0] >= GAP
        assert 0.02 < np.linalg.norm(found.object - (0.4, 0.5)) < 0.4

    def test_beside_it(self, block: Any) -> None:
        place = np.array((0.5, 0.5), np.float32)
        found = Physics(block).step(np.array((0.1, 0.2), np.float32), place, 0.3, np.array((0.9, 0.2), np.float32))
        assert (found.contact, found.settled) == (False, True)
        assert np.array_equal(found.object, place)

    def test_it_stops_and_turns_no_more(self, block: Any) -> None:
        """A second step beside the pushed block leaves it where it is."""
        physics = Physics(block)
        found = physics.step(
            np.array((0.2, 0.45), np.float32), np.array((0.4, 0.5), np.float32), 0.5, np.array((0.38, 0.45), np.float32)
        )
        away = physics.step(found.agent, found.object, float(found.angle), np.array((0.05, 0.05), np.float32))
        assert not away.contact


def test_a_nudge_is_kept_and_marked() -> None:
    """The fingers graze a disc in passing."""
    physics, place = Physics("disc"), np.array((0.5, 0.5), np.float32)
    beside = 0.5 + 0.065 + 0.04 - 0.001
    found = physics.step(np.array((0.3, beside), np.float32), place, 0.0, np.array((0.7, beside), np.float32))
    assert found.contact
    assert found.nudge
    assert 0 < farthest(BLOCKS["disc"], place, 0.0, found.object, float(found.angle)) <= MOVED_EPSILON


def test_clearance_of_a_turned_tee_by_hand() -> None:
    """Below its foot: half the foot's length and its offset, less the radius of the fingers."""
    foot = np.array([[0.5 + 0.3, 0.5]])  # the tee's own -y axis points to +x after a quarter turn
    assert clearance(BLOCKS["tee"], foot, np.array((0.5, 0.5)), np.pi / 2)[0] == pytest.approx(0.3 - 0.1 - 0.04)


class TestPictures:
    def test_shapes(self, table: Table) -> None:
        both = Table(TableConfig(size=32, cameras=("front", "side")))
        assert table.observe(scene((0.2, 0.2), (0.6, 0.6))).shape == (1, SIZE, SIZE, 3)
        assert both.observe(scene((0.2, 0.2), (0.6, 0.6))).shape == (1, 2, 32, 32, 3)

    @pytest.mark.parametrize("camera", ["front", "side", "top"])
    def test_the_block_is_seen_where_it_is(self, table: Table, camera: Any) -> None:
        """Red pixels move with it: in front to the right with x, and up with y."""

        def middle(thing: tuple[float, float]) -> np.ndarray:
            picture = table.render(scene((0.05, 0.95), thing), camera, 96, 96)[0].astype(int)
            rows, columns = np.nonzero((picture[..., 0] > 120) & (picture[..., 1] < 90))
            return np.array((columns.mean(), 95 - rows.mean()))

        here, right, behind = middle((0.5, 0.4)), middle((0.7, 0.4)), middle((0.5, 0.6))
        axes = {"front": ((1, 0), (0, 1)), "top": ((1, 0), (0, 1)), "side": ((0, -1), (1, 0))}[camera]
        assert (right - here) @ axes[0] > 5
        assert (behind - here) @ axes[1] > 3

    @pytest.mark.parametrize("camera", CAMERAS)
    def test_positions_on_the_pictures(self, camera: Any) -> None:
        """The red block's middle is at the pixel of its position."""
        at = (0.3, 0.6)
        picture = Table(TableConfig(arm=False)).render(scene((0.9, 0.9), at), camera, 200, 160)[0].astype(int)
        rows, columns = np.nonzero((picture[..., 0] > 120) & (picture[..., 1] < 90))
        x, y, depth = homography(camera, 200, 160) @ (*at, 1)
        assert np.hypot(columns.mean() + 0.5 - x / depth, rows.mean() + 0.5 - y / depth) < 2

    def test_the_hand_is_where_the_forearm_ends(self) -> None:
        """The arm's joint angles put the end of the forearm at the wrist, everywhere on the table."""
        table = Table(TableConfig(size=32))
        renderer = table._renderer(32)
        body = renderer.model.body("forearm").id
        for agent in np.random.default_rng(0).uniform(*GRIPPER_RANGE, (20, 2)):
            renderer.pose(joints(agent, np.array((0.5, 0.5)), 0.0))
            end = renderer.data.xpos[body] + renderer.data.xmat[body].reshape(3, 3) @ (0.42, 0, 0)
            np.testing.assert_allclose(end, (*(agent - 0.5) * 0.5, 0.22), atol=1e-6)

    def test_a_closed_world_draws_no_more(self) -> None:
        with Table(TableConfig(size=32)) as made:
            pass
        with pytest.raises(ValueError, match="was closed"):
            made.observe(scene((0.2, 0.2), (0.6, 0.6)))


class TestHiding:
    def test_behind_the_hand_and_beside_it(self) -> None:
        front, both = (Table(TableConfig(size=SIZE, cameras=cameras)) for cameras in (("front",), ("front", "side")))
        behind, beside = scene((0.5, 0.35), (0.5, 0.55)), scene((0.5, 0.35), (0.75, 0.55))
        assert front.visible(behind).tolist() == [False]
        assert front.visible(beside).tolist() == [True]
        assert both.visible(behind).tolist() == [True]

    @pytest.mark.slow
    def test_it_agrees_with_the_pictures(self) -> None:
        """Share of the red pixels that remain when the hand and the arm are there."""
        table = Table(TableConfig(size=SIZE))
        states = table.states(0, 0, 60).before
        far = states._replace(agent=np.tile(np.array((0.05, 0.95), np.float32), (60, 1)))

        def red(which: Scene) -> np.ndarray:
            picture = table.render(which, "front", 128, 128).astype(int)
            return ((picture[..., 0] > 110) & (picture[..., 1] < 90)).sum((1, 2))

        share = red(states) / red(far)
        seen = table.visible(states)
        assert 0.02 < 1 - seen.mean() < 0.25
        assert share[seen].min() > 0.3
        assert share[~seen].max() < 0.7


class TestEnvironment:
    def test_an_episode_ends_when_the_block_leaves(self) -> None:
        env: Any = gymnasium.make("palpate/Table-v0", size=32)
        observation, info = env.reset(seed=0)
        assert observation.shape == (32, 32, 3)
        assert isinstance(info["visible"], bool)
        for _ in range(400):
            toward = info["object"] - info["agent"]
            _, _, terminated, truncated, info = env.step((0.25 * toward / np.linalg.norm(toward)).astype(np.float32))
            if terminated:
                break
        assert terminated
        assert not truncated
        assert env.unwrapped.world.left(info["object"])

    @pytest.mark.slow
    def test_collected_triples_know_what_is_visible(self) -> None:
        labelled = collect("palpate/Table-v0", 130, seed=0, labelled=True, size=16, cameras="front,side")
        assert labelled.transitions.observation_shape == (6, 16, 16)
        assert labelled.truth.visible is not None
        assert labelled.truth.angle is not None
        assert labelled.truth.visible.float().mean() > 0.8
        assert labelled.transitions.attributes["cameras"] == "front,side"

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"block": "ball"}, "block is 'ball'; allowed are cube, bar, disc, tee, ell"),
            ({"cameras": "front,back"}, "allowed are one or several of front, side, top"),
            ({"cameras": ()}, "allowed are one or several"),
            ({"stride": 2.0}, "stride is 2.0; allowed is 0.02 to 0.9"),
            ({"size": 3}, "size is 3"),
        ],
    )
    def test_wrong_options(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(ValueError, match=says):
            TableConfig(**options)
