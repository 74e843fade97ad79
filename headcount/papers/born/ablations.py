"""Trained retrievals and copies with their induction, anti-induction or previous-place edges cut: which kills what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypedDict, cast

from headcount.nets.causal import DecoderShape
from headcount.papers.born.edges import EDGES, HeadScores, cut, head_scores, right_share
from headcount.papers.born.experiments import DECAY, alike
from headcount.results.gathering import grouped
from headcount.tasks.copies import Copy
from headcount.tasks.letters import Lengths, LetterTask, OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training.loop import train
from headcount.training.member import Member
from headcount.training.strings import string_recipe

ABLATED: dict[str, LetterTask] = {
    "UR": Neighbour("right", "only"),
    "UL": Neighbour("left", "only"),
    "UF": Copy(backward=False, letters=26),
    "UB": Copy(backward=True, letters=26),
}


@dataclass(frozen=True)
class AblationSetting:
    """Small decoders, long enough trained that they are right on the training lengths."""

    lengths: Lengths = (4, 12)
    depth: int = 2
    heads: int = 4
    embed_dim: int = 64
    steps: int = 4000
    batch: int = 64
    lr: float = 2e-3
    seeds: tuple[int, ...] = (0, 1, 2)
    samples: int = 256


class CutScores(TypedDict):
    """Strings right, whole and by what is cut (keys or values, then kind of edge), and the scores of the heads."""

    whole: float
    cut: dict[str, dict[str, float]]
    heads: list[HeadScores]


class AblationRow(CutScores):
    """One trained decoder with its edges cut."""

    code: str
    seed: int


def ablation(
    setting: AblationSetting,
    names: Sequence[str] = tuple(ABLATED),
    *,
    device: str = "cpu",
    on_progress: Callable[[int], None] = lambda steps: None,
) -> list[AblationRow]:
    """A row for every task and seed: the share of right strings whole, and with each kind of edge cut at keys and
    at values in all layers; and the scores of the heads."""
    rows = []
    for chosen in alike(ABLATED, names):
        task = ABLATED[chosen[0]]
        layers = ((setting.heads, setting.embed_dim // setting.heads),) * setting.depth
        context = task.longest(setting.lengths[1])
        shape = DecoderShape(layers, setting.embed_dim, 4 * setting.embed_dim, task.vocab, context=context)
        on = [OnLengths(ABLATED[name], setting.lengths) for name in chosen]
        members = [Member(task, shape, s, s, setting.lr, DECAY) for task in on for s in setting.seeds]
        recipe = string_recipe(setting.steps, setting.batch, evaluations=4, samples=128)
        outcome = train(members, recipe, device=device, on_progress=on_progress)
        labels = [name for name in chosen for _ in setting.seeds]
        for k, name in enumerate(labels):
            rows.append({"code": name, "seed": members[k].seed, **_measured(outcome.net(k).cpu(), name, setting)})
    return rows


def ablation_summary(rows: Sequence[AblationRow]) -> list[dict[str, str | float]]:
    """By task: medians over seeds, whole and with each kind of edge cut at its keys."""
    lines = []
    for code, runs in grouped((row["code"], row) for row in rows).items():
        line: dict[str, str | float] = {"code": code, "seeds": len(runs), "whole": median(row["whole"] for row in runs)}
        for part in ("keys", "values"):
            line |= {f"{name}, {part}": median(row["cut"][part][name] for row in runs) for name in EDGES}
        lines.append(line)
    return lines


def _measured(net: Any, name: str, setting: AblationSetting) -> CutScores:
    task = ABLATED[name]

    def accuracy(one: Any) -> float:
        return right_share(one, task, setting.lengths, batch=setting.samples)

    parts = {
        part: {edge: accuracy(cut(net, edges, part)) for edge, edges in EDGES.items()} for part in ("keys", "values")
    }
    scores = [
        {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
        for row in head_scores(net, task, setting.lengths, batch=setting.samples)
    ]
    return {"whole": accuracy(net), "cut": parts, "heads": cast(list[HeadScores], scores)}
