"""What is read from an environment at one moment: the observation, the agent's pose, the true states."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch

from palpate.collecting.readings import Moment, Reader, described, read
from palpate.collecting.stepping import READINGS, STATES, Stepping
from palpate.data.arrays import require_rigid
from palpate.data.files import OF_AGENT
from palpate.groups import group_of_records
from palpate.rotations import vector_of

NO_TRUTH = (
    "this environment does not report true states in every step; needed are agent and object in the info of reset and "
    "step (optional are heading, rotation, angle and visible there and contact in the info of step), or truth= with "
    "readings of them"
)


class View(NamedTuple):
    """What is read at one moment."""

    observation: np.ndarray
    pose: Any  # [n] position of the agent; [n + 1] with its heading, [6] with its rotation; None if it is unknown
    state: dict[str, np.ndarray]


@final
class Sensing:
    """Reads what the settings name, and checks it."""

    def __init__(self, how: Stepping) -> None:
        self._how = how
        self._n: int | None = None
        self._seen: tuple[Moment, np.ndarray] | None = None  # rendering is slow, so each state is rendered once

    def look(self, now: Moment) -> View:
        return View(self._see(now), self._pose(now), self._state(now))

    def _pose(self, now: Moment) -> Any:
        """[n], [n + 1] with the heading, [n + 3] with the rotation vector, or None if it is unknown."""
        position, heading = self._position(now), self._how.agent_heading
        if self._how.agent_rotation is not None:
            return np.append(position, vector_of(torch.from_numpy(self._rotation(now))).numpy())
        if heading is None:
            return position
        angle = read("agent_heading", heading, now).astype(np.float64)
        if angle.size != 1:
            raise ValueError(
                f"agent_heading, read from {described(heading)}, has shape {angle.shape}; allowed is one number, in "
                "radians"
            )
        return np.append(position, angle)

    def _rotation(self, now: Moment) -> np.ndarray:
        """The rotation matrix [3, 3]."""
        reader = self._how.agent_rotation
        assert reader is not None
        found = read("agent_rotation", reader, now).astype(np.float64)
        if found.shape not in ((3, 3), (9,)):
            raise ValueError(
                f"agent_rotation, read from {described(reader)}, has shape {found.shape}; allowed is a matrix (3, 3), "
                "or its 9 numbers"
            )
        whole = np.eye(4)
        whole[:3, :3] = found.reshape(3, 3)
        require_rigid("agent_rotation", whole[None])
        return whole[:3, :3]

    def between(self, pose: np.ndarray, pose_next: np.ndarray) -> np.ndarray:
        """The action that leads from one pose of the agent to another."""
        turn_width = 3 if self._how.agent_rotation is not None else int(self._how.agent_heading is not None)
        group = group_of_records(len(pose) - turn_width, turn_width)
        z, z_next = (group.posed(torch.from_numpy(x)) for x in (pose, pose_next))
        return group.between(z, z_next).numpy()

    def _see(self, now: Moment) -> np.ndarray:
        wanted = self._how.observation
        if wanted == "render":
            if self._seen is None or self._seen[0] is not now:
                self._seen = now, self._rendered(now)
            return self._seen[1]
        # `Transitions` reports values that are not finite, with their row.
        return np.array(now.observation) if wanted is None else read("observation", wanted, now)

    def _rendered(self, now: Moment) -> np.ndarray:
        picture = now.env.render()
        if not isinstance(picture, np.ndarray):
            raise ValueError(
                f"observation is 'render', but render() returns {type(picture).__name__}; make the environment with "
                "render_mode='rgb_array'"
            )
        return picture.copy()

    def _position(self, now: Moment) -> Any:
        """[n], or None if it is unknown."""
        if self._how.agent_position is None:
            return None
        position = read("agent_position", self._how.agent_position, now).astype(np.float64)
        self._n = self._n or position.size
        if position.shape != (self._n,):
            raise ValueError(
                f"agent_position, read from {described(self._how.agent_position)}, has shape {position.shape}; allowed "
                f"is one axis of coordinates, {'always of one length' if position.ndim == 1 else 'such as (2,)'}"
            )
        return position

    def watch(self, now: Moment) -> list[np.ndarray]:
        """What has to rest before a triple ends."""
        seen = [read("watch", reader, now) for reader in self._how.watched] or [self._see(now)]
        position, heading = self._position(now), self._how.agent_heading
        if heading is not None:  # a heading that rests near pi may be read as -pi
            seen += [np.cos(angle := self._pose(now)[-1]), np.sin(angle)]
        if self._how.agent_rotation is not None:
            seen.append(self._rotation(now))
        return seen if position is None else [*seen, position]

    def _truth(self, now: Moment) -> Mapping[str, Reader]:
        """Readings of the true states: those of the settings, else those that info has under their names."""
        if self._how.truth is not None:
            return self._how.truth
        known = {name: f"info:{name}" for name in READINGS if name in now.info}
        if "rotation" in known and np.shape(now.info["rotation"]) != (3, 3):
            del known["rotation"]  # a quaternion, or something else
        return known

    def _state(self, now: Moment) -> dict[str, np.ndarray]:
        readings = self._truth(now)
        known = {name: read(f"truth {name}", readings[name], now) for name in STATES if name in readings}
        if "object" in known and self._how.agent_position is not None:
            known.setdefault("agent", self._position(now))
        if "object" in known and self._how.agent_heading is not None:
            known.setdefault("heading", self._pose(now)[-1])
        if "object" in known and self._how.agent_rotation is not None:
            known.setdefault("rotation", self._rotation(now))
        seen = {"visible": _visible(readings["visible"], now)} if "visible" in readings else {}
        return {name: x.astype(np.float32) for name, x in known.items()} | seen

    def truth_between(
        self, state: dict[str, np.ndarray], state_next: dict[str, np.ndarray], contact: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        """The true states of a triple, from those before and after it and the contacts of its steps."""
        if self._how.truth is not None and self._how.truth.get("contact") == "moved":
            steps = {x: np.abs(state_next[x] - state[x].astype(np.float64)) for x in ("object", "angle") if x in state}
            if "object" in steps:
                steps["object"] = steps["object"].max(-1)  # of each object
            contact = np.any([step > self._how.tolerance for step in steps.values()], 0)
        truth = state | {f"{name}_next": state_next[name] for name in STATES if name in state_next}
        if contact is None:
            return truth
        several = "object" in state and state["object"].ndim > 1
        return truth | {"contact": contact if several else np.array(contact.any())}

    def contact(self, now: Moment) -> np.ndarray | None:
        """Which objects the agent has touched in the last step, if it is known."""
        contact = self._truth(now).get("contact", "moved")
        return None if contact == "moved" else np.asarray(read("contact", contact, now), bool)


def _visible(reader: Reader, now: Moment) -> np.ndarray:
    """Whether the object is visible; a share, for example, is refused."""
    value = read("truth visible", reader, now)
    if not ((value == 0) | (value == 1)).all():
        raise ValueError(f"truth visible, read from {described(reader)}, is {value}; allowed are True and False")
    return value.astype(bool)


def stacked_truth(truth: Sequence[dict[str, np.ndarray]], n: int) -> dict[str, np.ndarray]:
    """True states by name; empty unless agent and object are both known."""
    names = set().union(*truth)
    if not {"agent", "object"} <= names:
        return {}
    if any(set(row) != names for row in truth):
        raise ValueError(NO_TRUTH)
    objects = truth[0]["object"].shape[:1] if truth[0]["object"].ndim == 2 else ()  # (k,) for several
    for name in names:
        shape = truth[0][name].shape
        wanted = () if name.startswith(OF_AGENT) else objects
        wanted += (n,) if name.startswith(("agent", "object")) else (3, 3) if name.startswith("rotation") else ()
        if shape != wanted:
            raise ValueError(f"truth {name} has shape {shape}; these triples need {wanted}")
    return {name: np.stack([row[name] for row in truth]) for name in names}
