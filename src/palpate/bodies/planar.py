"""What bodies in the plane share."""

from typing import Any

from torch import Tensor

from palpate.bodies.base import Sized
from palpate.geometry import around

# Directions in which the ends of a path are compared with the body. The error is at most a thousandth of the radius.
# For paths beside the straight side of a rod, or along a body's end, it is at most a fortieth of their length.
DIRECTIONS = 128


class PlanarBody(Sized):
    """A body for actions of two dimensions."""

    def __init__(self, n: int, **settings: Any) -> None:
        if n != 2:
            raise ValueError(
                f"body is {type(self).__name__.lower()!r}, which lies in the plane, but actions have {n} dimensions; "
                "allowed is 'ball'"
            )
        super().__init__(n, **settings)

    def facets(self, like: Tensor) -> Tensor:
        return around(DIRECTIONS, like)
