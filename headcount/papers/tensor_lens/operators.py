"""The whole network at one input as one affine map of its tokens, exactly, for any model that can be recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.files import write_json
from headcount.nets.recorded import (
    NotAffine,
    Recording,
    Replay,
    Site,
    Tape,
    own_backwards_opened,
    parameters_still,
    refuse_nonlinear,
)
from headcount.notebook import AnswerInNotebook, within_columns
from headcount.numerals import counted, spoken_bytes
from headcount.papers.tensor_lens.budgets import Budget, Forecast, Progress, measured_pass, progress_bar
from headcount.papers.tensor_lens.exactness import AffineCertificate, certify
from headcount.papers.tensor_lens.subjects import EmbeddedModel, subject_of
from headcount.papers.tensor_lens.token_maps import TokenMap, norm
from headcount.sources import Checked, Source, implements

LARGEST_MATRIX = 2**28  # bytes


@dataclass(frozen=True)
class ReadOut:
    """One number of the output split over the tokens by one backward pass, and where it was moved.

    `value` = sum of `tokens` + `constant`. `attention` (layer by token): what each attention layer takes from each
    token's values on the way to the number. `feed_forward` (layer): what passes through each layer's hidden units.
    A contribution may pass through several layers, so layers do not add up; tokens do.
    """

    value: float
    tokens: Float[Tensor, " length"]
    constant: float
    attention: Float[Tensor, "layers length"]
    feed_forward: Float[Tensor, " layers"]


@dataclass(frozen=True)
class Singular:
    """Leading singular values of T, with directions in the outputs and in the tokens."""

    values: Float[Tensor, " k"]
    outputs: Float[Tensor, "k places width"]
    tokens: Float[Tensor, "k length embed"]


@dataclass(frozen=True, repr=False)
class Operator(AnswerInNotebook):
    """F(x) = T x + c at one input x: attention weights, norm scales, activation ratios and gates frozen as they are.

    T says what was moved, not why: a token that only decides where another looks (query, key) contributes nothing.
    T is not the Jacobian: whoever wants to predict the output at another input uses the Jacobian. And a sum that is
    exact is no evidence that the parts are faithful; that is what `masking_curve` measures.
    `together`: how several rows are replayed: "at once" on the one tape, "recorded" on a tape of as many copies (where
    tokens of all rows share an axis), or each "alone" (where rows would mix).
    """

    subject: EmbeddedModel = field(repr=False)
    tape: Tape = field(repr=False)
    output: Float[Tensor, "places width"] = field(repr=False)
    certificate: AffineCertificate
    budget: Budget = field(repr=False)
    together: str = "alone"

    def __repr__(self) -> str:
        c = self.certificate
        gaps = f"replay gap {c.replay:.1e}, affine gap {c.affine:.1e}, tolerance {c.tolerance:.0e}, {c.dtype}"
        return within_columns(f"<Operator {self._words}; {gaps}>")

    @property
    def rows(self) -> list[dict[str, object]]:
        """The gaps of the certificate."""
        facts = self.certificate.as_dict()
        return [{"certificate": name, "": value} for name, value in facts.items() if not isinstance(value, dict)]

    @property
    def sentence(self) -> str:
        """From what to what it maps, and how far it is from the network."""
        return f"an affine map of {self._words} that gives what the network gives, to {self.certificate.replay:.1e}"

    def files(self, out: Path) -> list[Path]:
        """The sentence, the certificate, the constant and the output."""
        arrays = {"constant": self.constant.tolist(), "output": self.output.tolist()}
        facts = {"sentence": self.sentence, "certificate": self.certificate.as_dict(), **arrays}
        return [write_json(out / "operator.json", facts)]

    @property
    def _words(self) -> str:
        (length, embed), (places, width) = self.x.shape, self.output.shape
        return f"{counted(length, 'token')} x {embed} to {counted(places, 'place')} x {width}"

    @property
    def x(self) -> Float[Tensor, "length embed"]:
        """The tokens at which the network was frozen."""
        return self.subject.x

    @cached_property
    def constant(self) -> Float[Tensor, "places width"]:
        """c: what every bias, position and class token puts into the output, the tokens being 0."""
        return self.replay(torch.zeros_like(self.x)[None])[0]

    @cached_property
    def gap(self) -> float:
        """The largest entry of sum_j contributions + c - F(x)."""
        return self._off(self.contributions().sum(1))

    def _off(self, moved: Tensor) -> float:
        return float((moved + self.constant - self.output).abs().max())

    def _held(self, moved: Tensor, what: str) -> None:
        """What is handed out is the output less the constant, to the certificate's tolerance."""
        self.certificate.holds(self._off(moved) / (float(self.output.abs().max()) or 1.0), what)

    def apply(self, x: Float[Tensor, "length embed"]) -> Float[Tensor, "places width"]:
        """T x + c at other tokens, still frozen at the first ones."""
        return self.replay(x[None])[0]

    def replay(self, rows: Float[Tensor, "rows length embed"]) -> Float[Tensor, "rows places width"]:
        """T row + c for every row, from the tape."""
        with torch.no_grad():
            return self._forward(rows)[0]

    def _forward(self, rows: Tensor) -> tuple[Tensor, list[Site]]:
        """The frozen pass, and where it moves something."""
        if self.together == "alone" and len(rows) > 1:
            passes = [self._forward(row[None]) for row in rows]
            return torch.cat([out for out, _ in passes]), passes[0][1]
        copies = self.together == "recorded" and len(rows) > 1
        tape = _record(self.subject, len(rows), self.tape.branch)[0] if copies else self.tape
        rows = rows.clone()  # a model may change its input in place
        with Replay(tape) as frozen, own_backwards_opened():
            return self.subject(rows), frozen.sites

    @property
    def cost(self) -> Forecast:
        """What `contributions` will take, known before."""
        return self.budget.slice(self.output.numel() * len(self.x) * self.output.element_size())

    def contributions(self, progress: Progress | None = None) -> Float[Tensor, "places length width"]:
        """Ctr[i, j] = T[i, :, j, :] x_j, by replaying the tape on one row per token, in pieces that fit the budget.

        Each piece brings a row of zeros with it: what the same pass makes of them is subtracted, so that the rounding
        that all rows share does not add up over the tokens. A token goes in as many times larger as there are tokens
        (a power of two), and comes out as much smaller: T is linear, and beside the constant one token of many is
        lost in rounding. With the constant the sum is held to the tolerance.
        `progress` is called with the tokens done and all of them; None shows a bar where there is a terminal.
        """
        cost, x, constant = self.cost.check(), self.x, self.constant
        parts, scale = constant.new_empty(len(x), *constant.shape), 2.0 ** round(math.log2(len(x)))
        at_once = self.budget.rows(parts.numel() * parts.element_size())
        with progress_bar(cost, len(x)) if progress is None else nullcontext(progress) as done:
            for first in range(0, len(x), at_once):
                chunk = range(first, min(first + at_once, len(x)))
                rows = x.new_zeros(len(chunk) + 1, *x.shape)
                rows[range(len(chunk)), chunk] = scale * x[first : chunk.stop]  # one token each, all others 0
                moved = self.replay(rows)
                parts[first : chunk.stop] = (moved[:-1] - moved[-1]) / scale
                done(chunk.stop, len(x))
        self._held(parts.sum(0), "the contributions")
        return parts.transpose(0, 1)

    def tokens(self, by: TokenMap = norm) -> Float[Tensor, "places length"]:
        """One number for each token and each place read: `norm`, `share` or `logit(direction)`."""
        return by(self.contributions(), self.output)

    def read(self, direction: Float[Tensor, "*places width"], place: int = -1) -> ReadOut:
        """<direction, F_place> split over tokens and layers by one backward pass of the frozen network.

        A direction of the shape of the whole output reads all places at once.
        """
        u = torch.zeros_like(self.output)
        if direction.dim() == 2:
            u = u + direction
        else:
            u[place] = direction
        with parameters_still(self.subject.model), torch.enable_grad():
            x = self.x.clone().requires_grad_()
            out, sites = self._forward(x[None])
            value = (out[0] * u).sum()
            grads = torch.autograd.grad(value, [x, *(s.value for s in sites)], allow_unused=True)
        parts = (grads[0] * self.x).sum(-1)
        attention, hidden = _moved(sites, grads[1:], len(parts))
        constant, read = float((self.constant * u).sum()), float((self.output * u).sum())
        size = max(float((self.output * u).abs().sum()), float(parts.abs().sum())) or 1.0
        self.certificate.holds(abs(float(parts.double().sum()) + constant - read) / size, "the parts")
        return ReadOut(float(value.detach()), parts, constant, attention, hidden)

    def matrix(self) -> Float[Tensor, "places width length embed"]:
        """T itself; refused above 256 MB (its size is that of output times input)."""
        size = self.output.numel() * self.x.numel() * self.output.element_size()
        if size > LARGEST_MATRIX:
            limit = spoken_bytes(LARGEST_MATRIX)
            raise ValueError(f"the whole matrix would take {spoken_bytes(size)} (at most {limit}); use contributions()")
        out = self.output
        basis = torch.eye(out.numel(), dtype=out.dtype, device=out.device).unflatten(1, out.shape)
        rows = torch.cat([self.adjoint(some) for some in basis.split(self.budget.rows(size))])
        self._held((rows.flatten(1) @ self.x.flatten()).reshape(out.shape), "the matrix at its tokens")
        return rows.unflatten(0, out.shape)

    def adjoint(self, outputs: Float[Tensor, "rows places width"]) -> Float[Tensor, "rows length embed"]:
        """T^T applied to directions of the whole output, by one backward pass of the frozen network."""
        with parameters_still(self.subject.model), torch.enable_grad():
            x = self.x.expand(len(outputs), -1, -1).clone().requires_grad_()
            return torch.autograd.grad(self._forward(x)[0], x, outputs)[0]

    def singular(self, k: int = 1) -> Singular:
        """The k leading singular directions of T, by Lanczos on products with T and T^T: the matrix is never built."""
        from scipy.sparse.linalg import LinearOperator, svds

        out, x = self.output, self.x
        most = min(out.numel(), x.numel()) - 1
        if not 1 <= k <= most:
            raise ValueError(f"k must lie in 1..{most} for a map of {x.numel()} numbers to {out.numel()}, got {k}")

        def forward(v: Any) -> Any:
            return (self.apply(torch.as_tensor(v).to(x).reshape(x.shape)) - self.constant).flatten().cpu().numpy()

        def backward(u: Any) -> Any:
            return self.adjoint(torch.as_tensor(u).to(out).reshape(1, *out.shape)).flatten().cpu().numpy()

        kind = self.output.cpu().numpy().dtype
        product = LinearOperator((out.numel(), x.numel()), matvec=forward, rmatvec=backward, dtype=kind)  # pyright: ignore
        start = torch.ones(min(out.numel(), x.numel()), dtype=out.dtype).numpy()
        triplet: Any = svds(product, k=k, v0=start)
        u, s, v = triplet
        order = s.argsort()[::-1].copy()
        u, v = torch.as_tensor(u.T[order].copy()), torch.as_tensor(v[order].copy())
        return Singular(torch.as_tensor(s[order].copy()), u.unflatten(1, out.shape), v.unflatten(1, x.shape))


@implements(
    Source("atad2026lens", "the network as one input-dependent linear operator"),
    test="tests/test_tensor_lens_exact.py::test_contributions_and_constant_add_up_to_the_output",
    status="proved here",
    hypotheses=(Checked("affine once its data-dependent factors are frozen"),),
)
def operator(
    model: nn.Module,
    x: Tensor | Sequence[Any],
    *,
    at: Sequence[int] | None = None,
    attention_mask: Tensor | None = None,
    freeze: str = "gate",
    memory: int | str | None = None,
    forecast: Callable[[Forecast], None] | None = None,
) -> Operator:
    """The network at x as one affine map of its tokens, F(x) = T x + c, with a certificate that it is one.

    `x`: embedded tokens (length, embed_dim), or token ids for a Hugging Face model; `at`: the places of the output to
    read (None: all); `freeze`: which factor of a gated unit is frozen, its "gate" or the "branch" it multiplies (both
    splits are exact, and differ); `memory`: bytes to stay below, as a number or as "4G" (None: half of what is free);
    `forecast`: told what it will take once one plain pass was made, before anything is kept.
    Source: Atad et al. 2026 (TensorLens).
    Departs: the printed identity F(x) = T x leaves out biases; here they are the constant c.

    >>> from headcount.nets import Architecture, Transformer
    >>> net = Transformer(Architecture(layers=((2, 4),), width=8), token_dim=3, seed=0).double().eval()
    >>> seen = operator(net, torch.ones(5, 3, dtype=torch.float64))
    >>> seen.contributions().shape, seen.gap < 1e-12
    (torch.Size([1, 5, 1]), True)
    """
    if freeze not in ("gate", "branch"):
        raise ValueError(f"freeze must be 'gate' or 'branch', got {freeze!r}")
    subject = subject_of(model, x, at=at, attention_mask=attention_mask)
    plain, cost = measured_pass(subject.plain, len(subject.x), memory)
    if forecast:
        forecast(cost)
    cost.check()
    if not plain.isfinite().all():
        raise ValueError("the model's own output holds NaN or infinity at these tokens, so there is nothing to split")
    try:
        tape, recorded = _record(subject, 1, freeze)
        budget = Budget.of(cost.limit, tape, subject.x, recorded)
        return _certified(Operator(subject, tape, recorded[0], _unknown(), budget), plain)
    except ValueError:
        raise
    except Exception as problem:  # the plain pass went through: what fails is being watched
        message = (str(problem).strip().splitlines() or [""])[0][:160]
        raise NotAffine(f"the model cannot be recorded: {type(problem).__name__}: {message}") from problem


def _certified(lens: Operator, plain: Tensor) -> Operator:
    """The certificate from rows that were replayed alone, then the fastest way of replaying several that agrees."""
    began = time.perf_counter()
    three = _rows_far_apart(lens.x)
    rows = torch.cat([lens.replay(row[None]) for row in three])
    seconds = (time.perf_counter() - began) / len(rows)
    output, gap = lens.output, _adjoint_gap(lens, three, rows)
    certificate = certify(lens.tape, output, plain.reshape(output.shape), (rows[0], rows[1], rows[2]), MIX, gap)
    lens = replace(lens, certificate=certificate.check(), budget=lens.budget.timed(seconds))
    candidates = (replace(lens, together=candidate) for candidate in ("at once", "recorded"))
    return next((candidate for candidate in candidates if _agree(candidate, three[:2], rows[:2])), lens)


def _agree(candidate: Operator, inputs: Tensor, alone: Tensor) -> bool:
    """Whether rows that are replayed together are what each is alone."""
    try:
        gap = float((candidate.replay(inputs) - alone).abs().max()) / (float(alone.abs().max()) or 1.0)
    except (RuntimeError, IndexError, ValueError):
        return False
    return gap <= candidate.certificate.tolerance


def _adjoint_gap(lens: Operator, inputs: Tensor, rows: Tensor) -> float:
    """<u, f(x') - f(x)> - <T^T u, x' - x> for random signs u, against the length of f(x') - f(x)."""
    moved = (rows[1] - rows[0]).double()
    u = torch.randint(0, 2, moved.shape, generator=torch.Generator().manual_seed(7)).to(lens.output) * 2 - 1
    back = lens.adjoint(u[None])[0]
    parts = (back.double() * (inputs[1] - inputs[0]).double()).sum()
    return float(((u.double() * moved).sum() - parts).abs() / (moved.norm() or 1.0))


MIX = 0.37


def _unknown() -> AffineCertificate:
    return AffineCertificate(*(float("nan"),) * 6, dtype="", frozen=())


def _rows_far_apart(x: Tensor) -> Tensor:
    """x, an independent x' as large as x, and a point on the line through both."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(2601_17958), dtype=torch.float64).to(x)
    along = (noise * x).sum() / x.square().sum().clamp_min(torch.finfo(x.dtype).tiny)
    far = (noise - along * x) * x.square().mean().sqrt()  # orthogonal to x, lest x was drawn from the same seed
    return torch.stack([x, far, MIX * x + (1 - MIX) * far])


def _record(subject: EmbeddedModel, rows: int, branch: str) -> tuple[Tape, Tensor]:
    tape = Tape(branch=branch)
    with parameters_still(subject.model), torch.enable_grad():
        x = subject.x.clone().requires_grad_()
        tokens = x.clone().expand(rows, -1, -1).clone()
        with Recording(tape), own_backwards_opened():
            out = subject(tokens)
        refuse_nonlinear(out, tape)
    return tape, out.detach()


def _moved(sites: list[Site], grads: Sequence[Tensor | None], length: int) -> tuple[Tensor, Tensor]:
    """What each attention takes from each token, and what the hidden units after it pass on."""
    attention, hidden = list[Tensor](), list[float]()
    for site, grad in zip(sites, grads, strict=True):
        if grad is None:
            continue
        through = grad * site.value.detach()
        if site.kind == "attention":
            # Values lie as (..., tokens, head_dim).
            by_place = through.sum(-1).flatten(0, -2).sum(0) if through.dim() > 1 else through
            attention.append(by_place if len(by_place) == length else by_place.new_full((length,), float("nan")))
            hidden.append(0.0)
        elif hidden:
            hidden[-1] += float(through.sum())
    layers = torch.stack(attention) if attention else torch.zeros(0, length)
    return layers, torch.tensor(hidden, dtype=layers.dtype)
