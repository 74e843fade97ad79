"""`headcount build`: a network with a certificate of its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import Out, Radius, Retrievals, TaskLength, TaskName, TaskSeed, TokenDim, With, task_of
from headcount.cli.printing import Listing, Printout
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.certificates import Built


@dataclass(frozen=True)
class BuildOptions:
    """What `headcount build` takes."""

    task: TaskName = "Wells"
    retrievals: Retrievals = None
    token_dim: TokenDim = None
    length: TaskLength = None
    seed: TaskSeed = None
    fields: With = None
    eps: Annotated[float, typer.Option(help="The error asked for.")] = 1e-3
    radius: Radius = None
    windows: Annotated[bool, typer.Option("--windows", help="Wells search halves of the positions.")] = False
    one_head: Annotated[bool, typer.Option("--one-head", help="One wide head that memorises.")] = False
    check: Annotated[bool, typer.Option(help="Try to break the certificate.")] = True
    certify: Annotated[bool, typer.Option("--certify", help="Recheck it in ball arithmetic.")] = False
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write net.onnx into --out.")] = False
    out: Out = None


def build(options: BuildOptions) -> Printout:
    """Build a network with a proved error, and try to break it."""
    from headcount.papers.head_count import memorise
    from headcount.papers.infoflow import build as construct

    if options.onnx and options.out is None:
        raise ValueError("--onnx writes a file: say where with --out DIR")
    sizes = {name: getattr(options, name) for name in ("retrievals", "token_dim", "seed")}
    sizes |= {"windows": options.windows or None}
    target = task_of(options.task, options.length, options.fields, **sizes)
    built = construct(target, options.eps, radius=options.radius, by=memorise if options.one_head else None)
    attacked = built.check() if options.check else None
    claim = built.certificate.claim(_size(built), attacked)
    facts: dict[str, Any] = {
        "certificate": built.certificate.to_json(), "network": _sizes(built), "claim": claim.to_json(),
        **({} if attacked is None else {"check": attacked.to_json()}),
        **({} if not options.certify else {"rechecked": _rechecked(built, options.one_head)}),
    }  # fmt: skip
    files = [] if options.out is None else built.files(options.out, onnx=options.onnx, **facts)
    return Printout(facts, _lines(built, facts), claim, files)


def _sizes(built: Built) -> dict[str, Any]:
    shape: Any = built.net.shape
    return {
        "layers": [{"heads": h, "head_dim": n, "beta": b} for (h, n), b in zip(shape.layers, shape.betas, strict=True)],
        "encoder_width": shape.encoder[1],
        "read_out_width": max(shape.read_out[1:-1]),
        "feedforward_parameters": built.feedforward_parameters,
    }


def _rechecked(built: Built, one_head: bool) -> dict[str, Any]:
    import torch

    from headcount.certificates.enclosure import enclose
    from headcount.papers.head_count.networks.term_recheck import recheck

    x = built.domain.sample(2, generator=torch.Generator().manual_seed(0))
    terms = [] if one_head else recheck(built)
    return {
        "terms": [{"term": t.name, "claimed": t.claimed, "recomputed": t.recomputed, "holds": t.holds} for t in terms],
        "inputs": [{"gap at most": e.gap, "rounding at most": e.rounding, "holds": e.holds} for e in enclose(built, x)],
    }


def _lines(built: Built, facts: dict[str, Any]) -> list[str | Listing]:
    certificate, layers = built.certificate, facts["network"]["layers"]
    lines: list[str | Listing] = [certificate.headline, certificate.where]
    lines += [Listing(certificate.rows, ("term", "at most", "because")), f"\nFor {', '.join(certificate.hypotheses)}."]
    for number, layer in enumerate(layers, start=1):
        where = f"Layer {number}: " if len(layers) > 1 else ""
        lines.append(
            f"{where}{counted(layer['heads'], 'head')} of dimension {layer['head_dim']}, beta {layer['beta']:.4g}."
        )
    if "check" in facts:
        lines += ["\nTrying to break it:", Listing(facts["check"]["tried"], ("name", "inputs", "gap"))]
    if "rechecked" in facts:
        again = facts["rechecked"]
        lines.append("\nIn ball arithmetic (rounding included):")
        lines.append(Listing(again["terms"], ("term", "claimed", "recomputed", "holds")))
        lines.append(Listing(again["inputs"], ("gap at most", "rounding at most", "holds")))
    return lines


def _size(built: Built) -> str:
    heads = sum(layer["heads"] for layer in _sizes(built)["layers"])
    return f"a network of {counted(heads, 'head')} and {built.feedforward_parameters:,} feed-forward parameters"
