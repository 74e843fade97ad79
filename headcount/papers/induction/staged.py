"""The simplified two-layer model as copier, selector and classifier, and plain gradient descent on any of the three.

What a head copies to a place is a function of a few letters, so the score of a place is a number from a table over the
pairs (letters before the end, letters before the place) that occur: the model is evaluated once for each such pair, and
a sequence only looks its pairs up. Places of a sequence with the same pair and letter are one entry with a count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from headcount.papers.induction.bounds import Lags, subsets
from headcount.tasks.ngrams import ChainSample

TINY = 1e-7  # added to the norm of a mixture, as published


@dataclass(frozen=True, eq=False)
class Learnt:
    """What the full model also learns: query and key of every head, and the value."""

    query: Float[Tensor, "heads vocab vocab"]
    key: Float[Tensor, "heads vocab vocab"]
    value: Float[Tensor, "vocab vocab"]

    @classmethod
    def between(
        cls,
        heads: int,
        vocab: int,
        randomness: float,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> Learnt:
        """(1 - t) I + t G for t = `randomness`: at 0 the simplified model's own maps, at 1 entries N(0, 1 / vocab)."""
        if not 0 <= randomness <= 1:
            raise ValueError(f"randomness must lie in [0, 1], got {randomness}")
        sizes = ((heads, vocab, vocab), (heads, vocab, vocab), (vocab, vocab))
        drawn = [torch.randn(size, generator=generator, dtype=torch.float64) / vocab**0.5 for size in sizes]
        identity = torch.eye(vocab, dtype=torch.float64)
        return cls(*(((1 - randomness) * identity + randomness * part).to(dtype) for part in drawn))


@dataclass(frozen=True, eq=False)
class ChainTables:
    """Sequences as the model sees them: entries, each a pair of contexts, a letter and how often a sequence has both.

    A context of a head is its window of letters, a missing one counted as a letter of its own. `query` and `key` hold,
    for every head and pair, the numbers of the contexts before the end and before the place. Entries stand sequence by
    sequence, `sizes` of each; `cells` numbers an entry's sequence and letter.

    >>> x = one_hot(torch.zeros(1, 20, dtype=torch.int64), 3).double()
    >>> sample = ChainSample(x, torch.tensor([0]), torch.ones(1, 3))
    >>> ChainTables.of(sample, heads=3).counts.tolist()  # five first places lack letters, the others are alike
    [15.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    pairs: Int[Tensor, " entries"]
    sequence: Int[Tensor, " entries"]
    cells: Int[Tensor, " entries"]
    counts: Float[Tensor, " entries"]
    sizes: Int[Tensor, " batch"]
    query: Int[Tensor, "heads kinds"]
    key: Int[Tensor, "heads kinds"]
    vocab: int
    following: Int[Tensor, " batch"]

    @classmethod
    def of(cls, sample: ChainSample, heads: int) -> ChainTables:
        """The tables of a sample for `heads` heads, head h looking at lags h .. h + heads - 1."""
        letters, (batch, n, V) = sample.x.argmax(dim=-1), sample.x.shape
        span = 2 * heads - 1
        if n < span:
            raise ValueError(f"{heads} heads look {span} letters back, and the sequences have {n}")
        padded = torch.cat([letters.new_full((batch, span), V), letters], dim=1)
        digits = [padded[:, span - lag : span - lag + n + 1] * (V + 1) ** (lag - 1) for lag in range(1, span + 1)]
        place = torch.stack(digits).sum(dim=0)
        base = (V + 1) ** span
        kinds, pairs = torch.unique(place[:, -1:] * base + place[:, :-1], return_inverse=True)
        step, size = V + 1, (V + 1) ** heads
        query, key = (
            torch.stack([code // step**h % size for h in range(heads)]) for code in (kinds // base, kinds % base)
        )
        of_all = torch.arange(batch)[:, None] * (len(kinds) * V) + pairs * V + letters
        entries, counts = torch.unique(of_all, return_counts=True)
        sequence, entry = entries // (len(kinds) * V), entries % (len(kinds) * V)
        sizes = torch.bincount(sequence, minlength=batch)
        cells = sequence * V + entry % V
        return cls(entry // V, sequence, cells, counts.to(sample.x), sizes, query, key, V, sample.following)


@dataclass(frozen=True, eq=False)
class Staged:
    """The simplified model: lag weights of the heads, a coefficient for every set of heads, a scale.

    Head h mixes the letters at lags h .. h+H-1 by softmax(copier_h) over the lags that exist and divides by norm +
    1e-7: v_h(l). A set A of heads agrees with place l by k_A(l) = prod over A of relu <v_h(n+1), v_h(l)>. The score of
    a place is a sum_A c_A^2 k_A(l) / sum_A c_A^2, and the output is sum_l softmax(score)_l x_l over l = 1..n.
    Source: Chen et al. 2024 (induction heads), the simplified model of the runs.

    >>> model = Staged.start(heads=3, degree=2, dtype=torch.float64)
    >>> len(model.sets), model.copier.shape, round(model.share((1, 2)), 6)
    (7, torch.Size([3, 3]), 0.142857)
    """

    copier: Float[Tensor, "heads window"]
    selector: Float[Tensor, " sets"]
    classifier: Float[Tensor, ""]
    degree: int
    learnt: Learnt | None = None

    @classmethod
    def start(
        cls,
        heads: int = 3,
        degree: int = 2,
        *,
        own: float = 3.0,
        other: float = 0.1,
        small: float = 0.01,
        dtype: torch.dtype = torch.float32,
        learnt: Learnt | None = None,
    ) -> Staged:
        """Lag weight `own` at a head's first lag and `other` elsewhere; coefficients and scale `small`."""
        copier = torch.full((heads, heads), other, dtype=dtype)
        copier[:, 0] = own
        selector = torch.full((len(subsets(heads, degree)),), small, dtype=dtype)
        return cls(copier, selector, torch.tensor(small, dtype=dtype), degree, learnt)

    @property
    def heads(self) -> int:
        """The number H of heads, and of lags that each looks at."""
        return len(self.copier)

    @property
    def sets(self) -> list[Lags]:
        """The sets of heads, by the first lag of each head, in the order of the coefficients."""
        return subsets(self.heads, self.degree)

    @property
    def shares(self) -> dict[Lags, float]:
        """c_A^2 / sum c^2 of every set."""
        squares = self.selector.double() ** 2
        return dict(zip(self.sets, (squares / squares.sum()).tolist(), strict=True))

    def share(self, lags: Lags) -> float:
        """c_A^2 / sum c^2 of one set."""
        return self.shares[lags]

    @property
    def chosen(self) -> Lags:
        """The set of largest share."""
        return max(self.shares, key=self.share)

    def __call__(self, data: ChainTables) -> Float[Tensor, "batch vocab"]:
        """The output for every sequence: a point of the simplex where no value map is learnt."""
        scores = _looked_up(self._scores(data), data.pairs)
        tops = torch.segment_reduce(scores.detach(), "max", lengths=data.sizes)
        masses = data.counts * (scores - tops[data.sequence]).exp()
        by_letter = masses.new_zeros(len(data.sizes) * data.vocab).index_add(0, data.cells, masses).view(-1, data.vocab)
        mixed = by_letter / by_letter.sum(dim=1, keepdim=True)
        return mixed if self.learnt is None else mixed @ self.learnt.value.T

    def loss(self, data: ChainTables) -> Tensor:
        """Cross-entropy with the output as logits, as published: for 3 letters never below log(1 + 2/e) = 0.5514."""
        return cross_entropy(self(data), data.following)

    def _scores(self, data: ChainTables) -> Float[Tensor, " kinds"]:
        agreement = [self._agreement(h, data) for h in range(self.heads)]
        squares = self.selector**2
        parts = [c * math.prod(agreement[h - 1] for h in lags) for c, lags in zip(squares, self.sets, strict=True)]
        return self.classifier * sum(parts) / squares.sum()

    def _agreement(self, head: int, data: ChainTables) -> Float[Tensor, " kinds"]:
        copies = _copies(self.copier[head], data.vocab)
        queries, keys = copies, copies
        if self.learnt is not None:
            queries, keys = copies @ self.learnt.query[head].T, copies @ self.learnt.key[head].T
        table = torch.relu(queries @ keys.T).flatten()
        return _looked_up(table, data.query[head] * len(copies) + data.key[head])


def _copies(weights: Float[Tensor, " window"], vocab: int) -> Float[Tensor, "contexts vocab"]:
    """What a head copies in every context: the normalised mixture of the letters that exist; 0 where none does."""
    window = len(weights)
    contexts = torch.arange((vocab + 1) ** window)
    letters = torch.stack([contexts // (vocab + 1) ** i % (vocab + 1) for i in range(window)], dim=1)
    there = letters < vocab
    # A context without letters has no softmax; its weights are multiplied by zero letters.
    masked = torch.where(there | ~there.any(dim=1, keepdim=True), weights, -torch.inf)
    mixture = torch.einsum("cw,cwv->cv", masked.softmax(dim=1), one_hot(letters, vocab + 1)[..., :vocab].to(weights))
    squares = (mixture**2).sum(dim=1, keepdim=True)
    return mixture / (torch.where(squares > 0, squares, 1.0).sqrt() + TINY)


class _LookUp(torch.autograd.Function):
    """table[places], whose gradient adds up by place."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.size = len(table)
        return table[places]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        summed = torch.bincount(places.flatten(), grads[0].flatten(), minlength=ctx.size)
        return summed.to(grads[0].dtype), None


def _looked_up(table: Float[Tensor, " kinds"], places: Tensor) -> Tensor:
    return _LookUp.apply(table, places)  # type: ignore[return-value]


GROUPS = ("copier", "selector", "classifier")


@dataclass(frozen=True)
class Stage:
    """So many steps of descent on these groups of parameters; `learnt` names the maps of the full model."""

    groups: tuple[str, ...]
    steps: int

    def __post_init__(self) -> None:
        unknown = [name for name in self.groups if name not in (*GROUPS, "learnt")]
        if unknown:
            raise ValueError(f"unknown group {unknown[0]!r}; there are {', '.join(GROUPS)} and learnt")


def descend(
    model: Staged,
    data: ChainTables,
    stages: Sequence[Stage],
    *,
    rate: float = 1.0,
    visit: Callable[[int, Staged], None] = lambda step, model: None,
) -> Staged:
    """Full-batch gradient descent, stage after stage; `visit` sees the model before the first step and after each."""
    visit(0, model)
    step = 0
    for stage in stages:
        for _ in range(stage.steps):
            model, step = _stepped(model, data, stage.groups, rate), step + 1
            visit(step, model)
    return model


def _stepped(model: Staged, data: ChainTables, groups: Sequence[str], rate: float) -> Staged:
    moving = {name: value.detach().requires_grad_() for name, value in _parameters(model, groups).items()}
    gradients = torch.autograd.grad(_with(model, moving).loss(data), list(moving.values()))
    moved = {name: (p - rate * g).detach() for (name, p), g in zip(moving.items(), gradients, strict=True)}
    return _with(model, moved)


def _parameters(model: Staged, groups: Sequence[str]) -> dict[str, Tensor]:
    plain = {name: getattr(model, name) for name in groups if name != "learnt"}
    if "learnt" not in groups:
        return plain
    if model.learnt is None:
        raise ValueError("this model has no learnt query, key and value: it is the simplified one")
    return plain | {f.name: getattr(model.learnt, f.name) for f in fields(Learnt)}


def _with(model: Staged, values: Mapping[str, Tensor]) -> Staged:
    plain = {name: value for name, value in values.items() if name in GROUPS}
    maps = {name: value for name, value in values.items() if name not in GROUPS}
    learnt = replace(model.learnt, **maps) if maps and model.learnt is not None else model.learnt
    return replace(model, **plain, learnt=learnt)
