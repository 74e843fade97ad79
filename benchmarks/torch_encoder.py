"""A standard encoder of torch's own layers: the reference for gradients, and a peer in races."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headcount.nets.standard import EncoderShape


class TorchEncoder(nn.Module):
    """The same network of torch's own `nn.TransformerEncoder`, `nn.Linear`, `nn.Embedding` and `nn.LayerNorm`."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        E, self.shape = shape.embed_dim, shape
        self.embed = nn.Embedding(shape.vocab, E) if shape.vocab else nn.Linear(shape.token_dim, E)
        self.places = nn.Embedding(max(1, shape.positions), E)
        self.cls = nn.Parameter(torch.empty(E))
        layers = [
            nn.TransformerEncoderLayer(
                E, heads, shape.width, shape.dropout, shape.activation, batch_first=True, norm_first=True
            )
            for heads, _ in shape.layers
        ]
        self.encoder = nn.TransformerEncoder(layers[0], shape.depth, enable_nested_tensor=False)
        self.encoder.layers = nn.ModuleList(layers)
        self.last, self.read_out = nn.LayerNorm(E), nn.Linear(E, shape.outputs)

    def named(self) -> dict[str, nn.Parameter]:
        """The parameters under the names of `EncoderShape.tensors`."""
        names_in_torch = {
            "norm": "norm1",
            "read.weight": "self_attn.in_proj_weight",
            "read.bias": "self_attn.in_proj_bias",
        }
        names_in_torch |= {"write": "self_attn.out_proj", "before": "norm2", "inner": "linear1", "outer": "linear2"}
        parameters = {}
        for name in self.shape.tensors():
            path = {"embed": "embed.weight", "places": "places.weight"}.get(name, name)
            if name.startswith("layer"):
                layer, part, kind = name.split(".")
                path = f"encoder.layers.{layer.removeprefix('layer')}."
                path += names_in_torch.get(f"{part}.{kind}", f"{names_in_torch.get(part)}.{kind}")
            parameters[name] = self.get_parameter(path)
        return parameters

    def load(self, stacked: dict[str, Tensor], member: int) -> TorchEncoder:
        """Take over a member's parameters."""
        with torch.no_grad():
            for name, p in self.named().items():
                p.copy_(stacked[name][member])
        return self

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        state = self.embed(x)
        if self.shape.positions:
            state = state + self.places(torch.arange(x.shape[1]))
        if self.shape.pooling == "class token":
            state = torch.cat([self.cls.expand(len(x), 1, -1), state], dim=1)
            present = None if present is None else torch.cat([present.new_ones(len(x), 1), present], dim=1)
        state = self.encoder(state, src_key_padding_mask=None if present is None else ~present)
        if self.shape.pooling == "class token":
            pooled = state[:, 0]
        elif present is None:
            pooled = state.mean(dim=1)
        else:
            pooled = torch.stack([one[there].mean(dim=0) for one, there in zip(state, present, strict=True)])
        out = self.read_out(self.last(pooled))
        return out[:, 0] if self.shape.outputs == 1 else out
