"""The sets of the bench: planted ones with their truth, real ones with their terms, and which of them are here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headcount.measuring import Sequences
from studies.measure import planted, real


@dataclass(frozen=True)
class BenchSet:
    """A data set; `worth` and `heads` are the truth where it is known, `terms` those under which it may be used.

    `file` is where it lies in a folder of data, empty where it is drawn or travels inside a wheel.
    """

    name: str
    make: Callable[..., Sequences]
    worth: bool | None = None
    heads: int | None = None
    terms: str = "drawn here"
    file: str = ""


PLANTED = (
    BenchSet("mean only", partial(planted.look_ups, 0), False),
    BenchSet("1 look-up", partial(planted.look_ups, 1), True, 1),
    BenchSet("2 look-ups", partial(planted.look_ups, 2), True, 2),
    BenchSet("3 look-ups", partial(planted.look_ups, 3), True, 3),
    BenchSet("4 look-ups", partial(planted.look_ups, 4, 6000), True, 4),
    BenchSet("squared mean", planted.squared_mean, False),
    BenchSet("log mean exp", planted.log_mean_exp, False),
    BenchSet("one position", planted.one_position, False),
    BenchSet("order only", planted.order_only, False),
    BenchSet("count of a letter", planted.count_of_a_letter, False),
    BenchSet("rare class", planted.rare_class, True, 1),
    BenchSet("noise", planted.noise, False),
)
UCI = "UCI Machine Learning Repository, CC BY 4.0, in scikit-learn's wheel"
AEON = "UCR and UEA archive, research, in aeon's wheel"
AEON_DATA = "aeon/datasets/data"  # inside the wheel
FROM_AEON = (
    "ACSF1", "ArrowHead", "BasicMotions", "CardanoSentiment", "GunPoint", "JapaneseVowels", "OSULeaf",
    "PickupGestureWiimoteZ",
)  # fmt: skip
REAL = (
    BenchSet("digits", real.digits, terms=UCI),
    BenchSet("breast cancer", real.breast_cancer, terms=UCI),
    BenchSet("wine", real.wine, terms=UCI),
    BenchSet("diabetes", real.diabetes, terms="Efron et al. (2004), in scikit-learn's wheel"),
    *(BenchSet(name, real.time_series, terms=AEON, file=f"{AEON_DATA}/{name}/{name}_TRAIN.ts") for name in FROM_AEON),
    BenchSet("FSDD", real.spoken_digits, terms="CC BY-SA 4.0", file="fsdd/fsdd_1200.npz"),
    BenchSet("MNIST rows", real.mnist_rows, terms="CC BY-SA 3.0", file="mnist/mnist_13k.npz"),
    BenchSet("ETTh1 windows", real.oil_temperature, terms="CC BY-ND 4.0", file="ett/ETTh1.csv"),
    BenchSet("tiny Shakespeare", real.next_vowel, terms="public domain", file="tinyshakespeare/input.txt"),
    BenchSet("WikiQA", real.questions, terms="research", file="wikiqa/wikiqa.json.gz"),
    BenchSet("PubMedQA", real.abstracts, terms="MIT", file="pubmedqa/pubmedqa_l.json.gz"),
)


def sets_at(folder: Path | None) -> tuple[list[BenchSet], list[str]]:
    """The sets that can be made here, and the names of those that are not there."""
    available: list[BenchSet] = list(PLANTED)
    absent = []
    for one in REAL:
        path = None if folder is None else folder / one.file
        if not one.file:
            available.append(one)
        elif path is not None and path.exists():
            available.append(replace(one, make=partial(one.make, path)))
        else:
            absent.append(one.name)
    return available, absent
