"""How a case of the study is trained."""

from __future__ import annotations

import time

import torch

from headcount.papers.infoflow.trained_cells import train_cells
from studies.claims.cases import Case
from studies.claims.judged import Row, judged
from studies.stored import of_steps

STEPS, BATCH, SAMPLES, VALIDATION, SEEDS = 6144, 128, 65536, 4096, 4


def learned(case: Case, steps: int, samples: int, seeds: int) -> Row:
    """One case and its reference, trained as banks of all seeds."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    recipe = of_steps(steps, samples, min(BATCH, samples), VALIDATION)
    reference, own = train_cells(case.entries, recipe, seeds=seeds)
    return judged(case, own.nmse, reference.nmse, time.perf_counter() - start)
