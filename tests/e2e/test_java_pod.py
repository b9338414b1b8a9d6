"""The pods of Java programs in the end-to-end run: what they report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.errors import Failed
from e2e.java_pod import JavaPod
from e2e.kubernetes import Kubernetes

ERROR = ["12:00:00.000 ERROR PullMsgThread - An error occurred", "\tat Pull.run(Pull.java:1)", "\t... 3 common frames"]


class EndedPod(Kubernetes):
    """A pod whose program has ended, with its output."""

    def __init__(self, phase: str, log: list[str]) -> None:
        super().__init__("fake", Path())
        self._phase, self._log = phase, log
        self.deleted = False

    def get(self, *arguments: str) -> dict[str, Any]:
        return {"status": {"phase": self._phase}}

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        self.deleted |= arguments[0] == "delete"
        return "\n".join(self._log) if arguments[0] == "logs" else ""


def test_errors_that_are_logged_after_the_report_do_not_hide_it() -> None:
    pod = EndedPod("Succeeded", ["sending", *ERROR, '{"missing": 0}', *ERROR])
    assert JavaPod(pod, "client").end(1) == {"missing": 0}
    assert pod.deleted


@pytest.mark.parametrize(("phase", "log"), [("Failed", ['{"missing": 0}', *ERROR]), ("Succeeded", ["sending", *ERROR])])
def test_a_program_without_a_result_is_noticed_with_its_output(phase: str, log: list[str]) -> None:
    pod = EndedPod(phase, log)
    with pytest.raises(Failed, match=r"client failed:(\n.*)*3 common frames"):
        JavaPod(pod, "client").end(1)
    assert not pod.deleted
