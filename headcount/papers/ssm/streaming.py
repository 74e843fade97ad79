"""A system as a torch module that filters sample by sample in real numbers, and as ONNX or a torch program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.files import atomic_write
from headcount.nets.exporting import traced, write_program
from headcount.papers.ssm.interchange import to_sos
from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM
from headcount.refusals import nearest

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
FORMATS = (".onnx", ".pt2", ".json")


class StreamingFilter(nn.Module):
    """One sample in, one sample out: h_k(t) = A_k h_k(t-1) + B_k h_{k-1}(t), y(t) = C h_l(t), in real numbers.

    A complex state u + iv is the pair (u, v), and a matrix M the block [[Re M, -Im M], [Im M, Re M]], so no number is
    larger than before. The weights are parameters in float64; `filter` runs whole signals.

    >>> net = StreamingFilter(DeepSSM([Layer([0.5], [[1]]), Layer([0.25], [[1]])], readout=[1]))
    >>> net.filter(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)).detach()
    tensor([[1.0000, 0.7500, 0.4375]], dtype=torch.float64)
    """

    def __init__(self, system: DiagonalSSM | DeepSSM) -> None:
        super().__init__()
        if not system.is_real:
            raise ValueError("the response is complex; a module in real numbers filters real systems only")
        deep = DeepSSM(*_one_layer(system)) if isinstance(system, DiagonalSSM) else system
        self.widths = [2 * layer.width for layer in deep.layers]
        self.hold = nn.ParameterList(_real(np.diag(layer.poles)) for layer in deep.layers)
        self.feed = nn.ParameterList(
            _real(layer.weights)[:, :1] if k == 0 else _real(layer.weights) for k, layer in enumerate(deep.layers)
        )
        self.readout = nn.Parameter(_real(deep.readout[None, :])[0].clone())

    @property
    def states(self) -> int:
        """How many real numbers the filter remembers."""
        return sum(self.widths)

    def forward(
        self, x: Float[Tensor, " batch"], state: Float[Tensor, "batch states"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch states"]]:
        """The next sample of each signal, and what is to be remembered; the first state is zeros."""
        v, states = x[:, None], []
        for h, hold, feed in zip(state.split(self.widths, dim=1), self.hold, self.feed, strict=True):
            v = h @ hold.T + v @ feed.T
            states.append(v)
        return v @ self.readout, torch.cat(states, dim=1)

    def filter(self, x: Float[Tensor, "batch length"]) -> Float[Tensor, "batch length"]:
        """Whole signals, from zero states."""
        state, samples = x.new_zeros(len(x), self.states), []
        for now in x.unbind(dim=1):
            y, state = self(now, state)
            samples.append(y)
        return torch.stack(samples, dim=1)


def to_module(system: DiagonalSSM | DeepSSM) -> StreamingFilter:
    """The system as a torch module; `TrainableSSM` is the one to train."""
    return StreamingFilter(system).eval()


def export(system: DiagonalSSM | DeepSSM, path: Path | str, *, precision: str = "float32") -> Path:
    """Write a real system for other programs, by the ending of the path.

    .onnx and .pt2 hold one step of `StreamingFilter`: x (batch) and state (batch, states) in, y and next_state out, in
    float32 as runtimes take it, or with `precision` in float64. .json holds second-order sections, which
    `scipy.signal.sosfilt` and `load` read.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"export writes {', '.join(FORMATS)}; got {path.name!r}; {nearest(path.suffix, FORMATS)}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is float32 or float64, got {precision!r}")
    if path.suffix == ".json":
        flat = system.flatten() if isinstance(system, DeepSSM) else system
        with atomic_write(path) as scratch:
            scratch.write_text(json.dumps({"sos": to_sos(flat).tolist()}, indent=1) + "\n", encoding="utf-8")
        return path
    program, facts = _program(system, PRECISIONS[precision])
    write_program(program, path, facts, ("y", "next_state"))
    return path


def _program(
    system: DiagonalSSM | DeepSSM, dtype: torch.dtype
) -> tuple[torch.export.ExportedProgram, dict[str, object]]:
    net = to_module(system).to(dtype)
    two = (torch.zeros(2, dtype=dtype), torch.zeros(2, net.states, dtype=dtype))
    batch = torch.export.Dim("batch", min=1)
    program = traced(net, two, ({0: batch}, {0: batch}))
    return program, {"states": net.states, "largest_entry": system.largest_entry}


def _one_layer(system: DiagonalSSM) -> tuple[list[Layer], np.ndarray]:
    """One layer with b_i = c_i = sqrt(R_i), the split that the norm speaks of."""
    root = np.sqrt(system.residues)
    return [Layer(system.poles, root[:, None])], root


def _real(matrix: np.ndarray) -> Tensor:
    """The real block matrix that does to pairs what a complex one does to numbers."""
    re, im = np.real(matrix), np.imag(matrix)
    return torch.tensor(np.block([[re, -im], [im, re]]))
