"""One contestant on one split: trained, judged on the outer part, its network kept."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file

from headcount.files import atomic_write, make_folder
from headcount.measuring.baselines import fit_baseline, losses_of, lost
from headcount.measuring.clock import Clock, OutOfTime
from headcount.measuring.contestants import ZERO_HEADS, Contestant, KeptNetwork
from headcount.measuring.planning import DataSizes, Fitting, StudyPlan, reckoned
from headcount.measuring.preparing import Fold, prepare
from headcount.measuring.searching import Searched, fit_network, shape_of
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import Split
from headcount.measuring.zero_heads import fit_zero_heads
from headcount.nets.standard import Encoder
from headcount.results.store import address
from headcount.results.study import Row

MEANING = 8  # part of every address: raise it when the contest itself changes


@dataclass(frozen=True, eq=False)
class Trials:
    """Data, their splits, how networks are trained and until when, and a folder in which each is kept."""

    data: Sequences
    splits: tuple[Split, ...]
    plan: StudyPlan
    steps: int
    folder: Path
    clock: Clock
    device: str = "cpu"

    def row(self, contestant: Contestant, number: int) -> Row | None:
        """The row of a contestant on a split, trained now where there is time; None where there is none."""
        cost = reckoned(self.plan, contestant, self.steps, data_sizes(self.data, self.splits[number]))
        if not self.clock.fits(cost):
            return None
        start = self.clock.now()
        try:
            row = self.trained(contestant, number, self.address(contestant, number))
        except OutOfTime:
            return None
        if contestant.heads:  # what else is fitted is not reckoned by products
            self.clock.took(cost, self.clock.now() - start)
        return row

    def address(self, contestant: Contestant, number: int) -> dict[str, object]:
        """Everything that determines a row."""
        plan = {k: v for k, v in self.plan.to_json().items() if k not in ("heads", "layers", "splits", "tolerance")}
        heads = list(contestant.heads)
        who = {"contestant": contestant.name, "heads": heads, "split": number, "steps": self.steps if heads else 0}
        return {**who, "data": self.data.digest, "plan": plan if heads else {}, "meaning": MEANING}

    def trained(self, contestant: Contestant, number: int, of: dict[str, object]) -> Row:
        """One contestant on one split, judged on the outer part."""
        fold = prepare(self.data, self.splits[number])
        letters, device = len(self.data.letters), self.device
        fitting = Fitting(self.plan, self.steps, number, letters, address(of), device, self.clock.look)
        began = time.process_time()
        searched: Searched | None = None
        setting, parameters = None, 0
        if contestant == ZERO_HEADS:
            predicted, setting, parameters = fit_zero_heads(fold, fitting)
        elif contestant.heads:
            predicted, searched = fit_network(contestant, fold, fitting)
            setting, parameters = searched.setting, searched.net.shape.parameters
            self.keep(searched.net, of)
        else:
            predicted = fit_baseline(contestant, fold, letters, self.clock.look)
        if predicted is None:
            return {"contestant": contestant.name, "status": "left out"}  # pyright: ignore
        losses = losses_of(predicted.outer, fold.outer, fold.classes) / (len(fold.outer) * fold.constants[2])
        level = float(losses.sum())
        short = predicted.outer if predicted.short is None else predicted.short
        row: dict[str, object] = {
            "run": address(of),
            "contestant": contestant.name,
            "heads": max(contestant.heads, default=0),
            "layers": " + ".join(map(str, contestant.heads)) or "-",
            "depth": len(contestant.heads),
            "standard": contestant.standard,
            "attends": contestant.attends,
            "length": self.data.x.shape[1],
            "seed": number,
            "nmse": level,
            "final_nmse": level,
            "train_nmse": searched.training if searched else level,
            "inner": lost(predicted.inner, fold.inner, fold.classes) / fold.constants[1],
            "short": lost(short, fold.outer, fold.classes) / fold.constants[2],
            "parts": self.splits[number].in_blocks(losses),
            "steps": self.steps if contestant.heads else 0,
            "parameters": parameters,
            "status": "done",
            "cpu_seconds": round(time.process_time() - began, 3),
            **_errors(predicted.outer, fold),
        }
        if setting is not None:
            row |= {"lr": setting.lr, "weight_decay": setting.weight_decay, "dropout": setting.dropout}
        return row  # pyright: ignore

    def keep(self, net: Encoder, of: dict[str, object]) -> None:
        """Write a network beside its row."""
        path = self.folder / "networks" / f"{address(of)}.safetensors"
        make_folder(path.parent)
        with atomic_write(path) as scratch:
            save_file({name: p.contiguous() for name, p in net.state_dict().items()}, scratch)

    def network(self, kept: KeptNetwork) -> tuple[Encoder, Fold]:
        """A network that was kept, and the split it was trained on."""
        fold = prepare(self.data, self.splits[kept.split])
        net = shape_of(kept.contestant, fold, self.plan, len(self.data.letters)).module()
        net.load_state_dict(load_file(self.folder / "networks" / f"{kept.run}.safetensors"))
        return net.eval(), fold


def _errors(outer: np.ndarray, fold: Fold) -> dict[str, float]:
    """For classes: the share named wrongly, and its mean over classes."""
    if not fold.classes:
        return {}
    wrong, truth = outer.argmax(axis=1) != fold.outer.y.argmax(axis=1), fold.outer.y.argmax(axis=1)
    balanced = np.mean([wrong[truth == c].mean() for c in np.unique(truth)])
    return {"error_rate": float(wrong.mean()), "balanced_error": float(balanced)}


def data_sizes(data: Sequences, split: Split) -> DataSizes:
    """What the reckoning knows of a split."""
    return DataSizes(len(split.training), len(split.inner), data.x.shape[1])
