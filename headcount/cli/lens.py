"""`headcount lens`: the whole network at one text as one affine map, as a page."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.options import Model, Out
from headcount.cli.printing import Listing, Printout, note

if TYPE_CHECKING:
    from headcount.papers.tensor_lens import LensView

SHOWN = 10  # tokens of largest share


@dataclass(frozen=True)
class LensOptions:
    """What `headcount lens` takes."""

    model: Model = ""
    text: Annotated[str, typer.Option(help="The words to look at; needed unless --own-run.")] = ""
    token: Annotated[str, typer.Option(help="The next token whose logit is split (the likeliest).")] = ""
    against: Annotated[str, typer.Option(help="A decoder: the token to compare with. An encoder: the text.")] = ""
    coordinate: Annotated[
        int | None, typer.Option(help="For an encoder: a coordinate of the embedding.", show_default=False)
    ] = None
    own_run: Annotated[
        Path | None, typer.Option(help="A network of ours, as `headcount probe --save` keeps it.", show_default=False)
    ] = None
    length: Annotated[int, typer.Option(help="Tokens of a sample for --own-run.")] = 16
    seed: Annotated[int, typer.Option(help="Seed of that sample.")] = 0
    every: Annotated[
        bool, typer.Option("--every", help="Split every number of the output: what each token argues for.")
    ] = False
    memory: Annotated[
        str, typer.Option(help="Memory to stay below beside the model, as in 4G (half of what is free).")
    ] = ""
    out: Out = None


def lens(options: LensOptions) -> Printout:
    """Split one output of a model over its tokens, exactly.

    With a certificate that the parts are the whole, and beside each share what other words in the token's place would
    change; a page with --out.
    """
    if (options.own_run is None) == (not options.model):
        raise ValueError("give either a MODEL with --text, or --own-run FILE")
    limits: Any = {"memory": options.memory or None, "forecast": lambda cost: note(str(cost))}
    if options.own_run is not None:
        view, words = _own(options.own_run, options.length, options.seed, **limits), f"--own-run {options.own_run}"
    else:
        query = {name: getattr(options, name) for name in ("token", "against", "coordinate", "every")}
        view = _text(options.model, options.text, **query, **limits)
        words = _words(options.model, {"text": options.text, **query})
    files = [] if options.out is None else view.files(options.out, f"headcount lens {words}")
    *tokens, constant = view.rows
    table = Listing([*tokens[:SHOWN], constant], tuple(tokens[0]))
    lines = [f"{view.model}: {view.read} = {view.value:.4g}", table, view.exactness]
    return Printout(view.as_dict(), lines, view.sentence, files)


def _words(model: str, options: dict[str, object]) -> str:
    """The command's own words, for the page."""
    chosen = {name: value for name, value in options.items() if value not in ("", None, False)}
    return " ".join([model, *(f"--{n}" if v is True else f"--{n} {shlex.quote(str(v))}" for n, v in chosen.items())])


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
