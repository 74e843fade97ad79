# pyright: reportMissingImports=false
"""The same work in JAX: vmap over the networks, scan over the steps, plain or collapsed."""

from __future__ import annotations

import os
from functools import partial

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from benchmarks.problem import DECAY, LR, STEPS, WARMUP, Problem, Train
from headcount.kernels.optimiser import BETA1, BETA2, EPS


def _named(row, shapes):
    sizes = [shape.numel() for shape in shapes.values()]
    parts = jnp.split(row, np.cumsum(sizes)[:-1])
    return {name: part.reshape(tuple(shape)) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _read_out(p, cls):
    hidden = jax.nn.gelu(cls @ p["read_out.inner.weight"].T + p["read_out.inner.bias"], approximate=False)
    return (hidden @ p["read_out.outer.weight"].T + p["read_out.outer.bias"])[..., 0]


def _plain(p, x):
    """One network on (batch, length, features)."""
    query, key, value, output = (p[f"attention.0.{name}"] for name in ("query", "key", "value", "output"))
    hidden = jax.nn.relu(x @ p["encoder.inner.weight"].T + p["encoder.inner.bias"])
    tokens = hidden @ p["encoder.outer.weight"].T + p["encoder.outer.bias"]
    q = jnp.einsum("hne,e->hn", query, p["cls"]) * query.shape[1] ** -0.5
    k, v = jnp.einsum("bte,hne->bhtn", tokens, key), jnp.einsum("bte,hne->bhtn", tokens, value)
    weights = jax.nn.softmax(jnp.einsum("hn,bhtn->bht", q, k), axis=-1)
    mixed = jnp.einsum("bht,bhtn->bhn", weights, v)
    return _read_out(p, p["cls"] + jnp.einsum("bhn,hen->be", mixed, output))


def _collapsed(p, x):
    query, key, value, output = (p[f"attention.0.{name}"] for name in ("query", "key", "value", "output"))
    outer, moved = p["encoder.outer.weight"], p["encoder.outer.bias"]
    hidden = jax.nn.relu(x @ p["encoder.inner.weight"].T + p["encoder.inner.bias"])
    q = jnp.einsum("hne,e->hn", query, p["cls"]) * query.shape[1] ** -0.5
    directions = jnp.einsum("hn,hne->he", q, key) @ outer
    weights = jax.nn.softmax(jnp.einsum("btw,hw->bht", hidden, directions), axis=-1)
    pooled = jnp.einsum("bht,btw->bhw", weights, hidden)
    heads = jnp.einsum("bhw,hnw->bhn", pooled, value @ outer) + value @ moved
    return _read_out(p, p["cls"] + jnp.einsum("bhn,hen->be", heads, output))


def _deep(p, x, attend):
    """One network of any depth on (batch, length, features); `attend` mixes (batch, length, heads, dim)."""
    layers = sum(name.endswith(".query") for name in p)
    hidden = jax.nn.relu(x @ p["encoder.inner.weight"].T + p["encoder.inner.bias"])
    tokens = hidden @ p["encoder.outer.weight"].T + p["encoder.outer.bias"]
    cls = jnp.broadcast_to(p["cls"], (x.shape[0], 1, p["cls"].shape[0]))
    for layer in range(layers):
        query, key, value, output = (p[f"attention.{layer}.{name}"] for name in ("query", "key", "value", "output"))
        states = cls if layer == layers - 1 else jnp.concatenate([tokens, cls], axis=1)
        q, k, v = (jnp.einsum("bte,hne->bthn", y, w) for y, w in ((states, query), (tokens, key), (tokens, value)))
        states = states + jnp.einsum("bthn,hen->bte", attend(q, k, v), output)
        if layer < layers - 1:
            name = f"between.{layer}"
            inner = jax.nn.relu(states @ p[f"{name}.inner.weight"].T + p[f"{name}.inner.bias"])
            states = states + inner @ p[f"{name}.outer.weight"].T + p[f"{name}.outer.bias"]
            tokens, cls = states[:, :-1], states[:, -1:]
        else:
            cls = states
    return _read_out(p, cls[:, 0])


def _written_out(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bqhn,bkhn->bhqk", q, k) * q.shape[-1] ** -0.5, axis=-1)
    return jnp.einsum("bhqk,bkhn->bqhn", weights, v)


def _rate(step):
    rise = max(1, round(WARMUP * STEPS))
    down = 0.5 * (1 + jnp.cos(jnp.pi * jnp.maximum(step - rise, 0) / max(1, STEPS - rise)))
    return LR * jnp.minimum(step / rise, down)


def scanned(problem: Problem, form: str) -> Train:
    """vmap + scan of the plain or the collapsed network; one jitted call an epoch, state donated."""
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if problem.device == "cuda" else "float32")
    forward = {
        "plain": _plain,
        "collapsed": _collapsed,
        "deep": partial(_deep, attend=_written_out),
        "deep, dot_product_attention": partial(_deep, attend=jax.nn.dot_product_attention),
    }[form]
    size, shapes = problem.size, problem.few.shapes
    x, y = jnp.asarray(problem.x[0].cpu().numpy()), jnp.asarray(problem.y[0].cpu().numpy())
    order = problem.order.cpu().numpy().astype(np.int32)
    order = jnp.asarray(order.reshape(size.models, size.steps_per_epoch, size.batch).transpose(1, 0, 2))

    def loss(row, inputs, target):
        return jnp.mean((forward(_named(row, shapes), inputs) - target) ** 2)

    slope = jax.vmap(jax.grad(loss))

    def step(state, rows, x, y):
        theta, first, second, count = state
        count = count + 1
        gradient = slope(theta, x[rows], y[rows])
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        rate = _rate(count)
        size_of = jnp.sqrt(second / (1 - BETA2**count)) + EPS
        theta = theta * (1 - rate * DECAY) - rate * (first / (1 - BETA1**count)) / size_of
        return (theta, first, second, count), None

    def epoch_of(state, order, x, y):
        return jax.lax.scan(lambda state, rows: step(state, rows, x, y), state, order)[0]

    run = jax.jit(epoch_of, donate_argnums=0)
    theta = jnp.asarray(problem.theta.cpu().numpy())
    carried = {"state": (theta, jnp.zeros_like(theta), jnp.zeros_like(theta), jnp.zeros(()))}

    def epoch() -> None:
        carried["state"] = run(carried["state"], order, x, y)
        carried["state"][0].block_until_ready()

    def parameters() -> Tensor:
        return torch.from_numpy(np.array(carried["state"][0])).to(problem.device)

    return epoch, parameters
