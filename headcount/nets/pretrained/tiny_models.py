"""Built-in models with a name: a few thousand random weights of a family each, and a tokenizer of bytes. For trying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
_ROTARY = _SIZES | {"num_key_value_heads": 2, "max_position_embeddings": 256}
_SMALL = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": 96, "n_positions": 256}
VOCABULARY = 258  # the bytes, a beginning and an end

# name -> (class of the configuration, class of the model, settings beyond those of every tiny model)
TINY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tiny-llama": ("LlamaConfig", "LlamaForCausalLM", _ROTARY),
    "tiny-mistral": ("MistralConfig", "MistralForCausalLM", _ROTARY | {"sliding_window": None}),
    "tiny-qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _ROTARY),
    "tiny-qwen3": ("Qwen3Config", "Qwen3ForCausalLM", _ROTARY | {"head_dim": 16}),
    "tiny-gemma": ("GemmaConfig", "GemmaForCausalLM", _ROTARY | {"head_dim": 16}),
    "tiny-gpt2": ("GPT2Config", "GPT2LMHeadModel", _SMALL),
    "tiny-bert": ("BertConfig", "BertModel", _SIZES | {"max_position_embeddings": 256}),
}


def make_tiny_model(name: str, folder: Path) -> None:
    """Write the built-in model of that name, the same weights every time, with its tokenizer into a folder."""
    import torch
    import transformers

    from headcount.nets.pretrained.quiet_library import quietly

    kind, model, settings = TINY[name]
    ends = {"bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257}
    config = getattr(transformers, kind)(vocab_size=VOCABULARY, initializer_range=0.1, **ends, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = getattr(transformers, model)(config)
        for bias in (p for n, p in net.named_parameters() if n.endswith("bias")):  # biases that are not all zero
            torch.nn.init.normal_(bias, std=0.05)
    with quietly():
        net.save_pretrained(folder)
    bytes_tokenizer().save_pretrained(folder)


def bytes_tokenizer() -> Any:
    """A tokenizer whose tokens are the 256 bytes, a beginning and an end.

    >>> bytes_tokenizer()("ab")["input_ids"]
    [64, 65]
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(letters)} | {"<begin>": 256, "<end>": 257}
    inner = Tokenizer(models.BPE(words, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<begin>", eos_token="<end>", pad_token="<end>", model_max_length=256
    )
