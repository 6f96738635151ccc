"""Triples from any Gymnasium environment, and the settings of `Stepping`."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from push_worlds import Cart, Grid

from palpate.collecting.collect import collect
from palpate.collecting.readings import Moment
from palpate.collecting.stepped import MOST_DROPPED
from palpate.collecting.stepping import Stepping
from palpate.data.labelled import Labelled

PIXELS = {"observation": "observation:pixels"}
CART: dict[str, Any] = {"observation": "observation:pos", "agent_position": "info:pos"}
RESTING: dict[str, Any] = {**CART, "settle": 40, "hold": "info:pos", "watch": "info:pose", "tolerance": 1e-6}
TRUTH = {"object": "info:pose[:2]", "angle": "info:pose[2]", "contact": "info:hit"}


def rows(env: Any, num: int = 40, **options: Any) -> Any:
    return collect(env, num, seed=3, **options).rows(slice(None))


class TestAgentPosition:
    def test_the_action_is_the_displacement_achieved(self) -> None:
        env = Cart()
        o, a, o_next = rows(env, **CART)
        assert torch.allclose(o_next - o, a, atol=1e-5)
        asked = torch.from_numpy(np.stack(env.actions)) - o
        assert torch.allclose(a, asked / 3, atol=1e-5)

    @pytest.mark.parametrize(
        "reader",
        [
            "observation:pos",
            "info:pos[0:2]",
            "info:pos[:]",
            lambda now: now.env.unwrapped.at,
            lambda now: list(now.info["pos"]),
        ],
    )
    def test_all_kinds_of_readers(self, reader: Any) -> None:
        assert torch.equal(rows(Cart(), **CART | {"agent_position": reader}).a, rows(Cart(), **CART).a)

    def test_discrete_actions(self) -> None:
        o, a, o_next = rows(Grid(), agent_position="observation")
        assert torch.equal(o_next - o, a)
        assert {-1.0, 1.0} <= set(a.flatten().tolist()) <= {-1.0, 0.0, 1.0}

    @pytest.mark.parametrize(
        ("reader", "says"),
        [
            ("info:position", r"agent_position is 'info:position', but .* info has no 'position'; it holds pos, pose"),
            ("observation:position", r"the environment's observation has no 'position'; it holds pixels, pos"),
            ("info:pos[2]", "agent_position is .* out of bounds"),
            ("info:pose[2]", r"has shape \(\); allowed is one axis of coordinates, such as \(2,\)"),
            ("observation:pixels", r"has shape \(6, 5, 3\); allowed is one axis"),
            (lambda now: now.info["pos"] * np.nan, r"agent_position, read from .*<lambda>, is \[nan nan\]; .* finite"),
            (lambda now: "here", "is 'here'; allowed are real numbers"),
            (lambda now: np.zeros(2 + now.env.unwrapped.steps), r"has shape \(3,\); .* always of one length"),
            (lambda now: np.zeros(2), r"the agent did not move in any of 40 triples; does agent_position read what"),
        ],
    )
    def test_wrong_ones(self, reader: Any, says: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=says):
            collect(Cart(), 40, out=tmp_path / "log.h5", **CART | {"agent_position": reader})
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize(
        "reader",
        ["pos", "info:", "info:pos[]", "info:pos[-:]", "env:pos", 7],
    )
    def test_invalid_readers(self, reader: Any) -> None:
        with pytest.raises(ValueError, match=r"agent_position is .*; allowed are 'info:KEY', 'observation:KEY'"):
            collect(Cart(), 3, **CART | {"agent_position": reader})

    def test_targets_are_not_displacements(self) -> None:
        with pytest.raises(ValueError, match=r"action space is Box\(0.0, 20.0.* not displacements.*agent_position="):
            collect(Cart(), 3, observation="observation:pos")


class TestObservation:
    def test_a_part(self) -> None:
        data = collect(Cart(), 5, agent_position="info:pos", **PIXELS)
        assert data.observation_shape == (3, 6, 5)
        assert data.attributes["observation"] == "observation:pixels"

    def test_render(self) -> None:
        data = collect(Cart(render_mode="rgb_array"), 5, agent_position="info:pos", observation="render")
        assert data.observation_shape == (3, 7, 9)

    def test_a_function(self) -> None:
        data = collect(Cart(), 5, agent_position="info:pos", observation=lambda now: np.ones(4))
        assert data.observation_shape == (4,)

    def test_dictionaries_need_a_choice(self) -> None:
        with pytest.raises(ValueError, match=r"observation space is Dict\(.*'pixels'.*; select a part of it"):
            collect(Cart(), 3, agent_position="info:pos")

    def test_nothing_rendered(self) -> None:
        with pytest.raises(ValueError, match=r"render\(\) returns NoneType; make .* with render_mode='rgb_array'"):
            collect(Cart(), 3, agent_position="info:pos", observation="render")

    def test_shapes_that_change(self) -> None:
        with pytest.raises(ValueError, match=r"observation is not an array: .*; all rows must have the same shape"):
            collect(
                Cart(), 9, agent_position="info:pos", observation=lambda n: np.zeros(1 + (n.env.unwrapped.steps > 4))
            )


class TestEpisodes:
    @pytest.mark.parametrize("on_disk", [True, False])
    def test_rows_of_an_episode_follow_each_other(self, on_disk: bool, tmp_path: Path) -> None:
        data = collect(Cart(horizon=5), 300, seed=3, out=tmp_path / "a.h5" if on_disk else None, **CART)
        o, _, o_next = data.rows(slice(None))
        assert data.episode is not None
        same = data.episode[1:] == data.episode[:-1]
        assert torch.equal(same, (o[1:] == o_next[:-1]).all(1))
        assert len(data.episode.unique()) == 26 + 26 + 9  # a block of 128 rows begins a new one
        held, _ = data.split(0.1)
        assert held.episode is not None
        assert len(held) == sum(int((data.episode == number).sum()) for number in held.episode.unique())

    def test_an_episode_without_triples_has_no_number(self) -> None:
        """Some episodes are over before their first triple."""
        lengths = iter([13, 31] * 20)

        class Uneven(Cart):
            def reset(self, **options: Any) -> Any:
                self.horizon = next(lengths)
                return super().reset(**options)

        data = collect(Uneven(), 20, seed=1, **RESTING)
        assert data.attributes["dropped_truncated"] > 1
        assert data.episode is not None
        assert torch.equal(data.episode.unique(), torch.arange(int(data.episode.max()) + 1))

    @pytest.mark.parametrize(("limit", "reason"), [("horizon", "truncated"), ("most", "terminated")])
    @pytest.mark.parametrize("steps", [5, 31], ids=["while waiting after a reset", "in a triple"])
    def test_why_rows_are_dropped(self, limit: str, reason: str, steps: int) -> None:
        """It takes 12 steps until the puck rests."""
        env = Cart(**{limit: steps})
        if steps < 12:
            with pytest.raises(ValueError, match=rf"were dropped \({MOST_DROPPED} {reason}\)"):
                collect(env, 5, seed=1, **RESTING)
        else:
            dropped = {k: v for k, v in collect(env, 20, seed=1, **RESTING).attributes.items() if "dropped" in k and v}
            assert dropped.keys() == {f"dropped_{reason}"}

    @pytest.mark.parametrize("settling", [{}, {"settle": 40, "hold": "info:pos"}], ids=["moving", "settled"])
    def test_each_state_is_rendered_once(self, settling: dict[str, Any]) -> None:
        env, seen = Cart(render_mode="rgb_array"), list[int]()
        plain = env.render
        env.render = lambda: (seen.append(env.steps), plain())[1]  # type: ignore[method-assign]
        collect(env, 30, **CART | {"observation": "render"} | settling)
        assert len(seen) == len(set(seen)) > 30


class TestAggregate:
    def test_one_action_over_several_steps(self) -> None:
        env = Cart()
        o, a, o_next = rows(env, 6, aggregate=4, **CART)
        asked = np.stack(env.actions)
        assert len(asked) == 24
        assert (asked.reshape(6, 4, 2) == asked[::4, None]).all()  # so that the path is straight
        left = torch.from_numpy(asked[::4]) - o
        assert torch.allclose(a, left * (1 - (2 / 3) ** 4), atol=1e-4)
        assert torch.equal(o_next[:-1], o[1:])

    @pytest.mark.filterwarnings("ignore:actions are taken for the agent's displacements")
    def test_displacements_add_up(self) -> None:
        class Walk(gymnasium.Env[Any, Any]):
            observation_space = gymnasium.spaces.Box(-99, 99, (2,), np.float32)
            action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

            def __init__(self, reported: float) -> None:
                self.reported = reported

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                super().reset(seed=seed)
                self.at = np.zeros(2, np.float32)
                return self.at, {}

            def step(self, action: np.ndarray) -> Any:
                self.at = self.at + action * (self.reported or 1)
                return self.at, 0.0, False, False, {"displacement": action / 2} if self.reported else {}

        for reported in (0.5, 0):
            o, a, o_next = rows(Walk(reported), aggregate=3)
            assert torch.allclose(o_next - o, a, atol=1e-5)

    def test_what_the_end_of_an_episode_cuts_short_is_dropped(self) -> None:
        data = collect(Cart(horizon=10), 12, aggregate=4, **CART)  # two triples of four steps, then two steps
        assert data.attributes["dropped_truncated"] == 5
        whole = collect(Cart(horizon=8), 12, aggregate=4, **CART)
        assert "dropped_truncated" not in whole.attributes

    def test_episodes_that_are_too_short(self) -> None:
        with pytest.raises(
            ValueError,
            match=rf"{MOST_DROPPED} consecutive triples were dropped \({MOST_DROPPED} truncated\); .*max_episode_steps",
        ):
            collect(Cart(horizon=3), 5, aggregate=4, **CART)


class TestSettle:
    def test_nothing_moves_where_a_triple_begins_and_ends(self) -> None:
        data = collect(Cart(), 60, seed=1, labelled=True, truth=TRUTH, **RESTING)
        truth, a = data.truth, data.transitions.action
        still = (truth.object == truth.object_next).all(1)
        assert torch.equal(
            truth.contact, ~still
        )  # touched if and only if moved: also the roll after a reset is waited for
        assert 0 < truth.contact.float().mean() < 1
        assert torch.allclose(truth.agent + a, truth.agent_next, atol=1e-5)

    def test_without_it_the_object_moves_without_contact(self) -> None:
        truth = collect(Cart(), 60, seed=1, labelled=True, truth=TRUTH, **CART).truth
        assert ((truth.object != truth.object_next).any(1) & ~truth.contact).any()

    def test_the_agent_is_held(self) -> None:
        env = Cart()
        data = collect(env, 5, seed=1, **RESTING)
        at = data.rows(slice(None)).o_next[-1].numpy()
        np.testing.assert_allclose(env.actions[-1], at, atol=1e-5)

    @pytest.mark.parametrize("hold", [(1.0, 2.0), np.array([1, 2]), lambda now: [1, 2]])
    def test_the_action_that_holds(self, hold: Any) -> None:
        env = Cart()
        collect(env, 2, **RESTING | {"hold": hold, "settle": 200})
        assert env.actions[-1].tolist() == [1, 2]
        assert env.actions[-1].dtype == np.float32
        np.testing.assert_allclose(env.at, (1, 2), atol=1e-4)  # it rests too, though the puck alone was named

    def test_the_action_is_clipped_to_the_box(self) -> None:
        env = Cart()
        collect(env, 2, **RESTING | {"hold": (-5, 30), "settle": 200})
        assert env.actions[-1].tolist() == [0, 20]

    def test_the_observation_is_watched_by_default(self) -> None:
        """Pictures of the agent: the puck may go on."""
        collect(Cart(always=True), 5, agent_position="info:pos", settle=40, hold="info:pos", **PIXELS)

    def test_what_never_rests_is_dropped_and_counted(self) -> None:
        class Restless(Cart):
            def step(self, action: np.ndarray) -> Any:
                self.always = self.steps > 0 and (self.always or self.hit)  # once hit it goes on, to the next reset
                return super().step(action)

        options = RESTING | {"truth": TRUTH, "seed": 1, "aggregate": 8}
        data = collect(Restless(), 60, labelled=True, **options)
        unsettled = data.transitions.attributes["dropped_unsettled"]
        assert unsettled > 3
        assert torch.equal(data.truth.object, data.truth.object_next)
        assert not data.truth.contact.any()

    @pytest.mark.slow
    def test_nothing_ever_rests(self) -> None:
        with pytest.raises(
            ValueError,
            match=rf"{MOST_DROPPED} consecutive triples were dropped \({MOST_DROPPED} unsettled\); unsettled: wait",
        ):
            collect(Cart(always=True), 5, **RESTING)

    def test_an_end_while_waiting(self) -> None:
        data = collect(Cart(horizon=31), 20, seed=1, **RESTING)  # 12 steps until it rests, then 2 for a triple
        assert data.attributes["dropped_truncated"] > 0
        assert len(data) == 20

    def test_a_corner_does_not_hold(self) -> None:
        with pytest.raises(ValueError, match=r"action space is Box\(0.0, 20.0.*, in which 0 does not hold .* hold="):
            collect(Cart(), 3, **RESTING | {"hold": None})

    @pytest.mark.parametrize(
        ("hold", "says"),
        [((1, 2, 3), r"hold returns the action \(1, 2, 3\); allowed are finite numbers of shape \(2,\)"),
         ("info:place", "hold is 'info:place', but the environment's info has no 'place'")],
    )  # fmt: skip
    def test_wrong_actions(self, hold: Any, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            collect(Cart(), 3, **RESTING | {"hold": hold})


class TestApproach:
    @pytest.mark.slow
    def test_raises_the_contact_share(self) -> None:
        def share(**options: Any) -> float:
            data = collect(Cart(), 120, seed=1, labelled=True, aggregate=12, truth=TRUTH, **RESTING, **options)
            return float(data.truth.contact.float().mean())

        def approach(now: Moment, rng: np.random.Generator) -> np.ndarray:
            return now.info["pose"][:2] + rng.normal(0, 0.5, 2)

        random, half, always = share(), share(approach=approach), share(approach=approach, approach_share=1.0)
        assert random + 0.1 < half < always - 0.1
        assert share(approach=approach, approach_share=0.0) == random

    @pytest.mark.parametrize("action", [(1, 2, 3), (np.nan, 1)])
    def test_wrong_actions(self, action: Any) -> None:
        with pytest.raises(
            ValueError, match=r"approach returns the action .*; allowed are finite numbers of shape \(2,\)"
        ):
            collect(Cart(), 3, approach=lambda now, rng: action, approach_share=1.0, **CART)

    def test_a_wrong_choice(self) -> None:
        with pytest.raises(ValueError, match=r"approach returns the action 2; the action space is Discrete\(2\)"):
            collect(Grid(), 3, agent_position="observation", approach=lambda now, rng: 2, approach_share=1.0)


class TestTruth:
    def test_beside_the_triples(self) -> None:
        data = collect(Cart(), 30, seed=1, labelled=True, truth=TRUTH, **RESTING)
        truth = data.truth
        assert torch.equal(truth.agent, data.transitions.rows(slice(None)).o)  # agent_position
        assert truth.angle.unique().tolist() == [0.5]
        assert torch.equal(truth.object_next[:-1], truth.object[1:])

    def test_contact_in_any_step(self) -> None:
        """It is hit on the way; at the end of the triple it is not."""
        hits: list[bool] = []

        def hit(now: Moment) -> bool:
            hits.append(now.info["hit"])
            return now.info["hit"]

        truth = {**TRUTH, "contact": hit}
        data = collect(Cart(), 30, seed=1, labelled=True, aggregate=5, truth=truth, **CART)
        in_any = np.reshape(hits, (30, 5)).any(1)
        assert (in_any != np.reshape(hits, (30, 5))[:, -1]).any()
        assert data.truth.contact.tolist() == in_any.tolist()

    def test_visible_in_the_first_observation(self) -> None:
        """The agent hides the puck from one half of the square."""
        readings = {**TRUTH, "visible": lambda now: now.observation["pos"][0] > 10}
        truth = collect(Cart(), 60, seed=1, labelled=True, truth=readings, **RESTING).truth
        assert truth.visible.dtype == torch.bool
        assert torch.equal(truth.visible, truth.agent[:, 0] > 10)
        assert not torch.equal(truth.visible, truth.agent_next[:, 0] > 10)

    def test_moved(self) -> None:
        one, two = (
            collect(Cart(), 60, seed=1, labelled=True, truth={**TRUTH, "contact": contact}, **RESTING).truth.contact
            for contact in ("info:hit", "moved")
        )
        assert torch.equal(one, two)

    def test_the_default_names_in_info(self) -> None:
        class Named(Cart):
            def look(self) -> Any:
                o, info = super().look()
                return o, info | {"object": info["pose"][:2], "visible": True}

        data = collect(Named(), 9, labelled=True, **CART)
        assert set(data.truth.known()) == {"agent", "object", "agent_next", "object_next", "visible"}

    def test_entries_of_info_that_are_not_states(self) -> None:
        class Kitchen(Cart):
            def look(self) -> Any:
                o, info = super().look()
                return o, info | {"object": "kettle"}

        with pytest.raises(ValueError, match="truth object, read from info:object, is 'kettle'; allowed are real"):
            collect(Kitchen(), 3, **CART)
        assert len(collect(Kitchen(), 3, truth={}, **CART)) == 3

    def test_truth_does_not_change_the_triples(self, tmp_path: Path) -> None:
        plain = rows(Cart(), **RESTING)
        with collect(Cart(), 40, seed=3, out=tmp_path / "log.h5", truth=TRUTH, **RESTING) as stored:
            for x, y in zip(plain, stored.rows(slice(None)), strict=True):
                assert torch.equal(x, y)
        with Labelled.open(tmp_path / "log.h5") as labelled:
            assert len(labelled.truth.known()) == 7

    @pytest.mark.parametrize(
        ("truth", "says"),
        [
            ({"angle": "info:pose[2]"}, "truth has angle; needed are object and"),
            ({"object": "info:pose[:2]", "colour": "info:c"}, "truth has colour, object; needed"),
            ({"object": "pose"}, "truth object is 'pose'; allowed are 'info:KEY'"),
            ({"object": "moved"}, "truth object is 'moved'; allowed"),
            ({"object": "info:pose"}, r"truth object\w* has shape \(3,\); these triples need \(2,\)"),
            ({"object": "info:pose[:2]", "angle": "info:pose[2:]"}, r"truth angle\w* has shape \(1,\).* need \(\)"),
            ({"object": "info:pose[:2]", "visible": lambda now: 0.5}, "truth visible.* is 0.5; allowed are True and"),
            ({"object": "info:pose[:2]", "visible": "info:pose"}, "truth visible.* allowed are True and False"),
            ({"object": "info:pose[:2]", "visible": lambda now: [True]}, r"truth visible has shape \(1,\).* need \(\)"),
            ({"object": "info:puck"}, "truth object is 'info:puck', but the environment's info has no 'puck'"),
            ({"object": lambda now: now.info["pose"][:2] * np.inf}, "truth object.* all values must be finite"),
        ],
    )
    def test_wrong_ones(self, truth: Any, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            collect(Cart(), 20, truth=truth, **CART)


class TestSettings:
    @pytest.mark.parametrize(
        ("option", "value", "allowed"),
        [
            ("aggregate", 0, "whole numbers from 1"),
            ("aggregate", 1.5, "whole numbers from 1"),
            ("settle", -1, "whole numbers from 0"),
            ("tolerance", -1.0, "0 or more"),
            ("tolerance", float("nan"), "0 or more"),
            ("approach_share", 1.2, "0 to 1"),
            ("approach", "there", "a function of a Moment"),
            ("observation", "pixels", "'info:KEY'"),
            ("watch", ("info:pose", "pose"), "'info:KEY'"),
            ("hold", "zero", "'info:KEY'"),
        ],
    )
    def test_are_checked(self, option: str, value: Any, allowed: str) -> None:
        with pytest.raises(ValueError, match=rf"^{option}.* is .*; allowed (is|are) {allowed}"):
            Stepping(**{option: value})

    def test_are_noted(self) -> None:
        said = Stepping(aggregate=4, watch=("info:a", len), truth={"agent": "info:a", "object": min}, hold=(0, 1))
        assert said.attributes() == {
            "aggregate": 4, "watch": "info:a, len", "truth": "agent=info:a, object=min", "hold": "0, 1"
        }  # fmt: skip
        assert Stepping().attributes() == {}

    def test_unknown_options_of_an_instance(self) -> None:
        with pytest.raises(ValueError, match=r"options \['agregate'\] are for ids; .* agent_position, agent_heading"):
            collect(Cart(), 3, agregate=3, **CART)


class TestWorkers:
    @pytest.mark.slow
    def test_workers_write_the_same_bytes(self, tmp_path: Path) -> None:
        """Spawned; lambdas are sent to the workers."""
        options = CART | {"agent_position": lambda now: now.info["pos"], "aggregate": 2, "truth": TRUTH}
        for workers in (1, 2):
            collect(lambda: Cart(horizon=9), 600, out=tmp_path / f"{workers}.h5", workers=workers, **options).close()
        assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()

    def test_an_instance_needs_one_process(self) -> None:
        with pytest.raises(ValueError, match="workers is 2, but an existing environment cannot move"):
            collect(Cart(), 300, workers=2, **CART)

    def test_a_function_that_makes_something_else(self) -> None:
        with pytest.raises(ValueError, match="returns 7; it must make a Gymnasium environment"):
            collect(lambda: 7, 3)

    def test_blocks_do_not_depend_on_each_other(self) -> None:
        few, many = (rows(Cart(), num, **CART) for num in (140, 300))
        assert torch.equal(few.o, many.o[:140])
        assert not torch.equal(many.o[:100], many.o[128:228])


class TestIds:
    @pytest.fixture(autouse=True)
    def _register(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = gymnasium.envs.registration.EnvSpec("Cart-v0", "push_worlds:Cart", disable_env_checker=True)
        monkeypatch.setitem(gymnasium.registry, "Cart-v0", spec)

    def test_options_go_where_they_belong(self) -> None:
        data = collect("Cart-v0", 12, aggregate=4, horizon=10, **CART)
        assert data.attributes["dropped_truncated"] == 5
        assert data.attributes["environment"] == "Cart-v0"
        assert data.attributes["horizon"] == 10

    def test_of_a_module(self) -> None:
        data = collect("push_worlds:Cart-v0", 3, **CART)
        assert data.attributes["environment"] == "Cart-v0"

    def test_render_sets_the_render_mode(self) -> None:
        assert collect("Cart-v0", 3, agent_position="info:pos", observation="render").observation_shape == (3, 7, 9)

    def test_a_module_that_is_not_there(self) -> None:
        with pytest.raises(ValueError, match="env is 'no_such:Cart-v0': .*'no_such'.*; install the package"):
            collect("no_such:Cart-v0", 3)

    def test_unknown_options_of_an_id(self) -> None:
        with pytest.raises(ValueError, match="does not take these options: .*'wheels'"):
            collect("Cart-v0", 3, wheels=4, **CART)
