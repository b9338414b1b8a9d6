"""Requests of the end-to-end run: which are repeated while the API server does not answer, and which are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import kubernetes, tools
from e2e.errors import Failed, Unanswered
from e2e.kubernetes import Kubernetes

TRANSPORT = "Error from server: etcdserver: request timed out"
REFUSED = "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?"
VERDICT = 'Error from server (NotFound): pods "x" not found'
KUBECTL = """#!/bin/sh
echo "$*" >> {calls}
if [ "$(grep -c "" {calls})" -le {failures} ]; then echo '{error}' >&2; exit 1; fi
echo done
"""


class Answers:
    """A kubectl on the PATH that fails a number of times with a text, and then succeeds."""

    def __init__(self, folder: Path) -> None:
        self._calls, self._program = folder / "calls", folder / "kubectl"
        self.kubernetes = Kubernetes("fake", folder)

    def fail(self, failures: int, error: str) -> None:
        text = KUBECTL.format(calls=self._calls, failures=failures, error=error)
        self._program.write_text(text, encoding="utf-8")
        self._program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(kubernetes, "POLL_S", 0.0)
    tools.tool.cache_clear()
    tools.engine.cache_clear()
    return Answers(tmp_path)


@pytest.mark.parametrize("error", [TRANSPORT, REFUSED])
@pytest.mark.parametrize("command", ["get pod x", "apply -f -", "patch pod x --type=merge -p {}", "logs x", "cordon x"])
def test_a_request_without_an_answer_is_repeated_and_reported(
    answers: Answers, capsys: pytest.CaptureFixture[str], command: str, error: str
) -> None:
    answers.fail(2, error)
    assert answers.kubernetes.kubectl(*command.split()) == "done\n"
    assert answers.calls == [command] * 3
    assert capsys.readouterr().out.count(error) == 2


def test_a_repeated_deletion_may_find_its_object_deleted(answers: Answers) -> None:
    answers.fail(1, TRANSPORT)
    answers.kubernetes.kubectl("delete", "pod", "x")
    assert answers.calls == ["delete pod x", "delete pod x --ignore-not-found"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("get pod x", VERDICT),
        ("delete pod x", VERDICT),
        ("exec x -- true", TRANSPORT),
        ("create -f -", TRANSPORT),
        ("patch pod x --type=json -p []", TRANSPORT),
    ],
)
def test_a_verdict_and_a_command_with_effects_are_final(answers: Answers, command: str, error: str) -> None:
    answers.fail(1, error)
    with pytest.raises(Unanswered, match="Error from server"):
        answers.kubernetes.kubectl(*command.split())
    assert answers.calls == [command]


def test_repetitions_end(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "REPEAT_S", 0.0)
    answers.fail(99, TRANSPORT)
    with pytest.raises(Unanswered, match="request timed out"):
        answers.kubernetes.kubectl("get", "pod", "x")


def test_a_wait_asks_again_after_an_unknown_answer_but_not_after_a_wrong_one(answers: Answers) -> None:
    said: Iterator[Unanswered | bool] = iter([Unanswered("busy"), False, True])

    def condition() -> bool:
        if isinstance(answer := next(said), Unanswered):
            raise answer
        return answer

    answers.kubernetes.wait_until("it is so", condition, 60)
    assert next(said, None) is None

    def wrong() -> bool:
        raise Failed("it is otherwise")

    with pytest.raises(Failed, match=r"^it is otherwise$"):
        answers.kubernetes.wait_until("it is so", wrong, 60)
