"""The paper on deep linear state-space models: the norm relation, and learning under norm bounds by depth."""

from __future__ import annotations

import numpy as np

from headcount.papers.ssm.depth_tables import depth_rows, example_teacher
from headcount.papers.ssm.experiments import StudentRecipe, StudentRow, from_wiring, train_table
from headcount.results.gathering import grouped
from headcount.results.literature import Cells
from headcount.results.record import Measured, Reproduction, Setting, Stated

DEPTHS = (1, 2, 3, 4, 6, 12)
SIZES = ((1, 25), (2, 7), (3, 5), (4, 4), (6, 3))  # 75, 77, 75, 72, 69 parameters
CLIPS = (1.0, 2.0, 3.0, 5.0, 10.0)
KERNELS = "relative kernel error under a bound on the entries"


def norms(setting: Setting) -> Measured:
    """The same system at every depth: its largest entry against the theorem, from three sizes of entries."""
    sizes = {}
    for c_from in (10, 100, 1000):
        rows = depth_rows(example_teacher(c_from**2.0), DEPTHS)
        sizes |= {(row["depth"], c_from): (row["largest entry"],) for row in rows}
    gaps = [row["gap"] for row in depth_rows(example_teacher(), DEPTHS)]
    tight = max(v[0] / (2 * c ** (2 / (depth + 1))) for (depth, c), v in sizes.items())
    logs = {d: np.log([sizes[d, c][0] for c in (10, 100, 1000)]) for d in DEPTHS}
    slopes = {d: float(np.polyfit(np.log([10, 100, 1000]), logs[d], 1)[0]) for d in DEPTHS}
    off = max(abs(slope - 2 / (depth + 1)) for depth, slope in slopes.items())
    return Measured(
        {"largest entry": sizes},
        (
            Stated(
                "depth l and width m hold l(m-1)+1 modes with entries at most 2 c_1^(2/(l+1))",
                f"largest ratio to the bound {tight:.3f} over {len(sizes)} sizes",
                tight <= 1,
            ),
            Stated(
                "the norm relation is a power law of exponent 2/(l+1)",
                f"slopes {', '.join(f'{slopes[d]:.3f}' for d in DEPTHS)}: within {off:.1e} of 2/(l+1)",
                off < 0.01,
            ),
            Stated("the deep system is the same system", f"largest relative gap of impulse responses {max(gaps):.1e}",
                  max(gaps) < 1e-9),
        ),
        {"modes": 13, "poles": "evenly from -0.9 to 0.9"},
        ("the norms come from the construction, which the reviewers of the paper asked to be said",),
    )  # fmt: skip


def learning(setting: Setting) -> Measured:
    """Students of equal parameter count and growing depth learn one kernel with clipped entries."""
    recipe = StudentRecipe(steps=500) if setting.quick else StudentRecipe(steps=4000)
    seeds = (0, 1) if setting.quick else tuple(range(8))
    sizes = SIZES[:4] if setting.quick else SIZES
    clips = (1.0, 3.0, 10.0) if setting.quick else CLIPS
    rows = train_table(example_teacher(), sizes, clips, seeds, recipe=recipe)
    cells = _cells(rows)
    other = _cells(train_table(example_teacher(), sizes, clips[:1], seeds, from_wiring, recipe))
    note = ("smaller: 500 steps, depths to 4",) if setting.quick else ()
    setup = {"steps": recipe.steps, "lr": recipe.lr, "seeds": len(seeds), "parameters": "69 to 77"}
    tables = {KERNELS: cells, "the same, starting from the construction's wiring": other}
    return Measured(
        tables, learning_claims(cells), setup, (*note, "the paper's own targets, widths and values are not known")
    )


def learning_claims(cells: Cells) -> tuple[Stated, ...]:
    """Whether depth pays under a bound on the entries: by the best seed, and by the median beside it."""
    depths, clips = sorted({d for d, _ in cells}), sorted({c for _, c in cells})
    tight, deepest = clips[0], depths[-1]
    best, middle = ({key: float(of(values)) for key, values in cells.items()} for of in (min, np.median))
    first, typical = ({c: min(depths, key=lambda d, c=c, by=by: by[d, c]) for c in clips} for by in (best, middle))
    return (
        Stated(
            "at about equal parameters deeper students reach far lower errors when entries are bounded",
            f"entries within {tight:g}: depth {deepest} reaches {best[deepest, tight]:.3g} (median over seeds "
            f"{middle[deepest, tight]:.3g}), depth 1 {best[1, tight]:.3g} ({middle[1, tight]:.3g})",
            all(by[deepest, tight] < by[1, tight] / 2 for by in (best, middle)),
        ),
        Stated(
            "some deeper student beats the shallow one under every bound, however loose",
            f"best depth by bound: {_listed(first)} by the best seed; {_listed(typical)} by the median",
            all(d > 1 for by in (first, typical) for d in by.values()),
        ),
    )


def _listed(depths: dict[float, int]) -> str:
    return ", ".join(f"{clip:g}: {depth}" for clip, depth in depths.items())


def _cells(rows: list[StudentRow]) -> dict[tuple[int, float], tuple[float, ...]]:
    # The relative error of the kernel is the root of the NMSE.
    errors = grouped(((row["depth"], row["max_entry"]), row["nmse"] ** 0.5) for row in rows)
    return {key: tuple(values) for key, values in errors.items()}


SSM = (
    Reproduction("ssm:norms", "entries of one system at every depth: the relation c_2 <= 2 c_1^(2/(l+1))", norms, (),
                 "Thirteen real modes with residues of one size, which six pairs (l, m) hold exactly.",
                 "c_1 = 10, 100, 1000", computed=True),
    Reproduction("ssm:learning", "learning under a bound on the entries, by depth at equal parameters", learning,
                 (), "The teacher of ssm:norms, kernel length 64, Adam at 1e-2 with a cosine, entries "
                 "clipped after every step.", "start from the construction's wiring instead of at random",
                 ("1 min", "15 min", "15 min")),
)  # fmt: skip
