"""Queues that the application has paused."""

from __future__ import annotations

from raptormq.client import MessageQueue
from raptormq.client.consumer.paused_queues import PausedQueues

A, B, C = (MessageQueue("t", "b", number) for number in range(3))


def paused(queues: PausedQueues) -> set[MessageQueue]:
    return {queue for queue in (A, B, C) if queue in queues}


def test_some_all_and_all_but_some() -> None:
    queues = PausedQueues()
    assert paused(queues) == set()
    queues.pause([A, B])
    queues.resume([B, C])
    assert paused(queues) == {A}
    queues.pause(None)
    assert paused(queues) == {A, B, C}
    queues.resume([A, B])
    assert paused(queues) == {C}
    queues.pause([B])
    assert paused(queues) == {B, C}
    queues.resume(None)
    assert paused(queues) == set()
