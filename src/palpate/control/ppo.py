"""PPO by stable-baselines3 in the soccer game: one run, from true states, pixels or a representation.

The run's seed and a rollout's number determine all that is random in the rollout, and a rollout begins with fresh
episodes. So a checkpoint holds only weights and moments, and a resumed run equals one that was never stopped, bit for
bit on the CPU.
Legend: e episodes.
"""

import math
from collections.abc import Callable
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from torch import Tensor

import palpate.envs  # noqa: F401 - makes the ids known
from palpate.checkpoint import read_checkpoint, require_alike, used, write_state
from palpate.config import TrainingConfig
from palpate.control import settings
from palpate.control.wrapping import wrap
from palpate.encoders import SmallCNN
from palpate.interrupts import interrupt_between_steps
from palpate.optimizers import expected_moments
from palpate.representation import Representation
from palpate.training.loop import Interrupted, training_device

HELD_OUT_SEED, TRAINING_SEEDS = 10**6, 2**30  # episodes of training have larger seeds, so no start is in both
RANDOM_SEED = 0  # of the random policy

Watch = Callable[[int, dict[str, float]], None]
Act = Callable[[Any], np.ndarray]


class Standardised(BaseFeaturesExtractor):
    """Standardises vectors by the mean and standard deviation of what a random policy observes."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, space.shape[0])
        self.register_buffer("mean", torch.zeros(space.shape))
        self.register_buffer("deviation", torch.ones(space.shape))

    def measure(self, observations: np.ndarray) -> None:
        seen = torch.from_numpy(observations).to(self.mean)
        self.mean.copy_(seen.mean(0))
        # A constant number carries no information and must not be amplified.
        deviation = seen.std(0)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))

    def forward(self, observations: Tensor) -> Tensor:
        return (observations - self.mean) / self.deviation


class Convolutions(BaseFeaturesExtractor):
    """The small CNN of our representations, trained with the policy."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        cnn = SmallCNN(space.shape)  # type: ignore[arg-type]
        super().__init__(space, cnn.width)
        self.cnn = cnn

    def forward(self, observations: Tensor) -> Tensor:
        return self.cnn(observations)


def play(env: VecEnv, act: Act, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns [e] and goals [e] of episodes with the starts `seed`, `seed + 1`, ...; a multiple of the environments."""
    returns, goals = np.zeros(episodes), np.zeros(episodes, bool)
    for first in range(0, episodes, env.num_envs):
        env.seed(seed + first)
        o, running = env.reset(), np.ones(env.num_envs, bool)
        while running.any():
            o, reward, done, infos = env.step(act(o))
            live = np.flatnonzero(running)
            returns[first + live] += reward[live]
            goals[first + live] |= [infos[i]["goal"] for i in live]
            running &= ~done
    return returns, goals


@final
class Run:
    """The environments, the policy and the progress of its training.

    `size` is the pictures' size for a policy on pixels. `device` is where to encode and to train on pixels.
    """

    def __init__(
        self,
        representation: str,
        seed: int,
        steps: int,
        *,
        model: Representation | None = None,
        size: int = 100,
        device: str | None = None,
    ) -> None:
        self.seed, self.steps = seed, settings.whole_rollouts(steps)
        self.rollout = 0
        self.random: dict[str, float] = {}
        self.curve: list[list[float]] = []  # step, return, share of episodes with a goal
        trained_on = training_device(TrainingConfig(device=device))  # type: ignore[arg-type]
        options: dict[str, Any] = {
            "observation": "state" if representation == "truth" else "picture",
            "size": size if model is None else model.config.observation_shape[-1],
        }
        make = partial(gymnasium.make, settings.GAME, disable_env_checker=True, **options)
        env: VecEnv = DummyVecEnv([make] * settings.ENVS)
        assert isinstance(env.action_space, gymnasium.spaces.Box)
        self.actions = env.action_space
        self.ppo = PPO(
            ActorCriticPolicy,
            env if model is None else wrap(env, model, device=device),
            n_epochs=settings.epochs(representation),
            policy_kwargs={
                "log_std_init": math.log(self.actions.high[0]),
                "features_extractor_class": Convolutions if representation == "pixels" else Standardised,
            },
            # A few thousand weights train faster on the CPU.
            device=trained_on if representation == "pixels" else "cpu",
            seed=seed,
            **settings.PPO_SETTINGS,
        )
        self.ppo.set_logger(Logger(None, []))
        stepped = self.ppo.get_env()
        assert stepped is not None
        self.env: VecEnv = stepped  # pictures have their channels first here

    @property
    def step(self) -> int:
        return self.rollout * settings.rollout_steps()

    def begin(self) -> None:
        """Measure the random policy, the scale of the observations, and the untrained policy."""
        rng, shape = np.random.default_rng(RANDOM_SEED), (self.env.num_envs, *self.actions.shape)
        seen: list[np.ndarray] = []
        extractor = self.ppo.policy.features_extractor

        def act(o: np.ndarray) -> np.ndarray:
            if isinstance(extractor, Standardised):
                seen.append(o)
            return rng.uniform(self.actions.low, self.actions.high, shape).astype(np.float32)

        self.random = _summary(*play(self.env, act, settings.EPISODES, HELD_OUT_SEED))
        if isinstance(extractor, Standardised):
            extractor.measure(np.concatenate(seen))
        self.evaluate()

    def advance(self) -> None:
        """One rollout and its update."""
        state = np.random.SeedSequence([self.seed, self.rollout]).generate_state(3)
        torch.manual_seed(int(state[0]))
        np.random.seed(int(state[1]))  # noqa: NPY002 - stable-baselines3 shuffles by it
        self.env.seed(TRAINING_SEEDS + int(state[2]) % TRAINING_SEEDS)
        self.ppo.set_env(self.env, force_reset=True)
        rate = settings.PPO_SETTINGS["learning_rate"] * (1 - self.step / self.steps)
        self.ppo.lr_schedule = lambda _: rate
        self.ppo.learn(settings.rollout_steps(), log_interval=10**9, reset_num_timesteps=False)
        self.rollout += 1

    def evaluate(self) -> dict[str, float]:
        """Play the policy without its noise on the held-out starts, and add a point to the curve."""
        act: Act = lambda o: self.ppo.predict(o, deterministic=True)[0]  # noqa: E731
        found = _summary(*play(self.env, act, settings.EPISODES, HELD_OUT_SEED))
        self.curve.append([self.step, *found.values()])
        return found

    def save(self, path: Path) -> None:
        policy = self.ppo.policy
        moments = {
            f"{i}.{name}": value
            for i, each in policy.optimizer.state_dict()["state"].items()
            for name, value in each.items()
        }
        facts = {"rollout": self.rollout, "random": self.random, "curve": self.curve}
        write_state(path, {"policy": policy.state_dict(), "moments": moments}, facts)

    def restore(self, path: Path) -> None:
        groups, facts = read_checkpoint(path)
        policy, most = self.ppo.policy, self.steps // settings.rollout_steps()
        with used(path):
            rollout, random, curve, moments = (
                index(facts["rollout"]),
                facts["random"],
                facts["curve"],
                groups["moments"],
            )
            if not 0 <= rollout <= most or bool(rollout) != bool(moments):
                raise TypeError(f"rollout is {rollout} of {most}, with {len(moments)} moments of the optimiser")
            if random.keys() != {"return", "goals"} or not curve or any(len(point) != 3 for point in curve):
                raise TypeError(f"random is {random} and curve is {curve}")
            expected = {"policy": policy.state_dict(), "moments": expected_moments([policy.optimizer], moments)}
            require_alike(groups, expected)
            policy.load_state_dict(groups["policy"])
            optimizer = policy.optimizer.state_dict()
            for key, value in moments.items():
                number, name = key.split(".")
                optimizer["state"].setdefault(int(number), {})[name] = value
            policy.optimizer.load_state_dict(optimizer)
        self.rollout, self.random, self.curve = rollout, random, curve
        self.ppo.num_timesteps = self.step


def train(run: Run, folder: Path, watch: Watch | None = None) -> dict[str, Any]:
    """Train a policy, with checkpoints in `folder`; an interrupted run is continued. Returns measurements for JSON."""
    path = folder / "checkpoint" / "state.safetensors"
    every = max(1, min(run.steps // settings.EVALUATIONS, settings.MOST_BETWEEN))
    with interrupt_between_steps() as interrupted:
        if path.exists():
            run.restore(path)
        else:
            run.begin()
            run.save(path)
        while run.step < run.steps and not interrupted():
            before = run.step
            run.advance()
            readings: dict[str, float] = {}
            if run.step // every > before // every or run.step == run.steps:
                readings = run.evaluate()
                run.save(path)
            if watch:
                watch(run.step, readings)
        if interrupted():
            run.save(path)
            raise Interrupted(f"stopped after step {run.step} of {run.steps}")
    _, last, goals = run.curve[-1]
    return {"curve": run.curve, "final": {"return": last, "goals": goals}, "random": run.random}


def _summary(returns: np.ndarray, goals: np.ndarray) -> dict[str, float]:
    return {"return": float(f"{returns.mean():.5g}"), "goals": float(f"{goals.mean():.5g}")}
