"""Configurations of Hugging Face models as shapes: to the parameter, without loading torch or transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headcount.files import text_in
from headcount.refusals import nearest
from headcount.sizing.model_shape import LayerShape, ModelShape, Wiring

Config = Mapping[str, Any]

WIDTH = {"gpt2": "n_inner", "gptj": "n_inner", "opt": "ffn_dim"}  # of a feed-forward, where it is no intermediate_size
EVERY = {"gemma2": 2, "gemma3_text": 6}  # of so many layers the last one sees all, where the configuration lists none


def config_shape(config: Config) -> ModelShape:
    """The shape that a `config.json` describes; `model_type` names its family.

    >>> small = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}
    >>> config_shape(small).parameters
    124439808
    """
    kind = config.get("model_type", "")
    if kind not in FAMILIES:
        raise ValueError(f"unknown model_type {kind!r}; {nearest(str(kind), FAMILIES)}")
    wiring = FAMILIES[kind](config)
    embed = _number(config, "hidden_size", "n_embd")
    heads = _number(config, "num_attention_heads", "n_head")
    head_dim = _number(config, "head_dim", default=embed // heads)
    shared = _number(config, "num_key_value_heads", default=heads)
    inner = WIDTH.get(kind, "intermediate_size")
    width = _number(config, inner, default=4 * embed if inner == "n_inner" else None)
    return ModelShape(
        tuple(LayerShape(heads, head_dim, shared, width, window) for window in _windows(config, kind)),
        embed,
        _number(config, "vocab_size"),
        wiring,
    )


def read_config(path: str | Path) -> ModelShape:
    """The shape of a model's folder, or of its config.json."""
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(text_in(file))
    except json.JSONDecodeError as problem:
        raise ValueError(f"{file} is no JSON: {problem}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{file} holds no configuration")
    return config_shape(config.get("text_config", config) if "model_type" not in config else config)


def _number(config: Config, *names: str, default: int | None = None) -> int:
    for name in names:
        if config.get(name) is not None:
            return int(config[name])
    if default is None:
        raise ValueError(f"the configuration lacks {names[0]}")
    return default


def _windows(config: Config, kind: str) -> list[int]:
    """What each layer sees: all, or a sliding window."""
    window, count = config.get("sliding_window") or 0, _number(config, "num_hidden_layers", "n_layer")
    if kind not in EVERY:
        return [window if kind == "mistral" else 0] * count
    if kinds := config.get("layer_types"):
        return [window if kind == "sliding_attention" else 0 for kind in kinds][:count]
    every = int(config.get("sliding_window_pattern") or EVERY[kind])
    return [window if (i + 1) % every else 0 for i in range(count)]


def _gpt2(config: Config) -> Wiring:
    places = _number(config, "n_positions", "max_position_embeddings", default=1024)
    return Wiring(False, True, 2, 2, 1, 0, True, True, True, positions=places)


def _gpt_j(config: Config) -> Wiring:
    return Wiring(False, _tied(config, False), norm=2, norms=1, feed_bias=True, logit_bias=True)


def _gpt_neox(config: Config) -> Wiring:
    biased = bool(config.get("attention_bias", True))
    return Wiring(False, _tied(config, False), 2, 2, 1, 0, biased, biased, True)


def _phi(config: Config) -> Wiring:
    return Wiring(False, _tied(config, False), 2, 1, 1, 0, True, True, True, logit_bias=True)


def _opt(config: Config) -> Wiring:
    places = _number(config, "max_position_embeddings", default=2048) + 2
    if config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"]:
        raise ValueError("OPT with a table narrower than its layers is not counted here")
    return Wiring(False, True, 2, 2, 1, 0, True, True, True, positions=places)


def _llama(config: Config) -> Wiring:
    biased, fed = bool(config.get("attention_bias", False)), bool(config.get("mlp_bias", False))
    return Wiring(tied=_tied(config, False), read_bias=biased, write_bias=biased, feed_bias=fed)


def _mistral(config: Config) -> Wiring:
    return Wiring(tied=_tied(config, False))


def _qwen2(config: Config) -> Wiring:
    return Wiring(tied=_tied(config, False), read_bias=True)


def _qwen3(config: Config) -> Wiring:
    biased = bool(config.get("attention_bias", False))
    return Wiring(tied=_tied(config, False), qk_norm=1, read_bias=biased, write_bias=biased)


def _gemma(config: Config) -> Wiring:
    return Wiring(tied=_tied(config, True))


def _gemma2(config: Config) -> Wiring:
    return Wiring(tied=_tied(config, True), norms=4)


def _gemma3(config: Config) -> Wiring:
    return Wiring(tied=_tied(config, True), norms=4, qk_norm=1)


def _bert(config: Config) -> Wiring:
    """The encoder with its pooler, as `BertModel` holds it."""
    embed, kinds = _number(config, "hidden_size"), _number(config, "type_vocab_size", default=2)
    places = _number(config, "max_position_embeddings", default=512)
    other = kinds * embed + embed * embed + embed
    return Wiring(False, True, 2, 2, 1, 0, True, True, True, positions=places, encoder=True, other=other)


def _tied(config: Config, default: bool) -> bool:
    return bool(config.get("tie_word_embeddings", default))


FAMILIES: dict[str, Callable[[Config], Wiring]] = {
    "bert": _bert,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gptj": _gpt_j,
    "llama": _llama,
    "mistral": _mistral,
    "opt": _opt,
    "phi": _phi,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}
