"""A model with smaller attention heads, for `transformers` alone: written beside the weights that headcount has cut.

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype="float32")

Every key head has its own number of dimensions (of rotary ones: its own list of frequencies), every value head its own
width. config.json names them under "headcount": one table per layer. The cache keeps the smaller keys and values.
"""

import torch
from torch import nn
from torch.nn import functional


def starts(sizes):
    """Where each block begins: starts([2, 3]) is [0, 2]."""
    return [sum(sizes[:i]) for i in range(len(sizes))]


def normed(norm, rows, head_dim):
    """Rows through the norm that some families give every head of their queries and keys."""
    return rows if norm is None else norm(rows.unflatten(-1, (-1, head_dim))).flatten(-2)


def readable(rows):
    """What a GPU's attention can read: it takes 16 bytes at once, and these heads may begin anywhere; then a copy."""
    if not rows.is_cuda:
        return rows
    steps = [step * rows.element_size() for step in rows.stride()[:-1]]
    between = rows.data_ptr() % 16 or any(step % 16 for step in steps)
    return rows.clone(memory_format=torch.contiguous_format) if between else rows


class SmallerHeads(nn.Module):
    """Queries, keys and values of one layer, and attention one key head at a time."""

    def __init__(self, layout, embed, scale, biases, causal):
        super().__init__()
        self.scale, self.causal, self.pairs = scale, causal, layout["pairs"]
        groups, sharing, ranks, widths = (layout[n] for n in ("groups", "sharing", "ranks", "widths"))
        alive = [i for i in range(len(groups)) if widths[sharing[i]] > 0]
        used = sorted({groups[i] for i in alive})
        query = dict(zip(alive, starts([ranks[groups[i]] for i in alive]), strict=True))
        key, value = dict(zip(used, starts([ranks[g] for g in used]), strict=True)), starts(widths)
        self.query = nn.Linear(embed, sum(ranks[groups[i]] for i in alive), bias="query" in biases)
        self.key = nn.Linear(embed, sum(ranks[g] for g in used), bias="key" in biases)
        self.value = nn.Linear(embed, sum(widths), bias="value" in biases)
        self.columns = sum(widths[sharing[i]] for i in alive)
        runs = []  # living heads that share key and value and stand side by side: one call for each run
        for i in alive:
            same = runs and (groups[i], sharing[i]) == runs[-1][0] and i == runs[-1][1][-1] + 1
            runs[-1][1].append(i) if same else runs.append(((groups[i], sharing[i]), [i]))
        self.runs = [(query[heads[0]], len(heads), key[g], ranks[g], value[j], widths[j]) for (g, j), heads in runs]
        self.turning = {
            "query": [self.pairs[groups[i]] for i in alive] if self.pairs else [],
            "key": [self.pairs[g] for g in used] if self.pairs else [],
        }
        self.kept = {}

    def turned(self, name, rows, cos, sin):
        """Every pair of coordinates turned by its frequency times the place."""
        if (name, rows.device) not in self.kept:
            frequency, partner, sign = [], [], []
            for pairs in self.turning[name]:
                first, count = len(frequency), len(pairs)
                frequency += [*pairs, *pairs]
                partner += [first + count + i for i in range(count)] + [first + i for i in range(count)]
                sign += [-1.0] * count + [1.0] * count
            made = torch.tensor(frequency), torch.tensor(partner), torch.tensor(sign)
            self.kept[name, rows.device] = tuple(t.to(rows.device) for t in made)
        frequency, partner, sign = self.kept[name, rows.device]
        sine = sin.index_select(-1, frequency) * sign.to(sin.dtype)
        return rows * cos.index_select(-1, frequency) + rows.index_select(-1, partner) * sine

    def attend(self, x, mask, cache, layer, turn=None, norms=(None, None), head_dim=None):
        q, k, v = self.query(x), self.key(x), self.value(x)
        q, k = normed(norms[0], q, head_dim), normed(norms[1], k, head_dim)
        if turn is not None:
            q, k = self.turned("query", q, *turn), self.turned("key", k, *turn)
        if cache is not None:
            cache = getattr(cache, "self_attention_cache", cache)
            k, v = (t[:, 0] for t in cache.update(k[:, None], v[:, None], layer))
        outs = []
        for at, heads, key, rank, value, width in self.runs:
            u = functional.scaled_dot_product_attention(
                readable(q[:, :, at : at + heads * rank].unflatten(-1, (heads, rank)).transpose(1, 2)),
                readable(k[:, None, :, key : key + rank]).expand(-1, heads, -1, -1),
                readable(v[:, None, :, value : value + width]).expand(-1, heads, -1, -1),
                attn_mask=mask,
                is_causal=mask is None and q.shape[1] > 1 and self.causal,
                scale=self.scale,
            )
            outs.append(u.transpose(1, 2).flatten(2))
        return torch.cat(outs, dim=-1) if outs else x.new_zeros(*x.shape[:2], 0)


class SmallerRotary(nn.Module):
    """Stands for the `self_attn` of Llama and its relatives."""

    def __init__(self, layout, stock):
        super().__init__()
        stands = {"query": stock.q_proj, "key": stock.k_proj, "value": stock.v_proj}
        biases = {name for name, part in stands.items() if part.bias is not None}
        self.heads = SmallerHeads(layout, stock.q_proj.in_features, stock.scaling, biases, stock.is_causal)
        self.o_proj = nn.Linear(self.heads.columns, stock.o_proj.out_features, bias=stock.o_proj.bias is not None)
        self.q_norm, self.k_norm = getattr(stock, "q_norm", None), getattr(stock, "k_norm", None)
        self.layer_idx, self.head_dim = stock.layer_idx, stock.head_dim

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **_):
        norms = self.q_norm, self.k_norm
        u = self.heads.attend(
            hidden_states, attention_mask, past_key_values, self.layer_idx, position_embeddings, norms, self.head_dim
        )
        return self.o_proj(u), None


class SmallerGpt2(nn.Module):
    """Stands for GPT-2's `attn`."""

    def __init__(self, layout, stock):
        super().__init__()
        self.heads = SmallerHeads(layout, stock.embed_dim, stock.scaling, {"query"}, True)
        self.c_proj, self.layer_idx = nn.Linear(self.heads.columns, stock.embed_dim), stock.layer_idx

    def forward(self, hidden_states, past_key_values=None, attention_mask=None, **_):
        return self.c_proj(self.heads.attend(hidden_states, attention_mask, past_key_values, self.layer_idx)), None


class SmallerBert(SmallerHeads):
    """Stands for BERT's `attention.self`."""

    def __init__(self, layout, stock):
        causal = getattr(stock, "is_causal", False)
        super().__init__(layout, stock.query.in_features, stock.attention_head_size**-0.5, {"query"}, causal)
        self.layer_idx = getattr(stock, "layer_idx", None)

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, **_):
        return self.attend(hidden_states, attention_mask, past_key_values, self.layer_idx), None


def made_smaller(model, config):
    """Put into a stock model what config.json names in the place of every attention."""
    base = model.base_model
    for number, layout in enumerate(config.headcount):
        if config.model_type == "bert":
            part = base.encoder.layer[number].attention
            part.self = SmallerBert(layout, part.self)
            part.output.dense = nn.Linear(part.self.columns, config.hidden_size)
        elif config.model_type == "gpt2":
            base.h[number].attn = SmallerGpt2(layout, base.h[number].attn)
        else:
            base.layers[number].self_attn = SmallerRotary(layout, base.layers[number].self_attn)
