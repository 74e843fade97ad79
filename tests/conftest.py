"""The test run checks every shape and type that the package states."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share two cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook names it)

install_import_hook("headcount", "tests.typechecker.check")

# The ordinary run tries the same cases every time, however slow the machine; --hypothesis-profile=searching looks on.
SLOW = [HealthCheck.too_slow]  # is no failure
settings.register_profile("searching", deadline=None, suppress_health_check=SLOW)
settings.register_profile("same cases", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.load_profile("same cases")


@pytest.fixture(autouse=True)
def same_random_numbers_whatever_ran_before():
    """Libraries that start their models from the global generator draw the same numbers in every order of the tests."""
    import torch

    torch.manual_seed(0)
