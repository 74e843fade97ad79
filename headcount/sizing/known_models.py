"""What models in use chose: their configurations, as published with their weights. No torch."""

from __future__ import annotations

from typing import Any

from headcount.refusals import nearest
from headcount.sizing.model_configs import config_shape
from headcount.sizing.model_shape import ModelShape


def _llama(layers: int, embed: int, heads: int, shared: int, width: int, vocab: int, **more: Any) -> dict[str, object]:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": embed,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "intermediate_size": width,
        "vocab_size": vocab,
        "tie_word_embeddings": True,
        **more,
    }


def _pythia(layers: int, embed: int, heads: int, vocab: int) -> dict[str, object]:
    small = _llama(layers, embed, heads, heads, 4 * embed, vocab)
    return {**small, "model_type": "gpt_neox", "tie_word_embeddings": False}


KNOWN: dict[str, dict[str, object]] = {
    "SmolLM2-135M": _llama(30, 576, 9, 3, 1536, 49152),
    "SmolLM2-360M": _llama(32, 960, 15, 5, 2560, 49152),
    "SmolLM2-1.7B": _llama(24, 2048, 32, 32, 8192, 49152),
    "Qwen3-0.6B": _llama(28, 1024, 16, 8, 3072, 151936, model_type="qwen3", head_dim=128),
    "Qwen3-1.7B": _llama(28, 2048, 16, 8, 6144, 151936, model_type="qwen3", head_dim=128),
    "Qwen3-4B": _llama(36, 2560, 32, 8, 9728, 151936, model_type="qwen3", head_dim=128),
    "Qwen2.5-0.5B": _llama(24, 896, 14, 2, 4864, 151936, model_type="qwen2"),
    "Gemma-2B": _llama(18, 2048, 8, 1, 16384, 256000, model_type="gemma", head_dim=256),
    "Gemma-2-2B": _llama(26, 2304, 8, 4, 9216, 256000, model_type="gemma2", head_dim=256, sliding_window=4096),
    "Gemma-3-270M": _llama(18, 640, 4, 1, 2048, 262144, model_type="gemma3_text", head_dim=256, sliding_window=512),
    "Gemma-3-1B": _llama(26, 1152, 4, 1, 6912, 262144, model_type="gemma3_text", head_dim=256, sliding_window=512),
    "Llama-3.2-1B": _llama(16, 2048, 32, 8, 8192, 128256, head_dim=64),
    "Llama-3.2-3B": _llama(28, 3072, 24, 8, 8192, 128256, head_dim=128),
    "Pythia-160M": _pythia(12, 768, 12, 50304),
    "Pythia-1B": _pythia(16, 2048, 8, 50304),
    "GPT-2": {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257},
    "GPT-2-XL": {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257},
    "GPT-J-6B": {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "vocab_size": 50400},
    "Phi-1.5": _llama(24, 2048, 32, 32, 8192, 51200, model_type="phi", tie_word_embeddings=False),
    "OPT-125M": {
        "model_type": "opt",
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "ffn_dim": 3072,
        "vocab_size": 50272,
    },
    "BERT-base": {**_llama(12, 768, 12, 12, 3072, 30522), "model_type": "bert", "num_key_value_heads": None},
}

# The families that every answer is shown beside.
BESIDE = ("SmolLM2", "Qwen3", "Gemma", "Llama-3.2", "Pythia", "GPT-2")


def known_shape(name: str) -> ModelShape:
    """The shape of a model in use.

    >>> str(known_shape("SmolLM2-135M").layers[0])
    '9 (3) x 64'
    """
    match = next((known for known in KNOWN if known.lower() == name.lower()), None)
    if match is None:
        raise ValueError(f"no known shape {name!r}; {nearest(name, KNOWN)}")
    return config_shape(KNOWN[match])
