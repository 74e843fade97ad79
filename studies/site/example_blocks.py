"""Examples of the reference that stand outside docstrings: run them, and write what they print.

python -m studies.site.example_blocks docs/reference/examples/*.md     # record what every block prints now
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

from headcount.files import write_text

BLOCK = re.compile(r"```pycon\n(.*?)```", flags=re.DOTALL)


def statements(block: str) -> str:
    """The code of a block, without what it prints.

    >>> statements(">>> for i in (1, 2):\\n...     i\\n1\\n2\\n>>> 3\\n3\\n")
    'for i in (1, 2):\\n    i\\n3\\n'
    """
    lines = [line[4:] for line in block.splitlines() if line.startswith((">>> ", "... "))]
    return "\n".join(lines) + "\n"


def recorded(code: str) -> str:
    """The code as a session, with what every statement prints."""
    names: dict[str, Any] = {"__name__": "example"}
    out = []
    for statement in ast.parse(code).body:
        source = ast.get_source_segment(code, statement) or ""
        first, *rest = source.splitlines()
        out += [f">>> {first}", *(f"... {line}" for line in rest)]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), "example", "eval"), names)
                sys.stdout.write("" if value is None else f"{value!r}\n")
            else:
                exec(compile(ast.Module([statement], []), "example", "exec"), names)
        out += said.getvalue().splitlines()
    return "\n".join(out) + "\n"


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        write_text(path, BLOCK.sub(lambda m: f"```pycon\n{recorded(statements(m[1]))}```", text))
        print(f"recorded {path.name}")


if __name__ == "__main__":
    main()
