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
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.nets.recorded.tape import NotAffine
    from headcount.papers.tensor_lens.exactness import AffineCertificate
    from headcount.papers.tensor_lens.heads import HeadScore, head_scores
    from headcount.papers.tensor_lens.lens_pages import lens_page
    from headcount.papers.tensor_lens.masking import MAPS, MaskingRow, masking_curve
    from headcount.papers.tensor_lens.operators import Operator, ReadOut, Singular, operator
    from headcount.papers.tensor_lens.token_maps import logit, norm, share
    from headcount.papers.tensor_lens.views import LensView, view_of_network, view_of_text

__all__ = [
    "MAPS",
    "AffineCertificate",
    "HeadScore",
    "LensView",
    "MaskingRow",
    "NotAffine",
    "Operator",
    "ReadOut",
    "Singular",
    "head_scores",
    "lens_page",
    "logit",
    "masking_curve",
    "model_and_tokenizer",
    "norm",
    "operator",
    "share",
    "view_of_network",
    "view_of_text",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "exactness": ("AffineCertificate",),
        "heads": ("HeadScore", "head_scores"),
        "lens_pages": ("lens_page",),
        "masking": ("MAPS", "MaskingRow", "masking_curve"),
        "operators": ("Operator", "ReadOut", "Singular", "operator"),
        "headcount.nets.pretrained.packaged": ("model_and_tokenizer",),
        "headcount.nets.recorded.tape": ("NotAffine",),
        "token_maps": ("logit", "norm", "share"),
        "views": ("LensView", "view_of_network", "view_of_text"),
    },
)
