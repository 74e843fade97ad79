"""Why a gap is as large as it is: each term of a certificate beside what one input makes of it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.built import Built
from headcount.certificates.domains import Box
from headcount.certificates.network import ClassTokenNet
from headcount.nets.transformer import Attention
from headcount.papers.head_count.networks.minima import minima_of
from headcount.tasks import LinearMax


@torch.no_grad()
def dissect(built: Built, x: Float[Tensor, "1 length token_dim"]) -> list[dict[str, object]]:
    """For a network wired as `enough_heads` does: every term as promised, as measured at `x`, and whether it holds.

    >>> from headcount.papers.head_count import enough_heads
    >>> from headcount.tasks import Wells
    >>> built = enough_heads(Wells(centres=[[0.0], [1.0]], length=4), eps=1e-2)
    >>> all(row["holds"] for row in dissect(built, torch.rand(1, 4, 1, dtype=torch.float64)))
    True
    """
    net, box = built.net, built.domain
    assert isinstance(net, ClassTokenNet)
    assert isinstance(box, Box)
    minima = minima_of(built.task, box.high if isinstance(built.task, LinearMax) else None)
    encoded, cls = net.encode(x), net.cls.expand(1, 1, -1)
    (attention,) = net.attention
    assert isinstance(attention, Attention)
    weights, psi, f = attention.weights(cls, encoded)[0, :, 0], encoded[0, :, ::2], minima.features(x.double())[0]
    averages = net.attended(x)[0, ::2]
    slopes = minima.outer.partial_bounds()
    measured = {"features": 0.0, "softmax excess": 0.0, "mass outside the window": 0.0}
    for i, window in enumerate(minima.windows):
        inside = list(window)
        p, v = weights[i, inside], psi[inside, i]
        # The window's own average; where nothing of the weight is left in it, its minimum.
        average = (p @ v / p.sum()) if p.sum() > 0 else v.min()
        measured["features"] += slopes[i] * float((v.min() - f[inside, i].min()).abs())
        measured["softmax excess"] += slopes[i] * float(average - v.min())
        measured["mass outside the window"] += slopes[i] * float((averages[i] - average).abs())
    measured["outer function"] = float((net(x) - minima.constant - minima.outer(averages[None])).abs())
    promised = {term.name: term.value for term in built.certificate.terms}
    return [
        {
            "term": name,
            "promised": promised[name],
            "measured": value,
            "holds": value <= promised[name] + promised["rounding"],
        }
        for name, value in measured.items()
    ]
