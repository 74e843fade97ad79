"""The coordinate check: under the right factors, training moves a wide network as far as a narrow one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets import Architecture, Transformer
from headcount.nets.transformer import Attention
from headcount.training.width_factors import Factor

__all__ = ["coordinate_slopes"]

Factors = Callable[[Architecture], Mapping[str, Factor]]
Inputs = dict[str, Tensor]


def coordinate_slopes(
    archs: Sequence[Architecture],
    factors: Factors,
    *,
    token_dim: int = 4,
    steps: int = 3,
    lr: float = 1e-4,
    seeds: Sequence[int] = (0, 1, 2),
) -> dict[str, float]:
    """The slope in log width of what a few Adam steps change, row by row: near 0 under the right factors.

    The rows are, for every matrix W, the root mean square of (W_t - W_0) times its current input; for the scores of the
    class token in every layer ("scores.0", ...) their change by query and key on current inputs; and the change of the
    answer. A matrix that lacks its factor 1/k goes to about +1. Epsilon is tiny, for gradients fall like 1/k.
    """
    sizes = [
        np.mean([list(_changes(a, factors(a), token_dim, steps, lr, s).values()) for s in seeds], 0) for a in archs
    ]
    names = list(_changes(archs[0], factors(archs[0]), token_dim, 1, lr, 0))
    logs = np.log([arch.width for arch in archs])
    slopes = np.polyfit(logs, np.log(np.stack(sizes)), 1)[0]
    return dict(zip(names, slopes.tolist(), strict=True))


def _changes(
    arch: Architecture, factors: Mapping[str, Factor], token_dim: int, steps: int, lr: float, seed: int
) -> dict[str, float]:
    """The size of every row's change after some steps of Adam on one batch, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 3, token_dim, generator=generator, dtype=torch.float64)
    y = x[..., 0].amax(1) - 1.2
    net = Transformer(arch, token_dim, seed=seed).double()
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.mul_(factors[name].start)
    groups = [{"params": [p], "lr": lr * factors[name].rate} for name, p in net.named_parameters()]
    adam = torch.optim.Adam(groups, eps=1e-20)
    start = {name: p.detach().clone() for name, p in net.named_parameters()}
    answer = net(x).detach()
    for _ in range(steps):
        adam.zero_grad()
        (net(x) - y).square().mean().backward()
        adam.step()
    inputs = _inputs(net, x)
    moved = {
        name: _applied(net.get_parameter(name).detach() - start[name], given) / factors[name].temperature
        for name, given in inputs.items()
    }
    after = dict(net.named_parameters())
    for layer in range(arch.depth):
        moved[f"scores.{layer}"] = _scores(after, inputs, layer) - _scores(start, inputs, layer)
    moved |= {"cls": net.cls.detach() - start["cls"], "answer": net(x).detach() - answer}
    return {name: float(change.square().mean().sqrt()) for name, change in moved.items()}


def _applied(matrix: Tensor, given: Tensor) -> Tensor:
    """The matrix times its input; of heads side by side, the sum over what goes in."""
    if matrix.dim() == 2:
        return given @ matrix.mT
    return torch.einsum("hen,bhqn->bqe" if given.dim() == 4 else "hne,bqe->bhqn", matrix, given)


@torch.no_grad()
def _scores(weights: Mapping[str, Tensor], inputs: Inputs, layer: int) -> Tensor:
    """What the class token's query makes of the tokens in one layer, the inputs given."""
    query, key = (weights[f"attention.{layer}.{name}"] for name in ("query", "key"))
    q = torch.einsum("bqe,hne->bhqn", inputs[f"attention.{layer}.query"][:, -1:], query)
    k = torch.einsum("bte,hne->bhtn", inputs[f"attention.{layer}.key"], key)
    return q @ k.mT * query.shape[1] ** -0.5


@torch.no_grad()
def _inputs(net: Transformer, x: Float[Tensor, "batch length token_dim"]) -> Inputs:
    """What goes into every matrix."""
    inputs: Inputs = {}
    hooks = []
    for name, module in net.named_modules():
        if isinstance(module, torch.nn.Linear):
            hooks.append(module.register_forward_pre_hook(_keeps(inputs, f"{name}.weight")))
        if isinstance(module, Attention):
            hooks.append(module.register_forward_pre_hook(_keeps_attention(inputs, name)))
    net(x)
    for hook in hooks:
        hook.remove()
    return inputs


def _keeps(inputs: Inputs, name: str) -> Callable[..., None]:
    def hook(module: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs[name] = given[0]

    return hook


def _keeps_attention(inputs: Inputs, name: str) -> Callable[..., None]:
    def hook(module: Attention, given: tuple[Tensor, Tensor, Tensor | None]) -> None:
        queries, tokens, _ = given
        inputs[f"{name}.query"], inputs[f"{name}.key"], inputs[f"{name}.value"] = queries, tokens, tokens
        inputs[f"{name}.output"] = module.weights(queries, tokens) @ torch.einsum("bte,hne->bhtn", tokens, module.value)

    return hook
