"""`headcount theory allocate` and `headcount saturation`: divide a budget, see what heads use."""

from __future__ import annotations

from typing import Annotated

import typer

from headcount.cli.options import Model, TextFile, numbers_of
from headcount.cli.printing import Listing, Printout, status_line
from headcount.numerals import counted

LAG = ("lag", "weight", "heads", "head_dim", "closed form", "heads it needs")
COUNTS = (1, 2, 4, 8, 9, 10, 16, 20, 32, 40, 64, 80, 128)  # heads of the curve
LAYER = ("layer", "length", "norm", "slope", "Lambda", "growth", "bound", "bounded", "informs")
HEAD = ("layer", "head", "length", "norm", "largest_weight", "half_range", "bound")
COST = ("layer", "head", "rank", "of", "logits", "row_l1", "row_l2", "output")
SATURATION_NOTE = """
norm: of the Jacobian of a row of weights (median); slope: of log norm by log
length, -1 in theory where logits are bounded; Lambda: half the range of a row's
logits, growth: its growth with length; bound: e^(2 Lambda) / length, which
informs only below 1/2."""
COST_NOTE = "\nWhat a smaller query-key rank changes: logits and outputs relatively, rows absolutely"
ROTARY_NOTE = "\nRotary queries and keys have no ranks to cut: `headcount compress` takes out whole frequencies."


def allocate(
    weights: Annotated[str, typer.Option(help="Size of each lag's weight, first lag first: 1,1,1,1")] = "1,1,1,1",
    token_dim: Annotated[int, typer.Option(help="Dimension of a token.")] = 8,
    budget: Annotated[int, typer.Option(help="Heads times head_dim, summed over all heads.")] = 256,
    curve: Annotated[bool, typer.Option("--curve", help="Also the error of one lag against its head count.")] = False,
) -> Printout:
    """Divide a budget of heads times head_dim over lags."""
    from headcount.papers.allocation import allocate as solve
    from headcount.papers.allocation import trade_off

    allocation = solve(numbers_of(weights, "--weights"), token_dim, budget)
    spent = f"{counted(sum(allocation.heads), 'head')}, {allocation.spent:,} of {budget:,} spent"
    lines = [
        Listing(allocation.rows, LAG),
        f"\n{allocation.bound}",
        f"{spent}; closed form {allocation.relaxed.error:.4g}",
    ]
    lines += allocation.cautions
    facts = allocation.to_json()
    if curve:
        counts = [h for h in COUNTS if h <= budget]
        errors = trade_off(budget, token_dim, counts)
        facts["curve"] = [{"heads": h, "error": e} for h, e in zip(counts, errors, strict=True)]
        lines.append(f"\nOne lag with the whole budget of {budget:,}, head_dim = {budget:,} / heads")
        lines.append(Listing(facts["curve"], ("heads", "error")))
    return Printout(facts, lines, allocation.claim())


def saturation(
    model: Model,
    text: TextFile,
    lengths: Annotated[str, typer.Option(help="Sequence lengths to look at.")] = "8,16,32,64,128,256",
    samples: Annotated[int, typer.Option(help="Sequences of each length.")] = 8,
    heads: Annotated[bool, typer.Option("--heads", help="One row per head instead of one per layer.")] = False,
) -> Printout:
    """Measure where the attention of a model saturates on a text.

    And what smaller heads would cost there.
    """
    from headcount.nets.pretrained.model_places import folder_of

    wanted = [int(n) for n in numbers_of(lengths, "--lengths")]
    if not text.is_file():
        raise FileNotFoundError(f"no text file at {text}")
    folder_of(model)  # what cannot be found is said before anything large is loaded
    from headcount.nets.pretrained.folders import load, tokenizer_of
    from headcount.papers.allocation.attention_saturation import saturation_report
    from headcount.shrinking.surgery import at_full_rank

    with status_line() as tell:
        report = saturation_report(at_full_rank(load(model)), tokenizer_of(model), text, wanted, samples, tell)
    shown = Listing(report.longest, HEAD) if heads else Listing(report.layers, LAYER)
    costs = Listing(report.rank_costs if heads else report.costs_by_layer, COST)
    lines = [shown, SATURATION_NOTE, *([COST_NOTE, costs] if report.rank_costs else [ROTARY_NOTE])]
    return Printout(report.to_json(), lines, report.sentence)
