"""The usual ways to train many small networks in PyTorch, doing the same work as a bank."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from benchmarks.problem import DECAY, LR, STEPS, TOKEN_DIM, WARMUP, Problem, Train
from headcount.kernels.backend import Backend, Record, by_differentiation
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.plain import Batch, collapsed, plain
from headcount.kernels.rate_schedule import COSINE
from headcount.nets import Transformer


def one_by_one(problem: Problem, compiled: bool = False) -> Train:
    """The first network alone with torch.optim.AdamW; the others would take as long again, each."""
    net = problem.few.module(0).to(problem.device)
    forward: Callable[[Tensor], Tensor] = torch.compile(net) if compiled else net
    adam = torch.optim.AdamW(net.parameters(), lr=LR, betas=(0.9, 0.999), weight_decay=DECAY)
    warm = torch.optim.lr_scheduler.LambdaLR(adam, lambda s: COSINE.share(torch.tensor(s + 1.0), STEPS, WARMUP).item())
    x, y, batch = problem.x[0, ..., :TOKEN_DIM].contiguous(), problem.y[0], problem.size.batch

    def epoch() -> None:
        for rows in problem.order[0].split(batch):
            adam.zero_grad(set_to_none=True)
            (forward(x[rows]) - y[rows]).square().mean().backward()
            adam.step()
            warm.step()

    def theta() -> Tensor:
        # In the order of a bank's rows: that of the module's own parameters.
        return torch.cat([p.detach().flatten() for p in net.parameters()])[None]

    return epoch, theta


def vmapped(problem: Problem) -> Train:
    """torch.func.vmap of the gradient of one network's loss, and AdamW on the stacked parameters."""
    bank, size = problem.bank(), problem.size
    theta, net = bank.theta, Transformer(size.arch, TOKEN_DIM).to(problem.device)
    names = list(bank.shapes)
    sizes = [bank.shapes[name].numel() for name in names]
    adam, active = problem.adamw(theta), torch.ones(size.models, dtype=torch.bool, device=problem.device)

    def loss(row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = {n: p.view(bank.shapes[n]) for n, p in zip(names, row.split(sizes), strict=True)}
        return (functional_call(net, parts, (x,)) - y).square().mean()

    slope = vmap(grad(loss))
    x, y = problem.x[0, ..., :TOKEN_DIM].contiguous(), problem.y[0]

    def epoch() -> None:
        for rows in problem.order.split(size.batch, dim=1):
            adam.update(theta, slope(theta, x[rows], y[rows]), active)

    return epoch, lambda: theta


def batched(form: str, compiled: bool, record: Record) -> Backend:
    """The bank by batched products, plain or collapsed, with or without the compiler."""
    network = {"plain": plain, "collapsed": collapsed}[form]
    fast = torch.compile(network, dynamic=False) if compiled else network

    def forward(problem: object, bank: Bank, p: Stacked, batch: Batch) -> Tensor:
        return fast(bank, p, batch)

    return Backend(f"{form} batched products", gradient=by_differentiation(forward), forward=forward, record=record)
