"""`python -m tests.attack [COUNT]`: every build, its inputs, the worst gap over the promise."""

import sys

from tests.attack.cases import CASES, attack


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    outcomes = []
    for name in CASES:
        outcomes.append(attack(name, count))
        o = outcomes[-1]
        say(f"{o.name:28} {o.inputs:7d} inputs  {o.broken} broken  worst {o.ratio:.4f}")
    total, broken = sum(o.inputs for o in outcomes), sum(o.broken for o in outcomes)
    worst = max(o.ratio for o in outcomes)
    say(f"So: {total} inputs on {len(outcomes)} builds, {broken} broken, the worst gap {worst:.6f} of its promise.")


if __name__ == "__main__":
    main()
