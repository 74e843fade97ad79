"""Parameters, arithmetic and caches are those of the real models: built without memory, counted by a profiler."""

import math

import pytest

from headcount.sizing.costing import cache_bytes, decode_flops, footprint, forward_flops, tile_efficiency
from headcount.sizing.known_models import KNOWN, known_shape
from headcount.sizing.model_configs import config_shape, read_config
from headcount.sizing.model_shape import LayerShape, ModelShape, Wiring

# As published with the weights: what the model cards and the files themselves say.
PUBLISHED = {
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen2.5-0.5B": 494_032_768,
    "Gemma-2B": 2_506_172_416,
    "Gemma-2-2B": 2_614_341_888,
    "Gemma-3-270M": 268_098_176,
    "Gemma-3-1B": 999_885_952,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Pythia-160M": 162_322_944,
    "Pythia-1B": 1_011_781_632,
    "GPT-2": 124_439_808,
    "GPT-2-XL": 1_557_611_200,
    "GPT-J-6B": 6_050_882_784,
    "Phi-1.5": 1_418_270_720,
    "OPT-125M": 125_239_296,
    "BERT-base": 109_482_240,
}
LENGTH = 64


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name):
    assert known_shape(name).parameters == PUBLISHED[name]


def test_the_table_of_known_models_is_covered_and_spans_eight_families():
    assert set(PUBLISHED) == set(KNOWN)
    assert len({config["model_type"] for config in KNOWN.values()}) >= 8 and len(KNOWN) >= 15


def built(name, device="meta"):
    """The Hugging Face model, without memory for its weights unless a device is named."""
    transformers = pytest.importorskip("transformers")
    import torch

    config = {key: value for key, value in KNOWN[name].items() if value is not None}
    kind = config.pop("model_type")
    made = transformers.AutoConfig.for_model(kind, **config)
    made._attn_implementation = "eager"
    with torch.device(device):
        if kind == "bert":
            return transformers.AutoModel.from_config(made)
        return transformers.AutoModelForCausalLM.from_config(made)


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_are_those_of_the_built_model(name):
    model = built(name)
    assert sum(p.numel() for p in model.parameters()) == known_shape(name).parameters


@pytest.mark.parametrize("name", KNOWN)
def test_arithmetic_is_that_of_a_profiler_within_a_hundredth(name):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    plain = name.startswith("OPT")  # its positions are counted from a mask that must be read
    model, device = (built(name, "cpu"), "cpu") if plain else (built(name), "meta")
    ids = torch.zeros(1, LENGTH, dtype=torch.long, device=device)
    mask = None if plain else torch.zeros(1, 1, LENGTH, LENGTH, device=device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids, attention_mask=mask, **({} if name.startswith("BERT") else {"use_cache": False}))
    shape = known_shape(name)
    pooler = 2 * shape.embed_dim**2 if shape.wiring.encoder else 0
    assert forward_flops(shape, LENGTH) + pooler == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("name", ["SmolLM2-135M", "GPT-2", "Qwen3-0.6B", "Pythia-160M"])
def test_the_cache_is_that_of_the_model(name):
    transformers = pytest.importorskip("transformers")
    import torch

    config = {key: value for key, value in KNOWN[name].items() if value is not None}
    small = {"num_hidden_layers": 2, "n_layer": 2, "vocab_size": 100}
    config |= {key: value for key, value in small.items() if key in config}
    shape = config_shape(config)
    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    model = transformers.AutoModelForCausalLM.from_config(made).to(torch.bfloat16).eval()
    with torch.no_grad():
        kept = model(input_ids=torch.zeros(1, 7, dtype=torch.long), use_cache=True).past_key_values
    size = sum(layer.keys.nbytes + layer.values.nbytes for layer in kept.layers)
    assert size == cache_bytes(shape, 7)


def test_a_window_bounds_cache_and_arithmetic():
    layers = (LayerShape(2, 8, 1, 32, window=16), LayerShape(2, 8, 1, 32))
    shape = ModelShape(layers, 16, 50)
    assert cache_bytes(shape, 100) == 2 * 8 * 2 * (16 + 100)
    free = ModelShape((layers[1],) * 2, 16, 50)
    assert decode_flops(free, 100) - decode_flops(shape, 100) == 4 * 84 * 16
    pairs = sum(min(t + 1, 16) for t in range(100))
    seen = forward_flops(shape, 100, causal=True) - forward_flops(free, 100, causal=True)
    assert seen == 4 * 16 * (pairs - 100 * 101 // 2)


def test_decoding_token_by_token_costs_what_the_causal_pass_costs():
    shape = known_shape("SmolLM2-135M")
    steps = sum(decode_flops(shape, t + 1) for t in range(20))
    assert steps == forward_flops(shape, 20, causal=True)


def test_training_costs_three_passes_and_an_encoder_keeps_nothing():
    shape = known_shape("GPT-2")
    found = footprint(shape, 32)
    assert found.training_flops == 3 * forward_flops(shape, 32, causal=True) // 32
    assert footprint(known_shape("BERT-base"), 32).cache == 0
    assert found.decode_bytes == 2 * shape.parameters + found.cache
    assert found.speed(1e11) == pytest.approx(1e11 / found.decode_bytes)


def test_padding_is_what_the_next_tile_leaves_empty():
    assert [tile_efficiency(n) for n in (32, 64, 96, 128, 256)] == [1.0] * 5
    assert tile_efficiency(132) < tile_efficiency(80) < 1 and tile_efficiency(320) == 1
    assert math.isclose(tile_efficiency(100), 100 / 128)


def test_a_configuration_is_read_from_a_folder_and_refused_where_unknown(tmp_path):
    import json

    (tmp_path / "config.json").write_text(json.dumps(KNOWN["GPT-2"]))
    assert read_config(tmp_path) == known_shape("gpt-2")
    with pytest.raises(ValueError, match="unknown model_type 'gtp2'"):
        config_shape({"model_type": "gtp2"})
    with pytest.raises(ValueError, match="lacks hidden_size"):
        config_shape({"model_type": "llama", "num_hidden_layers": 2, "intermediate_size": 8})
    with pytest.raises(ValueError, match="no known shape 'SmolLM-135M'"):
        known_shape("SmolLM-135M")


def test_a_wiring_counts_every_vector_it_names():
    bare = Wiring(norm=0)
    one = ModelShape.uniform(2, heads=2, head_dim=4, kv_heads=1, embed_dim=8, width=16, vocab=10, wiring=bare)
    full = Wiring(norm=2, norms=2, read_bias=True, write_bias=True, feed_bias=True, qk_norm=1, positions=3)
    other = ModelShape.uniform(2, heads=2, head_dim=4, kv_heads=1, embed_dim=8, width=16, vocab=10, wiring=full)
    vectors = 2 * (2 * 2 * 8 + 2 * 4 + 4 * 4 + 8 + 2 * 16 + 8) + 2 * 8 + 3 * 8
    assert other.parameters - one.parameters == vectors
