"""Secrets of a client are in none of its texts: representations, errors, and stack traces with local variables."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ClientTls,
    Credentials,
    EnvironmentKeys,
    KeyFile,
    KeyFolder,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)
from raptormq.errors import ConfigError, RaptorMQError
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import SIGNATURE, sign
from tests.broker.harness import running
from tests.broker.security.test_access_control import SECURED

SECRET = "hush-hush-hush"
KEY = base64.b64encode(SECRET.ljust(16, "!").encode()).decode()
CREDENTIALS = Credentials("root", SECRET, f"{SECRET}-token")


def shows_secret(text: str) -> bool:
    return SECRET in text or KEY.rstrip("=") in text


def config(tmp_path: Path, address: str = "127.0.0.1:1") -> ClientConfig:
    file = tmp_path / "keys"
    file.write_text(f"k1 = {KEY}\n")
    return ClientConfig(
        address, request_timeout=1.0, credentials=CREDENTIALS, tls=ClientTls(key_password=SECRET), keys=KeyFile(file)
    )


def test_no_object_shows_its_secret(tmp_path: Path) -> None:
    settings = config(tmp_path)
    command = RemotingCommand(3001, {"username": "x"}, f'{{"password":"{SECRET}"}}'.encode())
    sign(command, CREDENTIALS)
    signature = command.ext_fields[SIGNATURE]
    assert isinstance(settings.keys, KeyFile)
    objects = [
        settings,
        settings.credentials,
        settings.tls,
        settings.keys,
        settings.keys._loaded,
        Producer(client_config=settings),
        PullConsumer(client_config=settings),
        PushConsumer("g", client_config=settings),
        AdminClient(client_config=settings),
        command,
    ]
    for each in objects:
        for text in (repr(each), str(each), f"{each}", f"{each!r}"):
            assert not shows_secret(text)
            assert signature not in text


MISTAKEN_KEYS = {
    "a key without a name": KEY,
    "a key without a name or what fills it up": KEY.rstrip("="),
    "a key as its name": f"{KEY.rstrip('=')} = x",
    "twice": f"{KEY.rstrip('=')} = {KEY}\n{KEY.rstrip('=')} = {KEY}",
    "too long": f"k1 = {KEY}{KEY}",
    "not printable": f"{KEY}\x01 = {KEY}",
}


@pytest.mark.parametrize("case", MISTAKEN_KEYS)
def test_a_mistake_with_keys_does_not_show_them(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text(MISTAKEN_KEYS[case])
    monkeypatch.setenv("KEYS", MISTAKEN_KEYS[case])
    sources: tuple[Callable[[], object], ...] = (lambda: KeyFile(file), lambda: EnvironmentKeys("KEYS"))
    for source in sources:
        with pytest.raises(ConfigError) as error:
            source()
        assert not shows_secret(str(error.value))
        assert str(error.value)


def test_a_key_where_its_name_belongs_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "k1").write_text(KEY)
    (tmp_path / "current").write_text(KEY)
    with pytest.raises(ConfigError, match="has no key of 24 characters") as error:
        KeyFolder(tmp_path)
    assert not shows_secret(str(error.value))


async def test_no_error_shows_a_secret_not_even_with_its_local_variables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Format a stack trace like error reporting tools."""
    with caplog.at_level(logging.DEBUG):
        async with running(tmp_path / "store", SECURED) as broker:
            for address in (broker.address, "127.0.0.1:1"):
                settings = ClientConfig(address, request_timeout=1.0, credentials=CREDENTIALS, keys=None, tls=None)
                with pytest.raises(RaptorMQError) as error:
                    async with Producer(client_config=settings) as producer:
                        await producer.send(Message("t", b"x"), timeout=1.0)
                trace = "".join(traceback.TracebackException.from_exception(error.value, capture_locals=True).format())
                assert "producer" in trace
                assert not shows_secret(trace)
    assert not shows_secret(caplog.text)
