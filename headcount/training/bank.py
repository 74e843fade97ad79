"""K networks as one: their parameters stacked along a model axis, padded with zeros to a common shape.

Zeros stay zeros. A padded hidden unit has zero weights in and out, so its activation (relu(0) = gelu(0) = 0) and
both its gradients vanish; a padded head has zero value and output matrices, which are each other's gradients; a
padded coordinate of the state is never written and never read. AdamW moves a zero with zero gradient nowhere. So
every member is exactly its own network at every step.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.nets import Architecture, Transformer

__all__ = ["Bank"]

Stacked = dict[str, Tensor]


class Bank:
    """The parameters of K class-token transformers of one depth as rows of one matrix.

    >>> small, large = Architecture(layers=((1, 4),), width=8), Architecture(layers=((3, 5),), width=16)
    >>> bank = Bank([small, large], token_dim=4, seeds=[0, 1])
    >>> bank.theta.shape[0], bank.named()["encoder.inner.weight"].shape
    (2, torch.Size([2, 16, 4]))
    """

    def __init__(
        self,
        archs: Sequence[Architecture],
        token_dim: int,
        seeds: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if len({arch.depth for arch in archs}) != 1:
            raise ValueError(f"the members of a bank share one depth; got {sorted({a.depth for a in archs})}")
        if len({arch.positions for arch in archs}) != 1:
            raise ValueError("the members of a bank see the same position features")
        if len(counts := {arch.outputs for arch in archs}) != 1:
            raise ValueError(f"the members of a bank share one number of outputs; got {sorted(counts)}")
        if len({arch.class_token for arch in archs}) != 1:
            raise ValueError("the class tokens of a bank all attend in every layer, or all in the last")
        if len({arch.residual for arch in archs}) != 1:
            raise ValueError("the members of a bank all carry residuals, or none does")
        if len({arch.activation for arch in archs}) != 1:
            raise ValueError("the feed-forwards of a bank all have one activation, relu or gelu")
        if len({arch.embedding for arch in archs}) != 1:
            raise ValueError("the tokens of a bank all enter through a feed-forward, or all by one matrix")
        self.archs, self.token_dim = tuple(archs), token_dim
        members = [Transformer(a, token_dim, seed=s) for a, s in zip(archs, seeds, strict=True)]
        self.shapes = {name: _largest(name, members) for name, _ in members[0].named_parameters()}
        self.theta: Float[Tensor, "models parameters"] = self._stack(members).to(device=device, dtype=dtype)
        scale = [[head_dim**-0.5 for _, head_dim in arch.layers] for arch in archs]
        self.scale: Float[Tensor, "models layers"] = torch.tensor(scale, dtype=dtype, device=device)
        heads = [[heads for heads, _ in arch.layers] for arch in archs]
        self.heads: Int[Tensor, "models layers"] = torch.tensor(heads, dtype=torch.int32, device=device)
        self.buffers: dict[Hashable, tuple[Tensor, Tensor]] = {}  # what a path keeps from step to step
        self.active: Bool[Tensor, " models"] | None = None  # who is trained on; a path may leave out the others

    def __len__(self) -> int:
        return len(self.archs)

    @property
    def depth(self) -> int:
        """The number of attention layers, the same for every member."""
        return self.archs[0].depth

    @property
    def positions(self) -> int:
        """Position features given to every encoder."""
        return self.archs[0].positions

    @property
    def class_token(self) -> str:
        """Where every class token attends: in "every" layer, or in the "last" only."""
        return self.archs[0].class_token

    @property
    def residual(self) -> bool:
        """Whether states stay beside what the layers before the last make of them."""
        return self.archs[0].residual

    @property
    def embedding(self) -> str:
        """How every member's tokens enter: through a "feed-forward", or "linear", by one matrix."""
        return self.archs[0].embedding

    @property
    def activation(self) -> str:
        """The activation of every feed-forward of tokens, "relu" or "gelu"."""
        return self.archs[0].activation

    def named(self, theta: Float[Tensor, "models parameters"] | None = None) -> Stacked:
        """The stacked tensors by the names they have in `Transformer`; views of `theta`, so gradients reach it."""
        theta = self.theta if theta is None else theta
        sizes = [shape.numel() for shape in self.shapes.values()]
        # One split, not many slices: its backward is one concatenation.
        parts = theta.split(sizes, dim=1)
        return {
            name: part.view(theta.shape[0], *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def module(self, member: int, theta: Float[Tensor, "models parameters"] | None = None) -> Transformer:
        """One member as the plain network it is."""
        stacked = self.named((self.theta if theta is None else theta)[member : member + 1].detach())
        net = Transformer(self.archs[member], self.token_dim).to(self.theta.dtype)
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.copy_(stacked[name][0][_corner(p.shape)])
        return net

    def load(self, nets: Sequence[Transformer]) -> None:
        """Take over the parameters of plain networks, one for each member, of the members' architectures."""
        if (shapes := [net.arch for net in nets]) != list(self.archs):
            raise ValueError(f"a bank of {', '.join(a.name for a in self.archs)} cannot load {shapes}")
        self.theta = self._stack(nets).to(self.theta)

    def _stack(self, members: Sequence[Transformer]) -> Tensor:
        rows = []
        for net in members:
            padded = []
            for name, p in net.named_parameters():
                full = torch.zeros(self.shapes[name], dtype=torch.float64)
                full[_corner(p.shape)] = p.detach().double()
                padded.append(full.flatten())
            rows.append(torch.cat(padded))
        return torch.stack(rows)


def _largest(name: str, members: Sequence[Transformer]) -> torch.Size:
    shapes = [net.get_parameter(name).shape for net in members]
    return torch.Size(max(sizes) for sizes in zip(*shapes, strict=True))


def _corner(shape: torch.Size) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)
