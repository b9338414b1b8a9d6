"""Keys from files, the environment and folders: read, rotated, and missing with a helpful error."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace

import pytest

from raptormq.client import ClientConfig
from raptormq.client.security import keys as encryption_keys
from raptormq.client.security.keys import (
    FOLDER_VARIABLE,
    KEYS_VARIABLE,
    EnvironmentKeys,
    KeyFile,
    KeyFolder,
    keys_from_environment,
)
from raptormq.errors import ConfigError, KeyMissing


def text(letter: bytes, size: int = 32) -> str:
    return base64.b64encode(letter * size).decode()


def test_a_file_names_keys_and_the_first_is_current(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# ours\n new = {text(b'n', 16)} # since May\n\nold={text(b'o')}\n", encoding="utf-8")
    keys = KeyFile(path)
    assert keys.current() == ("new", b"n" * 16)
    assert keys.key("old") == b"o" * 32


def test_a_key_that_is_missing_is_looked_for_anew_and_named(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"old={text(b'o')}", encoding="utf-8")
    keys = KeyFile(path)
    path.write_text(f"old={text(b'o')}\nnew={text(b'n')}", encoding="utf-8")
    assert keys.key("new") == b"n" * 32
    with pytest.raises(KeyMissing, match=r"keys has no key 'gone', which a message is encrypted with; it has new, old"):
        keys.key("gone")


def test_another_current_key_is_noticed_and_a_broken_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption_keys, "_REFRESH_S", -1.0)
    for name, letter in (("k1", b"1"), ("k2", b"2")):
        (tmp_path / name).write_text(text(letter) + "\n", encoding="utf-8")
    (tmp_path / "current").write_text("k1\n", encoding="utf-8")
    (tmp_path / "..data").mkdir()
    keys = KeyFolder(tmp_path)
    assert keys.current() == ("k1", b"1" * 32)
    (tmp_path / "current").write_text("k2", encoding="utf-8")
    assert keys.current() == ("k2", b"2" * 32)
    (tmp_path / "current").write_text("k3", encoding="utf-8")
    assert keys.current() == ("k2", b"2" * 32)


def test_a_key_that_was_corrected_under_its_name_is_read_after_a_while_and_not_with_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(encryption_keys, "time", SimpleNamespace(monotonic=lambda: now[0]))
    path = tmp_path / "keys"
    path.write_text(f"k1={text(b'x')}", encoding="utf-8")
    keys = KeyFile(path)
    path.write_text(f"k1={text(b'1')}", encoding="utf-8")
    now[0] += encryption_keys._REFRESH_S
    assert keys.key("k1") == b"x" * 32
    now[0] += 0.1
    assert keys.key("k1") == b"1" * 32
    path.write_text(f"k1={text(b'2')}", encoding="utf-8")
    assert keys.key("k1") == b"1" * 32


def test_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    assert keys_from_environment() is None
    with pytest.raises(ConfigError, match=f"environment variable {KEYS_VARIABLE} has no key"):
        EnvironmentKeys()
    (tmp_path / "current").write_text("k", encoding="utf-8")
    (tmp_path / "k").write_text(text(b"k"), encoding="utf-8")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert isinstance(keys_from_environment(), KeyFolder)
    monkeypatch.setenv(KEYS_VARIABLE, f"a={text(b'a', 24)},b={text(b'b')}")
    keys = keys_from_environment()
    assert isinstance(keys, EnvironmentKeys)
    assert keys.current() == ("a", b"a" * 24)
    assert keys.key("b") == b"b" * 32


def test_a_variable_whose_bytes_are_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, f"k\udcff={text(b'k')}")
    with pytest.raises(ConfigError, match="is not a valid key name"):
        EnvironmentKeys()


def test_keys_that_cannot_be_read_are_an_error_only_for_who_needs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "later"
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    keys = ClientConfig("127.0.0.1:9876").keys
    assert keys is not None
    with pytest.raises(ConfigError, match=f"cannot read the key folder {folder}"):
        keys.current()
    with pytest.raises(KeyMissing, match=f"with the key 'k': cannot read the key folder {folder}"):
        keys.key("k")
    folder.mkdir()
    (folder / "current").write_text("k", encoding="utf-8")
    (folder / "k").write_text(text(b"k"), encoding="utf-8")
    assert keys.key("k") == b"k" * 32
    assert keys.current() == ("k", b"k" * 32)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# none",
        "k",
        "k=",
        "k=!",
        "k=é",
        f"k={text(b'k', 15)}",
        f"k={text(b'k', 33)}",
        f"={text(b'k')}",
        f"{'k' * 256}={text(b'k')}",
        f"k={text(b'k')}\nk={text(b'k')}",
        f"k={text(b'k')},j={text(b'j')},k ={text(b'l')}",
    ],
)
def test_files_that_hold_no_usable_key_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError):
        KeyFile(path)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for make in (KeyFile, KeyFolder):
        with pytest.raises(ConfigError, match="cannot read the key"):
            make(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="has no key: expected one file"):
        KeyFolder(tmp_path)


@pytest.mark.parametrize("current", [None, "", "k3"])
def test_a_folder_says_what_to_put_into_current(tmp_path: Path, current: str | None) -> None:
    for name in ("k1", "k2"):
        (tmp_path / name).write_text(text(b"k"), encoding="utf-8")
    if current is not None:
        (tmp_path / "current").write_text(current, encoding="utf-8")
    expected = "no key 'k3'" if current else "no file 'current' with the name of the key to encrypt with: k1, k2"
    with pytest.raises(ConfigError, match=expected):
        KeyFolder(tmp_path)
