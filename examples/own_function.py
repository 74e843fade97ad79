"""From a function of your own to a certified network, a sweep, and a figure and a table for a paper.

    python examples/own_function.py out/own_function      # needs pip install 'headcount[figures]' for the PDF

How far apart are the best offer of one kind and the best of another? Two retrievals: one layer should need two heads.
"""

import sys
from pathlib import Path

import cairosvg

import headcount as hc
from headcount.report import figure
from headcount.report.tabular import as_latex
from headcount.tasks import MaxOf


def main(folder: str = "out/own_function", epochs: int = 60) -> None:
    task = hc.task(
        lambda best: (best[:, 0] - best[:, 1]).abs(),  # of what the retrievals find; it moves no faster than they do
        retrievals=[MaxOf((1.0, 0.0)), MaxOf((0.0, 1.0))],
        length=6,
        lipschitz=1.0,
    )
    built = hc.build(task, eps=0.2)
    print(built.certificate.headline)
    print(built.check())

    archs = [hc.Architecture(layers=((heads, 4),), width=16) for heads in (1, 2, 3, 4)]
    recipe = hc.Recipe(samples=1000, validation=400, epochs=epochs, batch=100, evaluations=10)
    study = hc.sweep(task, archs, seeds=4, recipe=recipe, lr=1e-2)
    print(hc.knee(study).sentence)

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    picture = figure(study).printed(width="3.25in")
    cairosvg.svg2pdf(bytestring=picture.encode(), write_to=str(out / "figure.pdf"))
    (out / "table.tex").write_text(as_latex(study) + "\n")
    print(f"So: {out} holds figure.pdf and table.tex.")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "out/own_function")
