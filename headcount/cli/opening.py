"""How commands open a study: which spec is meant, and what of it is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headcount.cli.printing import warn
from headcount.numerals import counted

if TYPE_CHECKING:
    from headcount.results import Study


def opened(run: Path, spec: str | None) -> Study:
    """The study of a folder or file, of the spec that is meant; a line on stderr where rows are damaged."""
    from headcount.results import read_study

    study = read_study(run, one_spec(run, spec))
    tell_damaged(run, study)
    return study


def folder_of(run: Path, out: Path | None) -> Path:
    """Where files about a study go: beside it, unless said otherwise."""
    return out or (run if run.is_dir() else run.parent)


def tell_damaged(run: Path, study: Study) -> None:
    """Where rows are left out because they are not as they were written, say on stderr how many and what mends it."""
    if run.suffix != ".json" and (damaged := study.spec.get("damaged", 0)):
        message = f"{counted(damaged, 'damaged row')} of {run} left out; `headcount runs verify` names what is damaged"
        warn(f"{message}, and the same sweep trains it again")


def one_spec(run: Path, spec: str | None) -> str | None:
    """The address of the spec that is meant, the same from now on; where a store holds several, which is asked.

    Specs of one name are versions of one, of which the latest is meant, with a line; one named "NAME, part" is a part
    of NAME, as a search for rates makes them.
    """
    from headcount.refusals import RefusalError
    from headcount.results import Store
    from headcount.results.snapshot import chosen

    if run.suffix == ".json":
        return spec
    store = Store.open(run)
    specs = store.specs()
    if spec is not None or not specs:
        return chosen(specs, spec, store.path).content
    names = list(dict.fromkeys(s.name for s in specs))
    names = [name for name in names if name.rpartition(", ")[0] not in names]
    if len(names) > 1:
        which = ", ".join(names) if len(names) < 7 else f"{', '.join(names[:6])} and {len(names) - 6} more"
        raise RefusalError(f"{run} holds several specs; say which is meant: --spec with one of {which}")
    same = [s for s in specs if s.name == names[0]]
    if len(same) > 1:
        others = ", ".join(s.label for s in same[:-1][-3:])
        warn(f"shown is {same[-1].label}, stated last; {run} also holds {others} (--spec)")
    return same[-1].content
