"""Which way a bank is computed: plain, collapsed or in kernels, step by step or recorded, by device and shape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.training.backends.plain import Batch, Forward, collapsed, plain
from headcount.training.backends.tiles import LayerTile, SublayerTile
from headcount.training.bank import Bank
from headcount.training.data import Pack, as_it_lies
from headcount.training.loss import Loss, squared
from headcount.training.member import Member
from headcount.training.optimiser import AdamW

__all__ = [
    "LONG",
    "Path",
    "choose",
    "differentiated",
    "eager",
    "fused",
    "layered",
    "member_gaps",
    "not_compiled",
    "ordinary",
    "plainer",
    "proved",
    "recorded",
    "reference",
    "rounding",
    "sublayered",
    "warped",
    "where_it_compiles",
]

Step = Callable[[], None]
Record = Callable[[Step, Sequence[Tensor]], Step]
Gradient = Callable[[Bank, Batch, Tensor], Tensor]
Update = Callable[[AdamW, Tensor, Tensor, Tensor], None]
LONG = 1000  # steps: what a CPU must have to do before a compiler is called, which takes five seconds once


def _everywhere(bank: Bank, batch: Batch) -> bool:
    return True


@dataclass(frozen=True)
class Path:
    """A way to compute a bank and to repeat its step; every path computes the same numbers up to rounding.

    `gradient` is the gradient of each member's mean `loss`, `update` moves the parameters along it, `record` makes a
    step repeatable, `pack` prepares the resident data. `tolerance` is how far a member's gradient may be from the plain
    one, relative to its norm, by rounding alone (0: it is computed the plain way); `failed` says why the path gave way.
    `rivals` are other ways to the same gradient: which of them is fastest depends on the shape, and is measured, except
    against one that is `ahead` wherever it `holds` a bank.
    """

    name: str
    forward: Forward
    gradient: Gradient
    record: Record
    update: Update = AdamW.update
    pack: Pack = as_it_lies
    loss: Loss = squared
    tolerance: float = 0.0
    failed: list[str] = field(default_factory=list)
    rivals: tuple[Path, ...] = ()
    holds: Callable[[Bank, Batch], bool] = _everywhere
    ahead: bool = False

    @property
    def backend(self) -> str:
        """What computes the bank: this path, or the recorded one where this one gave way."""
        return recorded.name if self.failed else self.name


def differentiated(forward: Forward, loss: Loss = squared) -> Gradient:
    """The gradient of the loss by automatic differentiation of `forward`."""

    def gradient(bank: Bank, batch: Batch, target: Tensor) -> Tensor:
        theta = bank.theta.detach().requires_grad_()
        with torch.enable_grad():
            lost = loss(forward(bank, bank.named(theta), batch), target)
            (out,) = torch.autograd.grad(lost.mean(dim=1).sum(), theta)
        return out

    return gradient


def choose(members: Sequence[Member], device: torch.device | str, dtype: str = "float32", steps: int = 0) -> Path:
    """The fastest path for these members on this device: in kernels if it can be, else recorded, else step by step.

    On a CPU compiled, where a compiler is at hand and a training has `LONG` steps or more. That depends on nothing that
    another run of the same sweep might find otherwise: not on the bank, the threads, or what was compiled before.
    """
    if torch.device(device).type != "cuda":
        return (_compiled(dtype) if steps >= LONG else None) or eager
    arch = members[0].arch
    if arch.outputs > 1 or dtype != "float32" or (arch.depth == 1 and not arch.relu_encoder):
        return recorded
    try:
        ways = [fused()] if arch.depth == 1 else [warped(), sublayered(), layered()]
        first, *others = (where_it_compiles(replace(way, tolerance=rounding(arch.depth))) for way in ways)
        return replace(first, rivals=tuple(others))
    except ImportError as missing:
        print(f"headcount: no kernels without Triton ({missing}); {recorded.name} instead", file=sys.stderr)  # noqa: T201
        return recorded


def where_it_compiles(kernels: Path) -> Path:
    """The path, and the recorded one with a line from the first kernel on that this device cannot compile or hold."""
    failed: list[str] = []

    def either(fast: Callable[..., Any], slow: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if not failed:
                try:
                    return fast(*given)
                except Exception as error:
                    if not not_compiled(error):
                        raise
                    failed.append(str(error).strip().splitlines()[0][:100])
                    said = f"headcount: {kernels.name} cannot run here ({failed[0]}); {recorded.name} instead"
                    print(said, file=sys.stderr)  # noqa: T201
            return slow(*given)

        return call

    return replace(
        kernels,
        forward=either(kernels.forward, recorded.forward),
        gradient=either(kernels.gradient, recorded.gradient),
        update=either(kernels.update, recorded.update),
        failed=failed,
    )


def not_compiled(error: Exception) -> bool:
    """Whether it is the compiler that gave up: by an error of its own, or in one of its passes, which says no more."""
    from triton.errors import TritonError

    from headcount.training.backends.warp_programs import NotCompiledError

    return isinstance(error, (TritonError, NotCompiledError)) or (
        isinstance(error, RuntimeError) and "PassManager" in str(error)
    )


def rounding(layers: int) -> float:
    """How far float16 factors may take a member's gradient: 16 roundings for every layer and for the read-out."""
    return 16 * torch.finfo(torch.float16).eps * (layers + 1)


def proved(path: Path, bank: Bank, batch: Batch, target: Tensor) -> Path:
    """The fastest of the path and its rivals whose gradients on some samples of this batch are the plain ones.

    If none has them, the plainer one for any loss; a line for every way that is left out.
    """
    if not path.tolerance:
        return path
    ways: dict[str, tuple[Path, str | None]] = {}
    for way in (path, *path.rivals):
        if way.holds(bank, batch):
            ways[way.name] = (way, _complaint(way, bank, batch, target))
            if way.ahead and ways[way.name][1] is None and not way.failed:
                break
    right = [way for way, complaint in ways.values() if complaint is None]
    usable = [way for way in right if not way.failed] or right
    if len(usable) > 1 and bank.theta.is_cuda:
        usable.sort(key=lambda way: _seconds(way, bank, batch, target))
    taken = usable[0] if usable else plainer(bank.theta.device, path.loss)
    for name, (_, complaint) in ways.items():
        if complaint is not None:
            print(f"headcount: {name}: {complaint}; {taken.name} instead", file=sys.stderr)  # noqa: T201
    return taken


def _complaint(path: Path, bank: Bank, batch: Batch, target: Tensor) -> str | None:
    """Whose gradient is off and by how much, where it is more than rounding; or that there is no room for it."""
    try:
        path.gradient(bank, batch, target)  # as large as every step will be: does it compile, does it fit
    except torch.OutOfMemoryError:
        if not bank.theta.is_cuda:
            raise
        torch.cuda.empty_cache()
        return "it does not fit the device's memory"
    few = _few(bank, batch)
    present = batch.present
    if present is not None and present.ndim > 2:  # of every sample
        present = present[:, :few]
    part = Batch(batch.data, batch.which, batch.rows[:, :few].contiguous(), present, batch.packed)
    gaps = member_gaps(bank, part, target[:, :few].contiguous(), path)
    if path.failed or bool((gaps <= path.tolerance).all()):
        return None
    worst = int(gaps.nan_to_num(nan=torch.inf).argmax())
    return (
        f"the gradient of {bank.archs[worst].name} is off by {gaps[worst].item():.1e}, {path.tolerance:.1e} is rounding"
    )


def _seconds(path: Path, bank: Bank, batch: Batch, target: Tensor, times: int = 5) -> float:
    """What one gradient takes on a GPU, recorded as every step will be."""

    def step() -> None:
        path.gradient(bank, batch, target)

    again = path.record(step, ())
    again()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        again()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / times


def member_gaps(bank: Bank, batch: Batch, target: Tensor, path: Path) -> Float[Tensor, " models"]:
    """|g - g*| / |g*| for each member, g* the plain gradient; 0 for members whose plain gradient is not finite."""
    true = differentiated(plain, path.loss)(bank, batch, target)
    gap, size = (path.gradient(bank, batch, target) - true).norm(dim=1), true.norm(dim=1)
    return torch.where(size.isfinite(), gap / size.clamp(min=1e-20), 0.0)


def _few(bank: Bank, batch: Batch, numbers: int = 1 << 28) -> int:
    """So many samples that the plain bank's scores and states fit a gigabyte or so."""
    (models, samples), length = batch.rows.shape, batch.data.shape[2]
    heads, _, embed = max(bank.shapes[f"attention.{layer}.query"] for layer in range(bank.depth))
    each = models * bank.depth * length * (heads * length + 4 * embed + bank.shapes["read_out.inner.bias"][0])
    return max(1, min(samples, 32, numbers // each))


def ordinary(device: torch.device | str, loss: Loss) -> Path:
    """The fastest path for any loss, any number of outputs and lengths that differ within a batch."""
    fast = _compiled(loss=loss) if torch.device(device).type == "cpu" else None
    return fast or plainer(device, loss)


def _compiled(dtype: str = "float32", loss: Loss = squared) -> Path | None:
    from headcount.training.backends.compiled import compiled_path

    return compiled_path(dtype, loss)


def plainer(device: torch.device | str, loss: Loss) -> Path:
    """The collapsed bank by automatic differentiation: recorded on a GPU, as it is on a CPU."""
    base = recorded if torch.device(device).type == "cuda" else eager
    return base if loss is squared else replace(base, gradient=differentiated(base.forward, loss), loss=loss)


def layered(precision: str = "half", tile: LayerTile | None = None, at_once: bool = True) -> Path:
    """A bank of several layers in kernels, recorded: the attention of a layer `at_once` where it fits, or in parts.

    Trained with `precision` ("half", or "ieee" for float32 throughout), evaluated in float32.
    """
    from headcount.training.backends import fused as kernels
    from headcount.training.backends.layered import in_kernels

    slope = differentiated(partial(collapsed, touch=in_kernels(precision, tile, at_once)))

    def gradient(bank: Bank, batch: Batch, target: Tensor) -> Tensor:
        with _tf32(precision == "half"):
            return slope(bank, batch, target)

    name = f"layers in kernels ({precision}{'' if at_once else ', by parts'}), CUDA graph"
    return Path(name, collapsed, gradient, graph, kernels.update, kernels.within_half)


def sublayered(precision: str = "half", tile: SublayerTile | None = None) -> Path:
    """A bank of several layers with the whole pass written out in kernels; layer by layer where it does not fit them.

    Trained with `precision` ("half", or "ieee" for float32 throughout), evaluated in float32.
    """
    from headcount.training.backends import fused as kernels
    from headcount.training.backends.class_network import held, network_gradient

    tile, other = replace(tile or SublayerTile(), precision=precision), layered(precision)

    def gradient(bank: Bank, batch: Batch, target: Tensor) -> Tensor:
        if not held(bank, batch, tile):
            return other.gradient(bank, batch, target)
        with _tf32(precision == "half"):
            return network_gradient(bank, batch, target, tile)

    def holds(bank: Bank, batch: Batch) -> bool:
        return held(bank, batch, tile)

    name = f"sublayers in kernels ({precision}), CUDA graph"
    return Path(name, collapsed, gradient, graph, kernels.update, kernels.within_half, holds=holds)


def warped(tile: SublayerTile | None = None) -> Path:
    """A bank of several layers with the tokens' part as programs of warps in CUDA C++; `sublayered` where they cannot.

    Trained with float16 factors and float32 sums, evaluated in float32.
    """
    from headcount.training.backends import fused as kernels
    from headcount.training.backends.class_network import held, network_gradient

    tile, other = tile or SublayerTile(), sublayered(tile=tile)

    def gradient(bank: Bank, batch: Batch, target: Tensor) -> Tensor:
        if not held(bank, batch, tile, warps=True):
            return other.gradient(bank, batch, target)
        with _tf32(True):
            return network_gradient(bank, batch, target, tile, warps=True)

    def holds(bank: Bank, batch: Batch) -> bool:
        return held(bank, batch, tile, warps=True)

    name = f"warps (half{'' if tile.aside else ', one stream'}), CUDA graph"
    return Path(name, collapsed, gradient, graph, kernels.update, kernels.within_half, holds=holds, ahead=True)


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Batched products on a GPU in TF32, or not."""
    was = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = was


def fused(precision: str = "half") -> Path:
    """The collapsed bank in Triton kernels, recorded; trained with `precision`, evaluated with the finest."""
    from headcount.training.backends import fused as kernels
    from headcount.training.backends.tiles import Tile

    forward = partial(collapsed, pool=partial(kernels.pool, tile=Tile(precision="fine")))
    gradient = partial(kernels.gradient, tile=Tile(precision=precision))
    return Path(f"fused ({precision}), CUDA graph", forward, gradient, graph, kernels.update, kernels.pack)


def as_it_is(step: Step, state: Sequence[Tensor]) -> Step:
    """Do not record: run the step as it is."""
    return step


def graph(step: Step, state: Sequence[Tensor]) -> Step:
    """Record the step once as a CUDA graph and replay it.

    Warming up and recording run the step, which changes `state`; it is put back, so that replay 1 is step 1.
    """
    kept = [t.detach().clone() for t in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):
        step()
    for t, before in zip(state, kept, strict=True):
        t.detach().copy_(before)

    def again() -> None:
        recording.replay()

    again.keeps = (step, state)  # pyright: ignore[reportFunctionMemberAccess] # it reads their tensors where they lie
    return again


reference = Path("plain batched products", plain, differentiated(plain), as_it_is)
eager = Path("collapsed", collapsed, differentiated(collapsed), as_it_is)
recorded = Path("collapsed, CUDA graph", collapsed, differentiated(collapsed), graph)
