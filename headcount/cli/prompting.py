"""`headcount theory prompt`: the loss that no prompt goes below, beside prompts that were built and trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import HeadNumber, LayerNumber, ModelName, Out, Texts, head_words, whole_numbers_of
from headcount.cli.printing import Listing, Printout

if TYPE_CHECKING:
    from headcount.papers.prompts.head_problems import LookedRow
    from headcount.papers.prompts.layer_files import PromptProblem

LOOKED = "what the head itself looks at most, and wanted here"
MISSED = "squares missed at the last token"


@dataclass(frozen=True)
class PromptOptions:
    """What `headcount theory prompt` takes."""

    data: Annotated[
        Path | None,
        typer.Argument(help="npz: query, key, value, last, contexts, targets. None: a hard pair.", show_default=False),
    ] = None
    model: ModelName = ""
    layer: LayerNumber = 1
    head: HeadNumber = 1
    text: Texts = None
    tokens: Annotated[str, typer.Option(help="Lengths of prompts, separated by commas.")] = "1,4,16"
    starts: Annotated[int, typer.Option(help="Starts of the training at each length.")] = 4
    token_dim: Annotated[int, typer.Option(help="Without a file: coordinates of a token.")] = 6
    seed: Annotated[int, typer.Option(help="Without a file: which layer.")] = 3
    out: Out = None


def prompt(options: PromptOptions) -> Printout:
    """Say what no prompt can make a layer do.

    A floor under the loss of every prompt of a length, and of any length. With --model: a head at two texts or more,
    wanted the value of the token that it looks at most in each.
    """
    from headcount.papers.prompts.layer_files import read_problem
    from headcount.papers.prompts.prompt_answer import TRAP, answer_problem, hard_pair

    lengths = sorted(set(whole_numbers_of(options.tokens, "--tokens")))
    if lengths[0] < 1 or lengths[-1] > 4096:
        raise ValueError(f"--tokens must be from 1 to 4096, got {options.tokens!r}")
    if options.starts < 1 or options.seed < 0:
        raise ValueError(f"--starts must be at least 1 and --seed at least 0, got {options.starts} and {options.seed}")
    if options.data is not None and options.model:
        raise ValueError("give either a file or --model, not both")
    wanted: list[LookedRow] = []
    words = options.data.name if options.data else f"--seed {options.seed} --token-dim {options.token_dim}"
    if options.model:
        problem, wanted = _of_head(options.model, options.layer, options.head, options.text or [])
        words = head_words(options.model, options.layer, options.head, options.text or [])
    else:
        problem = hard_pair(options.token_dim, options.seed) if options.data is None else read_problem(options.data)
    from_user = bool(options.data or options.model)
    answer = answer_problem(problem, lengths, options.starts, options.seed, closed=0.0 if from_user else TRAP)
    command = f"headcount theory prompt {words} --tokens {','.join(map(str, lengths))} --out DIR"
    pair = None if from_user else options.seed
    files = [] if options.out is None else answer.files(options.out, command, wanted=wanted, tuned_seed=pair)
    lines = [Listing(wanted, ("text", "looked at most", "weight"), LOOKED)] if wanted else []
    lines.append(Listing(answer.short_rows, ("tokens", "floor", "least", "built", "trained"), MISSED))
    return Printout(answer.rows, lines, answer.sentence, files)


def _of_head(model: str, layer: int, head: int, texts: list[str]) -> tuple[PromptProblem, list[LookedRow]]:
    from headcount.nets.pretrained.model_places import folder_of
    from headcount.nets.pretrained.packaged import model_and_tokenizer
    from headcount.papers.prompts.head_problems import looked_rows, problem_of_head

    folder_of(model)
    problem, views = problem_of_head(*model_and_tokenizer(model), texts, layer, head)
    return problem, looked_rows(texts, views)
