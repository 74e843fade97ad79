"""What a shape cannot do, whatever its weights: bounds with their hypotheses, a task's asked of its paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headcount.numerals import counted
from headcount.refusals import at_least_one
from headcount.results import Bound
from headcount.results.hypothesis import Hypothesis
from headcount.sizing.model_shape import ModelShape
from headcount.sources import Source

if TYPE_CHECKING:
    from headcount.results.claim import Claim

# The networks that the papers speak of are not language models: what is said of a task is said of these.
COUNTED_FOR = Hypothesis(
    "a class-token network with these heads: no norms, no mask, tokens enter through a feed-forward",
    short="a class-token network with these heads",
)


def every_pattern(length: int, head_dim: int, *, embed_dim: int, encoder: bool = True) -> Bound:
    """The least head_dim with which one head can weigh `length` tokens in every positive way: length - 1.

    Scores of one head are a matrix of rank at most head_dim, and softmax sees each row up to a constant. Adding a
    constant to each row of log P changes its determinant by a linear function, so some choice makes it singular: rank
    length - 1 is always enough. For P = softmax(beta I) every choice leaves beta I + c 1^T, of rank length - 1 or more,
    so no less will do.
    Source: Bhojanapalli et al. 2020, Theorem 1.
    Departs: the paper says length, for heads as wide as the tokens; where tokens are wider, one less is enough.

    >>> bound = every_pattern(512, 64, embed_dim=512)
    >>> bound.value, bound.sizes["every"]
    (511.0, False)
    """
    at_least_one(length=length, head_dim=head_dim, embed_dim=embed_dim)
    return Bound(
        "head_dim for every attention pattern",
        float(length - 1),
        "exact",
        Source("bhojanapalli2020rank", "Theorem 1"),
        (
            Hypothesis.checked("attention without a mask", encoder),
            Hypothesis.checked("embed_dim >= length, tokens linearly independent", embed_dim >= length or None),
        ),
        meaning="with fewer dimensions some positive weighing of the tokens is out of reach of a single head",
        sizes={"length": length, "head_dim": head_dim, "every": head_dim >= length - 1},
    )


def memorised(length: int, heads: int, head_dim: int) -> Bound:
    """One attention layer can memorise heads (min(length, head_dim) - 1) + 1 sequences: more heads, more memory.

    Source: Mahdavi et al. 2024, Theorem 1; its abstract says Omega(heads length).
    Departs: the constant is as we recall it, and stands as an assumption.

    >>> memorised(512, 8, 64).value
    505.0
    """
    at_least_one(length=length, heads=heads, head_dim=head_dim)
    return Bound(
        "sequences that one layer can memorise",
        float(heads * (min(length, head_dim) - 1) + 1),
        "lower",
        Source("mahdavi2024memory", "Theorem 1"),
        ("queries and contexts linearly independent as the paper asks", "the constant of the theorem as recalled"),
        meaning="head_dim beyond the length adds nothing to it, heads do",
        sizes={"length": length, "heads": heads, "head_dim": head_dim},
    )


def rank_separation(embed_dim: int, head_dim: int) -> Bound:
    """A target that one head of full rank computes takes exponentially many of low rank; no constant is known here.

    Source: Amsel et al. 2024, abstract: exponential in embed_dim, even for short contexts; depth helps for short ones.

    >>> rank_separation(512, 64).vacuous
    True
    """
    at_least_one(embed_dim=embed_dim, head_dim=head_dim)
    return Bound(
        "heads of low rank for the biased nearest neighbour",
        1.0,
        "lower",
        Source("amsel2024rank", "the separation of Section 5"),
        (Hypothesis.checked("head_dim < embed_dim", head_dim < embed_dim),),
        vacuous=True,
        meaning="exponential in embed_dim by the abstract; the constants were not read, so nothing is forbidden",
        sizes={"embed_dim": embed_dim, "head_dim": head_dim},
    )


def task_bounds(task: Any, heads: int, head_dim: int, layers: int = 1) -> list[Bound]:
    """What papers forbid a shape on a task: too few heads for its retrievals in one layer, or too few layers.

    The first is of head count, where the task states its retrievals, and speaks of one layer; the second of an
    alternation language.
    """
    if not hasattr(task, "structure"):
        return [depth] if isinstance(depth := getattr(task, "depth", None), Bound) else []
    from headcount.papers.head_count.bounds import few_heads_exponent, linear_max_exponent

    structure = task.structure
    count = sum(retrieval.count for retrieval in structure.retrievals)
    if count <= heads:
        return []
    linear = all(retrieval.score == "linear" for retrieval in structure.retrievals)
    exponent = linear_max_exponent if linear else few_heads_exponent
    bound = exponent(length=structure.length, retrievals=count, heads=heads, head_dim=head_dim, target=structure)
    alone = Hypothesis.checked("one layer of attention", layers == 1)
    return [replace(bound, hypotheses=(*bound.hypotheses, alone))]


def task_claim(task: Any, shape: ModelShape) -> Claim | None:
    """What InfoFlow says of a task by a class-token network with the shape's heads in every layer.

    None for a task of letters, of which `length_verdict` says whether short strings teach long ones.
    """
    if not hasattr(task, "structure"):
        return None
    from headcount.nets import Architecture
    from headcount.papers.infoflow.predict import predict

    layers = tuple((one.heads, one.head_dim) for one in shape.layers)
    prediction = predict(task, Architecture(layers=layers, width=shape.layers[0].width))
    claim = prediction.claim(f"{type(task).__name__} by {counted(len(layers), 'layer')} of {shape.layers[0]}")
    return replace(claim, conditions=(*claim.conditions, COUNTED_FOR))


def forbidding(shape: ModelShape, context: int, task: Any = None) -> list[Bound]:
    """Every bound that speaks of this shape, the first layer's heads standing for all."""
    one = shape.layers[0]
    bounds = [
        every_pattern(context, one.head_dim, embed_dim=shape.embed_dim, encoder=shape.wiring.encoder),
        memorised(context, one.heads, one.head_dim),
        rank_separation(shape.embed_dim, one.head_dim),
    ]
    return bounds + ([] if task is None else task_bounds(task, one.heads, one.head_dim, len(shape.layers)))
