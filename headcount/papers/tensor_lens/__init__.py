"""TensorLens: End-to-End Transformer Analysis via High-Order Attention Tensors (Atad et al., arXiv 2601.17958).

At a given input a transformer is one affine map of its tokens, exactly, once attention weights, norm scales and
activation ratios are frozen: F(x) = T x + c. `operator` finds it for any model that can be recorded, without code for
the model, and certifies that it is affine. `masking_curve` asks whether the tokens it points at are the ones that
matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.tensor_lens.exactness import AffineCertificate
    from headcount.papers.tensor_lens.operators import Operator, ReadOut, Singular, operator
    from headcount.papers.tensor_lens.tape import NotAffine
    from headcount.papers.tensor_lens.token_maps import logit, norm, share

__all__ = ["AffineCertificate", "NotAffine", "Operator", "ReadOut", "Singular", "logit", "norm", "operator", "share"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "exactness": ("AffineCertificate",),
        "operators": ("Operator", "ReadOut", "Singular", "operator"),
        "tape": ("NotAffine",),
        "token_maps": ("logit", "norm", "share"),
    },
)
