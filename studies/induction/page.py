"""docs/induction.html: training in three stages, to the published end, which lags are chosen, predictors, lengths."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from headcount.papers.induction.published import LOSS, OWN_LAGS, SCALE, SHARE
from headcount.papers.induction.stages_picture import lengths_picture, stages_picture
from headcount.report import Exhibit, Passage, article
from headcount.results.literature import Published

Data = Mapping[str, Any]
LATE = (1000, 5000, 10000, 13335, 17783, 31623, 50000)


def page(data: Data) -> str:
    """The page of one study."""
    rows = data["selection"]
    agree = sum(row["agrees"] for row in rows)
    early = _at(data["stages"], 10)
    return article(
        "An induction head in three stages",
        f"So: after 10 steps of descent {early['shares']['1,2']:.1%} of the selector is on the two lags that matter; "
        f"in {agree} of {len(rows)} chains the lags chosen are those of largest modified chi-square information.",
        [
            _stages(data),
            *([_to_the_end(data["to_the_end"])] if "to_the_end" in data else []),
            *([_others(data)] if "to_the_end" in data else []),
            _selection(data),
            _predictors(data),
            _certificate(data),
            _lengths(data),
            _full(data),
            *([_full_longer(data["full_longer"])] if "full_longer" in data else []),
        ],
        subject="Unveiling Induction Heads (Chen et al. 2024)",
        facts={
            "chain": "two parents, 3 letters, length 100, rows Dirichlet(0.1)",
            "training": "4,000 sequences, full batch, rate 1",
            "300 steps": f"{data['seconds']:g} s of one core",
        },
        command="headcount reproduce induction",
        date=max(part["date"] for part in (data, *_longer(data))),
    )


def _stages(data: Data) -> Passage:
    rows, table = data["stages"], []
    for row in rows:
        published = {t.title: t.at(row["step"], "all together") for t in (LOSS, SCALE, SHARE)}
        if row["step"] in (0, 1, 5, 10, 50, 100, 300):
            table.append(
                {"step": row["step"], "loss": row["loss"], "published loss": published[LOSS.title]}
                | {"share of {1,2}": row["shares"]["1,2"], "published share": published[SHARE.title]}
                | {"scale": row["scale"], "published scale": published[SCALE.title], "own lags": row["own"]}
            )
    in_turn = data["in_turn"]
    astray = max((row for row in rows if row["step"] >= 5), key=lambda row: row["shares"][""])
    words = (
        (
            "The selector decides first, while the heads have hardly moved; then the heads of the chosen lags "
            "concentrate, and the third head stays where it was; the scale of the second layer grows longest."
        ),
        (
            f"Trained strictly one group after the other the end is the same: the selector alone reaches a share of "
            f"{in_turn[2]['shares']['1,2']:.4f}, the heads then move by {in_turn[3]['own'][0] - 3:.4f}, and the scale "
            f"takes the loss from {in_turn[3]['loss']:.3f} to {in_turn[4]['loss']:.3f}."
        ),
        (
            f"At rate 1 this is descent, not flow: at step {astray['step']} the empty set holds "
            f"{astray['shares']['']:.0%} of the selector for a moment."
        ),
        (
            "The output is a point of the simplex and is used as logits, as published: this loss cannot fall below "
            "0.5514, and is no entropy."
        ),
    )
    drawn = Exhibit(stages_picture(rows), "All parameters together, steps on a logarithmic axis.",
                    stages_picture(rows, narrow=True))  # fmt: skip
    note = "The validation loss is known to about 0.004 (2,000 sequences); the published one is of 1,000 others."
    return Passage("Three stages", words, (drawn,), tuple(table), note=note)


def _longer(data: Data) -> list[Data]:
    return [data[name] for name in ("to_the_end", "in_double", "full_longer") if name in data]


def _to_the_end(part: Data) -> Passage:
    """Medians of the seeds that came so far, at steps whose loss, scale or share is published and at the last."""
    rows, seeds = part["rows"], sorted({row["seed"] for row in part["rows"]})
    steps = sorted({*LOSS.rows, *SHARE.rows, max(row["step"] for row in rows)} & {row["step"] for row in rows})
    table = [_medians([row for row in rows if row["step"] == step]) for step in steps]
    cells, end = {(row["seed"], row["step"]): row for row in rows}, table[-1]
    ended = [(cells[seed, 500], cells[seed, end["step"]]) for seed in seeds if (seed, end["step"]) in cells]
    peaks = [max(row["own"][0] for row in rows if row["seed"] == last["seed"]) for _, last in ended]
    own, printed = (", ".join(f"{w:.3f}" for w in weights) for weights in (end["own lags"], OWN_LAGS))
    words = (
        (
            f"The published run has 9,000 sequences and 50,000 steps. {end['seeds']} of {len(seeds)} seeds of the data "
            f"were trained to step {end['step']:,}: the own-lag weights end at {own}, published {printed}."
        ),
        (
            f"After step 500 the loss falls by {median(a['loss'] - b['loss'] for a, b in ended):.4f} only, while the "
            f"scale goes on from {median(a['scale'] for a, _ in ended):.2f} to {end['scale']:.2f}. The first head's "
            f"own-lag weight is {median(peaks):.2f} at its largest and {end['own lags'][0]:.2f} at the end; the third "
            f"head's has moved by {max(abs(row['own'][2] - 3) for row in rows):.1e} at most."
        ),
    )
    first = [row for row in rows if row["seed"] == seeds[0]]
    drawn = Exhibit(stages_picture(first), "The first seed.", stages_picture(first, narrow=True))
    note = f"Medians; losses on {part['validation']:,} other sequences. {part['seconds'] / 60:.0f} minutes of one core."
    return Passage("To the end of the published run", words, (drawn,), tuple(table), note=note)


def _others(data: Data) -> Passage:
    """The largest set beside {1,2} late in training, seed by seed, in float32 and in float64."""
    table = []
    for name, digits in (("to_the_end", "float32"), ("in_double", "float64")):
        for row in data.get(name, {}).get("rows", []):
            if row["step"] in LATE:
                lags, weight = max(((k, v) for k, v in row["shares"].items() if k != "1,2"), key=lambda cell: cell[1])
                line = {"numbers": digits, "seed": row["seed"], "step": row["step"], "next set": f"{{{lags}}}"}
                table.append(line | {"its share": weight, "share of {1,2}": row["shares"]["1,2"], "loss": row["loss"]})
    table.sort(key=lambda line: (line["numbers"], line["seed"], line["step"]))
    back = {(line["numbers"], line["seed"]) for line in table if line["its share"] > 0.01}
    tried = {(line["numbers"], line["seed"]) for line in table}
    tally = " and ".join(
        f"{sum(kind == digits for kind, _ in back)} of {sum(kind == digits for kind, _ in tried)} seeds in {digits}"
        for digits in dict.fromkeys(kind for kind, _ in sorted(tried))
    )
    words = (
        (
            "The published run shows a share of {1,2} that stays at 1. A small coefficient is multiplied by a factor "
            "at every step, so a set that helps the training loss a little at the end grows again from any size. In "
            "float32 it does so only where it has not come down to the smallest numbers there are, which no step "
            f"changes any more. Another set holds more than 0.01 in {tally}."
        ),
    )
    return Passage("Does another set come back?", words, (), tuple(table))


def _medians(at: list[Data]) -> dict[str, Any]:
    """The line of one step: medians of its seeds beside what is published."""
    step = at[0]["step"]
    line = {"step": step, "loss": median(row["loss"] for row in at), "published loss": _printed(LOSS, step)}
    line |= {"scale": median(row["scale"] for row in at), "published scale": _printed(SCALE, step)}
    line |= {"share of {1,2}": median(row["shares"]["1,2"] for row in at), "published share": _printed(SHARE, step)}
    own = [round(median(row["own"][h] for row in at), 3) for h in range(len(OWN_LAGS))]
    losses = " ".join(f"{row['loss']:.4f}" for row in at)
    return line | {"own lags": own, "seeds": len(at), "losses of the seeds": losses}


def _printed(table: Published, step: int) -> float | None:
    return table.at(step, "all together")


def _selection(data: Data) -> Passage:
    shown = {"parents": "parents", "concentration": "concentration", "chosen": "chosen", "share": "share"}
    shown |= {"information_set": "information set", "runner_up": "runner-up", "margin": "margin"}
    shown |= {"margin_error": "standard error", "agrees": "agrees"}
    words = (
        (
            "Plain chi-square information ties the parents with every larger set; the modified one weighs patterns by "
            "their frequency once more, charges for rare ones, and chooses the parents alone. "
            "Training chooses the same lags."
        ),
    )
    note = "60 steps on 2,000 sequences; information over 400 random kernels, margins kernel by kernel."
    return Passage("Which lags are chosen", words, (), tuple(data["selection"]), shown, note)


def _predictors(data: Data) -> Passage:
    rows = [{**row, "lags": "{" + ",".join(map(str, row["lags"])) + "}"} for row in data["predictors"]]
    shown = {"predictor": "predictor", "lags": "lags", "cross_entropy": "cross-entropy"}
    shown |= {"loss": "loss as logits", "accuracy": "accuracy"}
    words = (
        (
            "In cross-entropy the exact posterior on the true parents is best but for the kernel itself. As logits the "
            "matched mean scores better than the posterior: that loss pays for peaked laws and is no proper score."
        ),
    )
    return Passage("Predictors side by side", words, (), tuple(rows), shown,
                   "4,000 sequences; - where a letter that came had probability 0.")  # fmt: skip


def _certificate(data: Data) -> Passage:
    rows = data["certificate"]
    shown = {"scale": "scale", "promised": "promised", "worst_gap": "worst gap"}
    words = (
        (
            "A network that copies the parents and matches them is within q/(m + q) of the matched mean, q = (n - m) "
            "exp(-a), and attains it where one place matched and all others hold other letters."
        ),
        (
            f"Where the last pattern never occurred before ({rows[0]['unmatched']:.2%} of these sequences) nothing is "
            f"promised: the network averages over partial matches, up to {rows[-1]['unmatched_gap']:.2f} away from the "
            "mean of all letters, and the posterior is uniform."
        ),
    )
    return Passage("The built head and its promise", words, (), tuple(rows), shown, "4,000 sequences of length 100.")


def _lengths(data: Data) -> Passage:
    rows = data["lengths"]
    behind = [row["posterior_accuracy"] - row["model_accuracy"] for row in rows]
    shown = {"concentration": "concentration", "length": "length", "model_accuracy": "model"}
    shown |= {"matched_accuracy": "matched mean", "posterior_accuracy": "posterior", "kernel_accuracy": "true kernel"}
    words = (
        (
            f"Trained at length 100 and concentration 0.1, tested elsewhere: the model's accuracy is behind the "
            f"posterior's by {median(behind):.3f} in the middle and by {max(behind):.3f} at most."
        ),
    )
    drawn = Exhibit(lengths_picture(rows), "Accuracy by length.", lengths_picture(rows, narrow=True))
    return Passage("Other lengths, other chains", words, (drawn,), tuple(rows), shown, "2,000 sequences each: +- 0.01.")


def _full(data: Data) -> Passage:
    rows = data["full"]
    near = [row["chosen"] == [1, 2] for row in rows if row["randomness"] < 1]
    far = [row["chosen"] == [1, 2] for row in rows if row["randomness"] == 1]
    shown = {"own": "start of own lags", "randomness": "randomness", "seed": "seed", "chosen": "chosen"}
    shown |= {"share_of_parents": "share of {1,2}", "loss": "loss", "accuracy": "accuracy"}
    words = (
        (
            "A hypothesis, not the theorem: query, key and value are learnt too, from a mixture of the identity and "
            f"random maps. From near the identity {sum(near)} of {len(near)} runs choose the parents; from random maps "
            f"{sum(far)} of {len(far)} do."
        ),
        "With its value learnt the output is a vector of true logits, so this loss may fall below 0.5514.",
    )
    return Passage("The full model", words, (), tuple(rows), shown, f"{rows[0]['steps']} steps on 1,000 sequences.")


def _full_longer(part: Data) -> Passage:
    rows = part["rows"]
    end = [row for row in rows if row["steps"] == max(row["steps"] for row in rows)]
    one = [row for row in end if len(row["chosen"]) == 1 and {1, 2} <= set(row["lags_read"])]
    parents = [row for row in end if row["chosen"] == [1, 2]]
    middle = median(row["accuracy"] for row in parents)
    as_good = [row["accuracy"] > middle - 0.01 for row in one]
    shown = {"own": "start of own lags", "randomness": "randomness", "seed": "seed", "steps": "step"}
    shown |= {"chosen": "chosen", "share_of_parents": "share of {1,2}", "lags_read": "lags read"}
    shown |= {"loss": "loss", "accuracy": "accuracy"}
    words = (
        (
            f"After {end[0]['steps']:,} steps {len(parents)} of {len(end)} runs have chosen the set {{1,2}}, with a "
            f"median accuracy of {middle:.3f}."
        ),
        (
            f"The set chosen does not say which lags are read: in {len(one)} runs a single head is chosen that gives "
            f"more than a tenth of its attention to each of lags 1 and 2, and {sum(as_good)} of them are as "
            "accurate within 0.01. With query and key learnt one head can match two lags, so the share of {1,2} is no "
            "measure of what the full model found."
        ),
    )
    note = f"{part['training']:,} sequences, rate 1; lags read: more than 0.1 of the attention of a chosen head."
    return Passage("The full model for longer", words, (), tuple(rows), shown, note)


def _at(rows: list[Data], step: int) -> Data:
    return next(row for row in rows if row["step"] == step)
