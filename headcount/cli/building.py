"""`headcount build`: a network with a certificate of its error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.infoflow import With
from headcount.cli.printing import AsJson, Out, conclude, emit_json, out_file, say, show_table
from headcount.cli.task_options import Length, Radius, Retrievals, Seed, TaskName, TokenDim, task_of
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.certificates import Built
    from headcount.results import Claim


def register(app: typer.Typer) -> None:
    @app.command("build")
    def build(
        task: TaskName = "Wells",
        retrievals: Retrievals = None,
        token_dim: TokenDim = None,
        length: Length = None,
        seed: Seed = None,
        fields: With = None,
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
        """Build a network with a proved error, and try to break it."""
        from headcount.papers.head_count import memorise
        from headcount.papers.infoflow import build as construct

        if onnx and out is None:
            raise ValueError("--onnx writes a file: say where with --out DIR")
        sizes = {"retrievals": retrievals, "token_dim": token_dim, "seed": seed, "windows": windows or None}
        target = task_of(task, length, fields, **sizes)
        built = construct(target, eps, radius=radius, by=memorise if one_head else None)
        facts: dict[str, Any] = {"certificate": built.certificate.to_json(), "network": _sizes(built)}
        attacked = built.check() if check else None
        claim = built.certificate.claim(_size(facts), attacked)
        facts["claim"] = claim.to_json()
        if attacked is not None:
            facts["check"] = attacked.to_json()
        if certify:
            facts["rechecked"] = _certified(built, one_head)
        if out is not None:
            facts["files"] = _write(built, out, facts, onnx)
        emit_json(facts) if as_json else _show_built(built, facts, claim)


def _sizes(built: Built) -> dict[str, Any]:
    shape: Any = built.net.shape
    return {
        "layers": [{"heads": h, "head_dim": n, "beta": b} for (h, n), b in zip(shape.layers, shape.betas, strict=True)],
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


def _write(built: Built, out: Path, facts: dict[str, Any], onnx: bool) -> list[str]:
    files = [built.save(out / "net.safetensors"), out_file(out, "certificate.json", json.dumps(facts, indent=2) + "\n")]
    if onnx:
        files.append(built.export(out / "net.onnx"))
    return [str(f) for f in files]


def _show_built(built: Built, facts: dict[str, Any], claim: Claim) -> None:
    certificate, sizes = built.certificate, facts["network"]
    say(certificate.headline)
    say(certificate.where)
    terms = [{"term": t.name, "at most": t.value, "because": t.why} for t in certificate.terms]
    show_table(terms, ("term", "at most", "because"))
    say(f"\nFor {', '.join(certificate.hypotheses)}.")
    for number, layer in enumerate(sizes["layers"], start=1):
        where = f"Layer {number}: " if len(sizes["layers"]) > 1 else ""
        say(f"{where}{counted(layer['heads'], 'head')} of dimension {layer['head_dim']}, beta {layer['beta']:.4g}.")
    if "check" in facts:
        say("\nTrying to break it:")
        show_table(facts["check"]["tried"], ("name", "inputs", "gap"))
    if "rechecked" in facts:
        say("\nIn ball arithmetic (rounding included):")
        show_table(facts["rechecked"]["terms"], ("term", "claimed", "recomputed", "holds"))
        show_table(facts["rechecked"]["inputs"], ("gap at most", "rounding at most", "holds"))
    for file in facts.get("files", []):
        say(f"wrote {file}")
    say()
    conclude(claim)


def _size(facts: dict[str, Any]) -> str:
    heads = sum(layer["heads"] for layer in facts["network"]["layers"])
    parameters = f"{facts['network']['feedforward_parameters']:,} feed-forward parameters"
    return f"a network of {counted(heads, 'head')} and {parameters}"
