"""headcount: a theorem and an experiment are functions of the same sizes.

The nouns and verbs below load their room when first used, so that `import headcount` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount._version import __version__
from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount import (
        certificates,
        drawing,
        fits,
        measuring,
        nets,
        papers,
        report,
        reproduction,
        results,
        shrinking,
        sizing,
        sources,
        structure,
        tasks,
        training,
    )
    from headcount.certificates import Built, Certificate, Worst, certify
    from headcount.fits import knee
    from headcount.measuring import Measurement, measure
    from headcount.measuring.estimators import Classifier, Regressor
    from headcount.measuring.fitted import load
    from headcount.nets import Architecture
    from headcount.papers import (
        allocation,
        attention_svm,
        born,
        consistency,
        hardmax,
        head_count,
        icl,
        induction,
        infoflow,
        lr_law,
        prompts,
        ssm,
        tensor_lens,
    )
    from headcount.papers.infoflow import advise, build, predict
    from headcount.papers.infoflow.starting import sweep
    from headcount.papers.tensor_lens import operator
    from headcount.results import Bound, Store, Study
    from headcount.shrinking import compress
    from headcount.sizing import shape
    from headcount.sources import Source
    from headcount.tasks import task


__all__ = [
    "__version__",
    "Architecture",
    "Bound",
    "Built",
    "Certificate",
    "Classifier",
    "Measurement",
    "Regressor",
    "Source",
    "Store",
    "Study",
    "Worst",
    "advise",
    "allocation",
    "born",
    "attention_svm",
    "build",
    "certificates",
    "certify",
    "compress",
    "consistency",
    "drawing",
    "fits",
    "hardmax",
    "head_count",
    "icl",
    "induction",
    "infoflow",
    "knee",
    "load",
    "lr_law",
    "measure",
    "measuring",
    "nets",
    "operator",
    "papers",
    "predict",
    "prompts",
    "report",
    "reproduction",
    "results",
    "shape",
    "shrinking",
    "sizing",
    "sources",
    "ssm",
    "structure",
    "sweep",
    "task",
    "tasks",
    "tensor_lens",
    "training",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "certificates": ("Built", "Certificate", "Worst", "certify"),
        "fits": ("knee",),
        "measuring": ("Measurement", "measure"),
        "measuring.estimators": ("Classifier", "Regressor"),
        "measuring.fitted": ("load",),
        "nets": ("Architecture",),
        "papers.infoflow": ("advise", "build", "predict"),
        "papers.infoflow.starting": ("sweep",),
        "papers.tensor_lens": ("operator",),
        "results": ("Bound", "Store", "Study"),
        "shrinking": ("compress",),
        "sizing": ("shape",),
        "sources": ("Source",),
        "tasks": ("task",),
    },
    modules=(
        "certificates",
        "drawing",
        "fits",
        "measuring",
        "nets",
        "papers",
        "papers.allocation",
        "papers.consistency",
        "papers.born",
        "papers.hardmax",
        "papers.attention_svm",
        "papers.head_count",
        "papers.icl",
        "papers.induction",
        "papers.infoflow",
        "papers.lr_law",
        "papers.prompts",
        "papers.ssm",
        "papers.tensor_lens",
        "report",
        "reproduction",
        "results",
        "shrinking",
        "sizing",
        "sources",
        "structure",
        "tasks",
        "training",
    ),
)
