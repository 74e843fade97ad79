"""`python -m studies.language_model`: see the package's first lines."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from studies.language_model.device_steps import DeviceRun, Figures, StudySizes
from studies.language_model.encoder_part import compressed_encoder, pack_encoder
from studies.language_model.quantised_parts import TEXTS, pack, unpack
from studies.language_model.teaching import teach
from studies.language_model.two_cores import two_cores

PARTS = Path(".gpu")
SMALL = StudySizes(
    (32, 64), calibration=256, choosing=128, judged=256, others=128, steps=6, batch=2, written=4, sequences=4, rounds=8
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=("pack", "run", "teach", "check", "two-cores", "encoder", "doors", "page"))
    parser.add_argument("--texts", type=Path, help="folder of the texts (pack)")
    parser.add_argument("--folder", type=Path, help="what `compress --cast none --onnx --out` wrote (doors)")
    parser.add_argument("--out", type=Path, default=Path("out/language_model"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=480.0, help="all of it, at most")
    parser.add_argument("--threads", type=int, default=2, help="of what runs on a processor")
    parser.add_argument("--small", action="store_true", help="few tokens in short windows, to see that it runs")
    options = parser.parse_args()
    path = options.out / "language_model.json"
    if options.job == "pack":
        pack(options.texts, PARTS)
        pack_encoder(options.texts, PARTS)
    elif options.job == "page":
        from studies.language_model.page import write_page

        print(*write_page(), sep="\n")
    elif options.job == "doors":
        from studies.language_model.doors import doors

        run = DeviceRun("", {}, options.out / "language_model_doors.json", "cpu", options.seconds)
        run.step("doors", lambda: doors(options.folder, options.out))
        print(run.known().get("doors"))
    elif options.job == "check":
        g = torch.Generator().manual_seed(0)
        texts = {name: torch.randint(0, 250, (4096,), generator=g) for name in TEXTS}
        measure(DeviceRun("tiny-llama", texts, path, "cpu", options.seconds, SMALL))
    elif options.job == "encoder":
        torch.set_num_threads(options.threads)
        run = DeviceRun("", {}, options.out / "encoder.json", "cpu", options.seconds)
        compressed_encoder(PARTS, run, pieces=8 if options.small else 128)
    elif options.job == "two-cores":
        there = options.out / "language_model_two_cores.json"
        two_cores(DeviceRun(*unpack(PARTS), there, "cpu", options.seconds), threads=options.threads)
    else:
        torch.set_num_threads(min(8, torch.get_num_threads()))
        sizes = SMALL if options.small else StudySizes()
        job, name = (measure, path.name) if options.job == "run" else (teaching, "language_model_taught.json")
        began = time.monotonic()  # unpacking takes of the time too
        job(DeviceRun(*unpack(PARTS), options.out / name, options.device, options.seconds, sizes, began))


def measure(measured: DeviceRun) -> None:
    """Everything, the most wanted first, in the time that there is."""
    measured.step("facts", measured.facts)
    measured.methods(until=0.62 * measured.seconds)
    teach(measured, reserve=0.08 * measured.seconds)
    measured.methods(until=5.0)
    measured.step("budgets", measured.budgets, least=10.0)
    measured.step("four bits again", measured.four_bits, least=5.0)
    measured.step("costs", measured.costs, least=10.0)
    print(summary(measured.known()))


def teaching(measured: DeviceRun) -> None:
    """Teaching alone, the control, and what an earlier run of everything did not come to."""
    measured.step("facts", measured.facts)
    teach(measured, reserve=30.0 if measured.seconds > 300 else 0.1 * measured.seconds)
    measured.step("four bits again", measured.four_bits, least=5.0)
    measured.step("costs", measured.costs, least=10.0)
    print(summary(measured.known()))


def summary(known: Figures) -> str:
    """The bench's rows and the taught ones, in a few lines."""
    lines = [f"{r['method']}, {r['part']}, {r['keep']}, {r['length']}: x {r['ratio']:.3f}" for r in known["rows"]]
    for step in ("taught", "control"):
        rows = known.get(step, {}).get("rows", ())
        lines += [f"{r['model']}, {r['text']}, {r['length']}: x {r['ratio']:.3f}" for r in rows]
    return "\n".join([*lines, f"failed: {[name for name in known if name.endswith(' failed')] or 'nothing'}"])


if __name__ == "__main__":
    main()
