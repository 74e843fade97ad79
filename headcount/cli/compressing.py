"""`headcount compress`: a trained model made smaller, judged in its user's terms, beside what others do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import (
    MODEL_HELP,
    AsJson,
    Out,
    conclude,
    emit_json,
    out_file,
    say,
    show_table,
    status_line,
    tell_written,
)

if TYPE_CHECKING:
    from headcount.shrinking.language_model import Calibrated

CURVE = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


def register(app: typer.Typer) -> None:
    app.command("compress")(compress)


def compress(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    keep: Annotated[float | None, typer.Option(help="Share of the attention to keep.", show_default=False)] = None,
    loss: Annotated[str, typer.Option(help="Keep as little as loses at most this, as in 3% (1%).")] = "",
    text: Annotated[Path | None, typer.Option(help="A text file to calibrate on.", show_default=False)] = None,
    test: Annotated[
        Path | None,
        typer.Option(help="A text to judge a language model on (the last fifth of --text).", show_default=False),
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens at which a language model will be used.")] = 512,
    tokens: Annotated[str, typer.Option(help="Tokens to calibrate and to judge a language model on.")] = "8192,4096",
    parts: Annotated[str, typer.Option(help="query-key, value-output, or both.")] = "both",
    rank: Annotated[
        list[Path] | None, typer.Option(help="A set of judged queries to rank with an encoder.", show_default=False)
    ] = None,
    cast: Annotated[str, typer.Option(help="What the written weights are cast to: bf16, fp16, none.")] = "bf16",
    curve: Annotated[bool, typer.Option("--curve", help="Quality, bytes and time against what is kept.")] = False,
    bench: Annotated[bool, typer.Option("--bench", help="All methods in one run, beside ours.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --bench: one length, few tokens.")] = False,
    measure: Annotated[str, typer.Option(help="For encoders: plan by outputs, inputs or weights.")] = "outputs",
    rule: Annotated[str, typer.Option(help="For encoders: allocated or uniform ranks.")] = "allocated",
    passages: Annotated[int, typer.Option(help="For encoders: pieces of the text to calibrate on.")] = 128,
    grouping: Annotated[bool, typer.Option("--grouping", help="For encoders: pairs of heads may share a key.")] = False,
    distil: Annotated[float, typer.Option(help="For encoders: minutes of self-distillation afterwards.")] = 0.0,
    out: Out = None,
    padded: Annotated[bool, typer.Option("--padded", help="Also a checkpoint that stock transformers loads.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also an ONNX program.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a trained model smaller, under one budget or one loss.

    A language model is judged by its perplexity, an encoder by its embeddings (and its ranking with --rank); the first
    line says quality and bytes of the whole file. Without --keep or --loss it is a bargain: at most 1% is lost.
    """
    from headcount.nets.pretrained.model_places import folder_of

    if text is None and (measure != "weights" or distil > 0 or curve or bench):
        raise ValueError("what attention is worth is measured on a text: give --text FILE")
    if (padded or onnx) and out is None:
        raise ValueError("--padded and --onnx write files: give --out DIR")
    most = _share(loss)
    counts = _two(tokens)
    folder_of(model)  # what cannot be found is said before anything large is loaded
    kinds = ("query-key", "value-output") if parts == "both" else (parts,)
    if bench or curve:
        assert text is not None
        with status_line() as tell:
            if bench:
                _bench(model, text, test, length, counts, quick, out, as_json, tell)
            else:
                _curve(model, text, test, length, counts, kinds, cast, out, as_json, tell)
        return
    from headcount.shrinking import compress as shrink

    with status_line() as tell:
        made = shrink(
            model,
            keep,
            loss=most,
            text=text,
            test=test,
            length=length,
            windows=(max(1, counts[0] // length), 4, max(2, counts[1] // length)),
            parts=kinds,
            measure=measure,
            rule=rule,
            pieces=passages,
            grouping=grouping,
            distil_minutes=distil,
            cast=cast,
            rankings=rank or (),
            out=out,
            padded=padded,
            onnx=onnx,
            on_progress=tell,
        )
    report = made.as_row()
    if as_json:
        emit_json(report)
        return
    say(made.headline)
    say("\nBefore and after")
    show_table([_exact(row) for row in made.rows()], ("", "original", "compact", "ratio"))
    if report.get("beside"):
        say("\nBeside a cast and 8 bits, alone and combined")
        show_table([_exact(row) for row in report["beside"]], tuple(report["beside"][0]))
    say("\nRanks kept, head by head")
    show_table([_short(row) for row in report["plan"]], ("layer", "part", "sum", "of", "ranks"))
    for layer, part, why in report.get("refused", ()):
        say(f"layer {layer}: {part} left as it is: {why}")
    tell_written(report["written"])
    conclude(made.sentence)


def _seen(
    model: str, text: Path, test: Path | None, length: int, counts: tuple[int, int], kinds: tuple[str, ...], tell: Any
) -> Calibrated:
    from headcount.nets.pretrained.folders import tokenizer_of
    from headcount.shrinking import calibrated, split_text

    windows = max(1, counts[0] // length), 4, max(2, counts[1] // length)
    return calibrated(model, split_text(text, tokenizer_of(model), length, windows, test), parts=kinds, say=tell)


def _curve(
    model: str,
    text: Path,
    test: Path | None,
    length: int,
    counts: tuple[int, int],
    kinds: tuple[str, ...],
    cast: str,
    out: Path | None,
    as_json: bool,
    tell: Any,
) -> None:
    """Every budget from one calibration."""
    from headcount.shrinking import cut_to
    from headcount.shrinking.keep_curve import curve_picture, curve_row

    seen = _seen(model, text, test, length, counts, kinds, tell)
    rows = [curve_row(cut_to(seen, seen.plan(keep), cast=cast, generated=8, say=tell), keep) for keep in CURVE]
    files = []
    if out is not None:
        files.append(out_file(out, "curve.json", json.dumps({"model": seen.title, "rows": rows}, indent=1) + "\n"))
        files.append(out_file(out, "curve.svg", curve_picture(seen.title, rows).standalone()))
    if as_json:
        emit_json({"model": seen.title, "rows": rows})
        return
    say(f"{seen.title}: from one calibration on {seen.split.calibration.numel():,} tokens")
    show_table(rows, ("keep", "perplexity x", "low", "high", "file MB", "cache bytes/token", "prefill ms", "token ms"))
    tell_written(files)
    best = min((r for r in rows if r["perplexity x"] <= 1.03), key=lambda r: r["keep"])
    conclude(f"keeping {best['keep']:g} of the attention loses at most 3% of perplexity")


def _bench(
    model: str,
    text: Path,
    test: Path | None,
    length: int,
    counts: tuple[int, int],
    quick: bool,
    out: Path | None,
    as_json: bool,
    tell: Any,
) -> None:
    """All methods on the same windows."""
    from headcount.nets.pretrained.folders import tokenizer_of
    from headcount.shrinking import benched, calibrated, split_text
    from headcount.shrinking.bench_table import bench_lines, bench_verdict

    tokenizer = tokenizer_of(model)
    lengths = (length,) if quick else (length, 4 * length)
    judged = 2048 if quick else max(counts[1], 20480)
    first = 2048 if quick else counts[0]
    splits = [split_text(text, tokenizer, n, (max(1, first // n), 2, max(2, judged // n)), test) for n in lengths]
    path = None if out is None else out / "bench.json"
    found = benched(lambda s: calibrated(model, s, keep=0.75, say=tell), splits, out=path, say=tell)
    if as_json:
        emit_json(found)
        return
    say(f"{found['setup']['model']}: rivals are their scores in our pipeline, not their pipelines")
    show_table(bench_lines(found["rows"]), ("part", "keep", "length", "method", "perplexity x", "interval", "cache"))
    tell_written([] if path is None else [path])
    conclude(bench_verdict(found["rows"]))


def _share(words: str) -> float | None:
    """A share from words such as 3% or 0.03; none from nothing."""
    if not words:
        return None
    try:
        return float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"a loss is a share, as in 3%, got {words!r}") from None


def _two(words: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in words.split(","))
    except ValueError:
        raise ValueError(f"--tokens takes two whole numbers, as in 8192,4096, got {words!r}") from None
    if min(first, second) < 1:
        raise ValueError(f"--tokens must be at least 1, got {words!r}")
    return first, second


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "ranks": " ".join(str(r) for r in row["ranks"])}


def _exact(row: dict[str, Any]) -> dict[str, Any]:
    """Counts with all their digits, to the right like the rest."""
    return {key: f"{value:>14,}" if isinstance(value, int) else value for key, value in row.items()}
