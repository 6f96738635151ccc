"""Constants of a PPO run, chosen on true states (docs/history/control.md). Light to import."""

from typing import Any

LEARNED = ("interaction", "paper", "vae", "transporter")  # inputs of a policy that need a trained model
REPRESENTATIONS = (*LEARNED, "pixels", "truth")

GAME = "palpate/SoccerGoal-v0"
ENVS = 16
PPO_SETTINGS: dict[str, Any] = {
    "n_steps": 40,  # of each environment between two updates; episodes have 20
    "batch_size": 160,
    "learning_rate": 1e-3,  # of Adam at the start; it falls linearly to 0
    "gamma": 0.95,
    "gae_lambda": 0.9,
}
EPOCHS = 40  # passes over a rollout
EPOCHS_FROM_PIXELS = 10  # more passes move the policy too far from the one that made the rollout
EPISODES = 64  # of an evaluation, a multiple of ENVS; the starts are always the same and never trained on
EVALUATIONS, MOST_BETWEEN = 12, 20_000  # evaluations of a run, and the most steps between two of them


def epochs(representation: str) -> int:
    return EPOCHS_FROM_PIXELS if representation == "pixels" else EPOCHS


def rollout_steps() -> int:
    """Steps of one rollout, all environments together."""
    return ENVS * int(PPO_SETTINGS["n_steps"])


def whole_rollouts(steps: int) -> int:
    """Steps rounded up to whole rollouts."""
    return -(-steps // rollout_steps()) * rollout_steps()
