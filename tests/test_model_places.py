"""Names of models: what only the hub could know is refused at once where it cannot be asked; the shell completes."""

import socket
import threading

import pytest

from headcount.cli.door import main
from headcount.nets.pretrained import model_places
from headcount.nets.pretrained.model_places import folder_of, hub_copy, reachable


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
