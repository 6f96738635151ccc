"""PPO runs: closed forms, resuming, learning."""

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dots import LENGTH, Dots
from PIL import Image
from stable_baselines3 import PPO

from palpate.checkpoint import read_state
from palpate.config import ModelConfig
from palpate.control import ppo as room
from palpate.control.claims import claim, fingerprint, settings_of
from palpate.control.game import Painter, game_options, make_game
from palpate.control.policy import Standardised, load_policy
from palpate.control.ppo import HELD_OUT_SEED, Run, play, train
from palpate.control.settings import ControlConfig
from palpate.control.vec import Envs, VecRead
from palpate.envs.soccer import Soccer, SoccerConfig
from palpate.methods.store import build
from palpate.representation import Representation
from palpate.runlog import read_log
from palpate.training.loop import Interrupted
from palpate.training.notes import NonFiniteLoss

TINY = ControlConfig(
    steps=240,
    envs=4,
    rollout=20,
    batch_size=40,
    epochs=2,
    evaluate_every=80,
    episodes=6,
    film=0,
    workers=0,
    device="cpu",
    size=20,
)


def still(o: Any) -> np.ndarray:
    return np.zeros((len(o), 2), np.float32)


class TestPlay:
    def test_doing_nothing_by_hand(self) -> None:
        """The ball stays 0.31 from the goal for 20 steps."""
        env = Envs(partial(make_game, {"observation": "state"}), 4, 0)
        played = play(env, still, 6, HELD_OUT_SEED)
        assert played.returns == pytest.approx([-20 * 0.31] * 6)
        assert not played.goals.any()
        env.close()

    def test_the_starts_do_not_depend_on_how_many_are_played_at_once(self) -> None:
        found = []
        for count in (2, 3):
            seen: list[np.ndarray] = []
            env = Envs(Dots, count, 0)
            played = play(env, still, 5, 7, seen.append)
            found.append(played)
            assert len(seen) == LENGTH * -(-5 // count)
            env.close()
        assert (found[0].returns == found[1].returns).all()
        assert (found[0].returns == LENGTH).all()
        assert (found[0].goals == found[1].goals).all()

    def test_an_episode_ends_with_its_goal_where_that_is_wanted(self) -> None:
        env = Envs(partial(make_game, {"observation": "state"}), 1, 0)
        straight = lambda o: np.array([[0.3, 0.0]], np.float32)  # noqa: E731
        game = make_game({"observation": "state"})
        starts = np.stack([game.reset(seed=seed)[0] for seed in range(1000)])  # some stand right behind the ball
        played = play(env, straight, 1, int(np.argmin(abs(starts[:, 1] - 0.5) + (starts[:, 0] > 0.4))))
        assert played.goals.all()
        assert played.returns[0] > -2
        env.close()


def test_a_time_limit_is_bootstrapped() -> None:
    """One reward a step and no end but the limit: where the value is right, 1 / (1 - gamma), no advantage is left."""
    gamma, value = 0.5, 2.0
    env = Envs(Dots, 2, 0)
    ppo = PPO("MlpPolicy", env, n_steps=LENGTH, batch_size=2 * LENGTH, gamma=gamma, device="cpu", seed=0)
    with torch.no_grad():
        ppo.policy.value_net.weight.zero_()
        ppo.policy.value_net.bias.fill_(value)
    ppo.learn(2 * LENGTH)
    assert ppo.rollout_buffer.advantages == pytest.approx(np.zeros((2 * LENGTH, 1)), abs=1e-6)
    env.close()


def test_observations_are_standardised_once() -> None:
    run = Run("truth", TINY, 0, None)
    run.begin()
    scale = run.ppo.policy.features_extractor
    assert isinstance(scale, Standardised)
    assert scale.mean.tolist() == pytest.approx([0.5] * 4, abs=0.25)
    assert all(0.1 < x < 0.4 for x in scale.spread[:2].tolist())
    assert run.random["return"] < -4
    before = scale.mean.clone()
    run.advance()
    assert torch.equal(scale.mean, before)
    run.close()


def test_a_number_that_never_varies_is_left_alone() -> None:
    run = Run("truth", TINY, 0, None)
    scale = run.ppo.policy.features_extractor
    scale.measure(np.tile(np.array([0.1, 0.2, 0.5, 0.5], np.float32), (9, 1)))
    assert scale.spread.tolist() == [1.0] * 4
    run.close()


class TestTrain:
    def test_what_a_run_leaves(self, tmp_path: Path) -> None:
        readings: list[tuple[int, dict[str, float]]] = []
        config = replace(TINY, film=1)
        row = train("truth", config, 0, None, tmp_path, lambda step, values: readings.append((step, values)))
        assert [point[0] for point in row["curve"]] == [0, 80, 160, 240]
        assert [step for step, values in readings if "return" in values] == [0, 80, 160, 240]
        assert row["final"]["return"] == row["curve"][-1][1] == pytest.approx(np.mean(row["returns"]), rel=1e-4)
        assert len(row["returns"]) == 6
        assert row["random"]["return"] < -4
        assert row["steps_per_second"] < row["collect_steps_per_second"]
        assert [reading["step"] for reading in read_log(tmp_path / "metrics.jsonl")] == [0, 80, 160, 240]
        with Image.open(tmp_path / "film.gif") as film:
            assert film.n_frames == 21  # such a policy never scores
            assert film.size == (320, 270)
        assert (tmp_path / "film.gif").stat().st_size < 2e6
        act = load_policy(tmp_path)
        o = np.random.default_rng(0).random((5, 4), np.float32)
        run = Run("truth", TINY, 0, None)
        assert run.restore(tmp_path)
        assert np.array_equal(act(o), run.ppo.predict(o, deterministic=True)[0])
        assert np.array_equal(act(o), load_policy(tmp_path / "policy.safetensors")(o))
        with pytest.raises(ValueError, match=r"state\.safetensors holds no policy"):
            load_policy(tmp_path / "checkpoint" / "state.safetensors")
        assert (row["workers"], row["drawn"]) == (0, "not")
        assert np.abs(act(o)).max() > 0
        run.close()

    @pytest.mark.parametrize("stop_at", [1, 2, 3])  # between evaluations, at one, and in the last rollout
    def test_stopped_and_resumed_is_straight_through(
        self, stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = replace(TINY, evaluate_every=160)
        straight = train("truth", config, 3, None, tmp_path / "straight")
        advance = Run.advance

        def with_ctrl_c(run: Run) -> dict[str, float]:
            if run.rollout == stop_at - 1:
                signal.raise_signal(signal.SIGINT)
            return advance(run)

        monkeypatch.setattr(Run, "advance", with_ctrl_c)
        with pytest.raises(Interrupted, match=f"stopped after step {80 * stop_at} of 240"):
            train("truth", config, 3, None, tmp_path / "resumed")
        monkeypatch.setattr(Run, "advance", advance)
        resumed = train("truth", config, 3, None, tmp_path / "resumed")
        assert {name: resumed[name] for name in ("curve", "final", "returns", "random")} == {
            name: straight[name] for name in ("curve", "final", "returns", "random")
        }
        saved = [tmp_path / name / "checkpoint" / "state.safetensors" for name in ("straight", "resumed")]
        one, two = (read_state(path)[0] for path in saved)
        for group in ("policy", "optimizer"):
            assert one[group].keys() == two[group].keys()
            assert all(torch.equal(one[group][name], two[group][name]) for name in one[group])

    def test_stopped_while_the_last_policy_is_measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        straight = train("truth", TINY, 3, None, tmp_path / "straight")
        save_policy = Run.save_policy

        def with_ctrl_c(run: Run, path: Path) -> None:
            save_policy(run, path)
            raise KeyboardInterrupt

        monkeypatch.setattr(Run, "save_policy", with_ctrl_c)
        with pytest.raises(Interrupted, match="stopped at step 240 of 240"):
            train("truth", TINY, 3, None, tmp_path / "resumed")
        monkeypatch.setattr(Run, "save_policy", save_policy)
        resumed = train("truth", TINY, 3, None, tmp_path / "resumed")
        assert (resumed["returns"], resumed["curve"]) == (straight["returns"], straight["curve"])

    def test_killed_it_loses_the_work_since_the_last_saving_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever ends a process without a word, like an error here, comes between two evaluations."""
        config = replace(TINY, steps=320, evaluate_every=320)
        straight = train("truth", config, 3, None, tmp_path / "straight")
        advance, began = Run.advance, list[int]()

        def fail_at(rollout: int) -> None:
            def advancing(run: Run) -> dict[str, float]:
                began.append(run.rollout)
                if run.rollout == rollout:
                    raise SystemError("killed")
                return advance(run)

            monkeypatch.setattr(Run, "advance", advancing)

        for at, pause in ((0, 1e9), (2, 0.0)):
            monkeypatch.setattr(room, "SAVE_SECONDS", pause)
            fail_at(at)
            with pytest.raises(SystemError):
                train("truth", config, 3, None, tmp_path / "resumed")
        begin = Run.begin
        monkeypatch.setattr(Run, "begin", lambda run: pytest.fail("what was measured at first is kept"))
        fail_at(9)
        resumed = train("truth", config, 3, None, tmp_path / "resumed")
        monkeypatch.setattr(Run, "begin", begin)
        assert began == [0, 0, 1, 2, 2, 3]
        assert {name: resumed[name] for name in ("curve", "final", "returns", "random")} == {
            name: straight[name] for name in ("curve", "final", "returns", "random")
        }
        rows = [row for row in read_log(tmp_path / "resumed" / "metrics.jsonl") if "collect_seconds" in row]
        assert [row["step"] for row in rows] == [80, 160, 240, 320]  # no second is counted twice, none is missing

    def test_seeds_differ_and_repeat(self) -> None:
        def weights(seed: int) -> torch.Tensor:
            run = Run("truth", TINY, seed, None)
            run.begin()
            run.advance()
            run.close()
            return torch.cat([p.detach().flatten() for p in run.parameters])

        assert torch.equal(weights(0), weights(0))
        assert not torch.equal(weights(0), weights(1))

    @pytest.mark.parametrize(("representation", "epochs"), [("truth", 40), ("pixels", 10)])
    def test_passes_that_are_left_out(self, representation: str, epochs: int) -> None:
        run = Run(representation, replace(TINY, epochs=None), 0, None)
        run.close()
        assert run.ppo.n_epochs == epochs
        assert settings_of(representation, replace(TINY, epochs=None), 0, None)["epochs"] == epochs
        assert settings_of(representation, TINY, 0, None)["epochs"] == 2

    def test_the_size_of_pictures_is_a_setting_where_there_are_any(self) -> None:
        assert settings_of("pixels", TINY, 0, None)["size"] == 20
        assert "size" not in settings_of("truth", TINY, 0, None)

    def test_other_settings_are_refused(self, tmp_path: Path) -> None:
        claim(tmp_path, settings_of("truth", TINY, 0, None))
        with pytest.raises(ValueError, match="other settings: seed was 0 and is 1; choose another folder with --out"):
            train("truth", TINY, 1, None, tmp_path)

    def test_a_mistake_does_not_claim_the_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="max_step is 5"):
            train("truth", replace(TINY, max_step=5.0), 0, None, tmp_path)
        assert not (tmp_path / "run.json").exists()

    @pytest.mark.parametrize("representation", ["truth", "pixels"])
    def test_a_gpu_that_is_not_there(
        self, representation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(ValueError, match="device is 'cuda', but torch sees no GPU here"):
            Run(representation, replace(TINY, device="cuda"), 0, None)

    def test_a_loss_that_is_not_finite_stops_the_run(self, tmp_path: Path) -> None:
        run = Run("truth", TINY, 0, None)
        with torch.no_grad():
            run.ppo.policy.value_net.bias.fill_(float("nan"))
        with pytest.raises(NonFiniteLoss, match="no longer finite in rollout 1; lower the learning rate"):
            run.advance()
        run.close()
        run = Run("truth", replace(TINY, learning_rate=1e30), 0, None)
        with pytest.raises(NonFiniteLoss):
            [run.advance() for _ in range(3)]
        run.close()

    def test_from_pixels(self, tmp_path: Path) -> None:
        config = replace(TINY, steps=80, epochs=1, episodes=4)
        row = train("pixels", config, 0, None, tmp_path)
        assert len(row["curve"]) == 2
        act = load_policy(tmp_path / "policy.safetensors")
        assert act(np.zeros((2, 3, 20, 20), np.uint8)).shape == (2, 2)

    def test_who_draws_changes_no_number(self, tmp_path: Path) -> None:
        """Ends of episodes among them, whose value is added: a rollout has 20 steps."""
        found = []
        for draw in ("apart", "together"):
            row = train("pixels", replace(TINY, steps=80, draw=draw), 0, None, tmp_path / draw)
            assert row["drawn"] == draw
            groups, _ = read_state(tmp_path / draw / "policy.safetensors")
            found.append((row["curve"], row["returns"], torch.cat([x.flatten() for x in groups["policy"].values()])))
        (*apart, one), (*together, two) = found
        assert apart == together
        assert torch.equal(one, two)


@pytest.mark.parametrize("workers", [0, 2])
def test_scenes_drawn_at_once(workers: int) -> None:
    """Are what each environment draws, the last picture of an episode included."""
    painter = Painter(24)
    drawn = VecRead(Envs(partial(make_game, {"observation": "scene", "size": 24}), 3, workers), painter)
    alone = Envs(partial(make_game, {"size": 24}), 3, 0)
    for env in (drawn, alone):
        env.seed(4)
    assert drawn.observation_space == alone.observation_space
    assert np.array_equal(drawn.reset(), alone.reset())
    rng, ended = np.random.default_rng(0), 0
    for _ in range(21):
        action = rng.uniform(-0.3, 0.3, (3, 2)).astype(np.float32)
        (seen, *_, infos), (expected, *_, alone_infos) = drawn.step(action), alone.step(action)
        assert np.array_equal(seen, expected)
        for info, other in zip(infos, alone_infos, strict=True):
            assert info.keys() == other.keys()
            if "terminal_observation" in info:
                assert np.array_equal(info["terminal_observation"], other["terminal_observation"])
                ended += 1
    assert ended >= 3
    drawn.close()
    painter.close()
    alone.close()


def test_a_painter_wants_scenes() -> None:
    painter = Painter(24)
    with pytest.raises(ValueError, match="allowed are scenes"):
        VecRead(Envs(partial(make_game, {"observation": "state"}), 1, 0), painter)
    painter.close()


@pytest.mark.parametrize(
    ("draw", "device", "software", "representation", "here", "workers"),
    [
        (None, "cpu", True, "pixels", False, 9),
        ("together", "cpu", True, "pixels", True, 4),
        (None, "cuda", False, "pixels", True, 4),
        (None, "cuda", True, "pixels", True, 9),  # it was asked, and sent away
        ("apart", "cuda", False, "pixels", False, 9),
        ("together", "cpu", True, "truth", False, 9),
    ],
)
def test_who_draws(
    draw: Any,
    device: str,
    software: bool,
    representation: str,
    here: bool,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there are nine cores."""
    stepping: list[int] = []

    def envs(make: Any, count: int, workers: int) -> Any:
        stepping.append(workers)
        raise SystemError("enough is known")

    painted: list[Painter] = []

    def paint(size: int) -> Painter:
        painted.append(Painter(size))
        return painted[-1]

    monkeypatch.setattr(room, "Painter", paint)
    monkeypatch.setattr(Painter, "in_software", lambda _: software)
    monkeypatch.setattr(room, "training_device", lambda _: torch.device(device))
    monkeypatch.setattr(room, "available_cores", lambda: 9)
    monkeypatch.setattr(room, "Envs", envs)
    for asked in (None, 3):
        with pytest.raises(SystemError):
            Run(representation, replace(TINY, envs=16, draw=draw, workers=asked), 0, None)
    assert len(painted) == 2 * here
    assert stepping == [workers, 3]


def test_what_draws_says_its_name() -> None:
    with Soccer(SoccerConfig(size=24)) as world:
        name = world.drawn_by()
        painter = Painter(24)
        assert painter.in_software() == ("llvmpipe" in name or "softpipe" in name)
        painter.close()
    assert name
    with pytest.raises(ValueError, match="this world was closed"):
        world.drawn_by()


def test_a_model_is_known_by_its_weights_and_its_frame() -> None:
    config = ModelConfig(
        encoder="mlp", observation_shape=(4,), observation_dtype="float32", n=2, method="paper-gaussian"
    )
    model = Representation(build(config), {})
    before = fingerprint(model)
    assert fingerprint(Representation(model.model, {"data": "other"})) == before
    assert fingerprint(Representation(model.model, {"origin": [1.0, 0.0]})) != before
    next(model.model.parameters()).data += 1
    assert fingerprint(model) != before


def test_what_needs_a_model_says_so() -> None:
    with pytest.raises(ValueError, match="representation is 'interaction', which needs a trained model"):
        game_options("interaction", TINY, None)


@pytest.mark.slow
def test_it_learns_from_true_states() -> None:
    """Beats the random policy (-6.4) and doing nothing (-6.2) by a margin that a broken set-up misses.

    At some evaluation: a policy this young is not steady. Seeds 0 to 3 come to -3.5, -2.9, -1.8 and -2.5.
    """
    config = ControlConfig(steps=12_800, episodes=32, workers=0, device="cpu")
    run = Run("truth", config, 0, None)
    run.begin()
    returns = [run.evaluate().summary()["return"]]
    while run.rollout < config.rollouts:
        run.advance()
        if run.rollout % 5 == 0:
            returns.append(run.evaluate().summary()["return"])
    run.close()
    assert run.random["return"] < -6
    assert returns[0] < -6
    assert max(returns) > -4.5, returns
