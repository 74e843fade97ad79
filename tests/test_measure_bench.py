"""The bench of `measure`: plain encoders side by side are those of a loop; rows are kept once; how both are judged."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from studies.measure.bench import LOOK_UPS, runs_of
from studies.measure.beside import beside, plain_table, with_comparisons
from studies.measure.chance import at_random, by_halves, means, shrunken
from studies.measure.coverage import KEPT as KEPT_COVERAGE
from studies.measure.coverage import TARGETS, Design, covered, designs
from studies.measure.page import _asked_again, _asked_twice, longest_of, taken_in
from studies.measure.plain import Plain, PlainEncoder, PlainFold, PlainSetting, search_plain, train_plain
from studies.measure.pool import Pool
from studies.measure.real import read_ts
from studies.measure.runs import Run
from studies.measure.sets import PLANTED, REAL

SIZES = Plain(features=3, letters=0, length=5, outputs=4, classes=True, heads=2, layers=1)


def fold(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, 3, generator=generator)
    absent = torch.arange(5) >= torch.randint(2, 6, (rows, 1), generator=generator)
    part = x, absent, torch.eye(4)[torch.randint(4, (rows,), generator=generator)]
    blocks = torch.arange(30) % 7
    return PlainFold(part, tuple(one[:20] for one in part), tuple(one[20:50] for one in part), blocks)


def test_networks_trained_side_by_side_are_those_of_a_loop():
    folds = [fold(60), fold(80, seed=1)]
    shapes = SIZES, replace(SIZES, heads=1, layers=2)
    runs = [(shape, n, PlainSetting(lr, 0.0, 0.1)) for shape in shapes for n in (0, 1) for lr in (1e-3, 4e-3)]
    together = train_plain(folds, runs, 30)
    for run in runs:
        one, other = together[run], train_plain(folds, [run], 30)[run]
        assert one[:2] == pytest.approx(other[:2], rel=1e-4) and one[2] == pytest.approx(other[2], rel=1e-4)


def test_a_plain_step_is_that_of_torch():
    one = fold(32)
    (found,) = train_plain([one], [(SIZES, 0, PlainSetting(1e-2, 0.0, 0.1))], 1).values()
    torch.manual_seed(0)
    net = PlainEncoder(SIZES, 0.0)
    optimiser = torch.optim.AdamW(net.parameters(), 0.0, weight_decay=0.1)
    x, absent, y = one.training
    cross_entropy(net(x, absent), y).backward()
    optimiser.step()  # of one step, the cosine has come to its end: the rate is 0
    with torch.no_grad():
        assert found[0] == pytest.approx(float(cross_entropy(net.eval()(*one.inner[:2]), one.inner[2])), rel=1e-4)


def test_three_plain_steps_are_those_of_torch():
    one, steps = fold(32), 3
    (found,) = train_plain([one], [(SIZES, 0, PlainSetting(1e-2, 0.0, 0.1))], steps).values()
    torch.manual_seed(0)
    net = PlainEncoder(SIZES, 0.0)
    optimiser = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.1)
    x, absent, y = one.training  # one batch holds all rows, so their order does not matter
    levels = []
    for step in range(1, steps + 1):
        optimiser.param_groups[0]["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        cross_entropy(net(x, absent), y).backward()
        optimiser.step()
        with torch.no_grad():
            levels.append(float(cross_entropy(net(*one.inner[:2]), one.inner[2])))
    assert found[0] == pytest.approx(min(levels), rel=1e-3)


def test_the_search_keeps_what_the_inner_part_prefers():
    (levels,) = search_plain([SIZES], [fold(60), fold(60, seed=1)], 20)
    assert len(levels) == 2 and all(0 < inner < 3 and 0 < outer < 3 for inner, outer, _ in levels)
    assert all(sum(parts) == pytest.approx(outer) for _, outer, parts in levels)


def row(**more):
    errors = {"zero heads": 0.4, "1 head": 0.22, "2 heads": 0.2}
    by_split = {name: {str(n): [level * (1 + n / 100), level] for n in range(4)} for name, level in errors.items()}
    said = {"set": "wine", "form": "270 s", "worth": None, "verdict": "worth it", "heads": 2, "layers": 1}
    return said | {"by_split": by_split, "attends": ["1 head", "2 heads"], "levels": errors} | more


def plain(heads, level):
    by_split = {str(n): [level * (1 + n / 90), level] for n in range(5)}
    return {"set": "wine", "form": "plain", "heads": heads, "layers": 1, "by_split": by_split}


@pytest.mark.parametrize(("level", "standing"), [(0.2, "no worse"), (0.1, "worse"), (0.4, "no worse")])
def test_ours_is_judged_by_what_the_inner_part_prefers(level, standing):
    found = beside(row(), [plain(1, 2 * level), plain(2, level)])
    assert found.standing == standing and found.ours == pytest.approx(0.2, rel=0.05)
    assert found.advice.ratio == pytest.approx(1.0) and not found.overlooked
    assert beside(row(heads=1), [plain(1, 2 * level), plain(2, level)]).advice.ratio == pytest.approx(2.0)
    assert beside(row(heads=3), [plain(1, level)]).advice is None


def test_networks_are_compared_at_the_same_blocks():
    """Two heads are preferred on our side, one on the other: at the same blocks ours has three quarters."""
    theirs = [plain(1, 0.22 / 0.75), plain(2, 0.2 / 0.75)]
    for one in theirs:
        one["by_split"] = {n: [pair[0], pair[1] * one["heads"]] for n, pair in one["by_split"].items()}
    found = beside(row(), theirs)
    assert found.alike.ratio == pytest.approx(0.75, rel=0.01) and found.standing == "no worse"
    assert found.versus.ratio == pytest.approx(0.2 / 0.22 * 0.75, rel=0.01)


def table(*errors):
    """A plain table of one layer: for each count of heads the error on the first five splits and on the next."""
    rows = [plain(heads, 0.0) for heads in range(1, len(errors) + 1)]
    for one, (first, again) in zip(rows, errors, strict=True):
        one["by_split"] = {str(n): [first if n < 5 else again, 0.1] for n in range(10)}
    return rows


def test_advice_is_near_the_least_of_the_table_or_open_or_shown_to_be_out():
    best = beside(row(heads=1), table((0.20, 0.20), (0.21, 0.21)))
    assert best.advised == "near" and best.advice.ratio == pytest.approx(1.0)
    shown = beside(row(heads=1), table((0.20, 0.20), (0.18, 0.18)))
    assert shown.advised == "out" and shown.advice.ratio == pytest.approx(0.2 / 0.18)
    rows = table((0.20, 0.20), (0.18, 0.18))
    rows[1]["by_split"] = {n: [e * (0.5 + int(n) % 5 / 4), i] for n, (e, i) in rows[1]["by_split"].items()}
    assert beside(row(heads=1), rows).advised == "open"
    tiny = beside(row(heads=1), table((0.004, 0.004), (0.001, 0.001)))
    assert tiny.advised == "near" and tiny.advice.ratio == pytest.approx(4.0)  # 0.003 of the constant's: nothing
    assert beside(row(heads=3), table((0.2, 0.2))).advised == ""


def test_heads_alone_are_judged_in_the_advised_number_of_layers():
    deeper = [one | {"layers": 2} for one in table((0.1, 0.1), (0.15, 0.15))]
    rows = [*table((0.20, 0.20), (0.25, 0.25)), *deeper]
    for heads, layers, near in ((1, 1, True), (2, 1, False), (1, 2, True), (2, 2, False)):
        found = beside(row(heads=heads, layers=layers), rows)
        assert found.heads_near is near and (found.advised == "near") == ((heads, layers) == (1, 2))
    assert not beside(row(heads=3), rows).heads_near


def test_a_set_asked_again_is_shown_beside_what_was_open():
    best = {"one": "attention", "other": "zero heads", "splits": 5, "ratio": 0.8, "low": 0.6, "high": 1.1}
    known = row(set="wine", worth=None, verdict="cannot say yet", missing="splits", compared=[best])
    known |= {"form": "600 s", "splits": 5, "steps": 600, "cpu_seconds": 9.0, "budget": 600.0}
    settled = known | {"form": "600 steps, 20 splits", "verdict": "worth it", "missing": "", "splits": 20}
    settled["compared"] = [best | {"high": None}]
    earlier = known | {"form": "240 s of 5 cores", "verdict": "not worth it"}
    rows = [earlier, known, settled]
    words = "\n".join([*_asked_twice(rows, longest_of(rows)), *_asked_again(rows, longest_of(rows))])
    assert "1 set had been asked before" in words and "wine (not worth it, then cannot say yet)" in words
    assert "| 5, then 20 | 0.80 [0.60, 1.10] of zero heads | 0.80 [0.60, inf] of zero heads | worth it |" in words
    assert not [*_asked_twice([known], longest_of([known])), *_asked_again([known], longest_of([known]))]


def test_a_false_not_worth_it_is_seen():
    assert beside(row(verdict="not worth it"), [plain(1, 0.2)]).overlooked
    assert not beside(row(verdict="not worth it"), [plain(1, 0.5)]).overlooked
    levels = {"zero heads": 0.004, "1 head": 0.001}
    by_split = {name: {str(n): [e * (1 + n / 100), e] for n in range(4)} for name, e in levels.items()}
    small = row(verdict="not worth it", levels=levels, by_split=by_split, attends=["1 head"])
    assert beside(small, [plain(1, 0.001)]).beaten and not beside(small, [plain(1, 0.001)]).overlooked
    assert beside(row(), []) is None


def test_real_sets_are_asked_for_ten_minutes_of_two_cores_once():
    runs = runs_of()
    assert {run.set for run in runs if run.kind == "plain"} == {one.name for one in REAL} | set(LOOK_UPS)
    assert {run.set for run in runs if run.kind == "busy"} == {one.name for one in PLANTED}
    first = {run.set: (run.budget, run.workers) for run in reversed(runs) if run.kind == "ask"}
    assert {first[one.name] for one in REAL} == {(600.0, 2)}
    run = Run("wine", "plain", heads=(1, 2))
    assert run.missing([plain(1, 0.3)]) == [(1, 2), (2, 1), (2, 2)]
    assert len(replace(run, first=10).missing([plain(1, 0.3)])) == 4
    assert Run("wine", budget=270.0).missing([row()]) == []


def test_of_a_table_of_noise_nothing_is_left_and_of_another_nearly_all():
    rng = np.random.default_rng(0)

    def drawn(levels):
        rows = table(*((0.0, 0.0) for _ in levels))
        for one, level in zip(rows, levels, strict=True):
            one["by_split"] = {str(n): [level * float(np.exp(0.1 * rng.standard_normal())), 0.1] for n in range(10)}
        return plain_table(rows)

    ratios = {True: [], False: []}
    for equal in (True, False):
        for _ in range(50):
            levels = np.full(8, 0.2) if equal else 0.2 * 1.3 ** np.arange(8)
            left = shrunken(drawn(levels))
            ratios[equal].append(max(left.values()) / min(left.values()))
    assert np.median(ratios[True]) < 1.05 and abs(np.median(ratios[False]) / 1.3**7 - 1) < 0.05
    assert at_random(means(drawn(0.2 * 1.3 ** np.arange(8)))) == 1 / 8
    assert by_halves(drawn(0.2 * 1.3 ** np.arange(8))) == (True, True)
    crossed = table((0.1, 0.3), (0.3, 0.1))
    assert by_halves(plain_table(crossed)) == (False, False)


def test_a_run_begins_only_if_it_ends_in_time(tmp_path):
    pool = Pool(tmp_path / "rows.json", until=math.inf, folder=tmp_path, rows=[row()])
    assert not pool.may_begin(Run("wine", budget=270.0)) and pool.may_begin(Run("digits", budget=270.0))
    pool.until = 0.0
    assert not pool.may_begin(Run("digits", budget=270.0))


def test_later_rows_take_the_place_of_earlier_ones():
    kept = taken_in([row(), plain(1, 0.2)], [row(heads=1), plain(2, 0.1)])
    assert [(one["form"], one["heads"]) for one in kept] == [("270 s", 1), ("plain", 1), ("plain", 2)]


def test_a_series_file_is_read_with_gaps_and_several_channels():
    series, labels = read_ts("#words\n@classLabel true 1 2\n@Data\n1.0,?,3:4,5,6:1\n7,8:9,10:2\n")
    assert [one.shape for one in series] == [(3, 2), (2, 2)] and labels == ["1", "2"]
    assert math.isnan(series[0][1, 0])


def test_the_interval_holds_as_often_as_its_page_says():
    kept = json.loads(KEPT_COVERAGE.read_text())
    assert [(r["sequences"], r["splits"], r["targets"]) for r in kept] == [
        (d.sequences, d.splits, d.targets) for d in designs()
    ]
    shares = [row["blocks and folds"][of] for row in kept for of in ("of new data", "of these networks")]
    assert min(shares) >= 0.8 and sum(shares) / len(shares) >= 0.9
    easy = [row["blocks and folds"]["of new data"] for row in kept if row["targets"] != TARGETS[-1]]
    assert min(easy) >= 0.85
    assert all(r["blocks and folds"]["half width"] < r["corrected t-test"]["half width"] for r in kept)
    small = covered(Design(60, 5, "numbers"), studies=6)
    assert small == covered(Design(60, 5, "numbers"), studies=6) and 0 < small["blocks and folds"]["half width"] < 1


def test_comparisons_stay_when_parts_go():
    rows = [row(parts={n: {s: [e[0] / 2] * 2 for s, e in by.items()} for n, by in row()["by_split"].items()})]
    theirs = plain(2, 0.21)
    rows += [theirs | {"parts": {s: [e[0] / 2] * 2 for s, e in theirs["by_split"].items()}}]
    kept = with_comparisons(rows)
    assert "parts" not in kept[0] and kept[1] == rows[1]
    before, after = beside(rows[0], rows[1:]), beside(kept[0], kept[1:])
    assert before.versus == after.versus and before.baselines == after.baselines and before.advice == after.advice
