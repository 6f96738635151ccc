"""Worlds to play in, with one interface: streamed worlds, worlds that are simulated step by step, and your own.

Legend: n dimension of the actions, k objects.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palpate.data.stream import SteerableWorld
from palpate.data.transitions import Batch
from palpate.envs.registration import DRAWN, FIELDS, KINDS, world
from palpate.envs.simulator.world import Simulated
from palpate.envs.soccer.config import ABOVE_RANGE
from palpate.envs.table.scene import homography
from palpate.figures import UNIT_SQUARE
from palpate.projection import Homography
from palpate.viewer.marks import as_picture

Array = NDArray[Any]
ABOVE_PIXELS = 320
OWN_SIDE = 320  # pixels of the empty plane on which a world of unknown projection is drawn


OURS = [env for ids, *_ in KINDS for env in ids]
OWN = "view(folder, world=MyWorld()) plays a world of your own, with the protocol palpate.data.stream.SteerableWorld"
PLAYED = f"these worlds can be played: {', '.join(OURS)}; {OWN}"


class Moved(NamedTuple):
    """A triple, and the true contacts [k] where they are known."""

    triple: Batch
    contact: Array | None


class Ground(Protocol):
    """One scene of a world, whose agent can be moved."""

    name: str

    def reset(self) -> None: ...

    def known(self, count: int) -> dict[str, Tensor] | None:
        """Observations of random scenes and the agents' true positions, to align a model; None if unknown."""

    def observation(self) -> Tensor:
        """[1, ...] in the layout of `Batch`."""

    def agent(self) -> Array | None:
        """The true position [n]."""

    def heading(self) -> float | None:
        """The true heading in radians, of an agent that turns."""

    def objects(self) -> Array | None:
        """The true positions [k, n]."""

    def picture(self) -> tuple[Array, Homography | None]:
        """A picture [h, w, 3] to drag in, and the projection of the plane on it, if it is known."""

    def move(self, action: Array) -> Moved: ...


class Streamed:
    """One scene of a steerable world, ours or a user's."""

    def __init__(self, made: SteerableWorld, name: str, seed: int = 0) -> None:
        if not isinstance(made, SteerableWorld):
            raise ValueError(f"{name} cannot be played: it needs reset, render, moves and step; {OWN}")
        self.name, self._world = name, made
        self._generator = torch.Generator(made.device).manual_seed(seed)
        self._scene: Any = None
        self.reset()
        with self._naming("moves"):
            possible = made.moves(self._scene, 1, self._generator)[:, 0]
        self._after(self._stepped(possible))  # refuses scenes that cannot be continued

    @contextmanager
    def _naming(self, part: str) -> Iterator[None]:
        """Name the world and the method in errors: a user's own code may raise any."""
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{self.name}: {part} raised {type(error).__name__}: {reason}") from error

    def reset(self) -> None:
        with self._naming("reset"):
            self._scene = self._world.reset(1, self._generator)
        with self._naming("render"):
            self._seen = self._world.render(self._scene).cpu()

    def known(self, count: int) -> dict[str, Tensor] | None:
        with self._naming("reset"):
            scenes = self._world.reset(count, self._generator)
        if not hasattr(scenes, "agent"):
            return None
        with self._naming("render"):
            return {"observation": self._world.render(scenes).cpu(), "agent": scenes.agent.cpu()}

    def observation(self) -> Tensor:
        return self._seen

    def agent(self) -> Array | None:
        return self._scene.agent[0].cpu().numpy() if hasattr(self._scene, "agent") else None

    def heading(self) -> float | None:
        return float(self._scene.heading[0]) if hasattr(self._scene, "heading") else None

    def objects(self) -> Array | None:
        if not hasattr(self._scene, "object"):
            return None
        found: Array = self._scene.object[0].cpu().numpy()
        return found.reshape(-1, found.shape[-1])

    def picture(self) -> tuple[Array, Homography | None]:
        o = self.observation()[0]
        if self.name in DRAWN and o.dim() == 3:
            return as_picture(o), Homography.of_extent(UNIT_SQUARE, o.shape[-1], o.shape[-2])
        return np.full((OWN_SIDE, OWN_SIDE, 3), 60, np.uint8), None

    def move(self, action: Array) -> Moved:
        states = self._stepped(torch.as_tensor(action, dtype=torch.float32, device=self._world.device)[None])
        with self._naming("render_pair"):
            o, self._seen = (x.cpu() for x in self._world.render_pair(states))
        self._scene = self._after(states)
        contact = getattr(states, "contact", None)
        known = None if contact is None else np.atleast_1d(contact[0].cpu().numpy())
        return Moved(Batch(o, states.displacement.cpu(), self._seen), known)

    def _stepped(self, action: Tensor) -> Any:
        with self._naming("step"):
            return self._world.step(self._scene, action, self._generator)

    def _after(self, states: Any) -> Any:
        """The scene in which a triple ends. Each of its fields NAME is NAME_next in the triple's states."""
        scene = self._scene
        names = getattr(scene, "_fields", None) or (
            [field.name for field in fields(scene)] if is_dataclass(scene) else []
        )
        if not names:
            raise ValueError(
                f"{self.name} cannot be played: its reset gives a {type(scene).__name__}, whose parts have no names; "
                "give a named tuple or a dataclass"
            )
        missing = [name for name in names if not hasattr(states, f"{name}_next")]
        if missing:
            raise ValueError(
                f"{self.name} cannot be played: its reset gives {', '.join(names)}, but its step gives no "
                f"{missing[0]}_next; each NAME needs a NAME_next"
            )
        return type(scene)(**{name: getattr(states, f"{name}_next") for name in names})


class Stepped:
    """One scene of a world that MuJoCo simulates. Call it from one thread only, because OpenGL is bound to one."""

    def __init__(self, made: Simulated, name: str, seed: int = 0) -> None:
        self.name, self._world = name, made
        self._rng = np.random.default_rng(seed)
        self._scene: Any = None
        self.reset()

    def reset(self) -> None:
        self._scene = self._world.reset(self._rng)
        self._seen = self._observe(self._scene)

    def known(self, count: int) -> dict[str, Tensor]:
        scenes = [self._world.reset(self._rng) for _ in range(count)]
        agents = torch.from_numpy(np.concatenate([scene.agent for scene in scenes]))
        return {"observation": torch.cat([self._observe(scene) for scene in scenes]), "agent": agents}

    def observation(self) -> Tensor:
        return self._seen

    def agent(self) -> Array:
        found: Array = self._scene.agent[0]
        return found

    def heading(self) -> float | None:
        return float(self._scene.heading[0]) if hasattr(self._scene, "heading") else None

    def objects(self) -> Array:
        found: Array = self._scene.object
        return found.reshape(-1, found.shape[-1])

    def picture(self) -> tuple[Array, Homography]:
        if self.name in FIELDS:
            made: Any = self._world
            picture = made.render(self._scene, "above", ABOVE_PIXELS, ABOVE_PIXELS)[0]
            return picture.copy(), Homography.of_extent(ABOVE_RANGE * 2, ABOVE_PIXELS, ABOVE_PIXELS)
        camera: Any = self._world.cameras[0]
        size = self._world.config.size
        first = self.observation()[0, :3]
        return as_picture(first), Homography(homography(camera, size, size))

    def move(self, action: Array) -> Moved:
        o, before = self._seen, self._scene
        outcome = self._world.step(before, np.asarray(action, np.float32))
        self._scene = type(before)(*(np.asarray(getattr(outcome, name))[None] for name in before._fields))
        moved = torch.from_numpy(self._world.displacement(before, outcome)[None])
        self._seen = self._observe(self._scene)
        return Moved(Batch(o, moved, self._seen), np.atleast_1d(outcome.contact))

    def _observe(self, scene: Any) -> Tensor:
        pictures = torch.from_numpy(self._world.observe(scene).copy())  # [1, (v,) h, w, 3]
        channels_first = pictures.movedim(-1, -3)
        return channels_first.flatten(1, 2) if channels_first.dim() == 5 else channels_first


def ground(recipe: Mapping[str, Any]) -> Ground:
    """A scene of one of our worlds, from its id, as `env`, and its options."""
    options = dict(recipe)
    env = options.pop("env", None)
    if env is None:
        raise ValueError(f"the world of this run is not known, because its data do not name one; {PLAYED}")
    if env not in OURS:
        raise ValueError(f"the data of this run come from {env}, which Play cannot move; {PLAYED}")
    made = world(env, **options)
    return Stepped(made, env) if isinstance(made, Simulated) else Streamed(made, env)
