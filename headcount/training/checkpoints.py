"""The state of a bank in training, kept by the clock and when the process is asked to end: it goes on bit for bit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch
from safetensors.torch import save_file
from torch import Tensor

from headcount.files import atomic_write
from headcount.nets.saved import tensors_in

EVERY = 600.0  # seconds between two checkpoints


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM), and the state of the bank is kept."""


@dataclass
class Termination:
    """Whether the process was asked to end."""

    came: bool = False


@dataclass(frozen=True, eq=False)
class BankState:
    """A bank after so many epochs: its tensors, and the way in which it is computed."""

    epochs: int
    way: str
    tensors: dict[str, Tensor]


@dataclass(eq=False)
class Checkpoint:
    """The file of one bank's state, written whole whenever `every` seconds have passed and when the end was asked for.

    >>> import tempfile, torch
    >>> file = Checkpoint(Path(tempfile.mkdtemp()) / "bank.safetensors", every=0)
    >>> file.due, file.read("address")
    (True, None)
    >>> file.write("address", BankState(3, "collapsed", {"theta": torch.ones(2)}))
    >>> kept = file.read("address")
    >>> kept.epochs, kept.way, kept.tensors["theta"].tolist(), file.read("that of another bank")
    (3, 'collapsed', [1.0, 1.0], None)
    """

    path: Path
    every: float = EVERY
    termination: Termination = field(default_factory=Termination)
    kept_at: float = field(default_factory=time.monotonic)

    @property
    def due(self) -> bool:
        """Whether the state should be written now."""
        return self.termination.came or time.monotonic() - self.kept_at >= self.every

    def write(self, content: str, state: BankState) -> None:
        """Keep the state of the bank whose address is `content`; end here if that was asked for."""
        about = {"content": content, "epochs": str(state.epochs), "way": state.way}
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
        with atomic_write(self.path) as scratch:
            save_file(tensors, scratch, {**about, "checksum": _checksum(about, tensors)})
        self.kept_at = time.monotonic()
        if self.termination.came:
            raise Terminated(f"the state after {state.epochs} epochs is kept in {self.path}")

    def read(self, content: str) -> BankState | None:
        """The state kept for the bank whose address is `content`; a file that says anything else counts as none.

        So does one that was changed since: its checksum tells, and the bank is trained from its beginning.
        """
        if not self.path.is_file():
            return None
        try:
            tensors, about = tensors_in(self.path)
        except ValueError:
            return None
        checksum = about.pop("checksum", None)
        if about.get("content") != content or checksum != _checksum(about, tensors):
            return None
        return BankState(int(about["epochs"]), about["way"], tensors)

    def remove(self) -> None:
        """Forget the state: its rows are kept."""
        self.path.unlink(missing_ok=True)


def _checksum(about: dict[str, str], tensors: dict[str, Tensor]) -> str:
    """What a state must hash to: what is said of it, and every tensor's name, type, shape and bytes."""
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextlib.contextmanager
def heeding_termination() -> Iterator[Termination]:
    """Note SIGTERM instead of dying of it; a second one ends the process at once."""
    termination = Termination()

    def note(number: int, frame: FrameType | None) -> None:
        if termination.came:
            raise Terminated
        termination.came = True

    try:
        before = signal.signal(signal.SIGTERM, note)
    except ValueError:  # not in the main thread
        yield termination
        return
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, before)
