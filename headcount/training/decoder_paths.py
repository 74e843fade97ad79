"""Which way a bank of decoders is computed: by batched products, or in kernels where these prove themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.nets.causal import DecoderShape
from headcount.training.backends.choice import LONG, Update, not_compiled, rounding
from headcount.training.decoder_bank import DecoderBank, answer_loss
from headcount.training.optimiser import AdamW

__all__ = [
    "DecoderBatch",
    "DecoderPath",
    "by_products",
    "choose_decoder",
    "in_decoder_kernels",
    "in_decoder_warps",
    "proved_decoder",
]


@dataclass(frozen=True, eq=False)
class DecoderBatch:
    """A batch of strings for every member: what is read, what is to be said where, and where places begin."""

    ids: Int[Tensor, "models batch length"]
    targets: Int[Tensor, "models batch length"]
    judged: Bool[Tensor, "models batch length"]
    offset: Int[Tensor, "models batch"]
    counts: Int[Tensor, " models"]  # judged places

    @property
    def size(self) -> tuple[int, int, int]:
        """Members, strings of each, places of a string."""
        models, batch, length = self.ids.shape
        return models, batch, length


@dataclass(frozen=True)
class DecoderPath:
    """A way to the gradient of every member's loss, and to move along it.

    `tolerance` is how far a member's gradient may be from the plain one, relative to its norm, by rounding alone (0: it
    is the plain one).
    """

    name: str
    gradient: Callable[[DecoderBank, DecoderBatch], Float[Tensor, "models parameters"]]
    update: Update = AdamW.update
    tolerance: float = 0.0


def by_products(precision: str = "full") -> DecoderPath:
    """Batched products and automatic differentiation, in float32 or float64, or with bfloat16 products."""

    def gradient(bank: DecoderBank, batch: DecoderBatch) -> Tensor:
        theta = bank.theta.detach().requires_grad_()
        with torch.enable_grad():
            with _products(theta.device.type, precision):
                logits = bank.logits(bank.named(theta), batch.ids, batch.offset)
            lost = answer_loss(logits, batch.targets, batch.judged)
            (out,) = torch.autograd.grad(lost.sum(), theta)
        return out

    return DecoderPath("batched products" + ("" if precision == "full" else f" ({precision})"), gradient)


def _products(device: str, precision: str) -> AbstractContextManager[object]:
    return nullcontext() if precision == "full" else torch.autocast(device, torch.bfloat16, cache_enabled=False)


def in_decoder_kernels(precision: str = "half") -> DecoderPath:
    """The whole pass written out in kernels, factors of products in float16 ("half") or float32 ("ieee")."""
    from headcount.training.backends import fused
    from headcount.training.backends.decoder_network import decoder_gradient
    from headcount.training.backends.tiles import SublayerTile

    tile = SublayerTile(precision=precision)

    def gradient(bank: DecoderBank, batch: DecoderBatch) -> Tensor:
        return decoder_gradient(bank.shape, bank.theta, batch, tile)[0]

    return DecoderPath(f"decoders in kernels ({precision})", gradient, fused.update, 1.0)


def in_decoder_warps() -> DecoderPath:
    """The same pass with the layers as programs of warps, factors of products in float16."""
    from headcount.training.backends import fused
    from headcount.training.backends.decoder_network import decoder_gradient
    from headcount.training.backends.tiles import SublayerTile

    def gradient(bank: DecoderBank, batch: DecoderBatch) -> Tensor:
        return decoder_gradient(bank.shape, bank.theta, batch, SublayerTile(), warps=True)[0]

    return DecoderPath("decoders by warps (half)", gradient, fused.update, 1.0)


def choose_decoder(
    shape: DecoderShape, length: int, device: torch.device | str, dtype: str, precision: str, steps: int = 0
) -> DecoderPath:
    """The fastest way for these decoders on this device; on a CPU, compiled for a training of `LONG` steps or more."""
    plain = by_products(precision)
    if torch.device(device).type == "cpu" and precision == "full" and steps >= LONG:
        from headcount.training.backends.compiled_decoders import compiled_decoder_path

        return compiled_decoder_path(shape, dtype) or plain
    if torch.device(device).type != "cuda" or precision != "full":
        return plain
    try:
        from headcount.training.backends.decoder_network import decoder_held, decoders_by_warps
        from headcount.training.backends.tiles import SublayerTile

        if not decoder_held(shape, length, getattr(torch, dtype), SublayerTile()):
            return plain
        return in_decoder_warps() if decoders_by_warps(shape, length) else in_decoder_kernels()
    except ImportError as missing:
        print(f"headcount: no kernels without Triton ({missing}); {plain.name} instead", file=sys.stderr)  # noqa: T201
        return plain


def proved_decoder(path: DecoderPath, bank: DecoderBank, batch: DecoderBatch) -> DecoderPath:
    """The path, if every member's gradient on this batch is the plain one up to rounding; else the plain one, with a
    line that says whose is off and by how much."""
    if not path.tolerance:
        return path
    plain, limit = by_products(), min(path.tolerance, rounding(bank.shape.depth))
    complaint = _complaint(path, plain, bank, batch, limit)
    if complaint is None:
        return path
    print(f"headcount: {path.name}: {complaint}; {plain.name} instead", file=sys.stderr)  # noqa: T201
    return plain


def _complaint(
    path: DecoderPath, plain: DecoderPath, bank: DecoderBank, batch: DecoderBatch, limit: float
) -> str | None:
    try:
        got = path.gradient(bank, batch)
    except Exception as error:
        if not not_compiled(error):
            raise
        return str(error).strip().splitlines()[0][:100]
    true = plain.gradient(bank, batch)
    size = true.norm(dim=1)
    gaps = torch.where(size.isfinite(), (got - true).norm(dim=1) / size.clamp(min=1e-20), 0.0)
    if bool((gaps <= limit).all()):
        return None
    worst = int(gaps.nan_to_num(nan=torch.inf).argmax())
    return f"the gradient of member {worst} is off by {gaps[worst].item():.1e}, {limit:.1e} is rounding"
