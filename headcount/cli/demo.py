"""`headcount demo`: how many heads a retrieval task needs, measured on this machine in minutes."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def demo() -> None:
        """Measure how many heads a small retrieval task needs, and write a page."""
        raise ValueError("the demo is not here yet")
