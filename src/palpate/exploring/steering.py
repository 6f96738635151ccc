"""From an environment's commands to the agent's displacements.

A command may be a displacement, a target or a velocity. All are linear in the command and in the agent's position, up
to walls. Legend: N triples, c commands, n dimension of positions, m numbers of a command.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from palpate.groups import Group

RIDGE = 1e-6  # relative to the mean square of a feature
AT_THE_WALL = 0.05  # of the range of positions: a path that ends this close to its edge may have been stopped
FEWEST = 4  # times the number of features: rows to fit


class Steering(NamedTuple):
    """A fitted map from position and command to displacement."""

    group: Group
    weights: Tensor  # [1 + n + m, n]
    low: Tensor  # [n] of all positions
    high: Tensor  # [n]
    explained: float  # share of the displacements' variance, R^2; at most 1

    def predict(self, agent: Tensor, command: Tensor) -> Tensor:
        """Displacements [c, n] of commands [c, m] at positions [c, n]; none leads beyond the known positions."""
        asked = self.group.act(agent, _features(agent, command) @ self.weights)
        return self.group.between(agent, torch.minimum(torch.maximum(asked, self.low), self.high))


def fit_steering(group: Group, agent: Tensor, command: Tensor, displacement: Tensor) -> Steering:
    """Least squares over triples: positions [N, n], commands [N, m], displacements [N, n], all float64.

    Paths that end at the edge of all positions on an axis are left out for that axis: a wall may have stopped them.
    """
    end, x = group.act(agent, displacement), _features(agent, command)
    both = torch.cat((agent, end))
    low, high = both.amin(0), both.amax(0)
    margin = AT_THE_WALL * (high - low)
    free = (end > low + margin) & (end < high - margin)  # [N, n]
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
