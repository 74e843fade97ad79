"""The study of worst errors: what is trained is what is certified, and a page says what its data say."""

import json

import pytest
import torch

from headcount.certificates.worst_case.met_errors import errors_at
from headcount.nets.target_units import TargetUnits
from headcount.training import train
from headcount.training.data import target_scale
from studies.worst.cells import WHOLE, Cell, StudyBank
from studies.worst.page import Group, gap_answer, kept, page, transition, with_cells
from studies.worst.peers import PlainError
from studies.worst.training_banks import TrainedCell, built, trained


def test_the_plan_holds_what_the_question_asks_for():
    cells = [cell for bank in WHOLE.banks for cell in bank.cells]
    count = lambda keep: sum(cell.members for cell in cells if keep(cell))  # noqa: E731
    assert count(lambda c: True) >= 10_000 and all(c.width >= 16 for c in cells)
    assert all(count(lambda c, T=T: c.length == T and c.token_dim == 1) >= 1000 for T in (2, 4, 6))
    assert count(lambda c: c.length == 8) >= 300 and count(lambda c: c.length == 10) >= 30
    assert count(lambda c: c.token_dim == 2) >= 300
    assert len({(c.name, c.first) for c in cells}) == len(cells)
    seeds = {}
    for cell in cells:  # more seeds of a cell are other seeds
        assert not seeds.setdefault(cell.name, set()) & set(cell.seeds)
        seeds[cell.name] |= set(cell.seeds)


def test_a_cell_is_folded_out_of_a_padded_bank_as_it_was_trained():
    bank = StudyBank((Cell(2, 1, 1, 1, 2), Cell(3, 1, 2, 2, 2)), epochs=1)
    members = [m for cell in bank.cells for m in cell.planned()]
    outcome = train(members, bank.recipe())
    scales = [target_scale(m.drawn, m.data_seed, bank.recipe().samples) for m in members]
    part = TrainedCell.of(bank.cells[1], outcome, slice(2, 4), members, scales)
    x = torch.rand(2, 50, 3, 1, dtype=torch.float64)
    for k in range(2):
        net = TargetUnits(outcome.net(2 + k).double(), *scales[2 + k])
        with torch.no_grad():
            gap = (net(x[k]) - members[2 + k].drawn(x[k])).abs()
        assert torch.allclose(errors_at(part.net, part.target, x)[k], gap, atol=1e-9)


@pytest.mark.slow
def test_training_on_worst_points_lowers_the_worst_error():
    from headcount.certificates.worst_case.met_errors import meet

    cell = Cell(3, 1, 1, 1, 3)
    worst = []
    for rounds in (0, 2):
        (part,) = trained(StudyBank((cell,), epochs=60, rounds=rounds), "cpu")
        worst.append(meet(part.net, part.target, 0.0, 1.0).error[:, 0].median())
    assert worst[1] < 0.5 * worst[0]


def small(**other):
    columns = {"nmse": [1e-4], "rms": [1e-3], "sampled": [0.01], "attacked": [0.02], "worst_lower": [0.1], "boxes": [9]}
    columns |= {"worst_upper": [0.11], "open": [0], "constant": [0.4], "large_share": [0.01], "worst": [[0.0]]}
    sizes = {"length": 2, "token_dim": 1, "retrievals": 1, "heads": 1, "variant": "plain", "ratio": 1.1}
    return {**sizes, **other, "columns": columns, "took": {"proving": 0.5}}


def test_a_page_says_what_its_data_say():
    about = {"date": "2026-11-16 20:00 UTC", "device": "CPU", "torch": "2", "command": "python -m studies.worst"}
    raw = {"cells": {"a": small(), "b": small(length=8)}, "checks": {}, "about": about}
    data = kept(json.loads(json.dumps(raw)))
    assert "worst" not in data["cells"]["a"]["columns"]
    text = page(data)
    assert "2 trained networks, each with a proved worst error" in text
    assert "at least 100 times the root mean square at length 2" in " ".join(text.split())


def test_constructed_networks_stay_below_their_promise_in_the_shape_of_trained_ones():
    (part,) = built(StudyBank((Cell(3, 1, 2, 2, 2),), built=True))
    x = torch.rand(2, 2000, 3, 1, dtype=torch.float64)
    assert part.net.W.shape[1] == 16 and errors_at(part.net, part.target, x).max() < 0.02


def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch):
    from studies.worst import __main__ as study
    from studies.worst.cells import Plan

    cells = Cell(2, 1, 1, 1, 2), Cell(2, 1, 1, 1, 1, first=2)
    banks = tuple(StudyBank((cell,), epochs=2, boxes=500) for cell in cells)
    ask = ["--seconds", "100", "--reserve", "0", "--check", "0", "--out", str(tmp_path)]
    for number in (1, 2, 2):
        monkeypatch.setattr(study, "WHOLE", Plan(banks[:number], samples=200))
        monkeypatch.setattr("sys.argv", ["worst", *ask])
        study.main()
        (cell,) = json.loads((tmp_path / "worst.json").read_text())["cells"].values()
        assert cell["columns"]["seed"] == list(range(1 + number)) == [0, 1, 2][: 1 + number]
        assert len(cell["columns"]["worst_upper"]) == 1 + number


def test_the_transition_is_told_from_neighbouring_head_counts():
    few, enough = small(heads=1), small(heads=2)
    few["columns"] |= {"worst_upper": [0.33], "worst_lower": [0.3]}
    words = transition({(2, 2, 1): Group((few,)), (2, 2, 2): Group((enough,))})
    assert "worst error by 3.00" in words.replace("\n", " ") and "no smaller" in words
    few["columns"]["open"] = [3]
    assert "No two neighbouring" in transition({(2, 2, 1): Group((few,)), (2, 2, 2): Group((enough,))})


def test_cells_of_a_newer_run_take_the_place_of_those_of_the_same_name():
    old = {"cells": {"a": small(), "b": small(length=8)}, "checks": {"x": 1}, "about": {"date": "before"}}
    new = {"cells": {"b": small(length=9)}, "checks": {}, "about": {"date": "after"}}
    both = with_cells(old, new)
    assert both["about"]["date"] == "after" and both["checks"] == {"x": 1}
    assert {name: cell["length"] for name, cell in both["cells"].items()} == {"a": 2, "b": 9}


def test_a_gap_is_closed_only_where_a_proof_says_so():
    better, met_only, same = small(), small(), small()
    better["columns"] |= {"worst_lower": [0.01], "worst_upper": [0.015]}
    met_only["columns"] |= {"worst_lower": [0.01], "worst_upper": [0.2], "open": [3]}
    cells = {"plain": small(), "taught": better, "built": met_only, "decay": same}
    said = gap_answer({name: Group((cell,)) for name, cell in cells.items()}, 4)
    assert "surely lowers it: taught at least 6.7 times" in said
    assert "less than a half: decay" in said and "not proved: built (0 of 1 proofs closed)" in said


def test_the_error_in_plain_operations_is_the_error():
    (part,) = built(StudyBank((Cell(3, 1, 2, 2, 1),), built=True))
    x = torch.rand(1, 50, 3, 1, dtype=torch.float64)
    with torch.no_grad():
        out = PlainError(part.net, part.target)(x[0].flatten(1))[:, 0]
    assert torch.allclose(out, (part.net(x) - part.target.value(x))[0], atol=1e-9)
