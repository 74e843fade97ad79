"""What studies share: where their files lie, JSON that several runs add to, a part of a page between two marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.files import write_text

if TYPE_CHECKING:
    from headcount.training import Recipe

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DATA = DOCS / "data"


def of_steps(wanted: int, samples: int, batch: int, validation: int) -> Recipe:
    """The recipe of about so many steps over a fixed set of samples."""
    from headcount.training import Recipe

    epochs = max(1, wanted // (samples // batch))
    return Recipe(samples=samples, validation=validation, epochs=epochs, batch=batch, evaluations=min(epochs, 16))


def stored(path: Path) -> dict[str, Any]:
    """What earlier runs wrote; nothing where there is no file yet."""
    return json.loads(path.read_text()) if path.is_file() else {}


def written(path: Path, data: Any) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def between(page: str, mark: str, text: str) -> str:
    """A page with the part between `<!-- mark -->` and `<!-- /mark -->` written anew.

    >>> between("a <!-- b --> old <!-- /b --> c", "b", "new")
    'a <!-- b -->\\nnew\\n<!-- /b --> c'
    """
    before, _, rest = page.partition(f"<!-- {mark} -->")
    return f"{before}<!-- {mark} -->\n{text}\n<!-- /{mark} -->{rest.partition(f'<!-- /{mark} -->')[2]}"
