"""`predict`: a task and an architecture in, a `Prediction` out."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from headcount.nets.architecture import Architecture
from headcount.papers.infoflow.analysis import Analysis, analyse, is_cheap, uncompared, unplaced
from headcount.papers.infoflow.constructible import fitting, own_kind
from headcount.papers.infoflow.costs import comparisons_made, comparisons_needed
from headcount.papers.infoflow.explain import Step, knowledge, statements_for, steps
from headcount.papers.infoflow.lower import beyond_bounded_weights, one_layer_bound
from headcount.papers.infoflow.prediction import Caution, Fix, Limit, Prediction
from headcount.results import Basis, Bound, Hypothesis
from headcount.structure import Retrieval, Structure

MOST_HEADS, MOST_LAYERS, MOST_DIMS, MOST_WIDTH = 64, 12, 256, 1024  # more than that is no fix
POSITIONS = 3  # t/T and one turn of the circle
THE_BAG = "the bag of tokens"
SAMPLES, ORDERS = 32, 8  # sequences and orders that are asked whether the order matters

SAME_IN_ANY_ORDER = Hypothesis(
    f"the order of the tokens does not matter: {SAMPLES} samples in {ORDERS} orders differ nowhere, which is no proof",
    short="an order that does not matter",
)

ONE_ASIDE = Hypothesis(
    "of several places beside a token one is looked at in each layer; two heads of one layer are not counted",
    short="one look aside per layer",
)


def predict(task: Any, arch: Architecture, *, eps: float | None = None) -> Prediction:
    """Whether a network of this shape computes the task cheaply, on what basis, by which plan, and what limits it.

    `task` is a `Structure` or anything with a `.structure`. Cheap by construction where a certified network has this
    shape, costly by proof where a lower bound's hypotheses are met, else what the calculus says. With `eps`, tokens
    share heads only where that misses no sample by more.
    Source: Yu et al. 2026 (InfoFlow): information sets, three modes of propagation, composition by the worst step.
    Departs: rates and comparison budget as reconstructed and checked here; the paper's constants are not known. What
    tokens found rides along, a head's loads for tokens and class token add, the class token's layers count, and tokens
    that choose share heads where that works on the task's own samples (`choosing`); tokens that enter by one matrix
    cannot choose, and are counted only where scores are linear in a token or in each of two.

    >>> from headcount.structure import Retrieval
    >>> pairs = Structure(64, 4, (Retrieval("pairs", count=2, order=2),))
    >>> predict(pairs, Architecture(layers=((2, 8), (2, 8)))).cheap
    True
    >>> short = predict(pairs, Architecture(layers=((1, 8), (2, 8))))
    >>> short
    <Prediction 1x8+2x8: costly, calculus, eps^-16>
    >>> print(short.fixes[0])
    2 heads in layer 1 (now 1)
    """
    if not arch.residual:
        raise ValueError("what tokens found rides along with residuals, and is counted; this architecture has none")
    if arch.embedding == "linear" and not _linear_scores(task):
        raise ValueError(
            "tokens that enter by one matrix are counted where every score is linear in a token (LinearMax) or in "
            "each of two (PairMax of pairs alone)"
        )
    structure = structure_seen(task, structure_of(task), arch)
    case = _Case(task, structure, arch, eps)
    plan, lower = case.plan, case.lower
    blueprint = fitting(task, arch)
    cheap = case.cheap
    return Prediction(
        structure=structure,
        arch=arch,
        cheap=cheap,
        exponent=case.exponent,
        basis=Basis("constructed" if blueprint else "proved" if case.proved else "calculus"),
        limit=case.limit,
        plan=() if plan is None or plan.cost.cheap != cheap else case.steps,
        known=() if plan is None or plan.cost.cheap != cheap or case.shares else knowledge(plan, structure, arch),
        statements=statements_for(structure, arch, plan),
        fixes=() if cheap else tuple(_fixes(task, structure, arch)),
        cautions=() if blueprint else (*case.choice, *case.untried, *_cautions(structure, arch, plan)),
        lower=None if cheap else lower,
        construction=blueprint,
        conditions=_conditions(task, structure, case),
        outside=None if cheap else beyond_bounded_weights(structure, arch),
    )


def _conditions(task: Any, structure: Structure, case: _Case) -> tuple[Hypothesis, ...]:
    """Under what the verdict stands: what a proof assumes, a certificate's domain, or what the calculus leaves out."""
    if case.made is not None:
        return (Hypothesis("tokens in the domain that `build` states with the certificate", short="its domain"),)
    bag = () if structure == structure_of(task) or structure.retrievals[0].name != THE_BAG else (SAME_IN_ANY_ORDER,)
    if case.missing is not None:
        sampled = True if hasattr(task, "sample") else None
        matters = "the order of the tokens matters, as its structure states or its samples show"
        return (Hypothesis.checked(matters, sampled, "an order that matters"), *bag)
    if case.proved:
        assert case.lower is not None
        return (*case.lower.given, *bag)
    if not case.cheap:
        untried = tuple(caution.condition for caution in case.untried)
        beside = (ONE_ASIDE,) if any(len(r.beside) + bool(r.offset) > 1 for r in structure.retrievals) else ()
        return (
            Hypothesis("bounded weights, as the decoding law asks", short="bounded weights"),
            *untried,
            *beside,
            *bag,
        )
    cautions = (*case.choice, *_cautions(structure, case.arch, case.plan))
    return (*(caution.condition for caution in cautions), *bag)


def _linear_scores(task: Any) -> bool:
    """Whether what a task compares is linear in one token, or in each of two, so that it needs no hidden units."""
    if own_kind(task) == "PairMax":
        return all(r.order == 2 for r in structure_of(task).retrievals)
    return own_kind(task) == "LinearMax"


def structure_of(task: Any) -> Structure:
    """The structure of a task, or the structure itself; anything else is refused by the name of what is missing."""
    stated = task if isinstance(task, Structure) else getattr(task, "structure", None)
    if not isinstance(stated, Structure):
        raise ValueError(f"{type(task).__name__} states no structure: the field 'structure' is missing")
    return stated


def structure_seen(task: Any, structure: Structure, arch: Architecture) -> Structure:
    """The structure of a task as a network of this shape meets it.

    A look-up by place is beyond a network without positions only if the order of the tokens matters, and two orders of
    one sequence with different targets prove that it does. A task that can be asked, and shows no such pair, is taken
    for a function of the bag of its tokens, which is evidence and no proof: what such a network must read is the bag.

    >>> from headcount.tasks import Lookups, PlaceOf, Ridges
    >>> both = Lookups((PlaceOf(0, (1.0,)), PlaceOf(1, (1.0,))), length=2, outer=Ridges.sum(2))  # x_0 + x_1
    >>> predict(both, Architecture(((1, 2),))).verdict
    'cheap'
    """
    if structure.length == 1 and arch.embedding != "linear":  # the encoder computes the number from its one token
        return Structure(1, structure.token_dim, (Retrieval("the token", positions=(0,), summed=1),))
    if arch.positions or not hasattr(task, "sample") or unplaced(structure, arch) is None or order_matters(task):
        return _by_extremes(task, structure, arch)
    numbers = structure.length * structure.token_dim
    bag = Retrieval(THE_BAG, positions=tuple(range(structure.length)), summed=numbers)
    return Structure(structure.length, structure.token_dim, (bag,))


def _by_extremes(task: Any, structure: Structure, arch: Architecture) -> Structure:
    """The structure, or where only that is cheap, the one in which pairs of rank one are looked up by their extremes.

    max_{s,t} <u, x_s> <v, x_t> is the largest of the four products of an extreme of <u, x> and one of <v, x>.
    """
    if own_kind(task) != "PairMax" or is_cheap(structure, arch):
        return structure
    from headcount.tasks.intrinsic import kind_of, merged_forms, rank_one

    forms = [form for form in merged_forms(task.matrices, task.length) if kind_of(form) in ("pair", "opposite")]
    products = sum(map(rank_one, forms))
    others = tuple(r for r in structure.retrievals if r.order != 2)
    left = (Retrieval("pairs", count=len(forms) - products, order=2, score="other"),) if len(forms) > products else ()
    if not products:
        return structure
    extremes = Retrieval("extremes of products", count=4 * products, score="other")
    split = Structure(structure.length, structure.token_dim, (*left, *others, extremes))
    return split if is_cheap(split, arch) else structure


def order_matters(task: Any) -> bool:
    """Whether some sample of the task has another target in another order of its tokens; asked once per task."""
    return _order_matters(task) if isinstance(task, Hashable) else _order_matters.__wrapped__(task)


@lru_cache(maxsize=64)
def _order_matters(task: Any) -> bool:
    import torch  # only tasks that can be asked come here, and they are torch's already

    generator = torch.Generator().manual_seed(0)
    x = task.sample(SAMPLES, generator=generator, dtype=torch.float64)[0]
    y = task(x)
    shuffled = (torch.randperm(task.length, generator=generator) for _ in range(ORDERS))
    return any(not torch.allclose(task(x[:, order]), y, rtol=1e-9, atol=1e-12) for order in shuffled)


def cheap_shape(task: Any, structure: Structure, arch: Architecture, eps: float | None = None) -> bool:
    """Whether `predict` would say cheap; quicker."""
    if fitting(task, arch) is not None:
        return True
    structure = structure_seen(task, structure, arch)
    return is_cheap(structure, _counted(task, arch, eps)) and not _costly(_bound(structure, arch))


def cheap_exponent(task: Any, structure: Structure, arch: Architecture, eps: float | None = None) -> float:
    """The exponent that `predict` would say where the shape is cheap, else infinity."""
    case = _Case(task, structure_seen(task, structure, arch), arch, eps)
    return case.exponent if case.cheap else math.inf


def _bound(structure: Structure, arch: Architecture) -> Bound | None:
    """What is proved of one layer; the proofs speak of ReLU."""
    return one_layer_bound(structure, arch) if arch.activation == "relu" else None


def _costly(lower: Bound | None) -> bool:
    """A bound proves a shape costly when it asks for more than eps^-1, the price of a feature of a score."""
    return lower is not None and lower.value > 1


def _counted(task: Any, arch: Architecture, eps: float | None = None) -> Architecture:
    """The shape as the calculus may count it: a head of the first layer for each look-up that tokens share them for."""
    if not hasattr(task, "intrinsic") or arch.embedding == "linear":
        return arch
    from headcount.papers.infoflow.choosing import with_shared_heads  # such tasks are torch's already

    return with_shared_heads(task, arch, eps)


class _Case:
    """One task and one shape: what the calculus says, what is proved, what follows."""

    def __init__(self, task: Any, structure: Structure, arch: Architecture, eps: float | None = None) -> None:
        self.task, self.structure, self.arch = task, structure, arch
        self.counted = _counted(task, arch, eps)
        self.made = fitting(task, arch)
        self.missing = unplaced(structure, arch)
        self.plan = None if self.missing else analyse(structure, self.counted)
        self.lower = _bound(structure, arch)
        self.proved = self.made is None and (self.missing is not None or _costly(self.lower))

    @property
    def cheap(self) -> bool:
        return self.made is not None or (not self.proved and self.plan is not None and self.plan.cost.cheap)

    @property
    def shares(self) -> bool:
        """Whether tokens are taken to share heads."""
        return self.counted != self.arch

    @property
    def exponent(self) -> float:
        if self.plan is None:
            return 1.0 if self.made else math.inf
        e = float(self.plan.cost.exponent)
        if self.made:
            return e if self.plan.cost.cheap else 1.0
        return max(e, self.lower.value) if self.proved and self.lower is not None else e

    @property
    def limit(self) -> Limit:
        if self.made is not None and (self.plan is None or not self.plan.cost.cheap):
            return Limit("score")
        if self.plan is None:
            assert self.missing is not None
            return Limit("order of tokens", math.inf, retrieval=self.missing.name)
        return limiting(self.plan, self.structure, self.counted)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The plan; heads that tokens share are counted once."""
        assert self.plan is not None
        planned = steps(self.plan, self.structure, self.counted)
        if not self.shares:
            return planned
        shared = (1, self.arch.layers[0][0])
        return tuple(
            replace(s, heads=shared, act="choose") if (s.layer, s.act) == (1, "partner") else s for s in planned
        )

    @property
    def choice(self) -> tuple[Caution, ...]:
        """On what the sharing of heads rests."""
        if not self.shares or not self.cheap or self.made is not None:
            return ()
        from headcount.papers.infoflow.choosing import LONGEST, sharings

        heads = self.arch.layers[0][0]
        missed = max(c.nmse for c in sharings(self.task) if c.heads >= heads)
        at = (LONGEST,) if self.structure.length > LONGEST else ()
        return (Caution("tokens choose", (heads, self.counted.layers[0][0], *at), missed),)

    @property
    def untried(self) -> tuple[Caution, ...]:
        """That a sharing of heads was not looked for, where that might make the shape cheap."""
        if self.cheap or self.proved or own_kind(self.task) != "PairMax" or self.arch.depth < 2:
            return ()
        from headcount.papers.infoflow.choosing import MOST

        pairs = sum(r.count for r in self.structure.retrievals if r.order == 2)
        return (Caution("sharing not tried", (pairs,)),) if pairs > MOST else ()


def limiting(plan: Analysis, structure: Structure, arch: Architecture) -> Limit:
    """What sets the exponent of a plan."""
    cost, d, e = plan.cost, structure.token_dim, float(plan.cost.exponent)
    short = uncompared(structure, arch)
    if short is not None:
        needed = comparisons_needed(short.window or structure.length, short.order)
        comparisons = comparisons_made(arch.layers, structure.length)
        return Limit(
            "comparisons", e, plan.gathered, plan.channel, d,
            retrieval=short.name, order=short.order, needed=needed, made=comparisons,
        )  # fmt: skip
    if cost.aggregated == cost.exponent and plan.gathered and (e > 1 or not plan.demands):
        return Limit("aggregation", e, plan.gathered, plan.channel, d, whole=plan.gathered == structure.length * d)
    return Limit("score") if e == 1 else Limit("dimensions", e)


def _cautions(structure: Structure, arch: Architecture, plan: Analysis | None) -> Iterator[Caution]:
    if plan is None:
        return
    acts = [
        plan.demands[j.demand].acts[j.act] for jobs in plan.layers for j in jobs if j.demand >= 0 and j.way == "plain"
    ]
    masked = any(act.kind == "mask" for act in acts)
    if masked and not arch.positions:
        yield Caution("ties")
    if masked and any(d.rank > 2 for d in plan.demands):
        yield Caution("spaced leaders")
    if plan.whole and plan.cost.cheap and not arch.positions:
        yield Caution("bag")
    if plan.whole and plan.cost.cheap and structure.length > 1 and any(r.order for r in structure.retrievals):
        yield Caution("read-out", (plan.gathered,))
    links = [d.links for d in plan.demands if d.links > 1]
    if links:
        yield Caution("one map", (max(links),))
    short = [n for _, n in arch.layers if n < structure.token_dim]
    if short and any(r.order == 2 for r in structure.retrievals):
        yield Caution("rank of a score", (short[0], structure.token_dim))


@dataclass(frozen=True)
class _Change:
    """One kind of change: a shape for every size, tried from `start` to `most`."""

    what: Any
    start: int
    most: int
    shape: Callable[[int], Architecture]
    layer: int = 0


def _fixes(task: Any, structure: Structure, arch: Architecture) -> list[Fix]:
    """Single changes that make the shape cheap, each tried: positions, heads, layers, dimensions, width."""
    fixes = [fix for change in _changes(arch) if (fix := _least(task, structure, arch, change))]
    one_layer = any(fix.what == "heads" and fix.layer for fix in fixes)
    return [fix for fix in fixes if not (one_layer and fix.what == "heads" and not fix.layer)]


def _changes(arch: Architecture) -> Iterator[_Change]:
    layers, depth = arch.layers, arch.depth
    if not arch.positions:
        yield _Change("positions", POSITIONS, POSITIONS, lambda k: replace(arch, positions=k))
    if arch.embedding == "linear":
        yield _Change("embedding", 1, 1, lambda k: replace(arch, embedding="feed-forward"))
    for l, (heads, _) in enumerate(layers):
        yield _Change("heads", heads + 1, MOST_HEADS, lambda k, l=l: _with_heads(arch, k, l), layer=l + 1)
    if depth > 1:
        most = max(heads for heads, _ in layers)
        yield _Change("heads", most + 1, MOST_HEADS, lambda k: _with_heads(arch, k))
    yield _Change("layers", depth + 1, MOST_LAYERS, lambda k: replace(arch, layers=layers + layers[-1:] * (k - depth)))
    least = min(n for _, n in layers)
    yield _Change("head_dim", least + 1, MOST_DIMS, lambda k: _with_dims(arch, k))
    yield _Change("embed_dim", arch.embed_dim + 1, MOST_WIDTH, lambda k: replace(arch, embed_dim=k))


def _least(task: Any, structure: Structure, arch: Architecture, change: _Change) -> Fix | None:
    """The least size that makes the shape cheap; more never hurts."""
    low, high = change.start, change.most
    if low > high or not cheap_shape(task, structure, change.shape(high)):
        return None
    least = low + bisect_left(range(low, high), True, key=lambda k: cheap_shape(task, structure, change.shape(k)))
    return Fix(change.what, _now(arch, change), least, change.shape(least), change.layer)


def _now(arch: Architecture, change: _Change) -> int:
    now = {"positions": 0, "embedding": 0, "layers": arch.depth, "embed_dim": arch.embed_dim}
    if change.what == "heads":
        return arch.layers[change.layer - 1][0] if change.layer else max(heads for heads, _ in arch.layers)
    return now.get(change.what, min(n for _, n in arch.layers))


def _with_heads(arch: Architecture, heads: int, layer: int | None = None) -> Architecture:
    layers = tuple((heads, n) if layer in (None, i) else (h, n) for i, (h, n) in enumerate(arch.layers))
    return replace(arch, layers=layers)


def _with_dims(arch: Architecture, head_dim: int) -> Architecture:
    layers = tuple((h, max(n, head_dim)) for h, n in arch.layers)
    return replace(arch, layers=layers, embed_dim=max(arch.embed_dim, *(h * n for h, n in layers)))
