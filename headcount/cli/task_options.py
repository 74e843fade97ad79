"""Options that `build` and `collide` share: the task as its sizes and a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headcount.tasks import Task

TaskName = Annotated[str, typer.Argument(help="Wells or LinearMax.")]
Length = Annotated[int, typer.Option(help="Tokens in a sequence (T).")]
Retrievals = Annotated[int, typer.Option(help="Retrievals of the target (D).")]
TokenDim = Annotated[int, typer.Option(help="Dimension of a token (d).")]
Seed = Annotated[int, typer.Option(help="Seed of the task's centres or directions.")]
Radius = Annotated[float | None, typer.Option(help="Box [-radius, radius]^d for LinearMax.", show_default="6")]


def task_of(name: str, retrievals: int, token_dim: int, length: int, seed: int, windows: bool) -> Task:
    """The task that the options describe."""
    from headcount.tasks import named

    if name not in ("Wells", "LinearMax"):
        raise ValueError(f"constructions are known for Wells and LinearMax, not for {name!r}")
    more = {"windows": True} if windows else {}
    return named(name, length=length, retrievals=retrievals, token_dim=token_dim, seed=seed, **more)
