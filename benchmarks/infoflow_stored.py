"""What the InfoFlow benchmarks share: a recipe of so many steps, and JSON files that several runs add to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headcount.reproduction.runner import keep
from headcount.training import Recipe

__all__ = ["of_steps", "stored", "today", "written"]


def of_steps(wanted: int, samples: int, batch: int, validation: int) -> Recipe:
    """The recipe of about so many steps over a fixed set of samples."""
    epochs = max(1, wanted // (samples // batch))
    return Recipe(samples=samples, validation=validation, epochs=epochs, batch=batch, evaluations=min(epochs, 16))


def stored(path: Path) -> dict[str, Any]:
    """What earlier runs wrote; nothing where there is no file yet."""
    return json.loads(path.read_text()) if path.is_file() else {}


def written(path: Path, data: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    keep(path, json.dumps(data, indent=1) + "\n")


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"
