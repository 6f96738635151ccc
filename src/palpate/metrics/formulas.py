"""The formulas of the scores: Eq. 8 and others.

Legend: N observations, k objects, n ambient dimension. Positions are in the action's unit, the truth's as well.
"""

import math

import torch
from torch import Tensor

from palpate.data.labelled import Truth
from palpate.groups.base import Group
from palpate.methods.base import Encoding

NEAR = 0.05  # of the largest true distance: relative distortion of shorter ones measures noise


def l_test(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """L_test = E |(z_int - z_ext) - (s_int - s_ext)|^2 (Eq. 8). Zero for the truth in a translated frame."""
    learned, true = (group.difference(state.objects, state.agent[:, None]) for state in (encoding, truth))  # [N, k, n]
    return (learned - true).square().sum(-1).mean()


def own_frame(state: Encoding | Truth) -> Tensor:
    """The objects along the axes of an agent that turns, `[N, k, n]`; its heading or rotation must be known."""
    assert state.attitude is not None
    return (state.objects - state.agent[:, None]) @ state.attitude


def apart2(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """Squared differences between each learned and each true position, relative to the agent: `[N, k, k]`."""
    learned, true = (group.difference(state.objects, state.agent[:, None]) for state in (encoding, truth))  # [N, k, n]
    return (learned[:, :, None] - true[:, None]).square().sum(-1)


def exchanged2(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """As `apart2`, with each learned point as the agent: `[N, k + 1, k + 1, k]`, agent, object and true object.

    The points are the learned agent and the learned objects.
    """
    points = torch.cat((encoding.agent[:, None], encoding.objects), 1)  # [N, k + 1, n]
    learned = group.difference(points[:, None], points[:, :, None])  # of the second point from the first
    true = group.difference(truth.objects, truth.agent[:, None])  # [N, k, n]
    return (learned[:, :, :, None] - true[:, None, None]).square().sum(-1)


def agent_frame(group: Group, encoding: Encoding, truth: Truth) -> Tensor:
    """The least-squares motion of the agents onto the truth.

    The objects move along: a motion of their own would hide the error that Eq. 8 measures, and a common one would share
    the object's bias with the agent.
    """
    return group.frame(encoding.agent, truth.agent)


def placed(group: Group, encoding: Encoding, frame: Tensor) -> Encoding:
    return encoding.moved(group, frame)


def isometry(group: Group, encoding: Encoding, truth: Truth, pairs: Tensor) -> Tensor:
    """Mean of | |z_i - z_j| / |s_i - s_j| - 1 | over pairs of points, agents and objects mixed.

    `pairs` [2, p] indexes the N agents followed by the N objects. Pairs whose true distance is below 5 % of the largest
    are left out. Zero for any rigid motion, so rotated and mirrored frames are not penalised.
    """
    learned, true = (
        group.difference(points[pairs[0]], points[pairs[1]]).norm(dim=-1)
        for points in (torch.cat((state.agent, state.objects.flatten(0, 1))) for state in (encoding, truth))
    )
    far = true > NEAR * true.max()
    return (learned[far] / true[far] - 1).abs().mean()


def affine_probe(x: Tensor, target: Tensor) -> Tensor:
    """The least-squares map `[k + 1, n]` from x [N, k] and 1 to target [N, n]; the smallest one where many fit."""
    return torch.linalg.lstsq(torch.cat((x, torch.ones_like(x[:, :1])), 1), target, driver="gelsd").solution


def affine(x: Tensor, probe: Tensor) -> Tensor:
    return x @ probe[:-1] + probe[-1]


def rigid_offset(wrong: Tensor, angle: Tensor) -> Tensor:
    """The least-squares fit e + R(angle) c to errors [N, 2] in the plane: e and c, `[4]`.

    R(angle) turns the axes of the object into those of the frame. A position is that of some point of the object;
    another point of the same object differs by c, in the object's own axes.
    """
    return torch.linalg.lstsq(rigid(angle).flatten(0, 1), wrong.flatten()[:, None], driver="gelsd").solution[:, 0]


def rigid(angle: Tensor) -> Tensor:
    """The matrix `[N, 2, 4]` that takes e and c to e + R(angle) c."""
    cos, sin = angle.cos(), angle.sin()
    turn = torch.stack((cos, -sin, sin, cos), -1).unflatten(-1, (2, 2))
    return torch.cat((torch.eye(2, dtype=angle.dtype).expand_as(turn), turn), -1)


def axis_error(axis: Tensor, other: Tensor) -> Tensor:
    """Angle between two undirected axes, in [0, pi/2]: `[...]`."""
    turn = (axis - other) % math.pi
    return torch.minimum(turn, math.pi - turn)


def auroc(score: Tensor, contact: Tensor) -> Tensor:
    """P(a contact scores above another triple), a tie counting one half: area under the ROC curve.

    Needs both classes in `contact` [N] bool.
    """
    others = score[~contact].sort().values
    below, not_above = (torch.searchsorted(others, score[contact], right=right) for right in (False, True))
    return (below + not_above).double().mean() / (2 * len(others))
