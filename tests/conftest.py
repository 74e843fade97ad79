"""The test run checks every shape and type that the package states."""

import contextlib
import os
import signal

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


@pytest.fixture(autouse=True)
def signals_as_they_were():
    """A command that ends by an interruption ignores further ones; what it left so, processes started later inherit."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    with contextlib.suppress(ValueError):  # not in the main thread
        for number, handler in before.items():
            signal.signal(number, handler)
