"""A ball: one radius, in any dimension."""

from typing import final

from torch import Tensor

from palpate.bodies.base import Sized


@final
class Ball(Sized):
    def support(self, direction: Tensor, pose: Tensor) -> Tensor:
        return self.radius.expand(direction.shape[:-1])
