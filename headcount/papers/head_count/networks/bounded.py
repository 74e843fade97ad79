"""The weight-bounded view: the same function with every entry at most 1 and beta explicit, as Assumption 1 asks."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from headcount.certificates.arithmetic import up
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate
from headcount.certificates.domains import Box
from headcount.certificates.network import ClassTokenNet
from headcount.certificates.rounding import rounding_error
from headcount.papers.head_count.networks.minima import minima_of
from headcount.sources import Source, implements
from headcount.tasks import LinearMax

SOURCE = Source("yu2025heads", "Assumption 1")


@implements(
    SOURCE,
    test="tests/test_head_count_bounded.py::test_the_bounded_view_is_the_same_function",
    status="proved here",
    hypotheses=("a network built by Theorem 2(1) or of its shape",),
)
def weight_bounded(built: Built) -> Built:
    """The same function with embeddings of norm at most 1 and all entries of attention and read-out at most 1.

    The encoder's output is divided by its largest norm c, beta multiplied by c; the read-out undoes it: a hidden
    unit's weights and bias are divided by their largest magnitude, and an outer weight above 1 is shared by copies
    of its unit. What grows is the width of the read-out, by a factor that does not depend on eps once the outer
    slopes are fixed.
    Source: Yu et al. 2025 (heads), Assumption 1 (which leaves the encoder's own weights free).
    """
    net, box = built.net, built.domain
    if not (isinstance(net, ClassTokenNet) and len(net.shape.layers) == 1 and len(net.shape.read_out) == 3):
        raise ValueError("the bounded view is for networks of one layer with a two-layer read-out")
    assert isinstance(box, Box)
    c = _largest_norm(net, box)
    (w1, b1), (w2, b2) = net.encoder.weights
    first, last = net.read_out.weights
    inner, outer = _bounded_read_out(first, last, c)
    shape = net.shape
    bounded = ClassTokenNet(
        replace(
            shape,
            betas=(shape.betas[0] * c * _norm(net.cls),),
            read_out=(shape.embed_dim, len(inner[1]), 1),
        )
    )
    bounded.encoder.fill((w1, b1), (w2 / c, b2 / c))
    bounded.read_out.fill(inner, outer)
    bounded.attention.load_state_dict(net.attention.state_dict())
    bounded.cls.copy_(net.cls / _norm(net.cls))
    return replace(built, net=bounded, certificate=_with_rounding(built, bounded, box))


def _with_rounding(built: Built, net: ClassTokenNet, box: Box) -> Certificate:
    """The same promise with the rounding of this network: all other terms are about the function, which is the same."""
    largest = max(abs(box.low), abs(box.high))
    value = rounding_error(net, largest, box.length, encoded=1.0, spread=2.0, leak=_leak(built))
    terms = tuple(replace(t, value=value) if t.name == "rounding" else t for t in built.certificate.terms)
    return replace(built.certificate, terms=terms)


def _leak(built: Built) -> float:
    """2 beta gate mu at most, which scaling leaves alone; the certificate's term is sum_i slope_i spread_i mu_i."""
    assert isinstance(built.net, ClassTokenNet) and isinstance(built.domain, Box)
    minima = minima_of(built.task, built.domain.high if isinstance(built.task, LinearMax) else None)
    least = min(slope * top for slope, top in zip(minima.outer.partial_bounds(), minima.tops, strict=True))
    gate = float(built.net.encoder.weights[-1][0][1::2].abs().max())
    return 2 * built.net.shape.betas[0] * gate * built.certificate["mass outside the window"].value / least


def largest_entry(net: ClassTokenNet) -> float:
    """The largest magnitude among the entries that Assumption 1 bounds: attention and read-out."""
    return max(float(p.abs().max()) for part in (net.attention, net.read_out) for p in part.parameters())


def _norm(cls: Tensor) -> float:
    """The class token's norm, by which it is divided (1 if it is zero)."""
    return float(cls.norm()) or 1.0


def _largest_norm(net: ClassTokenNet, box: Box) -> float:
    """A bound of |encoded token| over the box: every coordinate of the output at its largest, by its exact range.

    Each hidden unit reads one input alone, so a coordinate is a sum of functions of one variable, each linear
    between the knots: its range is found at the knots.
    """
    (w1, b1), (w2, b2) = net.encoder.weights
    low, high = b2.clone(), b2.clone()
    for j in range(w1.shape[1]):
        units = w1[:, j] != 0
        knots = -b1[units] / w1[units, j]
        ends = torch.tensor([box.low, box.high] if j < box.token_dim else [1.0, float(box.length)])
        at = torch.cat([knots, ends.to(knots)]).clamp(float(ends[0]), float(ends[1]))
        part = torch.relu(at[:, None] * w1[units, j] + b1[units]) @ w2[:, units].T
        low, high = low + part.amin(dim=0), high + part.amax(dim=0)
    return up(float(torch.maximum(low.abs(), high.abs()).norm()))


def _bounded_read_out(
    inner: tuple[Tensor, Tensor], outer: tuple[Tensor, Tensor], c: float
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """sum_p v_p relu(<u_p, c y> + b_p) + v_0 with every entry at most 1; a constant v_0 becomes units relu(1)."""
    (u, b), (v, v0) = inner, outer
    scale = torch.maximum((c * u).abs().amax(dim=1), b.abs()).clamp(min=1e-300)
    # relu(<c u, y> + b) = scale relu(<c u/scale, y> + b/scale)
    copies = ((v[0] * scale).abs() - 1e-12).ceil().clamp(min=1).long()
    spare = max(0, math.ceil(abs(float(v0[0])) - 1))
    constant = v0 / (spare + 1)
    rows = torch.cat([(c * u / scale[:, None]).repeat_interleave(copies, 0), u.new_zeros(spare, u.shape[1])])
    biases = torch.cat([(b / scale).repeat_interleave(copies), b.new_ones(spare)])
    weights = torch.cat([(v[0] * scale / copies).repeat_interleave(copies), constant.repeat(spare)])
    return (rows, biases), (weights[None, :], constant)
