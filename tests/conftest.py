"""The test run checks every shape and type that the package states."""

import atexit
import contextlib
import gc
import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share two cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

from tests.typechecker import checked

gc.disable()  # until the tests begin: what is imported lasts as long as the run
jaxtyping.jaxtyped = checked  # what the hook writes above every function
jaxtyping.install_import_hook("headcount", "tests.typechecker.check")

# The ordinary run tries the same cases every time, however slow the machine; --hypothesis-profile=searching looks on.
SLOW = [HealthCheck.too_slow]  # is no failure
settings.register_profile("searching", deadline=None, suppress_health_check=SLOW)
settings.register_profile("same cases", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.load_profile("same cases")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # marked before the workers read the groups
def pytest_collection_modifyitems(items):
    """Tests that share a fixture of their module run in one worker, so that it is made once."""
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        defined = () if fixtures is None else fixtures.name2fixturedefs.values()
        shared = any(one.scope == "module" and one.baseid for several in defined for one in several)
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
    yield
    for item in items:
        named = vars(item).get("_nodeid")  # where xdist 3.8 writes the group, and pytest 9.2 no longer looks
        if named and hasattr(item, "_id"):
            item._id = type(item._id).parse(named)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Garbage is looked for among what the tests themselves make."""
    gc.collect()
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # what libraries hold is let go at the end, as they expect


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
