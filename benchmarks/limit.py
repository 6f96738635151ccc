"""What the contacts of a set can say at all: the soccer world's object placed by a network that is told everything.

    python benchmarks/limit.py OUT [--against results/soccer/third-ours-0.npz]

The network has nothing to see: its input is the object's true place, and it is given the agent's true paths and which
of them touched. What it says of each place is learned by our contact likelihood, as phi_ext is, and is off by what the
triples leave open to a function as smooth as it is, learned in so many steps. The first layer's frequency says how
smooth: none, the place alone; more, waves of about so many radians to the field's side. OUT/limit.json holds L_test for
each frequency and size of the set, and with `--against` how the error over the field correlates with that of a run of
`palpate reproduce soccer`, from the same 10,000 triples and from others.
"""

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from palpate.bodies.base import clearance
from palpate.bodies.outline import Outline
from palpate.envs.soccer import Soccer
from palpate.geometry import Segment
from palpate.objectives.contact import contact_nll
from palpate.reproduce.presets import TEST_SEED
from palpate.reproduce.provenance import commit, hardware
from palpate.workers import available_cores

TRAINING_SEED, OTHER_SEEDS = 0, range(3, 8)  # of the set that `palpate reproduce soccer` learns from, and of others
STEPS, BATCH, RATE, WIDTH, WAVES = 3000, 256, 2e-3, 256, 64
SHARE_OF_ROWS = 500  # that a process computes at a time


class Told(NamedTuple):
    """All that there is to know of some triples."""

    agent: Tensor  # [b, 2]
    action: Tensor  # [b, 2]
    object: Tensor  # [b, 2]
    touched: Tensor  # [b] bool


def rows(seed: int, start: int, stop: int) -> Told:
    """Triples of the soccer world; nothing is drawn."""
    with Soccer() as world:
        triples = world.states(seed, start, stop)
    first = triples.before
    return Told(*(torch.from_numpy(x) for x in (first.agent, triples.action, first.object, triples.contact)))


def states(seed: int, count: int) -> Told:
    cuts = range(0, count, SHARE_OF_ROWS)
    with ProcessPoolExecutor(available_cores()) as pool:
        parts = list(pool.map(rows, [seed] * len(cuts), cuts, [min(start + SHARE_OF_ROWS, count) for start in cuts]))
    return Told(*(torch.cat(column) for column in zip(*parts, strict=True)))


class Places(nn.Module):
    """Where it says that an object is which is at `place` [b, 2]."""

    waves: Tensor

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency
        self.register_buffer("waves", frequency * torch.randn(2, WAVES))
        inputs = 2 + (2 * WAVES if frequency else 0)
        self.layers = nn.Sequential(
            nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2)
        )

    def forward(self, place: Tensor) -> Tensor:
        place = place - 0.5
        seen = 4 * place
        if self.frequency:
            phase = place @ self.waves
            seen = torch.cat((seen, phase.sin(), phase.cos()), 1)
        return 0.5 + self.layers(seen)


def errors(told: Told, test: Told, frequency: float, seed: int) -> Tensor:
    """How far off the test triples' objects are placed [b, 2]; the agent is not off at all."""
    torch.manual_seed(seed)
    network = Places(frequency)
    body, log_softness = Outline(2), nn.Parameter(torch.tensor(0.004).log())
    body.log_radius.data.fill_(math.log(0.1))
    optimizer = torch.optim.Adam([*network.parameters(), *body.parameters(), log_softness], RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    share = told.touched.float().mean()
    for _ in range(STEPS):
        drawn = torch.randint(len(told.agent), (BATCH,))
        agent, action, place, touched = (x[drawn] for x in told)
        gap = clearance(body, network(place), place[:, :0], Segment(agent, action))
        surprise = contact_nll(-gap / log_softness.exp(), touched)
        optimizer.zero_grad()
        (surprise * torch.where(touched, 0.5 / share, 0.5 / (1 - share))).mean().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return network(test.object) - test.object


def correlation(one: Tensor, other: Tensor) -> float:
    """Of two fields of errors [b, 2]."""
    one, other = one - one.mean(0), other - other.mean(0)
    return round(float((one * other).sum() / (one.norm() * other.norm())), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of limit.json")
    parser.add_argument("--against", type=Path, help="arrays that `palpate reproduce soccer` left beside a JSON")
    parser.add_argument("--triples", type=int, nargs="+", default=[10_000, 40_000])
    parser.add_argument("--frequencies", type=float, nargs="+", default=[0, 5])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    arrays = np.load(arguments.against) if arguments.against else {}
    if arguments.against and "all_true_object" not in arrays:
        parser.error(f"{arguments.against} holds no positions; take the arrays of a run of `palpate reproduce soccer`")
    test = states(TEST_SEED, 5000)
    against = None
    if arguments.against:
        true = arrays["all_true_object"]
        if true.shape != test.object.shape or not np.allclose(true, test.object):
            parser.error(f"{arguments.against} was measured on other triples than those of seed {TEST_SEED}")
        against = torch.from_numpy(arrays["all_object"]) - test.object
    learned_from = states(TRAINING_SEED, max(arguments.triples))
    others = [states(seed, min(arguments.triples)) for seed in OTHER_SEEDS if arguments.against]
    found = []
    for frequency in arguments.frequencies:
        for count in sorted(arguments.triples):
            told = Told(*(x[:count] for x in learned_from))
            made = [errors(told, test, frequency, seed) for seed in range(arguments.seeds)]
            row = {
                "frequency": frequency,
                "triples": count,
                "l_test": [float(f"{error.square().sum(-1).mean():.3g}") for error in made],
                "correlation of seeds": [correlation(made[0], other) for other in made[1:]],
            }
            if against is not None:
                row["correlation with the run"] = [correlation(error, against) for error in made]
            if against is not None and count == len(others[0].agent):
                chance = [correlation(errors(other, test, frequency, 0), against) for other in others]
                row["correlation with the run, from other triples"] = chance
            found.append(row)
            print(row, flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = {"steps": STEPS, "batch_size": BATCH, "learning_rate": RATE, "width": WIDTH, "waves": WAVES}
    row = {
        "settings": settings | {"against": arguments.against and arguments.against.name},
        "rows": found,
        "hardware": hardware(torch.device("cpu")),
        "torch": torch.__version__,
        "commit": commit(),
    }
    (arguments.out / "limit.json").write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
