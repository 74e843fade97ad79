"""The gradient of a deeper bank in a few launches: the network forwards and backwards, written out.

Of a layer before the last, the tokens' attention with the class token's question, and the tokens' feed-forward, are a
kernel each; so is the last question. What the class token does by itself touches one row a sample: its heads are folded
into two square matrices each, and its feed-forward and the read-out go through the tokens' kernel with twice the bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.backend import Backend, Problem, graph, rounding, tf32
from headcount.kernels.bank import Bank
from headcount.kernels.class_token import ClassToken
from headcount.kernels.cuda.embedding import Embedding
from headcount.kernels.cuda.sublayers import Feeding, Folding, Rows, added, begins, mapped
from headcount.kernels.cuda.token_sublayers import TokenAttention, TokenFeeding
from headcount.kernels.fused import update, within_half
from headcount.kernels.loss import squared
from headcount.kernels.plain import Batch


@dataclass(frozen=True)
class _Network:
    """A bank's sublayers in order: the tokens' by CUDA programs, those of the class token alone as few rows."""

    encoder: TokenFeeding | Embedding
    attention: tuple[TokenAttention, ...]
    between: tuple[TokenFeeding, ...]
    own: tuple[Feeding, ...]  # the same feed-forwards, for the class token
    read_out: Feeding
    at_cls: int
    every: bool

    @property
    def feeding(self) -> tuple[TokenFeeding, ...]:
        """The tokens' feed-forwards, first to last."""
        return (self.encoder, *self.between) if isinstance(self.encoder, TokenFeeding) else self.between

    def programs(self, models: int, batch: int, longest: int) -> tuple[int, int]:
        """The most programs of a member that write a partial gradient: for the tokens, and for the class token."""
        rows = batch * longest
        counts = [a.parts(models, batch, longest, back=True) for a in self.attention[:-1]]
        counts += [f.parts(models, rows, back=True) for f in self.feeding]
        return max(counts), self.read_out.parts(models, batch, back=True)


def held(bank: Bank, batch: Batch) -> bool:
    """Whether programs can hold this bank's sublayers, and its lengths are those of members."""
    if bank.theta.dtype != torch.float32 or (batch.present is not None and batch.present.ndim > 2):
        return False
    if not bank.net.arch.residual and bank.net.arch.class_token != "last":
        return False
    network, longest = _network(bank, batch), batch.data.shape[2]
    heads = all(a.fits(longest) for a in network.attention)
    # The class token's folded matrices and its last question: 64 by 64, and 16 heads of 128 rows.
    return (
        heads and all(f.fits() for f in network.feeding) and all(f.cut(True) for f in (*network.own, network.read_out))
    )


def network_gradient(bank: Bank, batch: Batch, aside: bool = True) -> Float[Tensor, "models parameters"]:
    """The gradient of every member's mean squared gap on its batch, the class token's in a second stream."""
    theta, network = bank.theta.detach(), _network(bank, batch)
    in_place = isinstance(network.encoder, TokenFeeding) and network.encoder.source is not None
    x = _promised(batch) if in_place else batch.tokens().contiguous()
    models, samples, longest, _ = x.shape
    tokens, classes = network.programs(models, samples, longest)
    partials, filled = _partial_gradients(bank, tokens, classes, (samples, longest))
    lengths = None if batch.present is None else batch.present.sum(dim=1, dtype=torch.int32)
    rows = Rows(theta, partials, lengths)
    _Pass(network, rows, x, tokens, _SideStream(theta.device, aside)).run(batch.target)
    return added(partials, filled, 2.0 / samples)


def _partial_gradients(bank: Bank, tokens: int, classes: int, case: Hashable) -> tuple[Tensor, Tensor]:
    """The programs' partial gradients (models, programs, parameters), and which of them each parameter has.

    First come the tokens' programs, then what is folded, then the class token's. They are kept from step to step:
    what a program writes it writes again, in the same places, so that what none writes is zero for good.
    """
    key = (tokens, classes, case)
    if key not in bank.buffers:
        models, parameters = bank.theta.shape
        partials = bank.theta.new_zeros(models, tokens + 1 + classes, parameters)
        filled = [_filled(name, bank, tokens, tokens + 1 + classes) for name in bank.shapes]
        sizes = torch.tensor([shape.numel() for shape in bank.shapes.values()])
        columns = torch.tensor(filled, dtype=torch.int32).repeat_interleave(sizes, dim=0).T.contiguous()
        bank.buffers[key] = partials, columns.to(partials.device)
    return bank.buffers[key]


def _filled(name: str, bank: Bank, folded: int, end: int) -> tuple[int, int]:
    """The first partial gradient of a parameter and the one after its last; `folded` is that of what is folded."""
    if name == "cls" or name.startswith(f"attention.{bank.depth - 1}."):
        return folded, folded + 1
    if name.startswith("read_out."):
        return folded + 1, end
    return 0, end if name.startswith("between.") else folded + 1


def _promised(batch: Batch) -> Tensor:
    """The batch's tokens by their shape alone: who reads them finds them where they lie."""
    return torch.empty(*batch.rows.shape, *batch.data.shape[2:], device="meta")


class _SideStream:
    """Work of the class token that nothing waits for soon; where `used`, on a GPU in a stream of its own.

    It is begun where small work follows in the tokens' stream, not what fills the device. What passes from one stream
    to the other is kept until the pass ends: neither may take its memory before.
    """

    def __init__(self, device: torch.device, used: bool) -> None:
        self.stream = torch.cuda.Stream(device) if used and device.type == "cuda" else None
        self.kept: list[Tensor] = []

    @contextmanager
    def begun(self, *taken: Tensor) -> Iterator[None]:
        """Work that waits for all that was asked of the tokens' stream so far, `taken` among it."""
        if self.stream is None:
            yield
            return
        self.kept += taken
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    def done(self) -> None:
        """From here on the tokens' stream may use what the side stream made, which whoever uses it keeps."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


class _Pass:
    """One pass through the network and back, from slopes that lack the factor 2 / samples."""

    def __init__(self, network: _Network, rows: Rows, x: Tensor, tokens: int, side: _SideStream) -> None:
        self.network, self.rows, self.x, self.aside = network, rows, x, side
        self.folded, self.own = rows.share[:, tokens], rows.share[:, tokens + 1 :]
        last = network.attention[-1]
        self.cls = rows.theta[:, network.at_cls : network.at_cls + last.embed][:, None]

    def run(self, target: Tensor) -> None:
        network, rows, side = self.network, self.rows, self.aside
        with side.begun():
            folds = [_Folded(a, rows) for a in (network.attention if network.every else network.attention[-1:])]
            query = _ClassQuery(folds[0], self.cls.contiguous(), side)
        states, layers = network.encoder.forward(rows, self.x), []
        side.done()
        for number, feeding in enumerate(network.between):
            layer = _Layer(network.attention[number], feeding, network.own[number], query if network.every else None)
            layers.append(layer)
            states = layer.forward(rows, states, folds[number + 1] if network.every else None)
            query = layer.next or query
        attended = query.attending.question(rows, states, query.directions)
        answer = query.answered(attended).contiguous()
        out = network.read_out.forward(rows, answer)
        slope = (out[..., 0] - target)[..., None]
        d_answer = network.read_out.backward(rows, answer, slope, self.own)
        d_heard = query.heard_back(attended, d_answer)
        slope, d_directions = query.attending.question_back(rows, states, query.directions, d_heard)
        d_cls = query.asked_back(d_directions, self.folded)
        for layer in reversed(layers):
            slope, d_cls = layer.backward(rows, slope, d_cls, self.own, self.folded)
        with side.begun():
            at = network.at_cls
            self.folded[:, at : at + d_cls.shape[-1]] = d_cls[:, 0]  # the first question is the same for all samples
        network.encoder.backward(rows, self.x, slope, deeper=False)
        side.done()


class _Folded:
    """The class token's heads of one layer as matrices: a matter of the parameters alone."""

    def __init__(self, attending: TokenAttention, rows: Rows) -> None:
        self.attending, self.rows = attending, rows
        self.matrices = Folding(attending).forward(rows)


class _ClassQuery:
    """The class token's query in one layer: its directions, and the gradient back from what it attended to."""

    def __init__(self, folded: _Folded, cls: Tensor, side: _SideStream) -> None:
        self.attending, self.rows, self.cls, self.aside = folded.attending, folded.rows, cls, side
        attending, (self.asks, self.says) = folded.attending, folded.matrices
        projected = mapped(cls, self.asks, transposed=True)
        self.directions = projected.view(*cls.shape[:2], attending.heads, attending.embed)

    def answered(self, attended: Tensor) -> Tensor:
        """The class token with what its heads attended to."""
        return mapped(attended.flatten(2), self.says, base=self.cls)

    def heard_back(self, attended: Tensor, slope: Tensor) -> Tensor:
        """The pooled states' gradient from that of the updated class token; what else is made of that is kept."""
        with self.aside.begun(attended, slope):
            self.d_says = torch.bmm(attended.flatten(2).mT, slope)
            self.d_answers = added(slope)[:, None] if self._shared else slope
        return mapped(slope, self.says, transposed=True).view(attended.shape)

    def asked_back(self, d_directions: Tensor, partial: Tensor) -> Tensor:
        """dL/dcls from that of the directions, after `heard_back`; the heads' gradients into a partial one."""
        d_queries = d_directions.flatten(2)
        with self.aside.begun(d_queries, self.cls):
            d_queries = added(d_queries)[:, None] if self._shared else d_queries
            self._folded_back(d_queries, partial)
            if self._shared:  # nothing waits for it but the end
                return mapped(d_queries, self.asks, base=self.d_answers)
        return mapped(d_queries, self.asks, base=self.d_answers)

    def _folded_back(self, d_queries: Tensor, partial: Tensor) -> None:
        Folding(self.attending).backward(self.rows, torch.bmm(d_queries.mT, self.cls), self.d_says, partial)

    @property
    def _shared(self) -> bool:
        """Whether all samples of a member have the same query."""
        return self.cls.shape[1] == 1


class _Layer:
    """A layer before the last, with what its backward pass needs; `query` is the class token's, if it has one."""

    def __init__(
        self, attending: TokenAttention, feeding: TokenFeeding, own: Feeding, query: _ClassQuery | None
    ) -> None:
        self.attending, self.feeding, self.own, self.ask = attending, feeding, own, query
        self.next: _ClassQuery | None = None  # the class token's question in the layer after this one

    def forward(self, rows: Rows, states: Tensor, after: _Folded | None) -> Tensor:
        """The tokens after the layer; the class token's next query is by the heads of the layer `after`."""
        self.before = states
        directions = None if self.ask is None else self.ask.directions
        self.middle, attended = self.attending.forward(rows, states, directions)
        if self.ask is not None and attended is not None and after is not None:
            self.heard, self.answer = attended, self.ask.answered(attended).contiguous()
            cls = self.own.forward(rows, self.answer)
            self.next = _ClassQuery(after, cls, self.ask.aside)
        return self.feeding.forward(rows, self.middle)

    def backward(self, rows: Rows, slope: Tensor, d_cls: Tensor, own: Tensor, folded: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes of the states and the class token before the layer."""
        if self.ask is None:
            slope = self.feeding.backward(rows, self.middle, slope)
            return self.attending.backward(rows, self.before, slope, None, None)[0], d_cls
        d_answer = self.own.backward(rows, self.answer, d_cls.contiguous(), own)
        d_heard = self.ask.heard_back(self.heard, d_answer)
        slope = self.feeding.backward(rows, self.middle, slope)
        slope, d_directions = self.attending.backward(rows, self.before, slope, self.ask.directions, d_heard)
        assert d_directions is not None
        return slope, self.ask.asked_back(d_directions, folded)


def _network(bank: Bank, batch: Batch) -> _Network:
    at, shapes, arch = begins(bank.shapes), bank.shapes, bank.net.arch
    smooth, device, last = arch.activation == "gelu", bank.theta.device.type, bank.depth - 1

    def place(name: str) -> tuple[dict[str, int], int, int, int]:
        hidden, inputs = shapes[f"{name}.inner.weight"]
        parts = {"inner": "inner.weight", "bias": "inner.bias", "outer": "outer.weight", "shift": "outer.bias"}
        return (
            {short: at[f"{name}.{part}"] for short, part in parts.items()},
            inputs,
            hidden,
            shapes[f"{name}.outer.bias"][0],
        )

    def attending(layer: int) -> TokenAttention:
        heads, dim, embed = shapes[f"attention.{layer}.query"]
        where = {name: at[f"attention.{layer}.{name}"] for name in ("query", "key", "value", "output")}
        scale, counts = bank.scale.contiguous()[:, layer], bank.heads.contiguous()[:, layer]
        return TokenAttention(
            where, heads, dim, embed, (embed * dim, dim), scale, counts, device=device,
            ragged=batch.present is not None, asks=arch.class_token == "every", residual=arch.residual,
        )  # fmt: skip

    def entering() -> TokenFeeding | Embedding:
        if arch.embedding == "feed-forward":
            source = _read_in_place(batch)
            return TokenFeeding(*place("encoder"), False, smooth, device=device, deeper=False, source=source)
        outputs, inputs = shapes["encoder.weight"]
        return Embedding(at["encoder.weight"], at["encoder.bias"], inputs, outputs)

    between = [place(f"between.{layer}") for layer in range(last)]
    return _Network(
        entering(),
        tuple(attending(layer) for layer in range(bank.depth)),
        tuple(TokenFeeding(*where, arch.residual, smooth, device=device) for where in between),
        tuple(Feeding(*where, arch.residual, smooth) for where in between),
        Feeding(*place("read_out"), residual=False, gelu=True),
        at["cls"],
        arch.class_token == "every",
    )


def _read_in_place(batch: Batch) -> Batch | None:
    """The batch, if programs can gather its tokens themselves."""
    integral = batch.rows.dtype == batch.which.dtype == torch.int64
    plain = integral and batch.data.is_contiguous() and batch.rows.is_contiguous()
    return batch if plain and batch.data.dtype == torch.float32 else None


def _holds(problem: Problem, bank: Bank, batch: Any) -> bool:
    """Several layers, one output, squared gaps, on a GPU, within what the programs are written for."""
    if not isinstance(problem, ClassToken) or problem.loss is not squared or not bank.theta.is_cuda:
        return False
    return bank.depth > 1 and bank.net.arch.outputs == 1 and held(bank, batch)


def _gradient(problem: Problem, bank: Bank, batch: Batch) -> Tensor:
    with tf32():
        return network_gradient(bank, batch)


backend = Backend("cuda", _holds, _gradient, update=update, record=graph, pack=within_half, tolerance=rounding)
