"""`python -m studies.claims`: train every case beside its reference, in processes, until the time is up."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headcount.numerals import today
from headcount.training.bank_jobs import environment
from studies.claims.cases import SEED, Case, drawn_cases
from studies.claims.judged import Row, confirmed, near, table
from studies.claims.training_cases import BATCH, FORMS, learned
from studies.stored import stored, written

SMALL = {"steps": 64, "samples": 2048, "seeds": 2}


def main() -> None:
    options = _arguments()
    file: Path = options.out / "claims_trained.json"
    options.out.mkdir(parents=True, exist_ok=True)
    known = stored(file)
    more = {**(SMALL if options.small else {}), "device": options.device}
    forms = {name: replace(form, **more) for name, form in FORMS.items()}
    cases = drawn_cases(3 if options.small else options.each)
    setup = {"seed": SEED, "each": options.each, "batch": BATCH, **asdict(forms["rows"])}
    known["about"] = {"date": today(), **setup, **environment(options.device, "bank")}
    left = list(_left(cases, known, again=options.again))
    end = time.perf_counter() + options.seconds
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[Row], tuple[str, Case]] = {}
        while (left or running) and time.perf_counter() < end:
            while left and len(running) < options.jobs:
                form, case = left.pop(0)
                running[pool.submit(learned, case, forms[form])] = form, case
            for job in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                form, case = running.pop(job)
                known.setdefault(form, {})[case.name] = job.result()
                written(file, known)
        for process in list((pool._processes or {}).values()) if running else []:  # what is not finished is not kept
            process.kill()
    for form in FORMS:
        if form in known:
            print(f"{form}:\n{table(known[form])}")


def _left(cases: list[Case], known: dict[str, Any], *, again: bool) -> Iterator[tuple[str, Case]]:
    """What is still to be trained, in order: all cases; or those near the border, the unconfirmed first."""
    rows: dict[str, Row] = known.get("rows", {})
    if not again:
        yield from (("rows", case) for case in cases if case.name not in rows)
        return
    border = [case for case in cases if case.name in rows and near(rows[case.name])]
    border.sort(key=lambda case: all(confirmed(rows[case.name], by) for by in ("best", "median")))
    for form in ("longer", "wider"):
        yield from ((form, case) for case in border if case.name not in known.get(form, {}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--each", type=int, default=30, help="claims of each verdict")
    parser.add_argument("--out", type=Path, default=Path("out/claims"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="cases near the border, longer and wider")
    parser.add_argument("--small", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
