"""TLS settings with RocketMQ's names, and its file tls.properties."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raptormq.errors import ConfigError
from raptormq.transport.tls import settings as tls_settings
from raptormq.transport.tls.contexts import ClientTls, ServerTls
from raptormq.transport.tls.settings import client_tls, server_tls
from tests.certificates import Authority, encrypt_key

CERTIFICATE = {"tls.server.certPath": "c.pem", "tls.server.keyPath": "k.pem"}


@pytest.fixture(autouse=True)
def _no_file_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_settings, "DEFAULT_FILE", "/nowhere/tls.properties")


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({}, None),
        ({"tls.test.mode.enable": "false"}, None),
        ({"tls.server.mode": "disabled"} | CERTIFICATE, None),
        (CERTIFICATE, ServerTls(False, "c.pem", "k.pem")),
        (CERTIFICATE | {"tls.server.mode": "enforcing"}, ServerTls(True, "c.pem", "k.pem")),
        (CERTIFICATE | {"tls.server.keyPassword": "x"}, ServerTls(False, "c.pem", "k.pem", "x")),
        (CERTIFICATE | {"tls.test.mode.enable": "true"}, ServerTls()),
        ({"tls.server.mode": "permissive"}, ServerTls()),
        ({"tls.server.mode": "enforcing"}, ServerTls(True)),
        (
            CERTIFICATE | {"tls.server.need.client.auth": "REQUIRE", "tls.server.trustCertPath": "a.pem"},
            ServerTls(False, "c.pem", "k.pem", "", "a.pem", "require"),
        ),
        (
            CERTIFICATE | {"tls.server.need.client.auth": "optional", "tls.server.trustCertPath": "a.pem"},
            ServerTls(False, "c.pem", "k.pem", "", "a.pem", "optional"),
        ),
        (CERTIFICATE | {"tls.server.need.client.auth": "optional"}, ServerTls(False, "c.pem", "k.pem")),
    ],
)
def test_servers(pairs: dict[str, str], expected: ServerTls | None) -> None:
    assert server_tls(pairs) == expected


@pytest.mark.parametrize(
    ("pairs", "complaint"),
    [
        ({"tls.server.mode": "strict"}, "expected one of permissive, enforcing, disabled"),
        ({"tls.server.certPath": "c.pem"}, "belong together"),
        ({"tls.server.keyPath": "k.pem"}, "belong together"),
        ({"tls.server.mode": "enforcing", "tls.test.mode.enable": "false"}, "needs tls.server.certPath"),
        ({"tls.test.mode.enable": "yes"}, "expected true or false"),
        (CERTIFICATE | {"tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        (
            CERTIFICATE | {"tls.server.need.client.auth": "optional", "tls.server.authClient": "true"},
            "needs tls.server.trustCertPath",
        ),
        (CERTIFICATE | {"tls.server.need.client.auth": "maybe"}, "expected one of none, optional, require"),
        ({"tls.config.file": "/nowhere/else.properties"}, "cannot read settings file /nowhere/else.properties"),
    ],
)
def test_servers_that_cannot_be(pairs: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_tls(pairs)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({}, None),
        ({"useTLS": "false", "tls.server.mode": "enforcing"}, None),
        ({"useTLS": "true"}, ClientTls()),
        ({"tls.enable": "true"}, ClientTls()),
        ({"useTLS": "true", "tls.enable": "false"}, ClientTls()),
        ({"tls.server.mode": "enforcing"}, ClientTls()),
        (
            {"useTLS": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": "a.pem"},
            ClientTls("a.pem", auth_server=True),
        ),
    ],
)
def test_clients(pairs: dict[str, str], expected: ClientTls | None) -> None:
    assert client_tls(pairs) == expected


def test_half_a_client_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be given together"):
        client_tls({"useTLS": "true", "tls.client.certPath": "c.pem"})


def test_the_file_goes_over_the_settings_but_not_over_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(
        "tls.server.mode=disabled\ntls.test.mode.enable=false\ntls.server.certPath=file.pem\n"
        "tls.server.keyPath=file.key\ntls.client.trustCertPath=file-ca.pem\ntls.client.authServer=true\n"
    )
    pairs = CERTIFICATE | {"tls.config.file": str(path), "tls.server.mode": "enforcing", "tls.test.mode.enable": "true"}
    assert server_tls(pairs) == ServerTls(True, "file.pem", "file.key")
    assert client_tls(pairs) == ClientTls("file-ca.pem", auth_server=True)


def test_the_file_of_the_machine_is_read_when_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.certPath=file.pem\ntls.server.keyPath=file.key\n")
    monkeypatch.setattr(tls_settings, "DEFAULT_FILE", str(path))
    assert server_tls({}) == ServerTls(False, "file.pem", "file.key")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    one, other = authority.issue("one"), authority.issue("other")
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    for tls, complaint in (
        (ServerTls(False, str(one.cert), str(other.key)), "(?i)key.values.mismatch"),
        (ServerTls(False, str(junk), str(one.key)), "cannot use certificate .*junk"),
        (ServerTls(False, str(one.cert), str(encrypt_key(one, "secret")), "wrong"), "cannot use certificate"),
        (ServerTls(False, str(one.cert), str(one.key), trust_cert_path=str(junk)), "cannot use the trusted"),
        (ServerTls(False, str(one.cert), str(tmp_path)), "cannot read .*: Is a directory"),
        (ServerTls(False, str(one.cert), str(pipe)), "cannot read .*pipe.pem: it is a pipe"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            tls.context()
    ServerTls(False, str(one.cert), str(encrypt_key(one, "secret")), "secret").context()


def test_a_password_is_never_shown() -> None:
    assert "hush" not in repr(ServerTls(False, "c", "k", "hush")) + repr(ClientTls(key_password="hush"))


def test_a_name_is_checked_on_verified_certificates_only() -> None:
    with pytest.raises(ConfigError, match="verified"):
        ClientTls(check_name=True)
