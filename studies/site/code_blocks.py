"""The blocks of code on a page of Markdown, and the commands in them."""

from __future__ import annotations

import re
from typing import NamedTuple

FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
CALL = re.compile(r"(?:\$ )?((?:headcount|make|python|pip|pipx) [-a-z.'].*?)(?:\s{2,}#.*)?")


class CodeBlock(NamedTuple):
    """A block between fences: the file it stands in, what its first fence says, and its text."""

    page: str
    language: str
    text: str

    @property
    def calls(self) -> list[str]:
        """The commands of a block for the shell; none where a line of it is no command.

        >>> CodeBlock("a.md", "text", "$ headcount doctor   # what there is\\n\\nmake site\\n").calls
        ['headcount doctor', 'make site']
        >>> CodeBlock("a.md", "text", "headcount doctor\\nand so on\\n").calls
        []
        """
        if self.language not in ("", "text"):
            return []
        found = [CALL.fullmatch(line) for line in self.text.splitlines() if line.strip()]
        return [one[1] for one in found if one] if all(found) else []


def blocks_of(text: str, page: str = "") -> list[CodeBlock]:
    """Every fenced block, in order.

    >>> [block.language for block in blocks_of("# A\\n\\n```python\\n1 + 1\\n```\\n\\n```\\nmake site\\n```\\n")]
    ['python', '']
    """
    return [CodeBlock(page, *found) for found in FENCED.findall(text)]


def without_blocks(text: str) -> str:
    """The sentences alone."""
    return FENCED.sub("", text)
