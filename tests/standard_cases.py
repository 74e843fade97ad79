"""Random banks of standard encoders: shapes, entries, masks, poolings, outputs and losses drawn by a seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.torch_encoder import TorchEncoder
from headcount.kernels.backend import eager
from headcount.kernels.bank import Bank
from headcount.kernels.cpp import compiled_encoders
from headcount.kernels.dropping import dropping_keys
from headcount.kernels.encoding import EncoderBatch, Encoding
from headcount.kernels.loss import Loss, cross_entropy, squared
from headcount.nets.standard import EncoderShape


@dataclass
class EncoderCase:
    """A bank with a batch in float64, and the same in float32."""

    shape: EncoderShape
    theta: Tensor
    batch: EncoderBatch
    target: Tensor
    loss: Loss

    def bank(self, dtype: torch.dtype = torch.float64) -> Bank:
        bank = bank_of(self.shape, list(range(len(self.theta))), dtype=dtype)
        bank.theta = self.theta.to(dtype)
        return bank

    def of(self, dtype: torch.dtype) -> tuple[Bank, EncoderBatch, Tensor]:
        data = self.batch.data if self.shape.vocab else self.batch.data.to(dtype)
        return self.bank(dtype), replace(self.batch, data=data), self.target.to(dtype)


def bank_of(shape: EncoderShape, seeds: Sequence[int], dtype: torch.dtype = torch.float32) -> Bank:
    """A bank of one shape."""
    return Bank([shape] * len(seeds), seeds, dtype=dtype)


def outputs_of(bank: Bank, batch: EncoderBatch) -> Tensor:
    """Outputs by batched products."""
    return Encoding().output(bank, bank.named(), batch)


def outputs_by_cpp(bank: Bank, batch: EncoderBatch) -> Tensor:
    """Outputs in compiled C++."""
    return compiled_encoders.backend.forward(Encoding(), bank, bank.named(), batch)


def by_products(loss: Loss = squared) -> Callable[[Bank, EncoderBatch, Tensor], Tensor]:
    """Gradients by batched products."""
    return lambda bank, batch, target: eager.gradient(Encoding(loss), bank, replace(batch, target=target))


def by_cpp(loss: Loss = squared) -> Callable[[Bank, EncoderBatch, Tensor], Tensor]:
    """Gradients in compiled C++."""
    return lambda bank, batch, target: compiled_encoders.backend.gradient(
        Encoding(loss), bank, replace(batch, target=target)
    )


def drawn_encoders(seed: int, dropout: bool = False, divided: bool = False) -> EncoderCase:
    """Encoders away from their start; some tokens are absent, some answers are classes.

    `divided`: the heads divide the state among them, as torch's own layers have it.
    """
    g = torch.Generator().manual_seed(seed)

    def up_to(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=g))

    depth, length, models, batch, samples = up_to(3), up_to(20), up_to(3), up_to(60), 40
    heads, head_dim = up_to(4), up_to(9)
    layers = ((heads, head_dim),) * depth if divided else tuple((up_to(5), up_to(9)) for _ in range(depth))
    ids, outputs = up_to(2) == 1, up_to(4)
    shape = EncoderShape(
        layers,
        embed_dim=heads * head_dim if divided else 2 + up_to(40),
        width=up_to(40),
        token_dim=0 if ids else up_to(5),
        vocab=up_to(9) if ids else 0,
        positions=(length + up_to(3) - 1) * (up_to(2) - 1),
        outputs=outputs,
        dropout=(0.1, 0.5)[up_to(2) - 1] if dropout else 0.0,
        activation=("relu", "gelu")[up_to(2) - 1],
        pooling=("mean", "class token")[up_to(2) - 1],
    )
    theta = bank_of(shape, range(models), dtype=torch.float64).theta
    theta = theta + 0.2 * torch.randn(theta.shape, generator=g, dtype=torch.float64)
    if ids:
        data = torch.randint(0, shape.vocab, (2, samples, length), generator=g)
    else:
        data = torch.randn(2, samples, length, shape.token_dim, generator=g, dtype=torch.float64)
    present = torch.rand(models, batch, length, generator=g) < 0.7
    present[..., up_to(length) - 1] = True  # of every sample something is there
    which = torch.randint(0, 2, (models,), generator=g)
    rows = torch.randint(0, samples, (models, batch), generator=g)
    target = torch.randn(models, batch, outputs, generator=g, dtype=torch.float64)
    loss = cross_entropy if outputs > 1 and up_to(2) == 1 else squared
    target = target.softmax(-1) if loss is cross_entropy else target
    keys = dropping_keys(range(models), up_to(1000)) if dropout else None
    target = target[..., 0] if outputs == 1 else target
    batched = EncoderBatch(data, which, rows, target, present if up_to(3) > 1 else None, keys)
    return EncoderCase(shape, theta, batched, target, loss)


def torch_gradient(case: EncoderCase) -> Tensor:
    """Every member's gradient by torch's own layers, member by member."""
    bank, found = case.bank(), []
    x = case.batch.tokens()
    for k in range(len(bank)):
        net = TorchEncoder(case.shape).double().load(bank.named(), k)
        present = None if case.batch.present is None else case.batch.present[k]
        out = net(x[k], present)
        case.loss(out[None], case.target[k : k + 1]).mean().backward()
        found.append(torch.cat([p.grad.flatten() for p in net.named().values()]))
    return torch.stack(found)
