"""The study of a language model: what travels comes back bit by bit, a filled-up student stays small, steps go on."""

import copy
import json

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from headcount.nets.pretrained import load  # noqa: E402
from headcount.nets.pretrained.families import family_of  # noqa: E402
from headcount.papers.allocation.slopes import loss_slopes  # noqa: E402
from headcount.papers.allocation.units import rewrite  # noqa: E402
from headcount.shrinking import Lessons, carried_out, learn_from  # noqa: E402
from headcount.shrinking.block_rounding import block_bytes, in_blocks, rounded_blocks  # noqa: E402
from headcount.shrinking.loss_plan import carried_means, loss_plan  # noqa: E402
from headcount.shrinking.loss_units import loss_units  # noqa: E402
from headcount.shrinking.surgery import at_full_rank  # noqa: E402
from studies.language_model.__main__ import SMALL, measure  # noqa: E402
from studies.language_model.device_steps import DeviceRun  # noqa: E402
from studies.language_model.own_text import OPENING, OwnText, continued, openings, own_text  # noqa: E402
from studies.language_model.page import _with_teaching  # noqa: E402
from studies.language_model.quantised_parts import APART, TEXTS, WINDOW, _apart, _numbers, _taught_on  # noqa: E402
from studies.language_model.teaching import LESSONS  # noqa: E402

PARTS = ("query-key", "value-output")


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F32"])
def test_blocks_taken_apart_are_the_numbers_that_the_format_means(kind):
    gguf = pytest.importorskip("gguf")
    weights = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[kind])
    wanted = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(_numbers(kind, _apart(kind, raw), (6, 64)).numpy(), wanted)


def test_rounding_in_blocks_is_the_formats_own_and_leaves_what_was_rounded():
    gguf = pytest.importorskip("gguf")
    weights = torch.randn(6, 64, generator=torch.Generator().manual_seed(0))
    kind = gguf.GGMLQuantizationType.Q4_1
    raw = gguf.quants.quantize(weights.numpy(), kind)
    ours = rounded_blocks(weights)
    step = (weights.view(6, 2, 32).amax(2) - weights.view(6, 2, 32).amin(2)) / 15
    assert (ours - torch.from_numpy(gguf.quants.dequantize(raw, kind))).abs().max() <= 1.01 * step.max()
    assert ((ours - weights).view(6, 2, 32).abs() <= 0.51 * step[:, :, None]).all()
    assert torch.allclose(rounded_blocks(ours), ours, atol=2e-3)
    assert block_bytes(6, 64) == raw.nbytes
    assert (rounded_blocks(weights[:, :40])[:, :32] == ours[:, :32]).all()
    linear = torch.nn.Linear(64, 6)
    before = linear.weight.clone()
    with in_blocks([linear]):
        assert not torch.equal(linear.weight, before)
    assert torch.equal(linear.weight, before)


def cut(keep=0.5):
    model = load("tiny-llama")
    family = rewrite(model.requires_grad_(False))
    ids = torch.randint(0, 250, (4, 24), generator=torch.Generator().manual_seed(1))
    slopes = loss_slopes(model, ids)
    means = carried_means(family, family.layers(model), slopes)
    units = loss_units(family, family.layers(model), slopes, PARTS)
    return carried_out(model, loss_plan(units, keep, means)), ids


def test_a_student_filled_up_with_zeros_learns_as_the_small_one_does():
    small, ids = cut()
    filled = at_full_rank(copy.deepcopy(small))
    teacher, lessons = load("tiny-llama"), Lessons(12, lr=1e-3)
    learn_from(small, teacher, ids, lessons, batch=2)
    learn_from(filled, teacher, ids, lessons, batch=2)
    with torch.no_grad():
        assert torch.allclose(small(ids).logits, filled(ids).logits, atol=1e-4)
        assert (small(ids).logits - teacher(ids).logits).abs().max() > 1e-3
    family = family_of(filled)
    whole = sum(family.read(layer).layout.key_rows for layer in family.layers(filled))
    living = sum(int((family.read(layer).key.abs().sum(1) > 0).sum()) for layer in family.layers(filled))
    kept = sum(family.read(layer).layout.key_rows for layer in family.layers(small))
    assert living == kept < whole


def test_every_step_is_kept_and_not_taken_again(tmp_path, capsys):
    g = torch.Generator().manual_seed(0)
    texts = {name: torch.randint(0, 250, (4096,), generator=g) for name in TEXTS}
    path = tmp_path / "language_model.json"
    measure(DeviceRun("tiny-llama", texts, path, "cpu", 0.0, SMALL))
    assert not path.exists(), "nothing is begun without time"
    measure(DeviceRun("tiny-llama", texts, path, "cpu", 600.0, SMALL))
    known = json.loads(path.read_text())
    steps = {"facts", "cut, not taught", "taught", "control", "its own text", "budgets", "four bits again", "costs"}
    assert steps <= known.keys() and not [name for name in known if name.endswith("failed")]
    assert {row["length"] for row in known["taught"]["rows"]} == set(SMALL.lengths)
    assert known["control"]["rows"] and all(abs(r["ratio"] - 1) < 1e-6 for r in known["control"]["rows"])
    assert known["taught"]["text"] in LESSONS
    stamp = path.read_bytes()
    measure(DeviceRun("tiny-llama", texts, path, "cpu", 600.0, SMALL))
    assert path.read_bytes() == stamp
    assert "failed: nothing" in capsys.readouterr().out


def test_text_of_its_own_goes_on_from_openings_of_the_source():
    source = torch.arange(100, 200).view(2, 50)
    first = openings(source, 6, torch.Generator().manual_seed(0))
    assert (first.diff(dim=1) == 1).all() and set((first // 50).flatten().tolist()) <= {2, 3}
    model = load("tiny-llama")
    made = continued(model, first, 20, seconds=60.0)
    assert made.shape == (6, 20) and torch.equal(made[:, : first.shape[1]], first)
    assert not torch.equal(made, continued(model, first, 20, seconds=60.0, seed=1)), "drawn, not the likeliest"
    ids = own_text(model, source, OwnText(sequences=3, length=18, seconds=0.0))
    assert len(ids) == 3 * OPENING or len(ids) == 3 * 18


def test_draws_follow_the_models_own_probabilities():
    model = load("tiny-llama")
    first = torch.arange(5, 5 + OPENING)[None]
    with torch.no_grad():
        likely = model(input_ids=first).logits[0, -1].softmax(-1)
    drawn = continued(model, first.repeat(4000, 1), OPENING + 1, seconds=60.0)[:, -1]
    seen = torch.bincount(drawn, minlength=len(likely)) / 4000
    assert (seen - likely).abs().sum() / 2 < 0.2
    assert (seen - likely.roll(7)).abs().sum() / 2 > 1.1 * (seen - likely).abs().sum() / 2


def test_word_by_word_leaves_out_what_is_kept_apart():
    class Numbers:
        def decode(self, ids):
            return " ".join(map(str, ids))

    ids = np.arange(25 * WINDOW)
    left = {int(word) for word in _taught_on(Numbers(), ids).split()}
    apart = {int(i) for at in range(0, 25, APART) for i in ids[at * WINDOW : (at + 1) * WINDOW]}
    assert not left & apart and left | apart == set(ids.tolist())


def test_a_later_run_of_the_teaching_stands_for_the_first_and_its_failures():
    first = {"rows": [1], "setup": {}, "facts": {"device": "one"}, "taught": "short", "costs failed": "an error"}
    later = {"rows": [], "setup": {}, "facts": {"device": "two"}, "taught": "long", "costs": "known"}
    assert _with_teaching(first, None) is first
    assert _with_teaching(first, later) == {
        "rows": [1],
        "setup": {},
        "facts": {"device": "one"},
        "taught": "long",
        "costs": "known",
    }
