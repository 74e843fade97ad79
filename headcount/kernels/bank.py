"""K networks as one: their parameters stacked along a model axis, padded with zeros to a common shape.

Zeros stay zeros. A padded hidden unit has zero weights in and out, so its activation (relu(0) = gelu(0) = 0) and
both its gradients vanish; a padded head has zero value and output matrices, which are each other's gradients; a
padded coordinate of the state is never written and never read. AdamW moves a zero with zero gradient nowhere. So
every member is exactly its own network at every step. A layer norm would see the padding, so networks that have one
share every size.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Stacked = dict[str, Tensor]


@runtime_checkable
class Network(Protocol):
    """A kind of network as a frozen value: what a bank asks of it.

    `shared` is what all members of a bank must have in common; in every other size they may differ and are padded. Its
    modules give their parameters by the names of `tensors`, as `named()`.
    """

    @property
    def layers(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def name(self) -> str: ...
    @property
    def embed_dim(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def shared(self) -> Mapping[str, Hashable]: ...
    def tensors(self) -> dict[str, tuple[int, ...]]: ...
    def module(self, seed: int | None = None) -> nn.Module: ...


N = TypeVar("N", bound=Network)


class Bank(Generic[N]):
    """The parameters of K networks as rows of one matrix.

    `nets` are the members, `theta` (models, parameters) their parameters, `active` (models,) who is trained on: a
    backend may leave out the others.

    >>> from headcount.nets import Architecture
    >>> small, large = Architecture(layers=((1, 4),), width=8), Architecture(layers=((3, 5),), width=16)
    >>> bank = Bank([small.reading(4), large.reading(4)], seeds=[0, 1])
    >>> bank.theta.shape[0], bank.named()["encoder.inner.weight"].shape
    (2, torch.Size([2, 16, 4]))
    """

    def __init__(
        self,
        nets: Sequence[N],
        seeds: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if not nets:
            raise ValueError("a bank needs at least one member")
        _refuse_strangers(nets)
        self.nets = tuple(nets)
        sizes = [net.tensors() for net in dict.fromkeys(nets)]
        self.shapes = {name: _largest([each[name] for each in sizes]) for name in sizes[0]}
        keys = list(zip(nets, seeds, strict=True))
        rows = {key: self._row(key[0].module(key[1])) for key in dict.fromkeys(keys)}
        stacked = torch.stack([rows[key] for key in keys])
        self.theta: Float[Tensor, "models parameters"] = stacked.to(device=device, dtype=dtype)
        scale = [[head_dim**-0.5 for _, head_dim in net.layers] for net in nets]
        self.scale: Float[Tensor, "models layers"] = torch.tensor(scale, dtype=dtype, device=device)
        heads = [[heads for heads, _ in net.layers] for net in nets]
        self.heads: Int[Tensor, "models layers"] = torch.tensor(heads, dtype=torch.int32, device=device)
        self.buffers: dict[Hashable, tuple[Tensor, Tensor]] = {}  # what a backend keeps from step to step
        self.active: Bool[Tensor, " models"] | None = None

    def __len__(self) -> int:
        return len(self.nets)

    @property
    def net(self) -> N:
        """The first member, which shares its `shared` with all."""
        return self.nets[0]

    @property
    def depth(self) -> int:
        """The number of attention layers, the same for every member."""
        return len(self.net.layers)

    def named(self, theta: Float[Tensor, "models parameters"] | None = None) -> Stacked:
        """The stacked tensors by the names they have in the module; views of `theta`, so gradients reach it."""
        theta = self.theta if theta is None else theta
        sizes = [shape.numel() for shape in self.shapes.values()]
        # One split, not many slices: its backward is one concatenation.
        parts = theta.split(sizes, dim=1)
        return {
            name: part.view(theta.shape[0], *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def module(self, member: int, theta: Float[Tensor, "models parameters"] | None = None) -> Any:
        """One member as the plain network it is."""
        stacked = self.named((self.theta if theta is None else theta)[member : member + 1].detach())
        net: Any = self.nets[member].module().to(self.theta.dtype)
        with torch.no_grad():
            for name, p in net.named().items():
                p.copy_(stacked[name][0][_corner(p.shape)])
        return net

    def load(self, modules: Sequence[Any]) -> None:
        """Take over the parameters of plain networks, one for each member, of the members' shapes."""
        if len(modules) != len(self):
            raise ValueError(f"a bank of {len(self)} cannot load {len(modules)}: one network for each member")
        for net, module in zip(self.nets, modules, strict=True):
            sizes = {name: tuple(p.shape) for name, p in module.named().items()}
            if sizes != net.tensors():
                raise ValueError(f"a member of the bank is {net.name}, and the network given has other sizes")
        self.theta = torch.stack([self._row(module) for module in modules]).to(self.theta)

    def _row(self, module: Any) -> Float[Tensor, " parameters"]:
        padded = []
        for name, p in module.named().items():
            full = torch.zeros(self.shapes[name], dtype=torch.float64)
            full[_corner(p.shape)] = p.detach().double()
            padded.append(full.flatten())
        return torch.cat(padded)


def _refuse_strangers(nets: Sequence[Network]) -> None:
    """Refuse networks that no bank can hold together, by the first thing that they do not share."""
    first = nets[0]
    for net in dict.fromkeys(nets):
        if type(net) is not type(first):
            raise ValueError(f"the members of a bank are of one kind; got {type(first).__name__}, {type(net).__name__}")
        for name, value in first.shared.items():
            if net.shared[name] != value:
                raise ValueError(f"the members of a bank share one {name}; got {value!r} and {net.shared[name]!r}")


def _largest(sizes: Sequence[tuple[int, ...]]) -> torch.Size:
    return torch.Size(max(along) for along in zip(*sizes, strict=True))


def _corner(shape: torch.Size) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)
