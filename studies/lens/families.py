"""Every family of Hugging Face models at hand, tiny and random, as one operator: the certificate of each, or why not.

    python -m studies.lens.families            # writes the JSON from which `make docs` writes the table
    python -m studies.lens.families --only gpt2

Float32, as users load them, experts by the implementation that the library chooses; three layers where the
configuration lets us. Nothing is downloaded: every configuration is made here.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import torch

from headcount.numerals import today
from headcount.papers.tensor_lens import operator
from headcount.report.tabular import table_lines
from studies.stored import DATA, written

SMALL: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LEFT_OUT = object()  # a name that the family does not take
OWN: dict[str, dict[str, Any]] = {  # what a family calls by another name
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "gpt_neo": {
        "num_hidden_layers": LEFT_OUT,
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "num_heads": 4,
        "window_size": 4,
    },
    "gptj": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
    "codegen": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
    "gpt_bigcode": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 3, "n_head": 4},
    "mpt": {"d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64},
    "albert": {"embedding_size": 32},
    "electra": {"embedding_size": 32},
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48},
    "t5": {"d_model": 32, "d_kv": 8, "num_layers": 3, "num_heads": 4, "d_ff": 48},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24, "moe_layer_start_index": 1},
    "hunyuan_v1_moe": {"num_experts": 4, "moe_topk": 2},
    "aria_text": {"moe_num_experts": 4, "moe_topk": 2},
    "glm4_moe": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1},
    "jetmoe": {"num_local_experts": 4, "num_experts_per_tok": 2, "kv_channels": 8},
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "flex_olmo": {"num_experts": 4, "num_experts_per_tok": 2},
    "afmoe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": {"state_size": 4},
    "mamba2": {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 1},
    "rwkv": {"attention_hidden_size": 32},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "xlm": {"emb_dim": 32, "n_layers": 3, "n_heads": 4},
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8},
    "esm": {"position_embedding_type": "rotary"},
    "fnet": {},
    "granite": {"attention_multiplier": 0.35, "residual_multiplier": 0.5},
    "starcoder2": {"use_bias": True},
    "falcon": {"new_decoder_architecture": False, "head_dim": LEFT_OUT},
    "jamba": {"num_experts": 2, "mamba_d_state": 4},
    "recurrent_gemma": {"lru_width": 32, "attention_window_size": 8},
    "deepseek_v2": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "q_lora_rank": None,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
    },
    "reformer": {},
}
FAMILIES = (
    "gpt2 llama qwen2 qwen3 mistral gemma gemma2 gemma3_text phi phi3 olmo olmo2 gpt_neox gpt_neo gptj gpt_bigcode opt "
    "bloom falcon mpt smollm3 granite stablelm starcoder2 cohere cohere2 glm helium persimmon nemotron codegen biogpt "
    "bert roberta albert distilbert electra deberta-v2 camembert xlm-roberta modernbert mpnet esm fnet t5 "
    "mixtral qwen2_moe qwen3_moe olmoe gpt_oss deepseek_v2 granitemoe ernie4_5_moe hunyuan_v1_moe aria_text glm4_moe "
    "dots1 jetmoe phimoe flex_olmo afmoe xlm xglm arcee seed_oss exaone4 olmo3 lfm2 glm4 ernie4_5 nanochat doge "
    "roberta-prelayernorm rembert roformer megatron-bert openai-gpt mobilebert "
    "mamba mamba2 rwkv recurrent_gemma jamba apertus yoso ibert canine llama4_text"
)


NUMBERS = {
    "replay": "replay",
    "affine": "affine",
    "adjoint": "adjoint",
    "sum": "slice against output",
    "read": "read-out against slice",
}


def made(family: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Any:
    """A tiny random model of that family in evaluation mode; biases and norms are drawn as well."""
    import transformers

    kind = transformers.CONFIG_MAPPING[family]
    fields = {**SMALL, **OWN.get(family, {})}
    config: Any = kind(**{key: value for key, value in fields.items() if value is not LEFT_OUT})
    torch.manual_seed(seed)
    decoders: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    encoders: Any = transformers.MODEL_MAPPING
    both = family in ("bert", "roberta", "electra", "camembert", "xlm-roberta", "xlm")
    if family == "t5":
        model: Any = transformers.T5EncoderModel(config)
    else:
        model = (encoders if both or type(config) not in decoders else decoders)[type(config)](config)
    model = model.to(dtype).eval()
    if dtype == torch.float64 and any(name.endswith("experts") for name, _ in model.named_modules()):
        model.set_experts_implementation("eager")  # the grouped kernel has no float64
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype))
    return model


def looked_at(family: str, length: int = 9, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """One row of the table."""
    start = time.perf_counter()
    ids = torch.randint(3, 99, (length,), generator=torch.Generator().manual_seed(1))
    try:
        model = made(family, dtype=dtype)
    except Exception as problem:
        return {"family": family, "refused": f"not built: {str(problem).strip().splitlines()[0][:120]}", "built": False}
    try:
        lens = operator(model, ids)
        gap = lens.gap / float(lens.output.abs().max())
        direction = torch.randn(lens.output.shape[1], generator=torch.Generator().manual_seed(3)).to(lens.output)
        read = lens.read(direction).tokens
        off = float((read - lens.contributions()[-1] @ direction).abs().max() / read.abs().max())
    except ValueError as problem:
        return {"family": family, "class": type(model).__name__, "refused": str(problem), "built": True}
    except Exception as problem:
        message = f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:120]}"
        return {
            "family": family,
            "class": type(model).__name__,
            "refused": f"the model failed: {message}",
            "built": True,
        }
    certificate = lens.certificate.as_dict()
    seconds = round(time.perf_counter() - start, 2)
    return {
        "family": family,
        "class": type(model).__name__,
        **certificate,
        "sum": gap,
        "read": off,
        "together": lens.together,
        "s": seconds,
    }


def tables(rows: list[dict[str, Any]], device: str) -> str:
    """The two tables as text for the page."""
    good = [row for row in rows if "refused" not in row]
    lines = [
        (row["family"], row["class"], *(f"{row[name]:.1e}" for name in NUMBERS), _frozen(row["frozen"])) for row in good
    ]
    refused = [(row["family"], row["refused"]) for row in rows if "refused" in row and row["built"]]
    about = f"{len(good)} families, {device}; regenerate with `python -m studies.lens.families`."
    refusals = ["", "Refused, each with the line a user sees:", ""]
    head = ("family", "model", *NUMBERS.values(), "frozen")
    return "\n".join([about, "", *table_lines(head, lines), *refusals, *table_lines(("family", "reason"), refused)])


def _frozen(kinds: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=FAMILIES.split())
    parser.add_argument("--show", action="store_true", help="print the rows and write nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for family in options.only:
        rows.append(looked_at(family))
        print(json.dumps(rows[-1]), flush=True)
    if options.show:
        return
    import transformers

    device = f"float32, {today()}, CPU, torch {torch.__version__}, transformers {transformers.__version__}"
    written(DATA / "lens_families.json", {"device": device, "rows": rows})


if __name__ == "__main__":
    main()
