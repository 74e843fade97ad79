"""A reproduction as a value, how it is run, and the small JSON file it leaves behind."""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headcount.files import text_in
from headcount.numerals import today
from headcount.results.literature import Cells, Published


@dataclass(frozen=True)
class Setting:
    """How a reproduction is run.

    `quick` means the smaller version; `data` is where data sets lie; `folder` keeps rows of unfinished runs;
    `seconds` is the device time a run that can be cut may use (None: as long as its full size takes).
    """

    device: str = "cpu"
    quick: bool = False
    data: Path | None = None
    folder: Path = Path("runs/reproduce")
    seconds: float | None = None


@dataclass(frozen=True)
class Stated:
    """A published statement without numbers, what was measured, and whether it holds there.

    `statement` says whose it is: a reading of ours that fails refutes nobody.
    """

    says: str
    ours: str
    holds: bool
    statement: Literal["theirs", "ours"] = "theirs"


@dataclass(frozen=True)
class Measured:
    """What a run found: cells by the title of their table, statements, and the set-up in words and numbers.

    `tables` may hold more than the paper printed: those come on the page without a verdict. `reduced` says in what a
    run was smaller than the published one; it is empty where nothing was.
    """

    tables: Mapping[str, Cells] = field(default_factory=dict)
    claims: tuple[Stated, ...] = ()
    setup: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reduced: str = ""

    @property
    def kept(self) -> str:
        """What of the seeds a cell holds, where it is not every seed; empty where it is."""
        return str(self.setup.get("values", ""))

    @property
    def remarks(self) -> list[str]:
        """The notes, after a sentence on what was smaller where something was."""
        return [*([f"smaller than published: {self.reduced}"] if self.reduced else []), *self.notes]


@dataclass(frozen=True)
class Reproduction:
    """One table or figure: what the paper prints, how it is made again, and what was left open and chosen.

    `changed` is what was changed after ours had been looked at, of the recipe, the reading or the rule. `times` are
    measured or estimated, as (quick on two cores, full on CPU, full on one GPU). What is `computed`, not trained, has
    no smaller version: a quick run of it is the same.
    """

    name: str
    says: str
    run: Callable[[Setting], Measured]
    published: tuple[Published, ...] = ()
    chosen: str = ""
    varied: str = ""
    times: tuple[str, str, str] = ("seconds", "seconds", "seconds")
    needs: str = ""
    computed: bool = False
    changed: str = ""

    @property
    def paper(self) -> str:
        """The part of the name before the colon."""
        return self.name.split(":")[0]

    def file(self, *, quick: bool) -> str:
        """The name of its result file."""
        return self.name.replace(":", "_") + (".quick.json" if quick and not self.computed else ".json")

    def measure(self, setting: Setting) -> Record:
        """Run it, and say when, where and how."""
        start = time.perf_counter()
        measured = self.run(setting)
        return Record(
            name=self.name,
            quick=setting.quick and not self.computed,
            date=today(),
            device=device_name(setting.device),
            command=self.command(setting),
            seconds=round(time.perf_counter() - start, 1),
            measured=measured,
        )

    def command(self, setting: Setting) -> str:
        """The command that makes it again."""
        words = ["headcount reproduce", self.name]
        words += ["--quick"] * (setting.quick and not self.computed) + [f"--device {setting.device}"] * (
            setting.device != "cpu"
        )
        words += ["--data DIR"] * bool(self.needs)
        words += [] if setting.seconds is None else [f"--budget {setting.seconds:.0f}"]
        return " ".join(words)


@dataclass(frozen=True)
class Record:
    """A finished run, as its JSON file keeps it: every seed's value, so that pages can be drawn again without it."""

    name: str
    quick: bool
    date: str
    device: str
    command: str
    seconds: float
    measured: Measured

    def to_json(self) -> str:
        """The record as JSON text, a line for each cell."""
        measured = self.measured
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "measured"}
        content |= {"setup": dict(measured.setup), "reduced": measured.reduced, "notes": list(measured.notes)}
        content["claims"] = [dataclasses.asdict(claim) for claim in measured.claims]
        head = json.dumps(content, indent=1, default=str)[:-2]
        tables = [f"  {json.dumps(title)}: [\n{_lines(cells)}\n  ]" for title, cells in measured.tables.items()]
        return head + ',\n "tables": {\n' + ",\n".join(tables) + "\n }\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record that `to_json` wrote."""
        content = json.loads(text)
        if not isinstance(content, dict) or not {"name", "quick", "device", "tables"} <= set(content):
            raise ValueError("this JSON is no result of `headcount reproduce`: it lacks name, quick, device or tables")
        tables = {
            title: {(cell["row"], cell["column"]): tuple(cell["values"]) for cell in cells}
            for title, cells in content["tables"].items()
        }
        claims = tuple(Stated(**claim) for claim in content.get("claims", []))
        notes = tuple(content.get("notes", []))
        measured = Measured(tables, claims, content.get("setup", {}), notes, content.get("reduced", ""))
        plain = {f.name: content[f.name] for f in dataclasses.fields(cls) if f.name != "measured"}
        return cls(**plain, measured=measured)

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a file."""
        try:
            return cls.from_json(text_in(path))
        except (ValueError, KeyError, TypeError) as problem:
            raise ValueError(f"{path}: {problem}") from None


def device_name(device: str) -> str:
    """The device in words, as the page shows it."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name()
    return f"CPU ({platform.machine()})"


def _lines(cells: Cells) -> str:
    return ",\n".join(
        "   " + json.dumps({"row": row, "column": column, "values": [_short(v) for v in values]})
        for (row, column), values in cells.items()
    )


def _short(value: float) -> float:
    return float(f"{value:.5g}")
