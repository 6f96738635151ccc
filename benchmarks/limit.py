"""The error that the contacts of a Soccer set leave open to a network which receives the true positions.

    python benchmarks/limit.py OUT [--against results/soccer/third-ours-0.npz]

The input of the network is the object's true position; the agent's true paths and the true contacts are given. Our
contact likelihood trains its output, as it trains phi_ext. What remains is the error that the triples leave open to a
function of this smoothness after this number of steps. The frequency of the first layer sets the smoothness: 0 passes
the position alone, larger values add waves of about that many radians per side of the field.

OUT/limit.json holds L_test for each frequency and size of the set. With `--against` it also holds the correlation of
the error over the field with that of a run of `palpate reproduce soccer`, for the same 10,000 triples and for others.
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
from palpate.objectives.contact import change_nll
from palpate.reproduce.presets import TEST_SEED
from palpate.reproduce.provenance import commit, hardware
from palpate.workers import available_cores

TRAINING_SEED, OTHER_SEEDS = 0, range(3, 8)  # of the training set of `palpate reproduce soccer`, and of others
STEPS, BATCH, RATE, WIDTH, WAVES = 3000, 256, 2e-3, 256, 64
SHARE_OF_ROWS = 500  # triples of one process at a time


class Known(NamedTuple):
    """True states of some triples."""

    agent: Tensor  # [b, 2]
    action: Tensor  # [b, 2]
    object: Tensor  # [b, 2]
    contact: Tensor  # [b] bool


def rows(seed: int, start: int, stop: int) -> Known:
    """Triples of the Soccer world, without pictures."""
    with Soccer() as world:
        triples = world.states(seed, start, stop)
    first = triples.before
    return Known(*(torch.from_numpy(x) for x in (first.agent, triples.action, first.object, triples.contact)))


def states(seed: int, count: int) -> Known:
    cuts = range(0, count, SHARE_OF_ROWS)
    with ProcessPoolExecutor(available_cores()) as pool:
        parts = list(pool.map(rows, [seed] * len(cuts), cuts, [min(start + SHARE_OF_ROWS, count) for start in cuts]))
    return Known(*(torch.cat(column) for column in zip(*parts, strict=True)))


class Places(nn.Module):
    """From the true position of the object [b, 2] to an estimate of it."""

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


def errors(known: Known, test: Known, frequency: float, seed: int) -> Tensor:
    """Errors of the object's position on the test triples [b, 2]; the agent's are 0."""
    torch.manual_seed(seed)
    network = Places(frequency)
    body, log_softness = Outline(2), nn.Parameter(torch.tensor(0.004).log())
    body.log_radius.data.fill_(math.log(0.1))
    optimizer = torch.optim.Adam([*network.parameters(), *body.parameters(), log_softness], RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    share = known.contact.float().mean()
    for _ in range(STEPS):
        drawn = torch.randint(len(known.agent), (BATCH,))
        agent, action, place, contact = (x[drawn] for x in known)
        gap = clearance(body, network(place), place[:, :0], Segment(agent, action))
        surprise = change_nll(-gap / log_softness.exp(), contact)
        optimizer.zero_grad()
        (surprise * torch.where(contact, 0.5 / share, 0.5 / (1 - share))).mean().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return network(test.object) - test.object


def correlation(one: Tensor, other: Tensor) -> float:
    """Correlation of two fields of errors [b, 2]."""
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
            known = Known(*(x[:count] for x in learned_from))
            made = [errors(known, test, frequency, seed) for seed in range(arguments.seeds)]
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
