"""Programs in CUDA C++: compiled for a shape when it is first met, launched on a device or emulated.

Shapes are constants of a program, so that loops unroll and every sum has its register. On a device PyTorch's own
run-time compiler (NVRTC) makes the machine code and the driver launches it; for tensors on a CPU the same source is
compiled as C++ in which every thread is a fiber: slow, and the same numbers up to the order of sums.
"""

from __future__ import annotations

import ctypes
import hashlib
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headcount.code_cache import code_cache
from headcount.kernels.backend import NotCompiledError
from headcount.kernels.cpp.native_library import native_compiler
from headcount.kernels.cuda.cuts import cuda_driver, most_shared

SOURCES = Path(__file__).parent
KERNELS = {
    f"{name}_{way}": source
    for name, source in (("attend", "attention.cu"), ("feed", "feed.cu"), ("question", "question.cu"))
    for way in ("forward", "backward")
} | {"bound_boxes": "boxes.cu"}
HEADERS = ("warp.cuh", "staging.cuh", "norm.cuh", "layer.cuh", "sequences.cuh", "heads.cuh", "../cpp/box_bounds.h")


class Program:
    """One kernel of one source at one shape, its warps and its bytes of shared memory."""

    processors = 1  # of the device

    def __init__(self, kernel: str, warps: int, shared: int) -> None:
        self.kernel, self.warps, self.shared = kernel, warps, shared

    def resident(self) -> int:
        """How many of it a multiprocessor holds."""
        raise NotImplementedError

    def launch(self, grid: tuple[int, int], *given: Tensor | int | tuple[int]) -> None:
        """Run it; a tensor is its address, an integer 32 bits, an integer in a tuple 64."""
        raise NotImplementedError


def cuda_program(kernel: str, device: str, warps: int, shared: int, **shape: int) -> Program:
    """The program of a kernel at a shape, on a kind of device; of GPUs, the one that is current."""
    return _made(kernel, _gpu(device), warps, shared, _defines(kernel, shape))


def _defines(kernel: str, shape: dict[str, int]) -> tuple[str, ...]:
    macros = shape | {"BACKWARD": int(kernel.endswith("backward"))}
    return tuple(f"-D{name}={value}" for name, value in sorted(macros.items()))


def compile_ahead(kernel: str, shapes: Sequence[dict[str, int]], threads: int = 16) -> None:
    """Make the machine code of a kernel at several shapes, side by side; what fails is met again when asked for."""
    with ThreadPoolExecutor(threads) as pool:
        for shape in shapes:
            pool.submit(_compiled, KERNELS[kernel], _defines(kernel, shape))


def shared_limit(device: str) -> int:
    """Bytes of shared memory that a program may have on a kind of device."""
    return most_shared(_gpu(device))


def _gpu(device: str) -> int:
    """The number of the current GPU; -1 where programs are emulated, or where no device is there to ask."""
    return torch.cuda.current_device() if device != "cpu" and _there() else -1


@cache
def _there() -> bool:
    return torch.cuda.is_available()


@cache
def _made(kernel: str, gpu: int, warps: int, shared: int, defines: tuple[str, ...]) -> Program:
    return (_Emulated if gpu < 0 else _OnDevice)(kernel, warps, shared, KERNELS[kernel], defines)


def _arguments(arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Addresses of the arguments, and what must live as long."""
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            values.append(ctypes.c_void_p(argument.data_ptr()))
        else:
            values.append(ctypes.c_longlong(argument[0]) if isinstance(argument, tuple) else ctypes.c_int(argument))
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    return addresses, values


class _Emulated(Program):
    """By a C++ compiler, in fibers."""

    def __init__(self, kernel: str, warps: int, shared: int, source: str, defines: tuple[str, ...]) -> None:
        super().__init__(kernel, warps, shared)
        self.run = getattr(ctypes.CDLL(str(_emulation(source, defines))), f"run_{kernel}")

    def resident(self) -> int:
        return 1

    def launch(self, grid: tuple[int, int], *arguments: Tensor | int | tuple[int]) -> None:
        addresses, _ = _arguments(arguments)
        if not self.run(*grid, self.shared, addresses):
            raise AssertionError(f"{self.kernel} writes beyond its {self.shared} bytes of shared memory")


def _emulation(source: str, defines: tuple[str, ...]) -> Path:
    compiler = native_compiler()
    if compiler is None:
        raise NotCompiledError("no C++ compiler is at hand")
    words = [(SOURCES / name).read_text(encoding="utf-8") for name in (source, *HEADERS, "emulated.h")]
    name = hashlib.sha256("\0".join([compiler, *defines, *words]).encode()).hexdigest()[:24]
    file = Path(_emulations().name) / f"{name}.so"
    if not file.exists():
        command = [*shlex.split(compiler), "-std=c++17", "-O2", "-DEMULATED", *defines, "-shared", "-fPIC", "-x", "c++"]
        subprocess.run([*command, str(SOURCES / source), "-o", str(file)], check=True, capture_output=True, timeout=120)
    return file


@cache
def _emulations() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="headcount-cuda-")


class _OnDevice(Program):
    """By the run-time compiler, through the driver."""

    def __init__(self, kernel: str, warps: int, shared: int, source: str, defines: tuple[str, ...]) -> None:
        super().__init__(kernel, warps, shared)
        if shared > shared_limit("cuda"):
            raise NotCompiledError(f"{kernel} asks for {shared} bytes of shared memory")
        torch.cuda.current_stream()  # a context must be there
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        _do("cuModuleLoadData", ctypes.byref(self.module), _compiled(source, defines))
        _do("cuModuleGetFunction", ctypes.byref(self.function), self.module, kernel.encode())
        _do("cuFuncSetAttribute", self.function, 8, shared)  # 8: the most dynamic shared memory
        self.processors = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        self.held = 0

    def resident(self) -> int:
        if not self.held:
            count, sizes = ctypes.c_int(), (32 * self.warps, ctypes.c_size_t(self.shared))
            _do("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), self.function, *sizes)
            self.held = max(1, count.value)
        return self.held

    def launch(self, grid: tuple[int, int], *arguments: Tensor | int | tuple[int]) -> None:
        addresses, _ = _arguments(arguments)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        sizes = (*grid, 1, 32 * self.warps, 1, 1, self.shared)
        _do("cuLaunchKernel", self.function, *sizes, stream, addresses, None)


def _do(name: str, *arguments: Any) -> None:
    if code := getattr(cuda_driver(), name)(*arguments):
        raise NotCompiledError(f"{name} failed with {code}")


@cache
def _compiler() -> ctypes.CDLL:
    """NVRTC: by its name where the loader knows it, else where PyTorch's packages keep it."""
    major = (torch.version.cuda or "").split(".")[0]
    packages = Path(torch.__file__).parents[1]
    libraries = [
        *packages.glob(f"nvidia/*/lib/libnvrtc.so.{major}"),
        *Path("/usr/local").glob("cuda*/lib64/libnvrtc.so.*"),
    ]
    for name in (f"libnvrtc.so.{major}", "libnvrtc.so", *map(str, libraries)):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotCompiledError("NVRTC is not here")


@cache
def _compiled(source: str, defines: tuple[str, ...]) -> bytes:
    """The machine code for the device at hand; made once, it lies in the user's cache."""
    words = [(SOURCES / name).read_text(encoding="utf-8") for name in (source, *HEADERS)]
    high, low = torch.cuda.get_device_capability()
    options = [f"-arch=sm_{high}{low}", "-std=c++17", *defines]
    name = hashlib.sha256("\0".join([*options, torch.version.cuda or "", *words]).encode()).hexdigest()[:24]
    binaries: list[bytes] = []

    def make(scratch: Path) -> None:
        binaries.append(_by_nvrtc(source, words, options))
        scratch.write_bytes(binaries[0])

    try:
        return code_cache().file(f"{Path(source).stem}-{name}", ".cubin", make).read_bytes()
    except OSError:  # a cache that cannot be written is no matter
        return binaries[0] if binaries else _by_nvrtc(source, words, options)


def _by_nvrtc(source: str, words: Sequence[str], options: Sequence[str]) -> bytes:
    nvrtc, program = _compiler(), ctypes.c_void_p()
    headers, names = _strings(words[1:]), _strings(HEADERS)
    arguments = (words[0].encode(), source.encode(), len(HEADERS), headers, names)
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), *arguments)
    if nvrtc.nvrtcCompileProgram(program, len(options), _strings(options)):
        raise NotCompiledError(
            f"{source}: {_nvrtc_output(nvrtc, program, 'ProgramLog').decode(errors='replace').strip()[:300]}"
        )
    code = _nvrtc_output(nvrtc, program, "CUBIN")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code


def _nvrtc_output(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    out = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, out)
    return out.raw


def _strings(words: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
