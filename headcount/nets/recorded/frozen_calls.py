"""What is not linear in the tokens, call by call, and how each is written as a linear map with a frozen factor.

Activations become z * ratio + phi(0), norms a frozen scale, softmax frozen weights, gates a frozen branch, choices
frozen indices; fused calls (attention, norms, gated units) are opened into their parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from headcount.nets.recorded.marks import is_live, mark, mark_of, tensors

SHAPES = (
    "size dim numel stride is_floating_point zeros_like ones_like empty_like full_like new_zeros new_ones new_full "
    "new_empty new_tensor rand_like randn_like element_size is_complex len data_ptr is_contiguous get_device "
    "ndimension repr format storage_offset requires_grad is_inference nelement register_hook"
)
SHAPES_ONLY = frozenset(SHAPES.split())
ACTIVATIONS = (
    "relu gelu silu tanh sigmoid erf softplus mish elu selu celu leaky_relu rrelu prelu hardswish hardsigmoid hardtanh "
    "relu6 softsign logsigmoid tanhshrink square abs clamp clamp_min clamp_max threshold hardshrink softshrink clip "
    "log1p expm1 arctan atan"
)
STEPS = "sign sgn round floor ceil trunc fix heaviside"  # autograd follows them, with slope 0
POOLS = [f"{kind}max_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)]
SCALES = "sqrt rsqrt reciprocal norm vector_norm linalg_norm linalg_vector_norm std"


@runtime_checkable
class FrozenPass(Protocol):
    """What a handler asks of the pass it is called in."""

    branch: str

    def take(self, make: Callable[[], Any], kind: str = "") -> Any: ...
    def site(self, kind: str, value: Tensor) -> None: ...


class TorchCall(NamedTuple):
    """A call of torch as a forward pass makes it, by its plain name."""

    name: str
    func: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def made(self) -> Any:
        """What the call returns."""
        return self.func(*self.args, **self.kwargs)

    def of(self, *args: Any) -> TorchCall:
        """The same call of other arguments."""
        return self._replace(args=args)

    def given(self, *names: str, **usual: Any) -> dict[str, Any]:
        """What follows the first argument, by its name, whether it was given by place or by name."""
        return {**usual, **dict(zip(names, self.args[1:], strict=False)), **self.kwargs}


Do = Callable[[FrozenPass, TorchCall], Any]


class Handler(NamedTuple):
    """When a call has to be frozen, and what is computed in its place."""

    when: Callable[[TorchCall], bool]
    do: Do


def ratio(phi: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """(phi(z) - phi(0)) / z with its limit phi'(0) at z = 0, and phi(0).

    >>> ratio(F.gelu, torch.tensor([0.0, 1.0]))[0]
    tensor([0.5000, 0.8413])
    """
    z = z.detach()
    with torch.enable_grad():
        zero = torch.zeros_like(z).requires_grad_()
        at_zero = phi(zero)
        slope = torch.autograd.grad(at_zero.sum(), zero)[0]
    start = at_zero.detach()
    return torch.where(z == 0, slope, (phi(z) - start) / torch.where(z == 0, 1, z)), start


def _activation(p: FrozenPass, call: TorchCall) -> Any:
    z, rest = call.args[0], call.args[1:]
    kwargs = {**call.kwargs, "inplace": False} if "inplace" in call.kwargs else call.kwargs
    phi = _out_of_place(call.func)
    factors: list[Tensor] = []
    kind = "power" if call.func.__name__.strip("_") == "pow" else "activation ratio"
    factor = p.take(lambda: factors.extend(ratio(lambda t: phi(t, *rest, **kwargs), z)) or factors[0], kind)
    start = p.take(lambda: factors[1] if factors[1].any() else None)
    out = z * factor if start is None else z * factor + start
    p.site("feed-forward", out)
    return mark(_in_place(call.func, z, out), "gate")


def _out_of_place(func: Callable[..., Any]) -> Callable[..., Any]:
    name = func.__name__
    if name.endswith("_") and not name.endswith("__"):
        return getattr(F, name[:-1], None) or getattr(torch, name[:-1])
    return func


def _in_place(func: Callable[..., Any], target: Tensor, out: Tensor) -> Tensor:
    name = func.__name__
    changes = (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name != "__invert__")
    return target.copy_(out) if changes else out


def _power(p: FrozenPass, call: TorchCall) -> Any:
    """A root below the line is a norm's scale; any other power is an activation."""
    return (_whole("norm scale") if call.args[1] < 0 or call.args[1] == 0.5 else _activation)(p, call)


def _whole(kind: str) -> Do:
    def freeze(p: FrozenPass, call: TorchCall) -> Any:
        x = call.args[0]
        frozen = p.take(call._replace(func=_out_of_place(call.func)).made, kind)
        alike = frozen.dim() == x.dim() > 0 and len(frozen) == 1
        return frozen.expand(len(x), *frozen.shape[1:]) if alike and len(x) > 1 else frozen

    return freeze


def _product(p: FrozenPass, call: TorchCall) -> Any:
    """The gate of a gated unit is frozen (or, where asked, the branch that it multiplies)."""
    one, other = call.args[:2]
    gate_first = mark_of(one) == "gate" or one is other
    first = p.take(lambda: gate_first == (p.branch == "gate"))
    kind = "square" if one is other else p.branch
    factor = p.take(lambda: one if first else other, kind)
    out = (other if first else one) * factor
    p.site("feed-forward", out)
    return mark(_in_place(call.func, one, out), "gate")


def _quotient(p: FrozenPass, call: TorchCall) -> Any:
    """What is divided by is a scale; an exponential over a sum of exponentials is a softmax."""
    above, below = call.args[:2]
    weights = p.take(lambda: mark_of(above) == "exp" or not is_live(above))
    if weights:
        kind = "softmax" if mark_of(above) == "exp" else "norm scale"
        return p.take(lambda: torch.div(above, below), kind)
    return _in_place(call.func, above, above / p.take(lambda: below, "norm scale"))


def _under_number(p: FrozenPass, call: TorchCall) -> Any:
    """A number over what depends on the tokens: a scale, or the gate 1 / (1 + exp(-z)) spelt out."""
    below, above = call.args[:2]
    return _whole("norm scale")(p, call._replace(func=lambda t: above / t, args=(below,)))


def _exponential(p: FrozenPass, call: TorchCall) -> Any:
    p.take(lambda: None)
    return mark(call.made(), "exp")


def _layer_norm(
    p: FrozenPass,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(dims, keepdim=True)
    return _scaled(p, centred, dims, eps, weight, bias)


def _rms_norm(
    p: FrozenPass, x: Tensor, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Tensor:
    small = torch.finfo(x.dtype).eps if eps is None else eps
    return _scaled(p, x, tuple(range(-len(normalized_shape), 0)), small, weight, None)


def _scaled(p: FrozenPass, x: Tensor, dims: tuple[int, ...], eps: float, weight: Any, bias: Any) -> Tensor:
    out = x * p.take(lambda: (x.square().mean(dims, keepdim=True) + eps).rsqrt(), "norm scale")
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _normalize(p: FrozenPass, call: TorchCall) -> Any:
    options = call.given("p", "dim", "eps", p=2.0, dim=1, eps=1e-12)
    x, dim = call.args[0], options["dim"]
    return x / p.take(lambda: x.norm(options["p"], dim, keepdim=True).clamp_min(options["eps"]), "norm scale")


def _glu(p: FrozenPass, x: Tensor, dim: int = -1) -> Tensor:
    value, gate = x.chunk(2, dim)
    out = value * p.take(lambda: torch.sigmoid(gate), "gate")
    p.site("feed-forward", out)
    return out


def _attention(
    p: FrozenPass,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention, its weights computed again from queries and keys; a row that sees nothing is 0."""
    q, k, v = query, key, value

    def each_head(t: Tensor) -> Tensor:
        return t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) if enable_gqa else t

    def weights() -> Tensor:
        scores = q @ each_head(k).mT * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
        if is_causal:
            scores = scores.masked_fill(~visible.tril(), -torch.inf)
        if attn_mask is not None:
            whether = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if whether else scores + attn_mask
        return torch.softmax(scores, dim=-1).nan_to_num(0.0)

    softmax_weights, v = p.take(weights, "softmax"), each_head(v)
    p.site("attention", v)
    return _mixed(softmax_weights, v)


def _mixed(weights: Tensor, v: Tensor) -> Tensor:
    """Weights times values; one row's weights serve all rows of values without being copied for each."""
    if weights.dim() == v.dim() == 4 and len(weights) == 1 < len(v) and weights.shape[1] == v.shape[1]:
        return torch.einsum("hij,rhjd->rhid", weights[0], v)
    return weights @ v


def _multi_head(p: FrozenPass, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The one call of `nn.MultiheadAttention`, opened; tokens first, as the module hands them over."""
    import inspect

    a = inspect.signature(F.multi_head_attention_forward).bind(*args, **kwargs)
    a.apply_defaults()
    o = a.arguments
    if o["bias_k"] is not None or o["add_zero_attn"] or o["static_k"] is not None or o["static_v"] is not None:
        raise ValueError("attention with bias_k, static keys or an added zero is not opened; use plain attention")
    query, key, value, heads = o["query"], o["key"], o["value"], o["num_heads"]
    batched = query.dim() == 3
    query, key, value = (t if batched else t.unsqueeze(1) for t in (query, key, value))
    if o["use_separate_proj_weight"]:
        maps = [o["q_proj_weight"], o["k_proj_weight"], o["v_proj_weight"]]
    else:
        maps = list(o["in_proj_weight"].chunk(3))
    biases = [None] * 3 if o["in_proj_bias"] is None else list(o["in_proj_bias"].chunk(3))
    q, k, v = (_split(F.linear(t, w, b), heads) for t, w, b in zip((query, key, value), maps, biases, strict=True))
    out = _attention(p, q, k, v, _masks(o, q), is_causal=o["is_causal"] and o["attn_mask"] is None)
    joined = out.permute(2, 0, 1, 3).flatten(2)
    result = F.linear(joined, o["out_proj_weight"], o["out_proj_bias"])
    return (result if batched else result.squeeze(1)), None


def _split(t: Tensor, heads: int) -> Tensor:
    """(length, batch, embed) into (batch, heads, length, head_dim)."""
    return t.unflatten(2, (heads, -1)).permute(1, 2, 0, 3)


def _masks(o: Mapping[str, Any], q: Tensor) -> Tensor | None:
    """The attention mask and the padding mask as one tensor that is added to the scores."""
    total = None
    if o["attn_mask"] is not None:
        mask = o["attn_mask"]
        total = _added(mask, q).unflatten(0, (-1, q.shape[1])) if mask.dim() == 3 else _added(mask, q)
    if o["key_padding_mask"] is not None:
        padding = _added(o["key_padding_mask"], q)
        padding = padding[:, None, None, :] if padding.dim() == 2 else padding
        total = padding if total is None else total + padding
    return total


def _added(mask: Tensor, q: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=q.dtype).masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else mask


def _chosen(p: FrozenPass, call: TorchCall) -> Any:
    """Top-k and sorting: the places are frozen, the values are read there."""
    top = call.func.__name__ == "topk"
    dim = call.given(*(("k", "dim") if top else ("dim", "descending")), dim=-1)["dim"]
    where = p.take(lambda: call.made().indices, "choices")
    kind = torch.return_types.topk if top else torch.return_types.sort
    return kind((_read_at(call.args[0], dim if dim is not None else -1, where), where))


def _read_at(x: Tensor, dim: int, where: Tensor) -> Tensor:
    """The values at frozen places; the places of one row serve all rows."""
    alike = where.dim() == x.dim() and len(where) == 1 < len(x) and dim % x.dim() != 0
    return x.gather(dim, where.expand(len(x), *where.shape[1:]) if alike else where)


def _extreme(p: FrozenPass, call: TorchCall) -> Any:
    """The larger or smaller of two: with one that is given an activation, of two that depend on the tokens a choice."""
    one, other = call.args[:2]
    if p.take(lambda: is_live(one) and is_live(other)):
        first = p.take(lambda: call.func(one, other) == one, "choices")
        return torch.where(first, one, other)
    if p.take(lambda: is_live(other)):
        one, other = other, one
    return _activation(p, call.of(one, other))


def _extreme_along(p: FrozenPass, call: TorchCall) -> Any:
    """The largest along an axis: its place is frozen, the value is read there."""
    if len(call.args) > 1 and isinstance(call.args[1], Tensor):
        return _extreme(p, call)
    x, options = call.args[0], call.given("dim", "keepdim", keepdim=False)
    where = p.take(lambda: call.func(x, options["dim"], keepdim=True).indices, "choices")
    pair = _read_at(x, options["dim"], where), where
    kind = torch.return_types.max if call.func.__name__ == "max" else torch.return_types.min
    values, places = pair if options["keepdim"] else (pair[0].squeeze(options["dim"]), pair[1].squeeze(options["dim"]))
    return kind((values, places))


def _pooled(p: FrozenPass, call: TorchCall) -> Any:
    """The largest of each window: its place is frozen, the value is read there."""
    x, name = call.args[0], call.func.__name__
    dims = int(name[-2])
    where = p.take(lambda: getattr(F, name)(*call.args, **{**call.kwargs, "return_indices": True})[1], "choices")
    flat, places = x.flatten(-dims), where.flatten(-dims)
    return _read_at(flat, -1, places).unflatten(-1, where.shape[-dims:])


class _BatchNorm(NamedTuple):
    """What torch's batch norm takes beside its input."""

    running_mean: Any
    running_var: Any
    weight: Any = None
    bias: Any = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5

    def out(self, p: FrozenPass, x: Tensor) -> Tensor:
        """In evaluation a fixed affine map: nothing is frozen. With the batch's own numbers rows would be mixed."""
        if self.training or self.running_mean is None:
            raise ValueError("a batch norm without kept numbers mixes the texts of a batch; give it running statistics")
        shape = (1, -1, *(1,) * (x.dim() - 2))
        scale = (self.running_var + self.eps).rsqrt() * (1 if self.weight is None else self.weight)
        out = (x - self.running_mean.reshape(shape)) * scale.reshape(shape)
        return out if self.bias is None else out + self.bias.reshape(shape)


def _group_norm(
    p: FrozenPass, x: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    parts = x.unflatten(1, (num_groups, -1)).flatten(2)
    out = _layer_norm(p, parts, (parts.shape[-1],), eps=eps).reshape(x.shape)
    shape = (1, -1, *(1,) * (x.dim() - 2))
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


class _InstanceNorm(NamedTuple):
    """What torch's instance norm takes beside its input."""

    running_mean: Any = None
    running_var: Any = None
    weight: Any = None
    bias: Any = None
    use_input_stats: bool = True
    momentum: float = 0.1
    eps: float = 1e-5

    def out(self, p: FrozenPass, x: Tensor) -> Tensor:
        """Its own numbers are a group norm of one channel a group; kept ones are a batch norm."""
        if not self.use_input_stats:
            kept = _BatchNorm(self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return kept.out(p, x)
        return _group_norm(p, x, x.shape[1], self.weight, self.bias, self.eps)


def _normed(kind: type[_BatchNorm | _InstanceNorm]) -> Callable[..., Tensor]:
    """The norm of an input and torch's arguments."""
    return lambda p, x, *given, **named: kind(*given, **named).out(p, x)


def _moved(p: FrozenPass, call: TorchCall) -> Any:
    """Frozen weights times values: attention spelt out; nothing to freeze, a place to look at."""
    parts = list(tensors(call.args))
    at = p.take(lambda: next(i for i, t in enumerate(parts) if is_live(t)))
    p.site("attention", parts[at])
    return _mixed(*parts) if call.func.__name__.strip("_") == "matmul" and at == 1 else call.made()


def _opened(part: Callable[..., Any]) -> Do:
    """The part in place of the call, with torch's own names for what is given by name."""

    def opened(p: FrozenPass, call: TorchCall) -> Any:
        first = [call.kwargs[name] for name in ("input",) if name in call.kwargs]
        return part(p, *first, *call.args, **{name: value for name, value in call.kwargs.items() if name != "input"})

    return opened


def _first_live(call: TorchCall) -> bool:
    return is_live(call.args[0] if call.args else call.kwargs.get("input"))


def _any_live(call: TorchCall) -> bool:
    return any(is_live(t) for t in tensors([call.args, call.kwargs]))


def _both_live(call: TorchCall) -> bool:
    gated = any(mark_of(t) == "gate" for t in call.args[:2]) or (len(call.args) > 1 and call.args[0] is call.args[1])
    return all(is_live(t) for t in call.args[:2]) and gated


def _below_live(call: TorchCall) -> bool:
    return len(call.args) > 1 and is_live(call.args[1])


def _by_number(call: TorchCall) -> bool:
    return _first_live(call) and len(call.args) > 1 and isinstance(call.args[1], int | float)


def _along_or_two(call: TorchCall) -> bool:
    """Along an axis, or the larger of two; the largest of all numbers mixes the texts of a batch."""
    two = len(call.args) > 1 and isinstance(call.args[1], Tensor)
    return _any_live(call) if two else _first_live(call) and (len(call.args) > 1 or "dim" in call.kwargs)


def _weights_times_live(call: TorchCall) -> bool:
    parts = list(tensors(call.args))
    return len(parts) == 2 and {is_live(t) for t in parts} == {True, False} and "softmax" in map(mark_of, parts)


HANDLERS: dict[str, Handler] = {
    **{name: Handler(_first_live, _activation) for name in ACTIVATIONS.split()},
    **{name: Handler(_any_live, _extreme) for name in ("maximum", "minimum")},
    **{name: Handler(_along_or_two, _extreme_along) for name in ("max", "min")},
    **{name: Handler(_first_live, _whole("choices")) for name in STEPS.split()},
    **{name: Handler(_first_live, _pooled) for name in POOLS},
    "batch_norm": Handler(_first_live, _opened(_normed(_BatchNorm))),
    "group_norm": Handler(_first_live, _opened(_group_norm)),
    "instance_norm": Handler(_first_live, _opened(_normed(_InstanceNorm))),
    **{name: Handler(_first_live, _whole("norm scale")) for name in SCALES.split()},
    **{name: Handler(_weights_times_live, _moved) for name in ("matmul", "bmm", "einsum")},
    "softmax": Handler(_first_live, _whole("softmax")),
    "softmin": Handler(_first_live, _whole("softmax")),
    "exp": Handler(_first_live, _exponential),
    "pow": Handler(_by_number, _power),
    "mul": Handler(_both_live, _product),
    "div": Handler(_below_live, _quotient),
    "rdiv": Handler(_first_live, _under_number),
    "topk": Handler(_first_live, _chosen),
    "sort": Handler(_first_live, _chosen),
    "layer_norm": Handler(_first_live, _opened(_layer_norm)),
    "rms_norm": Handler(_first_live, _opened(_rms_norm)),
    "normalize": Handler(_first_live, _normalize),
    "glu": Handler(_first_live, _opened(_glu)),
    "scaled_dot_product_attention": Handler(_any_live, _opened(_attention)),
    "multi_head_attention_forward": Handler(_any_live, _opened(_multi_head)),
}
