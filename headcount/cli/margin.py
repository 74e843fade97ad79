"""`headcount margin`: the attention matrix of least norm that puts chosen tokens first, with a proof either way."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headcount.cli.head_options import HeadNumber, LayerNumber, ModelName, Texts
from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table
from headcount.refusals import nearest

if TYPE_CHECKING:
    from headcount.papers.attention_svm import InfeasibleError
    from headcount.papers.attention_svm.instance_files import SelectionFile

Data = Annotated[
    Path | None,
    typer.Argument(help="npz: tokens, queries and chosen, or labels and read_out.", show_default=False),
]


def register(app: typer.Typer) -> None:
    @app.command("margin")
    def margin(
        data: Data = None,
        model: ModelName = "",
        layer: LayerNumber = 1,
        head: HeadNumber = 1,
        text: Texts = None,
        norm: Annotated[str, typer.Option(help="frobenius or nuclear.")] = "frobenius",
        steps: Annotated[int, typer.Option(help="Steps of the path drawn with --out.")] = 2000,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Find the attention that puts chosen tokens first.

        The matrix of least norm that does, or a proof that there is none (exit code 1). With --model the tokens are the
        states that a layer is given, and chosen is what the head itself looks at most.
        """
        from headcount.papers.attention_svm import InfeasibleError
        from headcount.papers.attention_svm.instance_files import read_selection

        if norm not in NORMS:
            raise ValueError(f"unknown norm {norm!r}; {nearest(norm, NORMS)}")
        if (data is None) == (not model):
            raise ValueError("give either a file, or --model with --layer, --head and --text")
        if data is not None:
            asked = Asked(read_selection(data), data.name)
        else:
            asked = _of_head(model, layer, head, text or [])
        try:
            _solved(asked, norm, steps, out, as_json=as_json)
        except InfeasibleError as none:
            _infeasible(asked.held, none, as_json=as_json)
            raise typer.Exit(1) from None


NORMS = ("frobenius", "nuclear")


class Asked(NamedTuple):
    """An instance, the words that asked for it, and what a head chose where it is one."""

    held: SelectionFile
    words: str
    chosen: Sequence[dict[str, Any]] = ()


def _of_head(model: str, layer: int, head: int, texts: list[str]) -> Asked:
    from headcount.nets.pretrained.model_places import folder_of
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.papers.attention_svm.head_instances import choice_rows, selection_of_head

    folder_of(model)
    held, views = selection_of_head(*model_and_tokenizer(model), texts, layer, head)
    words = " ".join([f"--model {model} --layer {layer} --head {head}", *(f"--text {shlex.quote(t)}" for t in texts)])
    return Asked(held, words, choice_rows(texts, views))


def _solved(asked: Asked, norm: str, steps: int, out: Path | None, *, as_json: bool) -> None:
    from headcount.papers import attention_svm as svm
    from headcount.papers.attention_svm.instance_files import trained_gaps, write_solution
    from headcount.papers.attention_svm.path_picture import margin_page, solution_rows

    held = asked.held
    wanted = NORMS if out else (norm,)
    parts = {"frobenius": svm.frobenius, "nuclear": svm.nuclear}
    solved = {name: svm.max_margin(held.tokens, held.queries, held.chosen, parts[name]) for name in wanted}
    one = solved[norm]
    answer = (
        f"So: a matrix of {norm} norm {one.norm:.6g} puts every chosen token first by 1; "
        f"none with a norm smaller by {max(one.gap, 0):.0e} of it does."
    )
    files = []
    if out:
        page = margin_page(
            solved,
            held.sizes,
            trained_gaps(held, steps),
            answer,
            f"headcount margin {asked.words} --out DIR",
            asked.chosen,
        )
        files = [out_file(out, "margin.html", page), write_solution(out / "margin.npz", held, one)]
    if as_json:
        rows = solution_rows({norm: one})[0] | {"feasible": True, "chosen": held.chosen.tolist()}
        emit_json(rows | {"support": one.support, "singular values": one.singular_values.tolist()})
        return
    if asked.chosen:
        show_table(asked.chosen, ("text", "asks", "chosen", "weight", "next"), "what the head itself looks at most")
    show_table(solution_rows(solved), ("norm", "value", "duality gap", "least margin", "support", "rank"))
    for path in files:
        say(f"wrote {path}")
    say(f"\n{answer}")


def _infeasible(held: SelectionFile, none: InfeasibleError, *, as_json: bool) -> None:
    """The Farkas combination: weights of constraints that add up to nothing, so that no margins can all be positive."""
    rows = _combination(held, none)
    if as_json:
        emit_json({"feasible": False, "combination": rows})
        return
    say(f"{none}\n")
    show_table(rows[:20], ("weight", "sequence", "chosen", "token"))
    if len(rows) > 20:
        say(f"and {len(rows) - 20} more")
    say(f"\nSo: no matrix puts these tokens first: {len(rows)} of the constraints, so weighted, vanish (to 1e-9).")


def _combination(held: SelectionFile, none: InfeasibleError) -> list[dict[str, Any]]:
    from headcount.papers.attention_svm.margins import constraint_rows

    _, names = constraint_rows(held.tokens, held.queries, held.chosen)
    rows = [
        {"weight": float(w), "sequence": i, "chosen": int(held.chosen[i]), "token": t}
        for w, (i, t) in zip(none.combination, names, strict=True)
        if w > 1e-12
    ]
    return sorted(rows, key=lambda row: -row["weight"])
