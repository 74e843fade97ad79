"""Pages of a store zeroed, swapped, doubled or changed: every command ends, and what it says of rows is true."""

import contextlib
import random
import signal

import pytest

from headcount.refusals import RefusalError
from headcount.results import Store
from headcount.results.upkeep import repair_store, verify_store

PAGE = 4096
ROWS = 400
LONGEST = 30  # seconds of processor; a repair of so few rows takes hundredths of one


def zero(rng, pages):
    pages[rng.randrange(1, len(pages))] = bytes(PAGE)


def swap(rng, pages):
    one, other = rng.sample(range(1, len(pages)), 2)
    pages[one], pages[other] = pages[other], pages[one]


def double(rng, pages):
    one, other = rng.sample(range(1, len(pages)), 2)
    pages[one] = pages[other]


def flip(rng, pages):
    """Change the head of a page, where it says what it is and where its cells are."""
    at = rng.randrange(1, len(pages))
    page = bytearray(pages[at])
    for _ in range(rng.choice((1, 4))):
        page[rng.randrange(40)] = rng.randrange(256)
    pages[at] = bytes(page)


def cut(rng, pages):
    del pages[rng.randrange(1, len(pages)) :]


def point(rng, pages):
    """Let a page name another one, or itself, in the place of a child."""
    at = rng.randrange(1, len(pages))
    page = bytearray(pages[at])
    page[rng.choice((8, *range(12, 60, 2))) :][:4] = rng.randrange(len(pages)).to_bytes(4, "big")
    page[0] = rng.choice((page[0], 5, 2))
    pages[at] = bytes(page[:PAGE])


WAYS = (zero, swap, double, flip, cut, point)


class TooLongError(BaseException):
    """It would never end."""


@contextlib.contextmanager
def limited():
    def late(number, frame):
        raise TooLongError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def row(name):
    known = {"run": name, "heads": 1, "length": 4, "nmse": 0.5, "status": "done"}
    return (name, {"of": name}, known)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("sound"), create=True)
    names = [f"{i:04d}" for i in range(ROWS)]
    store.state("first", {"is": "first"}, names)
    store.add([row(name) for name in names], {"torch": "2"})
    return store.path.read_bytes()


@pytest.mark.parametrize("number", [*range(60), *(pytest.param(n, marks=pytest.mark.soak) for n in range(60, 2060))])
def test_damaged_pages_end_no_command_in_a_ring_and_make_no_row_up(tmp_path, sound, number):
    rng = random.Random(f"pages {number}")
    pages = [sound[at : at + PAGE] for at in range(0, len(sound), PAGE)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(WAYS)(rng, pages) if len(pages) > 3 else None
    store = Store(tmp_path / "rows.sqlite")
    store.path.write_bytes(b"".join(pages))
    names = [f"{i:04d}" for i in range(ROWS)]
    with limited():
        for look in (lambda: store.study(), lambda: store.missing(names), lambda: verify_store(tmp_path)):
            with contextlib.suppress(RefusalError):
                look()
        try:
            repair_store(tmp_path)
        except RefusalError as problem:
            assert "move it away" in str(problem)
            return
        assert verify_store(tmp_path).sound
        assert not store.specs() or all(dict(one) == row(one["run"])[2] for one in store.study())
        store.state("first", {"is": "first"}, names)  # what the same sweep does: it states, and trains what is missing
        store.add([row(name) for name in store.missing(names)], {"torch": "2"})
        assert [dict(one) for one in store.study()] == [row(name)[2] for name in names]
