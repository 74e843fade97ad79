"""How a bank's gradient is computed: a backend as a value, what it is checked against, and how a step is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.optimiser import AdamW

Step = Callable[[], None]
Pack = Callable[[Tensor], Tensor | None]


class NotCompiledError(RuntimeError):
    """A compiler gave up, or a device cannot hold what it made."""


@runtime_checkable
class Problem(Protocol):
    """What a bank computes on a batch, what it loses, and how it is scored.

    `output` is the fast form by batched products, `reference` the plain one, layer by layer, against which backends are
    checked. A member's loss is the mean of its `losses` over their parts; `score` gives what an evaluation adds up.
    """

    def output(self, bank: Any, p: Stacked, batch: Any) -> Tensor: ...
    def reference(self, bank: Any, p: Stacked, batch: Any) -> Tensor: ...
    def losses(self, output: Tensor, batch: Any) -> Float[Tensor, "models parts"]: ...
    def score(self, output: Tensor, batch: Any) -> dict[str, Float[Tensor, "models parts"]]: ...


Holds = Callable[[Problem, Any, Any], bool]
Gradient = Callable[[Problem, Any, Any], Tensor]
Forward = Callable[[Problem, Any, Stacked, Any], Tensor]
Update = Callable[[AdamW, Tensor, Tensor, Tensor], None]
Record = Callable[[Step, Sequence[Tensor]], Step]


def as_it_lies(data: Tensor) -> None:
    """No second copy of the data: a backend that reads them as they are."""


def as_it_is(step: Step, state: Sequence[Tensor]) -> Step:
    """Do not record: run the step as it is."""
    return step


def graph(step: Step, state: Sequence[Tensor]) -> Step:
    """Record the step once as a CUDA graph and replay it.

    Warming up and recording run the step, which changes `state`; it is put back, so that replay 1 is step 1.
    """
    snapshots = [t.detach().clone() for t in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):
        step()
    for t, before in zip(state, snapshots, strict=True):
        t.detach().copy_(before)

    def again() -> None:
        recording.replay()

    again.keeps = (step, state)  # pyright: ignore[reportFunctionMemberAccess] # it reads their tensors where they lie
    return again


def by_output(problem: Problem, bank: Bank, p: Stacked, batch: Any) -> Tensor:
    """The problem's own fast form."""
    return problem.output(bank, p, batch)


def by_differentiation(forward: Forward = by_output) -> Gradient:
    """The gradient of every member's mean loss by automatic differentiation of `forward`."""

    def gradient(problem: Problem, bank: Bank, batch: Any) -> Tensor:
        theta = bank.theta.detach().requires_grad_()
        with torch.enable_grad():
            losses = problem.losses(forward(problem, bank, bank.named(theta), batch), batch)
            (out,) = torch.autograd.grad(losses.mean(dim=1).sum(), theta)
        return out

    return gradient


by_products = by_differentiation()


def everything(problem: Problem, bank: Bank, batch: Any) -> bool:
    """Any bank."""
    return True


def exact(bank: Bank) -> float:
    """No check: it is computed by the problem's own words."""
    return 0.0


@dataclass(frozen=True)
class Backend:
    """A way to compute a bank and to repeat its step; every backend computes the same numbers up to rounding.

    `holds` says whether it can compute a problem, bank and batch; `gradient` is the gradient of each member's mean loss
    (models, parameters), `forward` the output, `update` moves the parameters, `record` makes a step repeatable, `pack`
    prepares resident data. `tolerance` of a bank is how far a member's gradient may be from the reference, relative to
    its norm, by rounding alone (0: not checked). It is worth its start from `long` steps on.
    """

    name: str
    holds: Holds = everything
    gradient: Gradient = by_products
    forward: Forward = by_output
    update: Update = AdamW.update
    record: Record = as_it_is
    pack: Pack = as_it_lies
    tolerance: Callable[[Any], float] = exact
    long: int = 0


def rounding(bank: Bank) -> float:
    """How far float16 factors may take a member's gradient: 16 roundings for every layer and for the read-out."""
    return 16 * torch.finfo(torch.float16).eps * (bank.depth + 1)


@contextmanager
def tf32() -> Iterator[None]:
    """Batched products on a GPU in TF32."""
    was = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = was


def complaint(backend: Backend, problem: Problem, bank: Bank, batch: Any) -> str | None:
    """Why a backend cannot be taken: it does not compile or fit here, or some gradient is off by more than rounding."""
    tolerance = backend.tolerance(bank)
    if not tolerance:
        return None
    try:
        backend.gradient(problem, bank, batch)  # as large as every step will be: does it compile, does it fit
        with torch.no_grad():
            backend.forward(problem, bank, bank.named(), batch)
        gaps = member_gaps(backend, problem, bank, batch.few(bank))
    except torch.OutOfMemoryError:
        if not bank.theta.is_cuda:
            raise
        torch.cuda.empty_cache()
        return "it does not fit the device's memory"
    except Exception as error:
        if not _not_compiled(error):
            raise
        return f"it cannot run here ({str(error).strip().splitlines()[0][:100]})"
    if bool((gaps <= tolerance).all()):
        return None
    worst = int(gaps.nan_to_num(nan=torch.inf).argmax())
    return f"the gradient of {bank.nets[worst].name} is off by {gaps[worst].item():.1e}, {tolerance:.1e} is rounding"


def member_gaps(backend: Backend, problem: Problem, bank: Bank, pieces: Sequence[Any]) -> Float[Tensor, " models"]:
    """|g - g*| / |g*| for each member, g* the reference's; 0 for members whose reference is not finite.

    Both are means over pieces of one size: by a single sample, a member that happens to be right there has hardly a
    gradient, and any rounding is many times as large.
    """

    def mean_gradient(by: Backend) -> Tensor:
        total = torch.zeros_like(bank.theta)
        for piece in pieces:
            total += by.gradient(problem, bank, piece)
        return total / len(pieces)

    true = mean_gradient(reference)
    gap, size = (mean_gradient(backend) - true).norm(dim=1), true.norm(dim=1)
    return torch.where(size.isfinite(), gap / size.clamp(min=1e-20), 0.0)


def _not_compiled(error: Exception) -> bool:
    """Whether it is a compiler that gave up: by an error of its own, or in one of its passes, which says no more."""
    if isinstance(error, NotCompiledError) or (isinstance(error, RuntimeError) and "PassManager" in str(error)):
        return True
    try:
        from triton.errors import TritonError
    except ImportError:
        return False
    return isinstance(error, TritonError)


def _plainly(problem: Problem, bank: Bank, p: Stacked, batch: Any) -> Tensor:
    return problem.reference(bank, p, batch)


reference = Backend("plain", gradient=by_differentiation(_plainly), forward=_plainly)
eager = Backend("products")
recorded = Backend("products, CUDA graph", record=graph)
