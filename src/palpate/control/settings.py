"""Settings of a PPO run; light to import, because the command line shows them as flags."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

Representations = Literal["interaction", "paper", "vae", "transporter", "pixels", "truth"]
REPRESENTATIONS: tuple[Representations, ...] = get_args(Representations)
LEARNED: tuple[Representations, ...] = ("interaction", "paper", "vae", "transporter")  # those that need a model


@dataclass(frozen=True, kw_only=True)
class ControlConfig:
    """The game, PPO, and how it is measured; the same for all representations unless said otherwise."""

    steps: int = 100_000
    """Steps in the environments, all of them together; rounded up to whole rollouts."""
    envs: int = 16
    """Environments stepped at once."""
    workers: int | None = None
    """Processes they are in, 0 for none; when left out as many as there are cores for us, at most 4 where the main
    process draws. No number depends on it."""
    draw: Literal["apart", "together"] | None = None
    """Who draws pictures. apart: each process those of its own environments; together: the main one all of them, which
    is faster on a GPU. auto: together if the run has a GPU and OpenGL draws on one. No number depends on it."""
    rollout: int = 40
    """Steps of each environment between two updates. Each rollout begins with fresh episodes, so take a multiple of an
    episode's 20."""
    batch_size: int = 160
    epochs: int | None = None
    """Passes over a rollout; when left out 10 from pixels, 40 from all else."""
    learning_rate: float = 1e-3
    """Of Adam at the start; it falls linearly to 0."""
    gamma: float = 0.95
    """Discount."""
    gae_lambda: float = 0.9
    clip_range: float = 0.2
    entropy: float = 0.0
    """Weight of the policy's entropy."""
    spread: float = 1.0
    """Standard deviation of the actions at the start, as a share of the largest step."""
    hidden: int = 64
    """Units in each of the two layers of policy and of value."""
    max_step: float = 0.3
    """Largest displacement of the agent along an axis."""
    end_on_goal: bool = True
    """Let a goal end the episode."""
    ball: Literal["centre", "random"] = "centre"
    """Where the ball starts."""
    size: int = 100
    """Pixels on a side, for pixels; a learned representation has its own."""
    evaluate_every: int = 10_000
    """Steps between evaluations, rounded up to whole rollouts; a run is saved then, and every half minute."""
    episodes: int = 64
    """Episodes of an evaluation; their starts are the same ones always, and never trained on."""
    film: int = 4
    """Episodes of the film of the final policy; 0 for none."""
    device: Literal["cpu", "cuda"] | None = None
    """Where to encode, and where to train on pixels; auto: a GPU if there is one."""
    tensorboard: bool = False
    """Write TensorBoard curves too."""

    def __post_init__(self) -> None:
        def demand(holds: bool, name: str, allowed: str) -> None:
            if not holds:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed is {allowed}")

        for name in ("steps", "envs", "rollout", "hidden", "evaluate_every", "episodes"):
            demand(getattr(self, name) >= 1, name, "1 or more")
        demand(self.epochs is None or self.epochs >= 1, "epochs", "1 or more")
        demand(self.film >= 0, "film", "0 or more")
        demand(self.workers is None or self.workers >= 0, "workers", "0 or more")
        demand(self.batch_size >= 2, "batch_size", "2 or more")
        demand(
            (self.envs * self.rollout) % self.batch_size == 0,
            "batch_size",
            f"a divisor of {self.envs * self.rollout}, the steps of a rollout (envs x rollout)",
        )
        for name in ("learning_rate", "clip_range", "spread"):
            demand(0 < getattr(self, name) < math.inf, name, "more than 0, and finite")
        for name in ("gamma", "gae_lambda"):
            demand(0 <= getattr(self, name) <= 1, name, "0 to 1")
        demand(0 <= self.entropy < math.inf, "entropy", "0 or more, and finite")
        demand(self.device in (None, "cpu", "cuda"), "device", "'cpu' or 'cuda'")
        demand(self.draw in (None, "apart", "together"), "draw", "'apart' or 'together'")

    def epochs_of(self, representation: str) -> int:
        """Fewer passes from pixels: more of them move the policy too far from that of the rollout (docs/control.md)."""
        return self.epochs or (10 if representation == "pixels" else 40)

    @property
    def rollout_steps(self) -> int:
        """Of all environments."""
        return self.envs * self.rollout

    @property
    def rollouts(self) -> int:
        return -(-self.steps // self.rollout_steps)


# Fields that no number depends on.
NOT_A_SETTING = ("workers", "draw", "film", "device", "tensorboard")
