"""A world of the contract that `blocks.RowWorld` states, in a module that spawned workers can import."""

import os
import signal
import time
from typing import NamedTuple

import numpy as np

THIRD, FIRST = "palpate/Soccer-v0", "palpate/SoccerFirstPerson-v0"


class Rows(NamedTuple):
    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    agent: np.ndarray
    object: np.ndarray
    agent_next: np.ndarray
    object_next: np.ndarray
    contact: np.ndarray
    dropped: dict[str, int]


class Ball:
    """Pictures are a function of the state; every tenth row costs a dropped triple."""

    def __init__(self, views: int, size: int = 8, contact_share: float | None = 0.5, trouble: str = "") -> None:
        if contact_share is not None and not 0 <= contact_share <= 1:
            raise ValueError(f"contact_share is {contact_share}; give a share from 0 to 1, or None for natural")
        self.views, self.size = views, size
        self.pause = float(os.environ.get("BALL_PAUSE", "0"))  # seconds a row; not a setting, for rows are the same
        self.kind, _, row = trouble.partition("@")
        self.row = int(row or -1)

    def rows(self, seed: int, start: int, stop: int) -> Rows:
        time.sleep(self.pause * (stop - start))
        if start <= self.row < stop:
            self.fail()
        states = np.stack([np.random.default_rng((seed, i)).random((4, 2), np.float32) for i in range(start, stop)], 1)
        agent, thing, agent_next, thing_next = states
        before, after = (self.picture(*pair) for pair in ((agent, thing), (agent_next, thing_next)))
        contact = agent[:, 0] > 0.5
        dropped = {"grazing": sum(i % 10 == 0 for i in range(start, stop))}
        return Rows(before, agent_next - agent, after, agent, thing, agent_next, thing_next, contact, dropped)

    def picture(self, agent: np.ndarray, thing: np.ndarray) -> np.ndarray:
        shades = (np.stack((agent[:, 0], agent[:, 1], thing[:, 0]), 1) * 255).astype(np.uint8)  # [b, 3]
        texture = np.arange(self.size**2, dtype=np.uint8).reshape(self.size, self.size, 1)
        pictures = shades[:, None, None] + texture  # [b, h, w, 3]
        if self.views == 1:
            return pictures
        return pictures[:, None] + np.arange(self.views, dtype=np.uint8)[:, None, None, None]

    def fail(self) -> None:
        if self.kind == "raise":
            raise ArithmeticError("the ball is lost")
        if self.kind == "mistake":
            raise OSError("no library to draw with")
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        pass


def world(env_id: str, **options: object) -> Ball:
    return Ball({THIRD: 1, FIRST: 4}[env_id], **options)


def install() -> None:
    """Stand in for the real worlds, in this process; workers are sent this module's `world` by name."""
    from palpate.envs import registration

    registration.world = world
