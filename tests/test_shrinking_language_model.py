"""Language models made smaller: prices in units of loss, exact cuts, and what is written loads everywhere."""

import json
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from headcount.cli import main
from headcount.nets.pretrained.families import Rotary, at_stock_places, family_of

transformers = pytest.importorskip("transformers")

from headcount.nets.pretrained import load, tokenizer_of  # noqa: E402
from headcount.papers.allocation.slopes import loss_slopes  # noqa: E402
from headcount.papers.allocation.units import rewrite  # noqa: E402
from headcount.shrinking import (  # noqa: E402
    Lessons,
    calibrated,
    carried_out,
    compared,
    compress,
    cut_to,
    learn_from,
    losses_of,
    size,
    split_text,
    tensor_bytes,
)
from headcount.shrinking.bench_table import beaten, bench_verdict  # noqa: E402
from headcount.shrinking.keep_curve import KeepCurve  # noqa: E402
from headcount.shrinking.loss_bench import benched, trials  # noqa: E402
from headcount.shrinking.loss_plan import (  # noqa: E402
    carried_means,
    divergence,
    even_plan,
    held_against_truth,
    loss_plan,
    putting,
)
from headcount.shrinking.loss_units import PairBasis, loss_units  # noqa: E402
from headcount.shrinking.rival_cuts import RIVALS, in_eight_bits, mixed_keys, rival_plan  # noqa: E402

DECODERS = ["tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma", "tiny-mistral", "tiny-gpt2"]
each_decoder = pytest.mark.parametrize("name", DECODERS)
PARTS = ("query-key", "value-output")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Built-in models are written once for this file, and not into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADCOUNT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    draw = random.Random(0)
    words = ["".join(draw.choice("abcde") for _ in range(draw.randint(2, 6))) for _ in range(1500)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(words))
    return path


def ids(count=2, length=24, seed=0):
    return torch.randint(0, 250, (count, length), generator=torch.Generator().manual_seed(seed))


def rewrite_all(name):
    """A model whose layers are all ragged heads of full rank."""
    model = load(name)
    rewrite(model)
    return model


def surveyed(name, windows=None, parts=PARTS):
    """A model of full rank in float64, its units, and the means an output bias carries."""
    model = load(name).double()
    model.requires_grad_(False)
    family = rewrite(model)
    slopes = loss_slopes(model, ids() if windows is None else windows)
    layers = family.layers(model)
    return model, loss_units(family, layers, slopes, parts), carried_means(family, layers, slopes), slopes


@each_decoder
@torch.no_grad()
def test_a_cut_carried_out_is_the_model_with_products_for_its_identities(name):
    model, units, means, _ = surveyed(name)
    plan = loss_plan(units, 0.6, means)
    before = size(model).parameters
    with putting(model, plan.products(), means):
        wanted = model(ids()).logits
    carried_out(model, plan)
    torch.testing.assert_close(model(ids()).logits, wanted, atol=1e-5, rtol=0)  # some norms compute in float32
    assert before - size(model).parameters == sum(u.cost * (u.full - s) for u, s in plan.chosen)
    assert plan.share <= 0.6


@each_decoder
@torch.no_grad()
def test_at_full_size_nothing_changes(name):
    model, units, means, _ = surveyed(name)
    wanted = model(ids()).logits
    carried_out(model, loss_plan(units, 1.0, means))
    torch.testing.assert_close(model(ids()).logits, wanted, atol=1e-5, rtol=0)


@each_decoder
def test_the_two_roads_through_a_rotary_layer_agree(name):
    """Key group by key group without copies, and all heads at the largest rank: the same numbers from one cache."""
    model, units, means, _ = surveyed(name)
    carried_out(model, loss_plan(units, 0.5, means))
    with torch.no_grad():
        short = model(ids()).logits
        model.set_attn_implementation("eager")
        torch.testing.assert_close(model(ids()).logits, short, atol=1e-5, rtol=0)
        model.set_attn_implementation("sdpa")
        first = model(ids()[:, :10], use_cache=True)
        rest = model(ids()[:, 10:], past_key_values=first.past_key_values, use_cache=True).logits
    torch.testing.assert_close(rest, short[:, 10:], atol=1e-5, rtol=0)
    layers = first.past_key_values.layers
    held = sum(layer.keys.shape[-1] + layer.values.shape[-1] for layer in layers)
    layouts = [family_of(model).read(layer).layout for layer in family_of(model).layers(model)]
    assert held == sum(one.key_rows + one.value_rows for one in layouts)


def test_the_price_of_a_frequency_is_the_second_order_change_of_the_loss():
    """Half the mean square slope of a gate on the pair, found by differences of the loss at every single place."""
    model, units, _, slopes = surveyed("tiny-llama", ids(1, 12))
    unit = next(u for u in units if u.part == "query-key")
    assert isinstance(unit.basis, PairBasis)
    pair, heads = unit.basis.order[0], list(unit.heads)
    family = family_of(model)
    layer = family.heads(family.layers(model)[0])

    class Gate:
        def __init__(self, place, size):
            self.place, self.size = place, size

        def queries(self, q, k, v):
            scale = torch.ones_like(q)
            for half in (pair, pair + q.shape[-1] // 2):
                scale[:, heads, self.place, half] += self.size
            return q * scale

        def outputs(self, u):
            return u

    def loss(place, step):
        layer.probe = Gate(place, step)
        try:
            return float(losses_of(model, ids(1, 12))[0]) * 11
        finally:
            layer.probe = None

    step = 1e-2  # the norms compute in float32: a smaller one would drown
    leans = [(loss(t, step) - loss(t, -step)) / (2 * step) for t in range(12)]
    found = float(slopes[0].pairs.gate[0, pair, pair])
    assert found == pytest.approx(sum(x * x for x in leans) / 12, rel=0.02)
    price = unit.errors[0] - unit.errors[1]
    assert price == pytest.approx(found / 2)


def test_scales_are_the_least_squares_ones_and_leave_a_whole_head_alone():
    _, units, _, _ = surveyed("tiny-llama")
    basis = next(u.basis for u in units if u.part == "query-key")
    kept = list(basis.kept(3))
    c = torch.zeros(basis.heads, len(basis.order), dtype=torch.float64)
    c[:, kept] = basis.scales(kept)
    rest = (1 - c)[:, None, :] @ basis.softmax @ (1 - c)[:, :, None]
    for shift in (1e-2, -1e-2):
        moved = c.clone()
        moved[:, kept[0]] += shift
        assert ((1 - moved)[:, None, :] @ basis.softmax @ (1 - moved)[:, :, None] >= rest - 1e-9).all()
    everything = basis.scales(sorted(basis.order))
    torch.testing.assert_close(everything, torch.ones_like(everything), atol=1e-6, rtol=0)


def test_readers_are_exact_when_nothing_is_cut_and_best_when_something_is():
    _, units, _, _ = surveyed("tiny-llama")
    basis = next(u.basis for u in units if u.part == "value-output")
    dim = basis.encoder.shape[0]
    encoder, readers = basis.at(dim)
    torch.testing.assert_close(
        readers @ encoder, torch.eye(dim, dtype=torch.float64).expand(len(readers), -1, -1), atol=1e-4, rtol=0
    )
    encoder, readers = basis.at(3)
    other = readers + 1e-3 * torch.randn(readers.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def left(r):
        gone = torch.eye(dim, dtype=torch.float64) - r @ encoder
        return (gone @ basis.second @ gone.mT).diagonal(dim1=1, dim2=2).sum(1)

    assert (left(readers) <= left(other)).all()


def test_normed_queries_and_keys_are_left_alone():
    _, units, _, _ = surveyed("tiny-qwen3")
    assert {u.part for u in units} == {"value-output"}
    with pytest.raises(ValueError, match="nothing in this model's attention can be cut"):
        loss_plan([], 0.5, ())


@torch.no_grad()
def test_the_look_at_the_truth_scales_a_layer_to_its_divergence_and_replays_what_comes_before():
    model, units, means, _ = surveyed("tiny-llama")
    plan = even_plan(units, 0.5, means)
    corrected = held_against_truth(model, plan, ids(seed=1))
    wanted = [model(w[None]).logits[0].log_softmax(-1) for w in ids(seed=1)]
    for layer in (0, 2):
        with putting(model, plan.products(layer, "value-output"), means):
            true = divergence(model, ids(seed=1), wanted)
        mine = [
            (u, s) for u, s in zip(corrected, plan.sizes, strict=True) if (u.layer, u.part) == (layer, "value-output")
        ]
        before = sum(u.errors[s] for u, s in plan.chosen if (u.layer, u.part) == (layer, "value-output"))
        assert sum(u.errors[s] for u, s in mine) == pytest.approx(min(max(true, before / 4), before * 4), rel=1e-6)
    assert not any("forward" in vars(layer) for layer in family_of(model).layers(model)), "as it was afterwards"


def test_an_interval_is_paired_and_one_window_has_none():
    found = compared([1.1, 2.1, 3.3], [1.0, 2.0, 3.2], 16)
    assert found.ratio == pytest.approx(torch.tensor(0.1).exp().item(), rel=1e-6)
    assert found.high - found.low < 1e-6, "the windows' own difficulty cancels"
    assert found.tokens == 48
    assert "no interval" in compared([1.0], [1.0], 16).sentence


def test_text_is_never_used_twice(text):
    split = split_text(text, tokenizer_of("tiny-llama"), 32, (500, 500, 500))
    rows = [{tuple(w.tolist()) for w in part} for part in (split.calibration, split.choosing, split.judging)]
    assert not rows[0] & rows[1] and not rows[0] & rows[2] and not rows[1] & rows[2]
    assert sum(len(r) for r in rows) > 100
    with pytest.raises(ValueError, match=r"gives 0 windows|fewer than one window"):
        split_text(text, tokenizer_of("tiny-llama"), 10**6, (1, 1, 1))


LOADED = """
import json, os, sys, torch, transformers
from transformers import AutoModelForCausalLM
for line in sys.stdin:
    folder, ids = json.loads(line)
    if child := os.fork():
        print(os.waitpid(child, 0)[1], flush=True)
        continue
    ids = torch.tensor(ids)
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype="float32").eval()
    with torch.no_grad():
        logits = model(ids).logits
        written = model.generate(ids[:1, :6], max_new_tokens=12, do_sample=False, use_cache=True)
    assert "headcount" not in sys.modules
    print(json.dumps([logits.tolist(), written.tolist()]), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def elsewhere(cache):
    """What a process that has transformers and not this package computes with a folder: each in a fork of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", LOADED], **pipes) as process:

        def computed(folder, ids):
            process.stdin.write(json.dumps([str(folder), ids.tolist()]) + "\n")
            process.stdin.flush()
            said = []
            while line := process.stdout.readline():
                said.append(line)
                if re.fullmatch(r"\d+\n", line):  # how the fork has ended
                    break
            assert said[-1:] == ["0\n"], said
            return json.loads(said[-2])

        yield computed
        process.stdin.close()


@each_decoder
def test_every_door(name, text, tmp_path, elsewhere):
    """Cut, written, and read again: by us, by transformers with the code beside it, by stock code."""
    out = tmp_path / "out"
    made = compress(name, 0.7, text=text, length=32, windows=(4, 2, 3), out=out, padded=True, cast="bf16")
    assert made.bytes.compact == tensor_bytes(made.model, torch.bfloat16)
    assert abs((out / "compact" / "model.safetensors").stat().st_size - made.bytes.compact) < 20_000
    ours = load(out / "compact")
    x = ids()
    with torch.no_grad():
        wanted = ours(x).logits
        written = ours.generate(x[:1, :6], max_new_tokens=12, do_sample=False, use_cache=True)
        assert torch.equal(written, ours.generate(x[:1, :6], max_new_tokens=12, do_sample=False, use_cache=False))
        stock = transformers.AutoModelForCausalLM.from_pretrained(out / "padded", dtype="float32").eval()
        torch.testing.assert_close(stock(x).logits, wanted, atol=1e-4, rtol=0)
    logits, again = elsewhere(out / "compact", x)
    torch.testing.assert_close(torch.tensor(logits), wanted, atol=1e-4, rtol=0)
    assert torch.tensor(again).tolist() == written.tolist()
    card = (out / "compact" / "README.md").read_text()
    assert "trust_remote_code=True" in card and "perplexity x" in card


@pytest.mark.parametrize("name", [DECODERS[0], *(pytest.param(n, marks=pytest.mark.kernels) for n in DECODERS[1:])])
def test_the_onnx_program_gives_what_the_cut_model_gives(name, text, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    made = compress(name, 0.7, text=text, length=32, windows=(4, 2, 3), out=tmp_path, onnx=True, cast="bf16")
    x, full = ids(), made.model  # the program holds the weights before the cast
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    given = {"input_ids": x.numpy(), "attention_mask": torch.ones_like(x).numpy()}
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(session.run(None, given)[0]), full(x).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-gemma", "tiny-gpt2"])
def test_what_compress_wrote_is_read_by_compress_saturation_and_lens(name, text, tmp_path, capsys):
    common = ["--text", str(text), "--length", "32", "--tokens", "128,96", "--json"]
    for words in (
        ["compress", name, "--keep", "0.8", *common, "--out", str(tmp_path / "one")],
        ["compress", str(tmp_path / "one/compact"), "--keep", "0.6", *common, "--out", str(tmp_path / "two")],
        [
            "saturation",
            str(tmp_path / "two/compact"),
            "--text",
            str(text),
            "--lengths",
            "8",
            "--samples",
            "1",
            "--json",
        ],
        ["lens", str(tmp_path / "two/compact"), "--text", "abc", "--json"],
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        said = capsys.readouterr()
        assert left.value.code == 0, said.err
    if name == "tiny-gpt2":  # products of keys never price at exactly nothing, so what was cut would be filled up
        with pytest.raises(ValueError, match="keep less"):
            compress(tmp_path / "two/compact", 0.9, text=text, length=32, windows=(2, 1, 2))
        return
    again = compress(tmp_path / "two/compact", 0.9, text=text, length=32, windows=(2, 1, 2))
    assert again.sizes[1].attention <= again.sizes[0].attention, "what was cut before is not filled up again"
    assert again.quality.loss < 0.01


def test_the_first_line_says_quality_and_bytes_of_the_whole_file(text, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["compress", "tiny-llama", "--loss", "3%", "--text", str(text), "--length", "32", "--tokens", "128,96"])
    first = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
    assert (
        first.startswith("tiny-llama: perplexity x ") and "whole file" in first and "below the same cast alone" in first
    )


def test_a_loss_is_kept_on_the_windows_it_was_chosen_by(text):
    seen = calibrated("tiny-llama", split_text(text, tokenizer_of("tiny-llama"), 32, (4, 4, 4)))
    plan = seen.for_loss(0.02)
    assert seen.on_choosing(plan).loss <= 0.02 and plan.share < 1
    made = cut_to(seen, plan, cast="none", generated=4)
    again = compared(losses_of(made.model, seen.split.judging), seen.judged_by, 32)
    assert made.quality.ratio == pytest.approx(again.ratio, rel=1e-6)
    assert made.costs[1].cache_per_token < made.costs[0].cache_per_token


def test_a_curve_on_which_every_budget_loses_much_says_so():
    rows = [{"keep": keep, "perplexity x": 1.5} for keep in (1.0, 0.5)]
    assert KeepCurve("one", 10, rows).sentence == "none of these budgets loses at most 3% of perplexity"
    rows.append({"keep": 0.9, "perplexity x": 1.03})
    assert KeepCurve("one", 10, rows).sentence == "keeping 0.9 of the attention loses at most 3% of perplexity"


def test_curve_and_bench_print_and_write(text, tmp_path, capsys):
    common = ["--text", str(text), "--length", "32", "--tokens", "128,64"]
    with pytest.raises(SystemExit) as left:
        main(["compress", "tiny-llama", *common, "--curve", "--out", str(tmp_path)])
    assert left.value.code == 0 and "So: keeping" in capsys.readouterr().out
    assert (tmp_path / "curve.svg").read_text().startswith("<svg") and (tmp_path / "curve.json").exists()
    with pytest.raises(SystemExit) as left:
        main(["compress", "tiny-gpt2", *common, "--bench", "--quick", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert left.value.code == 0, said.err
    assert "their scores in our pipeline" in said.out and "So: ours comes first" in said.out
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert {r["method"] for r in rows} >= {"headcount", "int8", "bf16", *(r.name for r in RIVALS)}


def test_a_bench_goes_on_where_it_was_cut(text, tmp_path):
    split = split_text(text, tokenizer_of("tiny-llama"), 32, (3, 2, 2))
    first = benched(lambda s: calibrated("tiny-llama", s), [split], out=tmp_path / "b.json")
    assert len(first["rows"]) == len(trials((32,)))
    kept = json.loads((tmp_path / "b.json").read_text())
    kept["rows"] = kept["rows"][:-1]
    (tmp_path / "b.json").write_text(json.dumps(kept))
    calls = []
    again = benched(lambda s: calls.append(s) or calibrated("tiny-llama", s), [split], out=tmp_path / "b.json")
    assert [r["method"] for r in again["rows"]] == [r["method"] for r in first["rows"]] and len(calls) == 1
    benched(lambda s: pytest.fail("nothing is left to measure"), [split], out=tmp_path / "b.json")


def test_a_bench_says_where_ours_is_not_first():
    row = {"part": "both", "keep": 0.75, "length": 512}
    ours = row | {"method": "headcount", "losses": [1.0, 1.1, 1.2, 1.3]}
    worse = row | {"method": "worse", "losses": [1.1, 1.21, 1.3, 1.41]}
    tied = row | {"method": "tied", "losses": [1.1, 1.0, 1.3, 1.2]}
    other = row | {"method": "elsewhere", "losses": [0.0] * 4, "keep": 0.5}
    behind, rest = beaten([ours, worse, tied, other])
    assert [r["method"] for r in behind] == ["worse"] and [r["method"] for r in rest] == ["tied"]
    assert "1 of 2" in bench_verdict([ours, worse, tied]) and "tied" in bench_verdict([ours, worse, tied])


@pytest.mark.parametrize("rival", RIVALS, ids=[r.name for r in RIVALS])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
@torch.no_grad()
def test_a_rival_that_keeps_all_changes_nothing(rival, name):
    with torch.enable_grad():
        model, _, means, slopes = surveyed(name)
    family = family_of(model)
    wanted = model(ids()).logits
    plan = rival_plan(family, family.layers(model), slopes, means, rival, PARTS, 1.0)
    whole = {i: {p: torch.eye(16, dtype=torch.float64).repeat(4, 1, 1) for p in PARTS} for i in range(3)}
    for unit in plan.units:
        encoder, readers = unit.basis.at(unit.full)
        whole[unit.layer][unit.part][list(unit.heads)] = readers @ encoder
    with putting(model, whole, means):
        torch.testing.assert_close(model(ids()).logits, wanted, atol=1e-3, rtol=0)


@torch.no_grad()
def test_edited_weights_come_back():
    with torch.enable_grad():
        model, _, _, slopes = surveyed("tiny-qwen2")
    before = {n: p.clone() for n, p in model.named_parameters()}
    wanted = model(ids()).logits
    with mixed_keys(model, slopes, 1.0):
        torch.testing.assert_close(model(ids()).logits, wanted, atol=1e-5, rtol=0)
    with mixed_keys(model, slopes, 0.5):
        assert (model(ids()).logits - wanted).abs().max() > 1e-4
    with in_eight_bits(model):
        moved = (model(ids()).logits - wanted).abs().max()
        assert 0 < moved < 0.5
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_distillation_lowers_the_divergence_and_moves_attention_alone():
    model, units, means, _ = surveyed("tiny-llama")
    model.float()
    student = carried_out(load("tiny-llama"), loss_plan(units, 0.4, means))
    fixed = {n: p.clone() for n, p in student.named_parameters() if "self_attn" not in n}
    losses = learn_from(student, load("tiny-llama"), ids(16, 24, seed=3), Lessons(60, lr=3e-3), batch=4)
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert all(torch.equal(p, fixed[n]) for n, p in student.named_parameters() if n in fixed)


def test_the_divergence_and_its_slope_are_those_of_the_formula(monkeypatch):
    import headcount.shrinking.distillation as distillation

    monkeypatch.setattr(distillation, "AT_ONCE", 5)  # pieces that do not divide the 14 tokens
    g = torch.Generator().manual_seed(0)
    states, wanted = (torch.randn(14, 6, generator=g, dtype=torch.float64) for _ in range(2))
    teachers, students = (torch.randn(9, 6, generator=g, dtype=torch.float64) for _ in range(2))
    one, other = (states.clone().requires_grad_() for _ in range(2))
    found = distillation._MeanDivergence.apply(one, wanted, teachers, students)
    p, q = (wanted @ teachers.mT).log_softmax(-1), (other @ students.mT).log_softmax(-1)
    plain = torch.nn.functional.kl_div(q, p, reduction="sum", log_target=True) / 14
    (3 * found).backward()
    (3 * plain).backward()
    assert torch.allclose(found, plain) and torch.allclose(one.grad, other.grad)


def test_whole_heads_are_turned_as_those_that_look_their_rows_up():
    model = rewrite_all("tiny-llama")
    with torch.no_grad():
        wanted = model(ids()).logits
        for layer in model.base_model.layers:
            assert layer.self_attn.whole
            layer.self_attn.whole = False
        assert torch.equal(model(ids()).logits, wanted)


def test_a_layer_is_filled_up_where_its_weights_are():
    model = rewrite_all("tiny-llama")
    weights = Rotary("llama").read(model.base_model.layers[0])
    there = replace(weights, **{n: t.to("meta") for n, t in vars(weights).items() if isinstance(t, torch.Tensor)})
    assert at_stock_places(there, weights.layout.padded).query.device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ragged_heads_that_begin_anywhere_run_on_a_gpu(dtype):
    _, units, means, _ = surveyed("tiny-llama")
    for keep in (0.4, 0.6, 0.8):
        model = carried_out(load("tiny-llama"), loss_plan(units, keep, means)).eval()
        with torch.no_grad():
            wanted = model(ids()).logits
            model.to("cuda", dtype)
            step = model(ids().cuda(), use_cache=True)
            model(ids()[:, :1].cuda(), past_key_values=step.past_key_values, use_cache=True)
        assert (step.logits.float().cpu() - wanted).abs().max() < (0.3 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--keep", "0.5", "--loss", "3%"], "one follows from the other"),
        (["--loss", "much"], "a loss is a share, as in 3%, got 'much'"),
        (["--loss", "-1%"], "a loss must be a share above 0"),
        (["--tokens", "5"], "--tokens takes two whole numbers"),
        (["--cast", "int3"], "cast must be one of bf16, fp16, none"),
        (["--length", "4096"], "at least 3 are needed|exceed the 256 positions"),
        (["--keep", "0"], "keep must be above 0"),
    ],
)
def test_nonsense_is_refused_in_one_line(words, sentence, text, capsys):
    with pytest.raises(SystemExit) as left:
        main(["compress", "tiny-llama", "--text", str(text), *words])
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.count("\n") == 1
    assert any(part in said for part in sentence.split("|"))


def test_a_loss_beyond_what_was_asked_for_is_said(text):
    made = compress("tiny-llama", 0.5, text=text, length=32, windows=(4, 2, 3))
    assert made.asked is None and "asked" not in made.sentence
    low, high = made.quality.loss - 0.001, made.quality.loss + 0.001
    assert "asked)" in replace(made, asked=low).sentence and "asked" not in replace(made, asked=high).sentence
    found = compress("tiny-llama", text=text, loss=0.02, length=32, windows=(4, 2, 3))
    assert found.asked == found.as_row()["asked"] == 0.02


def test_many_layers_are_a_sentence_a_part(text, capsys, monkeypatch):
    import headcount.cli.compressing as compressing

    words = ["compress", "tiny-llama", "--keep", "0.5", "--text", str(text), "--length", "32", "--tokens", "128,96"]
    monkeypatch.setattr(compressing, "TABLED", 1)
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "query-key: " in out and "of the rows are kept, least in layer" in out and "Ranks kept" not in out
    assert "perplexity, same cast alone" in out
    with pytest.raises(SystemExit):
        main([*words, "--cast", "none"])
    assert "alone" not in capsys.readouterr().out
