"""The paper on exact interpolation: counts of layers and the gap of what is built, and the loss under weight decay."""

from __future__ import annotations

import numpy as np
import torch

from headcount.papers.hardmax.bounds import interpolation_layers
from headcount.papers.hardmax.experiments import decay_study
from headcount.papers.hardmax.networks import Interpolation, interpolate
from headcount.papers.hardmax.published import CLASSIFIED, SETS, stated_blocks
from headcount.papers.hardmax.sequence_pairs import SequencePairs, hausdorff
from headcount.results.record import Measured, Reproduction, Setting, Stated

LENGTHS = (10, 100, 1000)


def exact(setting: Setting) -> Measured:
    """Classifiers and sets at the sizes of the note: blocks beside the stated ones, and the worst gap."""
    labels = {count: _classifier(count, 4, 4) for count in CLASSIFIED}
    sets = {m: _sets(m) for m in SETS}
    lengths = {length: _classifier(8, 4, 4, length) for length in LENGTHS}
    built = [*labels.values(), *sets.values(), *lengths.values()]
    worst = max(b.check().gap / _scale(b) for b in built)
    soft = max(_softmax_gap(b) / b.certificate.error for b in labels.values())
    blocks = {(f"N = {count}", "built"): (float(b.blocks),) for count, b in labels.items()}
    blocks |= {(f"N = {count}", "stated"): (float(stated_blocks((1,) * count)),) for count in CLASSIFIED}
    blocks |= {(str(m), "built"): (float(b.blocks),) for m, b in sets.items()}
    blocks |= {(str(m), "stated"): (float(stated_blocks(m)),) for m in SETS}
    layers = [b.layers for b in lengths.values()]
    fewer = all(b.blocks <= stated_blocks((1,) * n) for n, b in labels.items())
    within = all(b.layers <= interpolation_layers(tuple(len(y) for y in _pairs(b).outputs)).value for b in built)
    claims = (
        Stated("sequences are interpolated exactly", f"worst gap {worst:.1e} of the largest token", worst < 1e-9),
        Stated("O(N) blocks classify N sequences", "never more blocks than 4N + 1", fewer),
        Stated("our counts 3N + 1 and N + 3 sum m + 3 bound what is built", f"in all {len(built)} cases", within),
        Stated("lengths do not enter the counts", f"layers at lengths {LENGTHS}: {layers}", len(set(layers)) == 1),
        Stated("the classifier does the same under softmax", f"gap {soft:.2g} of the promise", soft <= 1),
    )
    setup = {"classifiers": "d = 4, 4 labels", "sets": "d = 3", "lengths": "N = 8"}
    return Measured({"blocks": blocks}, claims, setup, ("the stages are ours, the stated counts are second-hand",))


def decay(setting: Setting) -> Measured:
    """Fresh models at five decays: the loss, what the inequality allows, and the slope."""
    seeds = (0,) if setting.quick else (0, 1, 2)
    study = decay_study(seeds=seeds, starts=4 if setting.quick else 8, steps=800 if setting.quick else 3000)
    cells: dict[tuple[float, str], tuple[float, ...]] = {}
    for wd in sorted({r.decay for r in study.rows}, reverse=True):
        rows = [r for r in study.rows if r.decay == wd]
        cells[wd, "loss"] = tuple(r.loss for r in rows)
        cells[wd, "median over starts"] = tuple(r.median_loss for r in rows)
        cells[wd, "allowed"] = tuple(r.allowed for r in rows)
    tightest = max(r.loss / r.allowed for r in study.rows)
    between = f"slope {study.slope:.2f} [{study.low:.2f}, {study.high:.2f}]"
    claims = (
        Stated(
            "with decay wd the loss at the optimum is at most wd/2 times the squared norm of an exact network",
            f"largest share of what is allowed {tightest:.2g}",
            tightest <= 1,
        ),
        Stated("the loss falls at least linearly in the decay", between, study.at_least_linear is True),
    )
    return Measured({"loss by decay": cells}, claims, {"models": "one block, four neurons", "seeds": len(seeds)})


def _classifier(count: int, dim: int, labels: int, length: int = 5) -> Interpolation:
    rng = np.random.default_rng((count, length))
    targets = rng.standard_normal((labels, dim))
    return interpolate(list(rng.standard_normal((count, length, dim))), [targets[i % labels] for i in range(count)])


def _sets(outputs: tuple[int, ...]) -> Interpolation:
    rng = np.random.default_rng(outputs)
    return interpolate(list(rng.standard_normal((len(outputs), 5, 3))), [rng.standard_normal((m, 3)) for m in outputs])


def _pairs(built: Interpolation) -> SequencePairs:
    assert isinstance(built.task, SequencePairs)
    return built.task


def _scale(built: Interpolation) -> float:
    pairs = _pairs(built)
    return float(max(pairs.batch.nan_to_num().norm(dim=-1).max(), pairs.targets.nan_to_num().norm(dim=-1).max()))


def _softmax_gap(built: Interpolation) -> float:
    pairs = _pairs(built)
    with torch.no_grad():
        return float(hausdorff(built.narrow.with_softmax()(pairs.batch), pairs.targets).max())


HARDMAX = (
    Reproduction("hardmax:exact", "blocks that interpolate sequences exactly, beside the stated count", exact, (),
                 "Gaussian sequences; the stages are those of this package.", "lengths 10, 100, 1000", computed=True),
    Reproduction("hardmax:decay", "the loss under weight decay against what an exact network allows", decay, (),
                 "Four sequences in the plane, one block of softmax attention and four neurons, Adam at 2e-2 with a "
                 "cosine, 3000 steps; the best of eight fresh starts stands for the optimum.", "five decays",
                 ("10 s", "1 min", "1 min")),
)  # fmt: skip
