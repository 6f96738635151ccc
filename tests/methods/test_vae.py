from typing import Any

import pytest
import torch
from torch import Tensor

import palpate
from palpate.collecting.collect import collect
from palpate.config import ModelConfig
from palpate.data.stream import Stream
from palpate.data.transitions import Batch
from palpate.encoders import BasicBlock
from palpate.envs.registration import stream_world
from palpate.methods.decoders import PictureDecoder, make_decoder
from palpate.methods.store import build
from palpate.methods.vae import WARM_UP


def vae(shape: tuple[int, ...] = (3, 20, 20)) -> Any:
    torch.manual_seed(0)
    encoder: Any = "mlp" if len(shape) == 1 else "small"
    model = build(
        ModelConfig(
            method="vae",
            encoder=encoder,
            observation_shape=shape,
            observation_dtype="uint8" if len(shape) == 3 else "float32",
            n=2,
        )
    )
    model.measure(batch(shape))
    return model


def batch(shape: tuple[int, ...] = (3, 20, 20)) -> Batch:
    generator = torch.Generator().manual_seed(0)
    if len(shape) == 3:
        o, o_next = torch.randint(256, (2, 8, *shape), generator=generator, dtype=torch.uint8)
    else:
        o, o_next = torch.randn(2, 8, *shape, generator=generator)
    return Batch(o, torch.randn(8, 2, generator=generator), o_next)


def terms(model: Any, given: Batch, seed: int = 1) -> dict[str, Tensor]:
    found: dict[str, Tensor] = model.loss(given, torch.Generator().manual_seed(seed), torch.tensor(0.5)).terms
    return found


class TestLoss:
    def test_is_the_evidence_bound_per_number(self) -> None:
        """The weighted terms add up to -log p(x | z) + KL of a unit Gaussian, without its constant, over d."""
        model, given = vae(), batch()
        model.decoder.grow.last.bias.data.fill_(0.5)  # a new decoder draws almost nothing
        loss = model.loss(given, torch.Generator().manual_seed(1), torch.tensor(0.5))
        x = model.inputs(torch.cat((given.o, given.o_next)))
        z_int, (mean, log_variance) = model.phi_int(x), model._posterior(model.phi_ext(x))
        noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
        drawn = model.decoder(z_int, mean + noise * (log_variance / 2).exp())
        likelihood = torch.distributions.Normal(drawn, 1.0).log_prob(x) - torch.distributions.Normal(x, 1.0).log_prob(x)
        posterior = torch.distributions.Normal(mean, (log_variance / 2).exp())
        kl = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(-1)
        bound = (likelihood.flatten(1).sum(-1) - kl).mean()
        total = loss.terms["reconstruction"] + loss.terms["prior"]
        torch.testing.assert_close(total, -bound / (3 * 20 * 20), rtol=1e-4, atol=0)
        torch.testing.assert_close(loss.readings["nats"], kl.mean().detach())

    def test_the_latent_is_drawn_from_the_posterior_which_is_narrow_at_first(self) -> None:
        model, given, drawn = vae(), batch(), []
        plain = model.decoder.forward
        model.decoder.forward = lambda z_int, z_ext: (drawn.append(z_ext), plain(z_int, z_ext))[1]
        terms(model, given)
        mean, log_variance = model._posterior(model.phi_ext(model.inputs(torch.cat((given.o, given.o_next)))))
        noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(drawn[0], mean + noise * log_variance.exp().sqrt())
        assert float(log_variance.detach().mean()) == pytest.approx(-4, abs=0.5)

    def test_the_prior_gains_its_weight(self) -> None:
        model, given = vae(), batch()
        begin, half, warm, end = (
            float(model.loss(given, torch.Generator(), torch.tensor(progress)).terms["prior"].detach())
            for progress in (0.0, WARM_UP / 2, WARM_UP, 1.0)
        )
        assert (begin, half, warm) == pytest.approx((0, end / 2, end), rel=1e-5)

    def test_drawing_does_not_move_the_agent(self) -> None:
        """phi_int learns from equivariance alone."""
        model = vae()
        found = terms(model, batch())
        (found["reconstruction"] + found["prior"]).backward()
        assert all(p.grad is None for p in model.phi_int.parameters())
        assert all(p.grad is not None for p in model.phi_ext.parameters())

    def test_the_picture_to_draw_is_not_disturbed(self) -> None:
        model, given = vae(), batch()
        model.inputs.augment = "shift"
        model.decoder.forward = lambda z_int, z_ext: torch.zeros(16, 3, 20, 20)
        still = model.inputs(torch.cat((given.o, given.o_next)))
        torch.testing.assert_close(terms(model, given)["reconstruction"], still.square().mean() / 2)

    def test_its_noise_comes_from_the_generator(self) -> None:
        model, given = vae(), batch()
        assert torch.equal(terms(model, given)["reconstruction"], terms(model, given)["reconstruction"])
        assert not torch.equal(terms(model, given)["reconstruction"], terms(model, given, seed=2)["reconstruction"])

    def test_an_extreme_variance_stays_finite(self) -> None:
        model = vae()
        model.phi_ext.head.weight.data.mul_(1e4)
        assert all(term.isfinite() for term in terms(model, batch()).values())


@pytest.mark.parametrize(
    ("shape", "residual"), [((3, 16, 16), True), ((3, 100, 100), False), ((5, 33, 61), True)], ids=str
)
def test_a_decoder_draws_any_size(shape: tuple[int, int, int], residual: bool) -> None:
    with torch.no_grad():
        assert PictureDecoder(2, 4, shape, residual=residual)(torch.zeros(2, 2), torch.zeros(2, 4)).shape == (2, *shape)


@pytest.mark.parametrize("residual", [True, False])
def test_the_maps_of_a_decoder_double(residual: bool) -> None:
    decoder = PictureDecoder(2, 4, (3, 128, 128), residual=residual)
    sizes = [decoder.first]
    for stage in decoder.grow.stages:
        stage.register_forward_hook(lambda module, x, y: sizes.append(list(y.shape[2:])))
    with torch.no_grad():
        decoder(torch.zeros(2, 2), torch.zeros(2, 4))
    first, *others = sizes
    assert others == [[side * 2**i for side in first] for i in range(len(others))]
    assert len(others) > 2


def test_a_decoder_is_residual_if_its_encoder_is() -> None:
    for encoder, residual in (("resnet18", True), ("small", False)):
        config = ModelConfig(encoder=encoder, observation_shape=(3, 32, 32), observation_dtype="uint8", n=2)
        decoder = make_decoder(config, 2, 4)
        assert any(isinstance(part, BasicBlock) for part in decoder.modules()) == residual


@pytest.mark.slow
def test_learns_sprites() -> None:
    """The agent by equivariance, the object through a probe; and what it draws is nearer than the mean picture."""
    size = 24
    settings: dict[str, Any] = {"method": "vae", "encoder": "small", "batch_size": 64, "learning_rate": 3e-3}
    settings |= {"device": "cpu", "progress": False}
    test = collect("palpate/Sprites-v0", 1000, seed=9, labelled=True, size=size)
    stream = stream_world("palpate/Sprites-v0", size=size)
    before, model = (palpate.fit(stream, steps=steps, **settings) for steps in (1, 120))
    untrained, scores = palpate.evaluate(before, test), palpate.evaluate(model, test)
    assert scores.probe_rows == 500
    assert untrained.l_test > 0.1
    assert scores.l_test < 0.02
    assert scores.object_error < 0.07
    given = Stream(stream).draw(256, torch.Generator().manual_seed(1))
    with torch.no_grad():
        left = terms(model.model, given)["reconstruction"]
    assert float(left) < 0.25  # the mean picture leaves 0.5
