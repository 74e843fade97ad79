"""A plain encoder as people write one: torch alone, `nn.TransformerEncoderLayer`, the same search and stopping rule.

    python -m studies.measure.plain                     whether a CUDA graph of its step trains as the step does

Networks of one shape (settings and splits) are trained together by `torch.func.vmap`, those of several shapes on as
many streams of a device; each is the network that a loop over them would give (`tests/test_measure_bench.py`).
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, pad

WIDTH, HIDDEN, BATCH = 48, 96, 32
RATES, KEPT = (1e-3, 4e-3), ((0.0, 1e-3), (0.2, 0.1))  # learning rates; dropout with its weight decay
SHORT, FINALISTS = 4, 2  # all settings for a quarter of the steps, two to the end
LOOKS, WARM = 30, 0.05  # at the inner part; of the steps
BETAS, SMALL = (0.9, 0.999), 1e-8
JUDGED_AT_ONCE = 8  # networks, on a whole part


@dataclass(frozen=True)
class Plain:
    """The sizes of an encoder; `letters` is 0 where tokens are numbers, `classes` says that outputs are logits."""

    features: int
    letters: int
    length: int
    outputs: int
    classes: bool
    heads: int
    layers: int


@dataclass(frozen=True)
class PlainSetting:
    """A learning rate, and how a network is kept from remembering."""

    lr: float
    dropout: float
    decay: float


@dataclass(frozen=True, eq=False)
class PlainFold:
    """Training, inner and outer part of a split, each as tokens, marks of padding and targets (one row a sequence)."""

    training: tuple[Tensor, Tensor, Tensor]
    inner: tuple[Tensor, Tensor, Tensor]
    outer: tuple[Tensor, Tensor, Tensor]
    blocks: Tensor  # the number of the block of every outer sequence
    seed: int = 0  # of the start and of the shuffling


class PlainEncoder(nn.Module):
    """Embedding, learnt places, class token, pre-norm layers, a linear read-out."""

    def __init__(self, sizes: Plain, dropout: float) -> None:
        super().__init__()
        table = nn.Embedding(sizes.letters + 1, WIDTH) if sizes.letters else nn.Linear(sizes.features, WIDTH)
        self.embed: nn.Module = table
        self.places = nn.Parameter(0.02 * torch.randn(sizes.length, WIDTH))
        self.cls = nn.Parameter(0.02 * torch.randn(WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, sizes.heads, HIDDEN, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, sizes.layers, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.read_out = nn.Linear(WIDTH, sizes.outputs)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """Logits or numbers; `absent` marks padding."""
        state = torch.cat([self.cls.expand(len(x), 1, -1), self.embed(x) + self.places], dim=1)
        return self.read_out(self.layers(state, src_key_padding_mask=pad(absent, (1, 0)))[:, 0])


Run = tuple[Plain, int, PlainSetting]  # an encoder, the number of a fold, and how it is trained
Levels = tuple[float, float, list[float]]  # inner loss, outer loss, and what every block adds to it
Losses = Callable[[dict[str, Tensor], Tensor, Tensor, Tensor, Tensor], Tensor]


class _Together:
    """Networks of one shape and dropout, one for each run, as rows of one matrix."""

    def __init__(self, folds: Sequence[PlainFold], runs: Sequence[Run], steps: int, device: str) -> None:
        self.runs, self.steps, self.device = runs, steps, device
        sizes, _, setting = runs[0]
        self.net = PlainEncoder(sizes, setting.dropout).to(device)
        self.places = [(name, p.shape, p.numel()) for name, p in self.net.named_parameters()]
        numbers = [number for _, number, _ in runs]
        drawn = {number: _drawn(sizes, folds[number].seed) for number in numbers}
        self.flat = torch.stack([drawn[number] for number in numbers]).to(device)
        self.moments = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.fold = torch.tensor(numbers, device=device)
        self.training, self.inner, self.outer = (
            _stacked([getattr(fold, part) for fold in folds], device) for part in ("training", "inner", "outer")
        )
        rows = {n: _shuffled(len(folds[n].training[0]), steps, folds[n].seed) for n in numbers}
        self.rows = torch.stack([rows[number] for number in numbers], dim=1).to(device)
        pace = torch.tensor([min(done / WARM, 0.5 * (1 + math.cos(math.pi * done))) for done in _shares(steps)])
        self.lr = (pace[:, None] * torch.tensor([one.lr for *_, one in runs])).to(device)[:, :, None]
        self.decay = torch.tensor([one.decay for *_, one in runs], device=device)[:, None]
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        each = self._each(sizes.classes)

        def loss(weights: dict[str, Tensor], x: Tensor, absent: Tensor, y: Tensor, counts: Tensor) -> Tensor:
            return each(weights, x, absent, y, counts).sum()

        self.losses: Losses = vmap(loss, randomness="different")
        self.each: Losses = vmap(each, randomness="different", chunk_size=JUDGED_AT_ONCE)
        self.blocks = _stacked_blocks([fold.blocks for fold in folds], self.outer[0].shape[1]).to(device)
        self.best, self.held = torch.full((len(runs),), math.inf, device=device), self.flat.clone()
        self.levels: list[Levels] = []

    def _each(self, classes: bool) -> Losses:
        """What every sequence adds to the mean loss."""

        def each(weights: dict[str, Tensor], x: Tensor, absent: Tensor, y: Tensor, counts: Tensor) -> Tensor:
            out = functional_call(self.net, weights, (x, absent))
            lost = cross_entropy(out, y, reduction="none") if classes else (out - y).square().mean(dim=1)
            return lost * counts / counts.sum()

        return each

    def weights(self, flat: Tensor) -> dict[str, Tensor]:
        """The rows as named weights."""
        parts = flat.split([size for *_, size in self.places], dim=1)
        return {name: part.reshape(-1, *shape) for (name, shape, _), part in zip(self.places, parts, strict=True)}

    def step(self) -> None:
        """One step of AdamW in every network; all that changes lies in tensors, so that a graph can be replayed."""
        weights = {name: w.requires_grad_() for name, w in self.weights(self.flat.detach()).items()}
        rows, lr = (one.index_select(0, self.count)[0] for one in (self.rows, self.lr))
        x, absent, y, counts = (part[self.fold[:, None], rows] for part in self.training)
        slopes = torch.autograd.grad(self.losses(weights, x, absent, y, counts).sum(), list(weights.values()))
        with torch.no_grad():
            slope = torch.cat([one.flatten(1) for one in slopes], dim=1)
            self.count += 1
            mean, square = self.moments
            mean.lerp_(slope, 1 - BETAS[0])
            square.lerp_(slope * slope, 1 - BETAS[1])
            first, second = (1 - torch.pow(torch.full_like(self.decay, beta), self.count) for beta in BETAS)
            self.flat -= lr * (mean / first / ((square / second).sqrt() + SMALL) + self.decay * self.flat)

    @torch.no_grad()
    def losses_on(self, part: tuple[Tensor, ...], flat: Tensor) -> Tensor:
        """The loss of every network on a part of its own split."""
        self.net.eval()
        each = self.each(self.weights(flat), *(one[self.fold] for one in part))
        self.net.train()
        return each.sum(dim=1)

    def trained(self, graphs: bool) -> Iterator[None]:
        """Train, one step between two yields; then `levels` holds every best inner loss and the outer loss there."""
        every = max(1, self.steps // LOOKS)
        advance = self.recorded() if graphs else self.step
        for step in range(int(self.count) + 1, self.steps + 1):
            advance()
            if step % every == 0 or step == self.steps:
                now = self.losses_on(self.inner, self.flat)
                better = now < self.best
                self.best = torch.where(better, now, self.best)
                self.held = torch.where(better[:, None], self.flat, self.held)
            yield
        parts = self.outer_parts()
        self.levels = list(zip(self.best.tolist(), parts.sum(dim=1).tolist(), parts.tolist(), strict=True))

    @torch.no_grad()
    def outer_parts(self) -> Tensor:
        """What every block of outer sequences adds to the loss of every network at its best."""
        self.net.eval()
        each = self.each(self.weights(self.held), *(one[self.fold] for one in self.outer))
        return torch.einsum("rn,rnb->rb", each, self.blocks[self.fold])

    def recorded(self) -> Callable[[], None]:
        """A CUDA graph of the step; the three steps before it, which a recording needs, are steps of the training."""
        for _ in range(min(3, self.steps)):
            self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def _side_by_side(groups: Sequence[_Together], device: str, graphs: bool) -> None:
    """Advance all by turns; on a CUDA device each on a stream of its own."""
    if device == "cpu":
        for one in groups:
            collections.deque(one.trained(graphs), maxlen=0)
        return
    torch.cuda.synchronize()
    turns = [(one.trained(graphs), torch.cuda.Stream()) for one in groups]
    while turns:
        going = []
        for turn, stream in turns:
            with torch.cuda.stream(stream):
                if next(turn, turns) is not turns:
                    going.append((turn, stream))
        turns = going
    torch.cuda.synchronize()


def _shares(steps: int) -> list[float]:
    return [step / steps for step in range(1, steps + 1)]


def _drawn(sizes: Plain, seed: int) -> Tensor:
    """The start of a network, as torch draws it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in PlainEncoder(sizes, 0.0).parameters()])


def _shuffled(count: int, steps: int, seed: int) -> Tensor:
    """The rows of every batch: epochs in a random order, what fills no batch left out."""
    generator = torch.Generator().manual_seed(seed)
    batch = min(BATCH, count)
    epochs = -(-steps // (count // batch))
    rows = [torch.randperm(count, generator=generator)[: count // batch * batch] for _ in range(epochs)]
    return pad(torch.cat(rows).reshape(-1, batch)[:steps], (0, BATCH - batch))


def _stacked(parts: Sequence[tuple[Tensor, Tensor, Tensor]], device: str) -> tuple[Tensor, ...]:
    """Parts of all splits with as many rows, and the weight of each row: 0 for those that fill up."""
    longest = max(len(part[0]) for part in parts)

    def filled(one: Tensor) -> Tensor:
        return pad(one, (*(0,) * (2 * one.ndim - 1), longest - len(one)))

    counts = torch.stack([filled(torch.ones(len(part[0]))) for part in parts])
    three = (torch.stack([filled(part[i]) for part in parts]) for i in range(3))
    return tuple(one.to(device) for one in (*three, counts))


def _stacked_blocks(numbers: Sequence[Tensor], longest: int) -> Tensor:
    """(fold, row, block): 1 where an outer row belongs to a block."""
    count = int(max(int(one.max()) for one in numbers)) + 1
    return torch.stack([pad(torch.eye(count)[one], (0, 0, 0, longest - len(one))) for one in numbers])


def train_plain(
    folds: Sequence[PlainFold], runs: Sequence[Run], steps: int, device: str = "cpu", graphs: bool = False
) -> dict[Run, Levels]:
    """Inner and outer loss of every run, at the best of 30 looks; those of one shape and dropout are one matrix."""
    torch.backends.mha.set_fastpath_enabled(False)  # fused kernels know no vmap
    torch.manual_seed(0)
    kinds: dict[tuple[Plain, float], list[Run]] = {}
    for run in runs:
        kinds.setdefault((run[0], run[2].dropout), []).append(run)
    groups = [_Together(folds, some, steps, device) for some in kinds.values()]
    with sdpa_kernel(SDPBackend.MATH):
        _side_by_side(groups, device, graphs)
    return {run: level for one in groups for run, level in zip(one.runs, one.levels, strict=True)}


def search_plain(
    shapes: Sequence[Plain], folds: Sequence[PlainFold], steps: int, device: str = "cpu", graphs: bool = False
) -> list[list[Levels]]:
    """For every shape and fold the losses of what the inner part prefers: a search, then two finals."""
    settings = [PlainSetting(lr, *regularisation) for lr, regularisation in product(RATES, KEPT)]
    places = list(product(shapes, range(len(folds))))
    runs = [(*place, one) for place in places for one in settings]
    tried = train_plain(folds, runs, max(10, steps // SHORT), device, graphs)
    ranked = {place: sorted(((*place, one) for one in settings), key=lambda run: _rank(tried[run])) for place in places}
    finals = train_plain(folds, [run for some in ranked.values() for run in some[:FINALISTS]], steps, device, graphs)
    every = [*tried.items(), *finals.items()]
    return [
        [min((loss for run, loss in every if run[:2] == (shape, fold)), key=_rank) for fold in range(len(folds))]
        for shape in shapes
    ]


def _rank(losses: Levels) -> float:
    return losses[0] if math.isfinite(losses[0]) else math.inf


def main() -> None:
    """Exit 0 where a graph of the step gives the losses that the step itself gives."""
    torch.manual_seed(0)
    sizes = Plain(3, 0, 10, 4, True, 2, 2)
    x, absent, y = torch.randn(200, 10, 3), torch.arange(10) >= torch.randint(3, 11, (200, 1)), torch.rand(200, 4)
    part = x, absent, y / y.sum(dim=1, keepdim=True)
    runs = [(sizes, 0, PlainSetting(lr, 0.0, 0.01)) for lr in RATES]
    one = PlainFold(part, part, part, torch.zeros(200, dtype=torch.long))
    ways = [train_plain([one], runs, 60, "cuda", graphs) for graphs in (False, True)]
    gap = max(abs(a - b) for run in runs for a, b in zip(ways[0][run][:2], ways[1][run][:2], strict=True))
    both = [*runs, (replace(sizes, heads=4), 0, PlainSetting(1e-3, 0.2, 0.1))]
    train_plain([one], both, 60, "cuda", graphs=True)
    print(f"losses by steps and by their graph differ by {gap:.2g}")
    raise SystemExit(0 if gap < 1e-3 else 1)


if __name__ == "__main__":
    main()
