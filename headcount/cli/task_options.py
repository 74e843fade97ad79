"""Options that `build` and `collide` share: a task by its name, its sizes and a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.infoflow import fields_of

if TYPE_CHECKING:
    from headcount.tasks import Task

TaskName = Annotated[str, typer.Argument(help="A task's name; see `headcount tasks`.")]
Length = Annotated[int | None, typer.Option(help="Tokens in a sequence (T).", show_default="64, deep ones 8")]
Retrievals = Annotated[int | None, typer.Option(help="Retrievals of the target (D).", show_default=False)]
TokenDim = Annotated[int | None, typer.Option(help="Dimension of a token (d).", show_default=False)]
Seed = Annotated[int | None, typer.Option(help="Seed of the task's centres or directions.", show_default=False)]
Radius = Annotated[float | None, typer.Option(help="Box [-radius, radius]^d for LinearMax.", show_default="6")]

LONG = ("Wells", "LinearMax")  # one layer, cheap at any length


def task_of(name: str, length: int | None, fields: list[str] | None = None, **sizes: Any) -> Task:
    """The task that the options describe; what they leave open is what the catalogue takes.

    >>> task_of("KthLargest", None, ["rank=3"])
    KthLargest(rank=3, length=8)
    """
    from headcount.tasks.catalogue import named, typical

    given = {key: value for key, value in sizes.items() if value is not None} | fields_of(fields or [])
    return named(name, length=(64 if name in LONG else 8) if length is None else length, **typical(name, given))
