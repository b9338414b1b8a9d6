"""The sender of the end-to-end run: its pod sends until it is told to end, and its log is read completely."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from e2e import kubernetes, records, send_records
from e2e.errors import Failed, Unanswered
from e2e.kubernetes import Kubernetes
from e2e.sender import STOP, Sender
from raptormq.testing import EmbeddedCluster

HALF = '{"half": 10}\n'
END = '{"acknowledged": 20}\n'


class FakeKubernetes(Kubernetes):
    """A pod whose log has other lines, or cannot be read, at each look. The last look is for all further ones."""

    def __init__(self, *looks: str | Unanswered, ends: bool = True) -> None:
        super().__init__("fake", Path())
        self._looks = list(looks)
        self._ends = ends
        self.events: list[str] = []

    def get(self, *arguments: str) -> dict[str, Any]:
        return {"status": {"phase": "Succeeded" if self._ends and len(self._looks) == 1 else "Running"}}

    def kubectl(self, *arguments: str, manifest: str | None = None, timeout: float = 60) -> str:
        if arguments[0] == "exec":
            self.events.append(arguments[-1])
            return ""
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, Unanswered):
            raise look
        return look


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "POLL_S", 0.0)


def follow(pod: FakeKubernetes, timeout: float = 60) -> dict[str, Any]:
    return Sender(pod, "flights", "sender").follow(lambda: pod.events.append("half"), timeout)


def test_the_sender_is_told_to_end_after_the_deletions() -> None:
    pod = FakeKubernetes("starting\n", HALF, HALF, HALF + END)
    assert follow(pod) == {"acknowledged": 20}
    assert pod.events == ["half", STOP]


def test_a_log_that_cannot_be_read_is_read_again_also_after_the_end() -> None:
    pod = FakeKubernetes(HALF, Unanswered("unexpected EOF"), HALF + END[:-3], Unanswered("EOF"), HALF + END)
    assert follow(pod) == {"acknowledged": 20}


def test_a_sender_that_ends_without_a_result_is_noticed_with_its_output() -> None:
    with pytest.raises(Failed, match=r"the sender has ended:\n(.*\n)*MemoryError"):
        follow(FakeKubernetes(HALF, HALF + "MemoryError\n"))


def test_a_sender_that_does_not_end_is_noticed() -> None:
    with pytest.raises(Failed, match="the sender says acknowledged: not within"):
        follow(FakeKubernetes(HALF, ends=False), timeout=0)


def test_an_error_of_the_deletions_ends_the_run() -> None:
    def fails() -> None:
        raise Unanswered("the pod cannot be deleted")

    pod = FakeKubernetes(HALF, ends=False)
    with pytest.raises(Unanswered, match="cannot be deleted"):
        Sender(pod, "flights", "sender").follow(fails, 60)


def test_the_program_pauses_until_it_is_told_to_end_and_sends_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count, pauses = 450, 3
    sent = [{"origin": "ABQ", "delay": number} for number in range(count + 1)]
    (tmp_path / "records").write_bytes(records.packed(sent))
    stop, paused = tmp_path / "stop", []

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == pauses:
            stop.touch()

    monkeypatch.setattr(send_records, "asyncio", SimpleNamespace(gather=asyncio.gather, sleep=pause))
    with EmbeddedCluster() as cluster:
        cluster.create_topic("flights")
        arguments = (str(tmp_path / "records"), cluster.name_servers, "flights", "0.5", str(count), str(stop))
        asyncio.run(send_records.main(*arguments))
    half, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert half == {"half": count // 2}
    assert (end["acknowledged"], end["failures"]) == (count, {})
    assert paused == [0.5] * pauses
