from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from palpate.data import transitions
from palpate.data.labelled import Labelled, LabelledResident, LabelledStream, Truth
from palpate.data.stream import Stream
from palpate.data.transitions import Transitions
from palpate.envs.sprites import Sprites, SpritesConfig


def labelled(count: int = 30, **changes: object) -> Labelled:
    """Row i has o = i and every true value equal to i, or i + 1 afterwards."""
    i = torch.arange(count).float()
    pairs = i[:, None].expand(count, 2)
    triples = Transitions(observation=i[:, None], action=torch.ones(count, 2), next_observation=i[:, None] + 1)
    truth = Truth(pairs, pairs, i, i % 2 == 0, pairs + 1, pairs + 1, i + 1)
    return Labelled(triples, truth._replace(**changes))


def assert_rows(data: Labelled, rows: list[int]) -> None:
    i = torch.tensor(rows).float()
    assert len(data) == len(rows)
    assert torch.equal(data.transitions.rows(slice(None)).o[:, 0], i)
    truth = data.truth
    assert truth.contact.tolist() == [row % 2 == 0 for row in rows]
    for x in (truth.agent[:, 0], truth.object[:, 1], truth.angle):
        assert torch.equal(x, i)
    for x in (truth.agent_next, truth.object_next, truth.angle_next):
        assert torch.equal(x.view(len(i), -1)[:, 0], i + 1)


class TestLabelled:
    def test_subset_keeps_rows_together(self) -> None:
        assert_rows(labelled().subset([7, -1, 2]), [7, 29, 2])
        assert_rows(labelled().subset(np.arange(30) > 27), [28, 29])

    def test_split_takes_the_rows_of_transitions(self) -> None:
        data = labelled()
        for part, triples in zip(data.split(0.4, seed=2), data.transitions.split(0.4, seed=2), strict=True):
            assert_rows(part, triples.rows(slice(None)).o[:, 0].int().tolist())

    def test_numpy_and_missing_fields(self) -> None:
        points = np.zeros((30, 2))
        data = Labelled(labelled().transitions, Truth(points, points))
        assert data.truth.agent.dtype == torch.float32
        assert data.truth.angle is None
        assert data.subset([1]).truth.contact is None
        assert repr(data).endswith("truth: agent, object)")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"agent": torch.zeros(29, 2)}, r"truth agent has shape \(29, 2\); these triples need \(30, 2\)"),
            ({"agent": torch.tensor(1.0)}, r"truth agent has shape \(\); these triples need \(30, 2\)"),
            ({"object_next": torch.zeros(30, 3)}, r"truth object_next has shape \(30, 3\); .* \(30, 2\)"),
            ({"angle": torch.zeros(30, 1)}, r"truth angle has shape \(30, 1\); these triples need \(30,\)"),
            ({"contact": torch.zeros(30)}, r"truth contact has dtype float32; allowed is bool"),
            ({"agent": torch.zeros(30, 2, dtype=torch.bool)}, "truth agent has dtype bool; allowed are real numbers"),
            ({"angle": torch.arange(30).log()}, r"truth angle is -inf in row 0; all values must be finite"),
            ({"object": torch.zeros(30, 2, 3, 2)}, r"truth object has shape \(30, 2, 3, 2\)"),
            ({"object": torch.zeros(30, 3, 2)}, r"truth angle has shape \(30,\); these triples need \(30, 3\)"),
            ({"object": torch.arange(60).view(30, 2) / (torch.arange(30) != 4)[:, None]}, r"truth object is .* row 4;"),
        ],
    )
    def test_wrong_truth(self, change: dict[str, Tensor], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            labelled(**change)


def test_several_objects_have_an_axis(tmp_path: Path) -> None:
    places, touched = torch.rand(30, 3, 2), torch.rand(30, 3) < 0.5
    data = Labelled(labelled().transitions, Truth(torch.zeros(30, 2), places, contact=touched))
    data.save(tmp_path / "three.h5")
    with Labelled.open(tmp_path / "three.h5") as same:
        assert torch.equal(same.truth.objects, places)
        assert torch.equal(same.truth.contacts, touched)
    alone = Labelled(labelled().transitions, Truth(torch.zeros(30, 2), places[:, :1], contact=touched[:, :1]))
    assert torch.equal(alone.truth.object, places[:, 0])  # an axis of one object is dropped
    assert torch.equal(alone.truth.contact, touched[:, 0])
    one = labelled().truth
    assert one.objects.shape == (30, 1, 2)
    assert one.angles.shape == one.contacts.shape == (30, 1)
    assert one.visibles is None


class TestFile:
    def test_round_trip(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transitions, "BLOCK_BYTES", 80)  # several appends
        labelled().save(tmp_path / "test.h5")
        with Labelled.open(tmp_path / "test.h5") as stored:
            assert_rows(stored, list(range(30)))
            assert_rows(stored.subset([5, 3]), [5, 3])
        with pytest.raises(FileExistsError, match="overwrite=True"):
            labelled().save(tmp_path / "test.h5")

    def test_fields_that_are_unknown_stay_unknown(self, tmp_path: Path) -> None:
        labelled(angle=None, contact=None, angle_next=None).save(tmp_path / "test.h5")
        with h5py.File(tmp_path / "test.h5") as file:
            assert sorted(file["truth"]) == ["agent", "agent_next", "object", "object_next"]
        with Labelled.open(tmp_path / "test.h5") as stored:
            assert stored.truth.angle is stored.truth.contact is stored.truth.angle_next is None

    def test_transitions_do_not_see_the_truth(self, tmp_path: Path) -> None:
        labelled().save(tmp_path / "test.h5")
        with Transitions.open(tmp_path / "test.h5") as stored:
            assert len(stored) == 30
            assert not hasattr(stored, "truth")
            stored.save(tmp_path / "plain.h5")
        with h5py.File(tmp_path / "plain.h5") as file:
            assert "truth" not in file

    def test_no_truth(self, tmp_path: Path) -> None:
        labelled().transitions.save(tmp_path / "plain.h5")
        with pytest.raises(
            ValueError, match=r"plain\.h5: there is no group 'truth'; `palpate collect` and Labelled\.save write one"
        ):
            Labelled.open(tmp_path / "plain.h5")
        with h5py.File(tmp_path / "plain.h5", "a"):  # fails while a reader holds it
            pass

    def test_needed_fields(self, tmp_path: Path) -> None:
        labelled().save(tmp_path / "test.h5")
        with h5py.File(tmp_path / "test.h5", "a") as file:
            del file["truth/object"]
        with pytest.raises(ValueError, match=r"test\.h5: the group 'truth' has no dataset 'object'; it holds a.*angle"):
            Labelled.open(tmp_path / "test.h5")


class TestDrawing:
    def test_resident_keeps_rows_together(self) -> None:
        batch = LabelledResident(labelled(), "cpu").draw(20, torch.Generator().manual_seed(0))
        i = batch.o[:, 0]
        assert len(i.unique()) == 20
        assert torch.equal(batch.agent, i[:, None].expand(20, 2))
        assert torch.equal(batch.angles[:, 0], i)
        assert torch.equal(batch.objects_next[:, 0, 1], i + 1)

    def test_what_is_unknown_is_none(self) -> None:
        batch = LabelledResident(labelled(angle=None, angle_next=None), "cpu").draw(4, torch.Generator())
        assert batch.angles is batch.angles_next is None

    def test_a_stream_gives_the_true_states_of_its_triples(self) -> None:
        """A world names those that it knows as `Truth` does."""
        world = Sprites(SpritesConfig(size=20))
        states = world.sample(9, torch.Generator().manual_seed(3))
        batch = LabelledStream(world).draw(9, torch.Generator().manual_seed(3))
        assert all(map(torch.equal, batch[:3], Stream(world).draw(9, torch.Generator().manual_seed(3))))
        for name in ("agent", "agent_next"):
            assert torch.equal(getattr(batch, name), getattr(states, name))
        for several, one in (("objects", "object"), ("angles", "angle")):
            for when in ("", "_next"):
                assert torch.equal(getattr(batch, several + when), getattr(states, one + when)[:, None])
