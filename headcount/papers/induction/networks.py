"""The generalised induction head as a network with its certificate: copy lags, match them, average what followed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.certificates.attempts import on_samples
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.domains import Drawn
from headcount.refusals import positive
from headcount.sources import Source, implements
from headcount.structure import Structure
from headcount.tasks.ngrams import NGram, following_counts

ROUNDING = 2.0**-53


def unmatched(x: Float[Tensor, "batch length vocab"], lags: Sequence[int]) -> Bool[Tensor, " batch"]:
    """The named case m = 0: the pattern before the end stands before no other place, so nothing followed it.

    There the head is promised nothing: it averages over the best partial matches, a product of agreements over all
    letters, and the posterior is uniform.
    """
    return following_counts(x, lags).sum(dim=1) == 0


def matched_mean(x: Float[Tensor, "batch length vocab"], lags: Sequence[int]) -> Float[Tensor, "batch vocab"]:
    """GIH: the average of x_l over all places l whose letters at `lags` equal those of the place after the end.

    Where there is none (`unmatched`), the average over all places. It is the posterior as the concentration goes to 0.
    Source: Chen et al. 2024 (induction heads), the limit of training.

    >>> x = torch.nn.functional.one_hot(torch.tensor([[0, 1, 0, 2, 0]]), 3).double()
    >>> matched_mean(x, (1,))
    tensor([[0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    counts = following_counts(x, lags)
    matches = counts.sum(dim=1, keepdim=True)
    return torch.where(matches > 0, counts / matches.clamp(min=1), x.mean(dim=1))


@dataclass(frozen=True)
class MatchedMean:
    """The mean number of the letters that followed earlier copies of the last pattern, between 0 and 1.

    y = sum_e e GIH(e) / (V - 1) on sequences of `chain` whose last pattern occurred before: one number read off the
    generalised induction head, and any reading with weights in [0, 1] is as far from its network.
    """

    chain: NGram

    @property
    def length(self) -> int:
        return self.chain.length

    @property
    def token_dim(self) -> int:
        return self.chain.vocab

    @property
    def structure(self) -> Structure:
        return self.chain.structure

    @property
    def domain(self) -> str:
        return "one-hot letters of a chain whose last pattern occurred before"

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return _number(matched_mean(x, self.chain.parents))

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        matched: list[Tensor] = []
        while sum(map(len, matched)) < batch:
            x = self.chain.sample(batch, generator=generator, dtype=dtype).x
            matched.append(x[~unmatched(x, self.chain.parents)])
        x = torch.cat(matched)[:batch]
        return x, self(x)


@dataclass(frozen=True)
class InductionShape:
    """The lags that the heads of the first layer copy, one each, and the number of letters."""

    lags: tuple[int, ...]
    vocab: int


class MatchingNet(nn.Module):
    """Two layers of softmax attention: a head for every lag, by relative position, then one head that matches.

    Letter V is the begin token: as many of it as the largest lag stand before the sequence, so a head always has a
    place to look at, and what it copies from there agrees with no letter. The second layer scores place l by
    scale * sum_h <v_h(n+1), v_h(l)> and averages x_l. Called, it gives the mean number of the next letter; `rows`
    gives its law.
    """

    def __init__(self, shape: InductionShape) -> None:
        super().__init__()
        self.shape = shape
        self.copier = nn.Parameter(torch.zeros(len(shape.lags), max(shape.lags), dtype=torch.float64))
        self.scale = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def rows(self, x: Float[Tensor, "batch length vocab"]) -> Float[Tensor, "batch vocab"]:
        """The law of the next letter."""
        (batch, n, V), window = x.shape, max(self.shape.lags)
        begun = x.new_zeros(batch, window + n, V + 1)
        begun[:, :window, V] = 1.0
        begun[:, window:, :V] = x
        before = torch.stack([begun[:, window - lag : window - lag + n + 1] for lag in range(1, window + 1)])
        copies = torch.einsum("hw,wblv->hblv", self.copier.softmax(dim=1).to(x), before)
        scores = self.scale.to(x) * torch.einsum("hblv,hbv->bl", copies[:, :, :-1], copies[:, :, -1])
        return torch.einsum("bl,blv->bv", scores.softmax(dim=1), x)

    def forward(self, x: Float[Tensor, "batch length vocab"]) -> Float[Tensor, " batch"]:
        return _number(self.rows(x))


def soft_match_error(*, matches: int, length: int, gap: float) -> float:
    """How far softmax averaging is from the mean of m matches when every other score lies at least `gap` below.

    |output - GIH| <= q / (m + q) <= n exp(-gap) / m in every coordinate, q = (n - m) exp(-gap): the others have at most
    that share of the weight, and a coordinate of an average of letters lies in [0, 1]. Attained where all others lie
    exactly `gap` below and hold other letters.

    >>> soft_match_error(matches=1, length=2, gap=0.0)
    0.5
    """
    if not 1 <= matches <= length:
        raise ValueError(f"matches must lie in 1..{length}, got {matches}: with none the bound says nothing")
    q = (length - matches) * math.exp(-gap)
    return q / (matches + q)


@implements(
    Source("chen2024induction", "generalised induction head"),
    test="tests/test_induction_networks.py::test_the_head_keeps_its_certificate_and_attains_it",
    status="proved here",
    hypotheses=("the last pattern has occurred",),
)
def generalised_induction(task: NGram, beta: float, *, sharpness: float = 40.0) -> Built:
    """Head h copies the h-th parent, one head matches: within q/(1 + q) of the generalised induction head.

    `beta` is the scale a of the matching head, `sharpness` how far a copier's other lags lie below its own.
    Departs: derived here. Where the last pattern did not occur before (m = 0) nothing is promised: see `unmatched`.

    >>> built = generalised_induction(NGram(length=20), beta=12.0)
    >>> built.certificate.error < 20 * math.exp(-12)
    True
    """
    positive(beta=beta, sharpness=sharpness)
    net = MatchingNet(InductionShape(task.parents, task.vocab))
    with torch.no_grad():
        net.copier.fill_(-sharpness)
        for head, lag in enumerate(task.parents):
            net.copier[head, lag - 1] = 0.0
        net.scale.fill_(beta)
    return Built(net, MatchedMean(task), _certificate(task, beta, sharpness), Drawn(MatchedMean(task)), on_samples())


def _certificate(task: NGram, beta: float, sharpness: float) -> Certificate:
    n, lags = task.length, len(task.parents)
    leak = (task.parents[-1] - 1) * math.exp(-sharpness)
    # Copies with 1 - leak of their weight on the lag agree by >= 1 - 2 leak where the letters are equal, by <= 2 leak
    # where not. A full match scores beta |S| (1 - 2 leak) .. beta |S|, any other place at most beta (|S| - 1 + 2 leak).
    gap = beta * (1 - 2 * (lags + 1) * leak)
    if gap <= 0:
        raise ValueError(f"sharpness {sharpness:g} lets {leak:.2g} of a copy leak; for {lags} lags take a larger one")
    # Weights of scores within w of each other are within tanh(w/4) of equal ones in total variation: with a share f of
    # them w higher, f (1-f) (e^w - 1) / (f e^w + 1 - f), largest at f = 1 / (1 + e^(w/2)).
    spread = 2 * beta * lags * leak
    rounding = 4 * ROUNDING * (n + 4 + beta * lags * (task.parents[-1] + task.vocab + 4))
    terms = (
        Term("other places", soft_match_error(matches=1, length=n, gap=gap), f"q/(1+q), q = {n - 1} exp(-{gap:.6g})"),
        Term("unequal copies", math.tanh(spread / 4), f"matches score within {spread:.3g} of each other"),
        Term("rounding", rounding, "float64: scores to a few units of their size, sums of n weights"),
    )
    hypotheses = ("one-hot letters whose last pattern occurred before (m >= 1)", f"length {n}")
    return Certificate(terms, Source("chen2024induction", "generalised induction head"), hypotheses)


def _number(rows: Float[Tensor, "batch vocab"]) -> Float[Tensor, " batch"]:
    V = rows.shape[1]
    return rows @ torch.arange(V, dtype=rows.dtype, device=rows.device) / (V - 1)
