"""What the worlds that MuJoCo simulates have in common: random triples one by one, by seed and row, and pictures.

Legend: b batch, k candidates, v views, h and w picture height and width.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

CANDIDATES = 64


class Simulated(ABC):
    """A world of scenes: `states` are random triples, `step` moves the agent of one scene, `observe` draws.

    Triple i depends on the seed and on i, not on the cameras. So workers may share the rows of a set in any way.
    """

    n = 2  # numbers of an action
    agent_range: ClassVar[tuple[float, float]]  # of the agent's position, both axes
    faults: ClassVar[
        tuple[str, ...]
    ]  # why a simulated triple is dropped, besides "missed": the contact is not as wanted

    def __init__(self, config: Any, physics: Any, cameras: tuple[str, ...]) -> None:
        self.config, self.cameras, self._physics, self._closed = config, cameras, physics, False

    def close(self) -> None:
        """No more pictures are drawn; states can still be computed."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self, rng: np.random.Generator) -> Any:
        """A random scene, b = 1."""
        scenes, _ = self._propose(rng)
        return type(scenes)(*(x[:1] for x in scenes))

    def step(self, scene: Any, displacement: np.ndarray) -> Any:
        """Move the agent of one scene (b = 1) by `displacement` [2], stopped at the border axis by axis."""
        target = np.clip(scene.agent[0] + displacement, *self.agent_range).astype(np.float32)
        return self._physics.step(*(x[0] for x in scene), target)

    def displacement(self, scene: Any, outcome: Any) -> np.ndarray:
        """The action [n] that the agent of one scene has carried out."""
        moved: np.ndarray = outcome.agent - scene.agent[0]
        return moved

    def observe(self, scene: Any) -> np.ndarray:
        """Pictures of the world's cameras: [b, h, w, 3] of one, [b, v, h, w, 3] of several, uint8."""
        pictures = self._draw(scene, self.cameras, self.config.size, self.config.size)
        return pictures if len(self.cameras) > 1 else pictures[:, 0]

    def found(self, seed: int, start: int, stop: int) -> tuple[list[Any], list[Any], dict[str, int]]:
        """Scenes and outcomes of triples `start` to `stop`, and the number of dropped proposals by reason."""
        if seed < 0 or not 0 <= start <= stop:
            raise ValueError(f"rows {start} to {stop} of seed {seed} do not exist; allowed are 0 <= start <= stop")
        dropped = dict.fromkeys((*self.faults, "missed"), 0)
        pairs = [self._triple(seed, i, dropped) for i in range(start, stop)]
        return [before for before, _ in pairs], [outcome for _, outcome in pairs], dropped

    def _triple(self, seed: int, row: int, dropped: dict[str, int]) -> tuple[Any, Any]:
        rng = np.random.default_rng(np.random.SeedSequence([seed, row]))
        share, coin = self.config.contact_share, rng.random()
        while True:
            scenes, target = self._propose(rng)
            wanted = np.arange(len(target))
            if share is not None:
                wanted = np.flatnonzero(self.touches(scenes, target) == (coin < share))
            for i in wanted:
                scene = type(scenes)(*(x[i] for x in scenes))
                outcome = self._physics.step(*scene, target[i])
                missed = share is not None and np.any(outcome.contact) != (coin < share)
                if fault := self._fault(outcome) or ("missed" if missed else ""):
                    dropped[fault] += 1
                else:
                    return scene, outcome

    def _paths(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Starts and ends [k, 2] of the agent's random moves."""
        agent = rng.uniform(*self.agent_range, (CANDIDATES, 2)).astype(np.float32)
        near, far = (np.clip(agent + sign * self.config.stride, *self.agent_range) for sign in (-1, 1))
        return agent, rng.uniform(near, far).astype(np.float32)

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("this world was closed; make another to draw more pictures")

    @abstractmethod
    def touches(self, scene: Any, target: np.ndarray) -> np.ndarray:
        """Whether the bodies meet on the agent's path to `target` [b, 2], by geometry alone: [b] bool."""

    @abstractmethod
    def _propose(self, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        """Random scenes with bodies apart, and targets of the agent [k, 2]; k varies."""

    @abstractmethod
    def _fault(self, outcome: Any) -> str:
        """Why an outcome is dropped; empty if it is not."""

    @abstractmethod
    def _draw(self, scene: Any, cameras: tuple[Any, ...], width: int, height: int) -> np.ndarray:
        """Pictures [b, v, h, w, 3] uint8."""


def stacked(states: list[Any], name: str, *shape: int) -> np.ndarray:
    """One entry of all states, [b, *shape] float32."""
    return np.array([getattr(state, name) for state in states], np.float32).reshape(-1, *shape)
