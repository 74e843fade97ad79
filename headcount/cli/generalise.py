"""`headcount generalise`: train a letter task on short strings, test it on longer ones, beside what is proved."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headcount.cli.printing import AsJson, emit_json, out_file, say, show_table

CODES = "UR UL NRFirst NLFirst NRLast NLLast UF UB NF NB MAJORITY DYCK PARITY, or L3, L4, .."
Code = Annotated[str | None, typer.Argument(help=CODES, show_default=False)]
Program = Annotated[
    str | None, typer.Option(help="A counting program of your own, as text or in a file.", show_default=False)
]
OwnLanguage = Annotated[
    str | None, typer.Option("--language", help="A language of your own, module:Class.", show_default=False)
]
To = Annotated[Path | None, typer.Option("--out", help="Folder for page and rows. Default: out/generalise-TASK.")]


def register(app: typer.Typer) -> None:
    @app.command("generalise")
    def generalise(
        task: Code = None,
        program: Program = None,
        language: OwnLanguage = None,
        train: Annotated[str, typer.Option(help="Lengths to train on.")] = "4-12",
        test: Annotated[str, typer.Option(help="Longer ranges to test, separated by commas.")] = "13-18,19-24,25-36",
        layers: Annotated[int, typer.Option(help="Attention layers.")] = 2,
        heads: Annotated[int, typer.Option(help="Heads in each layer.")] = 2,
        width: Annotated[int, typer.Option(help="Width of the state, shared by the heads.")] = 32,
        steps: Annotated[int, typer.Option(help="Training steps.")] = 1500,
        batch: Annotated[int, typer.Option(help="Strings in a step.")] = 32,
        lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 4e-3,
        seeds: Annotated[int, typer.Option(help="Networks, trained as one bank.")] = 3,
        device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
        out: To = None,
        as_json: AsJson = False,
    ) -> None:
        """Train on short strings, test on longer ones.

        The verdict of theory beside the curve, on a page.
        """
        import json

        from headcount.papers.born.born_page import length_page
        from headcount.papers.born.length_study import SMALL
        from headcount.papers.born.length_study import generalise as study_of
        from headcount.refusals import at_least_one
        from headcount.training.sweeps import check_device

        name, chosen, given = _chosen(task, program, language)
        at_least_one(layers=layers, heads=heads, width=width, steps=steps, batch=batch, seeds=seeds)
        if not 0 < lr < 1:
            raise ValueError(f"--lr is a learning rate between 0 and 1, got {lr:g}")
        check_device(device)
        ranges = tuple(_range(part, "--test") for part in test.split(","))
        setting = replace(SMALL, train=_range(train, "--train"), tests=ranges, depth=layers, heads=heads,
                          embed_dim=width, steps=steps, batch=batch, lr=lr, seeds=tuple(range(seeds)))  # fmt: skip
        study = study_of(name, setting, task=chosen, device=device)
        folder = out or Path(f"out/generalise-{name.replace(' ', '-')}")
        options = f"--train {train} --test {test} --layers {layers} --heads {heads} --width {width} --steps {steps}"
        command = f"headcount generalise {given} {options} --batch {batch} --lr {lr:g} --seeds {seeds}"
        files = [out_file(folder, "generalise.html", length_page(study, command=command))]
        files.append(out_file(folder, "generalise.json", json.dumps(study.as_json(), indent=1) + "\n"))
        if as_json:
            emit_json(study.as_json())
            return
        say(f"{study.verdict}.\n")
        rows = [line | {"seeds": " ".join(f"{v:.3f}" for v in line["seeds"])} for line in study.curve]
        show_table(rows, ("lengths", "strings", "least", "letters", "seeds"))
        for path in files:
            say(f"wrote {path}")
        say(study.sentence)


def _chosen(task: str | None, program: str | None, language: str | None) -> tuple[str, Any, str]:
    """The name, the task and the words of the command that asked for it."""
    from headcount.papers.born.length_study import letter_task, own_task

    if task is not None:
        if program is not None or language is not None:
            raise ValueError(f"{task} is a task already: give it, --program or --language alone")
        return task, letter_task(task), task
    if language is not None and "" not in sys.path:
        sys.path.append("")  # a module beside the user
    text = Path(program).read_text() if program is not None and Path(program[:200]).is_file() else program
    name, own = own_task(text, language)
    words = ("--program", program) if program is not None else ("--language", str(language))
    return name, own, f"{words[0]} {shlex.quote(str(words[1]))}"


def _range(text: str, option: str) -> tuple[int, int]:
    low, dash, high = text.strip().partition("-")
    if not (dash and low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high)):
        raise ValueError(f"{option} takes lengths as LOW-HIGH with 1 <= LOW <= HIGH, as in 4-12; got {text!r}")
    return int(low), int(high)
