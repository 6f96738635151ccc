"""Findings from the arrays of a log, without training.

Legend: N triples, n dimension of the action.
"""

import numpy as np
from torch import Tensor

from palpate.choices import LARGE_SIDE, SMALL_SIDE, shrink_to
from palpate.data.transitions import Transitions
from palpate.findings import Rule
from palpate.groups.base import Group

STILL = 1e-3  # of the actions' root mean square: a shorter action counts as no motion
CONTRADICTION = 0.3  # of the same: difference between two displacements of the same two observations
LARGE = 2 * LARGE_SIDE  # pixels on a side of a picture
EXTREME_VALUES = 20  # with fewer different values, actions are discrete, not clipped
NEVER = float("inf")

ARRAY_RULES = (
    Rule(
        "too-few",
        "different_triples",
        "there are few different triples",
        "Collect at least 1,000; some thousands are a good start, and the agent should reach every position.",
        below=(1000, 300),
    ),
    Rule(
        "no-motion",
        "action_rms",
        "all actions are zero",
        "Record how far the agent moved between the two observations.",
        below=(1e-30, 1e-30),
    ),
    Rule(
        "constant-observation",
        "different_observations",
        "all observations are the same",
        "Check the recording: the camera or the sensor delivered no data.",
        below=(2, 2),
    ),
    Rule(
        "idle",
        "idle",
        "in many triples the agent does not move",
        "They are not informative; leave them out, or join several short steps into one.",
        above=(0.2, 0.9),
    ),
    Rule(
        "unchanged",
        "unchanged",
        "in many triples the action is not zero, but the observation does not change",
        "Is the agent in the picture? Did it really move (was it blocked, was the picture taken too early)? Record "
        "the displacement achieved, and leave out rows that were never carried out.",
        above=(0.05, 0.5),
    ),
    Rule(
        "duplicates",
        "duplicates",
        "many triples are exact copies of others",
        "Leave out the copies: they count twice, and held-out triples would also be training triples.",
        above=(0.02, NEVER),
    ),
    Rule(
        "contradictions",
        "contradictions",
        "the same two observations have different actions",
        "The observations do not distinguish states (aliasing), or the actions are not the displacements between them. "
        "Add a view or a sensor that shows the agent, or record the displacement achieved.",
        above=(0.01, 0.1),
    ),
    Rule(
        "flat",
        "flattest_axis",
        "the agent never moves in one of the directions that the actions have",
        "No position can be learned along it: leave that number out of the actions, or move in that direction too.",
        below=(1e-3, 1e-3),
    ),
    Rule(
        "never-turns",
        "turn_rms",
        "the agent hardly ever turns",
        "Its heading cannot be learned from such moves. If it never turns, leave out the turns and use "
        "group='translations'; otherwise collect moves with turns, in radians.",
        below=(0.02, 1e-3),
    ),
    Rule(
        "one-dimension",
        "dimensions",
        "the actions have one number: the agent cannot pass the object without contact, so position and radius cannot "
        "be separated",
        "Give the sum of the two radii, in the action's unit, as radius= or --radius; `fit` needs it.",
        below=(2, -NEVER),
    ),
    Rule(
        "many-dimensions",
        "dimensions",
        "the actions have more numbers than space has dimensions",
        "`fit` uses them as displacements in a space of that many dimensions. Joint angles and motor commands are not "
        "displacements: record how far the agent moved, as 2 or 3 numbers.",
        above=(3, NEVER),
    ),
    Rule(
        "clipped-actions",
        "extreme_actions",
        "many actions have the same largest value, as if they were clipped",
        "Make sure that they are the displacements achieved, not clipped commands.",
        above=(0.15, NEVER),
    ),
    Rule(
        "large-pictures",
        "picture_side side_on_cpu side_on_gpu cost_of_full_size",
        "the pictures are larger than training uses",
        "`fit` averages squares of pixels: side on cpu and side on gpu are the sides that remain. Details smaller than "
        "a square vanish. With shrink=1 all pixels remain, and a step on a CPU costs cost of full size times as much. "
        "Crop the pictures to the workspace, or record smaller ones: large pictures also take long to read.",
        above=(LARGE, NEVER),
    ),
)


def fingerprints(triples: Transitions) -> np.ndarray:
    """A number for each o and o' [N, 2], equal for equal observations. One pass, with bounded memory."""
    found: list[tuple[int, int]] = []
    for block in triples.blocks():
        rows = triples.rows(block)
        pairs = zip(rows.o.numpy(), rows.o_next.numpy(), strict=True)
        found += [(hash(o.tobytes()), hash(o_next.tobytes())) for o, o_next in pairs]
    return np.array(found)


def goes_on(pair: np.ndarray) -> np.ndarray:
    """Whether the next row begins where a row ends, [N]."""
    return np.append(pair[:-1, 1] == pair[1:, 0], False)


def moves(action: Tensor, group: Group) -> tuple[np.ndarray, float]:
    """Complete actions [N, m] in one unit, the root mean square of displacements, and this unit. A turn of one radian
    counts as far as a usual displacement."""
    unit = float(group.length2(action).mean().sqrt())
    move = group.complete(action).numpy().copy()
    move[:, move.shape[1] - group.turn_width :] *= unit
    return move, unit


def is_motion(move: np.ndarray, unit: float) -> np.ndarray:
    """Which of the `moves` [N, m] are no rest, `[N]`."""
    found: np.ndarray = np.linalg.norm(move, axis=1) > STILL * unit
    return found


def contradicted(pair: np.ndarray, move: np.ndarray, unit: float) -> np.ndarray:
    """Rows whose move differs from that of a row with the same o and o', `[N]`."""
    group = np.unique(pair, axis=0, return_inverse=True)[1].reshape(-1)
    count = np.bincount(group)
    centre = np.stack([np.bincount(group, column) / count for column in move.T], 1)[group]
    found: np.ndarray = np.linalg.norm(move - centre, axis=1) > CONTRADICTION * unit / 2
    return found


def measure_arrays(triples: Transitions, pair: np.ndarray, group: Group) -> dict[str, float]:
    """Measurements for `ARRAY_RULES`, from `fingerprints` [N, 2]; some are left out for constant arrays."""
    action = triples.action.double()
    a, (move, unit) = action.numpy(), moves(action, group)
    whole = np.concatenate((pair, triples.action.numpy().view(np.int32)), 1)
    different = len(np.unique(whole, axis=0))
    seen = {
        "triples": float(len(a)),
        "different_triples": float(different),
        "different_observations": float(len(np.unique(pair))),
        "dimensions": float(group.n),
        "action_rms": unit,
    } | _size(triples.observation_shape)
    if group.turns:
        seen["turn_rms"] = float(group.turn(action).square().mean().sqrt())
    if unit == 0 or seen["different_observations"] == 1:
        return seen
    moved = is_motion(move, unit)
    # The eigenvalue of an unused axis may be slightly negative, and its root NaN.
    if not group.turns:  # an agent that turns need not move sideways
        way = group.displacement(action).numpy()
        spread = np.sqrt(np.linalg.eigvalsh(way.T @ way / len(way)).clip(min=0))
        seen["flattest_axis"] = float(spread[0] / spread[-1])
    return seen | {
        "idle": float(1 - moved.mean()),
        "unchanged": float(((pair[:, 0] == pair[:, 1]) & moved).mean()),
        "duplicates": 1 - different / len(a),
        "contradictions": float(contradicted(pair, move, unit).mean()),
        "extreme_actions": max(_extreme_share(column) for column in a.T),
        "in_order": float(goes_on(pair).mean()),
    }


def _size(shape: tuple[int, ...]) -> dict[str, float]:
    """The side of large pictures, the sides that training uses, and the cost of a step without averaging."""
    if len(shape) != 3 or max(shape[1:]) <= LARGE:
        return {}
    on_cpu, on_gpu = (shrink_to(side, *shape[1:]) for side in (SMALL_SIDE, LARGE_SIDE))
    side = float(max(shape[1:]))
    sides = {"side_on_cpu": side // on_cpu, "side_on_gpu": side // on_gpu}
    return {"picture_side": side, **sides, "cost_of_full_size": float(on_cpu**2)}


def _extreme_share(column: np.ndarray) -> float:
    """Share of rows at the largest or at the smallest value; 0 for discrete actions."""
    values, counts = np.unique(column, return_counts=True)
    return 0.0 if len(values) < EXTREME_VALUES else float((counts[0] + counts[-1]) / len(column))
