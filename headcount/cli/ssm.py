"""`headcount ssm`: the same response with small parameters, how deep, and what it is worth."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.options import Out, numbers_of, whole_numbers_of
from headcount.cli.printing import Listing, Printout
from headcount.numerals import counted
from headcount.refusals import nearest

if TYPE_CHECKING:
    from headcount.papers.ssm import DeepSSM, DiagonalSSM

SystemFile = Annotated[
    Path, typer.Argument(help="JSON or safetensors: poles and residues, or a filter in scipy's forms.")
]
MaybeFile = Annotated[Path | None, typer.Argument(help="JSON or safetensors of a system.", show_default=False)]
DealName = Annotated[
    str, typer.Option("--deal", help="Which modes share a chain: modulus, angle for close poles, or the best of both.")
]
FORM = ("budget", "form", "numbers", "bits", "gap", "worst dB")
ARGUMENTS = ("paper", "sharper", "positive_real", "padded", "gain_stages", "lower")  # the first three for any modes
ENDINGS = {"onnx": ".onnx", "pt2": ".pt2", "sos": "-sos.json"}
READERS = {"onnx": "any ONNX runtime", "pt2": "torch.export.load", "sos": "scipy.signal.sosfilt"}
SHOWN = 20  # modes of a flat system


def deepen(
    system: SystemFile,
    max_entry: Annotated[
        float | None, typer.Option(help="Largest entry wanted; the least depth that has it is taken.")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Depth, instead of a largest entry.")] = None,
    width: Annotated[int | None, typer.Option(help="Width; the least that holds the modes if not given.")] = None,
    deal: DealName = "",
    route: Annotated[str, typer.Option(help="chains, or stages: all modes in layer 1, then gain.")] = "chains",
    out: Out = None,
) -> Printout:
    """Write a system deep, with small entries.

    The result, a picture and a page go beside the file, or into --out. Give the largest entry wanted, or a depth.
    What is small already stays at depth 1, and nothing is written.
    """
    from headcount.papers.ssm.deepening_page import DeepenedSystem
    from headcount.papers.ssm.system_files import load_shallow

    shallow = load_shallow(system)
    deepened = DeepenedSystem(shallow, _deepened(shallow, max_entry, depth, width, deal, route))
    small = max_entry is not None and deepened.deep.depth == 1
    wanted = f"--max-entry {max_entry:g}" if max_entry is not None else f"--depth {depth}"
    command = f"headcount ssm deepen {system.name} {wanted}"
    files = [] if small else deepened.files(out or system.parent, system.stem, command)
    lines: list[str | Listing] = [Listing(deepened.rows, ("quantity", "before", "after"))]
    lines.append(f"\nThe responses differ by {deepened.gap:.1e} of their size over 256 samples.")
    lines += ["", Listing(deepened.forms, FORM, "other forms at equal bits")] if deepened.forms else []
    return Printout({**deepened.to_json(), "already small": small, "files": []}, lines, deepened.sentence, files)


def _deepened(
    shallow: DiagonalSSM, max_entry: float | None, depth: int | None, width: int | None, deal: str, route: str
) -> DeepSSM:
    from headcount.papers.ssm.chains import deal_named

    chosen = deal_named(deal) if deal else None
    if route not in ("chains", "stages"):
        raise ValueError(f"unknown route {route!r}; {nearest(route, ('chains', 'stages'))}")
    if (max_entry is None) == (depth is None):
        raise ValueError("give either --max-entry or --depth")
    if depth is not None:
        if route == "stages":
            raise ValueError("gain stages find their own depth; give --max-entry")
        return shallow.deepen(depth, width, deal=chosen or deal_named("modulus"))
    assert max_entry is not None
    if route == "stages":
        return shallow.gain_stages(max_entry, width)
    return shallow.deepen_to(max_entry, width, deal=chosen)


def export_system(
    system: SystemFile,
    to: Annotated[str, typer.Option(help="onnx, pt2 (a torch program), or sos (second-order sections).")] = "onnx",
    precision: Annotated[str, typer.Option(help="Of onnx and pt2: float32 or float64.")] = "float32",
    out: Out = None,
) -> Printout:
    """Write a system, shallow or deep, for other programs.

    onnx and pt2 hold one step in real numbers: a sample and the state in, a sample and the state out.
    """
    if to not in ENDINGS:
        raise ValueError(f"unknown format {to!r}; {nearest(to, ENDINGS)}")
    from headcount.papers.ssm import export, load

    path = export(load(system), (out or system.parent) / f"{system.stem}{ENDINGS[to]}", precision=precision)
    return Printout({"format": to}, (), f"{path} holds the filter for {READERS[to]}", [path])


def flatten(system: SystemFile, out: Out = None) -> Printout:
    """Write a deep system as poles and residues.

    Refused where one diagonal layer cannot have the response: a pole met twice on a path.
    """
    from headcount.papers.ssm import DiagonalSSM, load, save, to_json
    from headcount.papers.ssm.deepening_page import SAMPLES, gap, same_response
    from headcount.papers.ssm.depth_tables import mode_rows

    deep = load(system)
    if isinstance(deep, DiagonalSSM):
        raise ValueError(f"{system} is one layer already: {deep.modes} modes")
    flat = deep.flatten().merged()
    path = save(flat, (out or system.parent) / f"{system.stem}-flat.json")
    lines: list[str | Listing] = [Listing(mode_rows(flat)[:SHOWN], ("pole", "modulus", "residue"))]
    lines += [f"and {flat.modes - SHOWN} modes more"] if flat.modes > SHOWN else []
    lost = gap(flat.impulse(SAMPLES), deep.impulse(SAMPLES))
    same = f"one layer of {counted(flat.modes, 'mode')} has {same_response(lost)}"
    text = json.dumps(to_json(flat), indent=2) + "\n"  # the system alone, which every command of the group reads
    return Printout(iter([text]), lines, f"{same}; its largest entry is {flat.largest_entry:.3g}", [path])


def depth(
    c_from: Annotated[float | None, typer.Argument(help="Largest entry now.", show_default=False)] = None,
    c_to: Annotated[float | None, typer.Argument(help="Largest entry wanted.", show_default=False)] = None,
    modes: Annotated[int | None, typer.Option(help="Modes of the system.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the layers.")] = None,
) -> Printout:
    """How deep to go from one size of entries to another.

    With the number of modes all six bounds speak. Without sizes, a table.
    """
    from headcount.papers.ssm.depths import minimal_depth

    if c_from is None:
        return _depths(modes)
    if c_to is None:
        raise ValueError("give both sizes, as in `headcount ssm depth 10 3`, or none for the table")
    bounds = minimal_depth(c_from, c_to, modes=modes, width=width)
    rows = [{"argument": name} | bound.as_row() for name, bound in bounds._asdict().items()]
    shown = [{**row, "depth": _at(row["side"], row["value"], row["vacuous"])} for row in rows]
    return Printout(rows, [Listing(shown, ("argument", "depth", "source"))], bounds.claim())


def _depths(modes: int | None) -> Printout:
    from headcount.papers.ssm.depth_tables import minimal_depth_rows

    rows = minimal_depth_rows(modes=modes)
    shown = ("from", "to", *ARGUMENTS[: 6 if modes else 3])
    one = rows[0]
    so = f"entries of {one['from']} come down to {one['to']} with {one['sharper']} layers, whatever the poles"
    return Printout(rows, [Listing(rows, shown, "least depth from entries of c_1 (from) to c_2 (to)")], so)


def _at(side: str, value: float | None, vacuous: bool) -> str:
    if vacuous:
        return "says nothing"
    return "no depth does" if value is None else f"{'at least' if side == 'lower' else 'at most'} {value:g}"


def table(
    system: MaybeFile = None,
    depths: Annotated[str, typer.Option(help="Depths, separated by commas.")] = "1,2,3,4,6,12",
    deal: DealName = "modulus",
) -> Printout:
    """One system at every depth, beside the bounds.

    Without a system, thirteen real modes with entries of 10, which six depths hold exactly.
    """
    from headcount.papers.ssm.chains import deal_named
    from headcount.papers.ssm.depth_tables import depth_rows, depth_words, example_teacher
    from headcount.papers.ssm.system_files import load_shallow

    shallow = example_teacher() if system is None else load_shallow(system)
    rows = depth_rows(shallow, whole_numbers_of(depths, "--depths"), deal_named(deal))
    title = f"{shallow.merged().modes} modes, largest entry {shallow.largest_entry:.4g} in one layer"
    shown = [depth_words(row) for row in rows]
    best = min(rows, key=lambda row: row["largest entry"])
    so = f"depth {best['depth']} has the smallest entries of these, {best['largest entry']:.3g} at most"
    return Printout(rows, [Listing(shown, tuple(shown[0]), title)], so)


@dataclass(frozen=True)
class QuantiseOptions:
    """What `headcount quantise` takes."""

    system: MaybeFile = None
    bits: Annotated[str, typer.Option(help="Bits per number, separated by commas.")] = "6,8,10,12,16"
    depth: Annotated[int | None, typer.Option(help="Depth; that which loses least if not given.")] = None
    reach: Annotated[float | None, typer.Option(help="Largest weight of the format; each form's own if none.")] = None
    speech: Annotated[Path | None, typer.Option(help="Archive of spoken digits, instead of a system.")] = None
    digit: Annotated[int, typer.Option(help="Which digit of the archive.")] = 0
    order: Annotated[int, typer.Option(help="Order of the prediction filter.")] = 16
    sharpen: Annotated[int, typer.Option(help="Times the filter is run, each a little damped.")] = 1
    out: Out = None


def quantise(options: QuantiseOptions) -> Printout:
    """What a few bits per number cost, form by form.

    One layer, nested chains and second-order sections. Without a system, the prediction filter of a made-up vowel.
    """
    from headcount.files import write_text
    from headcount.papers.ssm.pictures import bits_picture
    from headcount.papers.ssm.quantise import FixedPoint, bits_rows, bits_sentence, hardened, rows_by_bits
    from headcount.papers.ssm.speech import speech_filter
    from headcount.papers.ssm.system_files import load_shallow

    counts = whole_numbers_of(options.bits, "--bits")
    vowel = (options.speech, options.digit, options.order, options.sharpen)
    shallow = load_shallow(options.system) if options.system else speech_filter(*vowel)
    middle = FixedPoint(sorted(counts)[len(counts) // 2], options.reach)
    deep = shallow.deepen(options.depth) if options.depth else hardened(shallow, middle)
    rows = bits_rows(shallow, {"one layer": shallow, f"depth {deep.depth}": deep}, counts, options.reach)
    title = f"{shallow.modes} modes, entries {shallow.largest_entry:.3g} and {deep.largest_entry:.3g}"
    files = []
    if options.out is not None:
        files = [write_text(options.out / "quantise.svg", bits_picture({title: rows}).standalone())]
    wide = rows_by_bits(rows)
    entries = f"{shallow.largest_entry:.3g} in one layer, {deep.largest_entry:.3g} at depth {deep.depth}"
    lines = [Listing(wide, tuple(wide[0]), "share of the response lost (rms)"), f"\nlargest entry {entries}"]
    return Printout(rows, lines, bits_sentence(rows), files)


def train(
    sizes: Annotated[str, typer.Option(help="Students, depth x width.")] = "1x13,1x25,2x7,3x5,4x4,5x4,6x3",
    clips: Annotated[str, typer.Option(help="Bounds on the entries.")] = "1,2,3,5,10",
    seeds: Annotated[int, typer.Option(help="Seeds of each student.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of Adam.")] = 4000,
    start: Annotated[str, typer.Option(help="random, wiring, nearby or construction.")] = "random",
    out: Out = None,
) -> Printout:
    """Train students of every depth with clipped entries.

    The teacher is the system of `headcount ssm table`. Takes minutes on a CPU.
    """
    from headcount.files import write_text
    from headcount.papers.ssm import experiments
    from headcount.papers.ssm.depth_tables import example_teacher
    from headcount.papers.ssm.pictures import training_picture

    teacher = example_teacher()
    begin = experiments.start_named(start, teacher)
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    shapes, bounds = _sizes(sizes), numbers_of(clips, "--clips")
    recipe = experiments.StudentRecipe(steps)
    rows = experiments.train_table(teacher, shapes, bounds, range(seeds), begin, recipe)
    files = [] if out is None else [write_text(out / "train.svg", training_picture(rows).standalone())]
    columns = ("depth", "width", "parameters", *(f"{c:g}" for c in bounds))
    of = f"\nNMSE of the kernel for each bound on the entries, best of {counted(seeds, 'seed')}, start {start}"
    best = min(experiments.best_rows(rows), key=lambda row: row["best nmse"])
    shape = f"depth {best['depth']} and width {best['width']} with entries up to {best['max_entry']:g}"
    so = f"{shape} learned the kernel best, to an NMSE of {best['best nmse']:.2g}"
    return Printout(rows, [Listing(experiments.rows_by_size(rows), columns), of], so, files)


def _sizes(text: str) -> list[tuple[int, int]]:
    pairs = [tuple(part.split("x")) for part in text.split(",")]
    if not all(len(pair) == 2 and all(n.isdigit() and int(n) > 0 for n in pair) for pair in pairs):
        raise ValueError(f"--sizes takes depth x width separated by commas, as in 2x7,3x5; got {text!r}")
    return [(int(depth), int(width)) for depth, width in pairs]
