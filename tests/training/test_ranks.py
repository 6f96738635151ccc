"""Several processes that train one model, against one process. Two ranks are started once and measure everything."""

import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from torch import Tensor, nn
from toys import BATCH, feed, make_model, resident, select_at_once, settings, stop_at

from palpate import ranks as module
from palpate.cli import together
from palpate.cli.together import run_together
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.labelled import LabelledBatch
from palpate.data.transitions import Batch
from palpate.interrupts import interrupt_between_steps
from palpate.methods.store import build
from palpate.ranks import ALONE, STARTED_BY_US, Ranks, joined, started
from palpate.runlog import read_log
from palpate.training.feeds import Selected
from palpate.training.loop import Interrupted, train
from palpate.training.state import steps_done
from palpate.traits import METHODS
from palpate.workers import WorkerError

ROWS = 13  # they do not divide
SCENES: dict[str, dict[str, Any]] = {  # every method, and what else compares rows or remembers them
    **{method: {"method": method} for method in METHODS if method != "egocentric"},
    "three objects": {"method": "contact", "encoder": "mlp", "objects": 3},
    "turning": {"method": "contact", "encoder": "mlp", "group": "se2", "body": "footprint"},
    "scan": {"method": "carried", "encoder": "scan", "group": "se2"},
}
# In float64: with random inputs, the gradient of a ResNet in float32 changes by a percent if its weights are rounded.
# That of the scout differs by 1.1e-5 in float32 on some processors.
PRECISE = {
    "resnet": {"method": "contact", "encoder": "resnet18", "body": "ellipse", "refine": True},
    "egocentric": {"method": "egocentric"},
}
FEEDS = ("pool", "chosen moves", "oversampled", "on disk")


def config(method: str, encoder: Any = "small", **scene: Any) -> ModelConfig:
    if METHODS[method].has_body or not METHODS[method].unsupervised:
        scene = {"body": "ball", "rest_floor": 0.1, "refine": False} | scene
    turns = scene.get("group") == "se2"
    shape = {"mlp": (12,), "scan": (40,), "resnet18": (3, 32, 32)}.get(encoder, (3, 20, 20))
    return ModelConfig(
        method=method,
        encoder=encoder,
        observation_shape=shape,
        observation_dtype="float32" if len(shape) == 1 else "uint8",
        n=2,
        actions=3 if turns else 2,
        objective=ObjectiveConfig(**scene),
    )


def rows(given: ModelConfig, seed: int) -> Any:
    """Random triples, half of which show the same scene after."""
    generator = torch.Generator().manual_seed(seed)
    o, o_next = torch.randint(256, (2, ROWS, *given.observation_shape), generator=generator, dtype=torch.uint8)
    if not given.picture:
        o, o_next = o / 128 - 1, o_next / 128 - 1
    o_next[: ROWS // 2] = o[: ROWS // 2]
    batch = Batch(o, torch.randn(ROWS, *given.action_shape, generator=generator), o_next)
    if METHODS[given.method].unsupervised:
        return batch
    agent, agent_next, thing, thing_next = torch.rand(4, ROWS, given.n, generator=generator)
    angles, angles_next = torch.rand(2, ROWS, 1, generator=generator)
    return LabelledBatch(*batch, agent, thing[:, None], angles, agent_next, thing_next[:, None], angles_next)


def gradients(given: ModelConfig, ranks: Ranks) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Of the second of two steps, and the buffers after it."""
    torch.manual_seed(0)
    model = build(given)
    sample = rows(given, 0)
    model.measure(Batch(sample.o, sample.a, sample.o_next))
    model.inputs.augment = "shift" if METHODS[given.method].shifts else "light"
    model.divide(ranks)
    generator = torch.Generator().manual_seed(1)
    for seed in range(2):
        model.zero_grad()
        with ranks.divided():
            terms = model.loss(rows(given, seed), generator, torch.tensor(0.6)).terms
        torch.stack(list(terms.values())).sum().backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    ranks.average(list(found.values()))
    assert not any(buffer.requires_grad for buffer in model.buffers())
    return found, dict(model.named_buffers())


def apart(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    """Relative distance; a value that is unknown in both is NaN."""
    assert one.keys() == two.keys()
    flat, other = (
        torch.cat([x.detach().double().nan_to_num(-1.0).flatten() for x in each.values()]) for each in (one, two)
    )
    return float((flat - other).norm() / flat.norm())


def moved(kind: str, ranks: Ranks, **options: Any) -> dict[str, Tensor]:
    """How the parameters move in a short run with everything at once: Muon, selected triples, augmentation, and a
    refinement where there are fresh triples. `options` are those of the first rank."""
    made = feed(kind)
    model = make_model(isinstance(made, Selected), refine=isinstance(made, Selected))
    model.inputs.augment = "shift"
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    try:
        given = settings(optimizer="muon", learning_rate=1e-3, steps=8)
        train(model, made, given, ranks=ranks, **(options if ranks.first else {}))
    finally:
        made.close()
    return {name: p.detach() - start[name] for name, p in model.named_parameters()}


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(ValueError) as error:
        call()
    return str(error.value)


def measure(watch: Any, folder: Path) -> None:
    """What one rank of two finds."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"gradients": {}, "buffers": {}, "runs": {}}
    with joined("cpu") as ranks, pytest.MonkeyPatch.context() as patch:
        found["ranks"] = [ranks.index, ranks.count]
        for name, scene in (SCENES | PRECISE).items():
            with pytest.MonkeyPatch.context() as double:
                if name in PRECISE:
                    torch.set_default_dtype(torch.float64)
                    double.setattr(Tensor, "float", Tensor.double)
                (mine, kept), (theirs, wanted) = (gradients(config(**scene), each) for each in (ranks, ALONE))
                torch.set_default_dtype(torch.float32)
            found["gradients"][name], found["buffers"][name] = apart(theirs, mine), apart(wanted, kept)
        found["same"] = refused(lambda: ranks.require_same({"data": "a", "seed": ranks.index}))
        ranks.require_same({"data": "a"})
        found["agreed"] = [ranks.agree(10, wanted=ranks.index == 1), ranks.agree(11, wanted=True)]
        found["few"] = [few(ranks, rows) for rows in (1, 2, 5)]
        select_at_once(patch)
        patch.setattr(module, "AGREE_EVERY", 4)
        for kind in FEEDS:
            found["runs"][kind] = apart(moved(kind, ALONE), moved(kind, ranks))
        # Stopped with two ranks and continued by one process, and the reverse.
        straight, two, one = moved("oversampled", ALONE), folder / "two", folder / "one"
        with pytest.raises(Interrupted, match="stopped after step 4 of 8"):
            moved("oversampled", ranks, folder=two, watch=stop_at(4))
        if ranks.first:
            with pytest.raises(Interrupted):
                moved("oversampled", ALONE, folder=one, watch=stop_at(4))
            found["resumed by one"] = apart(straight, moved("oversampled", ALONE, folder=two))
        found["resumed by two"] = apart(straight, moved("oversampled", ranks, folder=one))
        found["rows logged"] = [row["step"] for row in read_log(one / "metrics.jsonl")]
    (folder / f"{ranks.index}.json").write_text(json.dumps(found))


def few(ranks: Ranks, rows: int) -> float:
    """Relative error of a network's output, and of the gradients of its parameters and its inputs."""
    torch.manual_seed(0)
    layer, x, weight = nn.Linear(3, 2), torch.randn(rows, 3, requires_grad=True), torch.randn(rows, 2)
    found = []
    for each in (ALONE, ranks):
        layer.zero_grad()
        x.grad = None
        with each.divided():
            y = each.by_rows(lambda z: layer(z).tanh(), 2 * x)
        (weight * y).sum().backward()
        each.average([p.grad for p in layer.parameters() if p.grad is not None])
        assert x.grad is not None
        found.append({"y": y.detach(), "x": x.grad, **{name: p.grad for name, p in layer.named_parameters()}})
        found[-1] = {name: value.clone() for name, value in found[-1].items()}
    return apart(*found)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks found."""
    folder = tmp_path_factory.mktemp("ranks")
    run_together(2, partial(measure, folder=folder))
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


@pytest.mark.slow
class TestTwoRanks:
    @pytest.mark.parametrize("name", SCENES | PRECISE)
    def test_the_gradient_and_the_buffers_are_those_of_one_process(self, measured: Any, name: str) -> None:
        for rank in measured:
            assert rank["gradients"][name] < 1e-5
            assert rank["buffers"][name] < 1e-5

    @pytest.mark.parametrize("kind", FEEDS)
    def test_a_run_ends_with_the_weights_of_one_process(self, measured: Any, kind: str) -> None:
        for rank in measured:
            assert rank["runs"][kind] < 0.05  # Muon and Adam also follow gradients that are only rounding

    def test_a_run_is_resumed_with_another_number_of_ranks(self, measured: Any) -> None:
        assert [rank["ranks"] for rank in measured] == [[0, 2], [1, 2]]
        assert measured[0]["resumed by one"] < 0.05
        for rank in measured:
            assert rank["resumed by two"] < 0.05
            assert rank["rows logged"] == [4, 8]

    def test_few_rows_and_inputs_with_a_gradient(self, measured: Any) -> None:
        assert all(error < 1e-6 for rank in measured for error in rank["few"])

    def test_they_stop_together(self, measured: Any) -> None:
        assert all(rank["agreed"] == [True, False] for rank in measured)

    def test_different_ranks_are_refused(self, measured: Any) -> None:
        for rank in measured:
            assert rank["same"].startswith("ranks differ in the seed: rank 1 has 1, rank 0 0;")


def dying(watch: Any, folder: Path) -> None:
    """A run in which a rank is killed in step 8."""

    class Fatal(type(resident())):  # type: ignore[misc]
        drawn = 0

        def draw(self, generator: torch.Generator) -> Any:
            self.drawn += 1
            if self.drawn == 8 and not ranks.first:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().draw(generator)

    with joined("cpu") as ranks:
        source = resident().source
        train(make_model(), Fatal(source, BATCH), settings(), folder=folder if ranks.first else None, ranks=ranks)


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_with_a_usable_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="^rank 1 of 2 was ended by signal 9, so the run has ended$"):
        run_together(2, partial(dying, folder=tmp_path))
    assert steps_done(tmp_path) == 5
    first, model, straight = make_model(), make_model(), make_model()
    train(model, resident(), settings(), folder=tmp_path)
    train(straight, resident(), settings())
    start, mine, wanted = (dict(each.named_parameters()) for each in (first, model, straight))
    assert apart(wanted, mine) < 0.05 * apart(wanted, start)


def placed(watch: Any, folder: Path) -> None:
    (folder / "machine").write_text(str(LightningEnvironment().node_rank()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NODE_RANK", "GROUP_RANK"])
def test_the_number_of_a_machine_is_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    run_together(1, partial(placed, folder=tmp_path))
    assert (tmp_path / "machine").read_text() == "0"


def finishing(watch: Any, number: signal.Signals) -> None:
    """A run that the parent interrupts too late."""
    with interrupt_between_steps() as interrupted:
        os.kill(os.getppid(), number)
        while not interrupted():
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_in_the_last_steps_is_not_forgotten(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_together(1, partial(finishing, number=number))


def test_a_rank_without_a_parent_stops_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "setsid")
    monkeypatch.setattr(together, "short_warnings", lambda: None)
    ours, theirs = Pipe()
    ours.close()
    asked = []

    def work(watch: Any) -> None:
        with interrupt_between_steps() as interrupted:
            for step in range(3):
                watch(step, {})
            asked.append(interrupted())

    with pytest.raises(BrokenPipeError):
        together._serve(theirs, True, work)
    assert asked == [True]


def slurm(tasks: int, machines: int, **more: str) -> dict[str, str]:
    return {
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": str(machines),
        "SLURM_LOCALID": "3",
        **more,
    }


@pytest.mark.parametrize(
    "variables",
    [
        slurm(2, 1),
        slurm(3, 2, SLURM_NTASKS_PER_NODE="2"),
        slurm(2, 1, SLURM_NTASKS_PER_NODE="4"),  # of the batch script
    ],
)
def test_slurm_must_know_the_ranks_of_a_machine(variables: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="start the same number on each, and give it as srun --ntasks-per-node"):
        started(variables)


def test_each_rank_sees_all_gpus_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in slurm(4, 1, SLURM_NTASKS_PER_NODE="4").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"sees 1 of its GPUs.* leave out --gpus-per-task"), joined("cuda"):
        pass


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({STARTED_BY_US: "2", "LOCAL_RANK": "1", "SLURM_STEP_NUM_TASKS": "9"}, (1, 2, 1)),
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"}, (1, 4, 2)),
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "1"}, None),
        (slurm(8, 2, SLURM_NTASKS_PER_NODE="4"), (3, 4, 2)),
        (slurm(1, 1), None),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, None),  # a batch script without srun
    ],
)
def test_how_a_process_was_started(variables: dict[str, str], expected: tuple[int, int, int] | None) -> None:
    found = started(variables)
    assert (None if found is None else tuple(found)[:3]) == expected


def test_one_process_has_no_ranks() -> None:
    with joined("cpu") as ranks:
        assert ranks is ALONE
