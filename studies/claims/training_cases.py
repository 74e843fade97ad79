"""How a case of the study is trained."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from headcount.papers.infoflow.trained_cells import train_cells
from studies.claims.cases import Case
from studies.claims.judged import Row, judged
from studies.stored import of_steps

STEPS, BATCH, SAMPLES, VALIDATION, SEEDS = 6144, 128, 65536, 4096, 4


@dataclass(frozen=True)
class Form:
    """How long, on how many samples, with how many seeds and with how many times the hidden units a case is trained."""

    steps: int = STEPS
    samples: int = SAMPLES
    seeds: int = SEEDS
    wider: int = 1
    device: str = "cpu"


FORMS = {"rows": Form(), "longer": Form(4 * STEPS), "wider": Form(4 * STEPS, wider=4)}


def learned(case: Case, form: Form) -> Row:
    """One case and its reference, trained as banks of all seeds."""
    torch.set_num_threads(1)
    start, case = time.perf_counter(), case.wider(form.wider)
    recipe = of_steps(form.steps, form.samples, min(BATCH, form.samples), VALIDATION)
    reference, own = train_cells(case.entries, recipe, seeds=form.seeds, device=form.device)
    return judged(case, own.nmse, reference.nmse, time.perf_counter() - start)
