"""The key-value store and its file."""

from __future__ import annotations

import json
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
def test_a_damaged_file_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not a key-value file"):
        KvConfig(path).load()


def test_a_value_that_cannot_be_kept_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = KvConfig(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        store.put("ns", "k", "v")
    assert store.get("ns", "k") is None
