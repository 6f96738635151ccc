"""The paper's point: no extent (Eq. 4)."""

from typing import final

from torch import Tensor

from palpate.bodies.base import Body


@final
class Point(Body):
    def __init__(self, n: int) -> None:
        super().__init__()

    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return direction.new_zeros(direction.shape[:-1])

    def covariance(self, pose: Tensor) -> None:
        return None

    def size(self, pose: Tensor) -> Tensor:
        return pose.new_zeros(pose.shape[:-1])
