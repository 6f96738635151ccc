"""Shapes of objects, one file each. A new shape is a `Body` with a name in `BODIES`."""

from typing import Any

from palpate.bodies.ball import Ball
from palpate.bodies.base import Body
from palpate.bodies.ellipse import Ellipse
from palpate.bodies.footprint import Footprint
from palpate.bodies.outline import Outline

BODIES: dict[str, type[Body]] = {"ball": Ball, "outline": Outline, "ellipse": Ellipse, "footprint": Footprint}


def make_body(name: str | None, n: int, **settings: Any) -> Body:
    if name not in BODIES:
        raise ValueError(f"body is {name!r}; allowed is {' or '.join(map(repr, BODIES))}")
    return BODIES[name](n, **settings)
