"""Names of models: what only the hub could know is refused at once where it cannot be asked; the shell completes."""

import time

import pytest

from headcount.cli.door import main
from headcount.nets.pretrained.model_places import folder_of, hub_copy, reachable


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No hub: its address refuses connections, and nothing was fetched before."""
    for proxy in ("https_proxy", "http_proxy", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.mark.parametrize("words", [["lens", "owner/name", "--text", "a"], ["compress", "name", "--measure", "weights"]])
def test_a_hub_name_without_a_network_is_refused_at_once(words, alone, capsys):
    began = time.perf_counter()
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2 and time.perf_counter() - began < 10  # mostly a second
    said = capsys.readouterr().err
    assert "hub cannot be reached" in said and said.count("\n") == 1


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
