"""Staged messages: invisible before their commit, and delivered once after it."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.ha.acknowledgements import SlaveAcknowledgements
from raptormq.broker.handlers import staging
from raptormq.broker.staging import staging_service
from raptormq.broker.staging.commit_record import CommitRecord
from raptormq.errors import RecordError
from raptormq.protocol.batch import decode_batch, encode_batch
from raptormq.protocol.bodies.staging import encode_decision
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import STAGED_COMMITS_TOPIC, STAGED_TOPIC
from raptormq.storage.queue import PendingRecord
from raptormq.storage.store import now_ms
from tests.broker.harness import assembly_of, bodies, connected, copy_of_running, running, send_fields
from tests.broker.retention import SHORT_SEGMENTS, delete_what_is_stored
from tests.broker.security.test_access_control import ALICE, ROOT, SECURED, ask, create_alice
from tests.broker.staging.staging_peer import STAGES, commit, committed, once, stage, staged, visible

HOUR_MS = 3_600_000


async def test_nobody_sees_what_is_staged_and_everybody_what_is_committed(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        first, second = await staged(peer, [b"a", b"b"]), await staged(peer, [b"c"], 1)
        assert (first, second, await visible(peer)) == (0, 1, [[], []])
        for topic in (STAGED_TOPIC, STAGED_COMMITS_TOPIC):
            assert (await peer.pull(topic, 0)).code == 16
            assert (await peer.send(topic, b"forged")).code == 16
            assert (await peer.call(RequestCode.QUERY_MESSAGE, query(topic))).code == 22
        assert (await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0})).code != 0
        assert (await peer.call(RequestCode.QUERY_MESSAGE, query("t"))).code == 22
        answer = await committed(peer, [first, second])
        assert (answer.ext_fields["messageCount"], answer.body) == ("3", b'{"broker-a":[[0,1]]}')
        assert await visible(peer) == [[b"a", b"b"], [b"c"]]
        assert (await peer.call(RequestCode.QUERY_MESSAGE, query("t"))).code == 0
        assert bodies(await peer.pull("t", 0, 1, subscription="a")) == [b"c"]


def query(topic: str) -> dict[str, object]:
    return {"topic": topic, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": now_ms() + HOUR_MS}


async def test_a_topic_of_whole_batches_gets_whole_batches(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        topic = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        topic |= {"attributes": "+queue.type=BatchCQ", "defaultTopic": "TBW102", "topicSysFlag": 0, "order": "false"}
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)).code == 0
        offsets = [await staged(peer, [b"a", b"b"]), await staged(peer, [b"c"])]
        assert (await committed(peer, offsets)).ext_fields["messageCount"] == "3"
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": 0})).ext_fields["offset"] == "3"
        whole = bodies(await peer.pull("t", 0))
        assert [record.body for batch in whole for record in decode_batch(batch)] == [b"a", b"b", b"c"]


async def test_only_the_lists_of_the_first_commit_are_published(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        first, speculative = await staged(peer, [b"a"]), await staged(peer, [b"a"])
        answer = await commit(peer, [first], others={"broker-b": [4, 5]})
        again = await commit(peer, [speculative])
        assert answer.body == again.body == b'{"broker-a":[[0,0]],"broker-b":[[4,5]]}'
        other = await staged(peer, [b"b"], batch=1)
        await committed(peer, [other], batch=1)
        earlier = await commit(peer, [speculative])
        assert (earlier.code, earlier.ext_fields["isPublished"], earlier.body) == (0, "true", b"")
        assert await visible(peer) == [[b"a", b"b"], []]


async def test_a_repeated_commit_for_another_topic_is_refused_also_after_a_start(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        first = await staged(peer, [b"a"])
        await commit(peer, [first], topic="t")
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        again = await staged(peer, [b"b"])
        refused = await commit(peer, [again], topic="u")
        assert (refused.code, (refused.remark or "")[:64]) == (
            604,
            "batch 0 of query q is committed for topic t, not for topic u: an",
        )
        by_rows = await commit(peer, [again], topic="")
        assert "is committed for topic t, not for the topics of its rows" in (by_rows.remark or "")
        for of_same_query in ("t", None):
            answer = await commit(peer, [again], topic=of_same_query)
            assert (answer.code, answer.body) == (0, b'{"broker-a":[[0,0]]}')
        assert await visible(peer) == [[b"a"], []]


async def test_a_start_remembers_commits(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        first, second = await staged(peer, [b"a"]), await staged(peer, [b"a"])
        await committed(peer, [first])
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        assert (await committed(peer, [second])).body == b'{"broker-a":[[0,0]]}'
        assert await visible(peer) == [[b"a"], []]


async def test_a_commit_is_answered_while_earlier_ones_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        await committed(peer, [await staged(peer, [b"a"])])

    def damaged(stored: StoredMessage) -> CommitRecord:
        raise RecordError(f"the commit record at log offset {stored.physical_offset} is damaged")

    monkeypatch.setattr(staging_service, "parse_commit", damaged)
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        answer = await commit(peer, [await staged(peer, [b"b"])], batch=1)
        assert answer.code != 0
        assert "cannot read the commits of earlier batches yet" in (answer.remark or "")
        assert await visible(peer) == [[b"a"], []]


def stored_list(broker: Broker, body: bytes, query: str) -> int:
    """Store a record in the staging queue as a whole batch of batch 0 of ``query``, and return its offset."""
    pairs = {"STAGED_BY": f"{query}:0", "STAGED_FORM": "whole", "STAGED_FLAG": "0", "REAL_TOPIC": "t", "REAL_QID": "0"}
    record = PendingRecord(STAGED_TOPIC, 0, body, encode_properties(pairs).encode())
    offset = broker._store.append([record]).queue_offsets[0]
    assembly_of(broker).reput.schedule()
    return offset


async def test_a_list_that_is_damaged_fails_its_own_batch_only(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        good = await staged(peer, [b"a"])
        damaged = stored_list(broker, b"x", "damaged")
        refused = await commit(peer, [damaged], query="damaged")
        assert (refused.code, refused.remark) == (
            604,
            "1 staged lists of batch damaged:0 were damaged or deleted before they were published",
        )
        await committed(peer, [good])
        assert await visible(peer) == [[b"a"], []]


async def test_a_batch_that_cannot_be_published_delays_its_own_query_only(tmp_path: Path) -> None:
    too_long = b"p\x01" + b"v" * 40_000
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        good = await staged(peer, [b"a"])
        bad = stored_list(broker, len(too_long).to_bytes(2) + too_long + b"body", "bad")
        later = await staged(peer, [b"later"], query="bad", batch=1)
        for _ in range(2):
            refused = await commit(peer, [bad], query="bad")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "batch bad:0 is committed, but cannot be published; the broker retries: " in (refused.remark or "")
        assert (await commit(peer, [later], query="bad", batch=1)).ext_fields["isPublished"] == "false"
        await committed(peer, [good])
        assert await visible(peer) == [[b"a"], []]


@pytest.mark.parametrize("remembered", [1, staging_service.MAX_REMEMBERED_LISTS])
async def test_unusable_commits_are_refused_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    monkeypatch.setattr(staging_service, "MAX_REMEMBERED_LISTS", remembered)
    now = [now_ms()]
    async with running(tmp_path, STAGES, clock=lambda: now[0]) as broker, connected(broker) as peer:
        offset = await staged(peer, [b"a"])
        for changes, part in (({"batch": 1}, "belongs to q:0, not to q:1"), ({"query": "p"}, "belongs to q:0")):
            refused = await commit(peer, [offset], **changes)
            assert (refused.code, part in str(refused.remark)) == (604, True)
        missing = await commit(peer, [offset, 7])
        assert (missing.code, "staged list 7 of batch 0 of query q has expired" in str(missing.remark)) == (604, True)
        for fields, body in (({"query": "a b", "batch": 0}, b"{}"), ({"query": "q", "batch": 0}, b'{"broker-a": 1}')):
            assert (await peer.call(RequestCode.COMMIT_STAGED, fields, body)).code == 29
        now[0] += 25 * HOUR_MS
        assert "has expired" in str((await commit(peer, [offset])).remark)
        now[0] -= 25 * HOUR_MS
        await committed(peer, [offset])
        assert await visible(peer) == [[b"a"], []]


async def test_lists_that_retention_has_deleted_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES | SHORT_SEGMENTS) as broker, connected(broker) as peer:
        offset = await staged(peer, [b"a"])
        await delete_what_is_stored(tmp_path, broker, peer)
        assert "has expired" in str((await commit(peer, [offset])).remark)


async def test_lists_of_a_deleted_topic_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        offset = await staged(peer, [b"a"])
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
        assert "topic t was deleted" in str((await commit(peer, [offset])).remark)
        await peer.send("t", b"new")
        assert "topic t was deleted" in str((await commit(peer, [offset])).remark)
        assert await visible(peer) == [[b"new"], []]


async def test_a_commit_waits_for_the_slaves_of_a_master(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES | {"brokerRole": "SYNC_MASTER"}) as broker, connected(broker) as peer:
        listed = await stage(peer, [b"a"])
        assert listed.code == ResponseCode.SLAVE_NOT_AVAILABLE
        for _ in range(2):
            answer = await commit(peer, [int(listed.ext_fields["stagedOffset"])])
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert await visible(peer) == [[b"a"], []]


async def test_commits_are_remembered_while_there_is_always_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes commit records that are not appended again."""
    monkeypatch.setattr(staging, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(staging_service, "_RETRY_S", 0.01)
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        await committed(peer, [await staged(peer, [b"a"])])
        service, store = assembly_of(broker).staging, broker._store

        async def fails(_: object) -> None:
            raise ValueError("it is damaged")

        monkeypatch.setattr(service, "_publish", fails)
        listed = await stage(peer, [b"b"], query="stuck")
        answer = await commit(peer, [int(listed.ext_fields["stagedOffset"])], query="stuck")
        assert "cannot be published" in (answer.remark or "")
        end = store.queue_end(STAGED_COMMITS_TOPIC, 0)
        service._renew_at = 0.0
        while not service._renew_at:
            await asyncio.sleep(0.01)
        assert store.queue_end(STAGED_COMMITS_TOPIC, 0) == end + 1
        assert (await committed(peer, [])).ext_fields["messageCount"] == "1"


async def test_a_commit_is_answered_before_clients_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits for the publication and for slaves have one deadline."""
    more = STAGES | {"brokerRole": "SYNC_MASTER", "slaveTimeout": "60000"}
    async with running(tmp_path, more) as broker, connected(broker) as peer:
        listed = await stage(peer, [b"a"])
        monkeypatch.setattr(SlaveAcknowledgements, "on_copied", lambda *_: None)
        monkeypatch.setattr(staging, "_PATIENCE_S", 0.2)
        answer = await commit(peer, [int(listed.ext_fields["stagedOffset"])])
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_a_broker_that_stages_nothing_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for answer in (await stage(peer, [b"a"]), await commit(peer, [])):
            assert (answer.code, "set stagedMessagesEnable = true" in str(answer.remark)) == (3, True)


async def test_messages_that_wait_cannot_be_staged(tmp_path: Path) -> None:
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        fields = {"a": "p", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "query": "q", "batch": 0}
        answer = await peer.call(RequestCode.STAGE_BATCH, fields | {"i": "DELAY\x013\x02"}, b"no list")
        assert answer.code == 13


@pytest.mark.timeout(120)
async def test_a_crash_at_every_record_of_a_commit_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The log is truncated after each record that a commit appends, like by a crash."""
    lived, wanted = tmp_path / "lived", [[b"a0", b"a1", b"a2", b"c0"], [b"b0", b"b1"]]
    async with running(lived, STAGES) as broker, connected(broker) as peer:
        first = [await staged(peer, wanted[0][:3]), await staged(peer, wanted[1], 1), await staged(peer, [b"c0"])]
        repeated = [await staged(peer, wanted[0][:3]), await staged(peer, wanted[1], 1), await staged(peer, [b"c0"])]
        crashed = tmp_path / "before"
        begin = end_of(broker)
        copy_of_running(lived, crashed)
        await committed(peer, first)
        ends = await record_ends(broker, begin)
    assert len(ends) == 8  # the commit record, six messages, the published record
    (log,) = (lived / "commitlog").iterdir()
    written = log.read_bytes()
    for before, cut in [(begin, begin), *pairwise([begin, *ends])]:
        for at in {cut, (before + cut) // 2}:
            root = tmp_path / "cut"
            shutil.copytree(crashed, root)
            with (root / "commitlog" / log.name).open("r+b") as file:
                file.seek(begin)
                file.write(written[begin:at])
            async with running(root, STAGES) as broker, connected(broker) as peer:
                decided = (await committed(peer, repeated)).body
                assert decided == (b'{"broker-a":[[0,2]]}' if at >= ends[0] else b'{"broker-a":[[3,5]]}')
                assert await visible(peer) == wanted, (begin, ends, at)
            shutil.rmtree(root)


def end_of(broker: Broker) -> int:
    return broker._store.end_offset


async def record_ends(broker: Broker, begin: int) -> list[int]:
    """Return the ends of the records from ``begin`` on."""
    ends: list[int] = []
    place = begin
    while place < broker._store.end_offset:
        data = await broker._store.message_at(place, whole=True, include_deleted=True)
        assert data is not None
        place += len(data)
        ends.append(place)
    return ends


@pytest.mark.parametrize("remembered", [1, staging_service.MAX_REMEMBERED_LISTS])
async def test_many_lists_of_several_queries_are_published_in_the_order_of_their_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    monkeypatch.setattr(staging_service, "MAX_REMEMBERED_LISTS", remembered)
    async with running(tmp_path, STAGES) as broker, connected(broker) as peer:
        offsets: dict[str, list[int]] = {"p": [], "q": []}
        for number in range(40):
            name = "pq"[number % 2]
            offsets[name].append(await staged(peer, [b"%s%02d" % (name.encode(), number)], query=name))
        for name in "qp":
            await committed(peer, offsets[name], query=name)
        found = (await visible(peer))[0]
        assert found == sorted(found, key=lambda body: (body[:1] == b"p", body))
        assert set(once([found]).values()) == {1}


async def test_a_commit_needs_the_right_to_send_to_every_topic(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED | STAGES) as broker, connected(broker) as peer:
        await create_alice(peer)
        fields = send_fields("t") | {"m": "true", "query": "q", "batch": 0}
        body = encode_batch([(0, b"a", b"")])
        assert (await ask(peer, ROOT, RequestCode.STAGE_BATCH, fields, body)).code == 0
        key, decision = {"query": "q", "batch": 0}, encode_decision({"broker-a": [(0, 0)]})
        refused = await ask(peer, ALICE, RequestCode.COMMIT_STAGED, key, decision)
        assert (refused.code, "no permission to send to topic t" in str(refused.remark)) == (604, True)
        assert (await ask(peer, ROOT, RequestCode.COMMIT_STAGED, key, decision)).code == 0
