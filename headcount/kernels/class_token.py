"""Class-token networks as a problem: what a bank of them computes on resident samples, and what it loses."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.loss import Loss, squared
from headcount.kernels.plain import Batch, collapsed, plain


@dataclass(frozen=True)
class ClassToken:
    """The class token's answer to every sample of a `Batch`, and its `loss`: squared, or cross-entropy of classes."""

    loss: Loss = squared

    def output(self, bank: Bank, p: Stacked, batch: Batch) -> Float[Tensor, "models batch ..."]:
        """Every member's output, the last layer collapsed."""
        return collapsed(bank, p, batch)

    def reference(self, bank: Bank, p: Stacked, batch: Batch) -> Float[Tensor, "models batch ..."]:
        """The same layer by layer."""
        return plain(bank, p, batch)

    def losses(self, output: Tensor, batch: Batch) -> Float[Tensor, "models batch"]:
        """The loss of every sample."""
        return self.loss(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> dict[str, Float[Tensor, "models batch"]]:
        """The same, to be averaged."""
        return {"loss": self.losses(output, batch)}
