"""How well phi_int alone learns poses in space: from actions, and from true poses as the limit.

    python benchmarks/poses.py [--bends 1 4] [--weights 0.25 0.5 1] [--forms ...] [--steps 1000] [--batch 128]

Four forms: the loss of `fit`; L_int of outputs as they are, and of outputs made orthonormal in training too; and
outputs that learn true poses. Fresh triples of gripper.py, Muon, one CPU thread, seed 0. Printed are the mean angle
between learned and true rotation, and the position error in units of the actions' root mean square, after the best
rigid motion.
"""

import argparse
import math
from itertools import product

import torch
from gripper import Gripper, Triple
from torch import Tensor

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.groups.se3 import SE3
from palpate.methods.located import Located
from palpate.methods.store import build
from palpate.objectives.equivariance import equivariance
from palpate.optimizers import make_optimizers
from palpate.rotations import angle_between

FORMS = ("fit", "as they are", "orthonormal", "true poses")
RATE, DECAY, RISE, LOWEST = 8e-3, 0.05, 0.25, 0.04


def pose(agent: Tensor, rotation: Tensor, unit: Tensor) -> Tensor:
    return torch.cat((agent / unit, rotation[..., :2].mT.flatten(1)), 1)


def drawn(world: Gripper, count: int, generator: torch.Generator) -> tuple[Triple, Batch]:
    triple = world.sample(count, generator)
    o, o_next = world.render_pair(triple)
    return triple, Batch(o, triple.displacement, o_next)


def trained(world: Gripper, steps: int, size: int, form: str) -> tuple[Located, torch.Generator]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.1, group="se3")
    shape = world.observation_shape
    model = build(
        ModelConfig(
            encoder="mlp", observation_shape=shape, observation_dtype="float32", n=3, actions=6, objective=scene
        )
    )
    assert isinstance(model, Located)
    model.measure(drawn(world, 4000, generator)[1])
    group, phi = model.group, model.phi_int
    optimizers = make_optimizers(
        [{"params": list(phi.parameters())}], weight_decay=DECAY, orthogonalise=True, device=torch.device("cpu")
    )
    for step in range(steps):
        share = step / steps
        falling = (1 + math.cos(math.pi * (share - RISE) / (1 - RISE))) / 2
        rate = RATE * (LOWEST + (1 - LOWEST) * share / RISE if share < RISE else max(falling, 1e-3))
        triple, batch = drawn(world, size, generator)
        raw, raw_next = phi(model.inputs(torch.cat((batch.o, batch.o_next)))).chunk(2)
        z, z_next = group.pose(raw), group.pose(raw_next)
        if form == "orthonormal":
            z, z_next = group.flawless(z), group.flawless(z_next)
        if form == "fit":
            loss = model.agent_term(raw, model.inputs.scaled(batch.a), raw_next, ())
        elif form == "true poses":
            true = pose(triple.agent, triple.rotation, model.inputs.unit)
            true_next = pose(triple.agent_next, triple.rotation_next, model.inputs.unit)
            loss = (group.distance2(z, true) + group.distance2(z_next, true_next)).mean() / 2
        else:
            loss = equivariance(group, z, model.inputs.scaled(batch.a), z_next).mean()
        loss.backward()
        for optimizer in optimizers:
            for options in optimizer.param_groups:
                options["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
    return model.eval(), generator


@torch.no_grad()
def errors(world: Gripper, model: Located, generator: torch.Generator) -> tuple[float, float]:
    triple, batch = drawn(world, 2000, generator)
    group, unit = model.group, model.inputs.unit
    z = group.flawless(group.pose(model.phi_int(model.inputs(batch.o))).double())
    true = triple.agent.double() / unit
    frame = group.frame(group.position(z), true)
    axes = group.rotation(z)
    assert axes is not None
    apart = angle_between(group.turned(axes.mT, frame).mT, triple.rotation.double())
    return float(apart.mean()), float((group.moved(group.position(z), frame) - true).norm(dim=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bends", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for bend, weight, form in product(arguments.bends, arguments.weights, arguments.forms):
        SE3.heading_weight = weight
        world = Gripper(bend)
        rotation, position = errors(world, *trained(world, arguments.steps, arguments.batch, form))
        print(f"bend {bend:g}, weight {weight:g}, {form}: {rotation:.4f} rad, {position:.4f}", flush=True)


if __name__ == "__main__":
    main()
