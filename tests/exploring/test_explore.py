"""Collecting while learning: rounds, files, kills, errors."""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

import palpate
from palpate import folders
from palpate.collecting.blocks import BLOCK_ROWS
from palpate.collecting.origins import stepped
from palpate.collecting.parts import Parts, Stopped
from palpate.collecting.stepped import MOVES
from palpate.disk import Busy, alone
from palpate.exploring import explore as module
from palpate.exploring.doubts import LeastCertain, canonical
from palpate.exploring.rounds import CHOSEN, RANDOM, Table, stops
from palpate.ranks import ALONE

FIT: dict[str, Any] = {"steps": 2, "evaluate_every": 1, "checkpoint_every": 1}
SMALL: dict[str, Any] = {"first": 128, "rounds": 2, "fit": FIT, "device": "cpu", "progress": False}
NUM = 300
ENDS = [128, 256, 300]

pytestmark = pytest.mark.filterwarnings("ignore:triples with and without contact", "ignore:no move was chosen")


class Puck(gymnasium.Env[np.ndarray, np.ndarray]):
    """An agent in the unit square; a puck that it touches lands elsewhere. An action is a target."""

    observation_space = Box(-9, 9, (6,), np.float32)
    action_space = Box(0, 1, (2,), np.float32)

    def __init__(self) -> None:
        self.commands: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.agent, self.puck = self.np_random.random((2, 2))
        self.left = 20
        return self.look(), self.info(False)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.commands.append(action)
        self.left -= 1
        along = np.linspace(self.agent, action, 30)
        touched = bool((np.linalg.norm(along - self.puck, axis=1) < 0.15).any())
        self.agent = np.array(action, np.float64)
        if touched:
            self.puck = self.np_random.random(2)
        return self.look(), 0.0, False, self.left == 0, self.info(touched)

    def look(self) -> np.ndarray:
        both = np.concatenate((self.agent, self.puck, self.agent**2 - self.puck))
        return both.astype(np.float32)

    def info(self, contact: bool) -> dict[str, Any]:
        return {"at": self.agent, "agent": self.agent, "object": self.puck, "contact": contact}


class Stroller(gymnasium.ActionWrapper):
    """Its actions are lists of targets: no fixed number of numbers."""

    action_space = gymnasium.spaces.Sequence(Puck.action_space)

    def __init__(self) -> None:
        super().__init__(Puck())

    def action(self, action: tuple[np.ndarray, ...]) -> np.ndarray:
        return action[-1] if action else np.full(2, 0.5, np.float32)


def explored(out: Path, env: Any = Puck, **changes: Any) -> palpate.Representation:
    return palpate.explore(env, NUM, out=out, agent_position="info:at", **SMALL | changes)


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of a few steps choose, too."""
    monkeypatch.setattr(module, "trusted", lambda quality: True)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished exploration in which moves were chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "trusted", lambda quality: True)
        out = tmp_path_factory.mktemp("explore") / "done"
        explored(out)
        yield out


class TestFiles:
    def test_all_are_there_and_nothing_else(self, done: Path) -> None:
        assert {path.name for path in done.iterdir()} == {"explore.json", "rounds.jsonl", "triples.h5", "model"}
        with palpate.Labelled.open(done / "triples.h5") as triples:
            assert len(triples) == NUM
            assert triples.transitions.attributes["rounds"] == "128 256 300"
            assert triples.truth.contact is not None
        assert palpate.load(done / "model").facts["training"]["steps"] == 2

    def test_a_line_for_each_round(self, done: Path) -> None:
        rows = [json.loads(line) for line in (done / "rounds.jsonl").read_text().splitlines()]
        assert [row["triples"] for row in rows] == ENDS
        assert [row["moves"] for row in rows] == [RANDOM, CHOSEN, CHOSEN]
        assert all(math.isfinite(row["error"]) and row["verdict"] for row in rows)
        assert [row["round"] for row in rows] == [0, 1, 2]

    def test_the_first_round_is_a_plain_collection(self, done: Path, tmp_path: Path) -> None:
        with (
            palpate.collect(Puck, NUM, agent_position="info:at", out=tmp_path / "plain.h5") as plain,
            palpate.Transitions.open(done / "triples.h5") as chosen,
        ):
            same = (plain.action == chosen.action).all(1)
        assert same[:128].all()
        assert not same[128:].all()

    def test_models_that_are_not_trusted_do_not_choose(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is a plain collection then. Test triples measure each round."""
        monkeypatch.setattr(module, "trusted", lambda quality: False)
        test = palpate.collect(Puck, 40, agent_position="info:at", seed=9, labelled=True)
        with pytest.warns(UserWarning, match="no move was chosen; the last moves were random: contacts are not found"):
            explored(tmp_path / "out", fit=FIT | {"test": test}, rounds=1)
        assert all(made.l_test is not None for made in Table(tmp_path / "out" / "rounds.jsonl").rounds)
        with (
            palpate.collect(Puck, NUM, agent_position="info:at") as plain,
            palpate.Transitions.open(tmp_path / "out" / "triples.h5") as found,
        ):
            assert torch.equal(plain.action, found.action)


class Killed(BaseException):
    """As if the process ended."""


class Killer:
    """Kills once at each of these calls: before the first run of it, and after the second."""

    def __init__(self, patch: pytest.MonkeyPatch, *targets: tuple[Any, str]) -> None:
        self.kills = 0
        for owner, name in targets:
            patch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                self.kill()
            result = function(*arguments, **options)
            if calls == 2:
                self.kill()
            return result

        return call

    def kill(self) -> None:
        self.kills += 1
        raise Killed


def contents(out: Path) -> dict[str, bytes]:
    names = ("triples.h5", "rounds.jsonl", "explore.json", "model/model.safetensors")
    return {name: (out / name).read_bytes() for name in names}


class TestResume:
    def test_kills_at_every_stage_change_nothing(
        self, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusting: None
    ) -> None:
        killer = Killer(
            monkeypatch,
            (Parts, "write"),
            (Parts, "join"),
            (Parts, "remove"),
            (module.api, "fit"),
            (module, "remove"),
            (module.Table, "add"),
            (module.api, "save_model"),
            (module, "fit_steering"),
        )
        out, resume, starts = tmp_path / "out", False, 0
        while True:
            starts += 1
            assert starts < 40
            try:
                explored(out, resume=resume)
                break
            except Killed:
                resume = True
        assert killer.kills == starts - 1 >= 12
        assert contents(out) == contents(done)

    def test_a_finished_one_is_loaded(self, done: Path) -> None:
        before = contents(done)
        o = torch.zeros(2, 6)
        again = explored(done, resume=True).encode(o)
        assert torch.equal(again.agent, palpate.load(done / "model").encode(o).agent)
        assert contents(done) == before

    def test_ctrl_c_while_collecting(self, tmp_path: Path) -> None:
        class Interrupting(Puck):
            def step(self, action: np.ndarray) -> Any:
                if len(self.commands) == 200:
                    raise KeyboardInterrupt
                return super().step(action)

        with pytest.raises(Stopped, match="128 of 256 triples are kept"):
            explored(tmp_path / "out", Interrupting())

    def test_overwriting(self, done: Path, tmp_path: Path, trusting: None) -> None:
        """The old exploration stays until the new one is complete, whatever happens; files of the user stay."""
        out = shutil.copytree(done, tmp_path / "out")
        for name in ("mine.txt", "model/mine.txt"):
            (out / name).write_text("kept")
        old, other = contents(out), {"seed": 3}
        for name, function in (("write", Parts), ("fit", module.api)):
            with pytest.MonkeyPatch.context() as patch:
                Killer(patch, (function, name))
                with pytest.raises(Killed):
                    explored(out, overwrite=True, **other)
            assert contents(out) == old
            palpate.load(out / "model")
        with pytest.raises(ValueError, match="overwriting was made with other settings: .*resume with the same"):
            explored(out, resume=True, chosen_moves=0.3)
        explored(out, resume=True, **other)
        explored(tmp_path / "straight", **other)
        assert contents(out) == contents(tmp_path / "straight") != old
        assert {path.name for path in out.iterdir()} == {path.name for path in done.iterdir()} | {"mine.txt"}
        assert (out / "model" / "mine.txt").read_text() == "kept"
        assert str(out / "triples.h5") in palpate.load(out / "model").facts["data"]
        assert f'data = "{out / "triples.h5"}"' in (out / "model" / "run.toml").read_text()

    def test_overwriting_what_was_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """All of its files are removed, and nothing else."""
        out = tmp_path / "out"
        monkeypatch.setattr(module, "trusted", lambda quality: True)
        with pytest.MonkeyPatch.context() as patch:
            Killer(patch, (module, "fit_steering"))
            with pytest.raises(Killed):
                explored(out)
        assert {"rounds", "explore.json", "triples.h5", "triples.h5.parts"} <= {path.name for path in out.iterdir()}
        with pytest.raises(
            FileExistsError, match=r"out exists; resume the exploration there \(resume=True, --resume\)"
        ):
            explored(out)
        (out / "mine.txt").write_text("kept")
        explored(out, overwrite=True)
        assert {path.name for path in out.iterdir()} == {
            "explore.json", "rounds.jsonl", "triples.h5", "model", "mine.txt"
        }  # fmt: skip

    def test_killed_while_the_new_one_is_put_in_place(self, done: Path, tmp_path: Path) -> None:
        """After each step of it, resuming finishes the work; a model that is there is whole."""
        explored(tmp_path / "new", seed=3)
        new = contents(tmp_path / "new")
        for steps in count(1):
            out = shutil.copytree(done, tmp_path / str(steps))
            shutil.copytree(tmp_path / "new", out / folders.OVERWRITING)
            left = iter(range(steps - 1))
            killed = False

            def dying(act: Callable[..., None], left: Iterator[int] = left) -> Callable[..., None]:
                def acting(*arguments: Any, **options: Any) -> None:
                    nonlocal killed
                    killed = killed or next(left, None) is None
                    if killed:
                        raise Killed
                    act(*arguments, **options)

                return acting

            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                for owner, name in ((os, "replace"), (Path, "unlink")):
                    patch.setattr(owner, name, dying(getattr(owner, name)))
                folders.put_in_place(module.EXPLORATIONS, out / folders.OVERWRITING, out)
            if (out / "model" / "config.json").exists():
                palpate.load(out / "model")
            explored(out, resume=True, seed=3)
            assert contents(out) == new
            assert not (out / folders.OVERWRITING).exists()
            if not killed:
                break
        assert steps > 10


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"rounds": 0}, "rounds is 0; allowed are whole numbers from 1"),
            ({"seed": -1}, "seed is -1"),
            ({"workers": 1.5}, "workers is 1.5"),
            ({"chosen_moves": 1.0}, "chosen_moves is 1.0; allowed is 0 to 0.9"),
            ({"first": 290}, "num is 300, but the first round alone has 290 triples"),
            ({"fit": {"objects": "auto"}}, "fit holds objects 'auto', but explore does not count objects"),
            ({"fit": {"stepps": 3}}, "fit holds 'stepps', which is not a setting of palpate.fit; did you mean 'steps'"),
            ({"fit": {"chosen_moves": 0.3}}, "fit holds 'chosen_moves', .* for all models; give it to explore itself"),
            ({"fit": {"watch": print}}, "fit holds 'watch', .* for all models; leave it out"),
            ({"fit": {"ranks": ALONE}}, "fit holds 'ranks', .* for all models; leave it out"),
            ({"fit": {"method": "vae"}}, "predict no contacts, so that no move can be chosen"),
            ({"fit": {"steps": -1}}, r"steps is -1; allowed is 1 to 2\*\*62"),
            ({"fit": {"batch_size": 127}}, "after the first round: there are 128 triples for batches of 127"),
            ({"fit": {"refine": True}}, "after the first round: refine is True; leave it out"),
            ({"fit": {"encoder": "small"}}, "after the first round: the encoder for vectors is 'small'"),
            ({"fit": {"body": "outlin"}}, "after the first round: .*outline"),
            ({"fit": {"test": 3}}, "test is 3; allowed are labelled triples"),
            ({"env": Stroller}, "the action space is Sequence.*explore can choose moves only if"),
            ({"settel": 3}, r"options \['settel'\] are for ids"),
            ({"env": "palpate/Sprites-v0", "contact_share": 0.5}, "contact_share is for collect"),
            ({"resume": True, "overwrite": True}, "give only one"),
        ],
    )
    def test_bad_input(self, changes: dict[str, Any], says: str, tmp_path: Path) -> None:
        """It is refused before the second triple, and leaves nothing behind."""

        class Counted(Puck):
            def step(self, action: np.ndarray) -> Any:
                assert not self.commands
                return super().step(action)

        with pytest.raises(ValueError, match=says):
            explored(tmp_path / "out", **{"env": Counted} | changes)
        assert not (tmp_path / "out").exists()

    def test_test_triples_of_another_environment(self, tmp_path: Path) -> None:
        palpate.collect("palpate/Sprites-v0", 4, size=16, out=tmp_path / "test.h5").close()
        with pytest.raises(ValueError, match=r"test is .*, but the environment has observations \[6\] and actions of"):
            explored(tmp_path / "out", fit={"test": tmp_path / "test.h5"})
        with pytest.raises(FileNotFoundError, match=r"none\.h5"):
            explored(tmp_path / "out", fit={"test": tmp_path / "none.h5"})
        assert not (tmp_path / "out").exists()

    def test_moves_of_any_action_space_if_none_is_chosen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module._Exploration, "run", lambda self, folder: None)
        explored(tmp_path / "out", Stroller, chosen_moves=0.0)

    @pytest.mark.parametrize(
        ("cut", "says"),
        [
            (lambda content: content[:-20], "line 3 is not a round"),
            (lambda content: b"\xff\n" + content, "line 1 is not a round"),
            (lambda content: b"[1]\n", "line 1 is not a round"),
            (lambda content: b"[" * 10**5, "line 1 is not a round"),
            (lambda content: content[: content.index(b"\n") + 1], "it has 1 rounds, which is too few for 300 triples"),
            (lambda content: b"", "it has 0 rounds, which is too few for 300 triples"),
            (lambda content: content[content.index(b"\n") + 1 :], "its rounds are not those of this exploration"),
        ],
        ids=["cut line", "not text", "not an object", "nested", "cut after a line", "empty", "cut before a line"],
    )
    def test_a_damaged_table(self, cut: Callable[[bytes], bytes], says: str, done: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(done, out)
        table = out / "rounds.jsonl"
        table.write_bytes(cut(table.read_bytes()))
        with pytest.raises(ValueError, match=rf"rounds.jsonl is damaged: {says}\. The triples .* are kept") as error:
            explored(out, resume=True)
        assert "\n" not in str(error.value)

    def test_damaged_triples(self, done: Path, tmp_path: Path) -> None:
        """The error names the file, wherever the damage is."""
        path, index = tmp_path / "triples.h5", np.arange(NUM)
        content, refusals = (done / "triples.h5").read_bytes(), 0
        whole = module._commands(done / "triples.h5", index)
        for at in range(0, len(content), len(content) // 500):
            path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
            try:
                assert module._rows(path) == NUM
                assert torch.equal(module._commands(path, index), whole)
            except ValueError as error:
                if str(path) not in str(error):
                    raise
                refusals += 1
        assert refusals > 10

    @pytest.mark.parametrize("content", ["{", "[" * 10**5], ids=["cut", "nested"])
    def test_damaged_settings(self, content: str, done: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        shutil.copytree(done, out)
        (out / "explore.json").write_text(content)
        with pytest.raises(ValueError, match=r"explore\.json is damaged, .*overwrite the exploration \(overwrite=True"):
            explored(out, resume=True)

    def test_nothing_to_resume(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="holds no exploration to resume"):
            explored(tmp_path, resume=True)

    def test_other_settings(self, done: Path) -> None:
        with pytest.raises(ValueError, match="chosen_moves was 0.5 and is 0.3; resume with the same settings"):
            explored(done, resume=True, chosen_moves=0.3)

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("kept")
        with pytest.raises(FileExistsError, match="exists; resume the exploration there"):
            explored(tmp_path)
        with pytest.raises(ValueError, match="is not an exploration of palpate and is not overwritten; choose another"):
            explored(tmp_path, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    def test_one_process_at_a_time(self, done: Path) -> None:
        with alone(done, inside=True), pytest.raises(Busy, match="another process is working in done"):
            explored(done, resume=True)


class TestStops:
    def test_each_round_doubles(self) -> None:
        assert stops(4096, 3, None) == [512, 1024, 2048, 4096]

    @pytest.mark.parametrize("num", [400, 1000, 5000, 12345])
    @pytest.mark.parametrize("rounds", [1, 2, 5, 30])
    @pytest.mark.parametrize("first", [None, 100, 256])
    def test_whole_blocks_that_grow(self, num: int, rounds: int, first: int | None) -> None:
        found = stops(num, rounds, first)
        assert found[-1] == num
        assert all(low < high for low, high in pairwise(found))
        assert all(end % BLOCK_ROWS == 0 for end in found[:-1])
        assert 2 <= len(found) <= rounds + 1


class Largest:
    """Chooses the command whose first number is largest."""

    def __init__(self, share: float) -> None:
        self.share, self.seen = share, []  # type: ignore[var-annotated]

    def __call__(self, observation: np.ndarray, commands: np.ndarray) -> int:
        self.seen.append((observation, commands))
        return int(commands[:, 0].argmax())


class TestChoice:
    @pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
    def test_a_share_of_the_commands_is_chosen(self, share: float) -> None:
        env, chooser = Puck(), Largest(share)
        origin = stepped(env, 0, 1, {"agent_position": "info:at"}, chooser=chooser)
        rows = origin.world.rows(0, 0, 128)
        assert np.array_equal(rows.command, np.stack(env.commands))
        assert abs(len(chooser.seen) - share * 128) < 30
        assert all(commands.shape == (MOVES, 2) for _, commands in chooser.seen)
        before = [tuple(o) for o in rows.observation]
        for observation, commands in chooser.seen:  # only what was seen before the move
            assert commands[:, 0].max() == rows.command[before.index(tuple(observation))][0]

    def test_commands_are_in_the_file_even_if_discrete(self, tmp_path: Path) -> None:
        class Turns(gymnasium.ActionWrapper):
            action_space = gymnasium.spaces.Discrete(4)

            def action(self, action: Any) -> np.ndarray:
                return np.array([[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]][action], np.float32)

        palpate.collect(Turns(Puck()), 20, agent_position="info:at", out=tmp_path / "log.h5").close()
        with h5py.File(tmp_path / "log.h5") as file:
            command = file["command"][...]
        assert command.shape == (20, 4)
        assert (command.sum(1) == 1).all()

    @pytest.mark.parametrize("placed", [True, False])
    def test_the_least_certain_command_is_chosen(self, done: Path, placed: bool) -> None:
        """Least certain among moves as they occur: at a contact share of 10 %, log-odds of 2.2 are even odds, until the
        object is placed."""
        model = palpate.load(done / "model")
        model.model.head.placed.fill_(placed)  # type: ignore[union-attr, operator]
        model.facts["quality"]["contact_share"] = 0.1
        with palpate.Transitions.open(done / "triples.h5") as triples, h5py.File(done / "triples.h5") as file:
            batch, command = triples.rows(slice(None)), torch.from_numpy(file["command"][...]).double()
        agent = model.encode(batch.o).agent.double()
        steering = module.fit_steering(model.model.group, agent, command, batch.a.double())
        chooser = LeastCertain(model, steering, 0.5)
        commands = np.random.default_rng(0).random((MOVES, 2)).astype(np.float32)
        for row in range(5):
            o = batch.o[row].numpy()
            moves = steering.predict(agent[row].expand(MOVES, 2), torch.from_numpy(commands).double()).float()
            touch = model.would_touch(batch.o[row].expand(MOVES, -1), moves).double().clamp(1e-12, 1 - 1e-12)
            even = (torch.logit(touch) - (0 if placed else math.log(9))).abs()
            assert even[chooser(o, commands)] <= even.min() + 1e-3

    def test_an_observation_as_in_a_file(self) -> None:
        rng = np.random.default_rng(0)
        picture = rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)
        assert torch.equal(canonical(picture)[0], torch.from_numpy(picture).permute(2, 0, 1))
        assert canonical(np.arange(4.0)).dtype == torch.float32


def test_the_command_line(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    out = tmp_path / "out"

    def illustrate(*given: Any, triples: Any) -> None:
        drawn.append(given)
        with pytest.raises(Busy), alone(out, inside=True):
            pass

    monkeypatch.setattr("palpate.pictures.illustrate", illustrate)
    arguments = ["explore", "palpate/Sprites-v0", "--num", 260, "--first", 128, "--rounds", 1, "--size", 16]
    code, text, _ = command(*arguments, "--out", out, "--workers", 1, "--steps", 2, "--device", "cpu")
    assert code == 0
    assert f"palpate.load('{out / 'model'}')" in text
    assert [line.split()[:2] for line in text.splitlines()[2:4]] == [["0", "128"], ["1", "260"]]
    assert drawn[0][0] == out / "model"
    code, _, err = command(*arguments, "--out", out)
    assert code == 2
    assert err.count("\n") == 1
    assert "out exists; resume the exploration there" in err
