"""What the fuzz types: a command with the files that stand beside it, all of it determined by a number."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headcount.cli.door import command_line
from headcount.tasks.catalogue import SHIPPED
from tests.faults.fuzz_pool import mutated_spec, spoil_file, spoil_folder
from tests.faults.fuzz_sweeps import leave_store, sweep_words

__all__ = ["KINDS", "Case", "case_of"]

KINDS = ("specs", "arguments", "files", "folders", "sweeps")
FILES = {  # which kinds of file a command reads as its first argument, or after an option
    "sweep": ("SPEC",), "runs list": ("STORE",), "runs export": ("STORE", "STUDY"),
    "fit": ("STORE", "STUDY", "MEASURED"), "report": ("STORE", "STUDY", "MEASURED"), "measure": ("DATA", "TABLE"),
    "apply": ("MODEL",), "theory interpolate": ("LABELS", "DATA"), "theory margin": ("SELECTION",),
    "theory prompt": ("PROMPT",), "saturation": ("BERT", "GPT2"), "compress": ("BERT", "GPT2"),
    "lens": ("BERT", "GPT2"), "runs verify": ("STORE",), "runs repair": ("STORE",), "runs merge": ("STORE",),
    "ssm deepen": ("SYSTEM",), "ssm flatten": ("SYSTEM",), "ssm table": ("SYSTEM",), "ssm quantise": ("SYSTEM",),
}  # fmt: skip
TASKS = [task.__name__ for task in SHIPPED]
OPTIONS = {"--net": ("BUILT", "NET", "MEMORY"), "--text": ("TEXT",)}
SMALL = ("--steps 20", "--epochs 1", "--heads 2", "--starts 1", "--samples 1", "--lengths 8", "--seeds 2", "--json",
         "--measure weights", "--length 8", "--retrievals 2", "--depth 2", "--passages 2")  # fmt: skip
ODD_TEXT = (
    "nan inf -1 0 1 2 3 2.5 1e9 1e-9 1e400 99999999999999999999 -9223372036854775809 x 1,2 1x4 2x8,1x4 0x0 1-3 3-1 - "
    "--nothing a=b length=4 rank=0 retrievals=2 ../x /dev/null /dev/full /proc/self/mem nowhere cpu cuda cuda:99 meta "
    "frobenius nuclear latex svg pdf png 5m 0s all best weights outputs true None 1e-3 07 ½"
)
ODD_WORDS = [*ODD_TEXT.split(), "", " ", "\udcff", "\x1b[31m", "a\nb", "n" * 300]


@dataclass(frozen=True)
class Case:
    """What is typed, and the files that stand in the folder where it is typed."""

    kind: str
    words: tuple[str, ...]


def case_of(number: int, pool: dict[str, Path], where: Path) -> Case:
    """The case of this number, its files laid out in the folder `where`."""
    rng, commands = random.Random(number), parameters_by_command()
    kind = KINDS[rng.randrange(len(KINDS))]
    if kind == "specs":
        (where / "x.toml").write_text(mutated_spec(rng), encoding="utf-8")
        return Case(kind, ("sweep", "x.toml", "--store", "s"))
    if kind == "sweeps":
        leave_store(rng, pool["STORE"], where)
        return Case(kind, sweep_words(rng, where))
    if kind == "arguments":
        return Case(kind, tuple(_arguments(rng, pool, commands, where)))
    return Case(kind, tuple(_spoilt(rng, pool, where, kind)))


def _arguments(rng: random.Random, pool: dict[str, Path], commands: dict[str, list[Any]], where: Path) -> Iterator[str]:
    """A command with arguments and options of its own, their values sensible or odd."""
    name = rng.choice(list(commands))
    yield from name.split()
    for parameter in commands[name]:
        if parameter.param_type_name == "argument":
            if parameter.required or rng.random() < 0.7:
                yield _argument(rng, name, pool, where)
        elif rng.random() < 0.3:
            yield parameter.opts[0]
            if not isinstance(parameter.default, bool):
                yield _value(rng, parameter, pool, where)
    if rng.random() < 0.1:
        yield rng.choice(ODD_WORDS)


def _argument(rng: random.Random, name: str, pool: dict[str, Path], where: Path) -> str:
    if rng.random() < 0.15:
        return rng.choice(ODD_WORDS)
    if name in FILES:
        return _placed(rng.choice(FILES[name]), pool, where)
    return rng.choice(TASKS) if rng.random() < 0.8 else rng.choice(ODD_WORDS)


def _value(rng: random.Random, parameter: Any, pool: dict[str, Path], where: Path) -> str:
    option = parameter.opts[0]
    if option in OPTIONS and rng.random() < 0.8:
        return _placed(rng.choice(OPTIONS[option]), pool, where)
    if option == "--out" and rng.random() < 0.8:
        return "out"
    if rng.random() < 0.4 and parameter.default is not None:
        return str(parameter.default)
    return rng.choice(("1", "2", "3", "8", "0.5")) if rng.random() < 0.5 else rng.choice(ODD_WORDS)


def _spoilt(rng: random.Random, pool: dict[str, Path], where: Path, kind: str) -> Iterator[str]:
    """A command that reads a file (or a folder), which is spoilt, with a few sensible options."""
    readers = [(name, word) for name, words in FILES.items() for word in words]
    readers += [("collide --net", "BUILT"), ("probe LinearMax --net", "NET"), ("interpolate LABELS --net", "MEMORY")]
    readers += [("apply MODEL", "DATA"), ("apply MODEL", "TABLE")]
    wanted = [(name, word) for name, word in readers if word in pool and pool[word].is_dir() == (kind == "folders")]
    name, word = rng.choice(wanted)
    path = where / _placed(word, pool, where)
    (spoil_folder if path.is_dir() else spoil_file)(rng, path)
    yield from (_placed(part, pool, where) if part in pool else part for part in name.split())
    yield path.name
    if name == "apply":
        yield _placed("DATA", pool, where)
    for option in rng.sample(SMALL, 3):
        if _takes(name, option.split()[0]):
            yield from option.split()


def _placed(word: str, pool: dict[str, Path], where: Path) -> str:
    """A copy of a sound file in the folder of the case; its name."""
    if word not in pool:
        return word
    source = pool[word]
    target = where / f"{word.lower()}{source.suffix}"
    if not target.exists():
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    return target.name


def _takes(name: str, option: str) -> bool:
    commands = parameters_by_command()
    known = next((commands[n] for n in (name, name.split()[0]) if n in commands), [])
    return any(option in parameter.opts for parameter in known)


@cache
def parameters_by_command() -> dict[str, list[Any]]:
    """Every command's parameters, by its name with those of the groups it is in."""
    return dict(_commands(command_line()))


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, list[Any]]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", list(command.params)
