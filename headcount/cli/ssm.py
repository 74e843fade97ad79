"""`headcount ssm`: the same response with small parameters, how deep, and what it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, emit_json, out_file, say, show_table
from headcount.refusals import nearest

if TYPE_CHECKING:
    from headcount.papers.ssm import DeepSSM, DiagonalSSM
    from headcount.papers.ssm.chains import Deal

SystemFile = Annotated[
    Path, typer.Argument(help="JSON or safetensors: poles and residues, or a filter in scipy's forms.")
]
MaybeFile = Annotated[Path | None, typer.Argument(help="JSON or safetensors of a system.", show_default=False)]
MaxEntry = Annotated[float | None, typer.Option(help="Largest entry wanted; the least depth that has it is taken.")]
DealName = Annotated[str, typer.Option("--deal", help="Which modes share a chain: modulus, or angle for close poles.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="State-space systems: the same response with small parameters.", no_args_is_help=True)
    for command in (deepen, flatten, depth, table, quantise, train):
        group.command(command.__name__)(command)
    app.add_typer(group, name="ssm")


def deepen(
    system: SystemFile,
    max_entry: MaxEntry = None,
    depth: Annotated[int | None, typer.Option(help="Depth, instead of a largest entry.")] = None,
    width: Annotated[int | None, typer.Option(help="Width; the least that holds the modes if not given.")] = None,
    deal: DealName = "modulus",
    route: Annotated[str, typer.Option(help="chains, or stages: all modes in layer 1, then gain.")] = "chains",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Write a system deep, with small entries.

    The result and a picture go beside the file, or into --out. Give the largest entry wanted, or a depth.
    """
    from headcount.papers.ssm import save
    from headcount.papers.ssm.pictures import deep_picture

    shallow = _load_shallow(system)
    deep = _deepened(shallow, max_entry, depth, width, _deal(deal), route)
    folder = out or system.parent
    files = [save(deep, folder / f"{system.stem}-deep.json")]
    files.append(out_file(folder, f"{system.stem}-deep.svg", deep_picture(shallow, deep).standalone()))
    rows = _comparison(shallow, deep)
    if as_json:
        emit_json(
            {row["quantity"]: {"before": row["before"], "after": row["after"]} for row in rows} | _gap(shallow, deep)
        )
        return
    show_table(rows, ("quantity", "before", "after"))
    say(f"\nThe responses differ by {_gap(shallow, deep)['gap']:.1e} of their size over 256 samples.")
    for path in files:
        say(f"wrote {path}")


def flatten(system: SystemFile, out: Out = None, as_json: AsJson = False) -> None:
    """Write a deep system as poles and residues.

    Refused where one diagonal layer cannot have the response: a pole met twice on a path.
    """
    from headcount.papers.ssm import DiagonalSSM, load, save, to_json

    deep = load(system)
    if isinstance(deep, DiagonalSSM):
        raise ValueError(f"{system} is one layer already: {deep.modes} modes")
    flat = deep.flatten().merged()
    path = save(flat, (out or system.parent) / f"{system.stem}-flat.json")
    if as_json:
        emit_json(to_json(flat))
        return
    modes = zip(flat.poles.tolist(), flat.residues.tolist(), strict=True)
    rows = [{"pole": _complex(p), "modulus": abs(p), "residue": _complex(r)} for p, r in modes]
    show_table(rows[:20], ("pole", "modulus", "residue"))
    say(f"\n{flat.modes} modes{', the first 20 shown' if len(rows) > 20 else ''}; wrote {path}")


def depth(
    c_from: Annotated[float | None, typer.Argument(help="Largest entry now.", show_default=False)] = None,
    c_to: Annotated[float | None, typer.Argument(help="Largest entry wanted.", show_default=False)] = None,
    modes: Annotated[int | None, typer.Option(help="Modes of the system.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the layers.")] = None,
    as_json: AsJson = False,
) -> None:
    """How deep to go from one size of entries to another.

    With the number of modes all six bounds speak. Without sizes, a table.
    """
    from headcount.papers.ssm import minimal_depth
    from headcount.papers.ssm.depth_tables import minimal_depth_rows

    if c_from is None or c_to is None:
        if c_from is not None:
            raise ValueError("give both sizes, as in `headcount ssm depth 10 3`, or none for the table")
        rows = minimal_depth_rows(modes=modes)
        shown = ("paper", "sharper", "positive_real", "padded", "gain_stages", "lower")[: 6 if modes else 3]
        emit_json(rows) if as_json else show_table(rows, ("from", "to", *shown), "least depth from c_1 to c_2")
        return
    bounds = minimal_depth(c_from, c_to, modes=modes, width=width)
    rows = [{"argument": name} | bound.as_row() for name, bound in bounds._asdict().items()]
    if as_json:
        emit_json(rows)
        return
    for row in rows:
        sign = "at least" if row["side"] == "lower" else "at most"
        row["depth"] = "says nothing" if row["vacuous"] else f"{sign} {row['value']:g}"
    show_table(rows, ("argument", "depth", "source"))


def table(
    system: MaybeFile = None,
    depths: Annotated[str, typer.Option(help="Depths, separated by commas.")] = "1,2,3,4,6,12",
    deal: DealName = "modulus",
    as_json: AsJson = False,
) -> None:
    """One system at every depth, beside the bounds.

    Without a system, thirteen real modes with entries of 10, which six depths hold exactly.
    """
    from headcount.papers.ssm.depth_tables import depth_rows, example_teacher

    shallow = example_teacher() if system is None else _load_shallow(system)
    rows = depth_rows(shallow, _whole_numbers(depths, "--depths"), _deal(deal))
    if as_json:
        emit_json(rows)
        return
    title = f"{shallow.merged().modes} modes, largest entry {shallow.largest_entry:.4g} in one layer"
    names = {
        "largest entry": "entry",
        "sharper bound": "bound",
        "paper's bound": "paper",
        "c1^(2/(l+1))": "c1^(2/(l+1))",
    }
    shown = [
        {"depth": row["depth"], "width": row["width"]}
        | {name: f"{row[key]:.3f}" for key, name in names.items()}
        | {"parameters": row["parameters"], "gap": f"{row['gap']:.0e}"}
        for row in rows
    ]
    show_table(shown, list(shown[0]), title)


def quantise(
    system: MaybeFile = None,
    bits: Annotated[str, typer.Option(help="Bits per number, separated by commas.")] = "6,8,10,12,16",
    depth: Annotated[int | None, typer.Option(help="Depth; that which loses least if not given.")] = None,
    reach: Annotated[
        float | None, typer.Option(help="Largest weight the format holds; each form's own if none.")
    ] = None,
    speech: Annotated[Path | None, typer.Option(help="Archive of spoken digits, instead of a system.")] = None,
    digit: Annotated[int, typer.Option(help="Which digit of the archive.")] = 0,
    order: Annotated[int, typer.Option(help="Order of the prediction filter.")] = 16,
    sharpen: Annotated[int, typer.Option(help="Times the filter is run, each a little damped.")] = 1,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """What a few bits per number cost, form by form.

    One layer, nested chains and second-order sections. Without a system, the prediction filter of a made-up vowel.
    """
    from headcount.papers.ssm.pictures import bits_picture
    from headcount.papers.ssm.quantise import FixedPoint, bits_rows, hardened

    counts = _whole_numbers(bits, "--bits")
    shallow = _load_shallow(system) if system else _speech_filter(speech, digit, order, sharpen)
    middle = FixedPoint(sorted(counts)[len(counts) // 2], reach)
    deep = shallow.deepen(depth) if depth else hardened(shallow, middle)
    rows = bits_rows(shallow, {"one layer": shallow, f"depth {deep.depth}": deep}, counts, reach)
    if out:
        title = f"{shallow.modes} modes, entries {shallow.largest_entry:.3g} and {deep.largest_entry:.3g}"
        out_file(out, "quantise.svg", bits_picture({title: rows}).standalone())
    if as_json:
        emit_json(rows)
        return
    forms = list(dict.fromkeys(row["form"] for row in rows))
    wide = [{"bits": b} | {row["form"]: row["gap"] for row in rows if row["bits"] == b} for b in counts]
    show_table(wide, ("bits", *forms), "share of the response lost (rms)")
    say(f"\nlargest entry {shallow.largest_entry:.3g} in one layer, {deep.largest_entry:.3g} at depth {deep.depth}")


def train(
    sizes: Annotated[str, typer.Option(help="Students, depth x width.")] = "1x13,1x25,2x7,3x5,4x4,5x4,6x3",
    clips: Annotated[str, typer.Option(help="Bounds on the entries.")] = "1,2,3,5,10",
    seeds: Annotated[int, typer.Option(help="Seeds of each student.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of Adam.")] = 4000,
    start: Annotated[str, typer.Option(help="random, wiring, nearby or construction.")] = "random",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train students of every depth with clipped entries.

    The teacher is the system of `headcount ssm table`. Takes minutes on a CPU.
    """
    from headcount.papers.ssm import experiments
    from headcount.papers.ssm.depth_tables import example_teacher
    from headcount.papers.ssm.pictures import training_picture

    teacher = example_teacher()
    starts = {
        "random": experiments.from_random,
        "wiring": experiments.from_wiring,
        "nearby": experiments.from_nearby(teacher, 0.1),
        "construction": experiments.from_construction(teacher),
    }
    if start not in starts:
        raise ValueError(f"unknown start {start!r}; {nearest(start, starts)}")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    shapes, bounds = _sizes(sizes), _numbers(clips, "--clips")
    rows = experiments.train_table(
        teacher, shapes, bounds, range(seeds), starts[start], experiments.StudentRecipe(steps)
    )
    if out:
        out_file(out, "train.svg", training_picture(rows).standalone())
    if as_json:
        emit_json(rows)
        return
    show_table(_by_size(experiments.best_rows(rows)), ("depth", "width", "parameters", *(f"{c:g}" for c in bounds)))
    say(f"\nsquared error over the kernel's square for each bound on the entries, best of {seeds} seeds, start {start}")


def _deepened(
    shallow: DiagonalSSM, max_entry: float | None, depth: int | None, width: int | None, deal: Deal, route: str
) -> DeepSSM:
    if route not in ("chains", "stages"):
        raise ValueError(f"unknown route {route!r}; {nearest(route, ('chains', 'stages'))}")
    if (max_entry is None) == (depth is None):
        raise ValueError("give either --max-entry or --depth")
    if max_entry is None:
        assert depth is not None
        if route == "stages":
            raise ValueError("gain stages find their own depth; give --max-entry")
        return shallow.deepen(depth, width, deal=deal)
    return (
        shallow.gain_stages(max_entry, width) if route == "stages" else shallow.deepen_to(max_entry, width, deal=deal)
    )


def _load_shallow(path: Path) -> DiagonalSSM:
    from headcount.papers.ssm import DeepSSM, load

    system = load(path)
    if isinstance(system, DeepSSM):
        raise ValueError(f"{path} is deep already ({system.depth} layers); `headcount ssm flatten` makes it one layer")
    return system


def _deal(name: str) -> Deal:
    from headcount.papers.ssm import by_angle, by_modulus

    deals = {"modulus": by_modulus, "angle": by_angle}
    if name not in deals:
        raise ValueError(f"unknown deal {name!r}; {nearest(name, deals)}")
    return deals[name]


def _speech_filter(archive: Path | None, digit: int, order: int, times: int) -> DiagonalSSM:
    from headcount.papers.ssm.speech import load_digit, made_up_vowel, prediction_filter, sharpened

    wave = load_digit(archive, digit)[0] if archive else made_up_vowel()
    return sharpened(prediction_filter(wave, order), times)


def _comparison(shallow: DiagonalSSM, deep: DeepSSM) -> list[dict[str, Any]]:
    return [
        {"quantity": "depth", "before": 1, "after": deep.depth},
        {"quantity": "width", "before": shallow.modes, "after": deep.width},
        {"quantity": "largest entry", "before": shallow.largest_entry, "after": deep.largest_entry},
        {"quantity": "parameters", "before": shallow.parameters, "after": deep.parameters},
        {"quantity": "not zero", "before": shallow.parameters, "after": deep.used_parameters},
    ]


def _gap(shallow: DiagonalSSM, deep: DeepSSM) -> dict[str, float]:
    from headcount.papers.ssm.responses import gap

    return {"gap": gap(deep.impulse(256), shallow.impulse(256))}


def _by_size(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        line = table.setdefault((row["depth"], row["width"]), {k: row[k] for k in ("depth", "width", "parameters")})
        line[f"{row['max_entry']:g}"] = row["best nmse"]
    return list(table.values())


def _complex(z: complex) -> str:
    return f"{z.real:.6g}" if z.imag == 0 else f"{z.real:.6g} {'+' if z.imag > 0 else '-'} {abs(z.imag):.6g}i"


def _whole_numbers(text: str, name: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} takes whole numbers separated by commas, as in 2,4,8; got {text!r}") from None


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} takes numbers separated by commas, as in 1,2.5,10; got {text!r}") from None


def _sizes(text: str) -> list[tuple[int, int]]:
    pairs = [tuple(part.split("x")) for part in text.split(",")]
    if not all(len(pair) == 2 and all(n.isdigit() and int(n) > 0 for n in pair) for pair in pairs):
        raise ValueError(f"--sizes takes depth x width separated by commas, as in 2x7,3x5; got {text!r}")
    return [(int(depth), int(width)) for depth, width in pairs]
