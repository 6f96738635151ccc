"""What the actions of a log are: displacements along fixed axes, or moves of an agent that turns, along its own.

A network, for pictures one for all, has outputs for each of several readings of the actions. Training makes each output
follow its reading; the reading that fits the observations best is the right one.
Legend: b triples, h readings, n numbers of an action.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from palpate.config import MOVING, TURNING, ObjectiveConfig
from palpate.data.transitions import Transitions
from palpate.doctor.following import followed, held_outputs
from palpate.doctor.probe import Trial, small
from palpate.doctor.verdict import FOLLOWS
from palpate.findings import Finding, Rule
from palpate.groups import group_of_actions
from palpate.groups.base import Group
from palpate.objectives.equivariance import equivariance
from palpate.rotations import turned_by

FRAME_SECONDS = 20.0  # of this thread
ALIKE = 1.5  # readings with residuals up to this many times the least one fit about equally well
MUCH_BETTER = 0.25  # residual of lengths alone, relative to that of the recorded moves: directions are then unknown
Change = Callable[[Tensor], Tensor]  # of actions, or of their turns
Left = Callable[[Group, Tensor, Tensor, Tensor], Tensor]  # squared residuals [b], from outputs and actions


class Reading(NamedTuple):
    """A meaning that actions may have."""

    width: int  # of the network's output
    # Mean squared residual of outputs for o and o', and actions, relative to the actions' size.
    left: Callable[[Tensor, Tensor, Tensor], Tensor]


WORDS = {
    "own axes": (
        "own-frame-actions",
        "the actions are moves along the agent's own axes, which turn with it",
        "Train with group={group!r} (--group {group}).",
    ),
    "fixed axes": (
        "fixed-axes-actions",
        "the actions are displacements along fixed axes, not along the agent's own",
        "Rotate each displacement by minus the heading before the move, or leave out the turns and use "
        "group='translations'.",
    ),
    "mirrored": (
        "mirrored-turns",
        "the turns have the wrong sign",
        "In the plane, turns to the left are positive where sideways to the left is. In space, a rotation vector is "
        "that of the agent after the move, seen from before, by the right-hand rule. Change the sign of the turns.",
    ),
    "turns about fixed axes": (
        "fixed-axes-turns",
        "the turns are about fixed axes, not about the agent's own",
        "Rotate each rotation vector by the inverse of the rotation before the move. With matrices the turn is "
        "R_before.T @ R_after.",
    ),
    "degrees": ("turns-in-degrees", "the turns are in degrees", "Multiply them by pi / 180."),
    "lengths": (
        "heading-not-visible",
        "the agent moves as far as the actions say, but in no direction that its observations determine",
        "Does the agent turn, and do the observations show which way it faces? If not, record displacements along "
        "fixed axes, or mark its front.",
    ),
}

UNSURE_HEADING = Rule(
    WORDS["lengths"][0],
    "residual probe_steps",
    "the short training run did not find which way the agent faces",
    "Do the observations show it, and are the actions moves along the agent's own axes? Then more triples or a full "
    "training may find it; `fit` reports as agent-residual if the agent does not follow its actions.",
)


def frames(triples: Transitions, scene: ObjectiveConfig) -> tuple[Finding | None, dict[str, float]]:
    """A finding if the actions are not those of the group of `scene`, and the residual of each reading."""
    own = _own(triples.n, scene)
    if own is None:  # no agent that turns has such actions
        return None, {}
    found, finished = residuals(triples, scene)
    measured = {f"residual_{name.replace(' ', '_')}": value for name, value in found.items()}
    recorded, lengths = found.pop("own axes" if scene.turns else "fixed axes"), found.pop("lengths")
    # Of readings that fit about equally well, the first.
    best = next(name for name in found if found[name] <= ALIKE * min(found.values()))
    if found[best] < min(FOLLOWS[0], FOLLOWS[1] * recorded):
        right = found[best]
    elif finished and lengths < MUCH_BETTER * recorded and recorded > FOLLOWS[0]:
        best, right = "lengths", lengths
    else:
        return None, measured
    name, what, advice = WORDS[best]
    evidence = {"residual": recorded, "residual of the correction": right}
    return Finding(name, "blocking", what, evidence, advice.format(group=own.group)), measured


def _own(count: int, scene: ObjectiveConfig) -> ObjectiveConfig | None:
    """The scene with an agent that turns, if actions of so many numbers can be moves along its own axes."""
    if scene.turns:
        return scene
    group = next((name for name in MOVING if count in TURNING[name][1]), None)
    return None if group is None else replace(scene, group=group)  # type: ignore[arg-type]


def residuals(triples: Transitions, scene: ObjectiveConfig) -> tuple[dict[str, float], bool]:
    """Residual of each reading, relative to the actions' size, on rows that were not trained on; and whether there was
    time for all steps. Lengths are learned sooner than directions."""
    rows, deadline = small(triples, np.arange(len(triples))), time.thread_time() + FRAME_SECONDS
    trial = Trial(rows, deadline, progress=False, scene=scene, substeps=triples.substeps)
    found = readings(trial.kept.a, triples.action_shape, scene)
    widths = [reading.width for reading in found.values()]

    def left(before: Tensor, after: Tensor, a: Tensor) -> Tensor:
        """Relative squared residuals `[h]`."""
        parts = zip(found.values(), before.split(widths, 1), after.split(widths, 1), strict=True)
        return torch.stack([reading.left(x, y, a) for reading, x, y in parts])

    def loss(before: Tensor, after: Tensor, rows: Tensor) -> Tensor:
        return left(before, after, trial.kept.a[rows]).sum()

    branch = followed(trial, widths, loss)
    left_over = left(*held_outputs(trial, branch), trial.held.a).sqrt().tolist()
    return dict(zip(found, left_over, strict=True)), trial.followed


def readings(kept: Tensor, shape: tuple[int, ...], scene: ObjectiveConfig) -> dict[str, Reading]:
    """What actions such as `kept` [b, ...] of this shape may be."""
    (*parts, count), turning = shape, _own(shape[-1], scene)
    assert turning is not None
    own, fixed = group_of_actions(shape, turning), ObjectiveConfig()

    def with_turns(change: Change) -> Reading:
        return each(own, lambda a: torch.cat((a[..., : -own.turn_width], change(a[..., -own.turn_width :])), -1))

    def each(group: Group, change: Change) -> Reading:
        """With a change of each sub-step."""
        return _reading(kept, group, lambda a: change(a.unflatten(1, (*parts, count))).flatten(1))

    # Of readings that fit about equally well, the first is taken.
    straight, found = min(own.n, count), {}
    if not scene.turns:
        found["fixed axes"] = _reading(kept, group_of_actions(shape, fixed))
    elif scene.group in MOVING:  # an arm's base moves along fixed axes in any case
        found["fixed axes"] = each(group_of_actions((*parts, straight), fixed), lambda a: a[..., :straight])
    if scene.turns and count == own.n + own.turn_width:  # of two numbers, a mirrored plane has the opposite turns
        found["mirrored"] = with_turns(torch.neg)
    found["own axes"] = with_turns(lambda turn: turn)
    if scene.turns:
        found["degrees"] = with_turns(torch.deg2rad)
        if own.turn_width > 1:  # in the plane all axes are one
            found["turns about fixed axes"] = _reading(kept, own, left=_left_of_fixed_turns)
    return {**found, "lengths": _reading(kept, own, left=_left_of_lengths)}


def _left_of_group(group: Group, raw: Tensor, raw_next: Tensor, a: Tensor) -> Tensor:
    """Squared residuals `[b]` of moves by the group's actions."""
    return equivariance(group, group.pose(raw), a, group.pose(raw_next))


def _left_of_fixed_turns(group: Group, raw: Tensor, raw_next: Tensor, a: Tensor) -> Tensor:
    """Squared residuals `[b]` of moves along the agent's own axes that turn it about fixed axes."""
    a = group.complete(a)
    z, z_next, turn = group.pose(raw), group.pose(raw_next), a[:, -group.turn_width :]
    axes, axes_next = group.rotation(z), group.rotation(z_next)
    assert axes is not None
    assert axes_next is not None
    moved = group.act(z, torch.cat((a[:, : -group.turn_width], torch.zeros_like(turn)), 1))
    apart = group.difference(group.position(z_next), group.position(moved)).square().sum(1)
    turned = turned_by(axes.mT, turn[:, None]).mT
    return apart + (axes_next - turned).square().sum((1, 2)) / 6 + (group.flaw(z) + group.flaw(z_next)) / 2


def _left_of_lengths(group: Group, raw: Tensor, raw_next: Tensor, a: Tensor) -> Tensor:
    """Squared residuals `[b]` of moves whose direction is unknown."""
    moved = torch.sqrt((raw_next - raw)[:, : group.n].square().sum(1) + 1e-12)
    return (moved - group.length2(a).sqrt()).square()


def _reading(kept: Tensor, group: Group, change: Change = lambda a: a, left: Left = _left_of_group) -> Reading:
    """A reading of actions as those of a group, after a change."""
    scale = 1 / group.length2(change(kept)).mean().sqrt().clamp(min=1e-30)

    def scaled(a: Tensor) -> Tensor:
        return group.scaled(change(a), scale)

    start = group.origin().expand(len(kept), -1)
    size = group.distance2(start, group.act(start, scaled(kept))).mean().clamp(min=1e-30)
    return Reading(group.pose_width, lambda raw, raw_next, a: left(group, raw, raw_next, scaled(a)).mean() / size)
