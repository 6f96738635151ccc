"""Optimisers: Muon for the matrices inside the networks, AdamW for everything else.

The learning rate is a tensor, and nothing changes if `found_inf` is set, so a step never waits for the host.
"""

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

LEAST_SIDE = 16  # of a matrix for Muon: layers with few inputs or outputs have too few directions
MOMENTUM = 0.95
ITERATIONS = 5
# One iteration maps a singular value s to a s + b s^3 + c s^5; five of them map all but tiny ones to about 1
# (Jordan et al. 2024).
QUINTIC = (3.4445, -4.7750, 2.0315)
# Root mean square of an entry of a step, in learning rates: about that of AdamW, so both can use one rate.
STEP = 0.2


class Muon(Optimizer):
    """Momentum of each matrix with all singular values set to 1: every direction is learned at the same speed.

    A convolution is the matrix `[out, in * height * width]`. Matrices of one shape are processed together. Steps do not
    shrink with the gradient, only with the learning rate.
    """

    def __init__(self, params: Iterable[Any], *, lr: Tensor, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for alike in shapes.values():
                self._step(alike, group["lr"], group["weight_decay"])

    def _step(self, parameters: list[nn.Parameter], lr: Tensor, weight_decay: float) -> None:
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = torch.stack([_matrix(self.state[p]["momentum"]) for p in parameters])
        gradients = torch.stack([_matrix(p.grad) for p in parameters])
        if self.found_inf is not None:
            lr = torch.where(self.found_inf > 0, 0.0, lr)
            gradients = torch.where(self.found_inf > 0, momenta, gradients)
        momenta.lerp_(gradients, 1 - MOMENTUM)
        steps = orthogonal(gradients.lerp(momenta, MOMENTUM))
        steps *= -lr * STEP * max(steps.shape[1:]) ** 0.5
        for parameter, momentum, step in zip(parameters, momenta, steps, strict=True):
            self.state[parameter]["momentum"].copy_(momentum.view_as(parameter))
            parameter.mul_(1 - lr * weight_decay).add_(step.view_as(parameter))


def _matrix(x: Tensor | None) -> Tensor:
    assert x is not None
    return x.flatten(1)


def orthogonal(matrices: Tensor) -> Tensor:
    """The matrices `[k, m, n]` with singular values near 1, by Newton-Schulz iteration; on a GPU in bf16."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-12)
    if x.is_cuda:
        x = x.bfloat16()
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def make_optimizers(
    groups: list[dict[str, Any]], *, weight_decay: float, orthogonalise: bool, device: torch.device
) -> list[Optimizer]:
    """One or two optimisers for groups of parameters, which keep their other entries; rates are 0 at first."""
    muon: list[dict[str, Any]] = []
    adam: list[dict[str, Any]] = []
    for group in groups:
        hidden = [p for p in group["params"] if orthogonalise and _is_hidden(p)]
        others = [p for p in group["params"] if not (orthogonalise and _is_hidden(p))]
        muon += [{**group, "params": hidden, "lr": torch.zeros((), device=device)}] if hidden else []
        adam += [{**group, "params": others, "lr": torch.zeros((), device=device)}] if others else []
    made: list[Optimizer] = []
    if muon:
        made.append(Muon(muon, lr=torch.zeros((), device=device), weight_decay=weight_decay))
    if adam:
        made.append(AdamW(adam, weight_decay=weight_decay, fused=True, capturable=device.type == "cuda"))
    return made


def expected_moments(optimizers: Iterable[Optimizer], found: Collection[str]) -> dict[str, Tensor]:
    """Tensors with the shapes of the moments, by NUMBER.NAME, of each parameter of which any are `found`.

    A parameter that has never received a gradient has none.
    """
    learned = [
        (p, ("momentum",) if isinstance(each, Muon) else ("step", "exp_avg", "exp_avg_sq"))
        for each in optimizers
        for group in each.param_groups
        for p in group["params"]
    ]
    return {
        f"{i}.{name}": torch.zeros(()) if name == "step" else p
        for i, (p, names) in enumerate(learned)
        if any(f"{i}.{name}" in found for name in names)
        for name in names
    }


def _is_hidden(parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1 and min(parameter.flatten(1).shape) >= LEAST_SIDE
