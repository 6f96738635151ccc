"""The table's settings and constants; light to import. Lengths are shares of the unit square's side."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from palpate.envs.options import require_share, require_size

SCALE = 0.5  # metres on a side of the unit square
GRIPPER_RADIUS = 0.04  # of the closed fingers
GRIPPER_RANGE = (0.05, 0.95)  # of the fingers' centre, both axes
BLOCK_RANGE = (0.2, 0.8)  # of the block's position, both axes; the gripper passes on all sides
BLOCK_HEIGHT = 0.09
MOVED_EPSILON = 0.01  # a contact that moves every corner of the block less than this is a nudge
GAP = 1e-3  # between the bodies, at least, before and after every step
VISIBLE = 0.5  # share of the block's sight lines that are free if it counts as visible

VERSION = 1  # of the world: raised when a seed gives other triples or other pictures

Block = Literal["cube", "bar", "disc", "tee", "ell"]
Camera = Literal["front", "side", "top"]
CAMERAS: tuple[Camera, ...] = get_args(Camera)


class Slab(NamedTuple):
    """A box of a block, or a cylinder if it has one half side: centre and half sides in the block's own frame."""

    centre: tuple[float, float]
    half: tuple[float, ...]


BLOCKS: dict[Block, tuple[Slab, ...]] = {  # positions are the centres of mass
    "cube": (Slab((0.0, 0.0), (0.06, 0.06)),),
    "bar": (Slab((0.0, 0.0), (0.12, 0.035)),),
    "disc": (Slab((0.0, 0.0), (0.065,)),),
    "tee": (Slab((0.0, 0.03), (0.1, 0.03)), Slab((0.0, -0.05), (0.03, 0.05))),
    "ell": (Slab((-0.036, 0.02), (0.03, 0.1)), Slab((0.054, -0.05), (0.06, 0.03))),
}


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    block: Block = "cube"
    cameras: tuple[Camera, ...] = ("front",)  # several are several views; also as one string, "front,side"
    size: int = 100  # pixels on a side of each picture
    contact_share: float | None = 0.3  # requested contact share; None: the share that random motion gives
    stride: float = 0.3  # longest move of a random triple along an axis
    arm: bool = True  # draw the arm; without it nothing is hidden but by the gripper
    shadows: bool = False  # in the pictures; software drawing is then slow

    def __post_init__(self) -> None:
        if self.block not in BLOCKS:
            raise ValueError(f"block is {self.block!r}; allowed are {', '.join(BLOCKS)}")
        cameras = self.cameras.split(",") if isinstance(self.cameras, str) else self.cameras
        object.__setattr__(self, "cameras", tuple(cameras))
        if not self.cameras or any(name not in CAMERAS for name in self.cameras):
            raise ValueError(f"cameras is {self.cameras!r}; allowed are one or several of {', '.join(CAMERAS)}")
        require_size(self.size, 2048)
        require_share(self.contact_share)
        if not 0.02 <= self.stride <= 0.9:
            raise ValueError(f"stride is {self.stride!r}; allowed is 0.02 to 0.9 of the side")
