"""The table of evidence is whole, and its fit keeps its word: planted truths are covered, contradictions are shown."""

import math

import numpy as np
import pytest

from headcount.sizing.evidence import EvidenceRow, EvidenceTable, SeedNoise, evidence_table, parsed
from headcount.sizing.meta_analysis import left_out, pooled_change, random_effects

T = {2: 4.303, 3: 3.182, 6: 2.447, 7: 2.365}  # Student's 97.5%
ROW = {"id": "a", "change": "c", "from": "x", "to": "y", "source": "s", "kind": "paper", "checked": "quoted"}


def text_of(**fields):
    return "[[row]]\n" + "\n".join(f"{k} = {v!r}".replace("'", '"') for k, v in {**ROW, **fields}.items())


def table_of(values, checked="quoted", domain="language", seeds=1):
    rows = [
        EvidenceRow(f"r{i}", "c", "x", "y", f"s{i}", "paper", checked, metric="loss", base=100.0,
                    value=100 * math.exp(v / 100), domain=domain, seeds=seeds, digits=9)
        for i, v in enumerate(values)
    ]  # fmt: skip
    return EvidenceTable(tuple(rows), (SeedNoise("n", "", 0.1, 10),))


def test_the_table_holds_what_it_promises():
    table = evidence_table()
    quoted = [row for row in table.rows if row.checked == "quoted"]
    assert len(quoted) >= 25 and len({row.source for row in quoted}) >= 12
    assert all(row.where and row.source for row in table.rows)
    assert all(row.says or row.percent is not None or row.base is not None for row in table.rows)


def test_only_losses_on_language_read_in_their_source_enter_a_fit():
    table = evidence_table()
    assert not [row.id for row in table.rows if row.fits and (row.checked != "quoted" or row.domain != "language")]
    assert pooled_change(table_of([1, 2, 3], checked="second-hand"), "c").mean is None
    assert pooled_change(table_of([1, 2, 3], domain="physics"), "c").sources == 0


def test_a_perplexity_counts_by_its_logarithm():
    row = EvidenceRow("a", "c", "", "", "s", "paper", "quoted", metric="ppl", base=29.9, value=30.2)
    assert row.percent == pytest.approx(100 * math.log(math.log(30.2) / math.log(29.9)))
    bits = EvidenceRow("b", "c", "", "", "s", "paper", "quoted", metric="loss", base=2.0, value=2.1)
    nats = EvidenceRow(
        "b", "c", "", "", "s", "paper", "quoted", metric="loss", base=2.0 * math.log(2), value=2.1 * math.log(2)
    )
    assert bits.percent == pytest.approx(nats.percent)


def test_fewer_than_three_sources_get_no_number():
    assert pooled_change(table_of([1.0, 2.0]), "c").mean is None
    assert pooled_change(table_of([1.0, 2.0, 3.0]), "c").mean == pytest.approx(2.0)


def test_rows_of_one_source_count_once():
    table = table_of([1.0, 2.0, 3.0])
    again = [EvidenceRow(f"x{i}", "c", "", "", "s0", "paper", "quoted", metric="loss", base=100.0,
                         value=100 * math.exp(0.01)) for i in range(20)]  # fmt: skip
    more = EvidenceTable((*table.rows, *again), table.noise)
    assert pooled_change(more, "c").sources == 3
    assert pooled_change(more, "c").mean == pytest.approx(2.0, abs=0.02)


def test_the_fit_is_that_of_its_equations():
    values, errors = [0.3, 0.1, 0.8, 0.4], [0.05, 0.1, 0.2, 0.05]
    mean, error, tau = random_effects(values, errors)
    weights = [1 / (e**2 + tau**2) for e in errors]
    assert mean == pytest.approx(np.average(values, weights=weights))
    assert sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) == pytest.approx(3.0)
    assert error == pytest.approx(1 / math.sqrt(sum(weights)))
    assert random_effects([1.0, 1.01, 0.99], [0.5] * 3)[2] == 0.0
    with pytest.raises(ValueError, match="errors must be above 0"):
        random_effects([1.0, 2.0], [0.1, 0.0])


@pytest.mark.parametrize(("sources", "tau"), [(3, 0.0), (3, 0.3), (4, 0.3), (8, 0.3), (8, 1.0)])
def test_planted_means_and_further_sources_are_covered(sources, tau):
    rng, mean_in, next_in, draws = np.random.default_rng(0), 0, 0, 400
    for _ in range(draws):
        errors = rng.uniform(0.05, 0.3, sources + 1)
        truths = 0.5 + tau * rng.standard_normal(sources + 1)
        values = truths + errors * rng.standard_normal(sources + 1)
        mean, error, between = random_effects(values[:-1].tolist(), errors[:-1].tolist())
        mean_in += abs(mean - 0.5) <= T[sources - 1] * error
        next_in += abs(truths[-1] - mean) <= T[max(2, sources - 2)] * math.hypot(error, between)
    assert mean_in / draws > 0.92
    assert next_in / draws > 0.90


def test_a_contradiction_is_shown_and_not_averaged_away():
    assert pooled_change(table_of([-2.0, 2.0, 0.1]), "c").contradicts
    assert not pooled_change(table_of([1.0, 2.0, 0.1]), "c").contradicts
    low, high = pooled_change(table_of([-2.0, 2.0, 0.1]), "c").interval or (0, 0)
    assert low < -2 and high > 2


def test_left_out_sources_are_predicted_by_the_others():
    rows = left_out(table_of([0.1, 0.2, 0.3, 0.2, 9.0]))
    assert {row["source"]: row["inside"] for row in rows}["s4"] is False
    assert all(row["inside"] for row in left_out(table_of([0.1, 0.2, 0.3, 0.2])))
    assert left_out(table_of([0.1, 0.2, 0.3])) == []


def test_a_row_without_an_error_gets_the_noise_of_its_seeds():
    one, four = table_of([1.0]), table_of([1.0], seeds=4)
    assert one.error(one.rows[0]) == pytest.approx(0.1 * math.sqrt(2))
    assert four.error(four.rows[0]) == pytest.approx(0.1 * math.sqrt(2) / 2)


def test_numbers_printed_short_are_known_less():
    rng, hidden = np.random.default_rng(0), []
    for _ in range(4000):
        before, after = 4.92 + 0.01 * (rng.random(2) - 0.5)
        hidden.append(100 * math.log(math.log(after) / math.log(before)))
    row = EvidenceRow("a", "c", "", "", "s", "paper", "quoted", metric="ppl", base=4.92, value=4.92)
    assert row.rounding == pytest.approx(np.std(hidden), rel=0.05)
    short = EvidenceRow("b", "c", "", "", "s", "paper", "quoted", metric="loss", base=1.3445, value=1.3465, digits=3)
    assert short.rounding == pytest.approx(100 * 1e-3 / math.sqrt(12) * math.sqrt(2) / 1.3455, rel=1e-2)


def test_rows_against_one_run_share_its_noise():
    rows = [
        EvidenceRow(
            f"r{i}",
            "c",
            "base",
            f"x{i}",
            "s",
            "paper",
            "quoted",
            metric="loss",
            base=100.0,
            value=100.0,
            size=size,
            digits=9,
        )
        for i, size in enumerate(("4 M", "4 M", "8 M"))
    ]
    together = EvidenceTable(tuple(rows), (SeedNoise("n", "", 0.1, 10),))
    (effect,) = pooled_change(together, "c").effects
    runs = np.random.default_rng(0).standard_normal((20000, 5)) * 0.1  # base, two others; base, other at 8 M
    mean = (runs[:, 1] - runs[:, 0] + runs[:, 2] - runs[:, 0] + runs[:, 4] - runs[:, 3]) / 3
    assert effect.error == pytest.approx(mean.std(), rel=0.03)


def test_mistakes_in_the_table_are_refused():
    with pytest.raises(ValueError, match="two rows of the evidence are called 'a'"):
        parsed([text_of(), text_of()])
    with pytest.raises(ValueError, match="has a loss but not its numbers"):
        parsed([text_of(metric="loss")])
    with pytest.raises(ValueError, match="sauce"):
        parsed([text_of() + '\nsauce = "x"'])
    with pytest.raises(ValueError, match="steps must be above 0"):
        parsed([text_of(steps=0.0)])


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("vaswani2017-128", 100 * math.log(math.log(5.00) / math.log(4.92))),
        ("shazeer2019-wmt", 100 * math.log(1.439 / 1.424)),
        ("marin-5151-d512", 100 * math.log(3.8104 / 3.7868)),
    ],
)
def test_percentages_are_those_of_the_published_numbers(name, number):
    (row,) = [row for row in evidence_table().rows if row.id == name]
    assert row.percent == pytest.approx(number)
