"""The three commands: what they print, what they write, and how they refuse."""

import json

import pytest
import torch

import headcount
from headcount.cli import main

transformers = pytest.importorskip("transformers")

WORDS = tuple("abcdefghijklmnopqrstuvwxyz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny sentence encoder with its tokenizer, as a folder of the usual files."""
    where = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    model = transformers.BertModel(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    model.save_pretrained(where)
    (where / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    (where / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (where / "modules.json").write_text("[]")
    return where


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    g = torch.Generator().manual_seed(0)
    lines = [" ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (30,), generator=g)) for _ in range(40)]
    path.write_text("\n".join(lines))
    return path


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main([str(a) for a in arguments])
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


def test_allocate_prints_the_four_gram(capsys):
    code, out, _ = call(capsys, "theory", "allocate", "--curve")
    assert code == 0
    assert "0.683498" in out and "32 heads, 256 of 256 spent" in out
    code, out, _ = call(
        capsys, "theory", "allocate", "--json", "--weights", "1,1", "--token-dim", "4", "--budget", "32"
    )
    facts = json.loads(out)
    assert sum(facts["heads"]) == 8 and facts["head_dims"] == [4, 4]


def test_allocate_warns_of_starved_lags(capsys):
    _, out, _ = call(capsys, "theory", "allocate", "--budget", "128")
    assert "careful: lag 4 has 4 heads; below 5" in out


def test_compress_writes_both_checkpoints_and_the_table(capsys, folder, text, tmp_path):
    where = tmp_path / "out"
    arguments = ["compress", folder, "--keep", "0.5", "--text", text, "--passages", "8", "--out", where, "--padded"]
    arguments += ["--cast", "none"]
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    assert "Ranks kept" in out and "bytes of tensors" in out and "milliseconds per batch" in out
    assert {p.name for p in where.iterdir()} == {"compact", "padded"}
    from headcount.shrinking import load_compact

    ids = torch.arange(5, 20)[None]
    small = load_compact(where / "compact")(ids).last_hidden_state
    stock = transformers.AutoModel.from_pretrained(where / "padded").eval()(ids).last_hidden_state
    torch.testing.assert_close(small, stock, atol=1e-5, rtol=0)
    code, _, err = call(capsys, *arguments)
    assert code == 2 and "exists already" in err


def test_saturation_and_compress_read_what_compress_wrote(capsys, folder, text, tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    more = ["--text", text, "--passages", "8", "--json", "--cast", "none"]
    call(capsys, "compress", folder, "--keep", "0.5", *more, "--out", first)
    code, out, err = call(capsys, "compress", first / "compact", *more, "--keep", "0.3", "--out", again, "--padded")
    assert code == 0, err
    rows = {row[""]: row for row in json.loads(out)["table"]}
    assert rows["parameters"]["compact"] < rows["parameters"]["original"]
    ids = torch.arange(5, 20)[None]
    stock = transformers.AutoModel.from_pretrained(again / "padded").eval()(ids).last_hidden_state
    small = headcount.nets.pretrained.load(again / "compact")(ids).last_hidden_state
    torch.testing.assert_close(small, stock, atol=1e-5, rtol=0)
    lengths = ["--lengths", "8,16", "--samples", "2", "--json"]
    code, out, err = call(capsys, "saturation", first / "compact", "--text", text, *lengths)
    assert code == 0, err
    assert len(json.loads(out)["layers"]) == 2


def test_the_python_twin_does_what_the_command_does(capsys, folder, text):
    options = ["--keep", "0.4", "--text", text, "--passages", "8", "--grouping", "--json"]
    _, out, _ = call(capsys, "compress", folder, *options)
    twin = headcount.compress(folder, keep=0.4, text=text, pieces=8, grouping=True).as_row()
    said = json.loads(out)
    assert {k: v for k, v in twin.items() if k not in ("table", "error", "floor")} == {
        k: v for k, v in said.items() if k not in ("table", "error", "floor")
    }
    assert said["error"] == pytest.approx(twin["error"], rel=1e-6)
    with pytest.raises(ValueError, match="read a text, and none was given"):
        headcount.compress(folder)


def test_compress_reports_what_it_saved(capsys, folder, text):
    code, out, _ = call(
        capsys, "compress", folder, "--keep", "0.4", "--text", text, "--passages", "8", "--grouping", "--json"
    )
    report = json.loads(out)
    rows = {row[""]: row for row in report["table"]}
    saved = rows["parameters"]["original"] - rows["parameters"]["compact"]
    assert code == 0 and saved == report["saved"]
    assert rows["bytes of tensors"]["original"] - rows["bytes of tensors"]["compact"] == 4 * report["saved"]


def test_compress_can_distil(capsys, folder, text):
    code, out, err = call(
        capsys, "compress", folder, "--keep", "0.3", "--text", text, "--passages", "8", "--distil", "0.02", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["written"] == []


def test_saturation_prints_layers_and_heads(capsys, folder, text):
    code, out, err = call(capsys, "saturation", folder, "--text", text, "--lengths", "8,16,32", "--samples", "3")
    assert code == 0, err
    assert "Lambda" in out and "What a smaller query-key rank changes" in out
    _, out, _ = call(
        capsys, "saturation", folder, "--text", text, "--lengths", "8,16", "--samples", "2", "--json", "--heads"
    )
    facts = json.loads(out)
    assert len(facts["rows"]) == 2 * 2 * 3
    for row in facts["rows"]:
        assert row["norm"] <= row["largest_weight"] + 1e-6
    assert all(cost["logits"] >= 0 for cost in facts["rank_costs"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["theory", "allocate", "--weights", "1,x"], "--weights takes numbers separated by commas, got '1,x'"),
        (["theory", "allocate", "--budget", "0"], "budget must be a whole number of at least 1"),
        (["compress", "./nowhere", "--measure", "weights"], "no folder at ./nowhere"),
        (["compress", "MODEL"], "give --text FILE"),
        (["compress", "MODEL", "--text", "./none.txt"], "no text file at none.txt"),
        (["compress", "MODEL", "--measure", "weights", "--keep", "0.0001"], "less than one rank of one head"),
        (["compress", "MODEL", "--measure", "weights", "--keep", "2"], "keep must be above 0 and at most 1, got 2"),
        (
            ["compress", "MODEL", "--measure", "wait", "--text", "TEXT"],
            "measure must be one of weights, inputs, outputs",
        ),
        (
            ["compress", "MODEL", "--measure", "weights", "--parts", "keys"],
            "parts must be among query-key, value-output",
        ),
        (["compress", "MODEL", "--measure", "weights", "--rule", "fair"], "rule must be one of uniform, allocated"),
        (["compress", "MODEL", "--measure", "weights", "--padded"], "give --out DIR"),
        (["saturation", "MODEL"], "Missing option '--text'"),
        (["saturation", "MODEL", "--text", "TEXT", "--lengths", "100"], "every length exceeds the 64 positions"),
        (["saturation", "EMPTY", "--text", "TEXT"], "holds no config.json"),
        (
            ["saturation", "OTHER", "--text", "TEXT"],
            "is of type 't5', which cannot be shrunk; known: bert, gpt2, llama",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line_and_nothing_is_written(arguments, sentence, capsys, folder, text, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "t5"}))
    named = {"MODEL": folder, "TEXT": text, "EMPTY": tmp_path / "empty", "OTHER": tmp_path / "other"}
    out = tmp_path / "out"
    more = ["--out", out] if arguments[0] == "compress" and "--padded" not in arguments else []
    code, _, err = call(capsys, *(named.get(a, a) for a in arguments), *more)
    assert code == 2
    assert sentence in err and err.count("\n") == 1
    assert not out.exists()


def test_a_missing_weights_file_is_one_line(capsys, folder, tmp_path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    code, _, err = call(capsys, "compress", tmp_path, "--measure", "weights")
    assert code == 2 and "no weights can be read" in err and err.count("\n") == 1
