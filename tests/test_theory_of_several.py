"""The theorem with two objects: one common translation and the order of the two are all that is left undetermined.

The grid's rules are those of `test_theory.py`, "apart". The objects' cells differ. A touched object may land on any of
its cells that is free; if a path touches both, both land. A representation has two slots, and the theorem's third
condition holds for each: a slot changes only if it lies on the path. Together with the agent they are injective.
The search takes z_int = s_int, as `test_equivariance_alone_fixes_the_agent_up_to_a_translation` allows.
"""

import itertools
from collections.abc import Callable, Iterable

import pytest
from test_theory import UNIT, Cell, on_open_segment

State = tuple[Cell, Cell, Cell]  # agent, objects
Slot = dict[State, Cell]
SHAPE, MIDDLE = (5, 3), ((1, 1), (2, 1), (3, 1))
Allowed = Callable[[int], bool]  # for the number of objects that a move touches


def anything(touched: int) -> bool:
    return True


class Grid:
    """All states and moves of a finite world with two objects."""

    def __init__(
        self,
        objects: Iterable[Cell] = MIDDLE,
        *,
        allowed: Allowed = anything,
        pushes: bool = False,
        alike: bool = False,
    ) -> None:
        """With `pushes`, both objects land if one is touched. `alike`: a state does not say which object is which."""
        width, height = SHAPE
        self.cells = [(UNIT * x, UNIT * y) for x in range(width) for y in range(height)]
        self.objects = [(UNIT * x, UNIT * y) for x, y in objects]
        pairs = itertools.permutations(self.objects, 2)
        self.moves: dict[State, list[tuple[Cell, list[State]]]] = {}
        for p, (q, r) in itertools.product(self.cells, pairs):
            if p in (q, r):
                continue
            moves = self.moves.setdefault(self.seen(p, q, r, alike), [])
            for target in self.cells:
                hit = [on_open_segment(x, p, target) for x in (q, r)]
                if target in (p, q, r) or not allowed(sum(hit)):
                    continue
                hit = [any(hit)] * 2 if pushes else hit
                places = [
                    [c for c in self.objects if c not in (x, target)] if h else [x]
                    for x, h in zip((q, r), hit, strict=True)
                ]
                moves.append(
                    (target, [self.seen(target, y, z, alike) for y, z in itertools.product(*places) if y != z])
                )
        self.states = list(self.moves)

    @staticmethod
    def seen(p: Cell, q: Cell, r: Cell, alike: bool) -> State:
        return (p, *sorted((q, r))) if alike else (p, q, r)  # type: ignore[return-value]

    def truth(self) -> tuple[Slot, Slot]:
        return {s: s[1] for s in self.states}, {s: s[2] for s in self.states}


def places() -> list[Cell]:
    """Where a slot may lie: cells, half-way places between them, and one place outside."""
    width, height = SHAPE
    return [*itertools.product(range(UNIT * width - 1), range(UNIT * height - 1)), (-UNIT, -UNIT)]


def forced(grid: Grid, state: State, place: Cell, chosen: Slot) -> Slot | None:
    """`chosen`, with the slot at `place` in `state` and in all states to which it must stay there; None if one of them
    has it elsewhere."""
    found, open_states = {**chosen, state: place}, [state]
    while open_states:
        here = open_states.pop()
        for target, outcomes in grid.moves[here]:
            if on_open_segment(place, here[0], target):
                continue
            for outcome in outcomes:
                if outcome not in found:
                    found[outcome] = place
                    open_states.append(outcome)
                elif found[outcome] != place:
                    return None
    return found


def slots(grid: Grid, where: list[Cell]) -> list[Slot]:
    """All maps s -> place of one slot that changes only if it lies on the path; constants are among them."""
    found, open_maps = [], [Slot()]
    while open_maps:
        chosen = open_maps.pop()
        state = next((s for s in grid.states if s not in chosen), None)
        if state is None:
            found.append(chosen)
            continue
        extended = (forced(grid, state, place, chosen) for place in where)
        open_maps += [x for x in extended if x is not None]
    return found


def representations(grid: Grid, where: list[Cell] | None = None) -> list[tuple[Slot, Slot]]:
    """All pairs of slots that, with the agent, tell every state from every other."""
    count = len(grid.states)
    return [
        (one, two)
        for one, two in itertools.permutations(slots(grid, where or places()), 2)
        if len({(s[0], one[s], two[s]) for s in grid.states}) == count
    ]


def test_only_the_order_of_the_objects_is_left() -> None:
    grid = Grid()
    first, second = grid.truth()
    found = representations(grid)
    assert len(found) == 2
    assert (first, second) in found
    assert (second, first) in found


def test_a_slot_alone_holds_one_object_or_nothing() -> None:
    """A blend of two objects would have to change whenever one of them moves."""
    grid = Grid()
    constant = [dict.fromkeys(grid.states, place) for place in places()]
    found = slots(grid, places())
    assert len(found) == len(constant) + 2
    assert all(slot in found for slot in (*constant, *grid.truth()))


def test_an_object_in_a_corner_may_be_represented_elsewhere() -> None:
    """A corner is on no open segment, so no contact shows where it is."""
    grid = Grid([*MIDDLE, (0, 0)])
    found = representations(grid)
    assert grid.truth() in found
    assert len(found) > 2


def test_objects_that_are_only_touched_together_may_be_exchanged_now_and_then() -> None:
    """Each of the six ordered pairs of cells has an order of its own."""
    grid = Grid(allowed=lambda touched: touched != 1)
    found = representations(grid, grid.cells)
    assert grid.truth() in found
    assert len(found) >= 2**6


def test_objects_that_push_each_other_have_no_representation() -> None:
    """An object that moves untouched contradicts the third condition."""
    assert representations(Grid(pushes=True)) == []


def test_objects_that_look_alike_have_no_representation_with_an_order() -> None:
    """Three touches in turn exchange them, and the scene is as before: so only the set of positions is determined."""
    grid = Grid(alike=True)
    assert len(grid.states) * 2 == len(Grid().states)
    assert representations(grid) == []


@pytest.mark.parametrize("alike", [False, True])
def test_touched_if_and_only_if_moved(alike: bool) -> None:
    grid = Grid(alike=alike)
    assert any(len(outcomes) > 1 for moves in grid.moves.values() for _, outcomes in moves)
    for state, moves in grid.moves.items():
        for target, outcomes in moves:
            hit = {q for q in state[1:] if on_open_segment(q, state[0], target)}
            for outcome in outcomes:
                stays = set(state[1:]) - hit
                assert stays <= set(outcome[1:])
                assert target not in outcome[1:]
