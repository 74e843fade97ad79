"""Compiled code is loaded if it is whole, the user's own and in a closed folder; else it is made anew, or not used."""

import ctypes
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headcount import code_cache as module
from headcount.code_cache import CodeCache, code_cache, loaded_code, why_open
from headcount.files import user_cache
from headcount.kernels.cpp import native_library as building
from headcount.kernels.cpp.native_library import native_compiler, native_library

needs_compiler = pytest.mark.skipif(native_compiler() is None, reason="no C++ compiler")
SMALL = """
extern "C" {
int bank_lanes() { return 1; }
void bank_pass() {}
void bank_adamw(long models, long parameters, long each, const float* lr, const float* decay, double share, double u1,
                double u2, double b1, double b2, double eps, const unsigned char* active, const float* gradient,
                float* first, float* second, float* theta, long threads) {
    CRASH
    for (long i = 0; i < parameters; ++i) theta[i] -= lr[0];
}
static const char filling[100000] = {1, 2, 3};
const char* filled() { return filling; }
}
"""


def stand_in(folder, crash=""):
    """A compiler that gives a small library, quickly."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.cpp").write_text(SMALL.replace("CRASH", crash))
    made = folder / "small.so"
    command = native_compiler().split()
    subprocess.run([*command, "-O0", "-shared", "-fPIC", str(folder / "small.cpp"), "-o", str(made)], check=True)
    return giving(made, folder)


def giving(made, folder):
    """A compiler that gives a library which is there already."""
    program = folder / "c++"
    text = '#!/bin/sh\nfor last; do :; done\n[ "$last" = -v ] && { echo small >&2; exit; }\n'
    program.write_text(f'{text}echo run >> {folder}/runs\ncp {made} "$last"\n')
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return stand_in(tmp_path_factory.mktemp("compiler"))


@pytest.fixture(scope="module", params=["small", pytest.param("true", marks=pytest.mark.soak)])
def compiler(request, small, tmp_path_factory):
    """One that gives the small library; or, at once, the one that the package's own sources make."""
    if request.param == "small":
        return small
    folder = tmp_path_factory.mktemp("true")
    building._build(native_compiler(), "float32", "bank", folder / "true.so")
    return giving(folder / "true.so", folder)


@pytest.fixture
def cache(tmp_path, monkeypatch, request):
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    module._at.cache_clear()
    yield tmp_path / "cache" / "compiled"
    module._at.cache_clear()


def load():
    return native_library.__wrapped__("float32")


def cut(size):
    return lambda file, content: file.write_bytes(content[: int(size * len(content)) if size < 1 else size])


def flipped(seed, bits):
    def damage(file, content):
        rng, changed = random.Random(seed), bytearray(content)
        for _ in range(bits):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        file.write_bytes(changed)

    return damage


def filled(part):
    def damage(file, content):
        size = len(content) // 8
        file.write_bytes(content[: part * size] + b"\xff" * size + content[(part + 1) * size :])

    return damage


def linked(target):
    def damage(file, content):
        file.unlink()
        file.symlink_to(target)

    return damage


def folder_instead(file, content):
    file.unlink()
    (file / "within").mkdir(parents=True)


def twice(file, content):
    file.write_bytes(2 * content)


def other_mode(file, content):
    file.chmod(0o777)


DAMAGE = {f"cut to {size}": cut(size) for size in (0.0, 1, 4, 64, 4096, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)}
DAMAGE |= {f"{bits} bits, seed {seed}": flipped(seed, bits) for bits in (1, 2, 20, 200) for seed in range(6)}
DAMAGE |= {f"part {part} of ones": filled(part) for part in range(8)}
DAMAGE |= {f"a link to {target}": linked(target) for target in ("/nonexistent/x.so", "/bin/sh", sys.executable)}
DAMAGE |= {"a folder": folder_instead, "twice": twice, "writable by all": other_mode}
DAMAGE |= {text: lambda file, content, text=text: file.write_text(text) for text in ("no library", "#!/bin/sh")}


@needs_compiler
def test_fifty_kinds_of_damage_are_known():
    assert len(DAMAGE) >= 50


@needs_compiler
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_library_is_made_anew_with_one_line(compiler, cache, monkeypatch, capfd, kind):
    monkeypatch.setenv("CXX", str(compiler))
    assert isinstance(load(), ctypes.CDLL)
    (file,) = cache.glob("*.so")
    content = file.read_bytes()
    assert capfd.readouterr().err == ""
    DAMAGE[kind](file, content)
    assert isinstance(load(), ctypes.CDLL)
    assert capfd.readouterr().err == f"headcount: {file} is damaged; it is made anew\n"
    assert file.read_bytes() == content and not file.is_symlink()
    assert [at.name for at in cache.iterdir()] == [file.name]
    before = (compiler.parent / "runs").read_text()
    assert isinstance(load(), ctypes.CDLL) and (compiler.parent / "runs").read_text() == before


CUT_WHILE_LOADED = """
import ctypes, os, sys
from pathlib import Path
from headcount.kernels.cpp.native_library import native_library
libraries = [native_library.__wrapped__("float32") for _ in range(2)]
(file,) = Path(os.environ["HEADCOUNT_CACHE"], "compiled").glob("*.so")
os.truncate(file, 10)
lanes = [library.bank_lanes() for library in libraries]
libraries.append(native_library.__wrapped__("float32"))
print(lanes, libraries[2].bank_lanes(), libraries[2]._handle not in [library._handle for library in libraries[:2]])
"""


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory alone")
def test_a_library_cut_short_while_it_is_loaded_goes_on_and_each_is_its_own(small, tmp_path):
    known = {**os.environ, "HEADCOUNT_CACHE": str(tmp_path / "cache"), "CXX": str(small)}
    known["PYTHONPATH"] = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", CUT_WHILE_LOADED], capture_output=True, text=True, env=known)
    assert (done.returncode, done.stdout) == (0, "[1, 1] 1 True\n"), done
    assert done.stderr.endswith("is damaged; it is made anew\n") and done.stderr.count("\n") == 1


@needs_compiler
def test_a_file_that_changes_between_the_look_and_the_use_is_not_loaded(tmp_path):
    file = CodeCache(tmp_path).file("bank", ".so", lambda scratch: scratch.write_text("it"))
    file.write_text("another")
    with pytest.raises(OSError, match="was changed between two looks"):
        loaded_code(file)


@needs_compiler
@pytest.mark.parametrize(
    ("crash", "said"),
    [
        ("*(volatile int*)0 = 1;", "fails in a trial: signal 11"),
        ("__builtin_trap();", "fails in a trial: signal"),
        ("return;", "fails in a trial: AssertionError"),
    ],
)
def test_a_library_that_crashes_does_so_in_a_child_and_is_not_kept(tmp_path, cache, monkeypatch, capfd, crash, said):
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "compiler", crash)))
    assert load() is None
    err = capfd.readouterr().err
    assert said in err and err.count("\n") == 1 and not list(cache.glob("*.so"))


@needs_compiler
def test_a_library_without_a_function_that_is_called_is_not_kept(tmp_path, cache, monkeypatch, capfd):
    monkeypatch.setattr(building, "CALLED", {"bank": ("bank_lanes", "another")})
    monkeypatch.setenv("CXX", str(stand_in(tmp_path / "compiler")))
    assert load() is None and "AttributeError" in capfd.readouterr().err and not list(cache.glob("*.so"))


@needs_compiler
def test_a_compiler_may_have_options(small, cache, monkeypatch, capfd):
    monkeypatch.setenv("CXX", f"'{small}' -O2 -g")
    assert load() is not None and capfd.readouterr().err == ""
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    assert load() is None and capfd.readouterr().err == (
        "headcount: no compiled banks (CXX names 'no-such-compiler', which is not there)\n"
    )
    monkeypatch.setenv("CXX", "'no end")
    assert load() is None and capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("bytes_said", [r"\377\376\200", r"\033]0;OWNED\007\033[2J", r"", r"\000\000"])
def test_a_compiler_may_say_why_it_fails_in_any_bytes(tmp_path, cache, monkeypatch, capfd, bytes_said):
    program = tmp_path / "c++"
    program.write_text(f'#!/bin/sh\n[ "$1" = -v ] && exit\nprintf "{bytes_said}" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    assert load() is None
    err = capfd.readouterr().err
    assert err.startswith("headcount: no compiled banks (") and err.count("\n") == 1
    assert err.rstrip("\n").isprintable()


@needs_compiler
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("above", [0, 1])
def test_a_folder_that_others_may_write_is_not_used(tmp_path, small, cache, monkeypatch, capfd, mode, above):
    cache.mkdir(parents=True)
    (cache, cache.parent)[above].chmod(mode)
    monkeypatch.setenv("CXX", str(small))
    assert load() is not None
    assert "may be written by others (chmod go-w); what is compiled is not kept" in capfd.readouterr().err
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs to give files to another user")
@pytest.mark.parametrize("above", [0, 1])
def test_a_folder_or_file_of_somebody_else_is_not_used(tmp_path, cache, capfd, above):
    cache.mkdir(parents=True, mode=0o700)
    os.chown((cache, cache.parent)[above], 65534, 65534)
    assert "belongs to somebody else" in why_open(cache)
    assert code_cache().folder != cache
    own = CodeCache(tmp_path)
    file = own.file("bank", ".so", lambda scratch: scratch.write_text("it"))
    os.chown(file, 65534, 65534)
    assert own.find("bank", ".so") is None and not file.exists()


def test_a_link_leads_to_a_folder_that_is_looked_at_instead(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "mine")
    assert "open may be written by others" in why_open(tmp_path / "link")
    (tmp_path / "open").chmod(0o1777)  # as /tmp: others may write beside, and move nothing of mine
    assert why_open(tmp_path / "link") == ""


def test_what_is_under_way_is_in_a_closed_folder_whatever_the_mask(tmp_path):
    seen, mask = [], os.umask(0)
    try:
        make = lambda scratch: (scratch.write_text("it"), seen.append(scratch.parent.stat().st_mode & 0o777))  # noqa: E731
        file = CodeCache(tmp_path).file("bank", ".so", make)
    finally:
        os.umask(mask)
    assert seen == [0o700] and file.stat().st_mode & 0o777 == 0o700 and [file] == list(tmp_path.iterdir())


@pytest.mark.parametrize("own", ["", "relative/cache", "./x", "~", None])
@pytest.mark.parametrize("shared", ["", "relative", ".", None])
def test_a_cache_variable_that_is_empty_or_relative_counts_as_not_set(monkeypatch, tmp_path, own, shared):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in (("HEADCOUNT_CACHE", own), ("XDG_CACHE_HOME", shared)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert user_cache() == tmp_path / ".cache" / "headcount"
    monkeypatch.setenv("HOME", "somewhere")
    assert user_cache().is_absolute()
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/x")
    assert user_cache() == Path("/var/x/headcount")
    monkeypatch.setenv("HEADCOUNT_CACHE", "/var/y")
    assert user_cache() == Path("/var/y")
