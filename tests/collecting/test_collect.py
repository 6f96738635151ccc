import errno
import io
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import ball_world
import gymnasium
import h5py
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor

from palpate import disk
from palpate.collecting.blocks import BLOCK_ROWS, Span, make
from palpate.collecting.collect import Progress, collect
from palpate.collecting.parallel import Recipe
from palpate.collecting.parts import Stopped
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions
from palpate.disk import Busy, alone
from palpate.workers import WorkerError

WORLD = "palpate/SpritesFake-v0"


class States(NamedTuple):
    agent: Tensor
    object: Tensor
    angle: Tensor
    agent_next: Tensor
    object_next: Tensor
    angle_next: Tensor
    displacement: Tensor
    contact: Tensor


class FakeWorld:
    """Pictures show the agent, so that rows can be checked; one triple in four is a contact."""

    device = torch.device("cpu")
    n = 2
    made: dict[str, Any]

    def __init__(self, size: int = 2) -> None:
        self.observation_shape = (1, size, size)
        self.counts: list[int] = []

    def sample(self, count: int, generator: torch.Generator) -> States:
        self.counts.append(count)
        agent, thing, move, thing_next = torch.rand(4, count, 2, generator=generator)
        angle, angle_next = torch.rand(2, count, generator=generator)
        return States(agent, thing, angle, agent + move, thing_next, angle_next, move, move[:, 0] > 0.75)

    def render_pair(self, states: States) -> tuple[Tensor, Tensor]:
        o, o_next = (
            (x[:, :1] * 100).byte()[..., None, None].expand(-1, *self.observation_shape)
            for x in (states.agent, states.agent_next)
        )
        return o, o_next


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """An agent on a line segment that stops at its ends; it reuses its arrays, as environments may."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(-0.5, 0.5, (2,), np.float32)

    def __init__(self, truth: bool = True, horizon: int = 7) -> None:
        self.truth, self.horizon = truth, horizon
        self.at = np.zeros(2, np.float32)
        self.closed = False

    def info(self) -> dict[str, Any]:
        return {"agent": self.at, "object": -self.at, "angle": 0.25} if self.truth else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at[:] = self.np_random.uniform(-1, 1, 2)
        self.steps = 0
        return self.at, self.info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self.at.copy()
        self.at[:] = np.clip(self.at + action, -1, 1)
        self.steps += 1
        moved = self.at - before
        info = self.info() | ({"displacement": moved, "contact": bool(moved[0] > 0)} if self.truth else {})
        return self.at, 0.0, False, self.steps == self.horizon, info

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    fake, module = FakeWorld(), ModuleType("palpate.envs.registration")

    def make(env_id: str, **options: Any) -> FakeWorld:
        if env_id != WORLD:
            raise ValueError(f"no environment {env_id}; did you mean {WORLD}?")
        fake.made = options
        return fake

    module.world = make
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake


def interrupt_at(rows: int) -> Progress:
    """Ctrl-C once so many rows are done."""

    def progress(done: int, total: int) -> None:
        if done >= rows:
            raise KeyboardInterrupt

    return progress


class TestWorld:
    @pytest.mark.parametrize(("progress", "says"), [({}, "collecting 300/300"), ({"progress": False}, "")])
    def test_it_shows_how_far_it_is(
        self, world: FakeWorld, progress: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        collect(WORLD, 300, seed=3, **progress)
        said = capsys.readouterr().err
        assert says in said if says else not said

    def test_generates_in_batches(self, world: FakeWorld) -> None:
        seen: list[tuple[int, int]] = []
        data = collect(WORLD, 300, seed=3, contact_share=None, progress=lambda *at: seen.append(at))
        assert isinstance(data, Transitions)
        assert len(data) == 300
        assert world.counts == [BLOCK_ROWS] * 3  # whole blocks, of which the last is cut
        assert seen == [(0, 300), (128, 300), (256, 300), (300, 300)]
        assert world.made == {"contact_share": None}
        assert data.attributes == {"environment": WORLD, "seed": 3, "contact_share": "None"}

    def test_rows_belong_together(self, world: FakeWorld) -> None:
        data = collect(WORLD, 600, labelled=True)
        batch, truth = data.transitions.rows(slice(None)), data.truth
        assert torch.equal(batch.o[:, 0, 0, 0], (truth.agent[:, 0] * 100).byte())
        assert torch.equal(truth.agent + batch.a, truth.agent_next)
        assert torch.equal(truth.contact, batch.a[:, 0] > 0.75)

    def test_file_and_memory_agree(self, world: FakeWorld, tmp_path: Path) -> None:
        memory = collect(WORLD, 600, seed=1, labelled=True)
        with collect(WORLD, 600, seed=1, labelled=True, out=tmp_path / "log.h5") as stored:
            assert memory.truth.known().keys() == stored.truth.known().keys()
            for name, x in memory.truth.known().items():
                assert torch.equal(x, stored.truth.known()[name])
            index = [599, 3, 3]
            for x, y in zip(memory.transitions.rows(index), stored.transitions.rows(index), strict=True):
                assert torch.equal(x, y)

    def test_files_carry_the_truth_but_transitions_do_not(self, world: FakeWorld, tmp_path: Path) -> None:
        with collect(WORLD, 5, out=tmp_path / "log.h5") as data:
            assert isinstance(data, Transitions)
        with Labelled.open(tmp_path / "log.h5") as stored:
            assert len(stored) == 5
            turning = {"heading", "heading_next", "rotation", "rotation_next"}
            assert set(Truth._fields) - stored.truth.known().keys() == {"visible"} | turning

    def test_same_seed_same_bytes(self, world: FakeWorld, tmp_path: Path) -> None:
        for name in ("one", "two"):
            collect(WORLD, 40, seed=7, out=tmp_path / name).close()
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_unknown_id(self, world: FakeWorld) -> None:
        with pytest.raises(ValueError, match=f"did you mean {WORLD}"):
            collect("palpate/Sprite-v0", 5)

    def test_a_file_says_how_it_was_made(self, tmp_path: Path) -> None:
        with collect("palpate/Soccer-v0", 3, out=tmp_path / "log.h5", size=16, contact_share=None) as stored:
            said = stored.attributes
        assert (said["view"], said["size"], said["contact_share"], said["stride"]) == ("third", 16, "None", 0.3)
        assert said["world_version"] >= 2

    def test_an_existing_file_is_kept(self, world: FakeWorld, tmp_path: Path) -> None:
        (tmp_path / "log.h5").write_text("mine")
        with pytest.raises(FileExistsError, match="overwrite=True"):
            collect(WORLD, 5, out=tmp_path / "log.h5")
        assert not world.counts  # before any work
        collect(WORLD, 5, out=tmp_path / "log.h5", overwrite=True).close()

    @pytest.mark.parametrize(("option", "value"), [("num", 0), ("workers", 0), ("seed", -1)])
    def test_numbers(self, world: FakeWorld, option: str, value: int) -> None:
        with pytest.raises(ValueError, match=f"{option} is {value}; allowed is . or more"):
            collect(WORLD, **{"num": 3, option: value})

    def test_the_first_rows_do_not_depend_on_how_many_there_are(self, world: FakeWorld) -> None:
        few, many = collect(WORLD, 140), collect(WORLD, 400)
        assert torch.equal(few.rows(slice(None)).o, many.rows(slice(140)).o)

    def test_interrupted_before_the_first_block(self, world: FakeWorld, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            collect(WORLD, 600, out=tmp_path / "log.h5", progress=interrupt_at(0))
        assert not os.listdir(tmp_path)


@pytest.mark.filterwarnings("ignore:actions are taken for the agent's displacements")
class TestEnvironment:
    def test_steps_with_truth(self) -> None:
        data = collect(Walk(), 150, seed=2, labelled=True)  # two blocks, many episodes
        batch, truth = data.transitions.rows(slice(None)), data.truth
        assert torch.equal(batch.o, truth.agent)
        assert torch.equal(batch.o_next, truth.agent_next)
        assert torch.equal(truth.object, -truth.agent)
        assert torch.allclose(batch.o + batch.a, batch.o_next, atol=1e-6)  # what was achieved, not what was asked
        assert torch.equal(truth.contact, batch.a[:, 0] > 0)
        assert truth.angle.unique().tolist() == [0.25]
        row = torch.arange(150)
        ends = (row % BLOCK_ROWS % 7 == 6) | (row == BLOCK_ROWS - 1)  # a block begins with an episode of its own
        joined = (batch.o_next[:-1] == batch.o[1:]).all(1)
        assert torch.equal(joined, ~ends[:-1])
        assert data.transitions.attributes == {"environment": "Walk", "seed": 2}

    def test_steps_that_an_environment_rejects_are_dropped_and_counted(self) -> None:
        class Rejecting(Walk):
            taken = 0

            def step(self, action: np.ndarray) -> Any:
                *result, info = super().step(action)
                self.taken += 1
                return (*result, info | {"grazing": self.taken % 5 == 0, "unsettled": self.taken % 50 == 1})

        data = collect(Rejecting(), 90, seed=2)
        plain = collect(Walk(), BLOCK_ROWS, seed=2).rows(slice(None)).a
        kept = [i for i in range(BLOCK_ROWS) if (i + 1) % 5 and (i + 1) % 50 != 1][:90]
        assert torch.equal(data.rows(slice(None)).a, plain[kept])
        dropped = {"dropped_grazing": kept[-1] // 5, "dropped_unsettled": 3}
        assert data.attributes == {"environment": "Rejecting", "seed": 2, **dropped}

    def test_the_action_is_the_default_displacement(self) -> None:
        with pytest.warns(UserWarning, match="if they are commands, give a reading of the agent.s position"):
            data = collect(Walk(truth=False), 20, seed=5)
        block_seed = int(np.random.SeedSequence((5, 0)).generate_state(1)[0])
        actions = Box(-0.5, 0.5, (2,), np.float32, seed=block_seed)
        np.testing.assert_array_equal(data.rows(slice(None)).a, np.stack([actions.sample() for _ in range(20)]))

    def test_pictures(self, tmp_path: Path) -> None:
        class Camera(gymnasium.ObservationWrapper):
            observation_space = Box(0, 255, (4, 5, 3), np.uint8)

            def observation(self, at: np.ndarray) -> np.ndarray:
                return np.broadcast_to((at[0] * 100 + 100).astype(np.uint8), (4, 5, 3))

        with collect(Camera(Walk()), 9, out=tmp_path / "log.h5") as data:
            assert data.observation_shape == (3, 4, 5)
        with h5py.File(tmp_path / "log.h5") as file:
            assert file["observation"].shape == (9, 3, 4, 5)
            assert len(file["truth/agent"]) == 9

    def test_registered_ids_are_made_and_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = []

        def make(**options: Any) -> Walk:
            made.append(Walk(**options))
            return made[0]

        spec = gymnasium.envs.registration.EnvSpec("Walk-v0", make, disable_env_checker=True)
        monkeypatch.setitem(gymnasium.registry, "Walk-v0", spec)
        data = collect("Walk-v0", 5, horizon=3)
        assert len(data) == 5
        assert data.attributes == {"environment": "Walk-v0", "seed": 0, "horizon": 3}
        assert made[0].horizon == 3
        assert made[0].closed

    def test_the_callers_environment_stays_open(self) -> None:
        env = Walk()
        collect(env, 3)
        assert not env.closed

    @pytest.mark.parametrize("space", [Box(-1, 1, (2, 2)), Dict(x=Box(-1, 1, (2,)))])
    def test_action_spaces(self, space: gymnasium.Space[Any], tmp_path: Path) -> None:
        class Deaf(Walk):
            def step(self, action: Any) -> Any:
                return super().step(np.full(2, 0.1, np.float32))

        env = Deaf(truth=False)
        env.action_space = space
        with pytest.raises(
            ValueError, match=r"the action space is .*, so actions are not displacements; give a reading"
        ):
            collect(env, 3, out=tmp_path / "log.h5")
        assert not os.listdir(tmp_path)
        env.truth = True  # it reports its displacements now, and any action will do
        assert len(collect(env, 3)) == 3

    def test_broken_observations(self, tmp_path: Path) -> None:
        class Broken(gymnasium.ObservationWrapper):
            def observation(self, at: np.ndarray) -> np.ndarray:
                return at * np.nan

        with pytest.raises(ValueError, match="observation has the value nan in row 0"):
            collect(Broken(Walk()), 3, out=tmp_path / "log.h5")
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize("out", ["log.h5", None])
    def test_labelled_needs_truth(self, tmp_path: Path, out: str | None) -> None:
        with pytest.raises(ValueError, match="does not report true states in every step; needed are agent and"):
            collect(Walk(truth=False), 3, labelled=True, out=tmp_path / out if out else None)
        assert not os.listdir(tmp_path)

    def test_options_are_for_ids(self) -> None:
        with pytest.raises(ValueError, match=r"options \['contact_share'\] are for ids; set them on the environment"):
            collect(Walk(), 3, contact_share=0.5)

    def test_true_states_must_be_reported_in_every_step(self) -> None:
        class Forgetful(gymnasium.Wrapper):
            steps = 0

            def step(self, action: np.ndarray) -> tuple[Any, ...]:
                *rest, info = super().step(action)
                self.steps += 1
                return *rest, info if self.steps < 130 else {}

        with pytest.raises(ValueError, match="does not report true states in every step"):
            collect(Forgetful(Walk()), 300)

    def test_angles_are_not_needed(self) -> None:
        class Round(gymnasium.Wrapper):
            def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
                o, info = super().reset(**options)
                return o, {"agent": info["agent"], "object": info["object"]}

            def step(self, action: np.ndarray) -> tuple[Any, ...]:
                *rest, info = super().step(action)
                return *rest, {name: x for name, x in info.items() if name != "angle"}

        truth = collect(Round(Walk()), 9, labelled=True).truth
        assert truth.angle is truth.angle_next is None
        assert torch.equal(truth.agent, -truth.object)


@pytest.fixture
def soccer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palpate.envs.registration.world", ball_world.world)


def contents(path: Path) -> dict[str, bytes]:
    with h5py.File(path) as file:
        names = [*("observation", "action", "next_observation"), *(f"truth/{name}" for name in file["truth"])]
        return {name: file[name][...].tobytes() for name in names}


def backwards(recipe: Recipe, wanted: list[Span], workers: int) -> Iterator[Any]:
    """Replaces processes, whose blocks come in any order; spawning them takes seconds."""
    for span in reversed(wanted):
        try:
            yield recipe.finish(make(recipe.world(), recipe.seed, span))
        except ArithmeticError as error:
            raise WorkerError(f"a worker failed: {error}") from error


@pytest.mark.usefixtures("soccer")
class TestRowWorld:
    def test_both_views_of_the_same_triples(self) -> None:
        third, first = (collect(env, 300, seed=2, labelled=True) for env in (ball_world.THIRD, ball_world.FIRST))
        for x, y in zip(third.truth.known().values(), first.truth.known().values(), strict=True):
            assert torch.equal(x, y)
        assert torch.equal(third.transitions.action, first.transitions.action)
        assert third.transitions.observation_shape == (3, 8, 8)
        assert first.transitions.observation_shape == (12, 8, 8)
        assert (third.transitions.views, first.transitions.views) == (1, 4)

    def test_the_number_of_views_is_in_the_file(self, tmp_path: Path) -> None:
        with collect(ball_world.FIRST, 140, out=tmp_path / "log.h5") as stored:
            assert stored.views == stored.subset([0, 1]).views == 4
            stored.save(tmp_path / "copy.h5")
        with Transitions.open(tmp_path / "copy.h5") as copied:
            assert copied.views == 4

    def test_what_was_dropped_is_counted(self, tmp_path: Path) -> None:
        assert collect(ball_world.THIRD, 300).attributes["dropped_grazing"] == 30
        with collect(ball_world.THIRD, 300, out=tmp_path / "log.h5") as stored:
            assert stored.attributes == {"environment": ball_world.THIRD, "seed": 0, "dropped_grazing": 30}

    def test_workers_in_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.collecting.origins.blocks_of_workers", backwards)
        one, two = (collect(ball_world.FIRST, 300, seed=2, workers=workers, labelled=True) for workers in (1, 2))
        assert one.transitions.attributes == two.transitions.attributes
        for x, y in zip(one.truth.known().values(), two.truth.known().values(), strict=True):
            assert torch.equal(x, y)
        for x, y in zip(one.transitions.rows(slice(None)), two.transitions.rows(slice(None)), strict=True):
            assert torch.equal(x, y)

    def test_bad_settings_start_no_worker(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.collecting.parallel.Worker", None)
        with pytest.raises(ValueError, match=r"contact_share is 1\.5"):
            collect(ball_world.THIRD, 300, workers=2, contact_share=1.5, out=tmp_path / "log.h5")
        assert not os.listdir(tmp_path)

    def test_a_worker_that_fails_loses_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.collecting.origins.blocks_of_workers", backwards)
        out = tmp_path / "log.h5"
        with pytest.raises(WorkerError, match="the ball is lost") as caught:
            collect(ball_world.THIRD, 1000, workers=2, trouble="raise@200", out=out)
        parts = sorted(tmp_path.glob("log.h5.parts/*.h5"))
        assert len(parts) == 6
        rows = sum(len(Transitions.open(part)) for part in parts)
        assert caught.value.__notes__ == [
            f"{rows} of 1000 triples are kept in {out}.parts; continue with resume=True (--resume)"
        ]
        monkeypatch.setattr(ball_world.Ball, "fail", lambda self: None)  # mended
        collect(ball_world.THIRD, 1000, workers=2, trouble="raise@200", out=out, resume=True).close()
        collect(ball_world.THIRD, 1000, out=tmp_path / "straight.h5").close()
        assert contents(out) == contents(tmp_path / "straight.h5")


@pytest.mark.usefixtures("soccer")
class TestResume:
    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path) -> None:
        self.out, self.folder = tmp_path / "log.h5", tmp_path / "log.h5.parts"

    def collect(self, num: int = 500, **options: Any) -> dict[str, bytes]:
        out = options.pop("out", self.out)
        collect(ball_world.THIRD, num, size=16, out=out, **{"seed": 4} | options).close()
        return contents(out)

    def straight(self, num: int = 500) -> dict[str, bytes]:
        return self.collect(num, out=self.out.with_name(f"straight-{num}.h5"))

    def stop(self, rows: int = 256) -> None:
        with pytest.raises(Stopped, match=rf"stopped; {rows} of 500 triples are kept in .*log\.h5\.parts$"):
            self.collect(progress=interrupt_at(rows))

    @pytest.mark.parametrize("rows", [128, 384, 500])  # 500: while joining
    def test_equals_straight_through(self, rows: int) -> None:
        self.stop(rows)
        assert not self.out.exists()
        seen: list[int] = []
        assert self.collect(resume=True, progress=lambda done, total: seen.append(done)) == self.straight()
        assert seen == [x for x in (0, 128, 256, 384, 500) if x >= rows]  # what is there is not made again
        assert not self.folder.exists()

    def test_parts_can_be_read(self) -> None:
        self.stop()
        assert sorted(os.listdir(self.folder)) == [
            "00000000-00000128.h5", "00000128-00000256.h5", "collection.json"
        ]  # fmt: skip
        with Labelled.open(self.folder / "00000128-00000256.h5") as part:
            assert len(part) == 128
            assert part.transitions.attributes["environment"] == ball_world.THIRD

    @pytest.mark.parametrize("num", [100, 256, 700])
    def test_another_number(self, num: int) -> None:
        self.stop()
        assert self.collect(num, resume=True) == self.straight(num)

    def test_a_last_part_that_was_short_is_lengthened(self) -> None:
        self.stop(500)  # the last part holds 384 to 500
        with pytest.raises(Stopped):
            self.collect(600, resume=True, progress=interrupt_at(512))
        assert len(list(self.folder.glob("00000384-*.h5"))) == 2
        assert self.collect(600, resume=True) == self.straight(600)

    def test_a_gap_is_filled(self) -> None:
        """Workers finish in any order."""
        self.stop()
        (self.folder / "00000000-00000128.h5").unlink()
        assert self.collect(resume=True) == self.straight()

    def test_a_refused_process_deletes_nothing(self) -> None:
        """The temporary files of the first process stay."""
        self.stop()
        writing = self.folder / ".joined.h5.0123abcd.tmp"
        writing.write_bytes(b"half")
        with pytest.raises(FileExistsError):
            self.collect()
        with pytest.raises(ValueError, match="other settings"):
            self.collect(resume=True, seed=5)
        assert writing.exists()

    def test_two_at_once_are_refused(self) -> None:
        self.stop()
        before = sorted(self.folder.iterdir())
        for how in ({"resume": True}, {"overwrite": True}, {}):
            with alone(self.folder), pytest.raises(Busy, match="another process is working in"):
                self.collect(**how)
        assert sorted(self.folder.iterdir()) == before
        assert self.collect(resume=True) == self.straight()

    def test_killed_at_the_very_beginning(self) -> None:
        self.folder.mkdir()
        (self.folder / ".collection.json.0123abcd.tmp").write_bytes(b"{")
        assert self.collect() == self.straight()

    def test_killed_while_writing(self) -> None:
        self.stop()
        for name in (".00000256-00000384.h5.0123abcd.tmp", ".joined.h5.0123abcd.tmp"):
            (self.folder / name).write_bytes(b"half")
        left: list[Path] = []
        resumed = self.collect(resume=True, progress=lambda done, total: left.extend(self.folder.glob(".*")))
        assert resumed == self.straight()
        assert not left  # they took room

    @pytest.mark.parametrize(
        ("change", "says"),
        [({"seed": 5}, "seed was 4 and is 5"), ({"contact_share": 0.25}, r"contact_share was \S+ and is 0.25")],
    )
    def test_other_settings(self, change: dict[str, Any], says: str) -> None:
        self.stop()
        with pytest.raises(ValueError, match=f"was made with other settings: {says}; resume with the same"):
            self.collect(resume=True, **change)
        assert self.collect(resume=True) == self.straight()  # nothing was lost

    def test_neither_resumed_nor_forced(self) -> None:
        self.stop()
        with pytest.raises(FileExistsError, match=r"log\.h5\.parts exists, .*--resume\), or start again .*--force"):
            self.collect()
        assert self.collect(overwrite=True, seed=5) != self.straight()
        assert not self.folder.exists()

    def test_nothing_to_resume(self) -> None:
        with pytest.raises(FileNotFoundError, match=r"nothing to resume: no folder .*log\.h5\.parts"):
            self.collect(resume=True)
        with pytest.raises(ValueError, match="resume needs out"):
            collect(ball_world.THIRD, 10, resume=True)

    def test_a_foreign_folder_is_refused(self) -> None:
        self.folder.mkdir()
        (self.folder / "thesis.txt").write_text("mine")
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(ValueError, match="exists and is not a collection: it has no valid collection.json"):
                self.collect(**options)
        assert (self.folder / "thesis.txt").read_text() == "mine"
        (self.folder / "collection.json").write_text("[" * 10**5)
        with pytest.raises(ValueError, match="exists and is not a collection: it has no valid collection.json"):
            self.collect(resume=True)

    def test_permission_to_overwrite_is_kept_when_resumed(self) -> None:
        self.out.write_text("old")
        with pytest.raises(Stopped):
            self.collect(overwrite=True, progress=interrupt_at(128))
        assert self.out.read_text() == "old"  # until the new one is complete
        assert self.collect(resume=True) == self.straight()

    def test_a_damaged_part(self) -> None:
        self.stop()
        (self.folder / "00000128-00000256.h5").write_bytes(b"")
        with pytest.raises(ValueError, match=r"00000128-00000256\.h5 is not an HDF5 file.*: delete it, then continue"):
            self.collect(resume=True)
        (self.folder / "00000128-00000256.h5").unlink()
        assert self.collect(resume=True) == self.straight()

    @pytest.mark.parametrize(("share", "parts"), [(0.05, {0}), (0.4, {1, 2, 3}), (0.9, {4})])
    def test_full_disk(self, share: float, parts: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
        """Too little space for the first part, for all parts, or for joining them."""
        written, room = 0, math.inf

        class Small(io.FileIO):
            def write(self, data: memoryview) -> int:
                nonlocal written
                if written >= room:
                    raise OSError(errno.ENOSPC, "No space left on device")
                size = super().write(data[: int(min(room - written, len(data)))])
                written += size
                return size

        with monkeypatch.context() as patch:
            patch.setattr(disk, "open", lambda path, mode, buffering: Small(path, "w+"), raising=False)
            straight = self.straight()
            written, room = 0, int(share * written)
            with pytest.raises(OSError, match="No space left on device") as caught:
                self.collect()
        kept = list(self.folder.glob("*.h5"))
        assert len(kept) in parts
        if kept:
            rows = sum(len(Transitions.open(part)) for part in kept)
            assert caught.value.__notes__[0].startswith(f"{rows} of 500 triples are kept in {self.folder}; continue")
        assert self.collect(resume=bool(kept)) == straight
        assert sorted(os.listdir(self.out.parent)) == ["log.h5", "straight-500.h5"]


class TestStopped:
    """Other worlds can be resumed too: their blocks do not depend on each other."""

    def test_streamed_worlds(self, tmp_path: Path) -> None:
        out, env = tmp_path / "log.h5", "palpate/Sprites-v0"
        with pytest.raises(Stopped):
            collect(env, 300, size=16, out=out, progress=interrupt_at(128))
        collect(env, 300, size=16, out=out, resume=True).close()
        collect(env, 300, size=16, out=tmp_path / "straight.h5").close()
        assert out.read_bytes() == (tmp_path / "straight.h5").read_bytes()

    def test_stepped_environments(self, tmp_path: Path) -> None:
        out = tmp_path / "log.h5"
        with pytest.raises(Stopped, match=r"stopped; 256 of 500 triples are kept in .*log\.h5\.parts$"):
            collect(Walk(), 500, out=out, progress=interrupt_at(256))
        collect(Walk(), 450, out=out, resume=True).close()
        collect(Walk(), 450, out=tmp_path / "straight.h5").close()
        assert out.read_bytes() == (tmp_path / "straight.h5").read_bytes()

    def test_other_readings_are_other_settings(self, tmp_path: Path) -> None:
        out = tmp_path / "log.h5"
        with pytest.raises(Stopped):
            collect(Walk(), 500, out=out, progress=interrupt_at(256))
        with pytest.raises(ValueError, match="other settings: aggregate was unset and is 2"):
            collect(Walk(), 500, out=out, resume=True, aggregate=2)
