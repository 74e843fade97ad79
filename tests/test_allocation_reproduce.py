"""The allocation paper's statements, judged from rows at hand."""

from headcount.papers.allocation import reproduce as allocation
from headcount.papers.allocation.reproduce import four_gram_claims, jacobian_claims
from headcount.results.record import Setting


def test_the_jacobian_is_judged_by_layer_from_what_is_seen_in_a_model(monkeypatch):
    rows = [
        {"layer": layer, "head": 0, "length": n, "norm": norm, "half_range": half, "largest": 0.5}
        for layer, falls, grows in ((0, True, False), (1, False, True))
        for n in (4, 16, 64)
        for norm, half in [(1 / n if falls else 0.2, 1.0 + (n / 16 if grows else 0.0))]
    ]
    monkeypatch.setattr(allocation, "_model", lambda *_: (None, []))
    monkeypatch.setattr("headcount.papers.allocation.attention_saturation.saturation", lambda *_: rows)
    claims = allocation.jacobian(Setting(quick=True)).claims
    assert [c.holds for c in claims] == [False, False, False]
    assert "16, 1" in claims[0].ours and "-1.00, " in claims[1].ours and "1.00, 2.50" in claims[2].ours


def test_the_best_number_of_heads_is_said_by_mean_and_by_median():
    seeds = {
        1: (0.68,) * 3,
        2: (0.4,) * 3,
        4: (7.8e-4,) * 3,
        8: (4.9e-4, 8.1e-4, 8.2e-4),
        16: (2e-3,) * 3,
        32: (3e-3,) * 3,
    }
    few, best = four_gram_claims({(h, "validation"): values for h, values in seeds.items()})
    assert few.holds and not best.holds
    assert "8 heads in all by the mean over seeds" in best.ours and "4 by the median" in best.ours


def test_the_slope_of_the_jacobian_is_said_with_and_without_the_shortest_lengths():
    medians = {(n, "layer 1"): ((1.0 if n < 16 else 16.0 / n),) for n in (4, 8, 16, 32, 64)}
    _, slope = jacobian_claims(medians)
    assert "without lengths up to 8 -1.00" in slope.ours and not slope.holds
