"""A crash between the copy of a popped message that returns and the record after it that documents this: the message
returns once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.internal_writer import record_copy
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.record import StoredMessage
from raptormq.storage.queue.append_batches import PendingRecord
from tests.broker.handlers.test_pop import MINUTE, RETRY, pop
from tests.broker.harness import assembly_of, bodies, connected, copy_of_running, messages, running
from tests.client.eventually import eventually
from tests.clock import Clock


def torn(message: StoredMessage, *, once: bool = True) -> PendingRecord:
    """Return the first record of the group that redelivers ``message``."""
    return record_copy(message, RETRY, 0, message.properties, retries=1, once=once)


async def make_retry_topic(broker: Broker) -> None:
    """Append records before the group."""
    assembly = assembly_of(broker)
    assembly.topics.put(TopicConfig(RETRY, 1, 1))
    await assembly.tables.topics_saver.saved()


@pytest.mark.parametrize(("once", "comes"), [(True, 1), (False, 2)], ids=["with its origin", "without"])
async def test_a_copy_behind_its_checkpoint_is_not_made_again(tmp_path: Path, once: bool, comes: int) -> None:
    """A copy without an origin was not written by this broker and is another message."""
    clock = Clock()
    async with running(tmp_path / "first", clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0)
        (message,) = messages(await pop(peer, invisibleTime=MINUTE))
        await make_retry_topic(broker)
        broker._store.append([torn(message, once=once)])
        broker._store.dispatch()
        broker._store.flush()
        copy_of_running(tmp_path / "first", tmp_path / "killed")
    assert await brought_back(tmp_path / "killed", clock) == [b"x"] * comes
    assert await brought_back(tmp_path / "killed", clock) == [b"x"] * comes


async def test_a_copy_before_its_checkpoint_is_of_an_earlier_pop(tmp_path: Path) -> None:
    clock = Clock()
    async with running(tmp_path / "first", clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"x", 0)
        (message,) = messages(await peer.pull("t", 0))
        await make_retry_topic(broker)
        broker._store.append([torn(message)])
        broker._store.dispatch()
        broker._store.consumer_offsets.commit(RETRY, "consumers", 0, 1)  # it was popped there and acknowledged
        assert bodies(await pop(peer, invisibleTime=MINUTE)) == [b"x"]
        broker._store.flush()
        copy_of_running(tmp_path / "first", tmp_path / "killed")
    assert await brought_back(tmp_path / "killed", clock) == [b"x"] * 2


async def brought_back(root: Path, clock: Clock) -> list[bytes]:
    """Return the contents of the retry topic after everything popped is due and processed."""
    clock.move(2 * MINUTE)
    async with running(root, clock=clock) as broker, connected(broker) as peer:
        revival = assembly_of(broker).deliveries._others[-1]
        await eventually(lambda: not revival.needs_copies)
        broker._store.dispatch()  # otherwise the pull may precede the dispatch of the last copies
        found: list[bytes] = []
        while len(found) < broker._store.queue_end(RETRY, 0):  # a pull may end before records that are not in memory
            found += bodies(await peer.pull(RETRY, len(found)))
        return found
