"""`python -m headcount`: the same door as the installed `headcount`."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: nothing has been begun that is worth keeping."""
    try:
        os.write(2, b"headcount: interrupted.\n")
    finally:
        os._exit(130)


def main(arguments: Sequence[str] | None = None) -> None:
    """Enter; an interruption while the program is still being loaded has nothing to keep and ends it at once."""
    if arguments is None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, leave)
    from headcount.cli import failures
    from headcount.cli import main as enter

    failures.leave_while_loading = leave if arguments is None else None
    enter(sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    main()
