"""One spec with several horizons: a list of epochs in [training] is as many specs, which one store holds together."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from headcount.files import text_in, write_text
from headcount.refusals import RefusalError

LISTED = re.compile(r"(?m)^(\s*epochs\s*=\s*)\[[^\]]*\]")


def horizons_of(spec: Path, folder: Path) -> list[Path]:
    """The spec itself, or one for every number of epochs that it lists, written under `folder`.

    A law of learning rates needs the same networks at several horizons, and a recipe has one.
    """
    try:
        text = text_in(spec, "utf-8-sig")
        listed = tomllib.loads(text).get("training", {}).get("epochs")
    except (OSError, ValueError, AttributeError, RecursionError):
        return [spec]  # what is wrong with it is said where specs are read
    if not isinstance(listed, list):
        return [spec]
    if not listed or len(set(map(str, listed))) < len(listed) or any(type(n) is not int or n < 1 for n in listed):
        raise RefusalError(f"{spec}: epochs in [training] is a whole number or a list of different ones, got {listed}")
    if len(LISTED.findall(text)) != 1:
        raise RefusalError(f"{spec}: write the list of epochs on a line of its own, as in epochs = [2, 4]")
    beside = str(spec.absolute().parent)  # a task of the user's own may stand there
    if beside not in sys.path:
        sys.path.append(beside)
    return [write_text(folder / f"{spec.stem}-{n}-epochs.toml", LISTED.sub(rf"\g<1>{n}", text)) for n in listed]
