"""`python -m benchmarks`: the benchmarks that need no GPU."""

from __future__ import annotations

import sys

from benchmarks import bank_speed

if __name__ == "__main__":
    sys.argv = [sys.argv[0], "--device", "cpu", *sys.argv[1:]]
    bank_speed.main()
