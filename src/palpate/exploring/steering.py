"""From an environment's commands to the agent's displacements.

A command may be a displacement, a target or a velocity. All are linear in the command and in the agent's pose, up to
walls. Legend: N triples, c commands, p numbers of a pose, q of an action, m of a command.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from palpate.groups.base import Group

RIDGE = 1e-6  # relative to the mean square of a feature
AT_THE_WALL = 0.05  # of the range of poses: a path that ends this close to its edge may have been stopped
SAME = 1e-9  # largest change of an action, relative to the largest action, that is rounding
FEWEST = 4  # times the number of features: rows to fit


class Steering(NamedTuple):
    """A fitted map from pose and command to displacement."""

    group: Group
    weights: Tensor  # [1 + p + m, q]
    low: Tensor  # [p] of all poses
    high: Tensor  # [p]
    explained: float  # share of the displacements' variance, R^2; at most 1

    def predict(self, agent: Tensor, command: Tensor) -> Tensor:
        """Displacements [c, q] of commands [c, m] at poses [c, p]; none leads beyond the known poses."""
        asked = self.group.act(agent, _features(agent, command) @ self.weights)
        return self.group.between(agent, asked.clamp(self.low, self.high))


def fit_steering(group: Group, agent: Tensor, command: Tensor, displacement: Tensor) -> Steering:
    """Least squares over triples: poses [N, p], commands [N, m], displacements [N, q], all float64.

    Paths that end at the edge of all poses are left out for each number of the displacement that the edge limits: a
    wall may have stopped them.
    """
    end, x = group.act(agent, displacement), _features(agent, command)
    both = torch.cat((agent, end))
    low, high = both.amin(0), both.amax(0)
    margin = AT_THE_WALL * (high - low)
    inside = group.between(agent, end.clamp(low + margin, high - margin))
    free = (inside - displacement).abs() <= SAME * displacement.abs().max()  # [N, q]
    weights = [_solved(x, y, rows) for y, rows in zip(displacement.unbind(1), free.unbind(1), strict=True)]
    steering = Steering(group, torch.stack(weights, 1), low, high, 0.0)
    left = displacement - steering.predict(agent, command)
    spread = displacement - displacement.mean(0)
    explained = 1 - left.square().sum() / spread.square().sum().clamp(min=1e-30)
    return steering._replace(explained=float(explained))


def _features(agent: Tensor, command: Tensor) -> Tensor:
    return torch.cat((agent.new_ones(len(command), 1), agent, command), 1)


def _solved(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    if int(rows.sum()) >= FEWEST * x.shape[1]:
        x, y = x[rows], y[rows]
    gram = x.T @ x
    return torch.linalg.solve(gram + RIDGE * torch.diag(gram.diagonal() + 1e-12), x.T @ y)
