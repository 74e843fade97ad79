"""The comparison of schedules runs, pairs its seeds, and keeps parameters equal: at toy size on the CPU."""

import pytest

from headcount.papers.allocation.decoders import Settings, Text, summary, train_all

TINY = Settings(layers=3, heads=4, head_dim=4, embed_dim=8, length=16, batch=4, steps=12, checks=2)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 30)
    return Text.read(path, "cpu")


def test_schedules_are_compared_at_equal_parameters_and_equal_seeds(text):
    rows, steps = train_all(TINY, text, range(2))
    assert steps == 12 and len(rows) == 6
    assert len({r["parameters"] for r in rows}) == 1
    found = summary(rows)
    assert [f["schedule"] for f in found] == ["uniform", "linear ramp", "early wide, late narrow"]
    assert found[0]["change"] == 0 and all(f["loss"] > 0 for f in found)
    again, _ = train_all(TINY, text, range(1))
    assert [r["loss"] for r in again] == [r["loss"] for r in rows[:3]]


def test_too_little_time_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match="give more time or fewer seeds"):
        train_all(TINY, text, range(2), seconds=1e-6)
    with pytest.raises(FileNotFoundError, match="no text file"):
        Text.read(tmp_path / "none.txt", "cpu")
