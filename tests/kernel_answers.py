"""What the tests of kernels share: devices, and cases answered in a process of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

needs_triton = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs Triton")


def on_devices(emulated: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Once without a device, where that is possible, and once on a GPU, where there is one."""
    no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
    devices = [pytest.param("cpu", marks=emulated), pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])]
    return pytest.mark.parametrize("device", devices)


on_each_device = on_devices(needs_triton)


def asked(module: str, device: str, *more: str) -> dict[str, Any]:
    """All cases of a module, computed in a process of its own: Triton's interpreter is chosen before it is loaded."""
    chosen = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    command = [sys.executable, "-W", "ignore", "-m", module, device, *more]
    done = subprocess.run(command, env={**os.environ, **chosen}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
