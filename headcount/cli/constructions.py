"""`headcount build` and `headcount collide`: networks with a certificate, and sequences that attention confuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table

if TYPE_CHECKING:
    from headcount.constructions import Built, Collision
    from headcount.tasks import Task

TaskName = Annotated[str, typer.Argument(help="Wells or LinearMax.")]
Length = Annotated[int, typer.Option(help="Tokens in a sequence (T).")]
Retrievals = Annotated[int, typer.Option(help="Retrievals of the target (D).")]
TokenDim = Annotated[int, typer.Option(help="Dimension of a token (d).")]
Seed = Annotated[int, typer.Option(help="Seed of the task's centres or directions.")]
Radius = Annotated[float | None, typer.Option(help="Box [-radius, radius]^d for LinearMax.", show_default="6")]


def register(app: typer.Typer) -> None:
    @app.command("build")
    def build(
        task: TaskName = "Wells",
        retrievals: Retrievals = 4,
        token_dim: TokenDim = 2,
        length: Length = 64,
        seed: Seed = 0,
        eps: Annotated[float, typer.Option(help="The error asked for.")] = 1e-3,
        radius: Radius = None,
        windows: Annotated[bool, typer.Option("--windows", help="Wells search halves of the positions.")] = False,
        one_head: Annotated[bool, typer.Option("--one-head", help="One wide head that memorises.")] = False,
        check: Annotated[bool, typer.Option(help="Try to break the certificate.")] = True,
        certify: Annotated[bool, typer.Option("--certify", help="Recheck it in ball arithmetic.")] = False,
        onnx: Annotated[bool, typer.Option("--onnx", help="Also write net.onnx into --out.")] = False,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Build a network by theorem, print its certificate, and try to break it."""
        from headcount.constructions import build as construct
        from headcount.constructions import memorise

        if onnx and out is None:
            raise ValueError("--onnx writes a file: say where with --out DIR")
        target = _task(task, retrievals, token_dim, length, seed, windows)
        built = construct(target, eps, radius=radius, by=memorise if one_head else None)
        found: dict[str, Any] = {"certificate": built.certificate.to_json(), "network": _sizes(built)}
        if check:
            found["check"] = built.check().to_json()
        if certify:
            found["rechecked"] = _certified(built, one_head)
        if out is not None:
            found["files"] = _write(built, out, found, onnx)
        emit_json(found) if as_json else _show_built(built, found)

    @app.command("collide")
    def collide(
        task: TaskName = "Wells",
        retrievals: Retrievals = 2,
        token_dim: TokenDim = 2,
        length: Length = 64,
        seed: Seed = 0,
        heads: Annotated[int, typer.Option(help="Heads of the random attention.")] = 1,
        head_dim: Annotated[int, typer.Option(help="Dimension of each head (n).")] = 2,
        net: Annotated[
            Path | None, typer.Option(help="A file of `headcount build` instead.", show_default=False)
        ] = None,
        net_seed: Annotated[int, typer.Option(help="Seed of the random attention.")] = 0,
        free: Annotated[int, typer.Option(help="Free positions; above 12 by meeting in the middle.")] = 12,
        levels: Annotated[int, typer.Option(help="Tokens to choose from at a free position.")] = 3,
        eps: Annotated[float | None, typer.Option(help="Error asked of the read-out.", show_default="gap/4")] = None,
        radius: Radius = None,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Find two sequences that attention with too few heads confuses, and what it costs to tell them apart."""
        from headcount.constructions import collide as search
        from headcount.constructions import load
        from headcount.nets import Architecture, Transformer

        if net is not None:
            built = load(net)
            target, module = built.task, built.net
        else:
            target = _task(task, retrievals, token_dim, length, seed, windows=False)
            arch = Architecture(layers=((heads, head_dim),), width=32, positions=5)
            module = Transformer(arch, token_dim, seed=net_seed)
        found = search(target, module, free=free, levels=levels, radius=radius)
        eps = found.target_gap / 4 if eps is None else eps
        row = found.as_row(eps)
        if out is not None:
            row["files"] = _draw(found, target, radius, out)
        emit_json({**row, **_sequences(found)}) if as_json else _show_collision(found, row, eps)


def _task(name: str, retrievals: int, token_dim: int, length: int, seed: int, windows: bool) -> Task:
    from headcount.tasks import named

    if name not in ("Wells", "LinearMax"):
        raise ValueError(f"constructions are known for Wells and LinearMax, not for {name!r}")
    more = {"windows": True} if windows else {}
    return named(name, length=length, retrievals=retrievals, token_dim=token_dim, seed=seed, **more)


def _sizes(built: Built) -> dict[str, Any]:
    shape: Any = built.net.shape
    return {
        "heads": shape.layers[0][0],
        "head_dim": shape.layers[0][1],
        "beta": shape.betas[0],
        "encoder_width": shape.encoder[1],
        "read_out_width": max(shape.read_out[1:-1]),
        "feedforward_parameters": built.feedforward_parameters,
    }


def _certified(built: Built, one_head: bool) -> dict[str, Any]:
    import torch

    from headcount.constructions.enclosure import enclose
    from headcount.constructions.recheck import recheck

    x = built.domain.sample(2, generator=torch.Generator().manual_seed(0))
    proved = enclose(built, x)
    terms = [] if one_head else recheck(built)
    return {
        "terms": [{"term": t.name, "claimed": t.claimed, "recomputed": t.recomputed, "holds": t.holds} for t in terms],
        "inputs": [{"gap at most": e.gap, "rounding at most": e.rounding, "holds": e.holds} for e in proved],
    }


def _write(built: Built, out: Path, found: dict[str, Any], onnx: bool) -> list[str]:
    import json

    files = [built.save(out / "net.safetensors"), out_file(out, "certificate.json", json.dumps(found, indent=2) + "\n")]
    if onnx:
        files.append(built.export(out / "net.onnx"))
    return [str(f) for f in files]


def _show_built(built: Built, found: dict[str, Any]) -> None:
    certificate, sizes = built.certificate, found["network"]
    say(f"error <= {certificate.error:.6g}, by {certificate.source}")
    terms = [{"term": t.name, "at most": t.value, "because": t.why} for t in certificate.terms]
    show_table(terms, ("term", "at most", "because"))
    say(f"\nFor {', '.join(certificate.hypotheses)}.")
    say(
        f"{sizes['heads']} heads of dimension {sizes['head_dim']}, beta {sizes['beta']:.4g}, "
        f"{sizes['feedforward_parameters']} feed-forward parameters."
    )
    if "check" in found:
        say("\nTrying to break it:")
        show_table(found["check"]["tried"], ("name", "inputs", "gap"))
        verdict = "holds" if found["check"]["holds"] else "is BROKEN"
        say(f"The promise {verdict}: worst gap {found['check']['gap']:.4g} of {certificate.error:.4g}.")
    if "rechecked" in found:
        say("\nIn ball arithmetic (rounding included):")
        show_table(found["rechecked"]["terms"], ("term", "claimed", "recomputed", "holds"))
        show_table(found["rechecked"]["inputs"], ("gap at most", "rounding at most", "holds"))
    for file in found.get("files", []):
        say(f"wrote {file}")


def _sequences(found: Collision) -> dict[str, Any]:
    return {"first": found.first.tolist(), "second": found.second.tolist()}


def _draw(found: Collision, target: Task, radius: float | None, out: Path) -> list[str]:
    from headcount.constructions.picture import draw, write_svg

    return [str(write_svg(draw(found, target, radius=radius), out / "collision.svg"))]


def _show_collision(found: Collision, row: dict[str, Any], eps: float) -> None:
    differ = [t for t in range(len(found.first)) if not bool((found.first[t] == found.second[t]).all())]
    rows = [
        {"position": t + 1, "first": _token(found.first[t]), "second": _token(found.second[t])} for t in sorted(differ)
    ]
    show_table(rows, ("position", "first", "second"), title=f"two sequences of {len(found.first)} tokens differ in")
    say(f"\ntarget gap          {found.target_gap:.4e}")
    say(f"attention distance  {found.attention_distance:.4e}")
    say(f"steepness           {found.steepness:.4e}")
    if not found.found:
        say("No collision: this attention tells the two sequences apart.")
    else:
        say(f"\n{found.width(eps)}")
        say(
            f"No two-layer read-out with weights at most 1 and fewer than {row['width']:.3g} hidden units brings this "
            f"attention within {eps:.3g} of the target."
        )
    for file in row.get("files", []):
        say(f"wrote {file}")


def _token(token: Any) -> str:
    return "(" + ", ".join(f"{v:.4f}" for v in token.tolist()) + ")"
