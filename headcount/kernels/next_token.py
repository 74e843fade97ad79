"""Decoders with grouped queries as a problem: what a bank of them says after every token of its windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from headcount.kernels.bank import Bank, Stacked
from headcount.nets.grouped import GroupedShape, grouped_logits


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """Windows of T + 1 tokens for every member, each of which gives T predictions."""

    ids: Int[Tensor, "models batch long"]

    def few(self, bank: Bank) -> tuple[WindowBatch, ...]:
        """All of it: a step's windows are few."""
        return (self,)


@dataclass(frozen=True)
class NextToken:
    """The mean cross-entropy of each window's next tokens; with bfloat16, every matrix but the table is in it."""

    precision: Literal["full", "bfloat16"] = "full"

    def output(self, bank: Bank[GroupedShape], p: Stacked, batch: WindowBatch) -> Tensor:
        """Every member's logits of the next token, at every place of its windows."""
        if self.precision == "bfloat16":
            p = {name: w if name == "token" else w.to(torch.bfloat16) for name, w in p.items()}
        return grouped_logits(bank.net, p, batch.ids[..., :-1])

    def reference(self, bank: Bank[GroupedShape], p: Stacked, batch: WindowBatch) -> Tensor:
        """The same with full products."""
        return grouped_logits(bank.net, p, batch.ids[..., :-1])

    def losses(self, output: Tensor, batch: WindowBatch) -> Float[Tensor, "models batch"]:
        """The loss of each window in nats."""
        wide = output.float() if output.dtype.itemsize < 4 else output
        losses = cross_entropy(wide.flatten(0, 2), batch.ids[..., 1:].flatten(), reduction="none")
        return losses.view(*batch.ids.shape[:2], -1).mean(-1)

    def score(self, output: Tensor, batch: WindowBatch) -> dict[str, Float[Tensor, "models batch"]]:
        """The same, to be averaged."""
        return {"loss": self.losses(output, batch).double()}
