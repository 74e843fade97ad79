"""`python -m headcount`: the same door as the installed `headcount`."""

from headcount.cli import main

if __name__ == "__main__":
    main()
