"""Additions of RocketMQ 5.5 to pops: notifications with a filter, and changes of the invisible time that do not
count.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from tests.broker.handlers.test_pop import MINUTE, come_back, handle_of, pop
from tests.broker.handlers.test_pop_trouble import change
from tests.broker.harness import Peer, connected, held, running
from tests.clock import Clock

WAIT_MS = 60_000


async def notification(
    peer: Peer, exp: str | None, exp_type: str | None = "TAG", wait_ms: int = 0, queue_id: int = 0
) -> RemotingCommand:
    fields: dict[str, object] = {
        "consumerGroup": "consumers", "topic": "t", "queueId": queue_id, "pollTime": wait_ms, "bornTime": 0,
    }  # fmt: skip
    wanted = {"exp": exp, "expType": exp_type}
    given = {name: value for name, value in wanted.items() if value is not None}
    return await peer.call(RequestCode.NOTIFICATION, fields | given)


def has_message(answer: RemotingCommand) -> bool:
    assert answer.code == 0, answer.remark
    return answer.ext_fields["hasMsg"] == "true"


@pytest.mark.parametrize(
    ("exp", "exp_type", "found"),
    [
        ("red", "TAG", False),
        ("blue || green", "TAG", True),
        ("*", "TAG", True),
        ("red", None, True),  # without a type RocketMQ does not filter
        (None, "TAG", True),
    ],
)
async def test_a_notification_is_about_the_messages_that_its_filter_takes(
    tmp_path: Path, exp: str | None, exp_type: str | None, found: bool
) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0", 0, "TAGS\x01blue\x02")
        assert has_message(await notification(peer, exp, exp_type)) is found


async def test_every_message_of_a_queue_is_compared_up_to_the_limit(tmp_path: Path) -> None:
    settings = {"maxMessageFilterNumForNotification": "50"}
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        await peer.send_list("t", [b"x"] * 48, tags="blue")
        before = has_message(await notification(peer, "red"))
        await peer.send("t", b"0", 0, "TAGS\x01red\x02")
        behind_48 = has_message(await notification(peer, "red"))
        at_the_limit_not_yet = has_message(await notification(peer, "green"))
        await peer.send("t", b"0", 0, "TAGS\x01red\x02")
        at_the_limit = has_message(await notification(peer, "green"))
    assert (before, behind_48, at_the_limit_not_yet, at_the_limit) == (False, True, False, True)


async def test_a_waiting_notification_is_woken_by_what_its_filter_takes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        await producer.send("t", b"before", 0, "TAGS\x01blue\x02")
        waiting = asyncio.ensure_future(notification(peer, "red", wait_ms=WAIT_MS))
        await held(peer, 1)
        await producer.send("t", b"0", 0, "TAGS\x01blue\x02")
        await held(peer, 1)
        assert not waiting.done()
        await producer.send("t", b"1", 0, "TAGS\x01red\x02")
        async with asyncio.timeout(20):
            assert has_message(await waiting)


async def test_what_comes_back_is_notified_whatever_the_filter(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"0", 0, "TAGS\x01blue\x02")
        await pop(peer)
        clock.move(MINUTE)
        async with asyncio.timeout(20):
            assert has_message(await notification(peer, "red", wait_ms=WAIT_MS))


async def test_filters_of_notifications_can_be_switched_off(tmp_path: Path) -> None:
    settings = {"useMessageFilterForNotification": "false"}
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        await peer.send("t", b"0", 0, "TAGS\x01blue\x02")
        assert has_message(await notification(peer, "red"))


@pytest.mark.parametrize(("exp", "exp_type"), [("a = ", "SQL92"), ("a", "OTHER")])
async def test_a_filter_that_is_none_is_refused(tmp_path: Path, exp: str, exp_type: str) -> None:
    settings = {"enablePropertyFilter": "true"}
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        answer = await notification(peer, exp, exp_type)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(("suspend", "times"), [("true", 0), ("false", 1), (None, 1)])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_suspended_message_comes_back_without_counting(
    tmp_path: Path, suspend: str | None, times: int, restarted: bool
) -> None:
    clock = Clock()
    more: dict[str, object] = {} if suspend is None else {"suspend": suspend}
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        popped = await pop(peer)
        changed = await change(peer, handle_of(popped, 0), MINUTE, 0, **more)
        assert changed.code == 0, changed.remark
        if not restarted:
            clock.move(MINUTE)
            (again,) = await come_back(peer, 1)
    if restarted:
        clock.move(MINUTE)
        async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
            (again,) = await come_back(peer, 1)
    assert (again.body, again.reconsume_times) == (b"0", times)
