"""A model of others as an ONNX program: token ids and which of them are there, in; logits or last states, out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.nets.exporting import traced, write_program
from headcount.nets.pretrained.batches import predicts_tokens
from headcount.nets.pretrained.families import family_of


class _Program(nn.Module):
    """The model without its cache, and with a mask that is built from tensors alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model
        self.causal, self.has_logits = family_of(model).causal, predicts_tokens(type(model).__name__)

    def forward(self, input_ids: Int[Tensor, "batch length"], attention_mask: Int[Tensor, "batch length"]) -> Tensor:
        places = torch.arange(input_ids.shape[1])
        visible = (attention_mask > 0)[:, None, None, :]
        if self.causal:
            visible = visible & (places[None, :] <= places[:, None])
        allowed = torch.zeros((), dtype=self.model.dtype)
        mask = torch.where(visible, allowed, torch.finfo(self.model.dtype).min)
        if not self.causal:
            mask = mask.expand(-1, -1, input_ids.shape[1], -1)
        more = {"use_cache": False} if self.causal else {}
        out = self.model(input_ids=input_ids, attention_mask=mask, **more)
        return out.logits if self.has_logits else out.last_hidden_state


def write_onnx(model: nn.Module, path: Path, facts: dict[str, str]) -> Path:
    """Write a stock or a cut model as one .onnx file; batch and length are free."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", 512)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", min=2, max=most)
    ids = torch.arange(14).view(2, 7) % 7
    shapes = ({0: batch, 1: length}, {0: batch, 1: length})
    with torch.no_grad():
        program = traced(_Program(model).eval(), (ids, torch.ones_like(ids)), shapes)
        write_program(program, path, facts)
    return path
