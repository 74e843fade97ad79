"""Recurrent layers written out token by token, so that what is in torch's one call is seen call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, Sequence[Tensor]], State]


def lstm_cell(x: Tensor, state: State, weights: Sequence[Tensor]) -> State:
    """c' = f c + i g and h' = o tanh(c'): gates by sigmoids, the new value by tanh, of x and h together."""
    h, c = state
    i, f, g, o = (_mapped(x, weights, 0) + _mapped(h, weights, 1)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_cell(x: Tensor, state: State, weights: Sequence[Tensor]) -> State:
    """h' = n + z (h - n): the update gate z chooses between the old state and n = tanh(x + r h)."""
    (h,) = state
    (r, z, n), (r_h, z_h, n_h) = (_mapped(t, weights, k).chunk(3, -1) for k, t in enumerate((x, h)))
    new = torch.tanh(n + torch.sigmoid(r + r_h) * n_h)
    return (new + torch.sigmoid(z + z_h) * (h - new),)


def plain_cell(phi: Callable[[Tensor], Tensor]) -> Cell:
    """h' = phi(x + h), each by its own matrix."""
    return lambda x, state, weights: (phi(_mapped(x, weights, 0) + _mapped(state[0], weights, 1)),)


def _mapped(t: Tensor, weights: Sequence[Tensor], which: int) -> Tensor:
    return F.linear(t, weights[which], weights[2 + which] if len(weights) > 2 else None)


def written_out(cell: Cell) -> Callable[..., tuple[Tensor, ...]]:
    """Torch's call of a recurrent layer, of as many layers and directions as it has."""

    def run(x: Tensor, hx: Any, weights: Sequence[Tensor], *sizes: Any) -> tuple[Tensor, ...]:
        biased, layers, dropout, training, bidirectional, batch_first = sizes
        if training and dropout:
            raise ValueError("a recurrent layer that drops units at random is another map each time; call eval()")
        each, directions, ends = 4 if biased else 2, 2 if bidirectional else 1, list[State]()
        start = hx if isinstance(hx, list | tuple) else (hx,)
        steps = x.transpose(0, 1) if batch_first else x
        for layer in range(layers):
            passes = []
            for direction in range(directions):
                at = layer * directions + direction
                state, own = tuple(s[at] for s in start), weights[at * each : (at + 1) * each]
                outputs, state = _along(cell, steps.flip(0) if direction else steps, state, own)
                passes.append(outputs.flip(0) if direction else outputs)
                ends.append(state)
            steps = torch.cat(passes, -1)
        last = (torch.stack(parts) for parts in zip(*ends, strict=True))
        return steps.transpose(0, 1) if batch_first else steps, *last

    return run


def _along(cell: Cell, steps: Tensor, state: State, weights: Sequence[Tensor]) -> tuple[Tensor, State]:
    outputs = []
    for x in steps.unbind(0):
        state = cell(x, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs), state


WRITTEN_OUT: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "lstm": written_out(lstm_cell),
    "gru": written_out(gru_cell),
    "rnn_tanh": written_out(plain_cell(torch.tanh)),
    "rnn_relu": written_out(plain_cell(torch.relu)),
}
