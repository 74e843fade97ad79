"""The source of a task of the user's own: part of every address, so that an edited task gets rows of its own."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType

from headcount.tasks.sourced import compiled_bytes

OURS = ("headcount", "builtins")
INSTALLED = ("site-packages", "dist-packages", Path(ast.__file__).parent.name)  # folders of libraries


@cache
def source_of(kind: type) -> str:
    """The hash of the files that define a class and its bases outside this package; empty for a task that ships.

    Modules that those files import from beside them are part of it, and what those import; installed packages are not.
    A class typed at a prompt is known by its compiled methods.

    >>> from headcount.tasks import KthLargest
    >>> source_of(KthLargest)
    ''
    """
    strangers = [base for base in kind.__mro__ if base.__module__.split(".")[0] not in OURS]
    strangers = [base for base in strangers if not base.__module__.startswith(("typing", "abc"))]
    parts = [_text(base) for base in strangers]
    parts += [file.read_bytes() for file in _imported(strangers)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16] if parts else ""


def _text(kind: type) -> bytes:
    try:
        return Path(inspect.getfile(kind)).read_bytes()
    except (OSError, TypeError):
        methods = [value for _, value in sorted(vars(kind).items()) if isinstance(value, FunctionType)]
        return b"\0".join(compiled_bytes(method.__code__) for method in methods)


# What a task imports from beside it ----------------------------------------------------------------------------------


def _imported(kinds: list[type]) -> list[Path]:
    """The files that the classes' own files import, and those import in turn, in the order of their names."""
    modules: dict[Path, str] = {}  # with the name of its module
    first = set()
    for kind in kinds:
        try:
            file = Path(inspect.getfile(kind)).resolve()
        except (OSError, TypeError):
            continue
        first.add(file)
        above = kind.__module__.count(".") + (file.name == "__init__.py")
        root = file.parents[min(above, len(file.parents) - 1)]
        if root.name not in INSTALLED:
            _follow(file, kind.__module__, root, modules)
    return sorted(set(modules) - first)


def _follow(file: Path, module: str, root: Path, modules: dict[Path, str]) -> None:
    waiting = [(file, module)]
    while waiting:
        file, module = waiting.pop()
        if file not in modules:
            modules[file] = module
            waiting += [(at, name) for name in _names(file, module) if (at := _file_of(name, root)) is not None]


def _names(file: Path, module: str) -> Iterator[str]:
    """The names of all modules that a file may import, wherever in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from _with_packages(base)
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _with_packages(name: str) -> list[str]:
    """A module and the packages it stands in.

    >>> _with_packages("a.b.c")
    ['a', 'a.b', 'a.b.c']
    """
    words = name.split(".")
    return [".".join(words[: n + 1]) for n in range(len(words))]


def _file_of(name: str, root: Path) -> Path | None:
    """The file of a module that stands under the task's own folder, unless it is part of this package."""
    if not name or name.split(".")[0] in OURS:
        return None
    place = root.joinpath(*name.split("."))
    for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if file.is_file():
            return file.resolve()
    return None
