"""The published numbers of the head-count paper, as data."""

from __future__ import annotations

from headcount.results.literature import Difference, Published, mean
from headcount.sources import Source

LENGTHS = (8, 16, 32, 64, 128)


def _numbers(text: str) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(v) for v in line.split()) for line in text.strip().splitlines())


def _table(name: str, transition: int, text: str, spread: str | None = None) -> Published:
    values = _numbers(text)
    rows = tuple(range(1, len(values) + 1))
    spreads = None if spread is None else _numbers(spread)
    # Table 2 gives means over seeds; the others a single number, which the paper says is the smallest over seeds.
    return Published(
        name, Source("yu2025heads", name), "heads", rows, "length", LENGTHS, values, spreads,
        sums_up=min if spreads is None else mean, transition=transition,
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
CANVASES, ON_IMAGES = (32, 48, 64, 96, 128), (1, 2, 4, 8, 10, 11, 12, 13, 14, 16, 20, 24)
CANDIDATES, ON_TEXT = (8, 16, 32, 64), (1, 2, 4, 6, 8, 12, 16)


def _accuracies(name: str, quantity: str, columns: tuple[str, tuple[int, ...]], text: str, spread: str) -> Published:
    heads = ON_IMAGES if columns[0] == "canvas" else ON_TEXT
    return Published(
        name, Source("yu2025heads", name), "heads", heads, *columns, _numbers(text), _numbers(spread) or None,
        quantity=quantity, measure=Difference(),
    )  # fmt: skip


TABLE_6 = _accuracies(
    "Table 6",
    "training accuracy",
    ("candidates", CANDIDATES),
    """
    .597 .450 .303 .154
    .771 .647 .486 .286
    .956 .900 .793 .580
    .992 .977 .937 .814
    .998 .995 .983 .932
    1.000 .999 .998 .991
    1.000 1.000 .999 .996
    """,
    ".005 .005 .005 .005\n" * 7,  # the paper: at most 0.005
)
TABLE_7 = _accuracies(
    "Table 7",
    "validation accuracy",
    ("candidates", CANDIDATES),
    """
    .5107 .3917 .2542 .1257
    .5221 .4205 .2712 .1369
    .5076 .4048 .2547 .1139
    .5153 .3865 .2397 .1018
    .5058 .3801 .2308 .0983
    .5184 .3721 .2219 .0902
    .5021 .2816 .2170 .0878
    """,
    """
    .0069 .0071 .0049 .0057
    .0102 .0056 .0067 .0038
    .0112 .0070 .0093 .0061
    .0112 .0103 .0098 .0057
    .0082 .0084 .0068 .0050
    .0073 .0107 .0091 .0054
    .0123 .0418 .0075 .0058
    """,
)
TABLE_8 = _accuracies(
    "Table 8",
    "training accuracy",
    ("canvas", CANVASES),
    """
    0.478 0.437 0.42 0.408 0.4
    0.597 0.552 0.534 0.515 0.508
    0.755 0.703 0.685 0.662 0.658
    0.951 0.926 0.914 0.907 0.902
    0.981 0.973 0.967 0.965 0.967
    0.988 0.983 0.981 0.977 0.979
    0.992 0.989 0.986 0.986 0.986
    0.994 0.993 0.991 0.99 0.991
    0.996 0.994 0.993 0.993 0.993
    0.997 0.996 0.995 0.996 0.996
    0.998 0.997 0.997 0.998 0.999
    0.999 0.998 0.998 0.999 0.999
    """,
    "",
)
TABLE_9 = _accuracies(
    "Table 9",
    "validation accuracy",
    ("canvas", CANVASES),
    """
    0.505 0.4585 0.4353 0.4143 0.3995
    0.6001 0.5501 0.5312 0.4995 0.4853
    0.6798 0.6349 0.6142 0.5719 0.5531
    0.6965 0.6606 0.6243 0.5758 0.5618
    0.697 0.6564 0.6245 0.5721 0.5444
    0.6984 0.6526 0.6197 0.5695 0.5377
    0.6966 0.6579 0.6263 0.5657 0.5317
    0.6972 0.653 0.6166 0.5481 0.529
    0.6949 0.6525 0.6132 0.5401 0.5042
    0.6969 0.6424 0.5929 0.4968 0.4851
    0.6799 0.6149 0.5525 0.4865 0.4689
    0.6512 0.568 0.5214 0.4874 0.4839
    """,
    "",
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
