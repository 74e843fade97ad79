"""What a person sees of one text in one model: tokens by contribution, the constant, layers, the certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.files import write_json, write_text
from headcount.nets import Transformer
from headcount.notebook import AnswerInNotebook
from headcount.papers.tensor_lens.budgets import Forecast
from headcount.papers.tensor_lens.counterfactuals import first_token_weight, other_words, replaced
from headcount.papers.tensor_lens.operators import Operator, ReadOut, operator

SINK = 0.3  # of all attention on the first token, and three times its even share: a sink
ALL_TRIED = 24  # tokens; of a longer text the largest shares are replaced


@dataclass(frozen=True)
class LensView(AnswerInNotebook):
    """One read-out of one model at one input, split over its tokens; `value` = sum of `tokens` + `constant`.

    Where every number of the output was split as well: `numbers` of them, `slice_gap` the largest relative gap between
    contributions + constant and the output, `argued` the next tokens that each token raises most.
    `replaced`: the mean change of the value when other words stand in a token's place (None: not tried);
    `on_first`: the share of attention that rests on the first token.
    """

    model: str
    read: str
    value: float
    pieces: tuple[str, ...]
    tokens: tuple[float, ...]
    constant: float
    attention: tuple[tuple[float, ...], ...]
    feed_forward: tuple[float, ...]
    certificate: dict[str, Any]
    numbers: int = 1
    slice_gap: float | None = None
    argued: tuple[tuple[str, ...], ...] = ()
    replaced: tuple[float | None, ...] = ()
    on_first: float = 0.0

    @property
    def sink(self) -> bool:
        """Whether attention rests on the first token, whatever it is."""
        return self.on_first >= max(SINK, min(0.9, 3 / len(self.tokens)))

    @property
    def gap(self) -> float:
        """How far the parts are from the whole, relative to the whole."""
        return abs(sum(self.tokens) + self.constant - self.value) / (abs(self.value) or 1.0)

    @property
    def sentence(self) -> str:
        """The finding in one sentence: shares of the output, and beside them what other words would change."""
        top = sorted(range(len(self.tokens)), key=lambda i: -abs(self.tokens[i]))[:2]
        named = " and ".join(f"{self._named(i)} ({self.tokens[i]:+.3g})" for i in top)
        hold = "hold the largest shares" if len(top) > 1 else "holds the share"
        sentence = f"{named} {hold} of {self.read} ({self.value:.3g}, of which constants {self.constant:+.3g})"
        if self.sink:
            sentence += f"; {self._named(0)} stands first, where {self.on_first:.0%} of all attention rests (a sink)"
        tried = [(change, i) for i, change in enumerate(self.replaced) if change is not None]
        if tried:
            change, most = max(tried, key=lambda pair: abs(pair[0]))
            sentence += f"; with other words in its place {self._named(most)} changes it most ({change:+.3g})"
            other = self.replaced[top[0]]
            sentence += f", {self._named(top[0])} by {other:+.3g}" if most != top[0] and other is not None else ""
        return sentence

    @property
    def rows(self) -> list[dict[str, object]]:
        """The tokens, the largest share first, and last the constant."""
        order = sorted(range(len(self.tokens)), key=lambda i: -abs(self.tokens[i]))
        constant = {"place": "", "token": "(constant)", "adds": self.constant, "argues for": ""}
        return [*map(self._row, order), constant]

    def _row(self, token: int) -> dict[str, object]:
        row: dict[str, object] = {"place": token + 1, "token": self.pieces[token].strip(), "adds": self.tokens[token]}
        row |= {"replaced": self.replaced[token]} if self.replaced else {}
        return row | ({"argues for": " ".join(map(repr, self.argued[token]))} if self.argued else {})

    @property
    def exactness(self) -> str:
        """What the certificate says, in three lines, or four where every number was split."""
        c = self.certificate
        lines = [
            f"certificate: replay {c['replay']:.1e}, affine {c['affine']:.1e}, adjoint {c['adjoint']:.1e},",
            f"  dependence {c['dependence']:.2g}, tolerance {c['tolerance']:.0e} ({c['dtype']});",
            f"  the parts add up to the whole, to {self.gap:.1e} of it",
        ]
        if self.slice_gap is not None:
            split = f"contributions + constant = output to {self.slice_gap:.1e} ({self.numbers:,} numbers)"
            lines.append(f"every number: {split}")
        return "\n".join(lines)

    def files(self, out: Path, command: str = "") -> list[Path]:
        """The fields as JSON, and the page, which says by which command it was made."""
        from headcount.papers.tensor_lens.lens_pages import lens_page

        fields = write_json(out / "lens.json", self.as_dict())
        return [fields, write_text(out / "lens.html", lens_page(self, command=command))]

    def _named(self, token: int) -> str:
        return repr(self.pieces[token].strip())

    def as_dict(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {**asdict(self), "gap": self.gap, "sink": self.sink}


def view_of_text(
    name: str,
    model: Any,
    tokenizer: Any,
    text: str,
    *,
    token: str = "",
    against: str = "",
    coordinate: int | None = None,
    every: bool = False,
    memory: int | str | None = None,
    forecast: Callable[[Forecast], None] = lambda cost: None,
) -> LensView:
    """A language model's next-token logit, or a sentence embedding's similarity or coordinate, split over the text.

    The logit is counted from the mean of all logits, which is what a softmax sees, or `against` another token's: this
    one minus that one. Beside the shares stands what other words in a token's place would change. `every` splits all
    other numbers of the output too; `forecast` is told what each part of the work will take before it begins.
    """
    if not text.strip():
        raise ValueError("the text is empty: give it some words")
    ids = torch.tensor(tokenizer(text)["input_ids"])
    speaks = hasattr(model, "lm_head") or model.get_output_embeddings() is not None
    lens = operator(model, ids, at=[-1] if speaks else None, memory=memory, forecast=forecast)
    if speaks:
        direction, read = _logit(lens, tokenizer, token, against)
    elif coordinate is not None:
        direction, read = _coordinate(lens, coordinate), f"coordinate {coordinate} of the embedding"
    else:
        direction, read = _similarity(lens, model, tokenizer, against)
    pieces = _spaced([tokenizer.decode([i]) or "·" for i in ids.tolist()])
    view = _view(name, read, pieces, lens, lens.read(direction))
    order = sorted(range(len(ids)), key=lambda i: -abs(view.tokens[i]))
    special = set(getattr(tokenizer, "all_special_ids", ()))
    places = [i for i in order if int(ids[i]) not in special][:ALL_TRIED]
    words = other_words(tokenizer, model.get_input_embeddings().weight.shape[0])
    changes = replaced(lens, model, ids, direction, words, places)
    view = replace(view, replaced=changes, on_first=first_token_weight(lens, -1 if speaks else None))
    if not every:
        return view
    forecast(lens.cost)
    slice_ = lens.contributions()
    gap = (slice_.sum(1) + lens.constant - lens.output).abs().max() / lens.output.abs().max()
    argued = _argued(slice_[0], tokenizer) if speaks else ()
    return replace(view, numbers=lens.output.numel(), slice_gap=float(gap), argued=argued)


def _argued(slice_: Tensor, tokenizer: Any, count: int = 3) -> tuple[tuple[str, ...], ...]:
    """The next tokens that each token's part raises most."""
    return tuple(tuple(tokenizer.decode([i]) for i in row) for row in slice_.topk(count).indices.tolist())


def view_of_network(
    name: str,
    net: Transformer,
    x: Tensor,
    *,
    output: int = 0,
    memory: int | str | None = None,
    forecast: Callable[[Forecast], None] = lambda cost: None,
) -> LensView:
    """One output of a network of our own at one input."""
    lens = operator(net.eval(), x, memory=memory, forecast=forecast)
    direction = torch.zeros(lens.output.shape[-1], dtype=x.dtype)
    direction[output] = 1.0
    pieces = tuple(f" x{t + 1}" for t in range(len(x)))
    return _view(name, "the output", pieces, lens, lens.read(direction))


def _view(name: str, read: str, pieces: tuple[str, ...], lens: Operator, out: ReadOut) -> LensView:
    rows = tuple(tuple(row) for row in out.attention.tolist())
    hidden = tuple(out.feed_forward.tolist())
    certificate = lens.certificate.as_dict()
    return LensView(name, read, out.value, pieces, tuple(out.tokens.tolist()), out.constant, rows, hidden, certificate)


def _spaced(pieces: list[str]) -> tuple[str, ...]:
    """Pieces as they stand in the text: word pieces that leave out their spaces get them back.

    >>> _spaced(["[CLS]", "windows", "##ill"]), _spaced(["The", " cat"])
    (('[CLS]', ' windows', 'ill'), ('The', ' cat'))
    """
    if any(piece.startswith(" ") for piece in pieces):
        return tuple(pieces)
    return (*pieces[:1], *(p[2:] if p.startswith("##") else f" {p}" for p in pieces[1:]))


def _logit(lens: Operator, tokenizer: Any, token: str, against: str) -> tuple[Tensor, str]:
    """The logit of a token counted from the mean, or against another token's."""
    width = lens.output.shape[-1]
    chosen = _token_id(tokenizer, token, "token") if token else int(lens.output[-1].argmax())
    named = f"the logit of {tokenizer.decode([chosen])!r}"
    direction = torch.full((width,), 0.0 if against else -1 / width).to(lens.output)
    direction[chosen] += 1.0
    if not against:
        return direction, named
    other = _token_id(tokenizer, against, "against")
    if other == chosen:
        raise ValueError(f"{against!r} is the token itself, so nothing is left of the difference; name another one")
    direction[other] -= 1.0
    return direction, f"{named} minus that of {tokenizer.decode([other])!r}"


def _token_id(tokenizer: Any, token: str, option: str) -> int:
    ids = tokenizer(token, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ValueError(f"`{option}` must be one token of the model, {token!r} is {len(ids)}")
    return ids[0]


def _coordinate(lens: Operator, coordinate: int) -> Tensor:
    places, width = lens.output.shape
    if not 0 <= coordinate < width:
        raise ValueError(f"coordinate must lie in 0..{width - 1}, got {coordinate}")
    direction = torch.zeros(places, width)
    direction[:, coordinate] = 1 / places
    return direction


def _similarity(lens: Operator, model: Any, tokenizer: Any, against: str) -> tuple[Tensor, str]:
    """The cosine of the mean state with another text's; its own length is frozen as a norm's scale is."""
    own = lens.output.mean(0)
    other = own
    if against:
        with torch.no_grad():
            ids = torch.tensor([tokenizer(against)["input_ids"]])
            other = model(input_ids=ids).last_hidden_state[0].mean(0)
    direction = other / (other.norm() * own.norm()) / len(lens.output)
    return direction.expand_as(lens.output), f"similarity to {against!r}" if against else "the embedding itself"
