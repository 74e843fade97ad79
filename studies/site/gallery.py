"""The gallery: every kind of figure with the command that made it, drawn anew by `make docs`.

Figures that a command makes from the small files of docs/formats are made by running that command here; the others are
drawn from the record of a run in docs/data, and name the command of that run: it is long, or it trains until the last
bit, where another processor ends elsewhere. `python -m studies.site.gallery` trains the prompts of one anew.
"""

from __future__ import annotations

import html
import re
import shlex
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headcount.drawing.svg import Figure
from headcount.measuring.measured_page import heads_figure, measured
from headcount.measuring.measurement import Measurement
from headcount.papers.prompts.layer_files import read_problem
from headcount.papers.prompts.prompt_answer import answer_problem
from headcount.papers.prompts.strip_picture import strip_figure
from headcount.report import report
from headcount.results import read_study
from studies.lens import views
from studies.site.calls import called
from studies.site.format_files import FORMATS
from studies.stored import DATA, stored, written

PROMPT = "headcount theory prompt prompt.npz --out prompt"
MEASURE = "headcount measure own_data:two_maxima --layers 1 --steps 1100 --splits 6 --out measured"
TRAINED = DATA / "gallery_prompt.json"
DRAWN = re.compile(
    r'<svg class="hc" viewBox="0 0 (\d+) (\d+)" role="img" aria-labelledby="[^"]*">'
    r"<title[^>]*>(.*?)</title>(.*?)</svg>",
    flags=re.DOTALL,
)


class GalleryFigure(NamedTuple):
    """A figure of the gallery: its file in docs/images, what a reader without eyes is told, and its commands."""

    heading: str
    image: str
    alt: str
    commands: tuple[str, ...]
    whole: str = ""  # the page that the figure stands on, where docs/ has it


class FromCommand(NamedTuple):
    """A command that runs on the files of docs/formats, and which figure of what it writes is shown."""

    command: str
    file: str
    number: int = 0

    def __call__(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(FORMATS, folder, dirs_exist_ok=True)
            with chdir(folder):
                done = called(shlex.split(self.command)[1:])
                if done.exit_code:
                    raise RuntimeError(f"{self.command}: exit code {done.exit_code}: {done.stderr}")
                text = Path(self.file).read_text(encoding="utf-8")
        return text if self.file.endswith(".svg") else figures_of(text)[self.number].standalone()


def figures_of(page: str) -> list[Figure]:
    """The figures of a page of ours, as values; one drawn wide and narrow is taken once, wide.

    >>> wide, narrow = (Figure(width, 4, "<g/>", "t", "d").inline(f"f{width}") for width in (9, 5))
    >>> [figure.width for figure in figures_of(wide + narrow)]
    [9]
    """
    figures: list[Figure] = []
    for width, height, words, body in DRAWN.findall(page):
        description = html.unescape(words)
        if not figures or figures[-1].description != description:
            figures.append(Figure(int(width), int(height), body, description, description))
    return figures


FROM_COMMANDS = {
    "gallery_attention.svg": FromCommand(
        "headcount report study --attention --out attention", "attention/attention.html"
    ),
    "gallery_flow.svg": FromCommand(
        "headcount predict LinearMax --layers 2x8 --with retrievals=3 --out flow", "flow/flow.svg"
    ),
    "gallery_collide.svg": FromCommand(
        "headcount theory collide Wells --length 16 --free 4 --out collide", "collide/collision.svg"
    ),
    "gallery_deepen.svg": FromCommand(
        "headcount ssm deepen system.json --max-entry 2 --out deep", "deep/system-deep.svg"
    ),
    "gallery_interpolate.svg": FromCommand(
        "headcount theory interpolate pairs.npz --out memory", "memory/interpolation.html", 1
    ),
    "gallery_margin.svg": FromCommand("headcount theory margin selection.npz --out margin", "margin/margin.html"),
    "gallery_rates.svg": FromCommand("headcount fit rates.csv --learning-rate --out rates", "rates/learning_rate.html"),
}


def measurement() -> Measurement:
    """The measurement whose page and figure are shown."""
    return Measurement(read_study(DATA / "gallery_measure.json"))


def measure_picture() -> str:
    """Errors against heads, as `measure` draws them."""
    return heads_figure(measurement(), 640).standalone()


def measure_page() -> str:
    """The page of a measurement, as the command writes it."""
    return measured(measurement(), command=MEASURE)


def heat_picture() -> str:
    """The grid of a study: the second figure of its page."""
    return figures_of(report(read_study(DATA / "head_count.json")))[1].standalone()


def prompt_picture() -> str:
    """The strip of a layer and the prompts that training found before it."""
    problem = read_problem(FORMATS / "prompt.npz")
    trained = {int(m): [np.array(one) for one in some] for m, some in stored(TRAINED)["trained"].items()}
    return strip_figure(problem.layer, problem.last, trained).standalone()


def record_prompts() -> None:
    """Train the prompts of the picture, and keep them."""
    found = answer_problem(read_problem(FORMATS / "prompt.npz"), lengths=(1, 4, 16))
    trained = {m: [one.round(6).tolist() for one in some] for m, some in found.trained.items()}
    written(TRAINED, {"command": PROMPT, "trained": trained})


def _made(heading: str, image: str, alt: str) -> GalleryFigure:
    return GalleryFigure(heading, image, alt, (FROM_COMMANDS[image].command,))


SWEEP = "headcount sweep examples/head_count.toml --device cuda"
DOCS = "make docs"
GALLERY = (
    GalleryFigure("The knee of a study", "head_count.svg", "NMSE against heads at five lengths",
                  (SWEEP, "headcount report runs/head-count")),
    GalleryFigure("The grid of a study", "gallery_heat.svg", "NMSE for every length and number of heads",
                  (SWEEP, "headcount report runs/head-count")),
    GalleryFigure("A measurement of your data", "gallery_measure.svg", "Error against heads, beside what needs none",
                  (MEASURE,), "page_measure.html"),
    GalleryFigure("Many measurements of planted data", "measure_heads.svg", "Error against heads on planted sets",
                  ("python -m studies.measure.bench", DOCS)),
    _made("Where a network attends", "gallery_attention.svg",
          "How often each head looks at what each retrieval finds"),
    _made("What flows where", "gallery_flow.svg", "The plan of a prediction as a picture"),
    _made("Two sequences that too few heads confuse", "gallery_collide.svg", "Two sequences and their attention"),
    GalleryFigure("A next token split over its text", "lens_smollm2.svg",
                  "What each attention layer takes from each token", (views.COMMANDS["smollm2"],),
                  "page_lens_smollm2.html"),
    GalleryFigure("A similarity split over a sentence", "lens_minilm.svg",
                  "What each attention layer takes from each token", (views.COMMANDS["minilm"],),
                  "page_lens_minilm.html"),
    GalleryFigure("Masking what a map points at", "lens_masking.svg", "Change of the output as tokens are masked",
                  ("python -m studies.lens.masking", DOCS)),
    GalleryFigure("An encoder made smaller", "shrink_minilm.svg", "Quality against what is kept",
                  ("python -m studies.shrink_minilm", DOCS)),
    GalleryFigure("Methods that make a language model smaller", "compress_methods.svg",
                  "Loss against bytes, method by method", ("python -m studies.language_model run", DOCS)),
    GalleryFigure("How many heads for a real model", "shape_evidence.svg", "Losses of shapes of equal size",
                  ("headcount shape 135M --context 8192 --evidence --out shape",), "shape.html"),
    _made("A filter, deep", "gallery_deepen.svg", "The entries of a system by depth"),
    GalleryFigure("What few bits cost", "speech_filter.svg", "What few bits cost, form by form",
                  ("python examples/speech_filter.py ARCHIVE", DOCS)),
    _made("Memorised exactly", "gallery_interpolate.svg", "How far apart the keys of memorised sequences are"),
    _made("The attention of least norm", "gallery_margin.svg", "Singular values of the two max-margin solutions"),
    GalleryFigure("What no prompt can do", "gallery_prompt.svg", "The strip that prompts can reach", (PROMPT,)),
    GalleryFigure("Induction heads in three stages", "induction.svg", "Three stages of training",
                  ("python -m studies.induction.study --long", DOCS), "induction.html"),
    _made("The best learning rate", "gallery_rates.svg", "Loss against the rate, and the parabolas through it"),
    GalleryFigure("How fast", "bank_speed.svg", "Networks trained a second by backend",
                  ("python -m benchmarks.bank_speed", DOCS)),
)  # fmt: skip

ABOUT = """\
# Gallery

Every kind of figure, with the command that made it. All are drawn by one kit, without a script, right on a light and \
on a dark ground; `headcount report RUN --figure pdf` gives them for paper. Files in small letters (`system.json`) \
lie in `docs/formats`: commands with one can be run there as they stand, and `make docs` does so."""


def page() -> str:
    """docs/gallery.md."""
    parts = [ABOUT]
    for one in GALLERY:
        commands = "\n".join(one.commands)
        parts += [f"## {one.heading}", f"```text\n{commands}\n```", f"![{one.alt}](images/{one.image})"]
        parts += [f"[The whole page]({one.whole})"] if one.whole else []
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    record_prompts()
