"""D pair retrievals by two layers of D heads as a network that banks train: where training can start from.

With unit tokens and u = A_i^T x_s the pair score is x_s^T A_i x_t = (|u + x_t|^2 - |u|^2 - 1) / 2. Every token asks,
by head i, for the s with the largest score and fetches u and |u|^2; the feed-forward between the layers takes the
squares of u + x_t coordinate by coordinate, piecewise linearly; the class token asks once, at the end, for the largest
score.

Where tokens enter by one matrix and feed-forwards are smooth, products need no pieces: z erf(z / sqrt 2), the sum of
GELU at z and at -z, is sqrt(2 / pi) z^2 near 0, and four units make a product of two numbers (`smooth_pair_start`).
"""

from __future__ import annotations

import math

import torch

from headcount.nets import Architecture, Transformer
from headcount.nets.transformer import Attention, FeedForward
from headcount.tasks import PairMax, UnitSphere

BETA = (200.0, 200.0)  # of the tokens' question and of the class token's
SHARP = 16.0  # of both, for scores of N(0, I) tokens, which lie further apart
SMALL = 0.1  # what the numbers of a product are multiplied by, so that GELU is near its parabola


def pair_start(task: PairMax, arch: Architecture, mean: float = 0.0, spread: float = 1.0) -> Transformer:
    """The network for unit tokens in an architecture of D heads of head_dim at least token_dim + 1 in both layers.

    Its output is (y - mean) / spread; it is as fine as its feed-forwards are wide.

    >>> task = PairMax.random(1, 2, 6, tokens=UnitSphere())
    >>> net = pair_start(task, Architecture(((1, 4), (1, 4)), width=128, embed_dim=16))
    >>> x, y = task.sample(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> (net(x) - y).abs().max().item() < 0.05
    True
    """
    D, d, E = len(task.matrices), task.token_dim, arch.embed_dim
    if not isinstance(task.tokens, UnitSphere):
        raise ValueError("this network is for tokens on the unit sphere")
    if (need := d + D * (d + 3) + 2) > E or any(h < D or n < d + 1 for h, n in arch.layers) or arch.depth != 2:
        raise ValueError(f"two layers of {D} heads of head_dim {d + 1} and embed_dim {need} are needed, got {arch}")
    net = Transformer(arch, d).double()
    first, last, between = _parts(net)
    assert isinstance(net.encoder, FeedForward)
    # The state: the token, |u|^2 for each i, what was fetched (u and |u|^2) for each i, the score, a one, the answer.
    x, norm = slice(0, d), [d + i for i in range(D)]
    got = [slice(d + D + i * (d + 1), d + D + (i + 1) * (d + 1)) for i in range(D)]
    score, one, answer = [d + D + D * (d + 1) + i for i in range(D)], need - 2, need - 1
    A = torch.tensor(task.matrices, dtype=torch.float64)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        encoder = _Units(net.encoder)
        for j in range(d):
            encoder.linear({j: 1.0}, j, bound=1.0)
        each = (arch.width - encoder.used) // (D * d)
        for i in range(D):
            for j in range(d):
                column = A[i, :, j]
                encoder.square({k: float(column[k]) for k in range(d)}, norm[i], float(column.norm()), each)
        net.encoder.outer.bias[one] = 1.0
        net.cls[one] = 1.0
        # Query and key carry the square root each, so that neither is more delicate than the other.
        scales = [math.sqrt(b * math.sqrt(a.query.shape[1])) for b, a in zip(BETA, (first, last), strict=True)]
        squares = _Units(between)
        each = arch.width // (D * d)
        for i in range(D):
            first.query[i, :d, x] = scales[0] * torch.eye(d, dtype=torch.float64)
            first.key[i, :d, x], first.value[i, :d, x] = scales[0] * A[i].T, A[i].T
            first.value[i, d, norm[i]] = 1.0
            first.output[i, got[i], : d + 1] = torch.eye(d + 1, dtype=torch.float64)
            for j in range(d):
                reach = 1.0 + float(A[i, :, j].norm())
                squares.square({got[i].start + j: 1.0, j: 1.0}, score[i], reach, each, weight=0.5)
            # - (|u|^2 + 1) / 2 is linear: the class token's key and value read it beside the squares
            last.query[i, 0, one] = scales[1]
            last.key[i, 0, score[i]], last.value[i, 0, score[i]] = scales[1], 1.0
            last.key[i, 0, got[i].stop - 1], last.value[i, 0, got[i].stop - 1] = -0.5 * scales[1], -0.5
            last.value[i, 0, one] = -0.5
            last.output[i, answer, 0] = 1.0
        _say(net, answer, mean, spread)
    return net


def smooth_pair_start(task: PairMax, arch: Architecture, mean: float = 0.0, spread: float = 1.0) -> Transformer:
    """The network where tokens enter by one matrix and units are GELU, with D heads of head_dim at least token_dim.

    Head i scores by SHARP A_i and fetches A_i x_s; four units multiply each of its numbers by the token's own. The
    answer (y - mean) / spread passes the read-out by gelu(z) - gelu(-z) = z.

    >>> kind = {"embedding": "linear", "activation": "gelu", "class_token": "last"}
    >>> task = PairMax.random(1, 2, 6)
    >>> net = smooth_pair_start(task, Architecture(((1, 4), (1, 4)), width=16, embed_dim=16, **kind))
    >>> x, y = task.sample(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> ((net(x) - y).square().mean() / y.var()).item() < 0.1  # GELU is a parabola near 0 alone
    True
    """
    D, d = len(task.matrices), task.token_dim
    if (arch.embedding, arch.activation, arch.depth) != ("linear", "gelu", 2):
        raise ValueError("this network has two layers, tokens that enter by one matrix, and GELU")
    wide = d * (D + 1) + D + 2
    if wide > arch.embed_dim or 4 * D * d > arch.width or any(h < D or n < d for h, n in arch.layers):
        raise ValueError(f"{D} heads of {d}, embed_dim {wide} and width {4 * D * d} are needed, got {arch}")
    net = Transformer(arch, d).double()
    first, last, between = _parts(net)
    score, one, answer = [d * (D + 1) + i for i in range(D)], wide - 2, wide - 1
    A = torch.tensor(task.matrices, dtype=torch.float64)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        eye = torch.eye(d, dtype=torch.float64)
        net.encoder.get_parameter("weight")[:d] = eye
        net.encoder.get_parameter("bias")[one] = net.cls[one] = 1.0
        scales = [math.sqrt(SHARP * math.sqrt(a.query.shape[1])) for a in (first, last)]
        products = _Units(between)
        for i in range(D):
            got = d * (i + 1)
            first.query[i, :d, :d], first.key[i, :d, :d] = scales[0] * eye, scales[0] * A[i]
            first.value[i, :d, :d], first.output[i, got : got + d, :d] = A[i], eye
            for j in range(d):
                products.product(j, got + j, score[i])
            last.query[i, 0, one], last.key[i, 0, score[i]] = scales[1], scales[1]
            last.value[i, 0, score[i]], last.output[i, answer, 0] = 1.0, 1.0
        _say(net, answer, mean, spread)
    return net


def _say(net: Transformer, answer: int, mean: float, spread: float) -> None:
    """The read-out passes one number of the state, as (y - mean) / spread: gelu(z) - gelu(-z) = z."""
    net.read_out.inner.weight[0, answer], net.read_out.inner.weight[1, answer] = 1.0, -1.0
    net.read_out.outer.weight[0, :2] = torch.tensor([1.0, -1.0], dtype=torch.float64) / spread
    net.read_out.outer.bias[0] = -mean / spread


def _parts(net: Transformer) -> tuple[Attention, Attention, FeedForward]:
    first, last, between = net.attention[0], net.attention[1], net.between[0]
    assert isinstance(first, Attention) and isinstance(last, Attention) and isinstance(between, FeedForward)
    return first, last, between


class _Units:
    """The hidden units of a feed-forward, taken one after another."""

    def __init__(self, layer: FeedForward) -> None:
        self.layer, self.used = layer, 0

    def _add(self, inputs: dict[int, float], bias: float, output: int, weight: float) -> None:
        for k, w in inputs.items():
            self.layer.inner.weight[self.used, k] = w
        self.layer.inner.bias[self.used] = bias
        self.layer.outer.weight[output, self.used] = weight
        self.used += 1

    def linear(self, inputs: dict[int, float], output: int, bound: float) -> None:
        """z = relu(z + bound) - bound for |z| <= bound."""
        self._add(inputs, bound, output, 1.0)
        self.layer.outer.bias[output] -= bound

    def product(self, one: int, other: int, output: int) -> None:
        """The product of two numbers by four GELU units, ((a + b)^2 - (a - b)^2) / 4, each square of two."""
        weight = math.sqrt(math.pi / 2) / 4 / SMALL**2
        for sign, signed_weight in ((1.0, weight), (-1.0, -weight)):
            for slope in (SMALL, -SMALL):
                self._add({one: slope, other: sign * slope}, 0.0, output, signed_weight)

    def square(self, inputs: dict[int, float], output: int, reach: float, units: int, weight: float = 1.0) -> None:
        """z^2 on [-reach, reach] by `units` units, half on either side, off by at most an eighth of a step squared.

        Both sides grow from 0, so that an error of a weight is not multiplied by a cancellation.
        """
        half = units // 2
        step = reach / half
        for sign in (1.0, -1.0):
            for k in range(half):
                slope = step if k == 0 else 2 * step
                self._add({j: sign * w for j, w in inputs.items()}, -k * step, output, weight * slope)
        self.layer.outer.bias[output] -= weight * step**2 / 8
