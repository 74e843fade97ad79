"""The options that name one head of a trained model, and the texts it is looked at with."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["HeadNumber", "LayerNumber", "ModelName", "Texts"]

ModelName = Annotated[str, typer.Option("--model", help="A folder, a package or a hub name of a trained model.")]
LayerNumber = Annotated[int, typer.Option("--layer", help="With --model: its layer, from 1.")]
HeadNumber = Annotated[int, typer.Option("--head", help="With --model: the head of that layer, from 1.")]
Texts = Annotated[list[str] | None, typer.Option("--text", help="With --model: a text to look at; may be given often.")]
