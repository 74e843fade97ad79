"""How a bank's gradient is computed: the list of backends in order of preference, and the one door to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from headcount.kernels.backend import Backend, Pack, Problem, complaint, eager, recorded
from headcount.kernels.bank import Bank


def backends(device: str) -> Iterator[Backend]:
    """Those for a kind of device, the fastest first; the last one holds every bank.

    >>> [backend.name for backend in backends("cpu")]
    ['cpp', 'cpp', 'cpp', 'products']
    """
    if device == "cuda":
        try:
            from headcount.kernels import fused, parts
            from headcount.kernels.cuda import class_network, decoder_network
        except ImportError as missing:
            print(f"headcount: no kernels without Triton ({missing}); {recorded.name} instead", file=sys.stderr)  # noqa: T201
        else:
            yield from (module.backend for module in (class_network, decoder_network, fused, parts))
        yield recorded
        return
    from headcount.kernels.cpp import compiled, compiled_decoders, compiled_encoders

    yield from (module.backend for module in (compiled, compiled_decoders, compiled_encoders))
    yield eager


def best(problem: Problem, bank: Bank, first: Callable[[Pack], Any], steps: int | None = None) -> Backend:
    """The first backend that holds the bank and whose gradient on the first batch is verified.

    `first` gives that batch with its data packed as a backend wants them. What takes a start of its own is left out for
    fewer `steps` than pay for it (None: it is not). So the choice depends on nothing that another run of the same bank
    might find otherwise. A line says of every backend that is left out by its check why, and what is taken instead.
    """
    doubts: dict[str, str] = {}
    for backend in backends(bank.theta.device.type):
        worth = steps is None or steps >= backend.long
        if not worth or not backend.holds(problem, bank, batch := first(backend.pack)):
            continue
        if (doubt := complaint(backend, problem, bank, batch)) is None:
            for name, why in doubts.items():
                print(f"headcount: {name}: {why}; {backend.name} instead", file=sys.stderr)  # noqa: T201
            return backend
        doubts[backend.name] = doubt
    raise AssertionError("the last backend holds every bank and is not checked")
