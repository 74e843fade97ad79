"""Shrinking BERT, GPT-2, Llama and our own network: exact at full rank, honest below, refused where invalid."""

import copy
from dataclasses import replace

import pytest
import torch

from headcount.nets import Architecture, Transformer
from headcount.nets.pretrained.batches import TextBatch, answers, pooled, states
from headcount.nets.pretrained.families import family_of
from headcount.papers.allocation.units import rewrite, survey
from headcount.shrinking.calibration import corrected
from headcount.shrinking.distillation import Lessons, distil
from headcount.shrinking.rank_plan import plan
from headcount.shrinking.surgery import ShrinkWay, reduce, shrink_model
from headcount.shrinking.weight_and_time import gap, latencies, size

transformers = pytest.importorskip("transformers")


def shaken(model, seed=0):
    """A random model with biases and norms that are not at their tidy starting values."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g))
    return model.eval().double()


def bert(layers=2, **more):
    sizes = {"vocab_size": 60, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 32}
    config = transformers.BertConfig(**sizes, num_hidden_layers=layers, max_position_embeddings=40, **more)
    return shaken(transformers.BertModel(config))


def gpt2():
    config = transformers.GPT2Config(vocab_size=60, n_embd=24, n_head=3, n_layer=2, n_positions=40)
    return shaken(transformers.GPT2LMHeadModel(config))


def llama(key_heads=2, bias=False):
    sizes = {"vocab_size": 60, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 40}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=key_heads, num_hidden_layers=2, attention_bias=bias)
    return shaken(transformers.LlamaForCausalLM(config))


def own():
    return Transformer(Architecture(layers=((3, 5), (2, 4)), width=8), token_dim=4, seed=0).double().eval()


def tokens(seed=0, batch=5, length=17):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 60, (batch, length), generator=g)
    present = torch.ones(batch, length, dtype=torch.bool)
    present[1, 9:] = False
    return TextBatch({"input_ids": ids, "attention_mask": present.long()}, present)


def points(seed=0):
    x = torch.randn(6, 7, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return TextBatch({"x": x}, torch.ones(6, 7, dtype=torch.bool))


MODELS = {
    "bert": (bert, tokens, pooled),
    "gpt2": (gpt2, tokens, states),
    "llama": (llama, tokens, states),
    "llama with biases": (lambda: llama(4, bias=True), tokens, states),
    "own": (own, points, answers),
}
each_model = pytest.mark.parametrize("name", MODELS)


@each_model
@pytest.mark.parametrize("measure", ["weights", "inputs", "outputs"])
def test_at_full_rank_the_outputs_are_the_original_ones(name, measure):
    make, batch, read = MODELS[name]
    model, data = make(), batch()
    wanted = read(model, data)
    done = shrink_model(model, 1.0, batches=[data], read=read, way=ShrinkWay(measure))
    assert done.error < 1e-9
    torch.testing.assert_close(read(model, data), wanted, atol=1e-9, rtol=0)


@each_model
@pytest.mark.parametrize("keep", [0.7, 0.35])
def test_the_plan_counts_the_parameters_that_remain(name, keep):
    make, batch, read = MODELS[name]
    model, data = make(), batch()
    before = size(model)
    done = shrink_model(model, keep, batches=[data], read=read)
    after = size(model)
    assert before.parameters - after.parameters == before.attention - after.attention == done.saved
    assert done.parameters <= done.budget == int(keep * done.stock)
    assert done.budget - done.parameters < max(u.cost for u in done.survey.units) + done.stock * 0.05
    assert torch.isfinite(read(model, data)).all()


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama with biases", "own"])
@pytest.mark.parametrize("part", ["query-key", "value-output"])
def test_reducing_one_part_alone_is_counted_exactly_too(name, part):
    make, batch, read = MODELS[name]
    if name.startswith("llama") and part == "query-key":
        pytest.skip("rotary layers refuse this part")
    model, data = make(), batch()
    before = size(model).parameters
    done = shrink_model(model, 0.6, batches=[data], read=read, way=ShrinkWay(parts=(part,)))
    assert before - size(model).parameters == done.saved


@each_model
@torch.no_grad()
def test_the_predicted_error_is_the_first_order_change_of_the_read_out(name):
    """Close to the identity, E |change|^2 of the outputs is what the curve of one product says.

    A curve is a mean over a few random directions of a chi-square variable, and the cheapest product is the one whose
    curve came out lowest: one draw is right within a factor of five, the middle one of three within a factor of three.
    """
    ratios = sorted(_change_over_prediction(name, seed) for seed in (0, 1, 2))
    assert ratios[0] > 1 / 5 and ratios[-1] < 5
    assert 1 / 3 < ratios[1] < 3


def _change_over_prediction(name, seed):
    make, batch, read = MODELS[name]
    model, data = make(), batch()
    wanted = read(model, data)
    found = survey(model, "outputs", batches=[data], read=read, seed=seed)
    some = [u for u in found.units if u.errors[u.full - 1] > 0]
    unit = min(some, key=lambda u: u.errors[u.full - 1] / u.errors[0])
    ranks = tuple(u.full - (u is unit) for u in found.units)
    whole = plan(found, 1.0)
    reduce(model, type(whole)(found, ranks, whole.budget, 0.0, 0.0, "allocated"))
    return float((read(model, data) - wanted).square().flatten(1).sum(1).mean()) / unit.errors[unit.full - 1]


@torch.no_grad()
def test_the_input_curve_is_the_mean_square_logit_error():
    model, data = bert(layers=1), tokens()
    family = rewrite(model)
    found = survey(model, "inputs", batches=[data], read=pooled, parts=("query-key",))
    weights = family.read(family.layers(model)[0])
    x = model.embeddings(data.inputs["input_ids"])[data.present]
    sequences = [
        row[: int(n)] for row, n in zip(model.embeddings(data.inputs["input_ids"]), data.present.sum(1), strict=True)
    ]
    for unit in found.units:
        at = slice(unit.index * 8, unit.index * 8 + 8)
        q = (x @ weights.query[at].mT + weights.query_bias[at]) * weights.scale
        for rank in (0, 2, 5):
            gone = torch.eye(8, dtype=torch.float64) - unit.factors.product(rank)
            lost = 0.0
            for s in sequences:
                k = s @ weights.key[at].mT
                z = q @ gone @ (k - k.mean(0)).mT
                lost += float(z.square().sum())
            assert unit.errors[rank] == pytest.approx(lost / len(x) / sum(len(s) for s in sequences), rel=1e-6)


def test_data_aware_ranks_move_the_outputs_less_than_weight_only_ones():
    data, other = [tokens(s) for s in range(4)], [tokens(9)]
    moved = {}
    for measure in ("weights", "inputs", "outputs"):
        model = bert()
        original = copy.deepcopy(model)
        shrink_model(model, 0.6, batches=data, read=pooled, way=ShrinkWay(measure))
        moved[measure] = gap(model, original, other, pooled)
    assert moved["outputs"] < moved["weights"] and moved["inputs"] < moved["weights"]


def test_allocated_ranks_predict_less_error_than_uniform_ones():
    found = survey(bert(), "outputs", batches=[tokens()], read=pooled)
    even, free = plan(found, 0.5, rule="uniform"), plan(found, 0.5)
    assert free.error < even.error
    assert free.floor <= free.error


def peaked():
    """One layer whose first head puts nearly all weight on one token."""
    model = bert(layers=1)
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight[:8] *= 40
        model.encoder.layer[0].attention.self.query.bias[:8] *= 40
    return model


@torch.no_grad()
def test_a_saturated_head_is_not_taken_for_a_useless_one():
    """Rows with all weight on one token have no Jacobian: the first-order curve is blind, the measured one is not."""
    model, data = peaked(), tokens()
    wanted = pooled(model, data)
    found = survey(model, "outputs", batches=[data], read=pooled, parts=("query-key",))
    seen = corrected(model, plan(found, 0.5), [data], pooled)
    assert found.units[0].errors[0] < 0.1 * max(u.errors[0] for u in found.units)
    assert seen.units[0].errors[0] > 2 * found.units[0].errors[0]
    moved = []
    for curves in (seen, found):
        other = peaked()
        rewrite(other)
        reduce(other, plan(curves, 0.5))
        moved.append(float((pooled(other, data) - wanted).norm()))
    assert moved[0] <= moved[1]


@torch.no_grad()
@each_model
def test_the_measured_change_is_what_surgery_does(name):
    make, batch, read = MODELS[name]
    model, data = make(), batch()
    found = survey(model, "outputs", batches=[data], read=read)
    wanted = read(model, data)
    ranks = tuple(u.full // 2 if u.layer == 0 else u.full for u in found.units)
    chosen = replace(plan(found, 1.0), ranks=ranks)
    scaled = corrected(model, chosen, [data], read)
    reduce(model, chosen)
    change = float((read(model, data) - wanted).square().flatten(1).sum(1).mean())
    promised = sum(u.errors[r] for u, r in zip(scaled.units, ranks, strict=True) if u.layer == 0)
    assert promised == pytest.approx(change, rel=1e-6)


def test_rotary_layers_refuse_the_query_key_part_and_say_why():
    model = llama()
    found = survey(model, "weights")
    assert {u.part for u in found.units} == {"value-output"}
    assert [(layer, part) for layer, part, _ in found.refused] == [(0, "query-key"), (1, "query-key")]
    assert "rotary" in found.refused[0][2]
    with pytest.raises(ValueError, match=r"nothing in this model can be reduced .*rotary"):
        plan(survey(llama(), "weights", parts=("query-key",)), 0.5)


def test_grouped_values_are_reduced_together():
    """Llama's two value heads serve two heads each: the unit's cost counts one value and two output columns a rank."""
    found = survey(llama(key_heads=2), "outputs", batches=[tokens()], read=states)
    assert all(len(u.heads) == 2 and u.cost == 32 * 3 for u in found.units)


def test_removed_heads_leave_no_parameters_and_their_mean_stays_in_the_bias():
    model, data = bert(), tokens()
    found = survey(model, "inputs", batches=[data], read=pooled)
    gone = plan(found, 0.2)
    reduce(model, gone)
    family = family_of(model)
    alive = sum(len(family.read(layer).layout.alive) for layer in family.layers(model))
    assert len(gone.removed) == 6 - alive > 0
    assert torch.isfinite(pooled(model, data)).all()


def test_shared_keys_cost_less_and_work():
    """Two heads with equal keys lose nothing by sharing them."""
    model, data = bert(layers=1), tokens()
    own = model.encoder.layer[0].attention.self
    with torch.no_grad():
        own.key.weight[8:16] = own.key.weight[:8]
    wanted = pooled(model, data)
    found = survey(model, "inputs", batches=[data], read=pooled, parts=("query-key",))
    done = plan(found, 0.8, grouping=True)
    assert [g.heads for g in done.groupings] == [(0, 1)]
    alone = plan(found, 0.8)
    assert done.error < alone.error and done.parameters <= alone.parameters
    before = size(model).parameters
    reduce(model, done)
    assert before - size(model).parameters == size_of_plan(found) - done.parameters
    other = bert(layers=1)
    with torch.no_grad():
        other.encoder.layer[0].attention.self.key.weight[8:16] = other.encoder.layer[0].attention.self.key.weight[:8]
    rewrite(other)
    reduce(other, alone)
    assert (pooled(model, data) - wanted).norm() < (pooled(other, data) - wanted).norm()


def size_of_plan(found):
    return sum(u.cost * u.full for u in found.units)


def test_decoding_with_a_cache_gives_the_same_tokens():
    for make in (gpt2, llama):
        model = make()
        reduced = copy.deepcopy(model)
        shrink_model(reduced, 0.6, way=ShrinkWay("weights"))
        ids = tokens().inputs["input_ids"][:2]
        settings = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        assert torch.equal(
            reduced.generate(ids, use_cache=True, **settings), reduced.generate(ids, use_cache=False, **settings)
        )


def test_self_distillation_moves_the_outputs_towards_the_original():
    model = bert().float()
    original = copy.deepcopy(model)
    data = [_float(tokens(s)) for s in range(4)]
    shrink_model(model, 0.3, batches=data, read=pooled)
    before = gap(model, original, data, pooled)
    kept = {n: p.clone() for n, p in model.named_parameters() if "attention" not in n}
    losses = distil(model, original, data, pooled, Lessons(60, lr=3e-3))
    assert gap(model, original, data, pooled) < 0.7 * before
    assert len(losses) == 60
    assert all(torch.equal(p, kept[n]) for n, p in model.named_parameters() if n in kept)
    with pytest.raises(ValueError, match="this one was not reduced"):
        distil(copy.deepcopy(original), original, data, pooled, Lessons(1))


def _float(batch):
    return batch


def test_unknown_models_and_impossible_budgets_say_so_in_one_line():
    with pytest.raises(ValueError, match=r"'Linear' cannot be shrunk; known: bert, gpt2, llama, .* headcount's own"):
        family_of(torch.nn.Linear(2, 2))
    found = survey(bert(), "weights")
    for keep in (0, 1.5, -1):
        with pytest.raises(ValueError, match="keep must be above 0 and at most 1"):
            plan(found, keep)
    with pytest.raises(ValueError, match="less than one rank of one head"):
        plan(found, 0.001)
    with pytest.raises(ValueError, match="needs text to calibrate on"):
        survey(bert(), "outputs")
    with pytest.raises(ValueError, match="measure must be one of weights, inputs, outputs, got 'wieghts'"):
        survey(bert(), "wieghts")
    with pytest.raises(ValueError, match="parts must be among query-key, value-output, got keys"):
        survey(bert(), "weights", parts=("keys",))


def test_latencies_are_taken_in_turns(monkeypatch):
    """Two turns to warm up and three that count, both models in each; the slower one is found out."""
    turns, now = [], [0.0]
    monkeypatch.setattr("headcount.shrinking.weight_and_time.time.perf_counter", lambda: now[0])

    class Timed(torch.nn.Module):
        def __init__(self, name, seconds):
            super().__init__()
            self.name, self.seconds = name, seconds

        def forward(self, **_):
            turns.append(self.name)
            now[0] += self.seconds if len(turns) > 4 else 100.0

    found = latencies([Timed("a", 3.0), Timed("b", 2.0)], tokens(), repeats=3)
    assert turns == ["a", "b"] * 5 and found == [3.0, 2.0]
