"""PushT: the example and the guide to other environments."""

import ast
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import palpate
from palpate import cli
from palpate.collecting.stepping import NAMES
from palpate.metrics.formulas import axis_error

pytest.importorskip("gym_pusht", reason="needs the extra palpate[pusht]")

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "pusht.py"
GUIDE = (ROOT / "docs" / "guide" / "own-environment.md").read_text(encoding="utf-8").replace("\\\n", "")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
NUM = 60
BLOCK = (119, 136, 153)  # LightSlateGray


def execute(folder: Path, *command: str | Path) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example from end to end, shortened."""
    folder = tmp_path_factory.mktemp("pusht")
    numbers = {"num": NUM, "num-test": 20, "workers": 1, "steps": 3, "batch-size": 16}
    flags = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    chosen = ["--body", "ellipse", "--encoder", "small", "--device", "cpu"]
    said = execute(folder, EXAMPLE, "--out", "run", *chosen, *flags)
    assert "block error, median, % of the side" in said
    return folder


@pytest.fixture
def triples(folder: Path) -> palpate.Labelled:
    return palpate.Labelled.open(folder / "pusht.h5")


@pytest.mark.slow
def test_the_example_measures_and_draws(folder: Path) -> None:
    scores = json.loads((folder / "run" / "pusht.json").read_text(encoding="utf-8"))
    assert scores["count"] == 20
    assert scores["block error, median"] == pytest.approx(5.12 * scores["block error, median, % of the side"])
    assert 0 <= scores["orientation error, median (rad)"] <= np.pi / 2
    assert all(scores[f"{name}, linear probe, standardised"] > 0 for name in ("agent", "block"))
    assert (folder / "run" / "pusht.png").read_bytes().startswith(b"\x89PNG")


def test_the_linear_probe_on_known_numbers() -> None:
    """Positions with noise of a tenth of their deviation, seen through any affine map, leave an error of 0.01."""
    probe_error = runpy.run_path(str(EXAMPLE))["probe_error"]
    draw = torch.Generator().manual_seed(0)
    true = torch.tensor([300.0, 20.0]) + torch.tensor([100.0, 3.0]) * torch.randn(4000, 2, generator=draw)
    mixed = torch.randn(2, 5, generator=draw)

    def latent(noise: float) -> torch.Tensor:
        noisy = true + noise * torch.tensor([100.0, 3.0]) * torch.randn(4000, 2, generator=draw)
        return 7 + noisy @ mixed

    known, other = slice(0, 2000), slice(2000, None)
    for noise, error in ((0.0, 0.0), (0.1, 0.01), (1.0, 0.5), (1e3, 1.0)):
        z = latent(noise)
        assert probe_error(z[known], true[known], z[other], true[other]) == pytest.approx(error, rel=0.06, abs=1e-6)


@pytest.mark.slow
def test_triples_obey_the_assumptions(triples: palpate.Labelled) -> None:
    truth, data = triples.truth, triples.transitions
    assert len(data) == NUM
    assert data.observation_shape == (3, 96, 96)
    assert torch.allclose(truth.agent + data.action, truth.agent_next, atol=1e-3)
    assert data.action.norm(dim=1).median() > 100  # of 512
    still = (truth.object - truth.object_next).norm(dim=1) < 0.1
    assert still[~truth.contact].all()
    assert 0.1 < truth.contact.float().mean() < 0.6
    o, _, o_next = data.rows(slice(None))
    gone = (o != o_next).flatten(1).any(1)
    assert gone.all()  # the agent, at least


@pytest.mark.slow
def test_the_truth_is_what_the_pictures_show(triples: palpate.Labelled) -> None:
    """The block's pixels have their centre in the truth's object, and their long axis along the truth's angle."""
    pictures = triples.transitions.rows(slice(None)).o.permute(0, 2, 3, 1).float()  # [b, h, w, 3]
    weight = ((pictures - torch.tensor(BLOCK)).abs().amax(-1) < 40).double()
    row, column = torch.meshgrid(torch.arange(96.0), torch.arange(96.0), indexing="ij")
    at = (torch.stack((column, row), -1).double() + 0.5) * 512 / 96  # [h, w, 2]
    total = weight.sum((1, 2))
    centre = torch.einsum("bhw,hwx->bx", weight, at) / total[:, None]
    offset = at - centre[:, None, None]  # [b, h, w, 2]
    spread = torch.einsum("bhw,bhwx,bhwy->bxy", weight, offset, offset)
    long = torch.linalg.eigh(spread).eigenvectors[..., -1]
    whole = total > 0.9 * total.max()  # nothing covers it
    assert whole.sum() > NUM / 2
    assert (centre - triples.truth.object)[whole].norm(dim=1).median() < 1.5  # a pixel is 5.3
    wrong = axis_error(torch.atan2(long[:, 1], long[:, 0]), triples.truth.angle.double())
    assert wrong[whole].median() < 0.05


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path) -> None:
    code = "".join(block for block in BLOCKS if "palpate.explore(" not in block)  # several models take too long
    short = code.replace("1_000", "40").replace("steps=100", "steps=3, batch_size=16")
    assert short.count("40,") == short.count("steps=3,") == 1
    (tmp_path / "guide.py").write_text(short, encoding="utf-8")
    assert "object error" in execute(tmp_path, "-W", "ignore", "guide.py")


def test_the_guides_exploration_is_understood() -> None:
    (block,) = (block for block in BLOCKS if "palpate.explore(" in block)
    (call,) = (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call))
    given = {keyword.arg for keyword in call.keywords}
    own = given & inspect.signature(palpate.explore).parameters.keys()
    assert own == {"out", "device", "fit"}
    assert given - own - set(NAMES) == {"obs_type", "max_episode_steps"}


def test_the_guides_commands_are_understood() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]
    ours = [line for line in lines if line.startswith("palpate ")]
    assert ours
    for line in ours:
        verb = cli.parsed(shlex.split(line)[1:])
        assert isinstance(verb, cli.Collect | cli.Explore)
        assert set(verb.environment.options()) - set(NAMES) == {"obs_type", "max_episode_steps"}
    assert [line.split()[1] for line in lines if line.startswith("python ")] == [
        *["examples/pusht.py"] * 2,
        *["examples/fetchpush.py"] * 2,
    ]


def test_the_guide_names_every_option() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE)) == set(NAMES)


def test_pictures_are_there() -> None:
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", GUIDE):
        assert (ROOT / "docs" / "guide" / picture).stat().st_size < 300_000
