"""How the loss of a language model leans on every part of its attention: one pass forward and back over some text.

With L the summed loss of a text, a query q that is changed by dq changes L by <dL/dq, dq>; the mean square of such
slopes over tokens, halved, is the second-order change of the loss per token (the Fisher information stands for the
Hessian, and places are taken one by one). So every cut below has a price in units of loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from headcount.nets.pretrained.families import family_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.papers.allocation.moments import probing

ROWS = 32  # query rows of a window at which the softmax metric is taken
AT_ONCE = 16_384  # tokens that a device reads at once
FIRST = 8  # the first of them: before it a row has hardly anything to choose from


@dataclass(frozen=True)
class PairSlopes:
    """What passes through the frequencies of a rotary layer: a pair is one frequency of a key head, with its readers.

    `gate[g]` = E a a', a_f = sum over the group's heads of <q_f, dL/dq_f>: the slope by a gate on the pair.
    `softmax[h]` = the covariance of the pairs' logits under the attention itself, E cov_p(e), e_f = scale <q_f, k_f>:
    the second order of the divergence of a row. The others are what published scores are made of.
    """

    gate: Float[Tensor, "keys pairs pairs"]
    softmax: Float[Tensor, "heads pairs pairs"]
    query_norm: Float[Tensor, "heads pairs"]
    query_power: Float[Tensor, "heads pairs"]
    key_norm: Float[Tensor, "keys pairs"]
    key_power: Float[Tensor, "keys pairs"]
    across: Complex[Tensor, "pairs keys keys"]  # E k_a conj(k_b) at equal frequency


@dataclass(frozen=True)
class LayerSlopes:
    """Second moments per token of one layer: of queries, keys, values and attended values u, of dL/dq and dL/du."""

    query: Float[Tensor, "heads dim dim"]
    query_slope: Float[Tensor, "heads dim dim"]
    key: Float[Tensor, "keys dim dim"]
    value: Float[Tensor, "keys dim dim"]
    attended: Float[Tensor, "heads dim dim"]
    attended_slope: Float[Tensor, "heads dim dim"]
    mean: Float[Tensor, "heads dim"]
    pairs: PairSlopes | None


def next_token_losses(model: Any, windows: Int[Tensor, "windows length"]) -> Float[Tensor, " windows"]:
    """The mean loss of every window, each token but the first being predicted from those before it.

    A processor reads one window after the other; a device that would idle at one reads several at once.
    """
    at_once = max(1, AT_ONCE // windows.shape[1]) if model.device.type == "cuda" else 1
    return torch.cat([_summed(model, some).cpu() / (some.shape[1] - 1) for some in windows.split(at_once)])


def loss_slopes(
    model: nn.Module, windows: Int[Tensor, "windows length"], say: Callable[[str], None] = lambda _: None
) -> list[LayerSlopes]:
    """The slopes of every layer on these windows; the model must hold ragged heads of full rank (`rewrite`)."""
    family = family_of(model)
    layers = family.layers(model)
    sums = [_Sums(family.read(layer).layout, family.read(layer).scale) for layer in layers]
    entered: Any = model
    grown = entered.get_input_embeddings().register_forward_hook(lambda _, __, out: out.detach().requires_grad_())
    try:
        with probing(family, layers, sums), torch.enable_grad():
            for number, window in enumerate(windows, start=1):
                _summed(model, window[None]).sum().backward()
                say(f"slopes of the loss, window {number} of {len(windows)}")
    finally:
        grown.remove()
    return [each.slopes(windows.numel()) for each in sums]


def _summed(model: Any, windows: Int[Tensor, "windows length"]) -> Float[Tensor, " windows"]:
    windows = windows.to(model.device)
    logits = model(input_ids=windows, use_cache=False).logits[:, :-1].flatten(0, 1)
    return nn.functional.cross_entropy(logits, windows[:, 1:].flatten(), reduction="none").view(len(windows), -1).sum(1)


class _Sums:
    """Adds up one layer's moments; changes nothing."""

    def __init__(self, layout: HeadLayout, scale: float) -> None:
        self.layout, self.scale = layout, scale
        self.firsts = [heads[0] for heads in layout.each_group]
        self.total: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor) -> None:
        value = value.detach().cpu().to(torch.complex128 if value.is_complex() else torch.float64)
        self.total[name] = self.total[name] + value if name in self.total else value

    def queries(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        detached, keys, values = q.detach(), k.detach()[:, self.firsts], v.detach()[:, self.firsts]
        self.add("query", _second(detached))
        self.add("key", _second(keys))
        self.add("value", _second(values))
        if self.layout.rotary:
            self.pairs(detached, keys)
        q.register_hook(lambda slope: self.query_slopes(detached, slope))
        return q

    def query_slopes(self, q: Tensor, slope: Tensor) -> None:
        self.add("query_slope", _second(slope))
        if self.layout.rotary:
            lean = _pairs(q * slope).sum(-2)  # batch, heads, length, pairs
            groups = [lean[:, list(heads)].sum(1) for heads in self.layout.each_group]
            self.add("gate", _second(torch.stack(groups, 1)))

    def outputs(self, u: Tensor) -> Tensor:
        attended = u.detach().transpose(1, 2)
        self.add("attended", _second(attended))
        self.add("mean", attended.sum((0, 2)))
        u.register_hook(lambda slope: self.add("attended_slope", _second(slope.transpose(1, 2))))
        return u

    def pairs(self, q: Tensor, k: Tensor) -> None:
        for name, part in (("query", _pairs(q)), ("key", _pairs(k))):
            power = part.square().sum(-2)
            self.add(f"{name}_power", power.sum((0, 2)))
            self.add(f"{name}_norm", power.sqrt().sum((0, 2)))
        complex_keys = torch.view_as_complex(_pairs(k).transpose(-1, -2).contiguous())
        self.add("across", torch.einsum("batf,bctf->fac", complex_keys, complex_keys.conj()))
        for one, other in zip(q, k, strict=True):
            self.add("softmax", self.softmax(one, other))

    def softmax(
        self, q: Float[Tensor, "heads length dim"], k: Float[Tensor, "keys length dim"]
    ) -> Float[Tensor, "heads pairs pairs"]:
        length = q.shape[1]
        at = torch.linspace(min(FIRST, length - 1), length - 1, min(ROWS, length)).long().to(q.device)
        late = torch.arange(length, device=q.device) > at[:, None]
        covariances = []
        for head, group in enumerate(self.layout.groups):
            rows, keys = _pairs(q[head, at]), _pairs(k[group])  # rows, 2, pairs; length, 2, pairs
            e = torch.einsum("rcf,tcf->rtf", rows, keys) * self.scale
            p = e.sum(-1).masked_fill(late, -torch.inf).softmax(-1)
            mean = torch.einsum("rt,rtf->rf", p, e)
            weighted = (e * p.sqrt()[..., None]).flatten(0, 1)
            covariances.append((weighted.mT @ weighted - mean.mT @ mean) * (length / len(at)))
        return torch.stack(covariances)

    def slopes(self, tokens: int) -> LayerSlopes:
        mean = {name: total / tokens for name, total in self.total.items()}
        names = [name for name in PairSlopes.__dataclass_fields__ if name in mean]
        pairs = PairSlopes(**{name: mean.pop(name) for name in names}) if names else None
        return LayerSlopes(**mean, pairs=pairs)


def _pairs(x: Float[Tensor, "... dim"]) -> Float[Tensor, "... two pairs"]:
    """The two coordinates of every frequency: the first halves of a head, then the second."""
    return x.unflatten(-1, (2, -1))


def _second(x: Float[Tensor, "batch heads length dim"]) -> Float[Tensor, "heads dim dim"]:
    return torch.einsum("bhti,bhtj->hij", x, x)
