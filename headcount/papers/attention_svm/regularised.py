"""The regularisation path: the best attention weights of norm at most R, as R grows. It knows no margin.

By conditional gradients: over a ball of radius R the linear problem min <G, W> is solved by -R G/|G| in the Frobenius
norm, and by -R u v^T in the nuclear one, u and v the leading singular vectors of G. A step goes part of the way there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.papers.attention_svm.descent import from_tails
from headcount.papers.attention_svm.selection import Instances
from headcount.refusals import at_least_one, nearest, positive
from headcount.sources import Source, implements

Slopes = Float[Tensor, "instances token_dim token_dim"]


def _round(g: Slopes) -> Slopes:
    return -g / g.norm(dim=(1, 2), keepdim=True).clamp(min=1e-300)


def _leading(g: Slopes) -> Slopes:
    u, _, v = torch.linalg.svd(g)
    return -u[:, :, :1] @ v[:, :1]


CORNERS: dict[str, Callable[[Slopes], Slopes]] = {"frobenius": _round, "nuclear": _leading}


@implements(
    Source("tarzanagh2023svm", "the regularisation path"),
    test="tests/test_attention_svm_directions.py::test_the_regularisation_path_turns_to_the_solution_of_its_norm",
    status="measured",
)
def regularisation_path(
    data: Instances, radii: Sequence[float], *, norm: str = "frobenius", steps: int = 500
) -> Float[Tensor, "radii instances token_dim token_dim"]:
    """W_R = argmin of the loss over |W| <= R, for every R and instance; W_R / R turns to the max-margin direction.

    Conditional gradients from W = 0 or from the last radius, scaled; `steps` for each radius. The nuclear ball has
    edges, and the steps that are wanted grow with R: 1,500 are enough up to about 16 times the norm of the solution.
    Source: Tarzanagh et al. 2023, the regularisation path W_R / R.

    >>> from headcount.papers.attention_svm.selection import Selection
    >>> data = Selection(2, 3, 4).sample(1, generator=torch.Generator().manual_seed(0))
    >>> regularisation_path(data, (1.0, 4.0), steps=20).norm(dim=(2, 3)).flatten() <= 4.0 + 1e-9
    tensor([True, True])
    """
    at_least_one(steps=steps)
    if norm not in CORNERS:
        raise ValueError(f"no ball is called {norm!r}; {nearest(norm, CORNERS)}")
    if not radii or list(radii) != sorted(set(radii)):
        raise ValueError(f"radii grow, and there is at least one; got {list(radii)}")
    positive(radius=radii[0])
    d, path = data.tokens.shape[-1], list[Tensor]()
    weights = torch.zeros(len(data), d, d, dtype=torch.float64)
    for i, radius in enumerate(radii):
        weights = weights * (radius / radii[i - 1]) if i else weights
        for step in range(steps):
            corner = radius * CORNERS[norm](from_tails(data, weights))
            weights = weights + (corner - weights) * (2 / (step + 2 + (8 if i else 0)))
        path.append(weights.clone())
    return torch.stack(path)
