"""Access control in the end-to-end run: a refusal is told from a request without an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e import access_control
from e2e.errors import Failed, Unanswered
from e2e.kubernetes import Kubernetes

SIGNATURE = "AclException: check signature failed"
NO_NAME = "AclException: username cannot be null"
BUSY = "error dialing backend: EOF"


class FakeKubernetes(Kubernetes):
    """A cluster whose command line fails with a text, or succeeds without one."""

    def __init__(self, error: str) -> None:
        super().__init__("fake", Path())
        self._error = error

    def get(self, *arguments: str) -> dict[str, Any]:
        return {"status": {"nameServerAddress": "demo-namesrv:9876"}}

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        if self._error:
            raise Unanswered(self._error)
        return ""


@pytest.mark.parametrize(("error", "accepted"), [("", True), (SIGNATURE, False)])
def test_a_password_is_accepted_or_refused(error: str, accepted: bool) -> None:
    assert access_control._accepts(FakeKubernetes(error), "demo-namesrv:9876", "x") == accepted


def test_a_password_without_an_answer_is_asked_for_again() -> None:
    with pytest.raises(Unanswered, match="error dialing backend"):
        access_control._accepts(FakeKubernetes(BUSY), "demo-namesrv:9876", "x")


def test_an_unsigned_request_is_refused() -> None:
    assert access_control._refuses_the_unsigned(FakeKubernetes(NO_NAME))


def test_an_unsigned_request_without_an_answer_is_sent_again() -> None:
    with pytest.raises(Unanswered, match="error dialing backend"):
        access_control._refuses_the_unsigned(FakeKubernetes(BUSY))


def test_an_unsigned_request_that_is_answered_ends_the_run() -> None:
    with pytest.raises(Failed, match="an unsigned request was answered") as raised:
        access_control._refuses_the_unsigned(FakeKubernetes(""))
    assert not isinstance(raised.value, Unanswered)
