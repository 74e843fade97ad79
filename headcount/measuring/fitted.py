"""A model at the end: the best network with its scaling, names and classes, in one file and in the user's units."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from headcount.files import whole
from headcount.frozen import decode
from headcount.measuring.planning import StudyPlan
from headcount.measuring.preparing import Scaling, scaling
from headcount.measuring.sequences import padded
from headcount.measuring.subject import Subject
from headcount.nets import Architecture, Transformer
from headcount.nets.exporting import traced, write_program
from headcount.nets.saved import filled, tensors_in
from headcount.refusals import at_least_one

__all__ = ["FittedModel", "fit", "load"]

KEY = "headcount model"


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained network that takes sequences in the user's units and answers in them, or with names of classes.

    `length` is that of the longest sequence it was trained on; `window` is set where it was trained on windows.
    """

    net: Transformer
    scale: Scaling
    length: int
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    window: int | None = None

    def predict(self, x: Any) -> np.ndarray:
        """The answer for each sequence: a number, a row of numbers, or the name of a class."""
        raw = self.raw(x)
        if self.classes:
            return np.array(self.classes)[raw.argmax(axis=1)]
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def predict_proba(self, x: Any) -> np.ndarray:
        """The share that the network gives each class."""
        if not self.classes:
            raise ValueError("this model predicts numbers, not classes: it has no probabilities")
        return torch.softmax(torch.as_tensor(self.raw(x)), dim=1).numpy()

    @torch.no_grad()
    def raw(self, x: Any) -> np.ndarray:
        """Numbers in the target's units, or logits: (samples, outputs). Sequences of one length go together."""
        tokens, lengths = padded(x)
        if tokens.shape[2] != self.net.token_dim:
            raise ValueError(f"the model takes {self.net.token_dim} features per token, x has {tokens.shape[2]}")
        whole_net = InUnits(replace(self, net=deepcopy(self.net))).double()  # the same alone as among others
        out = np.zeros((len(tokens), self.net.arch.outputs))
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            for part in np.array_split(rows, -(-len(rows) // 1000)):
                out[part] = whole_net(torch.as_tensor(tokens[part, :length]).double()).numpy()
        return out

    def save(self, path: str | Path) -> Path:
        """Write weights and, as JSON in the metadata, all the rest to one safetensors file; whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "architecture": self.net.arch.to_json(),
            "token_dim": self.net.token_dim,
            "scale": asdict(self.scale),
            "length": self.length,
            "classes": self.classes,
            "features": self.features,
            "window": self.window,
        }
        with whole(path) as scratch:
            weights = {name: p.contiguous() for name, p in self.net.state_dict().items()}
            save_file(weights, scratch, {KEY: json.dumps(about)})
        return path

    def export(self, path: str | Path) -> Path:
        """Write ONNX: x (batch, length, token_dim) in the user's units to numbers in them, or to logits of classes."""
        path = Path(path)
        if path.suffix != ".onnx":
            raise ValueError(f"export writes .onnx, got {path.name!r}")
        example = torch.zeros(2, self.length, self.net.token_dim)
        program = traced(InUnits(self).eval(), (example,), {"x": {0: torch.export.Dim("batch")}})
        write_program(program, path, {"classes": self.classes, "features": self.features})
        return path


class InUnits(nn.Module):
    """The network between its two scalings."""

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        self.net = model.net
        for name, values in asdict(model.scale).items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        out = self.net((x - self.get_buffer("x_mean")) * self.get_buffer("x_factor"))
        return out.reshape(x.shape[0], -1) * self.get_buffer("y_spread") + self.get_buffer("y_mean")


def fit(subject: Subject, plan: StudyPlan, heads: int, *, window: int | None = None) -> FittedModel:
    """Train the plan's seeds at one head count and keep the best on the validation part.

    >>> from headcount.measuring.sequences import sequences
    >>> x = 100 + np.random.default_rng(0).standard_normal((300, 4, 1))
    >>> subject = Subject.of(sequences(x, x.max(axis=(1, 2))), 0, "cpu")
    >>> model = fit(subject, StudyPlan(seeds=2, steps=300, width=8, positions=0), heads=1)
    >>> bool(abs(model.predict([[[100.0], [101.0]]])[0] - 101) < 0.5)
    True
    """
    outcome = subject.train(subject.members(plan, heads), subject.recipe(plan))
    losses = [np.inf if row["nmse"] is None else row["nmse"] for row in outcome.rows]
    net, data = outcome.net(int(np.argmin(losses))).float().cpu(), subject.data
    return FittedModel(net, scaling(data, subject.split), data.x.shape[1], data.classes, data.features, window)


def load(path: str | Path) -> FittedModel:
    """The model that `FittedModel.save` wrote."""
    weights, about = tensors_in(path)
    if KEY not in about:
        raise ValueError(f"{path}: is no model; `headcount measure` writes one where it is told a `model`")
    said = decode(_SavedModel, json.loads(about[KEY]), f"the description in {path}")
    net = filled(path, Architecture.from_json(said.architecture), said.token_dim, weights)
    sizes = [len(values) for values in asdict(said.scale).values()]
    outputs = net.arch.outputs
    if sizes != [said.token_dim] * 2 + [outputs] * 2 or len(said.classes) not in (0, outputs):
        raise ValueError(f"{path}: the scaling does not fit the architecture that the file describes")
    return FittedModel(net, said.scale, said.length, said.classes, said.features, said.window)


@dataclass(frozen=True)
class _SavedModel:
    """What a file says of its model, beside the weights."""

    architecture: str
    token_dim: int
    scale: Scaling
    length: int
    classes: tuple[Any, ...]
    features: tuple[str, ...]
    window: int | None

    def __post_init__(self) -> None:
        at_least_one(token_dim=self.token_dim, length=self.length)
