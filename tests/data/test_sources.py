import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from palpate.data import sources
from palpate.data.sources import OnDisk, Resident, source
from palpate.data.transitions import Batch, ChainedBatch, Index, Transitions

COUNT = 103
ROW_BYTES = 2 * 4  # o and o', one float each


def numbered(count: int = COUNT) -> Transitions:
    """Row i is (i, [i, -i], i + 0.5), so that a batch tells which rows it holds."""
    i = np.arange(count, dtype=np.float32)[:, None]
    return Transitions(observation=i, action=np.hstack((i, -i)), next_observation=i + 0.5)


def drawn(source: Resident | OnDisk, batches: int, count: int = 8) -> list[int]:
    """The rows of the next batches, each checked to be a whole row."""
    rows: list[int] = []
    generator = torch.Generator().manual_seed(0)
    for _ in range(batches):
        batch = source.draw(count, generator)
        i = batch.o[:, 0]
        assert torch.equal(batch.a, torch.stack((i, -i), 1))
        assert torch.equal(batch.o_next[:, 0], i + 0.5)
        rows += i.int().tolist()
    return rows


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Transitions]:
    """Rows of a part of a file."""
    numbered(2 * COUNT).save(tmp_path / "log.h5")
    with Transitions.open(tmp_path / "log.h5") as stored:
        yield stored.subset(slice(0, COUNT))


@pytest.fixture
def on_disk(data: Transitions) -> Iterator[OnDisk]:
    source = OnDisk(data, "cpu", seed=1, group_bytes=32 * ROW_BYTES)
    yield source
    source.close()


class TestResident:
    def test_draws_whole_rows_from_everywhere(self, data: Transitions) -> None:
        rows = drawn(Resident(data, "cpu"), 30, 64)
        assert len(rows) == 64 * 30
        assert set(rows) == set(range(COUNT))

    @pytest.mark.parametrize("sorted_rows", [1000, 10])
    def test_rows_are_chosen_by_weight(self, monkeypatch: pytest.MonkeyPatch, sorted_rows: int) -> None:
        monkeypatch.setattr(sources, "SORTED_ROWS", sorted_rows)
        resident, weights = Resident(numbered(1000), "cpu"), torch.ones(1000)
        weights[:50] = 19.0  # as many draws as all others together
        generator = torch.Generator().manual_seed(0)
        chosen = torch.cat([resident.choose(10, generator, weights) for _ in range(400)])
        assert 0.4 < (chosen < 50).float().mean() < 0.55  # a little less of some candidates than of all rows

    def test_no_row_comes_twice_in_a_batch(self) -> None:
        """Unless the batch is larger than the set."""
        resident, generator = Resident(numbered(), "cpu"), torch.Generator().manual_seed(0)
        assert len(resident.choose(COUNT, generator).unique()) == COUNT
        assert len(resident.choose(COUNT + 1, generator)) == COUNT + 1

    def test_the_generator_decides(self, data: Transitions) -> None:
        resident = Resident(data, "cpu")
        one, two, other = (resident.draw(16, torch.Generator().manual_seed(seed)).o for seed in (5, 5, 6))
        assert torch.equal(one, two)
        assert not torch.equal(one, other)

    def test_loads_block_by_block(self, data: Transitions, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palpate.data.transitions.BLOCK_BYTES", 10 * ROW_BYTES)
        assert set(drawn(Resident(data, "cpu"), 30, 64)) == set(range(COUNT))


class TestChains:
    """Three chains: rows 0 and 1, row 2 alone, rows 3 to 5; row 5 begins a new episode, if episodes are known."""

    @staticmethod
    def connected(episode: torch.Tensor | None, o: list[float], o_next: list[float]) -> Batch | ChainedBatch:
        columns = (np.array(x, np.float32)[:, None] for x in (o, [1, 2, 3, 4, 5, 6], o_next))
        observation, action, after = columns
        resident = Resident(Transitions(observation=observation, action=action, next_observation=after), "cpu")
        resident.connect(episode, lambda a, chain: torch.cat((a, chain[:, None].to(a)), 1))
        return resident.take(torch.arange(6))

    @pytest.mark.parametrize(("episode", "chain"), [
        (None, [1, 1, 2, 3, 3, 3]), (torch.tensor([0, 0, 0, 0, 0, 1]), [1, 1, 2, 3, 3, 4])
    ])  # fmt: skip
    def test_a_chain_is_what_goes_on_from_row_to_row(self, episode: torch.Tensor | None, chain: list[int]) -> None:
        batch = self.connected(episode, [0, 1, 9, 3, 4, 5], [1, 2, 8, 4, 5, 6])
        assert isinstance(batch, ChainedBatch)
        assert batch.chain.tolist() == chain
        assert batch.travelled.tolist() == [[a, number] for a, number in zip(range(1, 7), chain, strict=True)]
        assert batch.journey == (batch.chain, batch.travelled)

    def test_long_chains_are_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "LONGEST_CHAIN", 2)
        batch = self.connected(None, [0, 1, 2, 3, 9, 5], [1, 2, 3, 4, 5, 6])
        assert isinstance(batch, ChainedBatch)
        assert batch.chain.tolist() == [1, 1, 2, 2, 3, 3]

    def test_single_triples_stay_as_they_are(self) -> None:
        batch = self.connected(None, [0, 1, 2, 3, 4, 5], [7, 7, 7, 7, 7, 7])
        assert isinstance(batch, Batch)
        assert batch.journey == ()


class TestOnDisk:
    def test_each_epoch_visits_every_row_once(self, on_disk: OnDisk) -> None:
        rows = drawn(on_disk, 3 * COUNT)  # 24 epochs of batches that run across their ends
        epochs = np.array(rows).reshape(-1, COUNT)
        assert (np.sort(epochs) == np.arange(COUNT)).all()
        assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
        assert (np.argwhere(epochs == COUNT - 1)[:, 1] < 96).any()  # no row is always in the last group

    def test_the_order_is_shuffled(self, on_disk: OnDisk) -> None:
        rows = np.array(drawn(on_disk, COUNT // 8))
        assert (np.diff(rows) == 1).mean() < 0.2
        assert np.ptp(rows[:16]) > 32  # a group is not one stretch of the file

    @pytest.mark.parametrize("step", [0, 3, 13, 103])
    def test_seek_equals_running_through(self, data: Transitions, on_disk: OnDisk, step: int) -> None:
        through = drawn(on_disk, step + 9)[8 * step :]
        on_disk.seek(8 * step)
        assert drawn(on_disk, 9) == through
        fresh = OnDisk(data, "cpu", seed=1, group_bytes=32 * ROW_BYTES)
        fresh.seek(8 * step)
        assert drawn(fresh, 9) == through
        fresh.close()

    def test_the_seed_decides(self, data: Transitions, on_disk: OnDisk) -> None:
        other = OnDisk(data, "cpu", seed=2, group_bytes=32 * ROW_BYTES)
        assert drawn(other, 2) != drawn(on_disk, 2)
        other.close()

    @pytest.mark.parametrize(("group_rows", "batch_size"), [(1, 250), (5, 1), (1000, 1)])
    def test_any_size_of_group_and_batch(self, group_rows: int, batch_size: int) -> None:
        source = OnDisk(numbered(), "cpu", seed=0, group_bytes=group_rows * ROW_BYTES)
        rows = drawn(source, -(-2 * COUNT // batch_size), batch_size)
        assert sorted(rows[:COUNT]) == sorted(rows[COUNT : 2 * COUNT]) == list(range(COUNT))
        source.close()

    def test_memory_is_bounded(self, data: Transitions, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, read = Transitions.rows, []

        def spy(self: Transitions, index: Index) -> Batch:
            batch = rows(self, index)
            read.append(len(batch.a))
            return batch

        monkeypatch.setattr(Transitions, "rows", spy)
        source = OnDisk(data, "cpu", seed=0, group_bytes=32 * ROW_BYTES)
        assert not read
        drawn(source, 1)
        source.close()
        assert max(read) == 32
        assert len(read) <= 2  # the group in use and the next one

    def test_the_next_group_is_read_by_another_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, threads = Transitions.rows, set()

        def spy(self: Transitions, index: Index) -> Batch:
            threads.add(threading.current_thread())
            return rows(self, index)

        monkeypatch.setattr(Transitions, "rows", spy)
        source = OnDisk(numbered(), "cpu", seed=0, group_bytes=32 * ROW_BYTES)
        drawn(source, 20)
        assert len(threads) == 1
        assert threading.current_thread() not in threads
        source.close()
        assert not any(thread.is_alive() for thread in threads)

    def test_an_error_while_reading_surfaces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, calls = Transitions.rows, []

        def fail_later(self: Transitions, index: Index) -> Batch:
            calls.append(index)
            if len(calls) == 2:
                raise OSError("the disk is gone")
            return rows(self, index)

        monkeypatch.setattr(Transitions, "rows", fail_later)
        source = OnDisk(numbered(), "cpu", seed=0, group_bytes=32 * ROW_BYTES)
        drawn(source, 4)  # the first group
        for _ in range(2):  # it does not go on with other rows
            with pytest.raises(OSError, match="the disk is gone"):
                drawn(source, 1)
        source.close()


class TestSource:
    def test_what_fits_is_resident(self) -> None:
        assert isinstance(source(numbered(), "cpu", seed=0), Resident)
        assert isinstance(source(numbered(), "cpu", seed=0, memory_budget=COUNT * ROW_BYTES), Resident)

    def test_what_does_not_fit_is_read_from_disk(self, data: Transitions) -> None:
        chosen = source(data, "cpu", seed=0, memory_budget=COUNT * ROW_BYTES - 1)
        assert isinstance(chosen, OnDisk)
        assert len(set(drawn(chosen, 12))) == 96
        chosen.close()

    @pytest.mark.gpu
    @pytest.mark.parametrize("budget", [None, 0])
    def test_on_cuda(self, budget: int | None) -> None:
        chosen = source(numbered(), "cuda", seed=0, memory_budget=budget)
        batch = chosen.draw(8, torch.Generator("cuda").manual_seed(0))
        assert all(x.is_cuda for x in batch)
        assert torch.equal(batch.a[:, 0], batch.o[:, 0])
        chosen.close()
