"""What there is to choose from, as it was when the package was made: read in a moment, where asking would load torch.

`make docs` writes the files; a test holds that they are what the tasks and reproductions say of themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["known_reproductions", "listed"]


def listed(kind: str) -> list[dict[str, Any]]:
    """The rows of `tasks` or `reproductions`.

    >>> listed("tasks")[0]["task"], listed("reproductions")[0]["name"]
    ('LinearMax', 'head-count:table-2')
    """
    return json.loads((Path(__file__).parent / f"{kind}.json").read_text(encoding="utf-8"))


def known_reproductions(out: Path) -> list[dict[str, Any]]:
    """Every reproduction: what it makes again, what it takes, and whether `out` holds a result of it.

    >>> known_reproductions(Path("nowhere"))[0]["done"]
    False
    """
    rows = [(row.pop("files"), row) for row in listed("reproductions")]
    return [{**row, "done": any((out / file).exists() for file in files)} for files, row in rows]
