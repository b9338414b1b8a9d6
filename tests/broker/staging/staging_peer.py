"""Requests for staged messages, and their expected results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.staging import encode_decision, to_ranges
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from tests.broker.harness import Peer, bodies, send_fields

STAGES = {"stagedMessagesEnable": "true"}
GIVEN_UP = 100


async def stage(
    peer: Peer, found: Sequence[bytes], queue_id: int = 0, topic: str = "t", query: str = "q", batch: int = 0
) -> RemotingCommand:
    """Stage a list of messages with these bodies."""
    key = f"UNIQ_KEY\x01{topic}-{found[0].decode()}\x02"
    fields = send_fields(topic, queue_id, key) | {"m": "true", "query": query, "batch": batch}
    body = encode_batch([(7, each, b"TAGS\x01a\x02KEYS\x01k\x02") for each in found])
    return await peer.call(RequestCode.STAGE_BATCH, fields, body)


async def staged(peer: Peer, found: Sequence[bytes], queue_id: int = 0, **more: str | int) -> int:
    """Stage a list and return its offset."""
    answer = await stage(peer, found, queue_id, **more)  # type: ignore[arg-type]
    assert answer.code == 0, answer
    return int(answer.ext_fields["stagedOffset"])


async def commit(
    peer: Peer,
    offsets: Sequence[int],
    query: str = "q",
    batch: int = 0,
    others: Mapping[str, list[int]] | None = None,
    topic: str | None = None,
) -> RemotingCommand:
    """Commit these lists at broker-a. `topic` is that of the query; older clients do not send it."""
    decision = {"broker-a": to_ranges(offsets)} | {name: to_ranges(each) for name, each in (others or {}).items()}
    fields: dict[str, object] = {"query": query, "batch": batch} | ({} if topic is None else {"topic": topic})
    return await peer.call(RequestCode.COMMIT_STAGED, fields, encode_decision(decision))


async def committed(peer: Peer, offsets: Sequence[int], query: str = "q", batch: int = 0) -> RemotingCommand:
    """Repeat the commit until the batch is published, like a driver."""
    for _ in range(GIVEN_UP):
        answer = await commit(peer, offsets, query, batch)
        assert answer.code == 0, answer
        if answer.ext_fields["isPublished"] == "true":
            return answer
    raise AssertionError("the batch was not published")


async def visible(peer: Peer, topic: str = "t", queues: int = 2) -> list[list[bytes]]:
    """Return all bodies of the first queues of a topic."""
    found: list[list[bytes]] = []
    for queue_id in range(queues):
        of_queue: list[bytes] = []
        while (answer := await peer.pull(topic, len(of_queue), queue_id)).code == 0:
            of_queue += bodies(answer)
        found.append(of_queue)
    return found


def once(found: list[list[bytes]]) -> Counter[bytes]:
    """Return the number of occurrences of each body."""
    return Counter(body for queue in found for body in queue)
