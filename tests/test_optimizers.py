"""Muon's matrices are orthogonal, it moves only what suits it, and learns where gradients are lopsided."""

import pytest
import torch
from torch import Tensor, nn

from palpate.optimizers import Muon, make_optimizers, orthogonal


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class TestOrthogonal:
    @pytest.mark.parametrize("shape", [(3, 20, 20), (2, 16, 90), (2, 90, 16)])
    def test_singular_values_come_near_one(self, shape: tuple[int, ...]) -> None:
        """The iteration does not converge to 1: it takes what is not tiny to between 0.6 and 1.3, and soon."""
        values = torch.linalg.svdvals(orthogonal(randn(*shape)))
        strong = torch.linalg.svdvals(randn(*shape)) > 0.02 * torch.linalg.matrix_norm(randn(*shape))[:, None]
        assert values[strong].min() > 0.6
        assert values.max() < 1.3

    def test_directions_are_kept(self) -> None:
        """U S V becomes about U V, for each matrix by itself."""
        matrices = torch.stack((randn(16, 40), 1e-3 * randn(16, 40, seed=1)))
        u, _, v = torch.linalg.svd(matrices, full_matrices=False)
        diagonal = u.mT @ orthogonal(matrices) @ v.mT
        off = diagonal - torch.diag_embed(diagonal.diagonal(dim1=1, dim2=2))
        assert off.abs().max() < 1e-4

    def test_tall_is_wide_turned(self) -> None:
        matrix = randn(1, 40, 16)
        torch.testing.assert_close(orthogonal(matrix).mT, orthogonal(matrix.mT))

    def test_nothing_stays_nothing(self) -> None:
        assert orthogonal(torch.zeros(1, 16, 16)).abs().max() == 0


def one_step(parameter: nn.Parameter, gradient: Tensor, *, decay: float = 0.0) -> Muon:
    muon = Muon([parameter], lr=torch.tensor(0.01), weight_decay=decay)
    parameter.grad = gradient
    muon.step()
    return muon


class TestMuon:
    def test_a_step_is_as_large_as_adams(self) -> None:
        """Entries change by about a fifth of the learning rate, whatever the gradient's size."""
        for scale in (1e-4, 1e4):
            for shape in ((64, 64), (32, 16, 3, 3)):
                parameter = nn.Parameter(torch.zeros(shape))
                one_step(parameter, scale * randn(*shape))
                assert parameter.detach().square().mean().sqrt() == pytest.approx(0.002, rel=0.25)
                assert (parameter * parameter.grad).sum() < 0  # downhill

    def test_momentum_looks_ahead(self) -> None:
        """Nesterov's: 5 % of the gradient and 95 % of a momentum that has taken it up already."""
        first, second = randn(16, 24), randn(16, 24, seed=1)
        parameter = nn.Parameter(torch.zeros(16, 24))
        muon = one_step(parameter, first)
        before = parameter.detach().clone()
        parameter.grad = second
        muon.step()
        momentum = 0.95 * 0.05 * first + 0.05 * second
        wanted = orthogonal((0.05 * second + 0.95 * momentum)[None])[0]
        torch.testing.assert_close(parameter.detach() - before, -0.01 * 0.2 * 24**0.5 * wanted)

    def test_weights_decay(self) -> None:
        still = torch.zeros(16, 16)
        parameter = nn.Parameter(torch.ones(16, 16))
        one_step(parameter, still, decay=0.5)
        assert parameter.detach().unique().tolist() == pytest.approx([1 - 0.01 * 0.5])

    def test_a_step_that_is_not_finite_changes_nothing(self) -> None:
        parameter = nn.Parameter(torch.ones(16, 16))
        muon = one_step(parameter, randn(16, 16), decay=0.1)
        weights, momentum = parameter.detach().clone(), muon.state[parameter]["momentum"].clone()
        parameter.grad, muon.found_inf = torch.full((16, 16), torch.nan), torch.tensor(1.0)
        muon.step()
        assert torch.equal(parameter, weights)
        assert torch.equal(muon.state[parameter]["momentum"], momentum)

    def test_those_of_one_shape_do_not_mix(self) -> None:
        gradients = [randn(16, 24), randn(16, 24, seed=1)]
        alone = [nn.Parameter(torch.zeros(16, 24)) for _ in gradients]
        for parameter, gradient in zip(alone, gradients, strict=True):
            one_step(parameter, gradient)
        together = [nn.Parameter(torch.zeros(16, 24)) for _ in gradients]
        for parameter, gradient in zip(together, gradients, strict=True):
            parameter.grad = gradient
        Muon(together, lr=torch.tensor(0.01), weight_decay=0.0).step()
        for one, other in zip(alone, together, strict=True):
            torch.testing.assert_close(one, other)

    def test_memory_layout_does_not_matter(self) -> None:
        gradient = randn(16, 8, 3, 3)
        plain = nn.Parameter(torch.zeros(16, 8, 3, 3))
        last = nn.Parameter(torch.zeros(16, 8, 3, 3).contiguous(memory_format=torch.channels_last))
        one_step(plain, gradient)
        one_step(last, gradient.contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(plain, last)
        assert last.is_contiguous(memory_format=torch.channels_last)

    def test_lopsided_inputs_are_learned_sooner_than_by_adam(self) -> None:
        """Numbers that share one large direction, as pixels share light: Adam's steps all go along it."""
        inputs = randn(512, 32) + 8 * randn(512, 1, seed=1) * randn(1, 32, seed=2)
        targets = inputs @ randn(32, 32, seed=3)

        def loss_after(muon: bool) -> float:
            layer = nn.Linear(32, 32, bias=False)
            with torch.no_grad():
                layer.weight.zero_()
            optimizers = make_optimizers(
                [{"params": list(layer.parameters())}],
                weight_decay=0.0,
                orthogonalise=muon,
                device=torch.device("cpu"),
            )
            for step in range(200):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                (layer(inputs) - targets).square().mean().backward()
                for optimizer in optimizers:
                    optimizer.param_groups[0]["lr"].fill_(0.1 * (1 - step / 200))
                    optimizer.step()
            return float((layer(inputs) - targets).square().mean().detach())

        assert loss_after(muon=True) < 0.5 * loss_after(muon=False)


class TestWhoMovesWhat:
    def test_matrices_inside_go_to_muon(self) -> None:
        layers = {
            "hidden": nn.Linear(64, 32),
            "convolution": nn.Conv2d(3, 16, 3),
            "read-out": nn.Linear(256, 8),
            "few numbers": nn.Linear(6, 64),
        }
        parameters = [p for layer in layers.values() for p in layer.parameters()]
        groups = [{"params": parameters, "lr_scale": 3.0}]
        muon, adam = make_optimizers(groups, weight_decay=0.1, orthogonalise=True, device=torch.device("cpu"))
        moved = muon.param_groups[0]["params"]
        assert [id(p) for p in moved] == [id(layers[name].weight) for name in ("hidden", "convolution")]
        both = [*moved, *adam.param_groups[0]["params"]]
        assert sorted(map(id, both)) == sorted(map(id, parameters))
        assert muon.param_groups[0]["lr_scale"] == adam.param_groups[0]["lr_scale"] == 3.0

    def test_adamw_moves_everything_if_told_so(self) -> None:
        layer = nn.Linear(64, 64)
        groups = [{"params": list(layer.parameters())}]
        made = make_optimizers(groups, weight_decay=0.1, orthogonalise=False, device=torch.device("cpu"))
        assert [type(optimizer) for optimizer in made] == [torch.optim.AdamW]
        assert len(made[0].param_groups[0]["params"]) == 2
