"""How a model is called on embedded tokens, and which of its outputs is read: ours, Hugging Face's, any module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class EmbeddedModel:
    """A model in evaluation mode as a function of embedded tokens, and the one input that it is looked at with."""

    model: nn.Module
    x: Float[Tensor, "length embed"]
    call: Callable[[Tensor], Tensor]
    plain: Callable[[], Tensor]

    def __call__(self, rows: Float[Tensor, "rows length embed"]) -> Float[Tensor, "rows places width"]:
        out = self.call(rows)
        if out.dim() < 3:
            return out.reshape(len(rows), 1, -1)
        return out.flatten(2)


def subject_of(
    model: nn.Module,
    x: Tensor | Sequence[Any],
    *,
    at: Sequence[int] | None = None,
    attention_mask: Tensor | None = None,
) -> EmbeddedModel:
    """The model as a function of embedded tokens; every reason not to look at it is one line."""
    model = getattr(model, "_orig_mod", model)  # a compiled module keeps the one it was made of
    x = _rectangular(x)
    _refuse_model(model)
    if hasattr(model, "get_input_embeddings") and hasattr(model, "config"):
        return _pretrained(model, x, at, attention_mask)
    if not x.is_floating_point():
        raise ValueError("token ids need a model with input embeddings; give the embedded tokens of this one")
    tokens = _one(x, model)
    keep = {} if attention_mask is None else {"present": attention_mask.bool().reshape(1, -1)}

    def call(rows: Tensor) -> Tensor:
        arguments = {name: value.expand(len(rows), -1) for name, value in keep.items()}
        return _places(model(rows, **arguments), at)

    return EmbeddedModel(model, tokens, call, lambda: call(tokens[None]))


def _places(out: Tensor, at: Sequence[int] | None) -> Tensor:
    if at is None or out.dim() < 3:
        return out
    _refuse_places(at, out.shape[1])
    return out[:, list(at)]


def _refuse_places(at: Sequence[int], length: int) -> None:
    for place in at:
        if not -length <= place < length:
            raise ValueError(f"at must name places of the output, 0..{length - 1}, got {place}")


def _refuse_model(model: nn.Module) -> None:
    if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        raise ValueError("a scripted module hides its operations from the recorder; give the module it was made of")
    training = sum(part.training for part in model.modules() if isinstance(part, nn.Dropout) or part is model)
    if model.training or training:
        raise ValueError("the model is in training mode, so dropout would change it between passes; call model.eval()")
    half = next((p.dtype for p in model.parameters() if p.dtype in HALVES), None)
    if half is not None:
        raise ValueError(f"the weights are {str(half)[6:]}, too coarse for a certificate; call model.float()")


def _rectangular(x: Any) -> Tensor:
    """Tokens as one finite tensor, also from a list."""
    try:
        if isinstance(x, Tensor) and x.is_nested:
            raise TypeError
        x = x if isinstance(x, Tensor) else torch.tensor(x)
    except (TypeError, ValueError):
        raise ValueError("texts of several lengths do not make one tensor; give one text at a time") from None
    if not x.numel():
        raise ValueError("the text is empty: an operator needs at least one token")
    if x.is_floating_point() and not x.isfinite().all():
        raise ValueError("the tokens hold NaN or infinity")
    return x


def _one(x: Tensor, model: nn.Module) -> Tensor:
    x = x[0] if x.dim() == 3 and len(x) == 1 else x
    if x.dim() != 2:
        raise ValueError(
            f"give one text at a time: tokens of shape (length, embed_dim), got {tuple(x.shape)}; "
            "an image goes in as rows of numbers, through a module that gives them their shape again"
        )
    if x.dtype in HALVES:
        raise ValueError(f"the tokens are {str(x.dtype)[6:]}, too coarse for a certificate; give float32 or float64")
    like = next(model.parameters(), x)
    return x.detach().to(like.device)


def _pretrained(model: Any, x: Tensor, at: Sequence[int] | None, attention_mask: Tensor | None) -> EmbeddedModel:
    if getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "get_decoder"):
        raise ValueError("an encoder-decoder has two inputs; look at model.get_encoder() alone")
    takes = inspect.signature(model.forward).parameters
    if "inputs_embeds" not in takes:
        raise ValueError(f"{type(model).__name__} takes no inputs_embeds, so its tokens cannot be varied")
    _refuse_kernel(model)
    try:
        model.get_input_embeddings()
    except NotImplementedError:
        raise ValueError(
            f"{type(model).__name__} has no one table of embeddings, so its tokens are no vectors"
        ) from None
    ids = None if x.is_floating_point() else x.reshape(1, -1) if x.dim() == 1 else x
    if ids is not None:
        _refuse_ids(ids, model)
    elif x.shape[-1] != (width := model.get_input_embeddings().weight.shape[1]):
        raise ValueError(f"the model's embedded tokens have {width} numbers each, these have {x.shape[-1]}")
    with torch.no_grad():
        looked_up = x if ids is None else model.get_input_embeddings()(ids.to(_device(model)))
        if not isinstance(looked_up, Tensor):
            raise ValueError(f"{type(model).__name__} looks up more than a vector for each token, as quantised ones do")
        tokens = _one(looked_up, model)
    options: dict[str, object] = {"use_cache": False} if "use_cache" in takes or "kwargs" in takes else {}
    if "use_cache" not in takes and not hasattr(model.config, "use_cache"):
        options = {}
    heads = at is not None and "logits_to_keep" in takes
    if heads:
        _refuse_places(at or (), len(tokens))
        options["logits_to_keep"] = torch.tensor([i % len(tokens) for i in at or ()], device=tokens.device)
    mask = None if attention_mask is None else attention_mask.reshape(1, -1).to(tokens.device)

    def call(rows: Tensor | None) -> Tensor:
        args: dict[str, object] = {"inputs_embeds": rows} if rows is not None else {"input_ids": ids.to(tokens.device)}  # pyright: ignore[reportOptionalMemberAccess]
        if mask is not None:
            args["attention_mask"] = mask.expand(1 if rows is None else len(rows), -1)
        out = model(**args, **options, return_dict=True)
        logits = getattr(out, "logits", None)
        read = logits if logits is not None else getattr(out, "last_hidden_state", None)
        if not isinstance(read, Tensor):
            raise ValueError(
                f"{type(model).__name__} gives no tensor of logits or states, so there is nothing to split"
            )
        return read if heads else _places(read, at)

    return EmbeddedModel(model, tokens, call, lambda: call(None if ids is not None else tokens[None]))


def _refuse_kernel(model: Any) -> None:
    kernel = getattr(model.config, "_attn_implementation", None)
    if kernel not in (None, "eager", "sdpa"):
        raise ValueError(f"{kernel} keeps its attention weights to itself; call model.set_attn_implementation('sdpa')")


def _refuse_ids(ids: Tensor, model: Any) -> None:
    known, most = len(model.get_input_embeddings().weight), getattr(model.config, "max_position_embeddings", None)
    if len(ids) != 1:
        raise ValueError(f"give one text at a time: token ids of shape (length,), got {tuple(ids.shape)}")
    if not 0 <= int(ids.min()) <= int(ids.max()) < known:
        raise ValueError(f"token ids must lie in 0..{known - 1}, got {int(ids.min())} to {int(ids.max())}")
    if most and ids.shape[1] > most:
        raise ValueError(f"the text has {ids.shape[1]} tokens and the model takes at most {most}; cut the text")


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
