"""Credentials, TLS and keys of a source and a sink: the client gets them, they override the environment, and no secret
is shown.
"""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pytest

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.options import parse_source_options
from pyspark_raptormq.sink.options import parse_sink_options
from raptormq.client import ClientTls, Credentials

SERVER = {"nameServer": "127.0.0.1:9876"}
HUSH = "hush-hush"


def connection(**given: str) -> Connection:
    """Return the client configuration of the options, which is the same for source and sink."""
    source = parse_source_options(SERVER | given | {"subscribe": "t"}, streaming=None).connection
    assert parse_sink_options(SERVER | given | {"topic": "t"}).connection == source
    return source


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAPTORMQ_ACCESS_KEY", "of-the-environment")
    monkeypatch.setenv("RAPTORMQ_SECRET_KEY", "its-secret")
    monkeypatch.setenv("RAPTORMQ_TLS", "true")


def test_the_environment_counts_where_options_say_nothing() -> None:
    config = connection().client_config()
    assert config.credentials == Credentials("of-the-environment", "its-secret")
    assert config.tls == ClientTls()
    assert config.request_timeout == 5.0


def test_options_win_over_the_environment(tmp_path: Path) -> None:
    config = connection(accessKey="me", secretKey=HUSH, securityToken="tok", tls="false").client_config()
    assert config.credentials == Credentials("me", HUSH, "tok")
    assert config.tls is None
    tls = connection(tlsCa="ca.pem", tlsCert="c.pem", tlsKey="k.pem", tlsKeyPassword=HUSH, tlsCheckName="true")
    expected = ClientTls("ca.pem", "c.pem", "k.pem", HUSH, auth_server=True, check_name=True)
    assert tls.client_config().tls == expected
    key = base64.b64encode(bytes(16)).decode()
    (tmp_path / "keys").write_text(f"k1 = {key}\n", encoding="utf-8")
    keys = connection(encryptionKeyFile=str(tmp_path / "keys")).client_config().keys
    assert keys is not None
    assert keys.current() == ("k1", bytes(16))


def test_a_file_is_read_where_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first\n", encoding="utf-8")
    named = connection(accessKey="me", secretKeyFile=str(file))
    assert b"first" not in pickle.dumps(named)
    file.write_text("second\n", encoding="utf-8")
    assert pickle.loads(pickle.dumps(named)).client_config().credentials == Credentials("me", "second")
    file.write_text(" \n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"option secretKeyFile: .*secret is empty"):
        named.client_config()
    file.unlink()
    with pytest.raises(OptionError, match=r"option secretKeyFile: cannot read .*secret: No such file"):
        named.client_config()


def test_no_secret_is_shown() -> None:
    parsed = parse_sink_options(
        SERVER
        | {"accessKey": "me", "secretKey": HUSH, "securityToken": HUSH, "tls": "true"}
        | {"tlsCert": "c.pem", "tlsKey": "k.pem", "tlsKeyPassword": HUSH, "topic": "t"}
    )
    assert HUSH not in f"{parsed!r} {parsed.connection} {parsed.connection.client_config()}"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"accessKey": "me"}, "give accessKey together with secretKey or secretKeyFile"),
        ({"secretKey": HUSH}, "give accessKey together with secretKey or secretKeyFile"),
        ({"securityToken": HUSH}, "give accessKey together with secretKey or secretKeyFile"),
        (
            {"accessKey": "me", "secretKey": HUSH, "secretKeyFile": "x"},
            "secretKey and secretKeyFile exclude",
        ),
        ({"encryptionKeyFile": "x", "encryptionKeyFolder": "y"}, "exclude each other"),
        ({"tls": "false", "tlsCa": "ca.pem"}, "option tls is false, but other TLS options are set"),
        ({"tlsCert": "c.pem"}, "a client certificate and its key must be given together"),
        ({"tlsCheckName": "true"}, "can be checked only if the certificate is verified"),
        ({"secretKey": " "}, "option secretKey: names no key"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        connection(**given)
    assert reason in str(caught.value)
    assert HUSH not in str(caught.value)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    named = connection(encryptionKeyFolder=str(tmp_path / "nowhere"))
    with pytest.raises(OptionError, match="option encryptionKeyFolder: cannot read the key folder"):
        named.client_config()


def test_a_misspelt_option_is_near_another_one_or_none() -> None:
    with pytest.raises(OptionError, match="unknown option 'foo'; known are accessKey, "):
        connection(foo="x")
    with pytest.raises(OptionError, match=r"unknown option 'secretkeyfil'; did you mean secretKeyFile\?"):
        connection(secretkeyfil="x")
