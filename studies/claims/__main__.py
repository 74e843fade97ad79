"""`python -m studies.claims`: train every case beside its reference, in processes, until the time is up."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from headcount.training.sweeps import environment
from studies.claims.cases import SEED, Case, drawn_cases
from studies.claims.judged import Row, table
from studies.claims.training_cases import BATCH, SAMPLES, SEEDS, STEPS, learned
from studies.stored import today, written


def main() -> None:
    asked = _arguments()
    file: Path = asked.out / "claims_trained.json"
    asked.out.mkdir(parents=True, exist_ok=True)
    known: dict[str, Row] = json.loads(file.read_text())["rows"] if file.exists() else {}
    steps, samples, seeds = (64, 2048, 2) if asked.small else (STEPS, SAMPLES, SEEDS)
    cases = drawn_cases(3 if asked.small else asked.each)
    setup = {"seed": SEED, "each": asked.each, "steps": steps, "batch": BATCH, "samples": samples, "seeds": seeds}
    about = {"date": today(), **setup, **environment("cpu", "bank")}
    end, left = time.perf_counter() + asked.seconds, [case for case in cases if case.name not in known]
    with ProcessPoolExecutor(asked.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Row], Case] = {}
        while (left or running) and time.perf_counter() < end:
            while left and len(running) < asked.jobs:
                case = left.pop(0)
                running[pool.submit(learned, case, steps, samples, seeds)] = case
            for job in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                known[running.pop(job).name] = job.result()
                written(file, {"about": about, "rows": known})
        for process in list((pool._processes or {}).values()) if running else []:  # what is not finished is not kept
            process.kill()
    print(table(known))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--each", type=int, default=30, help="claims of each verdict")
    parser.add_argument("--out", type=Path, default=Path("out/claims"))
    parser.add_argument("--small", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
