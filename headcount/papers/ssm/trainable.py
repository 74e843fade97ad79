"""Linear state-space systems that train: the kernel by FFT, entries clipped to a bound after every step."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Inexact, Shaped
from torch import Tensor, nn

from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM

RADIUS = 0.999  # poles are kept within this modulus


def torch_powers(bases: Inexact[Tensor, "*model width"], count: int) -> Inexact[Tensor, "*model width count"]:
    """The powers 0 .. count-1 by doubling: safe to differentiate at a base of 0, real or complex.

    >>> torch_powers(torch.tensor([2.0, 0.0]), 3)
    tensor([[1., 2., 4.], [1., 0., 0.]])
    """
    table, step = torch.ones_like(bases)[..., None], bases[..., None]
    while table.shape[-1] < count:
        table = torch.cat([table, table * step], dim=-1)
        step = step * step
    return table[..., :count]


def kernel(
    poles: Inexact[Tensor, "*model layers width"],
    first: Inexact[Tensor, "*model width"],
    between: Inexact[Tensor, "*model steps width width"],
    readout: Inexact[Tensor, "*model width"],
    length: int,
) -> Inexact[Tensor, "*model length"]:
    """The kernels rho(0) .. rho(length-1) of many deep systems at once.

    The powers of each pole, cut at the length, are multiplied as polynomials: their product agrees with the kernel up
    to the length, and a transform longer than l (length-1) does not wrap around. So no layer needs a scan.
    """
    depth = poles.shape[-2]
    size = 1 << math.ceil(math.log2(depth * (length - 1) + 1)) if length > 1 else 1
    real = not poles.is_complex()
    table = torch_powers(poles, length)
    waves = torch.fft.rfft(table, size) if real else torch.fft.fft(table, size)
    v = waves[..., 0, :, :] * first[..., None]
    for k in range(1, depth):
        v = waves[..., k, :, :] * (between[..., k - 1, :, :].to(v.dtype) @ v)
    h = (readout[..., None, :].to(v.dtype) @ v)[..., 0, :]
    return (torch.fft.irfft(h, size) if real else torch.fft.ifft(h, size))[..., :length]


@torch.no_grad()
def clip_(weights: Inexact[Tensor, "*shape"], bound: Shaped[Tensor, "*shape"] | float) -> None:
    """Bring every modulus down to the bound, in place.

    >>> w = torch.tensor([3.0, -0.5])
    >>> clip_(w, 2.0)
    >>> w
    tensor([ 2.0000, -0.5000])
    """
    if weights.is_complex():
        weights.mul_(torch.clamp(bound / weights.abs().clamp_min(1e-300), max=1.0))
    else:
        bound = torch.as_tensor(bound, dtype=weights.dtype)
        weights.copy_(torch.minimum(torch.maximum(weights, -bound), bound))


class TrainableSSM(nn.Module):
    """A system whose poles and weights are parameters; `clip()` after a step keeps entries within `max_entry`.

    A DiagonalSSM trains as one layer with b_i = c_i = sqrt(R_i). Real systems train in real numbers.

    >>> net = TrainableSSM(DiagonalSSM([0.5], [4.0]), max_entry=2.0)
    >>> net(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)).detach().round(decimals=9)
    tensor([[4., 2., 1.]], dtype=torch.float64)
    >>> net.system().flatten().poles.real
    array([0.5])
    """

    def __init__(self, system: DiagonalSSM | DeepSSM, max_entry: float = math.inf) -> None:
        super().__init__()
        if not max_entry > 0:
            raise ValueError(f"the largest entry must be above 0, got {max_entry}")
        poles, first, between, readout = stacked(system)
        self.max_entry = max_entry
        self.poles, self.first = nn.Parameter(poles), nn.Parameter(first)
        self.between, self.readout = nn.Parameter(between), nn.Parameter(readout)
        self.clip()

    def kernel(self, length: int) -> Inexact[Tensor, " length"]:
        """The first samples of the impulse response."""
        return kernel(self.poles, self.first, self.between, self.readout, length)

    def forward(self, x: Inexact[Tensor, "batch length"]) -> Inexact[Tensor, "batch length"]:
        length = x.shape[-1]
        rho = self.kernel(length)
        fft, ifft = (torch.fft.fft, torch.fft.ifft) if rho.is_complex() else (torch.fft.rfft, torch.fft.irfft)
        return ifft(fft(x, 2 * length) * fft(rho, 2 * length), 2 * length)[..., :length]

    def clip(self) -> None:
        """Bring entries within the bound and poles within the circle."""
        for weights in (self.first, self.between, self.readout):
            clip_(weights, self.max_entry)
        clip_(self.poles, RADIUS)

    def system(self) -> DeepSSM:
        """The value that the parameters describe now."""
        poles, first, between, readout = (
            p.detach().cpu().numpy() for p in (self.poles, self.first, self.between, self.readout)
        )
        weights = [first[:, None], *between]
        return DeepSSM([Layer(p, w) for p, w in zip(poles, weights, strict=True)], readout)


def stacked(system: DiagonalSSM | DeepSSM) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Poles (layers, width), B_1, B_2 .. B_l and C of a system of one width; real where all of them are."""
    if isinstance(system, DiagonalSSM):
        root = np.sqrt(system.residues)
        parts = (system.poles[None], root, np.zeros((0, system.modes, system.modes), complex), root)
        if (system.residues.imag == 0).all():  # b = sqrt|R|, c = sign(R) sqrt|R| stays real
            size = np.sqrt(np.abs(system.residues))
            parts = (parts[0], size, parts[2], np.sign(system.residues.real) * size)
    else:
        widths = {layer.width for layer in system.layers}
        if len(widths) > 1:
            raise ValueError(f"layers of widths {sorted(widths)} cannot be trained together; make them equal")
        m = widths.pop()
        between = np.array([layer.weights for layer in system.layers[1:]]).reshape(-1, m, m)
        parts = (np.stack([l.poles for l in system.layers]), system.layers[0].weights[:, 0], between, system.readout)
    real = all((np.imag(part) == 0).all() for part in parts)
    arrays = tuple(np.ascontiguousarray(np.real(part) if real else np.asarray(part, complex)) for part in parts)
    return tuple(torch.tensor(part) for part in arrays)  # pyright: ignore[reportReturnType]
