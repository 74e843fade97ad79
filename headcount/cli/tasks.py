"""`headcount tasks`: the tasks that ship, with what each one asks."""

from __future__ import annotations

import typer

from headcount.cli.printing import AsJson, conclude, emit_json, show_table


def register(app: typer.Typer) -> None:
    @app.command("tasks")
    def tasks(as_json: AsJson = False) -> None:
        """List the tasks that ship: the exact target and its look-ups."""
        from headcount.tasks import catalogue

        rows = catalogue()
        if as_json:
            emit_json(rows)
        else:
            show_table(rows, ("task", "target", "looks up"))
            conclude(f"{len(rows)} tasks ship, and examples/own_task.py shows how to state your own")
