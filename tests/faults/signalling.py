"""Sweeps that are asked to end at random moments: `python -m tests.faults.signalling COUNT FIRST FOLDER`.

Every sweep runs in a process forked from one that has loaded everything, is struck by one or two of SIGINT, SIGTERM
and SIGHUP after a random part of a second, and must end with 130 and one line, or with 0 if it was quicker. The same
words are then typed again, until they succeed. Prints what happened as JSON.
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from tests.faults.fuzz_sweeps import Strike, after_a_strike
from tests.faults.fuzzing import Outcomes, forked, left_alone, typed_words
from tests.faults.sweep_specs import with_

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SPECS = (
    with_(),
    with_(("epochs = 2", "epochs = 60")),
    with_(("epochs = 2", "epochs = 12"), ("seeds = 2", "seeds = 4")),
)
WAYS = ((), ("--checkpoint", "0.001s"), ("--checkpoint", "0"), ("--save", "all"))


def struck(number: int, folder: Path) -> dict[str, object]:
    """How the sweep of this number ended, and whether it had the rows of one left alone when it was typed again."""
    rng = random.Random(f"signals of {number}")
    signals = tuple(rng.choice(ENDING) for _ in range(rng.choice((1, 1, 2))))
    strike = Strike(rng.uniform(0.002, 0.4), signals, rng.choice((0.0, 0.003, 0.03)))
    words = ("sweep", "x.toml", "--store", "s", *rng.choice(WAYS))
    Path("x.toml").write_text(rng.choice(SPECS))
    ending = forked(lambda: typed_words(words, strike), folder)
    after = after_a_strike(words, partial(left_alone, Outcomes(), folder), exactly=True)
    sound = ending.allowed and ending.said.count("\n") == (ending.code == 130) and after.same is True
    told = {"number": number, "signals": [int(one) for one in signals], "said": ending.said, "after": after.codes}
    return {"code": ending.code, "sound": sound, **told}


def main(count: int, first: int, folder: Path) -> dict[str, object]:
    """All of them."""
    found = []
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory(dir=folder) as here, contextlib.chdir(here):
            found.append(struck(number, folder))
    codes = Counter(str(one["code"]) for one in found)
    return {"moments": count, "codes": dict(codes), "wrong": [one for one in found if not one["sound"]]}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    place = Path(sys.argv[3]).absolute()
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), place), indent=1), flush=True)  # noqa: T201
    os._exit(0)
