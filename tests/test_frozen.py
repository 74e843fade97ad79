"""Frozen values from dictionaries: what is wrong is named with its place, and a file builds listed values only."""

import dataclasses
import importlib
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from headcount.certificates import load
from headcount.frozen import HOME, class_named, decode, plain, rebuilt
from headcount.nets import Architecture
from headcount.results import Store, read_study
from headcount.results.study import COLUMNS, Study
from headcount.structure import Structure
from headcount.tasks import LinearMax, describe, named
from headcount.training import Recipe, Sweep, sweep
from headcount.training.sweeps import run

OLD = Path(__file__).parent / "data" / "written_by_0_1_0"
GOOD = {"length": 8, "token_dim": 2, "retrievals": [{"name": "a", "after": []}]}


def with_(key, value):
    return {**GOOD, "retrievals": [{"name": "a", key: value}]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], r"^the structure must be a table of keys and values, got \[\]$"),
        ({**GOOD, "lenght": 8}, "^unknown key 'lenght' in the structure; did you mean 'length'\\?$"),
        ({"length": 8, "token_dim": 2}, "^the structure lacks 'retrievals'$"),
        ({**GOOD, "length": 8.0}, r"^length in the structure must be of type int \(a whole number\), got 8.0$"),
        ({**GOOD, "length": True}, r"^length in the structure must be of type int \(a whole number\), got True$"),
        ({**GOOD, "retrievals": 3}, "^retrievals in the structure must be a list of tables, each a Retrieval, got 3$"),
        (with_("cuont", 2), r"^unknown key 'cuont' in retrievals\[0\] in the structure; did you mean 'count'\?$"),
        (with_("window", "4"), r"^window in retrievals\[0\] in the structure must be a whole number, got '4'$"),
        (with_("after", "b"), r"^after in retrievals\[0\] in the structure must be a list of text, got 'b'$"),
        (with_("positions", [1, 2.5]), r"^positions\[1\] in retrievals\[0\] in the structure must be of type int"),
        (with_("name", "x" * 999), None),
    ],
)
def test_what_is_wrong_in_a_dictionary_is_said_with_its_place(data, says):
    if says is None:
        assert Structure.from_json(data).retrievals[0].name == "x" * 999
        return
    with pytest.raises(ValueError, match=says):
        Structure.from_json(data)


def test_a_long_wrong_value_is_shown_short():
    with pytest.raises(ValueError) as refusal:
        decode(Recipe, {"epochs": "x" * 10_000}, "[training]")
    assert len(str(refusal.value)) < 160


@pytest.mark.parametrize("wrong", [{"layers": [[2, 8.5]]}, {"layers": [[2]]}, {"layers": 2}, {"layers": [[True, 8]]}])
def test_an_architecture_of_wrong_types_is_refused_and_not_rounded(wrong):
    with pytest.raises(ValueError, match=r"layers.* in the architecture must be"):
        Architecture.from_json(json.dumps({"width": 8, **wrong}))


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("KthLargest", {"rank": 1.5}, "rank in task KthLargest must be of type int"),
        ("KthLargest", {"rank": True}, "rank in task KthLargest must be of type int"),
        ("LinearMax", {"retrievals": "three", "token_dim": 2}, "retrievals in task LinearMax must be of type int"),
        ("PositionSum", {"positions": 3}, "positions in task PositionSum must be a list of whole numbers"),
    ],
)
def test_a_task_with_a_field_of_another_type_is_refused(name, given, says):
    with pytest.raises(ValueError, match=says):
        named(name, length=8, **given)


def test_every_listed_value_is_there_under_its_name():
    for name, module in HOME.items():
        cls = getattr(importlib.import_module(module), name)
        assert class_named(name) is cls and cls.__module__ == module
        assert dataclasses.is_dataclass(cls) or issubclass(cls, torch.nn.Module)


def test_a_value_of_this_package_that_is_not_listed_is_not_written():
    with pytest.raises(ValueError, match=r"(Recipe|Schedule) cannot be saved: headcount/frozen\.py does not list it"):
        plain(Recipe())


def test_the_address_of_a_task_keeps_its_module():
    assert describe(LinearMax([[1.0]], 4))["is"] == "headcount.tasks.linear_max:LinearMax"


def about(path):
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["headcount"])  # noqa: SIM118


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("task",), {"is": "headcount.files:whole", "path": "GONE"}),
        (("domain",), {"is": "headcount.results.store:Store", "path": "GONE"}),
        (("attempts",), [{"is": "headcount.results.journal:Journal", "path": "GONE"}]),
        (("net", "is"), "headcount.training.sweeps:sweep"),
        (("net", "is"), "Box"),
        (("net", "shape"), {"is": "Box", "length": 4, "token_dim": 2, "low": 0.0, "high": 1.0}),
        (("net", "shape", "layers"), [[1.5, 2]]),
        (("task",), {"is": "Box", "length": 4, "token_dim": 2, "low": 0.0, "high": 1.0}),
        (("domain",), {"is": "Random"}),
        (("attempts",), [{"is": "Random", "count": "many"}]),
        (("attempts",), {"is": "Random"}),
        (("task", "is"), 7),
        (("certificate", "terms"), [{"name": "a", "value": "small", "why": "b"}]),
    ],
)
def test_a_file_that_names_what_is_not_listed_or_fits_nowhere_is_refused(place, value, tmp_path):
    weights, data = about(OLD / "pos.safetensors")
    at = data
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    save_file(weights, tmp_path / "forged.safetensors", {"headcount": json.dumps(data)})
    with pytest.raises(ValueError) as refusal:
        load(tmp_path / "forged.safetensors")
    assert "\n" not in str(refusal.value)


def test_a_file_that_lacks_a_part_says_which(tmp_path):
    weights, data = about(OLD / "pos.safetensors")
    for part in data:
        rest = {key: value for key, value in data.items() if key != part}
        save_file(weights, tmp_path / "short.safetensors", {"headcount": json.dumps(rest)})
        with pytest.raises(ValueError, match=f"lacks '{part}'"):
            load(tmp_path / "short.safetensors")


@pytest.mark.parametrize("name", ["pos", "linear", "kth", "ind"])
def test_networks_written_by_the_first_version_are_read_and_written_again_by_short_names(name, tmp_path):
    old = load(OLD / f"{name}.safetensors")
    assert old.check(seed=0).gap <= old.certificate.error
    again = load(old.save(tmp_path / "new.safetensors"))
    x = old.domain.sample(4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.net(x), old.net(x))
    assert (again.task, again.domain, again.attempts) == (old.task, old.domain, old.attempts)
    assert ":" not in json.dumps(
        [v["is"] for v in (about(tmp_path / "new.safetensors")[1][k] for k in ("task", "net"))]
    )


def test_plain_and_rebuilt_are_inverse_for_nested_values():
    task = named("PairMax", 8, retrievals=2, token_dim=2, tokens="sphere")
    assert rebuilt(json.loads(json.dumps(plain(task)))) == task


def test_a_sweep_finds_the_rows_that_the_first_version_stored(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "rows.sqlite").write_bytes((OLD / "rows.sqlite").read_bytes())
    stored, asked = Store.open(folder), Sweep.read(OLD / "sweep.toml")
    old = stored.study()
    assert len(old) == 8 and stored.missing([m.run(asked.recipe) for m in asked.members]) == []
    assert run(asked, stored).rows == old.rows  # nothing is trained


def test_training_again_gives_the_rows_of_the_first_version(tmp_path):
    old = read_study(OLD / "rows.sqlite")
    asked = Sweep.read(OLD / "sweep.toml")
    new = run(asked, Store.open(tmp_path / "new", create=True))
    for before, after in zip(old, new, strict=True):
        after = {key: value for key, value in after.items() if key != "backend"}  # a column since 0.2.0
        assert list(after) == list(before)
        numbers = [key for key in before if key.endswith("nmse")]
        assert {k: v for k, v in after.items() if k not in numbers} == {
            k: v for k, v in before.items() if k not in numbers
        }
        # Bit-equal on the machine that wrote them; other processors sum in another order.
        assert [after[key] for key in numbers] == pytest.approx([before[key] for key in numbers], rel=1e-4)


CERTIFIED = ("worst_lower", "worst_upper")  # columns that only `headcount certify` adds
SAID = ("loss", "token_accuracy", "string_accuracy", "tests", "curve", "accuracy", "train_accuracy", "validation_nmse")
ASKED = ("schedule", "batch", "noise", "read_out", "factors", "start", "source", "error_rate")


def test_a_row_has_the_columns_that_are_stated_in_their_order_and_types():
    study = sweep(LinearMax([[1.0]], 4), [Architecture(((1, 2),), 4)], seeds=1, recipe=Recipe(8, 4, 1, 4))
    assert list(study.rows[0]) == [name for name in COLUMNS if name not in (*CERTIFIED, *SAID, *ASKED)]
    assert {name: type(value) for name, value in study.rows[0].items()} == {n: COLUMNS[n].type for n in study.rows[0]}
    assert all(column.meaning for column in COLUMNS.values())


def test_a_study_whose_rows_have_wrong_types_is_refused_by_row_and_column():
    whole = {"name": "x", "spec": {}, "environment": {}, "rows": [{"heads": 1, "nmse": 0.5}, {"heads": 2.5}]}
    with pytest.raises(ValueError, match=r"heads in row 1 must be of type int \(a whole number\), got 2.5"):
        Study.from_json(json.dumps(whole))
    assert len(Study.from_json(json.dumps({**whole, "rows": [{"heads": 1, "nmse": None, "mine": "more"}]}))) == 1


def test_every_study_in_the_docs_is_still_read():
    studies = {}
    for path in sorted((Path(__file__).parents[1] / "docs" / "data").glob("*.json")):
        data = json.loads(path.read_text())
        if isinstance(data, dict) and {"name", "spec", "environment", "rows"} <= set(data):
            studies[path] = len(data["rows"])
    assert studies
    assert {path: len(read_study(path)) for path in studies} == studies
