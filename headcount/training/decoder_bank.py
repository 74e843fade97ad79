"""K decoders as one: their parameters stacked along a model axis, the forward pass in batched products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, scaled_dot_product_attention

from headcount.nets.causal import EPS, CausalTransformer, DecoderShape, rotated

__all__ = ["DecoderBank", "answer_loss", "answers_right"]


class DecoderBank:
    """The parameters of K decoders of one shape as rows of one matrix.

    >>> shape = DecoderShape(((1, 4),), embed_dim=8, width=16, vocab=5, context=10)
    >>> bank = DecoderBank(shape, seeds=[0, 1])
    >>> ids = torch.randint(5, (2, 3, 7))
    >>> out = bank.logits(bank.named(), ids)
    >>> torch.allclose(out[1], bank.module(1)(ids[1]), atol=1e-6)
    True
    """

    def __init__(
        self,
        shape: DecoderShape,
        seeds: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if not seeds:
            raise ValueError("a bank needs at least one member")
        self.shape, self.seeds = shape, tuple(seeds)
        rows = [_flat(CausalTransformer(shape, seed=seed)) for seed in seeds]
        self.theta: Float[Tensor, "models parameters"] = torch.stack(rows).to(device=device, dtype=dtype)

    def __len__(self) -> int:
        return len(self.seeds)

    def named(self, theta: Float[Tensor, "models parameters"] | None = None) -> dict[str, Tensor]:
        """The stacked tensors by name; views of `theta`, so gradients reach it."""
        theta = self.theta if theta is None else theta
        sizes = self.shape.tensors()
        parts = theta.split([torch.Size(size).numel() for size in sizes.values()], dim=1)
        return {name: part.view(len(self), *size) for (name, size), part in zip(sizes.items(), parts, strict=True)}

    def module(self, member: int, theta: Float[Tensor, "models parameters"] | None = None) -> CausalTransformer:
        """One member as the plain network it is."""
        stacked = self.named(theta)
        net = CausalTransformer(self.shape).to(self.theta.dtype)
        with torch.no_grad():
            for name, p in net.named().items():
                p.copy_(stacked[name][member])
        return net

    def logits(
        self,
        p: dict[str, Tensor],
        ids: Int[Tensor, "models batch length"],
        offset: Int[Tensor, "models batch"] | None = None,
    ) -> Float[Tensor, "models batch length vocab"]:
        """Every member's logits of the next letter, at every place of its own strings."""
        models, batch, length = ids.shape
        x = _looked_up(p["token"], ids.flatten(1)).view(models, batch * length, -1)
        if self.shape.positions == "absolute":
            places = torch.arange(length, device=ids.device).expand(models, batch, length)
            places = places if offset is None else places + offset[..., None]
            x = x + _looked_up(p["place"], places.reshape(models, -1))
        for i, (heads, _) in enumerate(self.shape.layers):
            x = x + self._attend(p, i, heads, _normed(p, f"layer{i}.norm", x), batch)
            inner, outer = p[f"layer{i}.inner.weight"].mT, p[f"layer{i}.outer.weight"].mT
            hidden = gelu(torch.baddbmm(p[f"layer{i}.inner.bias"][:, None], _normed(p, f"layer{i}.before", x), inner))
            x = x + torch.baddbmm(p[f"layer{i}.outer.bias"][:, None], hidden, outer)
        return (_normed(p, "last", x) @ p["logits"].mT).view(models, batch, length, -1)

    def _attend(self, p: dict[str, Tensor], i: int, heads: int, x: Tensor, batch: int) -> Tensor:
        models, rows, _ = x.shape
        three = (x @ p[f"layer{i}.read"].mT).view(models * batch, rows // batch, 3, heads, -1)
        q, k, v = three.permute(2, 0, 3, 1, 4)
        if self.shape.positions == "rotary":
            q, k = rotated(q), rotated(k)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)  # (models * batch, heads, length, head_dim)
        return mixed.transpose(1, 2).reshape(models, rows, -1) @ p[f"layer{i}.write"].mT


def answer_loss(
    logits: Float[Tensor, "models batch length vocab"],
    targets: Int[Tensor, "models batch length"],
    judged: Bool[Tensor, "models batch length"],
) -> Float[Tensor, " models"]:
    """The cross-entropy of what is to be said, its mean over the judged places, by member."""
    said = torch.log_softmax(logits.float() if logits.dtype.itemsize < 4 else logits, dim=-1)
    right = said.gather(-1, targets[..., None])[..., 0]
    return -(right * judged).sum(dim=(1, 2)) / judged.sum(dim=(1, 2)).clamp(min=1)


def answers_right(
    logits: Float[Tensor, "models batch length vocab"],
    targets: Int[Tensor, "models batch length"],
    judged: Bool[Tensor, "models batch length"],
) -> tuple[Float[Tensor, " models"], Float[Tensor, " models"]]:
    """The share of judged places whose letter gets the largest logit, and of strings all of whose places do."""
    right = logits.argmax(dim=-1) == targets
    letters = (right & judged).sum(dim=(1, 2)) / judged.sum(dim=(1, 2)).clamp(min=1)
    return letters.double(), (right | ~judged).all(dim=2).double().mean(dim=1)


def _normed(p: dict[str, Tensor], name: str, x: Float[Tensor, "models rows embed"]) -> Tensor:
    return layer_norm(x, x.shape[-1:], eps=EPS) * p[f"{name}.weight"][:, None] + p[f"{name}.bias"][:, None]


def _looked_up(table: Float[Tensor, "models letters embed"], ids: Int[Tensor, "models rows"]) -> Tensor:
    first = torch.arange(len(table), device=ids.device)[:, None] * table.shape[1]
    return embedding(ids + first, table.flatten(0, 1))


def _flat(net: CausalTransformer) -> Tensor:
    return torch.cat([p.detach().double().flatten() for p in net.named().values()])
