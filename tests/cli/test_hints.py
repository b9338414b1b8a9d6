"""Hints in error messages."""

from __future__ import annotations

import pytest

from raptormq.cli.exit_codes import CommandFailed
from raptormq.cli.hints import explaining
from raptormq.errors import ConnectError, KeyMissing, MessageError, NoRoute, RaptorMQError, ServerError

NO_FILTER = "The broker does not support consumer to filter message by SQL92"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConnectError("no connection to 10.0.0.1:9876: refused"), "raptormq dev"),
        (ConnectError("no connection to 10.0.0.7:10911: refused"), "brokerIP1"),
        (ConnectError("no connection to 10.0.0.1:9876: it ended the TLS handshake"), "--no-tls"),
        (ConnectError("no connection to 10.0.0.1:9876: [SSL: CERTIFICATE_VERIFY_FAILED] no"), "--tls-ca"),
        (NoRoute.to("t"), "raptormq topic list"),
        (KeyMissing("a message is encrypted with the key 'k1'"), "RAPTORMQ_ENCRYPTION_KEYS"),
        (
            ServerError(1, "The broker does not support consumer to filter message by SQL92"),
            "enablePropertyFilter=true",
        ),
        (ServerError(14, "messages 0 to 2 of the queue are encrypted as one with the key 'k1'"), "raptormq consume"),
    ],
)
def test_failures_of_beginners_get_a_hint(error: RaptorMQError, hint: str) -> None:
    with pytest.raises(CommandFailed, match=hint) as failed, explaining("10.0.0.2:9876; 10.0.0.1:9876"):
        raise error
    assert str(failed.value).startswith(str(error))


def test_other_failures_pass() -> None:
    with pytest.raises(MessageError, match=r"^the topic is blank$"), explaining("10.0.0.1:9876"):
        raise MessageError("the topic is blank")
    with pytest.raises(ServerError, match=r"no space$"), explaining("10.0.0.1:9876"):
        raise ServerError(14, "no space")
