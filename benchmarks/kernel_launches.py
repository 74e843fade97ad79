"""What one step launches, counted without a device: the step runs on tensors that have a shape and no numbers.

Our kernels are kept as `Launch` values (what to compile, on which grid), every other operation with the bytes it reads
and writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.problem import TOKEN_DIM, Size
from headcount.kernels import fused, parts, pool_launch, split_heads
from headcount.kernels.backend import Backend
from headcount.kernels.bank import Bank
from headcount.kernels.class_token import ClassToken
from headcount.kernels.optimiser import AdamW
from headcount.kernels.plain import Batch

OPTIONS = ("num_warps", "num_stages", "maxnreg")
VIEWS = (
    "view", "expand", "transpose", "t.", "slice", "select", "split", "unbind", "permute", "unsqueeze", "squeeze",
    "alias", "detach", "empty", "new_empty", "_unsafe_view", "as_strided", "reshape_alias", "diagonal", "unflatten",
    "lift",
)  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: its arguments by name, its grid and its options."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__


@dataclass(frozen=True)
class Operation:
    """Any other operation: its name and the bytes of its tensors."""

    name: str
    traffic: int


@dataclass
class Steps:
    """All that was launched, in order."""

    launches: list[Launch] = field(default_factory=list)
    others: list[Operation] = field(default_factory=list)


class Recorder:
    """Stands in for a kernel and keeps its launches."""

    def __init__(self, kernel: Any, steps: Steps) -> None:
        self.kernel, self.steps = kernel, steps

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        grid = grid if isinstance(grid, tuple) else (grid,)

        def launch(*positional: Any, **named: Any) -> None:
            options = {key: named.pop(key) for key in OPTIONS if key in named}
            arguments = dict(zip(self.kernel.arg_names, positional, strict=False)) | named
            self.steps.launches.append(Launch(self.kernel, grid, arguments, options))

        return launch


class _Counting(TorchDispatchMode):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.")
        if not name.startswith(VIEWS):
            flat = tree_leaves((args, kwargs, out))
            traffic = sum(x.numel() * x.element_size() for x in flat if isinstance(x, Tensor))
            self.steps.others.append(Operation(name, traffic))
        return out


@contextlib.contextmanager
def recording(*modules: Any) -> Iterator[Steps]:
    """Kernels that these modules launch are kept instead, and other operations counted."""
    from triton.runtime.jit import JITFunction

    steps, originals = Steps(), []
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, JITFunction) and not name.startswith("_"):
                originals.append((module, name, value))
                setattr(module, name, Recorder(value, steps))
    try:
        with _Counting(steps):
            yield steps
    finally:
        for module, name, value in originals:
            setattr(module, name, value)


def recorded_step(backend: Backend, size: Size) -> Steps:
    """Gradient and update of a bank of the race."""
    bank = Bank([size.net], [0])
    bank.nets = (size.net,) * size.models
    for name in ("theta", "scale", "heads"):
        setattr(bank, name, getattr(bank, name).expand(size.models, -1).contiguous().to("meta"))
    rows = torch.empty(size.models, size.batch, dtype=torch.int64, device="meta")
    data = torch.empty(1, size.samples, size.length, TOKEN_DIM + 1, device="meta")
    packed = pool_launch.packed(data) if backend.pack is fused.pack else None
    target = torch.empty(size.models, size.batch, device="meta")
    batch = Batch(data, torch.empty(size.models, dtype=torch.int64, device="meta"), rows, target, None, packed)
    rates = torch.empty(size.models, device="meta")
    adam = AdamW(bank.theta, rates, rates, 1000, 0.05)
    with recording(fused, pool_launch, split_heads, parts) as steps:
        gradient = backend.gradient(ClassToken(), bank, batch)
        backend.update(adam, bank.theta, gradient, torch.empty(size.models, dtype=torch.bool, device="meta"))
    return steps
