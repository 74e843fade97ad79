"""`headcount bound`: what too few heads cost, as the theorem states it."""

from __future__ import annotations

from typing import Annotated

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, say, show_table
from headcount.numerals import counted

LENGTHS = (32, 64, 128, 256, 512, 1024)


def register(app: typer.Typer) -> None:
    @app.command("bound")
    def bound(
        length: Annotated[int, typer.Option(help="Tokens in a sequence (T).")] = 128,
        retrievals: Annotated[int, typer.Option(help="Retrievals of the target (D).")] = 4,
        heads: Annotated[int, typer.Option(help="Heads of the one attention layer.")] = 1,
        head_dim: Annotated[int, typer.Option(help="Dimension of each head (n).")] = 2,
        table: Annotated[bool, typer.Option("--table", help="A grid over lengths and heads instead.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Print what fewer heads than retrievals cost.

        How the feed-forward must grow with 1/eps, at one size or as a grid.
        """
        from headcount.papers.head_count import bounds

        if table:
            rows = bounds.few_heads_table(LENGTHS, range(1, retrievals + 1), retrievals=retrievals, head_dim=head_dim)
            _show(rows, retrievals, head_dim) if not as_json else emit_json(rows)
            return
        found = bounds.few_heads_exponent(length=length, retrievals=retrievals, heads=heads, head_dim=head_dim)
        if as_json:
            emit_json({**found.as_row(), "claim": found.claim().to_json()})
            return
        say(str(found))
        conclude(found.claim(f"the exponent k of eps^-k feed-forward parameters with {counted(heads, 'head')}"))


def _show(rows: list[dict[str, object]], retrievals: int, head_dim: int) -> None:
    columns = ("heads", "head_dim", *(f"T={t}" for t in LENGTHS), "bites from")
    show_table(
        rows, columns, title=f"exponent k of eps^-k parameters for {counted(retrievals, 'retrieval')}, Theorem 2(2)"
    )
    instead = "Theorem 2(1) applies instead" if head_dim >= 2 else "Theorem 2(1) would ask for head_dim 2"
    say(f"At or below 0 the theorem says nothing; with a head for each retrieval (last row) {instead}.")
    from headcount.papers.head_count import few_heads_exponent

    found = few_heads_exponent(length=LENGTHS[-1], retrievals=retrievals, heads=1, head_dim=head_dim)
    conclude(found.claim(f"the exponent of one head at length {LENGTHS[-1]:,}"))
