"""`headcount collide`: two sequences that attention with too few heads confuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, conclude, emit_json, out_file, say, show_table, tell_written
from headcount.cli.task_options import LONG, Length, Radius, Retrievals, Seed, TaskName, TokenDim, task_of

if TYPE_CHECKING:
    from headcount.papers.head_count import Collision
    from headcount.tasks import Task


def register(app: typer.Typer) -> None:
    @app.command("collide")
    def collide(
        task: TaskName = "Wells",
        retrievals: Retrievals = None,
        token_dim: TokenDim = None,
        length: Length = None,
        seed: Seed = None,
        heads: Annotated[int, typer.Option(help="Heads of the random attention.")] = 1,
        head_dim: Annotated[int, typer.Option(help="Dimension of each head (n).")] = 2,
        net: Annotated[
            Path | None, typer.Option(help="A file of `headcount build` instead.", show_default=False)
        ] = None,
        net_seed: Annotated[int, typer.Option(help="Seed of the random attention.")] = 0,
        free: Annotated[int, typer.Option(help="Free positions; above 12 by meeting in the middle.")] = 12,
        levels: Annotated[int, typer.Option(help="Tokens to choose from at a free position.")] = 3,
        eps: Annotated[
            float | None, typer.Option(help="Error asked of the read-out.", show_default="gap/4, or the file's promise")
        ] = None,
        radius: Radius = None,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Find two sequences that too few heads confuse.

        And say what it costs to tell them apart.
        """
        from headcount.certificates import Box, load
        from headcount.nets import Architecture, Transformer
        from headcount.papers.head_count import collide as search
        from headcount.tasks import LinearMax

        if net is not None:
            built = load(net)
            target, module = built.task, built.net
            eps = built.certificate.error if eps is None else eps
            if radius is None and isinstance(target, LinearMax) and isinstance(built.domain, Box):
                radius = built.domain.high
        else:
            few = 2 if retrievals is None and task in LONG else retrievals
            target = task_of(task, length, retrievals=few, token_dim=token_dim, seed=seed)
            arch = Architecture(layers=((heads, head_dim),), width=32, positions=5)
            module = Transformer(arch, target.token_dim, seed=net_seed)
        found = search(target, module, free=free, levels=levels, radius=radius)
        eps = found.target_gap / 4 if eps is None else eps
        row = found.as_row(eps)
        if out is not None:
            row["files"] = _draw(found, target, radius, out)
        emit_json({**row, **_sequences(found)}) if as_json else _show_collision(found, row, eps)


def _sequences(found: Collision) -> dict[str, Any]:
    return {"first": found.first.tolist(), "second": found.second.tolist()}


def _draw(found: Collision, target: Task, radius: float | None, out: Path) -> list[str]:
    from headcount.papers.head_count.collisions.picture import draw

    return [str(out_file(out, "collision.svg", draw(found, target, radius=radius).standalone()))]


def _show_collision(found: Collision, row: dict[str, Any], eps: float) -> None:
    differ = [t for t in range(len(found.first)) if not bool((found.first[t] == found.second[t]).all())]
    rows = [
        {"position": t + 1, "first": _token(found.first[t]), "second": _token(found.second[t])} for t in sorted(differ)
    ]
    show_table(rows, ("position", "first", "second"), title=f"two sequences of {len(found.first)} tokens differ in")
    say(f"\ntarget gap          {found.target_gap:.4e}")
    say(f"attention distance  {found.attention_distance:.4e}")
    say(f"steepness           {found.steepness:.4e}")
    if row["collides"]:
        say(f"\n{found.width(eps)}")
    tell_written(row.get("files", []))
    conclude(found.claim(eps))


def _token(token: Any) -> str:
    return "(" + ", ".join(f"{v:.4f}" for v in token.tolist()) + ")"
