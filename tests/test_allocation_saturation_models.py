"""What the program sees inside a model is what the model does."""

import copy

import pytest
import torch

from headcount.nets.pretrained.batches import TextBatch, passages, pooled
from headcount.nets.pretrained.families import family_of
from headcount.papers.allocation.attention_saturation import _look, chunks, rank_costs, saturation, verdicts
from headcount.papers.allocation.units import rewrite, survey, used_rank
from headcount.shrinking.rank_plan import plan
from headcount.shrinking.surgery import reduce
from tests.test_shrinking_models import bert, gpt2, llama, tokens


def whole(length=12):
    ids = torch.randint(0, 60, (3, length), generator=torch.Generator().manual_seed(1))
    return TextBatch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.ones_like(ids).bool())


@torch.no_grad()
@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_the_rows_seen_are_the_model_s_own_attention(make):
    model, batch = make(), whole()
    stock = copy.deepcopy(model)
    stock.set_attn_implementation("eager")
    told = stock.base_model(**batch.inputs, output_attentions=True).attentions
    rewrite(model)
    for seen, wanted in zip(_look(model, family_of(model), batch), told, strict=True):
        p = seen.logits.softmax(-1)
        torch.testing.assert_close(p, wanted[:, :, -1:] if p.shape[2] == 1 else wanted, atol=1e-6, rtol=0)


def test_saturation_reports_every_head_and_length_below_the_largest_weight():
    rows = saturation(gpt2(), [whole(6), whole(12), whole(24)])
    assert len(rows) == 3 * 2 * 3
    for row in rows:
        assert 0 <= row["norm"] <= row["largest_weight"] + 1e-9
        assert row["half_range"] <= row["largest_half_range"]
        assert row["norm"] <= row["bound"] * (1 + 1e-9)
    found = verdicts(rows)
    assert [v["layer"] for v in found] == [0, 1] and all(v["length"] == 24 for v in found)


def test_a_model_with_small_logits_is_found_bounded_and_saturated():
    model = bert()
    with torch.no_grad():
        for layer in model.encoder.layer:
            layer.attention.self.query.weight.mul_(0.01)
            layer.attention.self.query.bias.mul_(0.01)
    found = verdicts(saturation(model, [whole(n) for n in (5, 10, 20, 40)]))
    assert all(-1.1 < v["slope"] < -0.9 and v["informs"] for v in found)


def test_rank_costs_fall_to_nothing_at_full_rank():
    model = bert()
    half = rank_costs(copy.deepcopy(model), [whole()], shares=(0.25, 0.5, 1.0))
    by = {rank: sum(c["output"] for c in half if c["rank"] == rank) for rank in (2, 4, 8)}
    assert by[2] > by[4] > by[8]
    assert by[8] < 1e-6
    assert rank_costs(llama(), [whole()]) == []


def test_the_dimension_a_head_uses_is_found():
    """A head whose queries live in three dimensions is found to use three."""
    model = bert(layers=1)
    with torch.no_grad():
        own = model.encoder.layer[0].attention.self
        own.query.weight[3:8] = 0
        own.query.bias[3:8] = 0
    found = survey(model, "inputs", batches=[tokens()], read=pooled, parts=("query-key",))
    used = [row["used"] for row in found.rows(share=1 - 1e-9)]
    assert used[0] == 3 and used[1] > 3
    assert used_rank([4.0, 0.0, 3.0, 0.0], share=0.5) == 3
    cut = plan(found, 1 - 5 * 49 / found.stock)
    assert cut.at(0, "query-key", 0)[1] <= 3 and cut.error < 1e-9
    wanted = pooled(model, tokens())
    reduce(model, cut)
    torch.testing.assert_close(pooled(model, tokens()), wanted, atol=1e-6, rtol=0)


def test_text_that_is_too_short_or_missing_is_refused(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a b c\n")
    with pytest.raises(ValueError, match="no line of five words or more"):
        passages(short, 4)
    with pytest.raises(FileNotFoundError, match="no text file"):
        passages(tmp_path / "none", 4)
    with pytest.raises(ValueError, match="fewer than the length 9"):
        chunks(short, lambda text, **_: {"input_ids": text.split()}, 9, 1)
    with pytest.raises(ValueError, match="at least 2 tokens"):
        chunks(short, None, 1, 1)


def test_the_same_seed_gives_the_same_pieces(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\n".join(" ".join(f"w{i}{j}" for j in range(40)) for i in range(20)))
    assert passages(path, 10, seed=3) == passages(path, 10, seed=3) != passages(path, 10, seed=4)
