"""The prior of a variational autoencoder: a standard Gaussian.

Legend: b batch, k dimension of the latent.
"""

from torch import Tensor


def standard_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) || N(0, 1)) in nats, `[b]` from [b, k] each. Zero for the prior itself."""
    return (mean.square() + log_variance.exp() - log_variance - 1).sum(-1) / 2
