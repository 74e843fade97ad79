"""Where the class token of a trained network looks, against what the task finds: hit rates and maps of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.nets.target_units import TargetUnits
from headcount.nets.transformer import Attention
from headcount.results import Store
from headcount.results.attention_record import AttentionMap, AttentionRecord
from headcount.tasks import Task
from headcount.tasks.winners import winners
from headcount.training.kept_networks import NetworksIn, task_of

SAMPLES, INPUTS = 1000, 4


@torch.no_grad()
def attention_of(
    net: TargetUnits, task: Task, row: Mapping[str, Any], *, samples: int = SAMPLES, inputs: int = INPUTS, seed: int = 0
) -> AttentionRecord:
    """How often each head's largest weight in the last layer lies on what each retrieval finds, on fresh samples.

    The maps are those of the first `inputs` sequences.
    """
    dtype = net.net.cls.dtype
    x, y = task.sample(samples, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    wanted = winners(task, x)
    weights = _weights(net, x)
    top = weights.argmax(dim=-1)
    hits = [[float((looked == place).double().mean()) for place in wanted.values()] for looked in top.T]
    answers = net(x[:inputs])
    maps = tuple(
        AttentionMap(
            tuple(tuple(round(w, 4) for w in line) for line in weights[i].tolist()),
            tuple(int(place[i]) for place in wanted.values()),
            float(y[i]),
            float(answers[i]),
        )
        for i in range(min(inputs, samples))
    )
    return AttentionRecord(
        type(task).__name__,
        net.arch.name,
        task.length,
        float(row["nmse"]),
        tuple(wanted),
        tuple(map(tuple, hits)),
        1 / task.length,
        samples,
        maps,
        str(row["run"]),
    )


def attention_in(
    folder: str | Path, *, heads: int | None = None, length: int | None = None, spec: str | None = None, **how: int
) -> AttentionRecord:
    """The attention of the best network kept in a store's folder, or of the best with so many heads or tokens.

    A store may hold several specs: `spec` names one, the latest is meant without it.
    """
    store = Store.open(folder)
    rows = [
        row
        for row in store.study(spec)
        if (heads is None or row["heads"] == heads) and (length is None or row["length"] == length)
    ]
    if not rows:
        raise ValueError(f"{folder} holds no row with {heads or 'any'} heads and length {length or 'any'}")
    networks = NetworksIn(store.path.parent)
    stored = [row for row in rows if networks.has(row)]
    if not stored:
        raise ValueError(f"{folder} keeps no networks: a sweep keeps them when its `save` is best or all")
    best = min(stored, key=lambda row: row["nmse"])
    return attention_of(networks(best), task_of(store, best["run"]), best, **how)


def _weights(net: TargetUnits, x: Tensor) -> Tensor:
    """The class token's weights in the last layer: (batch, heads, length)."""
    plain = net.net
    tokens, cls = plain.states(x)[-1]
    last = plain.attention[-1]
    assert isinstance(last, Attention)
    return last.weights(cls, tokens)[:, :, 0]
