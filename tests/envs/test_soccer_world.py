"""Soccer's rows: each depends on the seed and its number alone, whatever the cameras; settings are checked."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from palpate.envs.simulator import engine
from palpate.envs.soccer import Scene, Soccer, SoccerConfig, Triples
from palpate.envs.soccer.config import FENCE_RANGE, GOAL_DEPTH, LEFT_GOAL, RIGHT_GOAL
from palpate.envs.soccer.physics import Outcome

COUNT = 60


def flat(triples: Triples) -> list[np.ndarray]:
    return [*triples.before, triples.action, *triples.after, triples.contact, triples.stopped]


def same(one: Triples, two: Triples) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(flat(one), flat(two), strict=True))


@pytest.fixture(scope="module")
def world() -> Soccer:
    return Soccer(SoccerConfig(size=32))


@pytest.fixture(scope="module")
def whole(world: Soccer) -> Triples:
    return world.states(3, 0, COUNT)


def test_rows_do_not_depend_on_their_company(world: Soccer, whole: Triples) -> None:
    for start, stop in ((0, 1), (7, 19), (COUNT - 1, COUNT)):
        part = world.states(3, start, stop)
        assert all(np.array_equal(x, y[start:stop]) for x, y in zip(flat(part), flat(whole), strict=True))
    assert world.states(3, 5, 5).action.shape == (0, 2)
    assert world.states(3, 5, 5).before.orientation.shape == (0, 4)


def test_drops_are_counted_row_by_row(world: Soccer, whole: Triples) -> None:
    halves = [world.states(3, *span).dropped for span in ((0, COUNT // 2), (COUNT // 2, COUNT))]
    assert whole.dropped == {reason: sum(half[reason] for half in halves) for reason in whole.dropped}


def test_same_seed_same_bytes_and_another_seed_others(world: Soccer, whole: Triples) -> None:
    with Soccer(SoccerConfig(size=100, view="first", shadows=True)) as again:  # cameras do not change the states
        assert same(again.states(3, 0, COUNT), whole)
        assert not same(again.states(4, 0, COUNT), whole)
    one, two = (world.rows(3, 2, 5) for _ in range(2))
    assert np.array_equal(one.observation, two.observation)
    assert np.array_equal(one.next_observation, two.next_observation)


def test_views_differ_only_in_the_observation(world: Soccer) -> None:
    with Soccer(SoccerConfig(view="first", size=32)) as other:
        third, first = world.rows(1, 0, 4), other.rows(1, 0, 4)
    assert third.observation.shape == third.next_observation.shape == (4, 32, 32, 3)
    assert first.observation.shape == first.next_observation.shape == (4, 4, 32, 32, 3)
    for name in third._fields:
        if "observation" not in name:
            assert np.array_equal(getattr(third, name), getattr(first, name)), name


def test_rows_are_the_states_with_their_pictures(world: Soccer, whole: Triples) -> None:
    rows = world.rows(3, 0, 6)
    before, after = whole.before, whole.after
    for got, wanted in (
        (rows.action, whole.action),
        (rows.agent, before.agent),
        (rows.object, before.object),
        (rows.agent_next, after.agent),
        (rows.object_next, after.object),
        (rows.contact, whole.contact),
    ):
        assert np.array_equal(got, wanted[:6])
        assert got.dtype == wanted.dtype
    assert rows.action.dtype == np.float32
    assert rows.contact.dtype == bool
    assert rows.observation.dtype == np.uint8
    assert np.array_equal(rows.next_observation, world.observe(Scene(*(x[:6] for x in after))))
    assert set(rows.dropped) == {"grazing", "unsettled", "missed"}


@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.slow
def test_the_share_of_contacts_is_the_wanted_one(share: float) -> None:
    contact = Soccer(SoccerConfig(contact_share=share)).states(0, 0, 200).contact
    assert contact.mean() == share if share in (0, 1) else contact.mean() == pytest.approx(share, abs=0.08)


def test_random_motion_has_a_rate_of_its_own() -> None:
    natural = Soccer(SoccerConfig(contact_share=None)).states(0, 0, 500)
    assert 0.03 < natural.contact.mean() < 0.2


def test_no_step_is_longer_than_the_stride_and_all_lengths_up_to_it_occur() -> None:
    for stride, far in ((0.1, 0.1), (1.0, 0.9)):
        moved = np.abs(Soccer(SoccerConfig(contact_share=0.0, stride=stride)).states(0, 0, 400).action)
        assert moved.max() <= far + 1e-6
        assert np.quantile(moved, (0.1, 0.9)) == pytest.approx((0.1 * far, 0.75 * far), abs=0.17 * far)


class Reluctant:
    """Physics that spoils the first two proposals of each row."""

    def __init__(self, real: Any, flaw: dict[str, bool]) -> None:
        self.real, self.flaw, self.calls = real, flaw, 0

    def step(self, *arguments: Any) -> Outcome:
        self.calls += 1
        outcome: Outcome = self.real.step(*arguments)
        return outcome._replace(**self.flaw) if self.calls <= 2 else outcome


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        ({"settled": False}, "unsettled"),
        ({"contact": False, "grazing": True}, "grazing"),
        ({"contact": False}, "missed"),
    ],
)
def test_what_is_dropped_is_counted_and_replaced(flaw: dict[str, bool], reason: str) -> None:
    world: Any = Soccer(SoccerConfig(contact_share=1.0))
    plain = world.states(0, 0, 1)
    world._physics = Reluctant(world._physics, flaw)
    spoiled = world.states(0, 0, 1)
    assert spoiled.dropped[reason] == 2
    assert sum(spoiled.dropped.values()) == 2
    assert spoiled.contact.all()
    assert not same(plain, spoiled)


def test_a_closed_world_still_knows_its_states(world: Soccer, whole: Triples) -> None:
    other = Soccer(SoccerConfig(size=32))
    other.close()
    other.close()
    assert same(other.states(3, 0, COUNT), whole)
    with pytest.raises(ValueError, match="was closed"):
        other.observe(whole.before)


@pytest.mark.parametrize(("seed", "start", "stop"), [(-1, 0, 1), (0, -1, 1), (0, 2, 1)])
def test_rows_that_do_not_exist(world: Soccer, seed: int, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="do not exist; allowed are"):
        world.rows(seed, start, stop)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "second"}, "view is 'second'; allowed is 'third' or 'first'"),
        ({"contact_share": 1.5}, "contact_share is 1.5; allowed is a share from 0 to 1"),
        ({"contact_share": float("nan")}, "contact_share is nan"),
        ({"size": 8}, "size is 8; allowed is 16 to 2048"),
        ({"agent_speed": 0.0}, "agent_speed is 0.0; allowed is"),
    ],
)
def test_impossible_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SoccerConfig(**options)


def test_the_goals_lie_inside_the_fence() -> None:
    low, high = FENCE_RANGE
    assert low < LEFT_GOAL[0] < 0.5 < RIGHT_GOAL[0] < high
    assert LEFT_GOAL[1] == RIGHT_GOAL[1] == 0.5
    assert RIGHT_GOAL[0] + GOAL_DEPTH < high + 0.045  # a ball that rests at the fence lies in the net


# MuJoCo, imported late


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    kept = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=kept | environment
    )


@pytest.mark.slow
def test_importing_registers_the_ids_without_importing_mujoco() -> None:
    code = (
        "import sys, gymnasium, palpate.envs\ngymnasium.spec('palpate/Soccer-v0')\nassert 'mujoco' not in sys.modules"
    )
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_mujoco_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    engine.load.cache_clear()
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'palpate\\[soccer\\]'"):
        Soccer()
    monkeypatch.undo()
    engine.load.cache_clear()
    Soccer()


DRAW = (
    "import os, numpy as np\nfrom palpate.envs.soccer import Soccer, SoccerConfig\n"
    "with Soccer(SoccerConfig(size=16)) as w:\n    o = w.rows(0, 0, 1).observation\n"
    "print(os.environ['MUJOCO_GL'], o.std() > 10)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MuJoCo's own choice works")
@pytest.mark.parametrize("before", ["", "import mujoco\n"])
@pytest.mark.slow
def test_a_backend_is_chosen(before: str) -> None:
    done = run(before + DRAW)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() in (["egl", "True"], ["osmesa", "True"])


@pytest.mark.skipif(sys.platform != "linux", reason="the packages named are Debian's")
@pytest.mark.parametrize("backend", ["osmesa", "nonsense"])
@pytest.mark.slow
def test_the_users_backend_is_kept_and_its_failure_says_what_to_install(backend: str) -> None:
    done = run(DRAW, MUJOCO_GL=backend, DISPLAY="", WAYLAND_DISPLAY="")
    if done.returncode == 0:
        assert done.stdout.split() == [backend, "True"]  # OSMesa may be installed
        return
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"OSError: no picture can be drawn: MUJOCO_GL is {backend!r}"), done.stderr
    assert "libegl1" in last
    assert "libosmesa6" in last


@pytest.mark.slow
def test_a_fork_of_a_process_that_has_drawn_says_so() -> None:
    """OpenGL would wait forever."""
    script = (
        "import os, sys\n"
        "from palpate.envs.soccer import Soccer, SoccerConfig\n"
        "import numpy as np\n"
        "world = Soccer(SoccerConfig(size=16))\n"
        "scene = world.reset(np.random.default_rng(0))\n"
        "world.observe(scene)\n"
        "child = os.fork()\n"
        "if child:\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "try:\n"
        "    Soccer(SoccerConfig(size=16)).observe(scene)\n"
        "except OSError as error:\n"
        "    print(error, flush=True)\n"
        "    os._exit(7)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 7, done.stderr
    assert "was forked from one that had drawn pictures" in done.stdout
