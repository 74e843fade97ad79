"""`headcount prompt`: the loss that no prompt goes below, beside prompts that were built and trained."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.head_options import HeadNumber, LayerNumber, ModelName, Texts
from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table

if TYPE_CHECKING:
    import numpy as np

    from headcount.papers.prompts.layer_files import PromptProblem

Data = Annotated[
    Path | None,
    typer.Argument(help="npz: query, key, value, last, contexts, targets. None: a hard pair.", show_default=False),
]


def register(app: typer.Typer) -> None:
    @app.command("prompt")
    def prompt(
        data: Data = None,
        model: ModelName = "",
        layer: LayerNumber = 1,
        head: HeadNumber = 1,
        text: Texts = None,
        tokens: Annotated[str, typer.Option(help="Lengths of prompts, separated by commas.")] = "1,4,16",
        starts: Annotated[int, typer.Option(help="Starts of the training at each length.")] = 4,
        token_dim: Annotated[int, typer.Option(help="Without a file: coordinates of a token.")] = 6,
        seed: Annotated[int, typer.Option(help="Without a file: which layer.")] = 3,
        out: Out = None,
        as_json: AsJson = False,
    ) -> None:
        """Say what no prompt can make a layer do.

        A floor under the loss of every prompt of a length, and of any length. With --model: a head at two texts or
        more, wanted the value of the token that it looks at most in each.
        """
        from headcount.papers.prompts.layer_files import read_problem

        lengths = _lengths(tokens)
        if starts < 1 or seed < 0:
            raise ValueError(f"--starts must be at least 1 and --seed at least 0, got {starts} and {seed}")
        if data is not None and model:
            raise ValueError("give either a file or --model, not both")
        wanted: Sequence[dict[str, Any]] = ()
        words = data.name if data else f"--seed {seed} --token-dim {token_dim}"
        if model:
            problem, wanted, words = _of_head(model, layer, head, text or [])
        else:
            problem = _hard_pair(token_dim, seed) if data is None else read_problem(data)
        rows, built, trained = _rows(problem, lengths, starts, seed)
        answer = _answer(rows, closed=1.0 if data is None and not model else 0.0)
        if out:
            tuned = not (data or model)
            _write(out, problem, rows, built, trained, answer, words, wanted, seed if tuned else None)
        if as_json:
            emit_json(rows)
            return
        if wanted:
            show_table(
                wanted, ("text", "looked at most", "weight"), "what the head itself looks at most, and wanted here"
            )
        show_table(_shown(rows), ("tokens", "floor", "least", "built", "trained"), "squares missed at the last token")
        if out:
            say(f"wrote {out / 'prompt.html'}\nwrote {out / 'prompt.npz'}")
        say(f"\n{answer}")


def _of_head(model: str, layer: int, head: int, texts: list[str]) -> tuple[PromptProblem, list[dict[str, Any]], str]:
    from headcount.nets.pretrained.model_places import folder_of
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.papers.prompts.head_problems import problem_of_head

    folder_of(model)
    problem, views = problem_of_head(*model_and_tokenizer(model), texts, layer, head)
    rows = [
        {"text": t[:60], "looked at most": v.pieces[v.chosen].strip(), "weight": float(v.weights[-1].max())}
        for t, v in zip(texts, views, strict=True)
    ]
    words = " ".join([f"--model {model} --layer {layer} --head {head}", *(f"--text {shlex.quote(t)}" for t in texts)])
    return problem, rows, words


def _lengths(words: str) -> list[int]:
    try:
        lengths = sorted({int(word) for word in words.split(",")})
    except ValueError:
        raise ValueError(f"--tokens must be whole numbers separated by commas, got {words!r}") from None
    if lengths[0] < 1 or lengths[-1] > 4096:
        raise ValueError(f"--tokens must be from 1 to 4096, got {words!r}")
    return lengths


def _hard_pair(token_dim: int, seed: int) -> PromptProblem:
    import numpy as np

    from headcount.papers.prompts import prompt_trap, random_layer
    from headcount.papers.prompts.layer_files import PromptProblem

    if token_dim < 3 or seed < 0:
        raise ValueError(f"--token-dim must be at least 3 and --seed at least 0, got {token_dim} and {seed}")
    layer = random_layer(token_dim, np.random.default_rng(seed))
    trap = prompt_trap(layer, 1.0, seed)
    return PromptProblem(layer, trap.last, trap.contexts, trap.targets)


def _rows(
    problem: PromptProblem, lengths: list[int], starts: int, seed: int
) -> tuple[list[dict[str, Any]], dict[int, np.ndarray], dict[int, list[np.ndarray]]]:
    from headcount.papers.prompts import fit_prompt, reach

    given = (problem.layer, problem.last, problem.contexts, problem.targets)
    rows: list[dict[str, Any]] = []
    built: dict[int, np.ndarray] = {}
    trained: dict[int, list[np.ndarray]] = {}
    for m in lengths:
        found = reach(*given, m)
        tuned = fit_prompt(*given, m, starts, seed)
        row = {"floor": found.floor, "least": found.error, "built": found.prompt_loss, "trained": tuned.loss}
        rows.append({"tokens": m, **row})
        if found.prompt is not None:
            built[m] = found.prompt
        trained[m] = [values.reshape(m, -1) for values in tuned.every]
    every = reach(*given, None)
    rows.append({"tokens": "any", "floor": every.floor, "least": every.error, "built": None, "trained": None})
    return rows, built, trained


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the digits in which floor and losses differ."""
    return [{k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def _answer(rows: list[dict[str, Any]], closed: float) -> str:
    """`closed` is a floor that is known in closed form, as of the hard pair; 0 where none is."""
    every = rows[-1]
    if closed > every["floor"] > 1e-9:
        return f"So: every prompt of any length leaves more than {closed:g} of loss on these targets, in closed form."
    if every["floor"] > 1e-9:
        met = f"{every['floor']:.6g}" == f"{every['least']:.6g}"
        least = f"{every['floor']:.6g}" + ("" if met else f" (the least lies there or up to {every['least']:.6g})")
        return f"So: no prompt of any length brings the loss on these targets below {least}."
    near = min(rows[:-1], key=lambda row: row["built"])
    if near["floor"] > 1e-9:
        return f"So: prompts of these lengths cannot fit: {near['tokens']} tokens leave at least {near['floor']:.6g}."
    return f"So: nothing excludes a prompt: one of {near['tokens']} leaves {near['built']:.2g}."


def _write(out: Path, problem: PromptProblem, rows: list[dict[str, Any]], built: dict[int, np.ndarray],
           trained: dict[int, list[np.ndarray]], answer: str, words: str, wanted: Sequence[dict[str, Any]],
           seed: int | None) -> None:  # fmt: skip
    from headcount.papers.prompts import strip_of, tuning_rows
    from headcount.papers.prompts.layer_files import write_problem
    from headcount.papers.prompts.strip import in_range
    from headcount.papers.prompts.strip_picture import prompt_page, strip_figure

    shown = dict(list(trained.items())[:4])
    figures = None
    full = in_range(problem.layer, problem.targets)[0].value.shape == problem.layer.value.shape
    if full and strip_of(problem.layer, problem.last).slope is not None:
        figures = tuple(strip_figure(problem.layer, problem.last, shown, width) for width in (640, 360))
    facts = {"sequences": len(problem.contexts), "token dim": problem.layer.token_dim}
    tuned = [] if seed is None else tuning_rows(problem.layer.token_dim, seed=seed)
    lengths = ",".join(str(row["tokens"]) for row in rows[:-1])
    command = f"headcount prompt {words} --tokens {lengths} --out DIR"
    page = prompt_page(answer, _shown(rows), figures, facts, tuned, command, wanted)
    out_file(out, "prompt.html", page)
    write_problem(out / "prompt.npz", problem, built)
