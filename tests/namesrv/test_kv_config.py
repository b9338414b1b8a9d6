"""The key-value store and its file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from raptormq.errors import ConfigError
from raptormq.namesrv.kv_config import KvConfig


def test_values_survive_a_restart_in_the_layout_of_the_reference(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    store = KvConfig(path)
    store.load()
    store.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    store.put("ORDER_TOPIC_CONFIG", "gone", "x")
    store.put("other", "k", "ü")
    store.delete("ORDER_TOPIC_CONFIG", "gone")
    assert json.loads(path.read_text("utf-8")) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:4"}, "other": {"k": "ü"}}
    }
    again = KvConfig(path)
    again.load()
    assert again.get("other", "k") == "ü"
    assert again.namespace("ORDER_TOPIC_CONFIG") == {"orders": "broker-a:4"}


def test_what_is_not_there(tmp_path: Path) -> None:
    store = KvConfig(tmp_path / "kvConfig.json")
    store.load()
    assert store.get("ns", "k") is None
    assert store.namespace("ns") is None
    store.delete("ns", "k")
    assert not (tmp_path / "kvConfig.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"configTable": {"ns": 1}}', "{"])
def test_a_damaged_file_is_one_error_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"kvConfig\.json is damaged .* remove .*; without it ordered topics"):
        KvConfig(path).load()


def test_the_backup_takes_the_place_of_a_damaged_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "kvConfig.json"
    store = KvConfig(path)
    store.put("ns", "k", "1")
    store.put("ns", "k", "2")
    path.write_bytes(bytes(path.stat().st_size))
    again = KvConfig(path)
    again.load()
    assert again.get("ns", "k") == "1"
    assert "its backup" in caplog.text
    again.put("ns", "other", "3")
    assert json.loads((tmp_path / "kvConfig.json.bak").read_text()) == {"configTable": {"ns": {"k": "1"}}}


def test_who_may_read_the_file_may_read_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("kvConfig.json")
    KvConfig(path).put("ns", "k", "1")
    path.chmod(0o640)
    KvConfig(path).put("ns", "k", "2")
    assert stat.S_IMODE((tmp_path / "kvConfig.json").stat().st_mode) == 0o640


def test_a_value_that_cannot_be_kept_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = KvConfig(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(ConfigError, match="cannot write"):
        store.put("ns", "k", "v")
    assert store.get("ns", "k") is None
