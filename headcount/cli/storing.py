"""`headcount store verify | repair | merge`: see to the files that sweeps keep their rows in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.printing import AsJson, emit_json, say

Folder = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a study, as `headcount sweep` writes it.")]
Into = Annotated[Path, typer.Argument(metavar="INTO", help="Folder of the store that grows; made if missing.")]
Others = Annotated[list[Path], typer.Argument(metavar="STORE...", help="Folders of the stores to bring in.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Verify, repair and merge the stores of sweeps.", no_args_is_help=True)
    app.add_typer(group, name="store")

    @group.command("verify")
    def verify(folder: Folder, as_json: AsJson = False) -> None:
        """Read every page and every row of a store and say which are damaged; nothing is changed."""
        from headcount.results.upkeep import verify_store

        found = verify_store(folder)
        if as_json:
            emit_json({**asdict(found), "sound": found.sound})
        else:
            say(f"{found.path}: {found.rows} rows, {found.specs} specs, {len(found.damaged)} rows damaged.")
            _name(found.damaged)
            for problem in found.problems[:3]:
                say(f"  {problem}")
            cure = "every row is as it was written" if found.sound else "`headcount store repair` saves the rest"
            say(f"So: {cure}.")
        if not found.sound:
            raise typer.Exit(2)

    @group.command("repair")
    def repair(folder: Folder, as_json: AsJson = False) -> None:
        """Write a sound store from all that can be read of a damaged one, which is put aside.

        A sound one is left as it is; one that others use is refused.
        """
        from headcount.results.upkeep import repair_store

        found = repair_store(folder)
        if as_json:
            emit_json(asdict(found))
            return
        if not found.aside:
            say(f"So: nothing was done: every one of the {found.rows} rows of {found.path} is as it was written.")
            return
        say(f"{found.rows} rows are in {found.path}; the file as it was is {found.aside}.")
        _name(found.dropped)
        say(f"So: run the sweep again to train the {len(found.dropped)} rows known to be lost, and any page's rows.")

    @group.command("merge")
    def merge(into: Into, others: Others, as_json: AsJson = False) -> None:
        """Bring the rows and specs of other stores into one; rows that are there already stay."""
        from headcount.results.upkeep import merge_stores

        found = merge_stores(into, *others)
        if as_json:
            emit_json(asdict(found))
            return
        say(f"{found.added} rows and {found.specs} specs came into {found.path}.")
        _name(found.differing)
        say(f"So: {len(found.differing)} rows differ from those that were there, which stand.")


def _name(runs: tuple[str, ...]) -> None:
    if runs:
        more = f" and {len(runs) - 10} more" if len(runs) > 10 else ""
        say(f"  {', '.join(runs[:10])}{more}")
