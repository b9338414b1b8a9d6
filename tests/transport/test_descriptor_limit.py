"""The descriptor limit of a server process, tested in separate processes."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from raptormq.transport import descriptors as descriptor_limit
from raptormq.transport.descriptors import raise_descriptor_limit

TRY = """
import resource, sys
from raptormq.transport.descriptors import descriptor_limit, raise_descriptor_limit
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
before = descriptor_limit()
raise_descriptor_limit()
print(before, descriptor_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
"""


@pytest.mark.parametrize(("soft", "hard"), [(256, 512), (512, 512)])
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int) -> None:
    command = [sys.executable, "-c", TRY, str(soft), str(hard)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert list(map(int, said.split())) == [soft, hard, hard]


def test_a_limit_that_cannot_be_raised_is_told_and_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_descriptor_limit()
    assert caplog.messages == ["cannot raise the limit of open files from 1024: not allowed to raise maximum limit"]
    assert descriptor_limit.descriptor_limit() == 1_024
