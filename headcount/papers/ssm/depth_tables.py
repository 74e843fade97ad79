"""The tables that show what depth does: one system at every depth, and the depth that each goal needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np

from headcount.papers.ssm.chains import Deal, by_modulus
from headcount.papers.ssm.deepen import least_width
from headcount.papers.ssm.depths import entry_bounds, minimal_depth
from headcount.papers.ssm.responses import gap
from headcount.papers.ssm.systems import DiagonalSSM

SIGNS = "+----+++----+"


def example_teacher(residue: float = 100.0) -> DiagonalSSM:
    """Thirteen real modes, poles evenly from -0.9 to 0.9, residues of one size and fixed signs: norm sqrt(residue).

    Thirteen is l(m-1)+1 for six pairs (l, m), so that depths 1, 2, 3, 4, 6 and 12 hold it with no place to spare.

    >>> example_teacher().largest_entry
    10.0
    """
    signs = np.array([1.0 if sign == "+" else -1.0 for sign in SIGNS])
    return DiagonalSSM(np.linspace(-0.9, 0.9, len(SIGNS)).round(12), residue * signs)


DeepRow = TypedDict(
    "DeepRow",
    {
        "depth": int,
        "width": int,
        "largest entry": float,
        "sharper bound": float,
        "paper's bound": float,
        "c1^(2/(l+1))": float,
        "parameters": int,
        "gap": float,
    },
)
"""A system at one depth and its least width: its largest entry beside three bounds, and how far its response is off."""


def depth_rows(
    system: DiagonalSSM, depths: Iterable[int] = (1, 2, 3, 4, 6, 12), deal: Deal = by_modulus
) -> list[DeepRow]:
    """The system at every depth, at the least width: its largest entry beside the bounds, and how exact it is.

    >>> [(row["depth"], row["width"], round(row["largest entry"], 3)) for row in depth_rows(example_teacher(), [2, 4])]
    [(2, 7, 5.192), (4, 4, 2.794)]
    """
    c_from, modes = system.merged().largest_entry, system.merged().modes
    rows = []
    for depth in depths:
        deep = system.deepen(depth, least_width(modes, depth), deal=deal)
        bounds = entry_bounds(c_from, depth)
        rows.append(
            {
                "depth": depth,
                "width": deep.width,
                "largest entry": deep.largest_entry,
                "sharper bound": bounds.sharper.value,
                "paper's bound": bounds.paper.value,
                "c1^(2/(l+1))": bounds.exponent_only.value,
                "parameters": deep.parameters if depth > 1 else system.parameters,
                "gap": gap(deep.impulse(256), system.impulse(256)),
            }
        )
    return rows


def minimal_depth_rows(
    froms: Iterable[float] = (10, 100, 1000), tos: Iterable[float] = (3, 4, 8), modes: int | None = None
) -> list[dict[str, float | None]]:
    """The depth that takes entries from one size to another, by every argument.

    >>> minimal_depth_rows([10], [3])[0]["sharper"]
    7
    """
    return [
        {
            "from": c_from,
            "to": c_to,
            **{n: int(b.value) if np.isfinite(b.value) else None for n, b in bounds._asdict().items()},
        }
        for c_from in froms
        for c_to in tos
        for bounds in [minimal_depth(c_from, c_to, modes=modes)]
    ]


def depth_words(row: DeepRow) -> dict[str, str | int]:
    """A row of `depth_rows` as text, three digits after the point."""
    return {
        "depth": row["depth"],
        "width": row["width"],
        "entry": f"{row['largest entry']:.3f}",
        "bound": f"{row['sharper bound']:.3f}",
        "paper": format(row["paper's bound"], ".3f"),
        "c1^(2/(l+1))": f"{row['c1^(2/(l+1))']:.3f}",
        "parameters": row["parameters"],
        "gap": f"{row['gap']:.0e}",
    }


def mode_rows(system: DiagonalSSM) -> list[dict[str, str | float]]:
    """A row for each mode.

    >>> mode_rows(DiagonalSSM([0.5j], [2.0]))
    [{'pole': '0 + 0.5i', 'modulus': 0.5, 'residue': '2'}]
    """
    modes = zip(system.poles.tolist(), system.residues.tolist(), strict=True)
    return [{"pole": _complex(p), "modulus": abs(p), "residue": _complex(r)} for p, r in modes]


def _complex(z: complex) -> str:
    return f"{z.real:.6g}" if z.imag == 0 else f"{z.real:.6g} {'+' if z.imag > 0 else '-'} {abs(z.imag):.6g}i"
