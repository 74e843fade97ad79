"""Standard encoders as a problem: what a bank of them computes on resident samples by batched products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, relu

from headcount.kernels.attention import softmax
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.dropping import HEARD, HIDDEN, SAID, WEIGHTS, factors, weight_units
from headcount.kernels.loss import Loss, squared
from headcount.nets.standard import EncoderShape

EPS = 1e-5  # of the layer norms


@dataclass(frozen=True, eq=False)
class EncoderBatch:
    """A batch for every member: which samples of which resident data set it sees.

    Member k reads `data[which[k], rows[k]]`, vectors or ids; `target` is what is wanted of each. `present` marks the
    tokens that exist where lengths differ; `keys` are those of the members' dropout masks at this step (see
    `dropping`), None: nothing is left out.
    """

    data: Float[Tensor, "sets samples length token_dim"] | Int[Tensor, "sets samples length"]
    which: Int[Tensor, " models"]
    rows: Int[Tensor, "models batch"]
    target: Float[Tensor, "models batch ..."]
    present: Bool[Tensor, "models batch length"] | None = None
    keys: Int[Tensor, " models"] | None = None

    def tokens(self) -> Float[Tensor, "models batch length token_dim"] | Int[Tensor, "models batch length"]:
        """The samples themselves, gathered."""
        return self.data[self.which[:, None], self.rows]

    def few(self, bank: Bank) -> tuple[EncoderBatch, ...]:
        """The first samples: as many as a comparison needs."""
        rows, target = (part[:, :32].contiguous() for part in (self.rows, self.target))
        present = None if self.present is None else self.present[:, :32].contiguous()
        return (EncoderBatch(self.data, self.which, rows, target, present, self.keys),)


@dataclass(frozen=True)
class Encoding:
    """An encoder's answer to every sample of an `EncoderBatch`, and its `loss`: squared, or cross-entropy of classes.

    >>> shape = EncoderShape(layers=((2, 3),), embed_dim=8, width=16, token_dim=5)
    >>> bank, x = Bank([shape, shape], seeds=[0, 1]), torch.randn(1, 6, 7, 5)
    >>> rows = torch.arange(6).expand(2, -1)
    >>> batch = EncoderBatch(x, torch.zeros(2, dtype=torch.int64), rows, torch.zeros(2, 6))
    >>> torch.allclose(Encoding().output(bank, bank.named(), batch)[1], bank.module(1)(x[0]), atol=1e-6)
    True
    """

    loss: Loss = squared

    def output(self, bank: Bank[EncoderShape], p: Stacked, batch: EncoderBatch) -> Float[Tensor, "models batch ..."]:
        """Every member's outputs (one: without an axis of its own)."""
        return encoder_output(bank.net, p, batch)

    reference = output

    def losses(self, output: Tensor, batch: EncoderBatch) -> Float[Tensor, "models batch"]:
        """The loss of every sample."""
        return self.loss(output, batch.target)

    def score(self, output: Tensor, batch: EncoderBatch) -> dict[str, Float[Tensor, "models batch"]]:
        """The same, to be averaged."""
        return {"loss": self.losses(output, batch)}


def encoder_output(shape: EncoderShape, p: Stacked, batch: EncoderBatch) -> Float[Tensor, "models batch ..."]:
    """Every member's outputs, layer by layer as `Encoder` does it (one: without an axis of its own)."""
    state, present = _entered(shape, p, batch)
    for i, (heads, head_dim) in enumerate(shape.layers):
        drop = _Dropping(shape, batch, i, state.shape[2])
        state = state + drop(HEARD, _attended(p, i, heads, head_dim, state, present, drop))
        state = state + drop(SAID, _fed(p, i, shape, state, drop))
    pooled = state[:, :, 0] if shape.pooling == "class token" else _mean(state, present)
    out = torch.baddbmm(p["read_out.bias"][:, None], _normed(p, "last", pooled), p["read_out.weight"].mT)
    return out[..., 0] if shape.outputs == 1 else out


@dataclass(frozen=True, eq=False)
class _Dropping:
    """The masks of a layer, where units are left out at all."""

    shape: EncoderShape
    batch: EncoderBatch
    layer: int
    tokens: int

    def __call__(self, site: int, x: Float[Tensor, "models batch tokens units"]) -> Tensor:
        if not self.shape.dropout or self.batch.keys is None:
            return x
        units = torch.arange(x.shape[-1], device=x.device)
        return x * self._factors(site, units, x.dtype)

    def weights(self, x: Float[Tensor, "models batch heads tokens tokens"]) -> Tensor:
        if not self.shape.dropout or self.batch.keys is None:
            return x
        units = weight_units(x.shape[2], x.shape[4], x.device)
        return x * self._factors(WEIGHTS, units, x.dtype).unflatten(-1, (x.shape[2], -1)).transpose(2, 3)

    def _factors(self, site: int, units: Tensor, dtype: torch.dtype) -> Tensor:
        assert self.batch.keys is not None
        arguments = (self.batch.keys, (self.layer, site), self.batch.rows, self.tokens, units)
        return factors(*arguments, self.shape.dropout, dtype)


def _entered(shape: EncoderShape, p: Stacked, batch: EncoderBatch) -> tuple[Tensor, Tensor | None]:
    """Every token's state before the first layer, and which of them exist; the class token stands first."""
    x, present = batch.tokens(), batch.present
    models, samples, length = x.shape[:3]
    shape.refuse_longer(length)
    if shape.vocab:
        first = torch.arange(models, device=x.device)[:, None, None] * shape.vocab
        state = embedding(x + first, p["embed"].flatten(0, 1))
    else:
        state = _linear(p, "embed", x)
    if shape.positions:
        state = state + p["places"][:, None, :length]
    if shape.pooling == "class token":
        state = torch.cat([p["cls"][:, None, None].expand(-1, samples, 1, -1), state], dim=2)
        present = None if present is None else torch.cat([present.new_ones(models, samples, 1), present], dim=2)
    return state, present


def _attended(
    p: Stacked, i: int, heads: int, head_dim: int, x: Tensor, present: Tensor | None, drop: _Dropping
) -> Float[Tensor, "models batch tokens embed"]:
    three = _linear(p, f"layer{i}.read", _normed(p, f"layer{i}.norm", x)).unflatten(-1, (3, heads, head_dim))
    q, k, v = (part.transpose(2, 3) for part in three.unbind(3))  # models, batch, heads, tokens, head_dim
    weights = drop.weights(softmax((q * head_dim**-0.5) @ k.mT, present))
    return _linear(p, f"layer{i}.write", (weights @ v).transpose(2, 3).flatten(3))


def _fed(p: Stacked, i: int, shape: EncoderShape, x: Tensor, drop: _Dropping) -> Tensor:
    activation = gelu if shape.activation == "gelu" else relu
    hidden = activation(_linear(p, f"layer{i}.inner", _normed(p, f"layer{i}.before", x)))
    return _linear(p, f"layer{i}.outer", drop(HIDDEN, hidden))


def _linear(p: Stacked, name: str, x: Float[Tensor, "models batch tokens inputs"]) -> Tensor:
    out = torch.baddbmm(p[f"{name}.bias"][:, None], x.flatten(1, 2), p[f"{name}.weight"].mT)
    return out.view(*x.shape[:3], -1)


def _normed(p: Stacked, name: str, x: Float[Tensor, "models ... embed"]) -> Tensor:
    weight, bias = (p[f"{name}.{part}"].view(len(x), *(1,) * (x.ndim - 2), -1) for part in ("weight", "bias"))
    return layer_norm(x, x.shape[-1:], eps=EPS) * weight + bias


def _mean(state: Float[Tensor, "models batch tokens embed"], present: Tensor | None) -> Tensor:
    if present is None:
        return state.mean(dim=2)
    mask = present.to(state.dtype)[..., None]
    return (state * mask).sum(dim=2) / mask.sum(dim=2)
