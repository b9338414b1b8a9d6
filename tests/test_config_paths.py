"""Paths in settings files: which path a value means, and which values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.config.config import BrokerConfig
from raptormq.config_file import known_keys
from raptormq.config_paths import file_path, file_paths, home_path, path_or_none
from raptormq.errors import ConfigError
from raptormq.namesrv.config import NameServerConfig
from raptormq.transport.tls.settings import TLS_KEYS


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``home`` the home folder and ``work`` the working directory."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")


def refusal(text: str) -> str:
    with pytest.raises((ValueError, ConfigError)) as caught:
        file_path(text)
    return str(caught.value)


@pytest.mark.parametrize("text", ["/data/store", "store", "./store", "../a b/store", "/data/st~re", "/data/$1", "/x#1"])
def test_plain_path_is_used_as_it_stands(text: str) -> None:
    assert file_path(text) == path_or_none(text) == text


@pytest.mark.parametrize(
    ("text", "below"),
    [("~/store", "store"), ("${user.home}/store/a", "store/a"), ("~", ""), ("${user.home}", ""), ("~//store", "store")],
)
def test_home_folder_at_the_beginning_is_replaced(tmp_path: Path, text: str, below: str) -> None:
    assert file_path(text) == str(tmp_path / "home" / below)


@pytest.mark.parametrize("text", ["~/store", "${user.home}/store"])
def test_home_folder_is_refused_with_both_paths_if_the_literal_folder_has_contents(tmp_path: Path, text: str) -> None:
    literal, meant = tmp_path / "work" / text, tmp_path / "home" / "store"
    literal.mkdir(parents=True)
    assert file_path(text) == str(meant)
    (literal / "commitlog").mkdir()
    complaint = refusal(text)
    assert f"{text} means {meant}" in complaint
    assert f"set the path {literal}" in complaint
    assert file_path(str(literal)) == str(literal)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a path"),
        ("/a,/b", "one path, because only one folder is used"),
        ("/a,", "one path"),
        ("~/a,~/b", "one path"),
        ("a,b", "one path"),
        ("D:/rocketmq/store", "no drive letters"),
        ("d:\\rocketmq\\store", "no drive letters"),
        ("C:store", "no drive letters"),
        ("file:///data/store", "not a URL"),
        ("file:/data", "not a URL"),
        ("hdfs://host/data", "not a URL"),
        ("/data/store  # messages", "without a comment"),
        ("~/store # messages", "without a comment"),
        ('"/data/store"', "without quotation marks"),
        ("'/data'", "without quotation marks"),
        ("~admin/store", "only ~/ at its beginning"),
        ("$HOME/store", "without variables"),
        ("/data/${HOSTNAME}/store", "without variables"),
        ("~/${broker}", "without variables"),
        ("{{ .Values.path }}", "without variables"),
        ("<path>", "without variables"),
        ("%ROCKETMQ_HOME%/store", "without variables"),
        ("/data/\x00", "without control characters"),
        ("/data\u200b/store", "without control characters"),
    ],
)
def test_text_that_is_not_one_path_of_this_system_is_refused(text: str, expected: str) -> None:
    assert expected in refusal(text)


@pytest.mark.parametrize("text", ["D:/store", "$HOME/store", "a,b"])
def test_refusal_names_the_literal_folder_that_earlier_versions_used(tmp_path: Path, text: str) -> None:
    assert "earlier versions" not in refusal(text)
    (tmp_path / "work" / text / "commitlog").mkdir(parents=True)
    assert f"(earlier versions used {tmp_path / 'work' / text}, which exists)" in refusal(text)


def test_existing_path_from_the_root_is_used_whatever_its_characters_are(tmp_path: Path) -> None:
    for name in ("${x}", "a # b", "~", "{{x}}"):
        folder = tmp_path / name
        folder.mkdir()
        assert file_path(str(folder)) == str(folder)


def test_existing_folder_with_a_comma_is_refused_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    assert "one path" in refusal(str(tmp_path / "a,b"))
    (tmp_path / "ca,1.pem").write_text("")
    assert file_path(str(tmp_path / "ca,1.pem")) == str(tmp_path / "ca,1.pem")


def test_list_of_paths_replaces_the_home_folder_in_each(tmp_path: Path) -> None:
    assert file_paths("/etc/a, ~/b,") == f"/etc/a,{tmp_path / 'home' / 'b'}"
    assert file_paths("") == ""


def test_unknown_home_folder_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", unknown)
    for text in ("~", "~/store"):
        with pytest.raises(ConfigError, match="the home folder is unknown: set HOME"):
            file_path(text)
    with pytest.raises(ConfigError, match="the home folder is unknown: set HOME"):
        home_path("store")


IN_COMMON = {key for key in TLS_KEYS if key.endswith("Path") or key == "tls.config.file"}
BROKER_PATHS = {key for key in known_keys(BrokerConfig) if "path" in key.lower()} | IN_COMMON
NAME_SERVER_PATHS = {key for key in known_keys(NameServerConfig) if "path" in key.lower()} | IN_COMMON
NEEDED = {
    "tls.server.mode": "enforcing", "tls.server.certPath": "a.pem", "tls.server.keyPath": "a.key",
    "tls.server.trustCertPath": "ca.pem", "useTLS": "true",
}  # fmt: skip


def test_paths_of_both_servers_are_found() -> None:
    assert {"storePathRootDir", "storePathCommitLog", "superUserPaths", "innerClientCredentialsPath"} <= BROKER_PATHS
    assert {"kvConfigPath", "configStorePath", "authConfigPath", "tls.server.certPath"} <= NAME_SERVER_PATHS


@pytest.mark.parametrize("key", sorted(BROKER_PATHS))
@pytest.mark.parametrize("text", ["D:/store", "$HOME/store", "/data/store # comment", '"/data/store"'])
def test_every_path_of_a_broker_is_checked(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {key} = .* is not usable: expected a path"):
        BrokerConfig.from_pairs(NEEDED | {key: text})


@pytest.mark.parametrize("key", sorted(key for key in NAME_SERVER_PATHS if not key.startswith("tls.client")))
@pytest.mark.parametrize("text", ["D:/store", "$HOME/store", "/data/store # comment", '"/data/store"'])
def test_every_path_of_a_name_server_is_checked(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {key} = .* is not usable: expected a path"):
        NameServerConfig.from_pairs(NEEDED | {key: text})


def test_more_folders_of_the_commit_log_are_refused() -> None:
    with pytest.raises(ConfigError, match="readOnlyCommitLogStorePaths = '/old' is not supported: stop the server"):
        BrokerConfig.from_pairs({"readOnlyCommitLogStorePaths": "/old"})
    BrokerConfig.from_pairs({"readOnlyCommitLogStorePaths": ""})
