"""The first look: how many heads does a task with three retrievals need? Measured in minutes, shown on a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headcount.files import write_text
from headcount.fits import Knee, knee, predicted_heads
from headcount.papers.head_count.lookup_words import one_head_each
from headcount.report import write
from headcount.results import Store, Study
from headcount.results.study import Row
from headcount.training.progress import OnProgress, silent
from headcount.training.spec import Sweep
from headcount.training.sweeps import run

# Small enough for two cores in three minutes, large enough that the third head matters a hundredfold.
SPEC = """\
name = "first look"
seeds = 4

[task]
name = "LinearMax"      # y = sum of 3 maxima: one head can hold one of them
retrievals = 3
token_dim = 2

[grid]
lengths = [8, 16]
heads = [1, 2, 3, 4, 5]
head_dim = 4
width = 16

[training]
samples = 2000
validation = 500
epochs = 150
batch = 100
lr = 1e-2
"""


@dataclass(frozen=True)
class FirstLook:
    """The measured study, its knee, and its page and picture by the name of their files."""

    study: Study
    knee: Knee
    pages: dict[str, str]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the study."""
        return self.study.rows

    @property
    def sentence(self) -> str:
        """What the knee says."""
        return self.knee.sentence

    def files(self, out: Path) -> list[Path]:
        """The page and the picture."""
        return [write_text(out / name, text) for name, text in self.pages.items()]

    def _repr_html_(self) -> str:
        return self.knee._repr_html_()


def first_look(folder: str | Path, *, device: str = "cpu", on_progress: OnProgress = silent) -> FirstLook:
    """Train the demo's networks, keeping the rows in `folder`, and explain what they say."""
    study = run(Sweep.from_toml(SPEC), Store.open(folder, create=True), device=device, on_progress=on_progress)
    return FirstLook(
        study, knee(study), write(study, command="headcount demo", because=one_head_each(predicted_heads(study)))
    )
