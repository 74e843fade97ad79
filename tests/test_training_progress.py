"""Progress where there is no terminal: a line now and then, and never more often than asked."""

from headcount.training import Sweep
from headcount.training.progress import lines
from headcount.training.sweeps import banks
from tests.faults.sweep_specs import SPEC

ASKED = Sweep.from_toml(SPEC)
BANKS = list(banks(ASKED, "cpu"))


def spoken(capsys, every):
    with lines(ASKED, BANKS, 0, every=every) as progress:
        for bank in BANKS:
            progress(ASKED.recipe.steps)
            progress.bank_done(len(bank))
        progress.note("out of memory: said at once")
    return capsys.readouterr().err.splitlines()


def test_a_line_says_how_far_how_fast_and_how_long_still(capsys):
    said = spoken(capsys, every=0)
    assert len(said) == 2 * len(BANKS) + 1
    assert said[-2].startswith("headcount: 8/8 networks, ") and said[-2].endswith("about 0 min left")


def test_a_short_sweep_says_nothing_but_what_must_be_said(capsys):
    assert spoken(capsys, every=60) == ["headcount: out of memory: said at once"]
