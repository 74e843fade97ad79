"""`headcount theory bound`: what too few heads cost, as the theorem states it."""

from __future__ import annotations

from typing import Annotated

import typer

from headcount.cli.printing import Listing, Printout
from headcount.numerals import counted

LENGTHS = (32, 64, 128, 256, 512, 1024)


def bound(
    length: Annotated[int, typer.Option(help="Tokens in a sequence (T).")] = 128,
    retrievals: Annotated[int, typer.Option(help="Retrievals of the target (D).")] = 4,
    heads: Annotated[int, typer.Option(help="Heads of the one attention layer.")] = 1,
    head_dim: Annotated[int, typer.Option(help="Dimension of each head (n).")] = 2,
    table: Annotated[bool, typer.Option("--table", help="A grid over lengths and heads instead.")] = False,
) -> Printout:
    """Print what fewer heads than retrievals cost.

    How the feed-forward must grow with 1/eps, at one size or as a grid.
    """
    from headcount.papers.head_count import few_heads_exponent

    if table:
        return _grid(retrievals, head_dim)
    exponent = few_heads_exponent(length=length, retrievals=retrievals, heads=heads, head_dim=head_dim)
    claim = exponent.claim(f"the exponent k of eps^-k feed-forward parameters with {counted(heads, 'head')}")
    return Printout({**exponent.as_row(), "claim": claim.to_json()}, [str(exponent)], claim)


def _grid(retrievals: int, head_dim: int) -> Printout:
    from headcount.papers.head_count import bounds, few_heads_exponent

    rows = bounds.few_heads_table(LENGTHS, range(1, retrievals + 1), retrievals=retrievals, head_dim=head_dim)
    columns = ("heads", "head_dim", *(f"T={t}" for t in LENGTHS), "bites from")
    title = f"exponent k of eps^-k parameters for {counted(retrievals, 'retrieval')}, Theorem 2(2)"
    instead = "Theorem 2(1) applies instead" if head_dim >= 2 else "Theorem 2(1) would ask for head_dim 2"
    note = f"At or below 0 the theorem says nothing; with a head for each retrieval (last row) {instead}."
    last = few_heads_exponent(length=LENGTHS[-1], retrievals=retrievals, heads=1, head_dim=head_dim)
    claim = last.claim(f"the exponent of one head at length {LENGTHS[-1]:,}")
    return Printout(rows, [Listing(rows, columns, title), note], claim)
