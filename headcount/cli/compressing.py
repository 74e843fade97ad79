"""`headcount compress`: a trained model made smaller, judged in its user's terms, beside what others do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import Model, Out
from headcount.cli.printing import Listing, Printout, status_line

if TYPE_CHECKING:
    from headcount.shrinking import Compressed, CutModel

BUDGET = ("keep", "perplexity x", "low", "high", "file MB", "cache B/token", "prefill ms", "token ms")
METHOD = ("part", "keep", "length", "method", "perplexity x", "interval", "cache")
TABLED = 24  # rows of ranks that are shown one by one
NO_TEXT = "what attention is worth is measured on a text of the kind that the model will read: give --text FILE"


@dataclass(frozen=True)
class CompressOptions:
    """What `headcount compress` takes."""

    model: Model
    keep: Annotated[float | None, typer.Option(help="Share of the attention to keep.", show_default=False)] = None
    loss: Annotated[str, typer.Option(help="Keep as little as loses at most this, as in 3% (1%).")] = ""
    text: Annotated[
        Path | None,
        typer.Option(
            help="A text file to calibrate on, some 100 kB; needed unless --measure weights.", show_default=False
        ),
    ] = None
    test: Annotated[
        Path | None,
        typer.Option(help="A text to judge a language model on (the last fifth of --text).", show_default=False),
    ] = None
    length: Annotated[int, typer.Option(help="Tokens at which a language model will be used.")] = 512
    tokens: Annotated[str, typer.Option(help="Tokens to calibrate and to judge a language model on.")] = "8192,4096"
    parts: Annotated[str, typer.Option(help="query-key, value-output, or both.")] = "both"
    rank: Annotated[
        list[Path] | None, typer.Option(help="A set of judged queries to rank with an encoder.", show_default=False)
    ] = None
    cast: Annotated[str, typer.Option(help="What the written weights are cast to: bf16, fp16, none.")] = "bf16"
    curve: Annotated[bool, typer.Option("--curve", help="Quality, bytes and time against what is kept.")] = False
    bench: Annotated[bool, typer.Option("--bench", help="All methods in one run, beside ours.")] = False
    quick: Annotated[bool, typer.Option("--quick", help="With --bench: one length, few tokens.")] = False
    measure: Annotated[str, typer.Option(help="For encoders: plan by outputs, inputs or weights.")] = "outputs"
    rule: Annotated[str, typer.Option(help="For encoders: allocated or uniform ranks.")] = "allocated"
    passages: Annotated[int, typer.Option(help="For encoders: pieces of the text to calibrate on.")] = 128
    grouping: Annotated[bool, typer.Option("--grouping", help="For encoders: pairs of heads may share a key.")] = False
    distil: Annotated[float, typer.Option(help="For encoders: minutes of self-distillation afterwards.")] = 0.0
    out: Out = None
    padded: Annotated[bool, typer.Option("--padded", help="Also a checkpoint that stock transformers loads.")] = False
    onnx: Annotated[bool, typer.Option("--onnx", help="Also an ONNX program.")] = False


ALIKE = ("text", "test", "length", "measure", "rule", "grouping", "cast", "out", "padded", "onnx")


def compress(options: CompressOptions) -> Printout:
    """Make a trained model smaller, under one budget or one loss.

    A language model is judged by its perplexity, an encoder by its embeddings (and its ranking with --rank); the first
    line says quality and bytes of the whole file. Without --keep or --loss it is a bargain: at most 1% is lost.
    """
    from headcount.nets.pretrained.model_places import folder_of

    if options.text is None and (options.measure != "weights" or options.distil > 0 or options.curve or options.bench):
        raise ValueError(NO_TEXT)
    if (options.padded or options.onnx) and options.out is None:
        raise ValueError("--padded and --onnx write files: give --out DIR")
    most, counts = _fraction(options.loss), _two(options.tokens)
    folder_of(options.model)  # what cannot be found is said before anything large is loaded
    kinds = ("query-key", "value-output") if options.parts == "both" else (options.parts,)
    with status_line() as tell:
        if options.text is not None and (options.bench or options.curve):
            looked = (options, options.text, counts, tell)
            return _benched(*looked) if options.bench else _curve(*looked, kinds)
        from headcount.shrinking import compress as shrink

        compressed = shrink(
            options.model,
            options.keep,
            loss=most,
            windows=_windows(options.length, counts),
            parts=kinds,
            on_progress=tell,
            pieces=options.passages,
            distil_minutes=options.distil,
            rankings=options.rank or (),
            **{name: getattr(options, name) for name in ALIKE},
        )
    return Printout(compressed.as_row(), _lines(compressed), compressed.sentence, compressed.written)


def _curve(
    options: CompressOptions, text: Path, tokens: tuple[int, int], tell: Any, kinds: tuple[str, ...]
) -> Printout:
    """Every budget from one calibration."""
    from headcount.nets.pretrained.folders import tokenizer_of
    from headcount.shrinking import calibrated, split_text
    from headcount.shrinking.keep_curve import keep_curve

    windows = _windows(options.length, tokens)
    split = split_text(text, tokenizer_of(options.model), options.length, windows, options.test)
    curve = keep_curve(calibrated(options.model, split, parts=kinds, say=tell), options.cast, tell)
    first = f"{curve.model}: from one calibration on {curve.tokens:,} tokens"
    lines = [first, Listing(map(_three_places, curve.rows), BUDGET)]
    return Printout(curve.to_json(), lines, curve.sentence, [] if options.out is None else curve.files(options.out))


def _benched(options: CompressOptions, text: Path, tokens: tuple[int, int], tell: Callable[[str], None]) -> Printout:
    """All methods on the same windows."""
    from headcount.nets.pretrained.folders import tokenizer_of
    from headcount.shrinking import benched, calibrated
    from headcount.shrinking.bench_table import bench_lines, bench_verdict
    from headcount.shrinking.loss_bench import bench_splits

    model, tokenizer = options.model, tokenizer_of(options.model)
    splits = bench_splits(text, tokenizer, options.length, tokens, options.test, quick=options.quick)
    path = None if options.out is None else options.out / "bench.json"
    bench = benched(lambda split: calibrated(model, split, keep=0.75, say=tell), splits, out=path, say=tell)
    rivals = f"{bench['setup']['model']}: rivals are their scores in our pipeline, not their pipelines"
    lines = [rivals, Listing(bench_lines(bench["rows"]), METHOD)]
    return Printout(bench, lines, bench_verdict(bench["rows"]), [] if path is None else [path])


def _lines(compressed: Compressed | CutModel) -> list[str | Listing]:
    from headcount.shrinking import Compressed
    from headcount.shrinking.report_rows import kept_by_part

    lines: list[str | Listing] = [compressed.headline, "\nBefore and after"]
    lines.append(Listing(compressed.rows, ("", "original", "compact", "ratio")))
    if beside := compressed.beside if isinstance(compressed, Compressed) else ():
        lines += ["\nBeside a cast and 8 bits, alone and combined", Listing(beside, tuple(beside[0]))]
    rows = compressed.plan.rows
    if len(rows) > TABLED:
        lines += ["\nWhat is kept (--json has every head)", *kept_by_part(rows)]
    else:
        ranks = [{**row, "ranks": " ".join(map(str, row["ranks"]))} for row in rows]
        lines += ["\nRanks kept, head by head", Listing(ranks, ("layer", "part", "sum", "of", "ranks"))]
    refused = compressed.plan.survey.refused if isinstance(compressed, Compressed) else ()
    return lines + [f"layer {layer}: {part} left as it is: {why}" for layer, part, why in refused]


def _windows(length: int, tokens: tuple[int, int]) -> tuple[int, int, int]:
    """Windows to calibrate on, to choose by, and to judge on."""
    return max(1, tokens[0] // length), 4, max(2, tokens[1] // length)


def _fraction(words: str) -> float | None:
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


def _three_places(row: dict[str, float]) -> dict[str, float | str]:
    """Ratios near 1 with their third digit, and the rest as it is; bytes of the cache under a shorter name."""
    ratios = {name: f"{row[name]:.3f}" for name in ("perplexity x", "low", "high")}
    return {**row, **ratios, "cache B/token": row["cache bytes/token"]}
