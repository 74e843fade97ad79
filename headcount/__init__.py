"""headcount: a theorem and an experiment are functions of the same sizes.

The nouns and verbs below load their room when first used, so that `import headcount` needs no torch. A paper stands in
`papers`; its short name, as `headcount.ssm`, is the same folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount._version import __version__
from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount import papers, tasks
    from headcount.certificates import Built, Certificate, Worst, certify
    from headcount.fits import knee
    from headcount.measuring import Measurement, measure
    from headcount.measuring.estimators import Classifier, Regressor
    from headcount.measuring.fitted import load
    from headcount.nets import Architecture
    from headcount.papers import (
        allocation as allocation,
    )
    from headcount.papers import (
        attention_svm as attention_svm,
    )
    from headcount.papers import (
        born as born,
    )
    from headcount.papers import (
        consistency as consistency,
    )
    from headcount.papers import (
        hardmax as hardmax,
    )
    from headcount.papers import (
        head_count as head_count,
    )
    from headcount.papers import (
        icl as icl,
    )
    from headcount.papers import (
        induction as induction,
    )
    from headcount.papers import (
        infoflow as infoflow,
    )
    from headcount.papers import (
        lr_law as lr_law,
    )
    from headcount.papers import (
        prompts as prompts,
    )
    from headcount.papers import (
        ssm as ssm,
    )
    from headcount.papers import (
        tensor_lens as tensor_lens,
    )
    from headcount.papers.infoflow import Prediction, advise, build, predict
    from headcount.papers.infoflow.starting import sweep
    from headcount.papers.tensor_lens import operator
    from headcount.results import Bound, Store, Study
    from headcount.shrinking import compress
    from headcount.sizing import shape
    from headcount.tasks import task
    from headcount.training import Recipe

__all__ = [
    "__version__",
    "Architecture",
    "Bound",
    "Built",
    "Certificate",
    "Classifier",
    "Measurement",
    "Prediction",
    "Recipe",
    "Regressor",
    "Store",
    "Study",
    "Worst",
    "advise",
    "build",
    "certify",
    "compress",
    "knee",
    "load",
    "measure",
    "operator",
    "papers",
    "predict",
    "shape",
    "sweep",
    "task",
    "tasks",
]

PAPERS = (
    "allocation",
    "attention_svm",
    "born",
    "consistency",
    "hardmax",
    "head_count",
    "icl",
    "induction",
    "infoflow",
    "lr_law",
    "prompts",
    "ssm",
    "tensor_lens",
)

__getattr__, _ = lazily(
    __name__,
    {
        "certificates": ("Built", "Certificate", "Worst", "certify"),
        "fits": ("knee",),
        "measuring": ("Measurement", "measure"),
        "measuring.estimators": ("Classifier", "Regressor"),
        "measuring.fitted": ("load",),
        "nets": ("Architecture",),
        "papers.infoflow": ("Prediction", "advise", "build", "predict"),
        "papers.infoflow.starting": ("sweep",),
        "papers.tensor_lens": ("operator",),
        "results": ("Bound", "Store", "Study"),
        "shrinking": ("compress",),
        "sizing": ("shape",),
        "tasks": ("task",),
        "training": ("Recipe",),
    },
    modules=("papers", "tasks", *(f"papers.{name}" for name in PAPERS)),
)


def __dir__() -> list[str]:
    return sorted(__all__)
