"""Readings of the steps, in device memory."""

import torch
from torch import Tensor


class NonFiniteLoss(RuntimeError):  # noqa: N818 - reads as what it is
    """A loss term or the gradient was not finite; no weight was updated with it."""


class Notes:
    """Running sums of the readings, and a flag for values that are not finite."""

    def __init__(self, terms: list[str], readings: list[str], device: torch.device) -> None:
        self.terms, self.names = terms, [*terms, *readings]
        self.sums = torch.zeros(len(self.names), device=device)
        self.count = torch.zeros((), device=device)
        self.bad = torch.zeros(len(terms), dtype=torch.bool, device=device)
        self.stop = torch.zeros((), device=device)

    def add(self, terms: list[Tensor], readings: list[Tensor]) -> Tensor:
        """Add one step. Returns a flag: 1 from the first step with a non-finite term on, else 0."""
        values = torch.stack([value.detach().float() for value in (*terms, *readings)])
        # Only the first bad step is recorded: the following ones repeat it, since nothing is updated.
        self.bad |= ~values[: len(terms)].isfinite() & (self.stop == 0)
        self.stop.copy_(self.bad.any())
        self.sums += values
        self.count += 1 - self.stop
        return self.stop

    def check(self) -> None:
        """Raise if any step was not finite."""
        if self.stop.item():
            names = [name for name, bad in zip(self.terms, self.bad.tolist(), strict=True) if bad]
            raise NonFiniteLoss(
                f"the loss is not finite: {', '.join(names)}, {int(self.count)} good steps after the last reading. The "
                "weights are those of the last good step. Lower the learning rate, or look for extreme values in the "
                "observations."
            )

    def read(self) -> dict[str, float]:
        """Averages since the last reading."""
        self.check()
        means = (self.sums / self.count.clamp(min=1)).tolist()
        self.sums.zero_()
        self.count.zero_()
        return dict(zip(self.names, means, strict=True))
