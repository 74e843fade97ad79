"""Names that load their module when first used, so that what needs no torch never imports it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headcount.refusals import missing_package


def lazily(
    package: str, where: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A module's `__getattr__` and `__dir__`: `where` says which names each of its modules holds.

    `modules` are names that stand for whole modules, by their path below the package.

    The same names stand under `TYPE_CHECKING` beside the call, so that editors and checkers know their types.

    >>> find, _ = lazily("headcount.results", {"bound": ("Bound",)})
    >>> find("Bound").__name__
    'Bound'
    >>> find("Bund")
    Traceback (most recent call last):
    ...
    AttributeError: module 'headcount.results' has no attribute 'Bund'
    """
    home = {name: module for module, names in where.items() for name in names}
    by_name = {module.rpartition(".")[2]: module for module in modules}

    def find(name: str) -> Any:
        if name in by_name:
            return _imported(f"{package}.{by_name[name]}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = home[name] if home[name].startswith("headcount.") else f"{package}.{home[name]}"
        value = getattr(_imported(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*home, *by_name, *vars(sys.modules[package])})


def _imported(module: str) -> Any:
    """The module; where it needs a package that is not installed, the error names the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", "headcount"):
            raise
        raise ModuleNotFoundError(missing_package(package), name=missing.name) from None
