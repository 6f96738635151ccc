"""Logs of whole episodes, in memory, in files and from Minari."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import palpate
from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions

LENGTHS = (4, 1, 3, 5)  # observations
ENDS = np.cumsum(LENGTHS) - 1
SEEN = np.random.default_rng(0).random((sum(LENGTHS), 3)).astype(np.float32)
FIRST = np.array([0, 1, 2, 5, 6, 8, 9, 10, 11])  # rows of o; an episode of one observation gives none
A = np.arange(26, dtype=np.float32).reshape(13, 2)


def episodes(**changes: Any) -> Transitions:
    return Transitions.from_episodes(**({"observation": SEEN, "action": A, "episode_end": ENDS} | changes))


def test_triples_never_cross_an_end() -> None:
    rows, triples = episodes().rows(slice(None)), episodes()
    np.testing.assert_array_equal(rows.o, SEEN[FIRST])
    np.testing.assert_array_equal(rows.o_next, SEEN[FIRST + 1])
    np.testing.assert_array_equal(rows.a, A[FIRST])
    assert triples.episode is not None
    np.testing.assert_array_equal(triples.episode, [0, 0, 0, 2, 2, 3, 3, 3, 3])


def test_actions_without_those_of_last_observations() -> None:
    np.testing.assert_array_equal(episodes(action=A[FIRST]).action, A[FIRST])


@pytest.mark.parametrize("kind", [bool, np.float32])
def test_ends_as_a_mask(kind: type) -> None:
    mask = np.zeros(len(SEEN), kind)
    mask[ENDS] = 1
    np.testing.assert_array_equal(episodes(episode_end=mask).rows(slice(None)).o, SEEN[FIRST])


def test_the_last_episode_may_be_unfinished() -> None:
    np.testing.assert_array_equal(episodes(episode_end=ENDS[:-1]).rows(slice(None)).o, SEEN[FIRST])


def test_a_first_episode_of_one_observation() -> None:
    """The last row is listed as well, so these are not first rows."""
    np.testing.assert_array_equal(episodes(episode_end=[0, 4, 12]).episode, [1] * 3 + [2] * 7)


def test_one_unfinished_episode() -> None:
    np.testing.assert_array_equal(episodes(episode_end=[]).rows(slice(None)).o, SEEN[:-1])


def test_observations_are_shared_not_copied() -> None:
    triples = episodes()
    assert np.shares_memory(triples._observation, SEEN)
    assert np.shares_memory(triples._next_observation, SEEN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": A[:5]}, "there are 5 actions for 13 observations in 4 episodes; give 9, .* or 13"),
        ({"episode_end": [3, 13]}, "episode_end holds row 13; allowed are 0 to 12"),
        ({"episode_end": np.zeros(4, bool)}, "episode_end is a mask of shape .4,. for 13 observations"),
        ({"episode_end": [[1, 2]]}, "episode_end is int64 of shape"),
        ({"episode_end": [0, 4, 9]}, "look like first rows of episodes; .* rows.1:. - 1.* add row 12"),
        ({"episode_end": np.arange(13) % 5 == 0}, "give the last ones, np.append.mask.1:., True"),
        ({"episode_end": np.ones(13, bool)}, "all 13 episodes have one observation"),
        ({"observation": SEEN[:1], "action": A[:1]}, "two or more observations"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        episodes(**changes)


@pytest.mark.parametrize("episode", [np.zeros(3, int), np.zeros(2)])
def test_wrong_episodes(episode: np.ndarray) -> None:
    with pytest.raises(ValueError, match="give one integer for each of the 2 triples"):
        Transitions(observation=SEEN[:2], action=A[:2], next_observation=SEEN[1:3], episode=episode)


def long(count: int = 20, each: int = 11) -> Transitions:
    rng = np.random.default_rng(0)
    o = rng.random((count * each, 2)).astype(np.float32)
    return Transitions.from_episodes(
        observation=o, action=rng.random((count * each, 2)), episode_end=np.arange(1, count + 1) * each - 1
    )


class TestSplit:
    @pytest.mark.parametrize("fraction", [0.04, 0.5, 0.96])
    def test_episodes_stay_whole(self, fraction: float) -> None:
        first, second = long().split(fraction, seed=1)
        assert first.episode is not None
        assert second.episode is not None
        assert not set(first.episode.tolist()) & set(second.episode.tolist())
        assert len(first) + len(second) == 200
        assert len(first) == min(max(round(fraction * 20), 1), 19) * 10

    def test_it_is_random(self) -> None:
        one, two, other = (long().split(0.5, seed=seed)[0].episode for seed in (0, 0, 1))
        assert one is not None
        assert two is not None
        assert other is not None
        assert torch.equal(one, two)
        assert one.tolist() != other.tolist()

    @pytest.mark.parametrize("seed", range(4))
    def test_short_episodes_are_preferred_to_a_long_one(self, seed: int) -> None:
        o = np.zeros((120, 2), np.float32)
        ends = [99, 109, 119]  # 99 triples, 9 and 9
        triples = Transitions.from_episodes(observation=o, action=np.ones((120, 2)), episode_end=ends)
        assert len(triples.split(0.1, seed=seed)[0]) == 9

    @pytest.mark.parametrize("sizes", [(128, 1), (128, 128), (128, 128, 4), (400, 3, 3)], ids=str)
    def test_too_long_episodes_are_cut(self, sizes: tuple[int, ...]) -> None:
        ends = np.cumsum(np.add(sizes, 1)) - 1
        o = np.zeros((ends[-1] + 1, 2), np.float32)
        triples = Transitions.from_episodes(observation=o, action=np.ones((len(o), 2)), episode_end=ends)
        for seed in range(4):
            first, second = triples.split_rows(0.1, seed)
            assert sorted([*first, *second]) == list(range(len(triples)))
            assert 0.05 * len(triples) <= len(first) <= 0.15 * len(triples)

    def test_one_episode_alone_is_split_by_rows(self) -> None:
        first, second = long(count=1, each=101).split(0.3)
        assert (len(first), len(second)) == (30, 70)

    def test_true_states_are_split_alike(self) -> None:
        triples = long()
        labelled = Labelled(triples, Truth(triples.action, triples.action))
        for ours, theirs in zip(labelled.split(0.3, seed=2), triples.split(0.3, seed=2), strict=True):
            assert torch.equal(ours.truth.agent, theirs.action)

    @pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")
    def test_fit_holds_out_whole_episodes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[torch.Tensor] = []
        from palpate import api

        keep = api.assess

        def assess(model: Any, batch: Any, episode: torch.Tensor) -> Any:
            seen.append(episode)
            return keep(model, batch, episode)

        monkeypatch.setattr(api, "assess", assess)
        model = palpate.fit(long(), steps=2, batch_size=8, device="cpu", progress=False)
        assert len(seen[0]) == 20
        assert len(set(seen[0].tolist())) == 2
        assert model.facts["quality"]["closure"] is not None

    @pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")
    def test_closure_is_unknown_for_a_single_episode(self) -> None:
        """Its held-out rows are scattered, so no displacements can be added up."""
        model = palpate.fit(long(count=1, each=301), steps=1, device="cpu", progress=False)
        assert model.facts["quality"]["triples"] == 30
        assert model.facts["quality"]["closure"] is None

    def test_a_single_held_out_row_selects_nothing(self) -> None:
        o = np.random.default_rng(0).random((40, 4)).astype(np.float32)
        triples = Transitions.from_episodes(observation=o, action=o[:, :2], episode_end=[1])  # 1 triple, and 37
        model = palpate.fit(triples, method="vae", steps=1, device="cpu", progress=False)
        assert model.encode(o).agent.shape == (40, 2)

    @pytest.mark.filterwarnings("ignore:triples with and without contact do not separate")
    def test_a_part_of_a_long_episode_is_held_out(self) -> None:
        model = palpate.fit(long(count=2, each=1301), steps=1, device="cpu", progress=False)
        assert model.facts["quality"]["triples"] == 260
        assert model.facts["quality"]["closure"] is not None  # its rows are consecutive


class TestFiles:
    def test_a_log_of_episodes(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "log.h5", "w") as file:
            file["observation"], file["action"], file["episode_end"] = SEEN, A, ENDS
        with Transitions.open(tmp_path / "log.h5") as triples:
            rows = triples.rows([4, 0, 8])
            np.testing.assert_array_equal(rows.o, SEEN[FIRST[[4, 0, 8]]])
            np.testing.assert_array_equal(rows.o_next, SEEN[FIRST[[4, 0, 8]] + 1])
            assert triples.episode is not None
            assert "log.h5" in repr(triples)

    def test_pictures_stay_on_disk(self, tmp_path: Path) -> None:
        o = np.random.default_rng(0).integers(0, 255, (13, 20, 20, 3), np.uint8)
        with h5py.File(tmp_path / "log.h5", "w") as file:
            file.create_dataset("observation", data=o, chunks=(2, 20, 20, 3))
            file["action"], file["episode_end"] = A, ENDS
        with Transitions.open(tmp_path / "log.h5") as triples:
            assert triples.observation_shape == (3, 20, 20)
            np.testing.assert_array_equal(triples.rows([8]).o_next[0], np.moveaxis(o[12], -1, 0))

    def test_episodes_survive_saving(self, tmp_path: Path) -> None:
        episodes().save(tmp_path / "log.h5")
        with Transitions.open(tmp_path / "log.h5") as triples:
            assert triples.episode is not None
            assert torch.equal(triples.episode, episodes().episode)  # type: ignore[arg-type]
            assert torch.equal(triples.rows(slice(None)).o_next, episodes().rows(slice(None)).o_next)

    def test_episodes_with_true_states_survive_saving(self, tmp_path: Path) -> None:
        triples = episodes()
        Labelled(triples, Truth(triples.action, triples.action)).save(tmp_path / "log.h5")
        with Labelled.open(tmp_path / "log.h5") as labelled:
            assert torch.equal(labelled.transitions.episode, triples.episode)  # type: ignore[arg-type]

    def test_neither_next_observations_nor_ends(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "log.h5", "w") as file:
            file["observation"], file["action"] = SEEN, A
        with pytest.raises(ValueError, match="there is no dataset 'next_observation'"):
            Transitions.open(tmp_path / "log.h5")


class TestMinari:
    @pytest.fixture
    def made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Two episodes of 3 and 2 steps, observations in a dictionary."""
        minari = pytest.importorskip("minari")
        from gymnasium import spaces
        from minari.data_collector import EpisodeBuffer

        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        box = spaces.Box(-10, 10, (2,), np.float32)
        buffers = []
        for number, steps in enumerate((3, 2)):
            place = np.arange(2 * (steps + 1), dtype=np.float32).reshape(-1, 2) ** (number + 1) / 10
            buffers.append(
                EpisodeBuffer(
                    id=number,
                    observations={"scan": place, "other": place[:, :1]},
                    actions=np.full((steps, 2), 0.5, np.float32),
                    rewards=[0.0] * steps,
                    terminations=[False] * (steps - 1) + [True],
                    truncations=[False] * steps,
                    infos={},
                )
            )
        seen = spaces.Dict({"scan": box, "other": spaces.Box(-10, 10, (1,), np.float32)})
        minari.create_dataset_from_buffers(
            "tests/balls-v0", buffers, observation_space=seen, action_space=box, algorithm_name="-", author="-",
            author_email="-", code_permalink="-", description="-", eval_env="CartPole-v1",
        )  # fmt: skip
        return minari.load_dataset("tests/balls-v0")

    @pytest.mark.filterwarnings("ignore")
    def test_by_name_and_as_an_object(self, made: Any) -> None:
        for source in (made, "tests/balls-v0"):
            triples = Transitions.from_minari(source, observation="scan")
            assert len(triples) == 5
            assert triples.episode is not None
            assert triples.episode.tolist() == [0, 0, 0, 1, 1]
            assert torch.equal(triples.action, torch.full((5, 2), 0.5))
            np.testing.assert_allclose(triples.rows([0]).o_next[0], [0.2, 0.3])

    @pytest.mark.filterwarnings("ignore")
    def test_displacements_by_a_function(self, made: Any) -> None:
        triples = Transitions.from_minari(
            made, observation="scan", displacement=lambda episode: np.diff(episode.observations["scan"], axis=0)
        )
        rows = triples.rows(slice(None))
        torch.testing.assert_close(rows.o + rows.a, rows.o_next)

    @pytest.mark.filterwarnings("ignore")
    def test_mistakes(self, made: Any) -> None:
        with pytest.raises(ValueError, match=r"observations are \['other', 'scan'\]; select one with observation="):
            Transitions.from_minari(made)
        with pytest.raises(ValueError, match="observation is 'lidar'"):
            Transitions.from_minari(made, observation="lidar")
        with pytest.raises(ValueError, match="has 4 observations and 4 displacements; it needs 3"):
            Transitions.from_minari(made, observation="scan", displacement=lambda episode: np.zeros((4, 2)))

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "minari", None)
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'palpate\[minari\]'"):
            Transitions.from_minari("tests/balls-v0")
