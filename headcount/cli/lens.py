"""`headcount lens`: the whole network at one text as one affine map, as a page."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import MODEL_HELP, AsJson, Out, emit_json, out_file, say, show_table

if TYPE_CHECKING:
    from headcount.papers.tensor_lens import LensView


def register(app: typer.Typer) -> None:
    @app.command("lens")
    def lens(
        model: Annotated[str, typer.Argument(help=MODEL_HELP)] = "",
        text: Annotated[str, typer.Option(help="The text to look at.")] = "",
        token: Annotated[str, typer.Option(help="The next token whose logit is split (the likeliest).")] = "",
        against: Annotated[str, typer.Option(help="A decoder: the token to compare with. An encoder: the text.")] = "",
        coordinate: Annotated[
            int | None, typer.Option(help="For an encoder: a coordinate of the embedding.", show_default=False)
        ] = None,
        own_run: Annotated[
            Path | None,
            typer.Option(help="A network of ours, as `headcount probe --save` keeps it.", show_default=False),
        ] = None,
        length: Annotated[int, typer.Option(help="Tokens of a sample for --own-run.")] = 16,
        seed: Annotated[int, typer.Option(help="Seed of that sample.")] = 0,
        every: Annotated[
            bool, typer.Option("--every", help="Split every number of the output: what each token argues for.")
        ] = False,
        memory: Annotated[
            str, typer.Option(help="Memory to stay below beside the model, as in 4G (half of what is free).")
        ] = "",
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        """Split one output of a model over its tokens, exactly.

        With a certificate that the parts are the whole, and beside each share what other words in the token's place
        would change; a page with --out.
        """
        if (own_run is None) == (not model):
            raise ValueError("give either a MODEL with --text, or --own-run FILE")
        told = {"memory": memory or None, "forecast": _note if as_json else _say}
        if own_run is not None:
            view, named = _own(own_run, length, seed, **told), f"--own-run {own_run}"
        else:
            asked = {"token": token, "against": against, "coordinate": coordinate, "every": every}
            view, named = _text(model, text, **asked, **told), _asked(model, {"text": text, **asked})
        if as_json:
            emit_json(view.as_dict())
        else:
            _print(view)
        if out is not None:
            from headcount.papers.tensor_lens import lens_page

            out_file(out, "lens.json", json.dumps(view.as_dict(), indent=1) + "\n")
            path = out_file(out, "lens.html", lens_page(view, command=f"headcount lens {named}"))
            if not as_json:
                say(f"wrote {path}")
        if not as_json:
            say(f"So: {view.sentence}.")


def _asked(model: str, options: dict[str, Any]) -> str:
    """The command's own words, for the page."""
    given = {name: value for name, value in options.items() if value not in ("", None, False)}
    return " ".join([model, *(f"--{n}" if v is True else f"--{n} {shlex.quote(str(v))}" for n, v in given.items())])


def _say(cost: object) -> None:
    say(f"{cost}")


def _note(cost: object) -> None:
    sys.stderr.write(f"headcount: {cost}\n")


def _text(model: str, text: str, **options: Any) -> LensView:
    from headcount.nets.pretrained.model_places import folder_of

    if not text.strip():
        raise ValueError("the text is empty: give some words to --text")
    folder_of(model)  # what cannot be found is said before anything large is loaded
    from headcount.papers.tensor_lens import model_and_tokenizer, view_of_text

    loaded, tokenizer = model_and_tokenizer(model)
    return view_of_text(model, loaded, tokenizer, text, **options)


def _own(path: Path, length: int, seed: int, **options: Any) -> LensView:
    import torch

    from headcount.nets import load_net
    from headcount.papers.tensor_lens import view_of_network

    net = load_net(path).double()
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    x = torch.randn(length, net.token_dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return view_of_network(path.name, net, x, **options)


def _print(view: LensView) -> None:
    say(f"{view.model}: {view.read} = {view.value:.4g}")
    order = sorted(range(len(view.tokens)), key=lambda i: -abs(view.tokens[i]))[:10]
    rows: list[dict[str, Any]] = [
        {"place": i + 1, "token": view.pieces[i].strip(), "adds": view.tokens[i]} for i in order
    ]
    for i, row in zip(order, rows, strict=True):
        row["argues for"] = " ".join(repr(word) for word in view.argued[i]) if view.argued else ""
        row["replaced"] = view.replaced[i] if view.replaced else None
    columns = ("place", "token", "adds", *(("replaced",) if view.replaced else ()))
    columns = (*columns, *(("argues for",) if view.argued else ()))
    last = {"place": "", "token": "(constant)", "adds": view.constant, "argues for": "", "replaced": None}
    show_table([*rows, last], columns)
    c = view.certificate
    say(f"certificate: replay {c['replay']:.1e}, affine {c['affine']:.1e}, adjoint {c['adjoint']:.1e},")
    say(f"  dependence {c['dependence']:.2g}, tolerance {c['tolerance']:.0e} ({c['dtype']});")
    say(f"  the parts add up to the whole, to {view.gap:.1e} of it")
    if view.slice_gap is not None:
        say(f"every number: contributions + constant = output to {view.slice_gap:.1e} ({view.numbers:,} numbers)")
