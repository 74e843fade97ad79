"""Many small decoders of one shape trained at once: every member has its own rate, and its seed fixes start and data.

A decoder with grouped queries, rotary positions, norms without parameters, a feed-forward of two matrices and tied
logits. The first axis of every tensor is the member, so that one batched product serves all of them.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from headcount.sizing.model_shape import LayerShape, ModelShape, Wiring

__all__ = ["BARE", "GroupedBank", "Pace", "decoder_loss"]

# No gains, no biases, no places: the heads' sizes are all that differs between two shapes.
BARE = Wiring(gated=False, tied=True, norm=0)
DECAY, BETAS, EPS, CLIP = 0.1, (0.9, 0.95), 1e-8, 1.0


@dataclass(frozen=True)
class Pace:
    """The rate at each step: linear to its height, level, then linear to zero.

    >>> pace = Pace(steps=10, warm=0.2, cool=0.2)
    >>> [round(pace(step), 2) for step in (0, 1, 5, 8, 9)]
    [0.5, 1.0, 1.0, 1.0, 0.5]
    """

    steps: int
    warm: float = 0.05
    cool: float = 0.3

    def __call__(self, step: int) -> float:
        rising = (step + 1) / max(1, round(self.warm * self.steps))
        falling = (self.steps - step) / max(1, round(self.cool * self.steps))
        return min(1.0, rising, falling)


def tensors_of(shape: ModelShape) -> dict[str, tuple[int, int]]:
    """Every matrix of the decoder by name, inputs first."""
    if shape.wiring != BARE:
        raise ValueError("only decoders without gains, biases and gates are trained here: give wiring=BARE")
    found = {"token": (shape.vocab, shape.embed_dim)}
    for i, one in enumerate(shape.layers):
        both = one.head_dim * (one.heads + 2 * one.kv_heads)
        found[f"layer{i}.read"] = (shape.embed_dim, both)
        found[f"layer{i}.write"] = (one.head_dim * one.heads, shape.embed_dim)
        found[f"layer{i}.inner"] = (shape.embed_dim, one.width)
        found[f"layer{i}.outer"] = (one.width, shape.embed_dim)
    return found


def start_of(shape: ModelShape, seed: int) -> dict[str, Tensor]:
    """The start of one decoder: variance 1 / inputs, smaller by sqrt(2 L) where a matrix ends in the residual.

    A tensor's numbers depend on its name, its size and the seed, so that shapes share what they have in common.
    """
    found = {}
    for name, size in tensors_of(shape).items():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name} {size}".encode()))
        deviation = 0.02 if name == "token" else size[0] ** -0.5
        if name.endswith(("write", "outer")):
            deviation /= math.sqrt(2 * len(shape.layers))
        found[name] = deviation * torch.randn(size, generator=generator)
    return found


def rotations(length: int, head_dim: int, device: torch.device | str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of place times frequency, one for each half of a head."""
    half = head_dim // 2
    speed = 10000.0 ** (-torch.arange(half, device=device, dtype=torch.float64) / max(half, 1))
    angle = torch.arange(length, device=device, dtype=torch.float64)[:, None] * speed
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (i, i + head_dim / 2) turned by its angle."""
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def attended(one: LayerShape, mixed: Float[Tensor, "rows length dim"]) -> Float[Tensor, "rows length out"]:
    """Causal attention of one layer from its queries, keys and values side by side."""
    n, h, g = one.head_dim, one.heads, one.kv_heads
    q, k, v = mixed.split([n * h, n * g, n * g], -1)
    q, k, v = (t.unflatten(-1, (-1, n)).transpose(1, 2) for t in (q, k, v))
    turn = rotations(mixed.shape[1], n, mixed.device, mixed.dtype)
    q, k = rotate(q, *turn), rotate(k, *turn)
    if g < h:
        k, v = (t.repeat_interleave(h // g, 1) for t in (k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def decoder_loss(
    shape: ModelShape, weights: dict[str, Tensor], ids: Int[Tensor, "member batch long"]
) -> Float[Tensor, "member batch"]:
    """Mean loss in nats of each window of each member; a window of T + 1 tokens gives T predictions.

    Tokens are read from the table in its own precision, so that its gradient is summed in that one too.
    """
    members, batch, long = ids.shape
    read, wanted, size = ids[..., :-1].flatten(1), ids[..., 1:], shape.embed_dim
    kind = weights["layer0.read"].dtype
    x = weights["token"].gather(1, read[..., None].expand(-1, -1, size)).to(kind)
    table = weights["token"].to(kind)
    for i, one in enumerate(shape.layers):
        mixed = torch.bmm(functional.layer_norm(x, (size,)), weights[f"layer{i}.read"])
        u = attended(one, mixed.view(members * batch, long - 1, -1)).view(members, batch * (long - 1), -1)
        x = x + torch.bmm(u, weights[f"layer{i}.write"])
        hidden = torch.bmm(functional.layer_norm(x, (size,)), weights[f"layer{i}.inner"])
        x = x + torch.bmm(functional.gelu(hidden, approximate="tanh"), weights[f"layer{i}.outer"])
    logits = torch.bmm(functional.layer_norm(x, (size,)), table.transpose(1, 2))
    wide = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    losses = functional.cross_entropy(wide.flatten(0, 1), wanted.flatten(), reduction="none")
    return losses.view(members, batch, -1).mean(-1)


class GroupedBank:
    """Members of one shape: pairs (seed, rate), each with its own start, moments and data order."""

    def __init__(
        self, shape: ModelShape, members: Sequence[tuple[int, float]], pace: Pace, *, device: str = "cpu"
    ) -> None:
        self.shape, self.members, self.pace, self.device = shape, tuple(members), pace, device
        self.compute = torch.bfloat16 if device.startswith("cuda") else torch.get_default_dtype()
        self.theta = self._started()
        self.first = {k: torch.zeros_like(p) for k, p in self.theta.items()}
        self.second = {k: torch.zeros_like(p) for k, p in self.theta.items()}
        self.rates = torch.tensor([rate for _, rate in members], device=device)[:, None, None]
        self.scale = torch.ones(3, device=device)  # the pace, and the two corrections of Adam's moments

    def _started(self) -> dict[str, Tensor]:
        starts = {seed: start_of(self.shape, seed) for seed, _ in self.members}
        stacked = {k: torch.stack([starts[s][k] for s, _ in self.members]) for k in tensors_of(self.shape)}
        return {k: p.to(self.device, torch.get_default_dtype()).requires_grad_() for k, p in stacked.items()}

    def losses(self, ids: Int[Tensor, "member batch long"]) -> Float[Tensor, "member batch"]:
        """The loss of every window under the present weights."""
        cast = {k: p if k == "token" else p.to(self.compute) for k, p in self.theta.items()}
        return decoder_loss(self.shape, cast, ids)

    def step(self, ids: Int[Tensor, "member batch long"]) -> Tensor:
        """One step of AdamW with a clipped gradient, each member by its own; the losses before it."""
        losses = self.losses(ids).mean(1)
        grads = dict(zip(self.theta, torch.autograd.grad(losses.sum(), list(self.theta.values())), strict=True))
        with torch.no_grad():
            size = torch.stack([g.square().sum((1, 2)) for g in grads.values()]).sum(0).sqrt()
            shrink = (CLIP / (size + 1e-6)).clamp(max=1.0)[:, None, None]
            for name, grad in grads.items():
                self._update(name, grad * shrink.to(grad.dtype))
        return losses.detach()

    def _update(self, name: str, grad: Tensor) -> None:
        p, m, v, rate = self.theta[name], self.first[name], self.second[name], self.rates * self.scale[0]
        m.lerp_(grad, 1 - BETAS[0])
        v.lerp_(grad * grad, 1 - BETAS[1])
        p.mul_(1 - rate * DECAY)
        p.sub_(rate * (m * self.scale[1]) / ((v * self.scale[2]).sqrt() + EPS))

    def at(self, step: int) -> None:
        """Set the pace and the corrections for this step."""
        now = [self.pace(step), 1 / (1 - BETAS[0] ** (step + 1)), 1 / (1 - BETAS[1] ** (step + 1))]
        self.scale.copy_(torch.tensor(now, dtype=self.scale.dtype))

    def train(self, batch_at: Callable[[int], Tensor], after: Callable[[int], None] = lambda _: None) -> None:
        """Every step of the pace on the batches that `batch_at` gives; `after` is called with the steps done."""
        step = self._recorded(batch_at(0)) if self.device.startswith("cuda") else self.step
        for number in range(self.pace.steps):
            self.at(number)
            step(batch_at(number))
            after(number + 1)

    def _recorded(self, example: Tensor) -> Callable[[Tensor], object]:
        """The step as a CUDA graph, or as it is where none can be taken; what warming up has changed is put back."""
        held = [t for part in (self.theta, self.first, self.second) for t in part.values()]
        kept, ids = [t.detach().clone() for t in held], example.clone()
        graph: torch.cuda.CUDAGraph | None = torch.cuda.CUDAGraph()
        try:
            self._warmed(ids)
            with torch.cuda.graph(graph):
                self.step(ids)
        except RuntimeError as problem:
            if isinstance(problem, torch.cuda.OutOfMemoryError):
                raise
            torch.cuda.synchronize()
            warnings.warn(f"no CUDA graph ({str(problem).splitlines()[0]}); steps go one by one", stacklevel=2)
            graph = None
        with torch.no_grad():
            for tensor, before in zip(held, kept, strict=True):
                tensor.copy_(before)

        if graph is None:
            return self.step
        again = graph.replay

        def replay(batch: Tensor) -> None:
            ids.copy_(batch)
            again()

        return replay

    def _warmed(self, ids: Tensor) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(ids)
        torch.cuda.current_stream().wait_stream(side)
