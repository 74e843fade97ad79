"""The pair table with a class token that asks once, at the end: `python -m studies.infoflow.pair_table --device cuda`.

Rule, fixed before looking: unit tokens, length 64, token_dim 4, E = 64, head_dim 16, width 128, fresh samples, four
seeds, one learning rate for all cells, the one that is best by median for (D,D) at D = 2 and 3 in a search of a third
of the steps (the first search, of 2,000 steps, chose a rate that is too large for a long run; docs/log.md). A cell's
number is its smallest validation NMSE over the run; the best and the median over seeds are shown. Parts are written as
they finish: `rates`, `sphere` (D = 2 to 6, or those of `--rows`), `gaussian` (D = 2), `near` (from the constructed
network, disturbed), each followed by `late`: the same networks trained on with a larger batch. `draws`: D = 2 with the
matrices drawn five times (seeds 0 to 4), 60 networks in one bank, 100,000 steps, without `late`. `widths`: D = 2 by the
hidden units of every feed-forward.

`--linear` asks the same of networks whose tokens enter by one matrix, `--gelu` with GELU in the tokens' feed-forwards,
`--no-residual` of networks whose tokens keep nothing but what the heads of a layer mixed.

With `--state DIR` a long part keeps its state there every minute and on SIGTERM, and goes on from it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from headcount.nets import Transformer
from headcount.numerals import today
from headcount.papers.infoflow import asked_forms, predict
from headcount.papers.infoflow.choosing import sharings
from headcount.papers.infoflow.experiments import PAIRS, pair_cells
from headcount.papers.infoflow.trained_cells import Entry
from headcount.training import Member, Outcome, Recipe, train
from headcount.training.bank_jobs import environment
from headcount.training.checkpoints import Checkpoint, Termination, heeding_termination
from headcount.training.data import Resident
from headcount.training.fresh import OnDevice
from studies.infoflow.pair_start import pair_start, smooth_pair_start
from studies.infoflow.routed import disturbed
from studies.stored import DATA, stored, written

RATES = (5e-4, 1e-3, 2e-3)
DECAY = 1e-2
DRAWS = 5
WIDTHS = (32, 128, 256, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--tokens", choices=("sphere", "gaussian"), default="sphere", help="of `rates` and `draws`")
    parser.add_argument("--draw", type=int, default=0, help="the seed of the matrices of `rates` and `gaussian`")
    parser.add_argument("--longest", type=int, default=100_000, help="steps of `draws`")
    parser.add_argument(
        "--late", type=int, default=8_000, help="steps with four times the batch, after the others; 0: none"
    )
    parser.add_argument("--search", type=int, default=20_000, help="steps of the search for a learning rate")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128, help="hidden units of every feed-forward")
    parser.add_argument("--rows", default="2,3,4,5,6", help="the D of `sphere` and `gaussian`, one bank")
    parser.add_argument("--near-steps", type=int, default=16_000)
    parser.add_argument("--near-lr", type=float, default=3e-4)
    parser.add_argument("--noise", type=float, default=0.01, help="how far `near` is disturbed, relative to a weight")
    parser.add_argument("--state", type=Path, help="where a long part keeps its state")
    parser.add_argument("--parts", default="rates,sphere,gaussian,near")
    parser.add_argument("--rates", default=",".join(map(str, RATES)), help="those of the search")
    parser.add_argument("--lr", type=float, help="skip the search")
    parser.add_argument("--linear", action="store_true", help="tokens enter by one matrix, and cannot choose")
    parser.add_argument("--gelu", action="store_true", help="GELU in the tokens' feed-forwards, not ReLU")
    parser.add_argument("--no-residual", action="store_true", help="states of tokens are what heads mixed, alone")
    parser.add_argument("--out", type=Path, default=DATA / "pair_table.json")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if options.tiny:
        options.seeds, options.steps, options.late, options.search, options.near_steps = 1, 16, 8, 8, 8
        options.longest = 16
    table = stored(options.out)
    resumable = options.state is not None  # who keeps nothing may be ended at once
    with heeding_termination() if resumable else nullcontext(Termination()) as options.termination:
        for part in options.parts.split(","):
            start = time.perf_counter()
            result = PARTS[part](options, table)
            result = {"seconds": round(time.perf_counter() - start, 1)} | result
            result |= {"date": today(), **_where(options.device)}
            name = _named(part, options)
            table[name] = result | {"rows": _joined(table.get(name, {}).get("rows", []), result)}
            written(options.out, table)
            _show(name, table[name])


def _named(part: str, options: argparse.Namespace) -> str:
    part = f"gaussian {part}" if part in ("rates", "draws") and options.tokens == "gaussian" else part
    part = part if options.length == 64 else f"{part} at length {options.length}"
    part = part if options.width == 128 else f"{part}, width {options.width}"
    part = f"{part}, linear embedding" if options.linear else part
    part = f"{part}, gelu" if options.gelu else part
    return f"{part} without residuals" if options.no_residual else part


def _joined(known: Sequence[dict[str, Any]], result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows just made, each with its own recipe, and those of other cells that stood there before."""
    recipe = {k: result[k] for k in ("lr", "steps", "late", "backend", "date", "device") if k in result}
    new = [row | recipe for row in result["rows"]]
    names = [row.get("cell", row.get("lr")) for row in new]
    rows = [row for row in known if row.get("cell", row.get("lr")) not in names] + new
    return sorted(rows, key=lambda row: row.get("retrievals", 0))


def rates(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """The learning rate for all cells: the best by median for (D,D) at D = 2 and 3."""
    cells = _cells(options.tokens, options, options.draw)[0:4:3]
    seeds = max(1, options.seeds // 2)
    tried = [float(lr) for lr in options.rates.split(",")]
    members = [Member(c.task, c.arch, s, 0, lr, DECAY) for lr in tried for c in cells for s in range(seeds)]
    outcome = _train(members, _recipe(options.search, options), options, None, "rates")
    nmse = [row["nmse"] for row in outcome.rows]
    each = len(cells) * seeds
    rows = [{"lr": lr, **_levels(nmse[i * each : (i + 1) * each])} for i, lr in enumerate(tried)]
    return {"rows": rows, "chosen": min(rows, key=lambda row: row["median"])["lr"], "steps": options.search}


def sphere(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """The asked D at their three shapes, unit tokens."""
    return _table(_asked(_cells("sphere", options), options), options, table)


def gaussian(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """The same with tokens from N(0, I), where tokens that choose miss something: how much is beside each cell."""
    result = _table(_asked(_cells("gaussian", options, options.draw), options), options, table)
    return result | {"draw": options.draw}


def _asked(cells: Sequence[Entry], options: argparse.Namespace) -> list[Entry]:
    rows = {int(D) for D in options.rows.split(",")}
    return [c for c in cells if len(c.task.matrices) in rows]  # pyright: ignore[reportAttributeAccessIssue]


def widths(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """D = 2 with Gaussian tokens by hidden units: a cell that is cheap has its error fall with them."""
    result, rows = {}, []
    for width in WIDTHS:
        result = _table(_cells("gaussian", options, options.draw, width)[:3], options, table)
        rows += [{**row, "cell": f"{row['cell']}, width {width}", "width": width} for row in result["rows"]]
    return result | {"rows": rows, "draw": options.draw, "length": options.length}


def near(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """(D, D) for D = 2, 3, 4 from the constructed network, disturbed: is the level there to be reached?

    A tenth of every weight destroys the network of ReLUs (its norms cancel), so that nothing near it is left; see
    docs/log.md. The smooth one, for `--linear --gelu` and Gaussian tokens, keeps its shape.
    """
    tokens = "gaussian" if options.linear and options.gelu else "sphere"
    cells = _cells(tokens, options)[0::3][:3]
    start = [_near(cell, seed, options.noise) for cell in cells for seed in range(options.seeds)]
    return _table(cells, options, table, start, options.near_steps)


def draws(options: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    """D = 2, the matrices drawn anew: is a head short as costly whatever they are? Also the long record of a bank."""
    cells = [cell for draw in range(DRAWS) for cell in _cells(options.tokens, options, draw)[:3]]
    lr = options.lr or table["rates"]["chosen"]
    members = [Member(c.task, c.arch, s, 0, lr, DECAY) for c in cells for s in range(options.seeds)]
    with _Spent(options.state) as spent:
        recipe = _recipe(options.longest, options)
        outcome = _train(members, recipe, options, None, "draws", spent.noted)
    nmse = [row["nmse"] for row in outcome.rows]
    rows = [
        {"cell": c.name, "draw": i // 3, "layers": c.arch.name, "missed by choosing": _missed(c)}
        | _levels(nmse[i * options.seeds :][: options.seeds])
        for i, c in enumerate(cells)
    ]
    facts = {
        "lr": lr,
        "steps": recipe.steps,
        "seeds": options.seeds,
        "members": len(members),
        "backend": outcome.backend.name,
    }
    return {"rows": rows, **facts, "seconds": round(spent.seconds, 1)}


def _missed(cell: Entry) -> float | None:
    """What tokens that choose miss on the task's own samples, where the first layer has a head too few."""
    if cell.arch.embedding == "linear":
        return None  # what a token asks for is then one form of it and its partner: it cannot choose
    by_heads = {choice.heads: choice.nmse for choice in sharings(cell.task)}  # pyright: ignore[reportArgumentType]
    return by_heads.get(cell.arch.layers[0][0])


class _Spent:
    """Seconds of a training that may be cut and go on: those before are kept beside its state."""

    def __init__(self, folder: Path | None) -> None:
        self.file = None if folder is None else folder / "seconds.txt"

    def __enter__(self) -> _Spent:
        self.before = float(self.file.read_text()) if self.file is not None and self.file.exists() else 0.0
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.noted()

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.began

    def noted(self, steps: int = 0) -> None:
        """Write down what was spent so far."""
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(f"{self.seconds:.1f}")


PARTS = {"rates": rates, "sphere": sphere, "gaussian": gaussian, "widths": widths, "near": near, "draws": draws}


def _cells(tokens: str, options: argparse.Namespace, draw: int = 0, width: int | None = None) -> list[Entry]:
    size: dict[str, int] = (
        {"length": 8, "width": 64} if options.tiny else {"length": options.length, "width": width or options.width}
    )
    kind = {"class_token": "last", "residual": not options.no_residual}
    kind |= {"embedding": "linear" if options.linear else "feed-forward"}
    kind |= {"activation": "gelu" if options.gelu else "relu"}
    return pair_cells(tokens, head_dim=16, draw=draw, **size, **kind)


def _near(cell: Entry, seed: int, noise: float) -> Transformer:
    _, y = cell.task.sample(65536, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    start = pair_start if cell.arch.activation == "relu" else smooth_pair_start
    net = start(cell.task, cell.arch, float(y.mean()), float(y.std()))  # pyright: ignore[reportArgumentType]
    return disturbed(net, noise, torch.Generator().manual_seed(seed))


def _recipe(steps: int, options: argparse.Namespace, batch: int = 256) -> Recipe:
    batch = 16 if options.tiny else batch
    samples = 8 * batch if options.tiny else 256 * batch
    epochs = max(1, steps * batch // samples)
    validation = 64 if options.tiny else 16384
    return Recipe(samples, validation, epochs, batch, fresh=True, evaluations=min(epochs, 64))


def _table(
    cells: Sequence[Entry],
    options: argparse.Namespace,
    table: dict[str, Any],
    start: Sequence[Transformer] | None = None,
    steps: int = 0,
) -> dict[str, Any]:
    lr = options.near_lr if start is not None else options.lr or table[_named("rates", options)]["chosen"]
    members = [Member(c.task, c.arch, s, 0, lr, DECAY) for c in cells for s in range(options.seeds)]
    named = (c.name.split(" ")[:2] for c in cells)
    name = "-".join(dict.fromkeys(f"{tokens}-{D.replace('=', '')}-{cells[0].arch.width}" for tokens, D in named))
    first = _train(members, _recipe(steps or options.steps, options), options, start, name)
    late = [replace(m, lr=lr / 4) for m in members]
    nets = [first.net(k) for k in range(len(members))]
    second = _train(late, _recipe(options.late, options, batch=1024), options, nets, name) if options.late else first
    begun = [row["nmse"] for row in first.rows]
    ended = [min(a["nmse"], b["nmse"]) for a, b in zip(first.rows, second.rows, strict=True)]
    rows = []
    for i, cell in enumerate(cells):
        best = min(range(options.seeds), key=lambda s, at=i * options.seeds: ended[at + s])
        own_seeds = slice(i * options.seeds, (i + 1) * options.seeds)
        shape = i % 3 if len(cells) % 3 == 0 and start is None else 0
        D = len(cell.task.matrices)  # pyright: ignore[reportAttributeAccessIssue]
        rows.append(
            {
                "cell": cell.name,
                "retrievals": D,
                "layers": cell.arch.name,
                "published": PAIRS[D][shape],
                **_predicted(cell),
                "missed by choosing": _missed(cell),
                **_levels(ended[own_seeds]),
                **_asks(cell, second.net(i * options.seeds + best)),
                "before_late": _levels(begun[own_seeds]),
            }
        )
    setup = {"lr": lr, "steps": steps or options.steps, "late": options.late, "seeds": options.seeds}
    return {"rows": rows, **setup, "backend": first.backend.name}


def _asks(cell: Entry, net: Transformer) -> dict[str, Any]:
    """Which look-up each head of the first layer serves, where that can be read off its matrices."""
    if cell.arch.embedding != "linear":
        return {}
    forms = asked_forms(net, cell.task)  # pyright: ignore[reportArgumentType]
    digits = {"cosine": 4, "sharpness": 3}
    return {"asks": [{k: round(v, digits[k]) if k in digits else v for k, v in a.as_row().items()} for a in forms]}


def _predicted(cell: Entry) -> dict[str, Any]:
    """What the calculus says of a cell; it says nothing of networks without residuals."""
    if not cell.arch.residual:
        return {"predicted": "not counted", "exponent": None}
    prediction = predict(cell.task, cell.arch)
    return {"predicted": "cheap" if prediction.cheap else "costly", "exponent": prediction.exponent}


def _train(
    members: Sequence[Member],
    recipe: Recipe,
    options: argparse.Namespace,
    start: Sequence[Transformer] | None,
    name: str,
    on_progress: Callable[[int], None] | None = None,
) -> Outcome:
    data = OnDevice if recipe.fresh else Resident
    checkpoint = None
    if options.state is not None and start is None:  # what starts from networks is short
        options.state.mkdir(parents=True, exist_ok=True)
        checkpoint = Checkpoint(options.state / f"{name}.safetensors", 60.0, options.termination)
    return train(
        members, recipe, device=options.device, data=data, start=start, checkpoint=checkpoint, on_progress=on_progress
    )


def _levels(nmse: Sequence[float]) -> dict[str, Any]:
    digits = [float(f"{v:.4g}") for v in nmse]
    return {"best": min(digits), "median": float(f"{median(digits):.4g}"), "nmse": digits}


def _where(device: str) -> dict[str, Any]:
    machine = environment(device, "bank")
    return {"device": machine["device"], "torch": machine["torch"]}


def _show(part: str, result: dict[str, Any]) -> None:
    print(f"{part}: {result['seconds']} s", flush=True)
    for row in result["rows"]:
        name = row.get("cell", f"lr {row.get('lr')}")
        print(
            f"  {name:<24} best {row['best']:.2e}  median {row['median']:.2e}  {row.get('published', '')}", flush=True
        )


if __name__ == "__main__":
    main()
