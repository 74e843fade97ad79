"""The allocation paper's statements, judged from rows at hand."""

from headcount.papers.allocation import reproduce as allocation
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
