"""Sources of a client's credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.client.security.credentials import Credentials, credentials_from_environment, read_tools_file
from raptormq.errors import ConfigError


def test_the_environment_comes_first(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: from-file  # comment\nsecretKey: '1234 5678'\n")
    home = {"ROCKETMQ_HOME": str(tmp_path)}
    assert credentials_from_environment(home) == Credentials("from-file", "1234 5678")
    keys = {"RAPTORMQ_ACCESS_KEY": "a", "RAPTORMQ_SECRET_KEY": "s"}
    assert credentials_from_environment(home | keys) == Credentials("a", "s")


@pytest.mark.parametrize("text", ["", "accessKey:\nsecretKey: ''\n", "#accessKey: a\n#secretKey: b\n"])
def test_a_file_without_keys_gives_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(text)
    assert credentials_from_environment({"ROCKETMQ_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("accessKey: a\nsecretKey: 0123\n", "0123"),
        ("accessKey: a\nsecretKey: 1_000\n", "1_000"),
        ("accessKey: a\nsecretKey: yes\n", "yes"),
        ("accessKey: a\nsecretKey: 'it''s'\n", "it's"),
        ('accessKey: a\nsecretKey: "x\\u0041#y"\n', "xA#y"),
        ("{accessKey: a, secretKey: s}\n", "s"),
        ("---\naccessKey : a\nsecretKey: >-\n  folded\nglobalWhiteRemoteAddresses:\n- 10.0.0.0\n", "folded"),
    ],
)
def test_a_file_is_read_as_yaml(tmp_path: Path, text: str, secret: str) -> None:
    (tmp_path / "tools.yml").write_text(text)
    assert read_tools_file(tmp_path / "tools.yml") == Credentials("a", secret)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("accessKey: a\nsecretKey: @hush\n", r"it is not valid YAML \(line 2\); quote values with special characters$"),
        ("accessKey: a\nsecretKey: 'hush\n", r"it is not valid YAML \(line \d\); quote"),
        ("accessKey: a\nsecretKey: \x01hush\n", r"it is not valid YAML; quote"),
        ("- accessKey: hush\n", "it has no lines of key: value$"),
        ("accessKey: a\nsecretKey: [hush]\n", "accessKey and secretKey must be text$"),
    ],
)
def test_a_file_that_is_no_such_yaml_is_a_mistake_that_shows_no_secret(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "tools.yml").write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_tools_file(tmp_path / "tools.yml")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("text", ["accessKey: only\n", "accessKey: a\nsecretKey:\n", "secretKey: s\n"])
def test_half_of_a_pair_in_a_file_is_a_mistake(tmp_path: Path, text: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(text)
    with pytest.raises(ConfigError, match=r"conf/tools\.yml: give both accessKey and secretKey, or neither"):
        credentials_from_environment({"ROCKETMQ_HOME": str(tmp_path)})


def test_the_secret_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    keys = {"RAPTORMQ_ACCESS_KEY": "a", "RAPTORMQ_SECRET_KEY_FILE": str(file)}
    with pytest.raises(ConfigError, match="secret: No such file"):
        credentials_from_environment(keys)
    file.write_text("hush\n")
    assert credentials_from_environment(keys) == Credentials("a", "hush")
    with pytest.raises(ConfigError, match="not both"):
        credentials_from_environment(keys | {"RAPTORMQ_SECRET_KEY": "s"})
    file.write_text("\n")
    with pytest.raises(ConfigError, match="secret holds no secret key: it is empty"):
        credentials_from_environment(keys)
    file.write_bytes(b"hush\xff")
    with pytest.raises(ConfigError, match=r"secret: it is not UTF-8 text$"):
        credentials_from_environment(keys)


def test_half_of_a_pair_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="set both"):
        credentials_from_environment({"RAPTORMQ_ACCESS_KEY": "a"})
