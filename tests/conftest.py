"""The test run checks every shape and type that the package states."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share two cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook names it)

install_import_hook("headcount", "tests.typechecker.check")
# What is asked of examples is asked of their content: a busy machine makes no example fail.
settings.register_profile("by content", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("by content")


@pytest.fixture(autouse=True)
def same_random_numbers_whatever_ran_before():
    """Libraries that start their models from the global generator draw the same numbers in every order of the tests."""
    import torch

    torch.manual_seed(0)
