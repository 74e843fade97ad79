"""The published numbers: decoders from scratch by seed, language models in context, fine-tuning, and depth."""

from __future__ import annotations

from statistics import median

from headcount.results.literature import Difference, Published
from headcount.sources import Source

BINS = ("51-100", "101-150")
MISLABELLED = "NLFirst as published"
# Absolute positions, 4 layers of 4 heads, width 256, rate 1e-4, whole strings right, a number for each seed.
# UF and UB stand on one line each, at rate 1e-3 and without a seed; reruns of UF with seeds gave 0.51 to 0.74.
SEEDS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "UR": ((0.992, 0.984), (0.944, 0.908)),
    "UL": ((1.000, 0.9995), (0.998, 0.994)),
    "NRFirst": ((1.000, 0.9985, 1.000), (0.9995, 0.9985, 1.000)),
    MISLABELLED: ((0.980, 0.984, 0.979), (0.925, 0.915, 0.860)),
    "NRLast": ((0.817, 0.861, 0.876), (0.486, 0.469, 0.477)),
    "NLLast": ((0.726, 0.770, 0.623), (0.396, 0.472, 0.366)),
    "UF": ((0.9945,), (0.9575,)),
    "UB": ((0.977,), ()),
    "NF": ((0.468,), ()),
    "NB": ((0.268,), ()),
}
FROM_SCRATCH = Published(
    "from scratch, trained on lengths to 50",
    Source("jobanputra2025born", "the stored results from scratch"),
    "task",
    tuple(SEEDS),
    "length",
    BINS,
    tuple(tuple(median(seeds) if seeds else None for seeds in both) for both in SEEDS.values()),
    quantity="strings right",
    measure=Difference(clear=0.05),
    sums_up=median,
)
IN_CONTEXT = Published(
    "copying in context",
    Source("jobanputra2025born", "the stored predictions in context, tallied here"),
    "model",
    ("Llama-3 8B", "Llama-3 70B", "Qwen2.5 7B", "Qwen2.5 32B"),
    "task and length",
    ("UF 50", "UB 10", "UB 20", "UB 50", "NF 100", "NB 10", "NB 20", "NB 30"),
    (
        (1.000, 0.428, 0.087, 0.000, 0.892, 0.087, 0.010, 0.000),
        (1.000, 0.964, 0.796, 0.218, 0.997, 0.756, 0.526, 0.000),
        (0.996, 0.356, 0.003, 0.000, 0.978, 0.121, 0.000, 0.000),
        (0.999, 0.907, 0.603, 0.057, 0.998, 0.691, 0.369, 0.000),
    ),
    quantity="exact match",
    measure=Difference(),
)
# GPT-2 XL fine-tuned, 5000 strings of length 51-100, six runs: reversing with repeats is learnt in five of them.
FINE_TUNED: dict[str, tuple[float, ...]] = {
    "NF": (0.856, 0.849, 0.851, 0.513, 0.854, 0.788),
    "NB": (0.993, 0.234, 1.000, 1.000, 1.000, 0.999),
}
# Whole words right, in per cent, by depth; None where the figure could not be seen.
KNEE_DEEP = Published(
    "alternation languages by depth",
    Source("yang2025kneedeep", "the visible part of the figure of accuracies"),
    "depth",
    (1, 2, 3, 4),
    "blocks",
    (3, 4, 5),
    ((1.0, 0.217, 0.113), (1.0, 1.0, 0.5064), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    quantity="whole words right",
    measure=Difference(clear=0.1),
    sums_up=median,
)
