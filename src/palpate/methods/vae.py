"""A baseline: the object as the latent of a variational autoencoder (paper, Sec. 5; Kingma and Welling 2013).

phi_int is learned by equivariance, as in our method. z_ext has many dimensions, a standard Gaussian prior and no
geometry: a probe in `palpate.metrics.reading`, fitted to true states, reads a position from it.
Legend: b batch, n ambient dimension, k dimension of z_ext, d numbers in an observation.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.methods.base import Encoding, Loss, Model, paired
from palpate.methods.decoders import make_decoder, require_full_size
from palpate.networks import Branch, make_encoder, side_by_side
from palpate.objectives.equivariance import equivariance
from palpate.objectives.prior import standard_kl

LATENT = 32  # dimension of z_ext, the paper's
LOG_VARIANCE = 10.0  # soft bound of the posterior's: exp would overflow in the first steps of a large network
# Until the decoder uses z_ext, only the prior trains phi_ext, and all its units die in a few steps. So z_ext starts
# with little noise, and the weight of the prior rises over this share of the run.
FIRST_LOG_VARIANCE, WARM_UP = -4.0, 0.3


class VAE(Model):
    """phi_int by equivariance, z_ext by reconstruction from both."""

    places_object = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        require_full_size(config)
        self.phi_int = Branch(make_encoder(config), self.group.width)
        self.phi_ext = Branch(make_encoder(config), 2 * LATENT)
        nn.init.constant_(self.phi_ext.head.bias[LATENT:], FIRST_LOG_VARIANCE)
        self.decoder = make_decoder(config, self.group.pose_width, LATENT)
        self.fused_decoder: Callable[[Tensor, Tensor], Tensor] | None = None

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        both = torch.cat((batch.o, batch.o_next))
        x = self.inputs(both)  # reconstruction targets are not augmented
        raw, ext = side_by_side((self.phi_int, self.phi_ext), self.inputs(both, generator))
        mean, log_variance = self._posterior(ext)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        z_ext = mean + noise * (log_variance / 2).exp()
        # Only Eq. 3 places the agent: the reconstruction would distort its frame.
        drawn = self._draw(self.group.pose(raw.detach()), z_ext)
        return *map(paired, (drawn, x, mean, log_variance)), *raw.chunk(2), self.inputs.scaled(batch.a)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        """L_int (Eq. 3) and the negative evidence bound of o and o', both divided by the d numbers of an observation.

        The Gaussian likelihood has each channel's spread over the data, not 1 of 255. A sprite on a few pixels is then
        many spreads away from its background, and worth encoding. Divided by d the terms stay near 1 and do not
        outweigh L_int where gradients are clipped.
        """
        drawn, x, mean, log_variance, raw, raw_next, a = outputs
        z_int, z_int_next = self.group.pose(raw), self.group.pose(raw_next)
        nats = standard_kl(mean, log_variance)
        weight = (progress / WARM_UP).clamp(max=1)
        terms = {
            "agent": equivariance(self.group, z_int, a, z_int_next).mean(),
            "reconstruction": (drawn.float() - x).square().mean() / 2,
            "prior": weight * nats.mean() / x[0, 0].numel(),
        }
        return Loss(terms, {"nats": nats.mean().detach()})

    def _posterior(self, ext: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithmic variance [b, k] of z_ext."""
        mean, log_variance = ext.chunk(2, -1)
        return mean, LOG_VARIANCE * torch.tanh(log_variance / LOG_VARIANCE)

    def _draw(self, z_int: Tensor, z_ext: Tensor) -> Tensor:
        decoder = self.fused_decoder if self.fused_decoder is not None and self.training else self.decoder
        return self.ranks.by_rows(decoder, z_int, z_ext)

    def encode(self, o: Tensor) -> Encoding:
        """The agent's position; for objects the posterior's mean [b, 1, m], a latent."""
        x = self.inputs(o)
        agent = self.group.position(self.group.pose(self.phi_int(x)))
        return Encoding(agent * self.inputs.unit, self._posterior(self.phi_ext(x))[0][:, None])

    def compile_step(self) -> None:
        super().compile_step()
        self.fused_decoder = torch.compile(self.decoder.forward, dynamic=False)
