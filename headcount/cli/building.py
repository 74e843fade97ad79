"""`headcount build`: a network with a certificate of its error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table
from headcount.cli.task_options import Length, Radius, Retrievals, Seed, TaskName, TokenDim, task_of

if TYPE_CHECKING:
    from headcount.certificates import Built


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
        from headcount.papers.head_count import memorise
        from headcount.papers.infoflow import build as construct

        if onnx and out is None:
            raise ValueError("--onnx writes a file: say where with --out DIR")
        target = task_of(task, retrievals, token_dim, length, seed, windows)
        built = construct(target, eps, radius=radius, by=memorise if one_head else None)
        found: dict[str, Any] = {"certificate": built.certificate.to_json(), "network": _sizes(built)}
        if check:
            found["check"] = built.check().to_json()
        if certify:
            found["rechecked"] = _certified(built, one_head)
        if out is not None:
            found["files"] = _write(built, out, found, onnx)
        emit_json(found) if as_json else _show_built(built, found)


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

    from headcount.certificates.enclosure import enclose
    from headcount.certificates.recheck import recheck

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
    say(certificate.headline)
    say(certificate.where)
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
