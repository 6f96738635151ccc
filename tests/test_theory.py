"""The theorem (paper, Sec. 4.1): its ideal representation has no loss, and on a finite grid there is no other one.

The grid's rules. The agent stands on any cell, the object on a cell of a given set; every displacement to another cell
is an action. Following the paper's Assumption 2, a move touches the object if and only if the object's cell lies in the
*open* segment of the move, and a touched object may land on any other of its cells. What the open segment leaves out is
settled in two ways, and both are searched: "on" takes the paper literally, so that the agent may stop on the object's
cell, stand there and leave, all without touching it; "apart" has neither states with both on one cell nor moves
and landings that lead to one.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palpate.geometry import Segment
from palpate.groups.translations import Translations
from palpate.objectives.equivariance import equivariance
from palpate.objectives.paper import stay, touch

quick = settings(deadline=None, max_examples=25, derandomize=True, database=None)


# Points in space: the ideal representation


class Points(NamedTuple):
    s_int: Tensor  # [b, n]
    a: Tensor  # [b, n]
    s_ext: Tensor  # [b, n]
    s_ext_next: Tensor  # [b, n]
    touched: Tensor  # [b] bool


def points(n: int, seed: int, count: int = 400) -> Points:
    """Exact contacts of points: half of the objects lie on the path and land elsewhere, the others stay."""
    generator = torch.Generator().manual_seed(seed)
    s_int, target, s_ext, landed = torch.rand(4, count, n, generator=generator, dtype=torch.float64)
    a = target - s_int
    touched = torch.arange(count) % 2 == 0
    on_path = s_int + torch.rand(count, 1, generator=generator, dtype=torch.float64) * a
    s_ext = torch.where(touched[:, None], on_path, s_ext)
    return Points(s_int, a, s_ext, torch.where(touched[:, None], landed, s_ext), touched)


def losses(world: Points, h_int: Tensor, h_ext: Tensor) -> dict[str, float]:
    """Eq. 3, 4 and 8 for z_int = s_int + h_int, z_ext = s_ext + h_ext."""
    z_int, z_int_next = world.s_int + h_int, world.s_int + world.a + h_int
    z_ext, z_ext_next = world.s_ext + h_ext, world.s_ext_next + h_ext
    test = ((z_int - z_ext) - (world.s_int - world.s_ext)).square().sum(-1)
    return {
        "L_int": equivariance(Translations(world.a.shape[1]), z_int, world.a, z_int_next).mean().item(),
        "L_-": stay(z_ext, z_ext_next)[~world.touched].mean().item(),
        "L_+": touch(z_ext, Segment(z_int, world.a))[world.touched].mean().item(),
        "L_test": test.mean().item(),
    }


shifts = st.lists(st.floats(-5, 5), min_size=3, max_size=3)


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 3), h=shifts)
def test_the_true_state_plus_any_constant_has_no_loss(seed: int, n: int, h: list[float]) -> None:
    shift = torch.tensor(h[:n], dtype=torch.float64)
    for name, value in losses(points(n, seed), shift, shift).items():
        assert value == pytest.approx(0, abs=1e-20), name


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_losses_separate_contacts_from_other_triples(n: int) -> None:
    """The zeros above mean something: on the other half of the triples each of the two losses is large."""
    world = points(n, 0)
    assert stay(world.s_ext, world.s_ext_next)[world.touched].mean() > 0.05
    if n > 1:
        assert touch(world.s_ext, Segment(world.s_int, world.a))[~world.touched].mean() > 0.01


@quick
@given(seed=st.integers(0, 1000), n=st.integers(2, 3), direction=shifts)
def test_shifting_only_the_object_increases_the_contact_loss(seed: int, n: int, direction: list[float]) -> None:
    shift = torch.tensor(direction[:n], dtype=torch.float64)
    if shift.norm() < 1e-2:
        shift = torch.ones(n, dtype=torch.float64)
    shift /= shift.norm()
    world, zero = points(n, seed), torch.zeros(n, dtype=torch.float64)
    values = [losses(world, zero, size * shift) for size in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)]
    touches = [value["L_+"] for value in values]
    assert touches == sorted(touches)
    # Paths run in all directions, so a share of the shift is across them: far more than rounding.
    assert all(now > 0.1 * size**2 for now, size in zip(touches[1:], (0.01, 0.03, 0.1, 0.3, 1.0), strict=True))
    for value in values:  # the other two losses do not see it
        assert value["L_int"] == pytest.approx(0, abs=1e-20)
        assert value["L_-"] == pytest.approx(0, abs=1e-20)


@quick
@given(seed=st.integers(0, 1000), n=st.integers(1, 3), h_int=shifts, h_ext=shifts)
def test_different_shifts_cost_their_squared_difference_in_the_test_loss(
    seed: int, n: int, h_int: list[float], h_ext: list[float]
) -> None:
    one, two = (torch.tensor(h[:n], dtype=torch.float64) for h in (h_int, h_ext))
    value = losses(points(n, seed, count=50), one, two)
    assert value["L_test"] == pytest.approx((one - two).square().sum().item(), abs=1e-12)
    assert value["L_int"] == pytest.approx(0, abs=1e-20)


# The grid: an exhaustive learner

Cell = tuple[int, int]
State = tuple[Cell, Cell]  # agent, object
Rule = Literal["on", "apart"]
UNIT = 2  # a cell is two units wide, so that candidates may lie half-way between cells and all arithmetic is integer


def on_open_segment(point: Cell, start: Cell, end: Cell) -> bool:
    """Whether `point` lies strictly between the ends, in integers: collinear, and the ends on opposite sides."""
    to_start = (start[0] - point[0], start[1] - point[1])
    to_end = (end[0] - point[0], end[1] - point[1])
    cross = to_start[0] * to_end[1] - to_start[1] * to_end[0]
    dot = to_start[0] * to_end[0] + to_start[1] * to_end[1]
    return cross == 0 and dot < 0


class Grid:
    """All states and transitions of a finite world."""

    def __init__(self, width: int, height: int, objects: Iterable[Cell], rule: Rule) -> None:
        self.cells = [(UNIT * x, UNIT * y) for x in range(width) for y in range(height)]
        self.objects = [(UNIT * x, UNIT * y) for x, y in objects]
        allowed = [(p, q) for p in self.cells for q in self.objects if rule == "on" or p != q]
        self.states: list[State] = allowed
        # s -> [(p', {s'})]: each move with all states it may lead to
        self.moves: dict[State, list[tuple[Cell, list[State]]]] = {}
        for p, q in self.states:
            self.moves[p, q] = []
            for target in self.cells:
                if target == p or (rule == "apart" and target == q):
                    continue
                landings = [q]
                if on_open_segment(q, p, target):
                    landings = [cell for cell in self.objects if cell != q and (rule == "on" or cell != target)]
                self.moves[p, q].append((target, [(target, landing) for landing in landings]))

    def transitions(self) -> Iterator[tuple[State, Cell, State]]:
        """Every (s, p', s')."""
        for state, moves in self.moves.items():
            for target, outcomes in moves:
                for outcome in outcomes:
                    yield state, target, outcome

    def truth(self) -> dict[State, Cell]:
        return {(p, q): q for p, q in self.states}


def candidates(width: int, height: int) -> list[Cell]:
    """Where z_ext may be sought: cells, half-way places between them, and a ring one cell wide around the grid."""
    return [(x, y) for x in range(-UNIT, UNIT * width + 1) for y in range(-UNIT, UNIT * height + 1)]


def fulfils(grid: Grid, z_ext: dict[State, Cell]) -> bool:
    """Conditions 2 and 3 of the theorem with z_int = s_int, checked plainly; the verdict every search must bow to."""
    if len({(p, z_ext[p, q]) for p, q in grid.states}) < len(grid.states):
        return False
    return all(
        z_ext[outcome] == z_ext[state] or on_open_segment(z_ext[state], state[0], target)
        for state, target, outcome in grid.transitions()
    )


def follows(grid: Grid, state: State, place: Cell) -> frozenset[State] | None:
    """The states where z_ext must be `place` too if it is so in `state`; None if that breaks injectivity.

    Condition 3 carries a value unchanged along every transition whose path does not pass through it, so one choice
    forces a whole set of states; two of them that share the agent's cell have the same representation.
    """
    forced, open_states = {state}, [state]
    agents = {state[0]: state}
    while open_states:
        here = open_states.pop()
        for target, outcomes in grid.moves[here]:
            if on_open_segment(place, here[0], target):
                continue
            for outcome in outcomes:
                if outcome in forced:
                    continue
                if target in agents:
                    return None
                agents[target] = outcome
                forced.add(outcome)
                open_states.append(outcome)
    return frozenset(forced)


def search(grid: Grid, places: list[Cell]) -> list[dict[State, Cell]]:
    """All maps s -> z_ext(s) with values in `places` that meet the theorem's conditions with z_int = s_int.

    Complete backtracking: the state with the fewest values left is branched on, and each choice assigns all that
    follows from it and removes what injectivity then forbids.
    """
    domains: dict[State, dict[Cell, frozenset[State]]] = {}
    for state in grid.states:
        consequences = {place: follows(grid, state, place) for place in places}
        domains[state] = {place: forced for place, forced in consequences.items() if forced is not None}
    by_agent: dict[Cell, list[State]] = {}
    for state in grid.states:
        by_agent.setdefault(state[0], []).append(state)
    found: list[dict[State, Cell]] = []

    def possible(state: State, place: Cell, chosen: dict[State, Cell]) -> bool:
        for forced in domains[state][place]:
            if chosen.get(forced, place) != place or place not in domains[forced]:
                return False
            if any(other != forced and chosen.get(other) == place for other in by_agent[forced[0]]):
                return False
        return True

    def extend(chosen: dict[State, Cell]) -> None:
        open_states = [state for state in grid.states if state not in chosen]
        if not open_states:
            found.append(dict(chosen))
            return
        fits = {s: [place for place in domains[s] if possible(s, place, chosen)] for s in open_states}
        state = min(open_states, key=lambda s: len(fits[s]))
        for place in fits[state]:
            extend(chosen | dict.fromkeys(domains[state][place], place))

    extend({})
    return found


INTERIOR = {(4, 4): list(itertools.product((1, 2), (1, 2))), (5, 4): list(itertools.product((1, 2, 3), (1, 2)))}


def test_open_segments_on_the_grid() -> None:
    assert on_open_segment((2, 2), (0, 0), (6, 6))
    assert on_open_segment((3, 1), (0, 0), (6, 2))
    assert not on_open_segment((0, 0), (0, 0), (6, 6)), "an end"
    assert not on_open_segment((8, 8), (0, 0), (6, 6)), "on the line beyond the end"
    assert not on_open_segment((2, 4), (0, 0), (6, 6)), "beside"


@pytest.mark.parametrize(("shape", "rule"), [((4, 4), "apart"), ((5, 4), "on")], ids=str)
def test_equivariance_alone_fixes_the_agent_up_to_a_translation(shape: tuple[int, int], rule: Rule) -> None:
    """Every state can be reached from any one, and z_int' = z_int + a then leaves one free vector: the search below
    may take z_int = s_int."""
    grid = Grid(*shape, INTERIOR[shape], rule)
    first = grid.states[0]
    z_int, open_states = {first: (7, -3)}, [first]
    while open_states:
        here = open_states.pop()
        for target, outcomes in grid.moves[here]:
            place = (z_int[here][0] + target[0] - here[0][0], z_int[here][1] + target[1] - here[0][1])
            for outcome in outcomes:
                if outcome not in z_int:
                    open_states.append(outcome)
                assert z_int.setdefault(outcome, place) == place
    assert set(z_int) == set(grid.states)
    assert {(z[0] - p[0], z[1] - p[1]) for (p, _), z in z_int.items()} == {(7 - first[0][0], -3 - first[0][1])}


@pytest.mark.parametrize(("shape", "rule"), [((4, 4), "apart"), ((5, 4), "on")], ids=str)
def test_with_the_object_in_the_interior_the_truth_is_the_only_representation(
    shape: tuple[int, int], rule: Rule
) -> None:
    grid = Grid(*shape, INTERIOR[shape], rule)
    places = candidates(*shape)
    assert len(places) > 4 * len(grid.cells) > len(grid.objects)
    assert fulfils(grid, grid.truth())
    assert search(grid, places) == [grid.truth()]


@pytest.mark.parametrize("rule", ["on", "apart"])
def test_the_truth_meets_the_appendix_stricter_condition_too(rule: Rule) -> None:
    """There z_ext' differs from z_ext if *and only if* z_ext lies on the path."""
    grid = Grid(4, 4, INTERIOR[4, 4], rule)
    z_ext = grid.truth()
    for state, target, outcome in grid.transitions():
        assert (z_ext[outcome] != z_ext[state]) == on_open_segment(z_ext[state], state[0], target)


@pytest.mark.parametrize(("where", "rule"), [("corner", "apart"), ("edge", "on")])
def test_with_objects_on_the_border_there_are_others(where: str, rule: Rule) -> None:
    """A corner lies on no open segment, so no transition determines its representation. A cell of an edge lies only on
    segments along that edge, so its representation may be half a cell further along it."""
    extra = (0, 0) if where == "corner" else (1, 0)
    grid = Grid(4, 4, [*INTERIOR[4, 4], extra], rule)
    found = search(grid, candidates(4, 4))
    assert grid.truth() in found
    assert len(found) > 1
    assert all(fulfils(grid, z_ext) for z_ext in found)
    wrong = UNIT * extra[0], UNIT * extra[1]
    for z_ext in found:  # the interior objects are right in all of them
        assert all(z_ext[p, q] == q for p, q in grid.states if q != wrong)


@pytest.mark.parametrize("rule", ["on", "apart"])
def test_two_corners_may_be_exchanged_even_under_the_appendix_condition(rule: Rule) -> None:
    corners = (0, 0), (3, 3)
    grid = Grid(4, 4, [*INTERIOR[4, 4], *corners], rule)
    exchange = {(0, 0): (6, 6), (6, 6): (0, 0)}
    swapped = {(p, q): exchange.get(q, q) for p, q in grid.states}
    assert fulfils(grid, swapped)
    for state, target, outcome in grid.transitions():
        assert (swapped[outcome] != swapped[state]) == on_open_segment(swapped[state], state[0], target)
    found = search(grid, grid.cells)
    assert swapped in found
    assert grid.truth() in found


@pytest.mark.parametrize(("objects", "rule"), [([1], "on"), ([1, 2], "apart"), ([0, 1], "apart")], ids=str)
def test_the_search_agrees_with_trying_everything(objects: list[int], rule: Rule) -> None:
    """On a line of four cells every map can be tried. (In one dimension others exist: the proof needs a way around.)"""
    grid = Grid(4, 1, [(x, 0) for x in objects], rule)
    places = [(x, 0) for x in (0, 2, 4, 6)]
    everything = (
        dict(zip(grid.states, values, strict=True)) for values in itertools.product(places, repeat=len(grid.states))
    )
    by_trying = [z_ext for z_ext in everything if fulfils(grid, z_ext)]
    by_search = search(grid, places)
    assert len(by_search) == len(by_trying) > 0
    assert all(z_ext in by_trying for z_ext in by_search)
