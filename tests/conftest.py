"""The test run checks every shape and type that the package states."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share two cores
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook names it)

install_import_hook("headcount", "tests.typechecker.check")
