"""The benchmark is fair: every contestant does the same work."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from benchmarks.bank_speed import slope
from benchmarks.deep_page import deep_lines
from benchmarks.deep_race import ratios
from benchmarks.peers import one_by_one, vmapped
from benchmarks.problem import Problem, Size, of_backend
from headcount.kernels.backend import eager, reference
from headcount.kernels.cpp import compiled
from headcount.kernels.cpp.native_library import native_library


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(Size(3, 5, batch=8, heads=2, steps_per_epoch=3), "cpu")


def test_every_contestant_reaches_the_same_parameters(problem):
    def reached(way) -> torch.Tensor:
        epoch, theta = way(problem)
        epoch()
        epoch()
        return theta().detach() - problem.theta[: theta().shape[0]]

    true = reached(lambda p: of_backend(p, reference))
    ours = [eager] if native_library("float32") is None else [eager, compiled.backend]
    for way in (*(partial(of_backend, backend=backend) for backend in ours), vmapped, one_by_one):
        moved = reached(way)
        # AdamW divides a gradient by its own size: where it is nearly zero, its rounding is what moves the parameter.
        assert (moved - true[: len(moved)]).norm() < 1e-3 * true[: len(moved)].norm()


def test_the_slope_of_a_power_law_is_its_exponent():
    assert slope([(x, 3 * x**1.5) for x in (1.0, 2.0, 4.0, 8.0)]) == pytest.approx(1.5, abs=1e-12)


def test_a_step_cannot_avoid_416_products_a_token_forwards():
    size = Size(512, 32)
    assert size.operations() == 3 * 2 * 416 * size.batch * size.length
    two = Size(512, 32, layers=2)
    assert two.operations() == 3 * 2 * (160 + 1024 + 3072 + 2048 + 1024 + 2048 + 256) * two.batch * two.length


def test_the_ratio_is_of_the_backend_that_is_preferred_and_not_of_the_fastest():
    shape = {"models": 128, "length": 32, "batch": 256, "heads": 4, "layers": 1, "width": 64}
    ways = {"fused": 60.0, "fused, tail=4096": 80.0, "by parts": 70.0, "JAX vmap + scan": 20.0}
    (found,) = ratios([{"way": way, **shape, "rate": rate, "loss": 1.5} for way, rate in ways.items()])
    assert found["ours"] == "fused" and found["ratio"] == 3.0


def test_the_page_of_deep_banks_shows_ratios_failures_and_lost_banks():
    shape = {"models": 128, "length": 32, "batch": 256, "heads": 4, "layers": 2, "width": 32}
    ours, theirs = {"way": "cuda", **shape}, {"way": "JAX vmap + scan", **shape}
    rows = [{**ours, "rate": 60.0, "loss": 1.5}, {**theirs, "rate": 20.0, "loss": 1.5001}]
    rows = [{**row, "operations": 5.08e11} for row in rows]
    run = {"device": "a GPU", "torch": "2", "date": "today", "ratios": ratios(rows), "cells": rows}
    run["growth"] = [
        {"models": k, "rate": 1e6 / us, "microseconds": us, "bytes": 2**20} for k, us in ((64, 12), (512, 10))
    ]
    run["failed"] = [{**ours, "error": "no room"}]
    bank = {"kind": "all", "bank": 1, "gaps": [1e-3, 2e-3], "beyond": [1], "backend": "cuda", "left out in training": 0}
    fuzz = {"on": "today, a GPU", "asked": {"all": 2}, "rows": [bank, {"kind": "all", "bank": 2, "error": "lost"}]}
    text = "\n".join(deep_lines(run, fuzz))
    assert "all: cuda 1." in text and "Beyond rounding: 1 banks,\n1 members" in text
    assert "| 60 | cuda | 60%, 4% | 20 (JAX vmap + scan) | 3.0 | to 4 digits |" in text
    assert "The slowest takes 20% more than the fastest" in text
    assert "no room" in text and "- bank 2: lost" in text and "Could not run: 1." in text
    assert deep_lines(None, None) == []
