"""`headcount allocate` and `saturation`: divide a budget, see what heads use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headcount.cli.printing import MODEL_HELP, AsJson, conclude, emit_json, say, show_table, status_line
from headcount.numerals import counted

Model = Annotated[str, typer.Argument(help=MODEL_HELP)]
Text = Annotated[Path | None, typer.Option("--text", help="A text file to calibrate on.", show_default=False)]


SATURATION_NOTE = """
norm: of the Jacobian of a row of weights (median); slope: of log norm by log
length, -1 in theory where logits are bounded; Lambda: half the range of a row's
logits, growth: its growth with length; bound: e^(2 Lambda) / length, which
informs only below 1/2."""


def register(app: typer.Typer) -> None:
    app.command("allocate")(allocate)
    app.command("saturation")(saturation)


def allocate(
    weights: Annotated[str, typer.Option(help="Size of each lag's weight, first lag first: 1,1,1,1")] = "1,1,1,1",
    token_dim: Annotated[int, typer.Option(help="Dimension of a token.")] = 8,
    budget: Annotated[int, typer.Option(help="Heads times head_dim, summed over all heads.")] = 256,
    curve: Annotated[bool, typer.Option("--curve", help="Also the error of one lag against its head count.")] = False,
    as_json: AsJson = False,
) -> None:
    """Divide a budget of heads times head_dim over lags."""
    from headcount.papers.allocation import allocate as solve
    from headcount.papers.allocation import trade_off

    found = solve(_numbers(weights), token_dim, budget)
    counts = [h for h in (1, 2, 4, 8, 9, 10, 16, 20, 32, 40, 64, 80, 128) if h <= budget]
    line = [{"heads": h, "error": e} for h, e in zip(counts, trade_off(budget, token_dim, counts), strict=True)]
    if as_json:
        facts = {"heads": found.heads, "head_dims": found.head_dims, "error": found.error, "lags": found.lags}
        facts |= {
            "terms": found.bound.as_row(),
            "claim": found.bound.claim().to_json(),
            "closed_form_error": found.relaxed.error,
            "rows": found.as_rows(),
        }
        emit_json(facts | ({"curve": line} if curve else {}))
        return
    show_table(found.as_rows(), ("lag", "weight", "heads", "head_dim", "closed form", "heads it needs"))
    used = sum(h * n for h, n in zip(found.heads, found.head_dims, strict=True))
    say(f"\n{found.bound}")
    say(f"{counted(sum(found.heads), 'head')}, {used:,} of {budget:,} spent; closed form {found.relaxed.error:.4g}")
    for m in found.starved:
        few = counted(found.heads[m - 1], "head")
        say(f"careful: lag {m} has {few}; below {m + 1} no weights reach what the bound promises")
    if curve:
        say(f"\nOne lag with the whole budget of {budget:,}, head_dim = {budget:,} / heads")
        show_table(line, ("heads", "error"))
    shares = ", ".join(f"{h:,} x {n:,}" for h, n in zip(found.heads, found.head_dims, strict=True))
    conclude(found.bound.claim(f"the {found.bound.quantity} with heads x head_dim of {shares}"))


def saturation(
    model: Model,
    text: Text = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths to look at.")] = "8,16,32,64,128,256",
    samples: Annotated[int, typer.Option(help="Sequences of each length.")] = 8,
    heads: Annotated[bool, typer.Option("--heads", help="One row per head instead of one per layer.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure where the attention of a model saturates on a text.

    And what smaller heads would cost there.
    """
    from headcount.nets.pretrained.model_places import folder_of

    wanted = sorted({int(n) for n in _numbers(lengths)})
    if text is None:
        raise ValueError("saturation is measured on a text: give --text FILE")
    if not text.is_file():
        raise FileNotFoundError(f"no text file at {text}")
    folder_of(model)  # what cannot be found is said before anything large is loaded
    from headcount.nets.pretrained.folders import load, tokenizer_of
    from headcount.papers.allocation.attention_saturation import chunks, rank_costs, verdicts
    from headcount.papers.allocation.attention_saturation import saturation as measure
    from headcount.shrinking.surgery import at_full_rank

    net = at_full_rank(load(model))
    most = getattr(getattr(net, "config", None), "max_position_embeddings", max(wanted))
    wanted = [n for n in wanted if n <= most]
    if not wanted:
        raise ValueError(f"every length exceeds the {most} positions of this model")
    tokenizer = tokenizer_of(model)
    batches = [chunks(text, tokenizer, n, samples) for n in wanted]
    with status_line() as tell:
        rows = measure(net, batches, tell)
        costs = rank_costs(net, batches[-1:], say=tell)
    found = verdicts(rows)
    if as_json:
        emit_json({"layers": found, "rows": rows, "rank_costs": costs})
        return
    columns = ("layer", "length", "norm", "slope", "Lambda", "growth", "bound", "bounded", "informs")
    if heads:
        picked = [r for r in rows if r["length"] == wanted[-1]]
        show_table(picked, ("layer", "head", "length", "norm", "largest_weight", "half_range", "bound"))
    else:
        show_table(found, columns)
    say(SATURATION_NOTE)
    if costs:
        say("\nWhat a smaller query-key rank changes: logits and outputs relatively, rows absolutely")
        show_table(costs if heads else _by_layer(costs), _COST_COLUMNS)
    else:
        say("\nRotary queries and keys have no ranks to cut: `headcount compress` takes out whole frequencies.")
    bounded = sum(bool(row["bounded"]) for row in found)
    conclude(f"{bounded} of {counted(len(found), 'layer')} keep their logits bounded as sequences grow")


_COST_COLUMNS = ("layer", "head", "rank", "of", "logits", "row_l1", "row_l2", "output")


def _by_layer(costs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over the heads of a layer."""
    keys = sorted({(c["layer"], -c["rank"]) for c in costs})
    rows = []
    for layer, rank in keys:
        mine = [c for c in costs if c["layer"] == layer and c["rank"] == -rank]
        means = {k: sum(c[k] for c in mine) / len(mine) for k in ("logits", "row_l1", "row_l2", "output")}
        rows.append({"layer": layer, "head": "mean", "rank": -rank, "of": mine[0]["of"], **means})
    return rows


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(" ", "").split(",")]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r}") from None
