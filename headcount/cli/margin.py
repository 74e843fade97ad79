"""`headcount theory margin`: the attention of least norm that puts chosen tokens first, with a proof either way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import HeadNumber, LayerNumber, ModelName, Out, Texts, head_words
from headcount.cli.printing import Listing, Printout

if TYPE_CHECKING:
    from headcount.papers.attention_svm.head_instances import ChoiceRow
    from headcount.papers.attention_svm.instance_files import SelectionFile

SOLUTION = ("norm", "value", "duality gap", "least margin", "support", "rank")
SHOWN = 20  # constraints of a proof that there is none


@dataclass(frozen=True)
class MarginOptions:
    """What `headcount theory margin` takes."""

    data: Annotated[
        Path | None,
        typer.Argument(help="npz: tokens, queries and chosen, or labels and read_out.", show_default=False),
    ] = None
    model: ModelName = ""
    layer: LayerNumber = 1
    head: HeadNumber = 1
    text: Texts = None
    norm: Annotated[str, typer.Option(help="frobenius or nuclear.")] = "frobenius"
    steps: Annotated[int, typer.Option(help="Steps of the path drawn with --out.")] = 2000
    out: Out = None


def margin(options: MarginOptions) -> Printout:
    """Find the attention that puts chosen tokens first.

    The matrix of least norm that does, or a proof that there is none (exit code 1). With --model the tokens are the
    states that a layer is given, and chosen is what the head itself looks at most.
    """
    from headcount.papers.attention_svm.instance_files import read_selection
    from headcount.papers.attention_svm.selection_answer import NoSelection, answer_selection, margin_norm

    margin_norm(options.norm)  # what is unknown is said before anything is read
    if (options.data is None) == (not options.model):
        raise ValueError("give either a file, or --model with --layer, --head and --text")
    if options.data is not None:
        instance, choices, words = read_selection(options.data), [], options.data.name
    else:
        instance, choices = _of_head(options.model, options.layer, options.head, options.text or [])
        words = head_words(options.model, options.layer, options.head, options.text or [])
    selection = answer_selection(instance, options.norm, both=options.out is not None)
    if isinstance(selection, NoSelection):
        more = len(selection.rows) - SHOWN
        shown = Listing(selection.rows[:SHOWN], ("weight", "sequence", "chosen", "token"))
        lines = [f"{selection.reason}\n", shown, *([f"and {more} more"] if more > 0 else [])]
        return Printout(selection.to_json(), lines, selection.sentence, code=1)
    command = f"headcount theory margin {words} --out DIR"
    files = [] if options.out is None else selection.files(options.out, command, steps=options.steps, choices=choices)
    return Printout(
        selection.to_json(), [*_looked(choices), Listing(selection.rows, SOLUTION)], selection.sentence, files
    )


def _of_head(model: str, layer: int, head: int, texts: list[str]) -> tuple[SelectionFile, list[ChoiceRow]]:
    from headcount.nets.pretrained.model_places import folder_of
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.papers.attention_svm.head_instances import choice_rows, selection_of_head

    folder_of(model)
    instance, views = selection_of_head(*model_and_tokenizer(model), texts, layer, head)
    return instance, choice_rows(texts, views)


def _looked(choices: list[ChoiceRow]) -> list[Listing]:
    columns = ("text", "asks", "chosen", "weight", "next")
    return [Listing(choices, columns, "what the head itself looks at most")] if choices else []
