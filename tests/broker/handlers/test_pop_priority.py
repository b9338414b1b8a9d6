"""Priority messages (RIP-80): the queue of a message, and the order in which pops read the queues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode
from raptormq.protocol.properties import PRIORITY, decode_properties, encode_properties
from tests.broker.handlers.test_pop import MINUTE, come_back, pop
from tests.broker.harness import Peer, bodies, connected, messages, running
from tests.clock import Clock


async def create_topic(peer: Peer, queues: int = 8, message_type: str = "PRIORITY") -> None:
    fields = {
        "topic": "t", "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": False, "attributes": f"+message.type={message_type}",
    }  # fmt: skip
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == 0, answer.remark


async def set_factor(peer: Peer, factor: int) -> None:
    body = json.dumps({"groupName": "consumers", "attributes": {"+priority.factor": str(factor)}}).encode()
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    assert answer.code == 0, answer.remark


async def send(peer: Peer, priority: int | str, queue_id: int = 0, **others: str) -> int:
    """Send a message whose body is its priority. Return its queue."""
    properties = encode_properties({PRIORITY: str(priority), "UNIQ_KEY": f"K{priority}", **others})
    answer = await peer.send("t", str(priority).encode(), queue_id, properties)
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["queueId"])


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The random numbers of all pops: a percentage, or the first queue. Tests change it in place."""
    drawn = [0]
    monkeypatch.setattr("raptormq.broker.pop.queue_order.random.randrange", lambda end: drawn[0] % end)
    return drawn


async def test_a_message_goes_to_the_queue_of_its_priority_whatever_the_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer, 4, "NORMAL")
        queues = [await send(peer, priority, 1) for priority in (0, 3, 4, 2_147_483_647, -1, "high")]
        (kept,) = messages(await peer.pull("t", 0, 0))
    assert queues == [0, 3, 3, 3, 1, 1]
    assert decode_properties(kept.properties)[PRIORITY] == "0"


@pytest.mark.parametrize(
    "others", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "60000"}, {"__SHARDINGKEY": "k"}, {"TRAN_MSG": "true"}]
)
async def test_messages_of_another_type_lose_their_priority(tmp_path: Path, others: dict[str, str]) -> None:
    topics = {"DELAY": ("SCHEDULE_TOPIC_XXXX", 0), "TIMER_DELAY_MS": ("rmq_sys_wheel_timer", 0),
              "__SHARDINGKEY": ("t", 2), "TRAN_MSG": ("RMQ_SYS_TRANS_HALF_TOPIC", 0)}  # fmt: skip
    topic, queue_id = topics[next(iter(others))]
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        queue = await send(peer, 5, 2, **others)
        (stored,) = messages(await peer.pull(topic, 0, queue_id))
    assert queue == 2
    assert PRIORITY not in decode_properties(stored.properties)


@pytest.mark.parametrize(("ascending", "order"), [(True, [7, 5, 3, 1]), (False, [1, 3, 5, 7])])
async def test_pops_go_by_priority(tmp_path: Path, draw: list[int], ascending: bool, order: list[int]) -> None:
    draw[0] = 4
    settings = {"priorityOrderAsc": str(ascending).lower()}
    async with running(tmp_path, settings) as broker, connected(broker) as peer:
        await create_topic(peer)
        for priority in (3, 7, 1, 5):
            await send(peer, priority)
        one_by_one = [bodies(await pop(peer, queueId=-1, maxMsgNums=1))[0] for _ in range(2)]
        rest = bodies(await pop(peer, queueId=-1))
    assert [int(body) for body in [*one_by_one, *rest]] == order


async def test_other_topics_and_orderly_pops_begin_with_any_queue(tmp_path: Path, draw: list[int]) -> None:
    draw[0] = 4
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer, message_type="NORMAL")
        for priority in range(8):
            await send(peer, priority)
        by_chance = bodies(await pop(peer, queueId=-1, maxMsgNums=3))
        await create_topic(peer)
        orderly = bodies(await pop(peer, queueId=-1, maxMsgNums=1, order=True, consumerGroup="others"))
        by_priority = bodies(await pop(peer, queueId=-1, maxMsgNums=3))
    assert by_chance == [b"4", b"5", b"6"]
    assert orderly == [b"4"]
    assert by_priority == [b"7", b"3", b"2"]


async def test_the_factor_of_a_group_is_the_share_of_pops_by_priority(tmp_path: Path, draw: list[int]) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer)
        await set_factor(peer, 30)
        for priority in (0, 1, 2, 3, 4, 5, 6, 7):
            await send(peer, priority)
        draw[0] = 29
        below = bodies(await pop(peer, queueId=-1, maxMsgNums=1))
        draw[0] = 34
        above = bodies(await pop(peer, queueId=-1, maxMsgNums=1))
    assert (below, above) == ([b"7"], [b"2"])


async def test_what_comes_back_is_popped_after_the_topic_s_own(tmp_path: Path, draw: list[int]) -> None:
    """``popFromRetryProbabilityForPriority`` is 0, so a retry has no priority over new messages."""
    clock = Clock()
    async with running(tmp_path, clock=clock) as broker, connected(broker) as peer:
        await create_topic(peer)
        await send(peer, 6)
        await pop(peer, queueId=-1)
        clock.move(MINUTE)
        (again,) = await come_back(peer, 1)
        assert again.body == b"6"
        clock.move(MINUTE)
        waiting = {"consumerGroup": "consumers", "topic": "%RETRY%consumers_t", "queueId": 0}
        fields = waiting | {"pollTime": 10_000, "bornTime": 1 << 50}
        assert (await peer.call(RequestCode.NOTIFICATION, fields)).ext_fields["hasMsg"] == "true"
        await send(peer, 0)
        both = bodies(await pop(peer, queueId=-1))
    assert both == [b"0", b"6"]
