"""A model at the end: a network with its scaling, names and classes, in one file and in the user's units."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save as tensor_bytes
from torch import Tensor, nn

from headcount.files import atomic_write
from headcount.frozen import decode
from headcount.measuring.preparing import Scaling, scaled
from headcount.measuring.searching import outputs_on
from headcount.measuring.sequences import padded, padded_letters
from headcount.nets.exporting import traced, write_program
from headcount.nets.saved import tensors_in
from headcount.nets.standard import Encoder, EncoderShape
from headcount.notebook import html_table
from headcount.training.given import Part

KEY = "headcount model"


@dataclass(frozen=True, eq=False, repr=False)
class FittedModel:
    """A trained encoder that takes sequences in the user's units and answers in them, or with labels of classes.

    Labels keep the type they were given in. `letters` are those of a table of ids; `window` is set where it was
    trained on windows of a series, `text` where on a column of texts, cut by characters or words.
    """

    net: Encoder
    scale: Scaling
    classes: tuple[Any, ...] = ()
    features: tuple[str, ...] = ()
    letters: tuple[Any, ...] = ()
    window: int | None = None
    text: str = ""

    def __repr__(self) -> str:
        shape, answer = self.net.shape, f"{len(self.classes)} classes" if self.classes else "numbers"
        return f"<FittedModel {shape.name} of {shape.parameters:,} parameters: up to {self.length} tokens to {answer}>"

    def _repr_html_(self) -> str:
        shape = self.net.shape
        each = f"{len(self.letters)} letters" if self.letters else f"{self.token_dim} features each"
        takes = f"up to {self.length} tokens, {each}"
        facts = {"layers": shape.name, "parameters": shape.parameters, "takes": takes}
        facts["answers"] = ", ".join(map(str, self.classes[:20])) if self.classes else "numbers"
        return html_table(["model", ""], facts.items())

    @property
    def length(self) -> int:
        """Tokens of the longest sequence it can read."""
        return self.net.shape.positions

    @property
    def token_dim(self) -> int:
        """Features of a token in the user's units; none of a letter."""
        return len(self.scale.x_mean[0]) if self.scale.x_mean else 0

    def predict(self, x: Any) -> np.ndarray:
        """The answer for each sequence: a number, a row of numbers, or the label of a class."""
        raw = self.raw(x)
        if self.classes:
            return np.array(self.classes)[raw.argmax(axis=1)]
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def predict_proba(self, x: Any) -> np.ndarray:
        """The share that the network gives each class, in the order of `classes`."""
        if not self.classes:
            raise ValueError("this model predicts numbers, not classes: it has no probabilities")
        return torch.softmax(torch.as_tensor(self.raw(x)), dim=1).numpy()

    def raw(self, x: Any) -> Float[np.ndarray, "samples outputs"]:
        """Numbers in the target's units, or logits."""
        part = self.read(x)
        out = outputs_on(deepcopy(self.net).double(), part)  # in float64: the same alone as among others
        return out * np.array(self.scale.y_spread) + np.array(self.scale.y_mean)

    def read(self, x: Any) -> Part:
        """Sequences as the network reads them."""
        if self.letters:
            ids, lengths, _ = padded_letters(x, letters=self.letters)
            part = Part(ids, lengths, np.zeros(len(ids)))
        else:
            tokens, lengths = padded(x)
            if tokens.shape[2] != self.token_dim:
                raise ValueError(f"the model takes {self.token_dim} features per token, x has {tokens.shape[2]}")
            part = Part(scaled(tokens, lengths, self.scale), lengths, np.zeros(len(tokens)))
        self.net.shape.refuse_longer(part.x.shape[1])
        return part

    def save(self, path: str | Path) -> Path:
        """Write weights and, as JSON in the metadata, all the rest to one safetensors file; whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "shape": asdict(self.net.shape),
            "scale": asdict(self.scale),
            "classes": self.classes,
            "features": self.features,
            "letters": self.letters,
            "window": self.window,
            "text": self.text,
        }
        with atomic_write(path) as scratch:
            weights = {name: p.contiguous() for name, p in self.net.state_dict().items()}
            scratch.write_bytes(tensor_bytes(weights, {KEY: json.dumps(about)}))  # as open to others as the folder says
        return path

    def export(self, path: str | Path) -> Path:
        """Write ONNX, or a program of torch that needs no headcount (`torch.export.load(path).module()`).

        Both take x (batch, length, token_dim) in the user's units, or ids, to numbers in them, or to logits.
        """
        path = Path(path)
        if path.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"export writes .onnx or .pt2, got {path.name!r}")
        example = (
            torch.zeros(2, self.length, dtype=torch.int64)
            if self.letters
            else torch.zeros(2, self.length, self.token_dim, dtype=torch.float64)
        )
        program = traced(InUnits(self).eval(), (example,), {"x": {0: torch.export.Dim("batch")}})
        write_program(program, path, {"classes": self.classes, "features": self.features, "letters": self.letters})
        return path


class InUnits(nn.Module):
    """The network between its two scalings; units are taken off in float64."""

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        self.net, self.letters, self.missing = model.net, bool(model.letters), list(model.scale.missing)
        scale = model.scale
        for name in ("x_mean", "x_factor", "y_spread", "y_mean"):
            self.register_buffer(name, torch.tensor(getattr(scale, name), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x if self.letters else self._scaled(x)
        out = self.net(tokens).reshape(x.shape[0], -1).double()
        return out * self.get_buffer("y_spread") + self.get_buffer("y_mean")

    def _scaled(self, x: Tensor) -> Tensor:
        values = (x - self.get_buffer("x_mean")) * self.get_buffer("x_factor")
        missing = torch.isnan(values)
        indicators = [missing[:, :, k : k + 1].to(values.dtype) for k in self.missing]
        filled = torch.where(missing, torch.zeros_like(values), values)
        return torch.cat([filled, *indicators], dim=2).float()


def load(path: str | Path) -> FittedModel:
    """The model that `FittedModel.save` wrote."""
    weights, about = tensors_in(path)
    if KEY not in about:
        raise ValueError(f"{path}: is no model; `headcount measure` writes one where it is told a `model`")
    saved = decode(_SavedModel, json.loads(about[KEY]), f"the description in {path}")
    net = saved.shape.module()
    own = {name: tuple(p.shape) for name, p in net.state_dict().items()}
    if own != {name: tuple(p.shape) for name, p in weights.items()}:
        raise ValueError(f"{path}: the weights do not fit the shape that the file describes")
    net.load_state_dict(weights)
    outputs, scale = saved.shape.outputs, saved.scale
    sizes = (scale.features, len(scale.y_mean), len(scale.y_spread))
    if sizes != (saved.shape.token_dim, outputs, outputs) or len(saved.classes) not in (0, outputs):
        raise ValueError(f"{path}: the scaling does not fit the shape that the file describes")
    return FittedModel(net.eval(), scale, saved.classes, saved.features, saved.letters, saved.window, saved.text)


@dataclass(frozen=True)
class _SavedModel:
    """What a file says of its model, beside the weights."""

    shape: EncoderShape
    scale: Scaling
    classes: tuple[Any, ...]
    features: tuple[str, ...]
    letters: tuple[Any, ...]
    window: int | None
    text: str = ""  # files of older versions do not say it
