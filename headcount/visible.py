"""Texts of strangers as people may see them: nothing in them steers a terminal, a page or a spreadsheet."""

from __future__ import annotations

from typing import Any

# Control characters but tab and newline, lone surrogates, and what turns or breaks the line that is read.
TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C, 0x2028, 0x2029, 0xFEFF)
HIDDEN = (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), *TURNING)
SPELT = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in HIDDEN}
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def visible(text: str) -> str:
    """The text with its control characters spelt out; tabs and ends of lines stay.

    >>> visible("a\\x1b]0;OWNED\\x07b"), visible("many\\nlines, naïve 文 ✓")
    ('a\\\\x1b]0;OWNED\\\\x07b', 'many\\nlines, naïve 文 ✓')
    """
    return text.translate(SPELT).encode("utf-8", "backslashreplace").decode()


def plain_cell(value: Any) -> Any:
    """A value for a table that a spreadsheet may open: a text that would be a formula begins with an apostrophe.

    >>> plain_cell("=1+1"), plain_cell(-1.5), plain_cell("4x8")
    ("'=1+1", -1.5, '4x8')
    """
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if value.startswith(FORMULA) else shown
