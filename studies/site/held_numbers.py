"""Numbers in pages that are written by hand: each stands between two marks and comes from a record of docs/data.

A page says `<!--=key-->979<!--/-->`; `make docs` writes what is between the marks anew, and says if it changed. A test
asks that no other number stands on a paper's page than those of the theory, which STATED lists.
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import headcount as hc
from headcount.papers.born.published import SEEDS
from headcount.papers.lr_law.published import PUBLISHED
from headcount.reproduction import read_records
from headcount.results import read_study
from headcount.results.record import Record
from studies.measure.page import besides, longest_of, time_of
from studies.site.gallery import MEASURE, measurement

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs/data"
MARK = re.compile(r"<!--=([\w-]+)-->(.*?)<!--/-->", flags=re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)", flags=re.DOTALL | re.MULTILINE)
PAIRS = "gaussian, width 256, linear embedding, gelu"


def filled(text: str, values: Mapping[str, Callable[[], str]]) -> str:
    """The text with what stands between marks written anew.

    >>> filled("a <!--=n-->1<!--/--> b", {"n": lambda: "2"})
    'a <!--=n-->2<!--/--> b'
    """
    return MARK.sub(lambda m: f"<!--={m[1]}-->{values[m[1]]()}<!--/-->", text)


def unheld(text: str, stated: tuple[str, ...] = ()) -> list[str]:
    """The numbers of a page that stand outside marks, code and what the theory states.

    >>> unheld("<!--=n-->1<!--/--> of 7, `f(3)` by Theorem 2", ("Theorem 2",))
    ['7']
    """
    plain = CODE.sub(" ", MARK.sub(" ", text))
    for phrase in sorted(stated, key=len, reverse=True):
        plain = plain.replace(phrase, " ")
    return re.findall(r"(?<![A-Za-z\d.])\d(?:[\d.,]*\d)?", plain)


@cache
def _records() -> dict[str, Record]:
    return read_records(DATA / "reproduction")


@cache
def _data(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def _ours(name: str, says: str) -> str:
    """What was measured for the statement of a record that begins so."""
    (claim,) = [c for c in _records()[name].measured.claims if c.says.startswith(says)]
    return claim.ours


def _held(name: str) -> str:
    """How many statements of a record hold in what was measured."""
    claims = _records()[name].measured.claims
    return f"{sum(c.holds for c in claims)} of {len(claims)}"


def _cells(name: str, table: str, column: Any) -> dict[Any, Sequence[float]]:
    """The values of a table's column by row."""
    return {row: values for (row, at), values in _records()[name].measured.tables[table].items() if at == column}


def _knee() -> str:
    knee = hc.knee(read_study(DATA / "head_count.json"))
    return f"{knee.value:g} heads, with a 95% interval of [{knee.low:g}, {knee.high:g}]"


def _bound_at_published_sizes() -> str:
    sizes = [hc.head_count.few_heads_exponent(length=t, retrievals=4, heads=3, head_dim=8) for t in (8, 32, 128)]
    largest = max(bound.value for bound in sizes)
    return "says nothing" if largest <= 0 else f"says at most eps^-{largest:.2g}"


def _pair_factor(retrievals: int) -> str:
    rows = [row for row in _data("pair_table")[PAIRS]["rows"] if row["retrievals"] == retrievals]
    (full,) = [row["best"] for row in rows if row["cell"].endswith("(D,D)")]
    return f"{min(row['best'] for row in rows if row['best'] is not full) / full:.3g}"


def _families(taken: bool) -> str:
    return str(sum(("refused" not in row) == taken for row in _data("lens_families")["rows"]))


def _memorised(what: str) -> str:
    (row,) = [r for r in _data("hardmax")["rows"] if r["data"] == "digits" and r["sequences"] == 500]
    return f"{row[what]:,}"


def _blocks() -> str:
    built, stated = (_cells("hardmax:exact", "blocks", column) for column in ("built", "stated"))
    sets = [row for row in built if row.startswith("(")]
    return " against ".join(", ".join(f"{cells[row][0]:g}" for row in sets) for cells in (built, stated))


def _copies(name: str) -> str:
    """The median share of strings copied right at lengths 51 to 100, and the published one."""
    cells = _cells("born:from-scratch", "from scratch, trained on lengths to 50", "51-100")
    return f"{statistics.median(cells[name]):.3f} against {SEEDS[name][0][0]:.3f}"


def _planted(name: str) -> str:
    """The least and the largest over planted studies."""
    values = [kind[name] for kind in _data("lr_planted")["kinds"].values()]
    low, high = sorted((min(values), max(values)), key=abs)
    return f"{low} to {high}" if name in ("parameters", "steps") else f"{low:.2f} to {high:.2f}"


def _decay(row: str) -> str:
    value, low, high = (_cells("consistency:smoother", "decay exponents", c)[row][0] for c in ("decay", "low", "high"))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


HELD: dict[str, dict[str, Callable[[], str]]] = {
    "head_count": {
        "networks": lambda: str(len(read_study(DATA / "head_count.json").rows)),
        "knee": _knee,
        "bound": _bound_at_published_sizes,
    },
    "infoflow": {
        "two": partial(_pair_factor, 2),
        "six": partial(_pair_factor, 6),
        "probes": partial(_held, "infoflow:probes"),
    },
    "allocation": {
        "range": partial(_ours, "allocation:jacobian", "the logits are bounded"),
        "norm": partial(_ours, "allocation:jacobian", "the norm decreases"),
        "best": partial(_ours, "allocation:4-gram", "the best number"),
        "student": partial(_ours, "allocation:one-head", "a student"),
    },
    "ssm": {
        "sizes": partial(_ours, "ssm:norms", "depth l and width m"),
        "same": partial(_ours, "ssm:norms", "the deep system"),
        "students": partial(_ours, "ssm:learning", "at about equal parameters"),
    },
    "tensor_lens": {
        "taken": partial(_families, True),
        "families": lambda: str(len(_data("lens_families")["rows"])),
        "refused": partial(_families, False),
    },
    "hardmax": {
        "gap": partial(_ours, "hardmax:exact", "sequences are interpolated"),
        "digits": partial(_memorised, "sequences"),
        "layers": partial(_memorised, "layers"),
        "others": lambda: f"{_data('hardmax')['held_out_accuracy_of_500']:.0%}",
        "blocks": _blocks,
        "slope": partial(_ours, "hardmax:decay", "the loss falls"),
    },
    "attention_svm": {
        "frobenius": partial(_ours, "attention-svm:directions", "training W"),
        "nuclear": partial(_ours, "attention-svm:directions", "training K"),
        "others": partial(_ours, "attention-svm:feasibility", "where the best"),
    },
    "induction": {
        "selected": partial(_ours, "induction:selection", "training selects"),
        "third": partial(_ours, "induction:curve", "only heads"),
    },
    "born": {
        "forward": partial(_copies, "UF"),
        "backward": partial(_copies, "UB"),
        "reduced": lambda: _records()["born:from-scratch"].measured.reduced,
    },
    "prompts": {
        "floors": partial(_ours, "prompts:floors", "there are two"),
        "update": partial(_ours, "prompts:numbers", "a low-rank"),
    },
    "lr_law": {
        "parameters": lambda: f"{PUBLISHED.parameters:g}",
        "steps": lambda: f"{PUBLISHED.steps:g}",
        "planted": lambda: f"{_data('lr_planted')['planted']['steps']:g}",
        "extrapolated": partial(_planted, "extrapolated_median_steps"),
        "studies": lambda: str(min(kind["studies"] for kind in _data("lr_planted")["kinds"].values())),
        "covered-parameters": partial(_planted, "parameters"),
        "covered-steps": partial(_planted, "steps"),
    },
    "icl": {
        "slopes": partial(_ours, "icl:descent", "the error is a power law"),
        "step": partial(_ours, "icl:descent", "a step of"),
        "rotated": partial(_ours, "icl:descent", "depth helps"),
    },
    "consistency": {"decay": partial(_decay, "d = 1, noise 1, beta = t^0.667")},
}

# Numbers that belong to the theory or to the question, and not to a measurement.
STATED: dict[str, tuple[str, ...]] = {
    "head_count": ("Theorem 2(1)", "Theorem 2(2)", "Theorem 2(3)", "heads of dimension 2", "power of 1/eps",
                   "gate of 1", "gate of 2", "heads of dimension 8, lengths up to 128", "Conjecture 1",
                   "serve 3 h retrievals", "Tables 2 to 5", "CIFAR-10"),
    "infoflow": ("power of 1/eps", "at D = 2", "at D = 6", "2 ceil(log2 T)"),
    "attention_svm": ("as rank 1",),
    "allocation": ("The 4-gram", "like 1/length", "to 0.1 in total variation"),
    "ssm": ("c_1", "2 c_1^(2/(l+1))", "Theorem 4.2", "l(m-1)+1", "Theorem 4.1", "2^((l-1)/(l+1))"),
    "born": ("lengths 51 to 100",),
    "lr_law": ("95 of 100",),
    "icl": ("1/sqrt(L d)", "b = 2a"),
    "consistency": ("t^(-1/(2d))", "d = 1", "says 0.5", "allow 1/3"),
}  # fmt: skip


def page(name: str) -> str:
    """A paper's page with its numbers written anew."""
    return filled((ROOT / f"docs/papers/{name}.md").read_text(encoding="utf-8"), HELD[name])


def _example() -> str:
    advice = measurement().answer.advice
    text = f"- 1,200 made-up sequences whose target is the sum of two maxima (`{MEASURE}`): *{advice}*"
    return "\n" + textwrap.fill(text, 132, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _digits() -> str:
    row = longest_of(_data("measure_bench"))["digits"]
    text = f"- The 1,797 digits of scikit-learn, a row of pixels per token, in {time_of(row)}: *{row['advice']}*"
    return "\n" + textwrap.fill(text, 132, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _right(form: str) -> str:
    """In how many planted sets of a form the verdict is right; that it cannot be said yet counts as not right."""
    rows = [row for row in _data("measure_bench") if row["form"] == form and row.get("worth") is not None]
    right = sum(row["verdict"] == ("worth it" if row["worth"] else "not worth it") for row in rows)
    return f"{right} of {len(rows)}"


def _unsure() -> str:
    """On how many real sets it cannot be said yet."""
    rows = longest_of(_data("measure_bench")).values()
    return f"{sum(row['verdict'] == 'cannot say yet' for row in rows)} of {len(rows)}"


@cache
def _standings() -> list[str]:
    """How the error at the same blocks stands beside the plain encoder's, for every real set."""
    return [one.standing for one in besides(_data("measure_bench")).values() if one is not None]


README_HELD: dict[str, Callable[[], str]] = {
    "example": _example,
    "digits": _digits,
    "planted": partial(_right, "quick"),
    "again": partial(_right, "quick, draw 1"),
    "unsure": _unsure,
    "no-worse": lambda: str(_standings().count("no worse")),
    "wide": lambda: str(_standings().count("wide")),
    "worse": lambda: str(_standings().count("worse")),
}


def readme() -> str:
    """The README with its numbers written anew."""
    return filled((ROOT / "README.md").read_text(encoding="utf-8"), README_HELD)
