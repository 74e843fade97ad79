"""Every way in gives the same sequences; every damaged, misshapen or hopeless input is one clear line."""

import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from headcount.cli import main
from headcount.measuring import load, sequences
from headcount.measuring.splitting import outer_splits
from headcount.measuring.tables import Reading, cut_windows

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(2, 6, 60)
LENGTHS[0] = 5
TOKENS = [RNG.standard_normal((n, 2)).astype(np.float32) for n in LENGTHS]
TARGETS = np.array([t.max() for t in TOKENS])
PADDED = np.zeros((60, 5, 2), dtype=np.float32)
for _i, _t in enumerate(TOKENS):
    PADDED[_i, : len(_t)] = _t


def long_table(path, target=TARGETS, group=None):
    lines = [f"id,a,target,b,said{',who' if group is not None else ''}"]
    for i, tokens in enumerate(TOKENS):
        for a, b in tokens:
            lines.append(
                f"s{i},{float(a)!r},{target[i]},{float(b)!r},word" + (f",{group[i]}" if group is not None else "")
            )
    path.write_text("\n".join(lines) + "\n")
    return path


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def same(found):
    assert found.x.shape == PADDED.shape
    np.testing.assert_allclose(found.x, PADDED)
    np.testing.assert_array_equal(found.lengths, LENGTHS)
    np.testing.assert_allclose(found.y[:, 0], TARGETS)


def test_every_way_in_gives_the_same_sequences(tmp_path, monkeypatch):
    flat = {"x": np.concatenate(TOKENS), "offsets": np.cumsum([0, *LENGTHS]), "y": TARGETS}
    same(load(npz(tmp_path / "flat.npz", **flat)))
    same(load(npz(tmp_path / "lengths.npz", x=PADDED + 0, y=TARGETS, lengths=LENGTHS)))
    mask = np.arange(5) < LENGTHS[:, None]
    same(load(npz(tmp_path / "mask.npz", x=PADDED, y=TARGETS, mask=mask)))
    found = load(long_table(tmp_path / "long.csv"), Reading(sequence="id"))
    same(found)
    assert found.notes == ("left out, for they hold no numbers: said",)
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, rows in enumerate((range(40), range(40, 60))):
        part = {"x": PADDED[rows], "y": TARGETS[rows], "lengths": LENGTHS[rows]}
        save_file({k: np.ascontiguousarray(v) for k, v in part.items()}, shards / f"part-{number}.safetensors")
    same(load(shards))
    single = tmp_path / "single"
    single.mkdir()
    for i, tokens in enumerate(TOKENS):
        save_file({"x": tokens, "y": TARGETS[i : i + 1]}, single / f"{i:03d}.safetensors")
    same(load(single))
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nwith np.load('flat.npz') as file:\n    flat = dict(file)\n"
        "def ragged(): return np.split(flat['x'], flat['offsets'][1:-1]), flat['y']\n"
        "def named(): return dict(x=flat['x'], offsets=flat['offsets'], y=flat['y'])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    same(load("mine:ragged"))
    same(load("mine:named"))


def test_classes_are_names_in_order_and_groups_are_read(tmp_path):
    names = np.where(np.median(TARGETS) < TARGETS, "yes", "no")
    path = long_table(tmp_path / "named.csv", names, group=np.arange(60) % 7)
    found = load(path, Reading(sequence="id", group="who"))
    assert (found.kind, found.classes) == ("classification", ("no", "yes"))
    assert len(np.unique(found.groups)) == 7
    assert found.notes == ("left out, for they hold no numbers: said",)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (np.arange(60) % 3, "classification"),
        ((np.arange(60) % 3).astype(float), "classification"),
        (np.arange(60), "regression"),
        (np.linspace(0, 1, 60), "regression"),
        (np.arange(60) % 2 == 0, "classification"),
    ],
)
def test_the_kind_of_target_is_read_off_its_values(y, kind):
    assert sequences(PADDED, y, lengths=LENGTHS).kind == kind


def test_a_series_is_cut_into_windows_that_end_before_their_target(tmp_path):
    values = RNG.standard_normal((100, 2))
    lines = ["date,a,b", *(f"day {i},{a!r},{b!r}" for i, (a, b) in enumerate(values.tolist()))]
    (tmp_path / "series.csv").write_text("\n".join(lines))
    found = load(tmp_path / "series.csv", Reading(target="b", window=8, horizon=3))
    assert found.x.shape == (90, 8, 2)
    assert found.apart == 10
    np.testing.assert_allclose(found.x[5], values[5:13].astype(np.float32))
    assert found.y[5, 0] == pytest.approx(values[15, 1])


def test_windows_reach_the_end_of_the_series():
    x, y = cut_windows(np.arange(10.0)[:, None], np.arange(10.0), window=4, horizon=2)
    assert y[-1] == 9.0 and x[-1, -1, 0] == 7.0


SHORT = {"w": ["ab", "ba", "abc", "c a"] * 15, "y": [0, 1, 2, 1] * 15}


def table(path, **columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_text_makes_the_one_column_without_numbers_the_text_however_short(tmp_path):
    mine = table(tmp_path / "mine.csv", size=range(60), **SHORT)
    found = load(mine, Reading(target="y", text="characters"))
    assert found.letters == (" ", "a", "b", "c") and found.lengths[:4].tolist() == [2, 2, 3, 3]
    assert found.notes[:2] == ("'w' was read by characters", "left out: size")
    assert load(mine, Reading(target="y", text="words")).letters == ("a", "ab", "abc", "ba", "c")
    assert load(mine, Reading(target="y")).letters == ()  # few and short: names of kinds
    digits = table(tmp_path / "digits.csv", w=["010", "110", "011"] * 20, y=SHORT["y"])  # beside the target alone
    assert load(digits, Reading(target="y", text="characters")).letters == ("0", "1")


def test_a_long_text_is_read_the_same_with_text_and_without_and_beside_a_column_of_names(tmp_path):
    texts = [f"word number {i}" for i in range(60)]
    long = table(tmp_path / "long.csv", who=["ann", "bob"] * 30, w=texts, y=SHORT["y"])
    default, said = (load(long, Reading(target="y", text=by)) for by in (None, "characters"))
    assert default.digest == said.digest and default.notes == said.notes


def test_texts_of_a_function_are_cut_as_text_says(tmp_path, monkeypatch):
    (tmp_path / "spoken.py").write_text("def texts(): return ['to be', 'or not'] * 30, [0, 1] * 30\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert load("spoken:texts", Reading(text="words")).letters == ("be", "not", "or", "to")
    assert load("spoken:texts").letters == load("spoken:texts", Reading(text="characters")).letters


def test_short_texts_read_as_names_or_refused_are_told_about_text(tmp_path):
    (said, *_) = load(table(tmp_path / "mine.csv", **SHORT), Reading(target="y")).notes
    assert said == "every name is a token, 4 in all; `text` characters or words reads its texts"
    with pytest.raises(ValueError, match="`text` characters or words reads its texts"):
        load(table(tmp_path / "many.csv", w=[f"w{i}" for i in range(60)], y=SHORT["y"]), Reading(target="y"))


def broken(folder):
    """(name, arguments, what the line must say) for every kind of damage."""
    good = {"x": PADDED, "y": TARGETS}
    holes = PADDED.copy()
    holes[3, 1, 0] = np.nan
    (folder / "damaged.npz").write_bytes(b"PK\x03\x04 this is no archive")
    whole = npz(folder / "whole.npz", **good).read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "text.npz").write_text("hello")
    with (folder / "array.npz").open("wb") as file:
        np.save(file, PADDED)
    (folder / "damaged.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    (folder / "uneven.csv").write_text("id,a,target\n1,2,3\n1,2\n")
    (folder / "words.csv").write_text("id,a,target\n" + "".join(f"{i},{i},1\n" for i in range(60)) + "60,many,2\n")
    (folder / "hole.csv").write_text("id,a,target\n1,,3\n" + "".join(f"{i},{i},1\n" for i in range(60)))
    (folder / "two.csv").write_text("id,a,target\n1,1,3\n1,2,4\n")
    (folder / "head.csv").write_text("id,a,target\n")
    (folder / "short.csv").write_text("a,target\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    (folder / "table.parquet").write_bytes(b"PAR1 not really")
    (folder / "odd.xyz").write_text("?")
    (folder / "empty").mkdir()
    (folder / "bad").mkdir()
    (folder / "bad" / "a.safetensors").write_bytes(b"12345678 nothing")
    (folder / "half").mkdir()
    save_file({"x": PADDED}, folder / "half" / "a.safetensors")
    (folder / "mine.py").write_text("def none(): return 3\n")
    arrays = {
        "misshapen": ({"x": np.zeros((60, 5, 2, 2)), "y": TARGETS}, "x must be (samples, length, token_dim)"),
        "mismatch": ({"x": PADDED, "y": TARGETS[:50]}, "there are 60 sequences, so y must be (60,)"),
        "endless": (
            {"x": np.where(np.isnan(holes), np.inf, holes), "y": TARGETS},
            "1 of 600 values of x are infinite, the first in sequence 3, token 1",
        ),
        "nan_y": ({"x": PADDED, "y": np.where(np.arange(60) == 7, np.nan, TARGETS)}, "1 targets are NaN"),
        "one_class": ({"x": PADDED, "y": np.array(["cat"] * 60)}, "every sequence is of class cat"),
        "constant": ({"x": PADDED, "y": np.ones(60)}, "every target is 1: there is nothing to learn"),
        "ten": ({"x": PADDED[:10], "y": TARGETS[:10]}, "ten holds 10 sequences; measuring needs at least 50"),
        "no_y": ({"x": PADDED}, "no_y lacks 'y'; it has x"),
        "misspelt": ({**good, "lenghts": LENGTHS}, "unknown key 'lenghts' in misspelt; did you mean 'lengths'?"),
        "too_long": ({**good, "lengths": LENGTHS + 5}, "x has room for 1 to 5"),
        "offsets": ({"x": PADDED[:, 0], "y": TARGETS, "offsets": np.arange(60)}, "offsets must rise from 0 to the 60"),
        "mask": ({**good, "mask": np.arange(5) > 1 + np.zeros((60, 1))}, "mask must mark the first tokens"),
        "both": ({**good, "lengths": LENGTHS, "mask": np.ones((60, 5))}, "lengths and mask say the same"),
        "per_token": ({"x": PADDED, "y": PADDED[:, :, 0]}, "one per token"),
        "same": ({"x": np.ones((60, 5, 2)), "y": TARGETS}, "every token of every sequence is the same"),
        "many": ({"x": PADDED, "y": np.array([f"n{i}" for i in range(60)])}, "60 classes among 60 sequences"),
        "one_group": ({**good, "groups": np.zeros(60)}, "all sequences are of one group"),
        "copies": (
            {"x": np.repeat(PADDED[:2], 30, axis=0), "y": TARGETS},
            "only 1 different sequences are left for validation",
        ),
        "pickled": ({"x": np.array([{}] * 60, dtype=object), "y": TARGETS}, "pickled.npz is not a readable .npz file"),
    }
    for name, (content, says) in arrays.items():
        yield [npz(folder / f"{name}.npz", **content)], says
    yield [folder / "damaged.npz"], "is not a readable .npz file"
    yield [folder / "cut.npz"], "is not a readable .npz file"
    yield [folder / "text.npz"], "is not a readable .npz file"
    yield [folder / "array.npz"], "is not a readable .npz file"
    yield [folder / "damaged.csv"], "is not a CSV file in UTF-8"
    yield [folder / "uneven.csv", "--sequence", "id"], "line 3 has 2 fields, the header 3"
    yield [folder / "words.csv", "--sequence", "id"], "row 61 of column 'a' holds 'many', which is no number"
    yield [folder / "two.csv", "--sequence", "id"], "'target' in sequence '1' takes 2 values (3, 4)"
    yield [folder / "head.csv", "--sequence", "id"], "a header and rows are needed"
    yield [folder / "whole.npz", "--tokens", "words"], "tokens must be numbers or letters"
    yield [folder / "whole.npz", "--pooling", "max"], "pooling must be class token or mean"
    yield [folder / "words.csv", "--sequence", "id", "--target", "taget"], "no column 'taget'; did you mean 'target'?"
    yield [folder / "words.csv", "--sequence", "id", "--window", "3"], "not both"
    yield [folder / "short.csv", "--window", "50"], "a series of 40 rows has no window of 50"
    yield [folder / "short.csv", "--window", "0"], "window must be at least 1, got 0"
    yield [folder / "short.csv", "--window", "3", "--text", "words"], "--text reads a row as a sequence"
    yield [folder / "short.csv", "--text", "letters"], "text is read by characters or words, got 'letters'"
    named = table(folder / "named.csv", a=["x", "z"] * 30, size=range(60), **SHORT)
    yield [named, "--target", "y", "--text", "words"], "named has 2 columns without numbers (a, w); leave one"
    yield [named, "--target", "w", "--text", "words", "--split", "a"], "named has no column without numbers"
    yield [folder / "whole.npz", "--text", "words"], "x of whole holds none: --tokens letters reads ids"
    yield [folder / "table.parquet", "--sequence", "id"], "parquet"
    yield [folder / "odd.xyz"], "measure reads .npz, .csv, .parquet and safetensors"
    yield [folder / "absent.npz"], "no data at"
    yield [folder / "empty"], "holds no .safetensors files"
    yield [folder / "bad"], "is not a readable safetensors file"
    yield [folder / "half"], "a.safetensors lacks 'y'; it has x"
    yield ["mine:none"], "must return (x, y) or a dict of"
    yield ["mine:absent"], "cannot be imported"
    yield [folder / "whole.npz", "--window", "3"], "read tables"
    yield [folder / "whole.npz", "--kind", "guessing"], "kind must be regression or classification"
    yield [folder / "whole.npz", "--heads", "many"], "--heads must be counts such as 1-8 or 1,2,4"
    yield [folder / "whole.npz", "--heads", "3"], "heads must be at least two counts"
    yield [folder / "whole.npz", "--budget", "soon"], "a time such as 90s, 5m or 1h is needed"
    yield [folder / "whole.npz", "--splits", "1"], "splits must lie between 2 and 20, got 1"
    yield [folder / "whole.npz", "--device", "abacus"], "device must be cpu or cuda"


def test_every_mistake_is_one_line_and_exit_code_two(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)
    for arguments, says in broken(tmp_path):
        with pytest.raises(SystemExit) as stop:
            main(["measure", *map(str, arguments)])
        printed = capsys.readouterr()
        assert stop.value.code == 2, arguments
        assert says in printed.err, (arguments, printed.err)
        assert printed.err.count("\n") == 1, printed.err
    sys.modules.pop("mine", None)
    assert not list(tmp_path.glob("out/**/*.html"))


def test_a_split_column_is_followed_and_kept_from_groups_on_both_sides(tmp_path):
    sides = ["test" if i % 5 == 0 else "train" for i in range(80)]
    rows = [f"{i},{t},{i * (t + 1)},{i % 7},{sides[i]}" for i in range(80) for t in range(3)]
    (tmp_path / "mine.csv").write_text("id,a,b,target,part\n" + "\n".join(rows))
    data = load(tmp_path / "mine.csv", Reading(sequence="id", split="part", kind="regression"))
    parts = outer_splits(data)[0]
    assert data.held_out.sum() == 16 and set(parts.outer) <= set(range(0, 80, 5))
    assert parts.words.startswith("as the data say") and data.x.shape[2] == 2
    with pytest.raises(ValueError, match="split holds 'trian'"):
        sequences(np.eye(60), np.arange(60.0), split=["trian"] * 60)
    with pytest.raises(ValueError, match="one side; both are needed"):
        outer_splits(sequences(np.eye(60), np.arange(60.0), split=[0] * 60))
    both = sequences(np.eye(60), np.arange(60.0), split=[0, 1] * 30, groups=[i // 2 for i in range(60)])
    with pytest.raises(ValueError, match="puts 30 groups on both sides"):
        outer_splits(both)
    with pytest.raises(ValueError, match="`group` and `split` belong to `sequence`"):
        load(tmp_path / "mine.csv", Reading(window=3, split="part"))


def test_arrays_carry_their_split(tmp_path):
    x = np.random.default_rng(0).standard_normal((60, 3, 1))
    side = np.array(["training"] * 40 + ["validation"] * 20)
    np.savez(tmp_path / "mine.npz", x=x, y=x.max(axis=(1, 2)), split=side)
    data = load(tmp_path / "mine.npz")
    assert outer_splits(data)[0].outer.tolist() == list(range(40, 60))
    assert data.digest != sequences(x, x.max(axis=(1, 2))).digest


def test_objects_are_read_by_their_values_and_a_missing_target_is_named():
    x = np.random.default_rng(0).standard_normal((60, 4, 2))
    named = sequences(x, np.array(["a", "b"] * 30, dtype=object))
    assert named.classes == ("a", "b")
    ragged = np.empty(60, dtype=object)
    ragged[:] = [one[: 2 + i % 3] for i, one in enumerate(x)]
    assert sequences(ragged, x[:, 0, 0]).lengths.max() == 4
    with pytest.raises(ValueError, match="target 1 is missing"):
        sequences(x, np.array(["a", None] * 30, dtype=object))
