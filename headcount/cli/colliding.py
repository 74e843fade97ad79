"""`headcount theory collide`: two sequences that attention with too few heads confuses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import LONG, Out, Radius, Retrievals, TaskLength, TaskName, TaskSeed, TokenDim, task_of
from headcount.cli.printing import Listing, Printout
from headcount.files import write_text

if TYPE_CHECKING:
    from headcount.nets import Transformer
    from headcount.papers.head_count import Collision
    from headcount.tasks import Task


@dataclass(frozen=True)
class CollideOptions:
    """What `headcount theory collide` takes."""

    task: TaskName = "Wells"
    retrievals: Retrievals = None
    token_dim: TokenDim = None
    length: TaskLength = None
    seed: TaskSeed = None
    heads: Annotated[int, typer.Option(help="Heads of the random attention.")] = 1
    head_dim: Annotated[int, typer.Option(help="Dimension of each head (n).")] = 2
    net: Annotated[Path | None, typer.Option(help="A file of `headcount build` instead.", show_default=False)] = None
    net_seed: Annotated[int, typer.Option(help="Seed of the random attention.")] = 0
    free: Annotated[int, typer.Option(help="Free positions; above 12 by meeting in the middle.")] = 12
    levels: Annotated[int, typer.Option(help="Tokens to choose from at a free position.")] = 3
    eps: Annotated[
        float | None, typer.Option(help="Error asked of the read-out.", show_default="gap/4, or the file's promise")
    ] = None
    radius: Radius = None
    out: Out = None


def collide(options: CollideOptions) -> Printout:
    """Find two sequences that too few heads confuse.

    And say what it costs to tell them apart.
    """
    from headcount.papers.head_count import collide as search

    if options.net is not None:
        target, module, promised, own_radius = _built(options.net)
        eps = promised if options.eps is None else options.eps
        radius = own_radius if options.radius is None else options.radius
    else:
        eps, radius = options.eps, options.radius
        few = 2 if options.retrievals is None and options.task in LONG else options.retrievals
        target = task_of(options.task, options.length, retrievals=few, token_dim=options.token_dim, seed=options.seed)
        module = _random(options.heads, options.head_dim, target, options.net_seed)
    collision = search(target, module, free=options.free, levels=options.levels, radius=radius)
    eps = collision.target_gap / 4 if eps is None else eps
    files = [] if options.out is None else [_drawn(collision, target, radius, options.out)]
    return Printout(collision.to_json(eps), _lines(collision, eps), collision.claim(eps), files)


def _built(net: Path) -> tuple[Task, Any, float, float | None]:
    """Task, network, promised error and radius of a file."""
    from headcount.certificates import Box, load
    from headcount.tasks import LinearMax

    built = load(net)
    domain = built.domain if isinstance(built.task, LinearMax) else None
    return built.task, built.net, built.certificate.error, domain.high if isinstance(domain, Box) else None


def _random(heads: int, head_dim: int, target: Task, seed: int) -> Transformer:
    from headcount.nets import Architecture, Transformer

    arch = Architecture(layers=((heads, head_dim),), width=32, positions=5)
    return Transformer(arch, target.token_dim, seed=seed)


def _drawn(collision: Collision, target: Task, radius: float | None, out: Path) -> Path:
    from headcount.papers.head_count.collisions.picture import draw

    return write_text(out / "collision.svg", draw(collision, target, radius=radius).standalone())


def _lines(c: Collision, eps: float) -> list[str | Listing]:
    rows = [row | {name: _token(row[name]) for name in ("first", "second")} for row in c.rows]
    sizes = (
        f"\ntarget gap          {c.target_gap:.4e}\nattention distance  {c.attention_distance:.4e}\n"
        f"steepness           {c.steepness:.4e}"
    )
    title = f"two sequences of {len(c.first)} tokens differ in"
    width = [f"\n{c.width(eps)}"] if c.as_row(eps)["collides"] else []
    return [Listing(rows, ("position", "first", "second"), title), sizes, *width]


def _token(token: Any) -> str:
    return "(" + ", ".join(f"{v:.4f}" for v in token) + ")"
