"""A network with its promise: what a construction returns, kept in one file and exported to other runtimes."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from headcount.certificates.attack import Attempt, Check, Trial
from headcount.certificates.certificate import Certificate
from headcount.certificates.domains import Domain
from headcount.certificates.network import ClassTokenNet
from headcount.files import atomic_write, write_json
from headcount.frozen import checked, class_named, field_of, plain, rebuilt, short_name
from headcount.nets.exporting import traced, write_program
from headcount.notebook import AnswerInNotebook, within_columns
from headcount.numerals import counted
from headcount.tasks import Task


@dataclass(frozen=True, repr=False)
class Built(AnswerInNotebook):
    """A network built by a theorem, the task it solves, where, and the certificate of its error.

    `net` is called with (batch, length, token_dim) and gives (batch,). `attempts` are how `check` tries to break
    the certificate.
    """

    net: nn.Module
    task: Task
    certificate: Certificate
    domain: Domain
    attempts: tuple[Attempt, ...]

    def __post_init__(self) -> None:
        trial = Trial(self.net, self.task, self.domain, self.attempts)
        if isinstance(self.net, ClassTokenNet):
            self.net.with_certificate()
        object.__setattr__(self, "certificate", self.certificate.about(trial))

    def __repr__(self) -> str:
        return within_columns(f"<Built {self._words}: {self.certificate!r}>".replace("\n  ", " "))

    @property
    def rows(self) -> list[dict[str, object]]:
        """The terms of the promised error."""
        return self.certificate.rows

    @property
    def sentence(self) -> str:
        """The promise, with its domain and its conditions."""
        return str(self.certificate.claim(self._words))

    def files(self, out: Path, *, onnx: bool = False, **seen: Any) -> list[Path]:
        """The network, its certificate with what else was `seen`, and the network for other runtimes."""
        facts = {"certificate": self.certificate.to_json(), "claim": self.certificate.claim(self._words).to_json()}
        written = [self.save(out / "net.safetensors"), write_json(out / "certificate.json", facts | seen)]
        return [*written, self.export(out / "net.onnx")] if onnx else written

    @property
    def _words(self) -> str:
        """The network's kind and size, and its task."""
        size = sum(p.numel() for p in self.net.parameters())
        return f"{type(self.net).__name__} of {counted(size, 'parameter')} for {type(self.task).__name__}"

    @property
    def feedforward_parameters(self) -> int:
        """The paper's M: weights and biases of the feed-forwards, attention not counted."""
        return int(getattr(self.net, "feedforward_parameters"))  # noqa: B009

    def check(self, *, seed: int = 0) -> Check:
        """Try to break the certificate; the same as `certificate.check`."""
        return self.certificate.check(seed=seed)

    def save(self, path: str | Path) -> Path:
        """Write weights and, in the metadata, all the rest to one safetensors file; whole or not at all."""
        path = Path(path)
        weights = {k: v.contiguous() for k, v in self.net.state_dict().items()}
        with atomic_write(path) as scratch:
            save_file(weights, scratch, {"headcount": json.dumps(self._metadata())})
        return path

    def export(self, path: str | Path) -> Path:
        """Write the network for other runtimes: `.onnx`, or `.pt2` (a plain torch program). Any batch size.

        Certificate and domain travel as text, in the metadata `headcount` of either file.
        """
        path = Path(path)
        if path.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"export writes .onnx or .pt2, got {path.name!r}")
        example = self.domain.sample(2, generator=torch.Generator().manual_seed(0))
        program = traced(self.net.eval(), (example,), {"x": {0: torch.export.Dim("batch")}})
        write_program(program, path, self._promise())
        return path

    def _promise(self) -> dict[str, object]:
        return {"certificate": self.certificate.to_json(), "task": plain(self.task), "domain": plain(self.domain)}

    def _metadata(self) -> dict[str, object]:
        shape = getattr(self.net, "shape", None)
        if shape is None:
            raise ValueError(f"{type(self.net).__name__} has no `shape` to be rebuilt from, so it cannot be saved")
        return {
            **self._promise(),
            "attempts": [plain(a) for a in self.attempts],
            "net": {"is": short_name(type(self.net)), "shape": plain(shape)},
        }


def load(path: str | Path, *, task: Task | None = None) -> Built:
    """The `Built` that `save` wrote. A task that is not one of headcount's own must be given as `task`."""
    weights, data = _read(Path(path))
    net = _network(field_of(data, "net", str(path)))
    try:
        net.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(f"{path}: the weights do not fit the network that the file describes") from None
    solved: Task = task if task is not None else rebuilt(field_of(data, "task", str(path)), "the task", Task)
    certificate = Certificate.from_json(field_of(data, "certificate", str(path)))
    domain = rebuilt(field_of(data, "domain", str(path)), "the domain", Domain)
    attempts = checked(tuple[Attempt, ...], field_of(data, "attempts", str(path)), "attempts", str(path))
    return Built(net, solved, certificate, domain, attempts)


def _network(data: Any) -> nn.Module:
    """The untrained network that a file describes: a listed class, and the shape its constructor takes."""
    cls = class_named(field_of(data, "is", "the network"))
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise ValueError(f"the file names {data['is']!r} where a network should stand")
    shape = get_type_hints(cls.__init__)["shape"]
    return cls(checked(shape, field_of(data, "shape", "the network"), "shape", "the network"))


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("headcount")
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, struct.error):
        raise ValueError(f"{path}: not a safetensors file") from None
    if text is None:
        raise ValueError(f"{path}: holds weights but no certificate; `headcount build` writes both")
    try:
        return weights, json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path}: its certificate is not readable JSON: {problem}") from None
