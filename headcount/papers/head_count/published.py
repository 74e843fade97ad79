"""The published numbers of the head-count paper's synthetic study, as data."""

from __future__ import annotations

from headcount.results.literature import Difference, Published, mean
from headcount.sources import Source

__all__ = ["EXPONENTS", "LENGTHS", "TABLE_2", "TABLE_3", "TABLE_4", "TABLE_5"]

LENGTHS = (8, 16, 32, 64, 128)


def _numbers(text: str) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in line.split()) for line in text.strip().splitlines())


def _table(name: str, transition: int, text: str, spread: str | None = None) -> Published:
    values = _numbers(text)
    rows = tuple(range(1, len(values) + 1))
    given = None if spread is None else _numbers(spread)
    # Table 2 gives means over seeds; the others a single number, which the paper says is the smallest over seeds.
    return Published(
        name, Source("yu2025heads", name), "heads", rows, "length", LENGTHS, values, given,
        sums_up=min if given is None else mean, transition=transition,
    )  # fmt: skip


TABLE_2 = _table(
    "Table 2",
    4,
    """
    7.01e-2 1.09e-1 1.10e-1 1.14e-1 1.45e-1
    7.31e-3 8.41e-3 9.42e-3 1.31e-2 1.47e-2
    6.94e-4 6.40e-4 9.09e-4 1.31e-3 1.58e-3
    6.10e-5 4.36e-5 4.80e-5 8.75e-6 5.23e-6
    3.35e-5 1.10e-5 4.91e-6 4.19e-6 3.99e-6
    """,
    """
    5.99e-2 9.93e-2 9.36e-2 8.53e-2 1.05e-1
    4.75e-4 7.97e-4 6.42e-4 1.16e-2 1.21e-2
    2.90e-4 3.87e-4 4.31e-4 5.10e-4 5.21e-4
    1.52e-4 1.93e-4 2.30e-4 5.58e-5 5.67e-6
    5.84e-5 2.36e-5 6.32e-6 8.39e-6 4.29e-6
    """,
)
TABLE_3 = _table(
    "Table 3",
    4,
    """
    1.75e-2 1.98e-2 2.06e-2 2.54e-2 3.03e-2
    7.17e-3 7.39e-3 7.82e-3 8.57e-3 1.02e-2
    2.11e-4 2.17e-4 2.73e-4 3.71e-4 4.77e-4
    1.32e-6 5.59e-7 3.40e-7 3.46e-7 5.70e-7
    2.19e-6 4.33e-7 3.22e-7 2.73e-7 2.66e-7
    """,
)
TABLE_4 = _table(
    "Table 4",
    3,
    """
    1.38e-2 1.63e-2 1.84e-2 2.17e-2 2.31e-2
    1.09e-3 7.08e-4 7.24e-4 7.76e-4 1.11e-3
    4.18e-7 1.72e-7 1.17e-7 3.58e-7 2.11e-7
    5.56e-7 1.22e-7 6.89e-8 1.85e-7 3.48e-7
    """,
)
TABLE_5 = _table(
    "Table 5",
    2,
    """
    2.12e-4 1.85e-4 2.22e-4 3.13e-4 4.28e-4
    7.22e-6 2.69e-6 3.50e-6 3.07e-6 3.83e-6
    8.16e-6 1.83e-6 1.73e-6 3.86e-6 3.50e-6
    3.68e-6 1.87e-6 2.60e-6 4.32e-6 5.98e-6
    6.15e-6 3.02e-6 3.31e-6 3.78e-6 5.34e-6
    """,
)
# The exponent k of Theorem 2(2) for D = 4: rows (head_dim, heads), worked out here; the paper prints none.
EXPONENTS = Published(
    "exponents",
    Source("yu2025heads", "Theorem 2(2)"),
    "head_dim, heads",
    ("2, 1", "2, 2", "2, 3", "8, 1", "8, 2", "8, 3"),
    "length",
    (32, 64, 128, 256, 512, 1024),
    _numbers(
        """
        0 2 6 14 30 62
        -0.57 0.57 2.86 7.43 16.6 34.9
        -0.8 0 1.6 4.8 11.2 24
        -0.6 0.2 1.8 5 11.4 24.2
        -0.84 -0.42 0.42 2.11 5.5 12.2
        -0.93 -0.64 -0.07 1.07 3.4 7.9
        """
    ),
    read_to=0.05,  # half of the last digit printed: the large ones have one decimal
    quantity="exponent k",
    measure=Difference(clear=0.1),
    origin="derived here",
)
