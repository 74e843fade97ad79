"""Zero heads: a feed-forward for every token, the mean of all, a feed-forward of that; everything but a look-up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import gelu

from headcount.measuring.baselines import Predicted
from headcount.measuring.planning import FINALISTS, SHORT, Fitting, TrainingSetting
from headcount.measuring.preparing import Fold
from headcount.training.given import Part

WARM = 0.05  # of the steps
EVALUATIONS = 30
BETAS, SMALL = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class MeanSizes:
    """Features of a token (0 of a letter), letters, tokens, outputs, and the widths of state and feed-forward."""

    token_dim: int
    letters: int
    length: int
    outputs: int
    embed_dim: int
    width: int


@dataclass(frozen=True, eq=False)
class MeanNetworks:
    """K networks f(mean_t (e_t + g(e_t))) with e_t = W x_t + place_t and feed-forwards f and g, as stacked weights.

    No norm stands before the mean, so that a mean of tokens, or of any feed-forward of them, is exact.

    >>> nets = MeanNetworks.drawn(2, MeanSizes(token_dim=3, letters=0, length=5, outputs=1, embed_dim=4, width=8), 0)
    >>> nets(torch.zeros(6, 5, 3), torch.ones(6, 5, dtype=torch.bool)).shape, nets.parameters
    (torch.Size([2, 6, 1]), 161)
    """

    weights: dict[str, Tensor]

    @classmethod
    def drawn(cls, count: int, of: MeanSizes, seed: int) -> MeanNetworks:
        """K copies of one start, as torch starts linear maps and tables."""
        generator = torch.Generator().manual_seed(seed)

        def linear(inputs: int, outs: int) -> tuple[Tensor, Tensor]:
            bound = inputs**-0.5
            both = (2 * torch.rand(size, generator=generator) - 1 for size in ((inputs, outs), (1, outs)))
            weight, bias = (bound * one for one in both)
            return weight, bias

        state, width = of.embed_dim, of.width
        table = torch.randn(of.letters + 1, state, generator=generator)
        sizes = {"inner": (state, width), "outer": (width, state), "hidden": (state, width)}
        sizes |= {"read": (width, of.outputs), **({} if of.letters else {"embed": (of.token_dim, state)})}
        weights = {"places": 0.02 * torch.randn(of.length, state, generator=generator)}
        weights |= {"table": table} if of.letters else {}
        for name, (inputs, outs) in sizes.items():
            weights[name], weights[f"{name} bias"] = linear(inputs, outs)
        stacked = {name: w.expand(count, *w.shape).clone().requires_grad_() for name, w in weights.items()}
        return cls(stacked)

    @property
    def parameters(self) -> int:
        """Numbers of one network."""
        return sum(w[0].numel() for w in self.weights.values())

    def __call__(
        self, x: Tensor, present: Bool[Tensor, "batch length"], keep: Float[Tensor, " model"] | None = None
    ) -> Float[Tensor, "model batch outputs"]:
        """What every network says; with `keep`, that share of hidden units and of tokens' states is kept by chance.

        The mean is linear, so it is taken of tokens and of hidden units, before what follows them; and what is linear
        in tokens is made one matrix before it meets them.
        """
        w, length = self.weights, x.shape[1]
        share = (present / present.sum(dim=1, keepdim=True)).to(w["inner"].dtype)[:, None]
        places = w["places"][:, :length]
        along = torch.baddbmm(w["inner bias"], places, w["inner"])
        if "table" in w:
            entered = (w["table"] @ w["inner"])[:, x]
            counts = share.new_zeros(len(x), w["table"].shape[1]).scatter_add(1, x, share[:, 0])
            mean = counts @ w["table"]
        else:
            along = along + w["embed bias"] @ w["inner"]
            entered = (x.flatten(0, 1) @ (w["embed"] @ w["inner"])).unflatten(1, x.shape[:2])
            mean = (share @ x)[:, 0] @ w["embed"] + w["embed bias"]
        hidden = (share @ _some(gelu(entered + along[:, None]), keep))[:, :, 0]
        state = mean + share[:, 0] @ places + self._mapped(hidden, "outer")
        return self._mapped(_some(gelu(self._mapped(state, "hidden")), keep), "read")

    def _mapped(self, x: Float[Tensor, "model batch inputs"], name: str) -> Float[Tensor, "model batch outputs"]:
        return torch.baddbmm(self.weights[f"{name} bias"], x, self.weights[name])

    def of(self, members: Sequence[Tensor | int]) -> MeanNetworks:
        """Some of them, apart from what becomes of the others."""
        rows = torch.as_tensor([int(m) for m in members])
        return MeanNetworks({name: w.detach()[rows].clone() for name, w in self.weights.items()})


def _some(x: Tensor, keep: Tensor | None) -> Tensor:
    """Every member's units by chance, those that are kept made larger; random numbers only where some are not."""
    if keep is None or bool((keep == 1).all()):
        return x
    kept = keep[keep < 1].reshape(-1, *(1,) * (x.ndim - 1))
    factors = torch.ones_like(x)
    factors[keep < 1] = (torch.rand(len(kept), *x.shape[1:]) < kept) / kept
    return x * factors


def fit_zero_heads(fold: Fold, way: Fitting) -> tuple[Predicted, TrainingSetting, int]:
    """Every setting for a quarter of the steps and the best two to the end, as every network of the contest."""
    settings, steps = way.plan.settings, way.steps
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(way.seed)
        tried = _trained(settings, fold, way, max(10, steps // SHORT)) if len(settings) > 1 else None
        order = np.argsort([level for level, _ in tried])[:FINALISTS] if tried else range(len(settings))
        finalists = [settings[k] for k in order]
        finals = _trained(finalists, fold, way, steps)
    both = [*zip(finals, finalists, strict=True), *(((tried[k]), settings[k]) for k in order if tried)]
    (_, nets), setting = min(both, key=lambda one: one[0][0])
    searched = tried[int(order[0])][1] if tried else nets
    outer, inner, short = (
        _predicted(some, part)[0].double().numpy()
        for some, part in ((nets, fold.outer), (nets, fold.inner), (searched, fold.outer))
    )
    return Predicted(outer, inner, short), setting, nets.parameters


def _trained(
    settings: Sequence[TrainingSetting], fold: Fold, fitting: Fitting, steps: int
) -> list[tuple[float, MeanNetworks]]:
    """The inner loss of each and its network there: AdamW, a linear warm-up, a cosine, the best of 30 looks."""
    x, present, y = _tensors(fold.training)
    outputs = 1 if y.ndim == 1 else y.shape[1]
    plan = fitting.plan
    sizes = MeanSizes(
        0 if fitting.letters else x.shape[2], fitting.letters, x.shape[1], outputs, plan.embed_dim, plan.width
    )
    nets = MeanNetworks.drawn(len(settings), sizes, fitting.seed)
    lr, keep, decay = (torch.tensor([getattr(s, name) for s in settings]) for name in ("lr", "dropout", "weight_decay"))
    keep, moments = 1 - keep, {name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in nets.weights.items()}
    best = [(math.inf, nets.of([k])) for k in range(len(settings))]
    batch, every = min(plan.batch, len(x)), max(1, steps // EVALUATIONS)
    order = torch.randperm(len(x))
    for step in range(1, steps + 1):
        first = (step - 1) * batch % (len(x) // batch * batch)
        order = torch.randperm(len(x)) if first == 0 else order
        rows = order[first : first + batch]
        losses = _losses(nets(x[rows], present[rows], keep), y[rows], fold.classes)
        slopes = torch.autograd.grad(losses.sum(), list(nets.weights.values()))
        done = step / steps
        pace = min(done / WARM, 0.5 * (1 + math.cos(math.pi * done)))
        _step(nets.weights, slopes, moments, pace * lr, decay, step)
        if step % every == 0 or step == steps:
            fitting.look()
            with torch.no_grad():
                levels = _losses(_predicted(nets, fold.inner), _tensors(fold.inner)[2], fold.classes).tolist()
            best = [
                (now, nets.of([k])) if now < known[0] else known
                for k, (now, known) in enumerate(zip(levels, best, strict=True))
            ]
    return best


@torch.no_grad()
def _step(
    weights: dict[str, Tensor], slopes: Sequence[Tensor], moments: dict[str, tuple[Tensor, Tensor]],
    lr: Tensor, decay: Tensor, step: int,
) -> None:  # fmt: skip
    """AdamW, with a rate and a decay for each network."""
    for (name, weight), slope in zip(weights.items(), slopes, strict=True):
        wide = (len(lr), *(1,) * (weight.ndim - 1))
        mean, square = moments[name]
        mean.lerp_(slope, 1 - BETAS[0])
        square.lerp_(slope * slope, 1 - BETAS[1])
        size = (square / (1 - BETAS[1] ** step)).sqrt() + SMALL
        weight -= lr.reshape(wide) * (mean / (1 - BETAS[0] ** step) / size + decay.reshape(wide) * weight)


@torch.no_grad()
def _predicted(nets: MeanNetworks, part: Part) -> Tensor:
    x, present, _ = _tensors(part)
    return nets(x, present)


def _tensors(part: Part) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.as_tensor(part.x)
    present = torch.arange(x.shape[1]) < torch.as_tensor(part.lengths)[:, None]
    return x, present, torch.as_tensor(part.y).float()


def _losses(out: Float[Tensor, "model batch outputs"], y: Tensor, classes: bool) -> Float[Tensor, " model"]:
    target = y.reshape(len(y), -1)
    if classes:
        return -(out.log_softmax(dim=-1) * target).sum(dim=-1).mean(dim=-1)
    return (out - target).square().mean(dim=(1, 2))
