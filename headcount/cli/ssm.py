"""`headcount ssm`: the same response with small parameters, how deep, and what it is worth."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.printing import AsJson, Out, conclude, emit_json, out_file, say, show_table, tell_written
from headcount.numerals import counted
from headcount.refusals import nearest

if TYPE_CHECKING:
    from headcount.papers.ssm import DeepSSM, DiagonalSSM
    from headcount.papers.ssm.chains import Deal

SystemFile = Annotated[
    Path, typer.Argument(help="JSON or safetensors: poles and residues, or a filter in scipy's forms.")
]
MaybeFile = Annotated[Path | None, typer.Argument(help="JSON or safetensors of a system.", show_default=False)]
MaxEntry = Annotated[float | None, typer.Option(help="Largest entry wanted; the least depth that has it is taken.")]
DealName = Annotated[
    str, typer.Option("--deal", help="Which modes share a chain: modulus, angle for close poles, or the best of both.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="State-space systems: the same response with small parameters.", no_args_is_help=True)
    for command in (deepen, flatten, depth, table, quantise, train):
        group.command(command.__name__)(command)
    group.command("export")(export_system)
    app.add_typer(group, name="ssm")


def deepen(
    system: SystemFile,
    max_entry: MaxEntry = None,
    depth: Annotated[int | None, typer.Option(help="Depth, instead of a largest entry.")] = None,
    width: Annotated[int | None, typer.Option(help="Width; the least that holds the modes if not given.")] = None,
    deal: DealName = "",
    route: Annotated[str, typer.Option(help="chains, or stages: all modes in layer 1, then gain.")] = "chains",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Write a system deep, with small entries.

    The result, a picture and a page go beside the file, or into --out. Give the largest entry wanted, or a depth.
    What is small already stays at depth 1, and nothing is written.
    """
    from headcount.papers.ssm.deepening_page import comparison, deepening_sentence
    from headcount.papers.ssm.rival_forms import form_rows, winners

    shallow = _load_shallow(system)
    deep = _deepened(shallow, max_entry, depth, width, _deal(deal) if deal else None, route)
    wanted = f"--max-entry {max_entry:g}" if max_entry is not None else f"--depth {depth}"
    small = max_entry is not None and deep.depth == 1
    files = [] if small else _write_deep(shallow, deep, out or system.parent, system, wanted)
    rows = comparison(shallow, deep)
    beside = form_rows(shallow, deep=deep) if shallow.is_real and shallow.merged().modes > 1 else []
    if as_json:
        sizes = {row["quantity"]: {"before": row["before"], "after": row["after"]} for row in rows}
        forms = [{k: v if v != math.inf else None for k, v in row.items()} for row in beside]
        told = {"already small": small, "forms": forms, "files": [str(path) for path in files]}
        emit_json(sizes | _gap(shallow, deep) | told)
        return
    show_table(rows, ("quantity", "before", "after"))
    say(f"\nThe responses differ by {_gap(shallow, deep)['gap']:.1e} of their size over 256 samples.")
    if beside:
        say()
        show_table(beside, ("budget", "form", "numbers", "bits", "gap", "worst dB"), "other forms at equal bits")
    tell_written(files)
    conclude(deepening_sentence(shallow, deep) + (f"; {winners(beside)}" if beside else ""))


def _write_deep(shallow: DiagonalSSM, deep: DeepSSM, folder: Path, system: Path, wanted: str) -> list[Path]:
    from headcount.papers.ssm import save
    from headcount.papers.ssm.deepening_page import deepening_page
    from headcount.papers.ssm.pictures import deep_picture

    name = system.stem
    page = deepening_page(shallow, deep, name=name, command=f"headcount ssm deepen {system.name} {wanted}")
    return [
        save(deep, folder / f"{name}-deep.json"),
        out_file(folder, f"{name}-deep.svg", deep_picture(shallow, deep).standalone()),
        out_file(folder, f"{name}-deep.html", page),
    ]


def export_system(
    system: SystemFile,
    to: Annotated[str, typer.Option(help="onnx, pt2 (a torch program), or sos (second-order sections).")] = "onnx",
    precision: Annotated[str, typer.Option(help="Of onnx and pt2: float32 or float64.")] = "float32",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Write a system, shallow or deep, for other programs.

    onnx and pt2 hold one step in real numbers: a sample and the state in, a sample and the state out.
    """
    endings = {"onnx": ".onnx", "pt2": ".pt2", "sos": "-sos.json"}
    if to not in endings:
        raise ValueError(f"unknown format {to!r}; {nearest(to, endings)}")
    from headcount.papers.ssm import export, load

    path = export(load(system), (out or system.parent) / f"{system.stem}{endings[to]}", precision=precision)
    if as_json:
        emit_json({"file": str(path)})
        return
    readers = {"onnx": "any ONNX runtime", "pt2": "torch.export.load", "sos": "scipy.signal.sosfilt"}
    conclude(f"{path} holds the filter for {readers[to]}")


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
    say(f"\nwrote {path}")
    if len(rows) > 20:
        say(f"and {len(rows) - 20} modes more")
    same = f"one layer of {counted(flat.modes, 'mode')} has the same response"
    conclude(f"{same}; its largest entry is {flat.largest_entry:.3g}")


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
        if as_json:
            emit_json(rows)
            return
        show_table(rows, ("from", "to", *shown), "least depth from entries of c_1 (from) to c_2 (to)")
        one = rows[0]
        conclude(f"entries of {one['from']} come down to {one['to']} with {one['sharper']} layers, whatever the poles")
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
    least = max((row["value"] for row in rows if row["side"] == "lower" and not row["vacuous"]), default=1)
    enough = f"{counted(int(bounds.sharper.value), 'layer')} bring entries of {c_from:g} down to {c_to:g} for any poles"
    conclude(f"{enough}; fewer than {least:g} never do" if least > 1 else enough)


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
    best = min(rows, key=lambda row: row["largest entry"])
    conclude(f"depth {best['depth']} has the smallest entries of these, {best['largest entry']:.3g} at most")


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
    few = min(counts)
    losses = {row["form"]: row["gap"] for row in rows if row["bits"] == few}
    best = min(losses, key=lambda form: losses[form])
    conclude(
        f"with {few} bits {best} {'lose' if best.endswith('s') else 'loses'} least, {losses[best]:.1%} of the response"
    )


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
    say(f"\nNMSE of the kernel for each bound on the entries, best of {counted(seeds, 'seed')}, start {start}")
    best = min(experiments.best_rows(rows), key=lambda row: row["best nmse"])
    shape = f"depth {best['depth']} and width {best['width']} with entries up to {best['max_entry']:g}"
    conclude(f"{shape} learned the kernel best, to an NMSE of {best['best nmse']:.2g}")


def _deepened(
    shallow: DiagonalSSM, max_entry: float | None, depth: int | None, width: int | None, deal: Deal | None, route: str
) -> DeepSSM:
    if route not in ("chains", "stages"):
        raise ValueError(f"unknown route {route!r}; {nearest(route, ('chains', 'stages'))}")
    if (max_entry is None) == (depth is None):
        raise ValueError("give either --max-entry or --depth")
    if max_entry is None:
        assert depth is not None
        if route == "stages":
            raise ValueError("gain stages find their own depth; give --max-entry")
        return shallow.deepen(depth, width, deal=deal or _deal("modulus"))
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
