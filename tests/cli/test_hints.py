"""What the user is told to do next."""

from __future__ import annotations

import pytest

from raptormq.cli.hints import CommandFailed, explaining
from raptormq.errors import ConnectError, MessageError, NoRoute, RaptorMQError


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConnectError("no connection to 10.0.0.1:9876: refused"), "raptormq dev"),
        (ConnectError("no connection to 10.0.0.7:10911: refused"), "brokerIP1"),
        (ConnectError("no connection to 10.0.0.1:9876: it ended the TLS handshake"), "--no-tls"),
        (ConnectError("no connection to 10.0.0.1:9876: [SSL: CERTIFICATE_VERIFY_FAILED] no"), "--tls-ca"),
        (NoRoute("no route for topic t"), "raptormq topic list"),
    ],
)
def test_network_failures_get_a_hint(error: RaptorMQError, hint: str) -> None:
    with pytest.raises(CommandFailed, match=hint) as failed, explaining("10.0.0.2:9876; 10.0.0.1:9876"):
        raise error
    assert str(failed.value).startswith(str(error))


def test_other_failures_pass() -> None:
    with pytest.raises(MessageError, match=r"^the topic is blank$"), explaining("10.0.0.1:9876"):
        raise MessageError("the topic is blank")
