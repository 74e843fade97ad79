"""Which models can be read and rewritten: BERT, GPT-2, Llama's relatives and our own, each as a few lines of naming."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from headcount.nets import Transformer
from headcount.nets.pretrained.batches import base_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.ragged_heads import Heads, Weights, linear_of
from headcount.nets.pretrained.rewritten import BertHeads, Gpt2Heads, OwnHeads, RotaryHeads


@runtime_checkable
class Family(Protocol):
    """How one family of models names its attention."""

    name: str
    causal: bool

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """The modules that each hold one attention layer, first to last."""
        ...

    def read(self, layer: nn.Module) -> Weights:
        """The attention of a stock or an already rewritten layer."""
        ...

    def write(self, layer: nn.Module, weights: Weights) -> None:
        """Replace the layer's attention by ragged heads with these weights."""
        ...

    def heads(self, layer: nn.Module) -> Heads | None:
        """The layer's ragged heads, or None when it is still stock."""
        ...

    def stock(self, layer: nn.Module, prefix: str, head_dim: int) -> dict[str, Tensor]:
        """The rewritten layer under the names and in the shapes of the stock model, padded with zeros."""
        ...

    def refuses(self, layer: nn.Module) -> dict[str, str]:
        """The products that cannot be reduced here, with the reason."""
        ...


class Bert:
    name, causal = "bert", False

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return list(base_of(model).encoder.layer)

    def heads(self, layer: Any) -> Heads | None:
        return layer.attention.self if isinstance(layer.attention.self, Heads) else None

    def read(self, layer: Any) -> Weights:
        own, dense = layer.attention.self, layer.attention.output.dense
        if isinstance(own, Heads):
            return own.weights(dense)
        bias = dense.bias.detach() + dense.weight.detach() @ own.value.bias.detach()
        return Weights(
            HeadLayout.full(own.num_attention_heads, own.attention_head_size),
            own.query.weight.detach(),
            own.query.bias.detach(),
            own.key.weight.detach(),
            own.value.weight.detach(),
            dense.weight.detach(),
            bias,
            float(own.attention_head_size**-0.5),
        )

    def write(self, layer: Any, weights: Weights) -> None:
        layer.attention.self = BertHeads(weights, layer.attention.self)
        layer.attention.output.dense = linear_of(weights.output, weights.output_bias)

    def stock(self, layer: Any, prefix: str, head_dim: int) -> dict[str, Tensor]:
        w = at_stock_places(self.read(layer), head_dim)
        at = f"{prefix}attention."
        assert w.query_bias is not None and w.output_bias is not None
        return {
            f"{at}self.query.weight": w.query,
            f"{at}self.query.bias": w.query_bias,
            f"{at}self.key.weight": w.key,
            f"{at}self.key.bias": torch.zeros_like(w.query_bias),
            f"{at}self.value.weight": w.value,
            f"{at}self.value.bias": torch.zeros_like(w.query_bias),
            f"{at}output.dense.weight": w.output,
            f"{at}output.dense.bias": w.output_bias,
        }

    def refuses(self, layer: Any) -> dict[str, str]:
        config = getattr(layer.attention.self, "config", None)
        kind = getattr(config, "position_embedding_type", None) or "absolute"
        if kind == "absolute":
            return {}
        return {"query-key": f"{kind} positions enter the logits beside the product of query and key"}


class Gpt2:
    name, causal = "gpt2", True

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return list(base_of(model).h)

    def heads(self, layer: Any) -> Heads | None:
        return layer.attn.heads if isinstance(layer.attn, Gpt2Heads) else None

    def read(self, layer: Any) -> Weights:
        attn = layer.attn
        if isinstance(attn, Gpt2Heads):
            return attn.heads.weights(attn.c_proj)
        q, k, v = attn.c_attn.weight.detach().T.split(attn.embed_dim)
        q_bias, _, v_bias = attn.c_attn.bias.detach().split(attn.embed_dim)
        out = attn.c_proj.weight.detach().T
        bias = attn.c_proj.bias.detach() + out @ v_bias
        layout = HeadLayout.full(attn.num_heads, attn.head_dim)
        return Weights(layout, q, q_bias, k, v, out, bias, float(attn.scaling))

    def write(self, layer: Any, weights: Weights) -> None:
        layer.attn = Gpt2Heads(weights, layer.attn, linear_of(weights.output, weights.output_bias))

    def stock(self, layer: Any, prefix: str, head_dim: int) -> dict[str, Tensor]:
        w = at_stock_places(self.read(layer), head_dim)
        assert w.query_bias is not None and w.output_bias is not None
        zeros = torch.zeros_like(w.query_bias)
        return {
            f"{prefix}attn.c_attn.weight": torch.cat([w.query, w.key, w.value]).T.contiguous(),
            f"{prefix}attn.c_attn.bias": torch.cat([w.query_bias, zeros, zeros]),
            f"{prefix}attn.c_proj.weight": w.output.T.contiguous(),
            f"{prefix}attn.c_proj.bias": w.output_bias,
        }

    def refuses(self, layer: Any) -> dict[str, str]:
        return {}


class Rotary:
    """Llama and its relatives: four projections, rotary positions, keys and values shared by groups of heads."""

    causal = True

    def __init__(self, name: str) -> None:
        self.name = name

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return list(base_of(model).layers)

    def heads(self, layer: Any) -> Heads | None:
        return layer.self_attn.heads if isinstance(layer.self_attn, RotaryHeads) else None

    def read(self, layer: Any) -> Weights:
        attn = layer.self_attn
        if isinstance(attn, RotaryHeads):
            return attn.heads.weights(attn.o_proj)
        n = attn.head_dim
        heads, keys = attn.q_proj.weight.shape[0] // n, attn.k_proj.weight.shape[0] // n
        (q, qb), (k, kb), (v, vb), (o, ob) = (
            (p.weight.detach(), None if p.bias is None else p.bias.detach())
            for p in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj)
        )
        return Weights(HeadLayout.full(heads, n, keys, rotary=True), q, qb, k, v, o, ob, float(attn.scaling), kb, vb)

    def write(self, layer: Any, weights: Weights) -> None:
        layer.self_attn = RotaryHeads(weights, layer.self_attn, linear_of(weights.output, weights.output_bias))

    def stock(self, layer: Any, prefix: str, head_dim: int) -> dict[str, Tensor]:
        w, at = at_stock_places(self.read(layer), head_dim), f"{prefix}self_attn."
        parts = {"q": (w.query, w.query_bias), "k": (w.key, w.key_bias), "v": (w.value, w.value_bias)}
        parts["o"] = (w.output, w.output_bias)
        named = {f"{at}{p}_proj.weight": weight for p, (weight, _) in parts.items()}
        named |= {f"{at}{p}_proj.bias": bias for p, (_, bias) in parts.items() if bias is not None}
        norms = {n: getattr(layer.self_attn, n, None) for n in ("q_norm", "k_norm")}
        return named | {
            f"{at}{n}.{key}": t for n, norm in norms.items() if norm is not None for key, t in norm.state_dict().items()
        }

    def refuses(self, layer: Any) -> dict[str, str]:
        if self.normed(layer):
            return {"query-key": "queries and keys are normed head by head, which sees every dimension"}
        return {"query-key": "rotary positions make the product depend on the distance of query and key"}

    def normed(self, layer: Any) -> bool:
        """Whether queries and keys pass a norm: then not even whole frequencies can be taken out."""
        return getattr(layer.self_attn, "q_norm", None) is not None


class Own:
    """The package's own `Transformer`."""

    name, causal = "headcount", False

    def layers(self, model: nn.Module) -> list[nn.Module]:
        assert isinstance(model, Transformer)
        return [_Slot(model, i) for i in range(model.arch.depth)]

    def heads(self, layer: Any) -> Heads | None:
        return layer.attention.heads if isinstance(layer.attention, OwnHeads) else None

    def read(self, layer: Any) -> Weights:
        attention = layer.attention
        if isinstance(attention, OwnHeads):
            return attention.heads.weights(attention.output)
        heads, n, _ = attention.query.shape
        flat = [p.detach().flatten(0, 1) for p in (attention.query, attention.key, attention.value)]
        out = attention.output.detach().permute(1, 0, 2).flatten(1)
        return Weights(HeadLayout.full(heads, n), flat[0], None, flat[1], flat[2], out, None, 1.0)

    def write(self, layer: Any, weights: Weights) -> None:
        layer.attention = OwnHeads(weights, layer.attention.weigh, linear_of(weights.output, weights.output_bias))

    def stock(self, layer: Any, prefix: str, head_dim: int) -> dict[str, Tensor]:
        w = at_stock_places(self.read(layer), head_dim)
        heads, embed = len(w.layout.groups), len(w.output)
        projections = ("query", w.query), ("key", w.key), ("value", w.value)
        named = {name: m.view(heads, head_dim, embed) for name, m in projections}
        named["output"] = w.output.view(embed, heads, head_dim).permute(1, 0, 2).contiguous()
        return {f"{prefix}{name}": tensor for name, tensor in named.items()}

    def refuses(self, layer: Any) -> dict[str, str]:
        return {}


class _Slot(nn.Module):
    """Layer i of our own network, with its attention under one name."""

    def __init__(self, model: Transformer, index: int) -> None:
        super().__init__()
        self._model, self._index = (model,), index  # a tuple, so that the model is not registered as a part

    @property
    def attention(self) -> nn.Module:
        return self._model[0].attention[self._index]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "attention":
            self._model[0].attention[self._index] = value
        else:
            super().__setattr__(name, value)


ROTARY = ("llama", "mistral", "qwen2", "qwen3", "gemma")
FAMILIES: dict[str, Family] = {f.name: f for f in (Bert(), Gpt2(), *(Rotary(n) for n in ROTARY), Own())}


def family_of(model: nn.Module) -> Family:
    """The family a model belongs to; a ValueError names the known ones otherwise."""
    if isinstance(model, Transformer):
        return FAMILIES["headcount"]
    kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    if kind not in FAMILIES:
        known = ", ".join(name for name in FAMILIES if name != "headcount")
        raise ValueError(f"models of type {kind!r} cannot be shrunk; known: {known} and headcount's own Transformer")
    return FAMILIES[kind]


def at_stock_places(w: Weights, head_dim: int) -> Weights:
    """A layer with every row and column back where the stock model has it, those that were taken out zero.

    Frequencies return to their own rows; other ranks come first, and every head has a copy of its group's key.
    """
    old, half = w.layout, head_dim // 2
    new = HeadLayout.full(len(old.groups), head_dim, len(old.widths), rotary=old.rotary)
    turned = [[*frequencies, *(half + f for f in frequencies)] for frequencies in old.pairs]
    rows = turned if old.rotary else [list(range(rank)) for rank in old.ranks]
    query = [i * head_dim + r for i in old.alive for r in rows[old.groups[i]]]
    value = [j * head_dim + r for j, width in enumerate(old.widths) for r in range(width)]
    output = [i * head_dim + r for i in old.alive for r in range(old.widths[old.sharing[i]])]
    if old.rotary:
        keys = w.key
        key = [g * head_dim + r for g in old.used_groups for r in rows[g]]
    else:
        starts = old.key_starts()
        keys = w.key[[starts[old.groups[i]] + r for i in old.alive for r in rows[old.groups[i]]]]
        key = query

    def spread(part: Tensor | None, where: list[int], count: int, dim: int = 0) -> Tensor | None:
        if part is None:
            return None
        shape = [count if d == dim else size for d, size in enumerate(part.shape)]
        return part.new_zeros(shape).index_copy_(dim, torch.tensor(where, dtype=torch.long, device=part.device), part)

    heads, shared = len(old.groups) * head_dim, len(old.widths) * head_dim
    parts = (w.query, query, heads), (keys, key, shared), (w.value, value, shared)
    q, k, v = (spread(part, where, count) for part, where, count in parts)
    o = spread(w.output, output, heads, dim=1)
    assert q is not None and k is not None and v is not None and o is not None
    biases = spread(w.query_bias, query, heads), spread(w.key_bias, key, shared), spread(w.value_bias, value, shared)
    return Weights(new, q, biases[0], k, v, o, w.output_bias, w.scale, biases[1], biases[2])
