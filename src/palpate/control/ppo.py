"""PPO by stable-baselines3 in the soccer game: one run, from pixels, true states or a representation.

All that is random in a rollout and its update follows from the run's seed and the rollout's number, and a rollout
begins with fresh episodes. A run that is stopped between two rollouts therefore goes on as if nothing had been, bit for
bit on the CPU; nothing of the environments has to be kept.
Legend: b environments, e episodes.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv

from palpate.checkpoint import read_state, used, write_state
from palpate.config import TrainingConfig
from palpate.control.claims import claim, demand_own, settings_of
from palpate.control.film import film
from palpate.control.game import Painter, game_options, make_game
from palpate.control.policy import Act, Standardised, policy_arguments
from palpate.control.settings import ControlConfig
from palpate.control.vec import Envs, VecRead
from palpate.control.wrapping import wrap
from palpate.interrupts import interrupt_between_steps
from palpate.representation import Representation
from palpate.runlog import RunLog, read_log
from palpate.training.loop import Interrupted, training_device
from palpate.training.notes import NonFiniteLoss
from palpate.workers import available_cores

HELD_OUT_SEED, TRAINING_SEEDS = 10**6, 2**30  # episodes of training have larger seeds, so no start is in both
RANDOM_SEED = 0  # of the random policy
MOST_STEPPING = 4  # workers that do not draw: with more of them, communication costs more than it saves
SAVE_SECONDS = 30.0  # between checkpoints, so that a killed process loses little work
LOSSES = {"train/value_loss": "value_loss", "train/approx_kl": "kl", "train/std": "spread"}

Watch = Callable[[int, dict[str, float]], None]


class Played(NamedTuple):
    """Some episodes."""

    returns: np.ndarray  # [e]
    goals: np.ndarray  # [e] bool: the ball lay in the goal after some step

    def summary(self) -> dict[str, float]:
        return {"return": float(self.returns.mean()), "goals": float(self.goals.mean())}


def play(env: VecEnv, act: Act, episodes: int, seed: int, see: Callable[[Any], object] | None = None) -> Played:
    """Episodes with the starts `seed`, `seed + 1`, ..., the same however many are played at once."""
    returns, goals = np.zeros(episodes), np.zeros(episodes, bool)
    for first in range(0, episodes, env.num_envs):
        count = min(env.num_envs, episodes - first)
        env.seed(seed + first)
        o, running = env.reset(), np.arange(env.num_envs) < count
        while running.any():
            if see:
                see(o)
            o, reward, done, infos = env.step(act(o))
            live = np.flatnonzero(running)
            returns[first + live] += reward[live]
            goals[first + live] |= [infos[i]["goal"] for i in live]
            running &= ~done
    return Played(returns, goals)


@final
class Run:
    """The environments, the policy, and the progress of its training."""

    def __init__(self, representation: str, config: ControlConfig, seed: int, model: Representation | None) -> None:
        self.representation, self.config, self.seed, self.model = representation, config, seed, model
        self.options = game_options(representation, config, model)
        device = training_device(TrainingConfig(device=config.device))
        painter = self.painter = self._painter(device)
        cores = available_cores() if painter is None else min(available_cores(), MOST_STEPPING)
        seen = self.options if painter is None else self.options | {"observation": "scene"}
        self.workers = min(cores if config.workers is None else config.workers, config.envs)
        self.envs = Envs(partial(make_game, seen), config.envs, self.workers)
        try:
            env: VecEnv = self.envs if painter is None else VecRead(self.envs, painter)
            env = env if model is None else wrap(env, model, device=config.device)
            self.ppo = PPO(
                ActorCriticPolicy,
                env,
                n_steps=config.rollout,
                batch_size=config.batch_size,
                n_epochs=config.epochs_of(representation),
                learning_rate=config.learning_rate,
                gamma=config.gamma,
                gae_lambda=config.gae_lambda,
                clip_range=config.clip_range,
                ent_coef=config.entropy,
                policy_kwargs=policy_arguments(representation, config),
                # A few thousand weights train faster on the CPU.
                device=device if representation == "pixels" else "cpu",
                seed=seed,
            )
        except BaseException:
            self.close()
            raise
        self.ppo.set_logger(Logger(None, []))
        stepped = self.ppo.get_env()
        assert stepped is not None
        self.env: VecEnv = stepped  # pictures have their channels first here
        self.parameters = list(self.ppo.policy.parameters())
        self.rollout = 0
        self.random: dict[str, float] = {}

    def _painter(self, device: torch.device) -> Painter | None:
        """Draws for all environments in this process; None if each worker draws its own."""
        draw = self.config.draw
        if self.representation == "truth" or draw == "apart" or (draw is None and device.type != "cuda"):
            return None
        painter = Painter(self.options["size"])
        if draw is None and painter.in_software():
            painter.close()
            return None
        return painter

    def close(self) -> None:
        try:
            self.envs.close()
        finally:
            if self.painter is not None:
                self.painter.close()

    @property
    def step(self) -> int:
        return self.rollout * self.config.rollout_steps

    def begin(self) -> None:
        """Play at random: measures the random policy's return and the scale of the observations."""
        seen: list[np.ndarray] = []
        rng, box = np.random.default_rng(RANDOM_SEED), self.env.action_space
        assert isinstance(box, gymnasium.spaces.Box)
        act = lambda o: rng.uniform(box.low, box.high, (self.env.num_envs, *box.shape)).astype(np.float32)  # noqa: E731
        extractor = self.ppo.policy.features_extractor
        see = seen.append if isinstance(extractor, Standardised) else None
        self.random = play(self.env, act, self.config.episodes, HELD_OUT_SEED, see).summary()
        if isinstance(extractor, Standardised):
            extractor.measure(np.concatenate(seen))

    def advance(self) -> dict[str, float]:
        """One rollout and its update; returns losses and seconds."""
        state = np.random.SeedSequence([self.seed, self.rollout]).generate_state(3)
        torch.manual_seed(int(state[0]))
        np.random.seed(int(state[1]))  # noqa: NPY002 - stable-baselines3 shuffles by it
        self.env.seed(TRAINING_SEEDS + int(state[2]) % TRAINING_SEEDS)
        self.ppo.set_env(self.env, force_reset=True)
        rate = self.config.learning_rate * (1 - self.rollout / self.config.rollouts)
        self.ppo.lr_schedule = lambda _: rate
        clock = Clock()
        try:
            self.ppo.learn(self.config.rollout_steps, clock, log_interval=10**9, reset_num_timesteps=False)
        except ValueError as error:  # torch refuses a Gaussian around nan
            self._demand_finite(error)
            raise
        self._demand_finite()
        self.rollout += 1
        values = self.ppo.logger.name_to_value
        readings = {ours: float(values[theirs]) for theirs, ours in LOSSES.items()}
        self.ppo.logger.dump()
        return readings | clock.seconds()

    def _demand_finite(self, error: Exception | None = None) -> None:
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise NonFiniteLoss(
                f"the policy is no longer finite in rollout {self.rollout + 1}; lower the learning rate"
            ) from error

    def act(self, o: Any) -> np.ndarray:
        """The policy without its noise."""
        return self.ppo.predict(o, deterministic=True)[0]

    def evaluate(self) -> Played:
        """The policy without its noise, on the held-out starts."""
        return play(self.env, self.act, self.config.episodes, HELD_OUT_SEED)

    def save(self, folder: Path) -> None:
        moments = {
            f"{i}.{name}": value
            for i, parameter in enumerate(self.parameters)
            for name, value in self.ppo.policy.optimizer.state[parameter].items()
        }
        groups = {"policy": self.ppo.policy.state_dict(), "optimizer": moments}
        facts = {"rollout": self.rollout, "random": self.random}
        write_state(folder / "checkpoint" / "state.safetensors", groups, facts)

    def restore(self, folder: Path) -> bool:
        """Returns whether there was a checkpoint."""
        path = folder / "checkpoint" / "state.safetensors"
        if not path.exists():
            return False
        groups, facts = read_state(path)
        with used(path):
            self.ppo.policy.load_state_dict(groups["policy"])
            for key, value in groups["optimizer"].items():
                index, name = key.split(".")
                parameter = self.parameters[int(index)]
                self.ppo.policy.optimizer.state[parameter][name] = value.to(parameter.device if value.dim() else "cpu")
            self.rollout, self.random = int(facts["rollout"]), facts["random"]
        self.ppo.num_timesteps = self.step
        return True

    def save_policy(self, path: Path) -> None:
        space = self.ppo.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        facts = {
            "representation": self.representation,
            "settings": asdict(self.config),
            "observation": {"shape": list(space.shape), "dtype": str(space.dtype)},
        }
        write_state(path, {"policy": self.ppo.policy.state_dict()}, facts)


@final
class Clock(BaseCallback):
    """Seconds of a rollout and of its update."""

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()

    def _on_rollout_end(self) -> None:
        self.collected = time.monotonic()

    def _on_step(self) -> bool:
        return True

    def seconds(self) -> dict[str, float]:
        return {"collect_seconds": self.collected - self.began, "update_seconds": time.monotonic() - self.collected}


def train(
    representation: str,
    config: ControlConfig,
    seed: int,
    model: Representation | None,
    folder: Path,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Train one policy in `folder`; an interrupted run is continued. Returns the measurements, ready for JSON.

    The folder holds `run.json`, `metrics.jsonl`, `checkpoint/` and at the end `policy.safetensors` and `film.gif`.
    """
    settings = settings_of(representation, config, seed, model)
    demand_own(folder, settings)
    run = Run(representation, config, seed, model)
    try:
        claim(folder, settings)  # after all settings are validated
        resumed = run.restore(folder)
        log = RunLog(folder, run.step if resumed else -1, tensorboard=config.tensorboard)
        try:
            _loop(run, folder, log, watch, fresh=not resumed)
        finally:
            log.close()
        run.save_policy(folder / "policy.safetensors")
        if config.film:
            film(folder / "film.gif", _filmed(run), run.act, HELD_OUT_SEED, config.film)
        last = run.evaluate()
    except KeyboardInterrupt:  # outside of the loop, which handles it between two rollouts
        raise Interrupted(f"stopped at step {run.step} of {config.rollouts * config.rollout_steps}") from None
    finally:
        run.close()
    rows = read_log(folder / "metrics.jsonl")
    timed = [row for row in rows if "collect_seconds" in row]
    seconds = {name: sum(row[name] for row in timed) for name in ("collect_seconds", "update_seconds")}
    done = config.rollouts * config.rollout_steps
    return {
        "curve": [[row["step"], _short(row["return"]), _short(row["goals"])] for row in rows if "return" in row],
        "final": _shorts(last.summary()),
        "returns": [_short(value) for value in last.returns],
        "random": _shorts(run.random),
        "collect_steps_per_second": _short(done / seconds["collect_seconds"]),
        "steps_per_second": _short(done / sum(seconds.values())),
        "workers": run.workers,
        "drawn": "not" if representation == "truth" else "apart" if run.painter is None else "together",
        "settings": settings,
    }


def _loop(run: Run, folder: Path, log: RunLog, watch: Watch | None, *, fresh: bool) -> None:
    config, spent = run.config, dict.fromkeys(("collect_seconds", "update_seconds"), 0.0)

    def note(readings: dict[str, float]) -> None:
        log.write(run.step, readings)
        if watch:
            watch(run.step, readings)

    with interrupt_between_steps() as interrupted:
        if fresh:
            run.begin()
            note(run.evaluate().summary())
            run.save(folder)
        saved = time.monotonic()
        while run.rollout < config.rollouts and not interrupted():
            before, readings = run.step, run.advance()
            spent = {name: value + readings[name] for name, value in spent.items()}
            last = run.rollout == config.rollouts
            measured = last or run.step // config.evaluate_every > before // config.evaluate_every
            if measured:
                note(readings | spent | run.evaluate().summary())
            elif watch:
                watch(run.step, readings)
            if measured or time.monotonic() - saved > SAVE_SECONDS:
                if not measured:
                    log.write(run.step, spent)
                run.save(folder)  # after the log: its rows behind the checkpoint are discarded
                spent, saved = dict.fromkeys(spent, 0.0), time.monotonic()
        if run.rollout < config.rollouts:
            log.write(run.step, spent)
            run.save(folder)
        if run.rollout < config.rollouts or interrupted():  # also in the last rollout: no other run may start
            raise Interrupted(f"stopped after step {run.step} of {config.rollouts * config.rollout_steps}")


def _filmed(run: Run) -> gymnasium.Env[np.ndarray, np.ndarray]:
    env = make_game(run.options)
    return env if run.model is None else wrap(env, run.model, device=run.config.device)


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _shorts(values: Mapping[str, float]) -> dict[str, float]:
    return {name: _short(value) for name, value in values.items()}
