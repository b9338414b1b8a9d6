"""Messages that listeners did not consume: sent back, sent to the retry topic, or delivered again by this client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.client import ClientConfig, ConsumerConfig, MessageExt, MessageQueue
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.compression import decompress
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.properties import decode_properties
from tests.client.embedded_cluster import Cluster
from tests.client.scripted_peer import ScriptedPeer, refuse, route, stored
from tests.client.single_key import OneKey

SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2
UNSUPPORTED = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def failed_message(reconsume_times: int = 0, **properties: str) -> MessageExt:
    return MessageExt(
        "t",
        b"body",
        {"UNIQ_KEY": "id", "TAGS": "A"} | properties,
        MessageQueue("t", "broker-0", 2),
        queue_offset=7,
        physical_offset=4711,
        message_id="id",
        offset_message_id="offset id",
        born_timestamp=1,
        store_timestamp=2,
        reconsume_times=reconsume_times,
        flag=9,
    )


@asynccontextmanager
async def redelivery(peer: ScriptedPeer) -> AsyncIterator[Redelivery]:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(4, peer))
    instance = ClientInstance.acquire(ClientConfig(peer.address))
    try:
        yield Redelivery(instance, "g", ConsumerConfig(max_reconsume_times=5), ConsumeChain("g", ()))
    finally:
        await instance.release()


async def test_the_broker_takes_it_back() -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        assert await giving.send_back(failed_message())
        [asked] = peer.received[SEND_BACK]
        assert asked.ext_fields == {
            "offset": "4711",
            "group": "g",
            "delayLevel": "0",
            "originMsgId": "id",
            "originTopic": "t",
            "unitMode": "false",
            "maxReconsumeTimes": "5",
            "bname": "broker-0",
        }
        assert not peer.received[SEND]


@pytest.mark.parametrize("code", [1, 3, 13, 16], ids=lambda code: ResponseCode(code).name.lower())
async def test_a_refused_message_is_sent_to_the_retry_topic(code: int) -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND_BACK, refuse(code))
        peer.on(SEND, stored())
        assert await giving.send_back(failed_message(2, ORIGIN_MESSAGE_ID="first", TRAN_MSG="true"))
        [sent] = peer.received[SEND]
        assert sent.body == b"body"
        assert [sent.ext_fields[letter] for letter in "abhjl"] == ["g", "%RETRY%g", "9", "3", "5"]
        assert decode_properties(sent.ext_fields["i"]) == {
            "UNIQ_KEY": "id",
            "TAGS": "A",
            "RETRY_TOPIC": "t",
            "ORIGIN_MESSAGE_ID": "first",
            "DELAY": "5",
        }


async def test_the_broker_learns_that_it_was_too_many_times_and_makes_it_a_dead_letter() -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND_BACK, UNSUPPORTED)
        peer.on(SEND, stored())
        assert await giving.send_back(failed_message(5, DELAY="7"))
        [sent] = peer.received[SEND]
        assert [sent.ext_fields[letter] for letter in "bjl"] == ["%RETRY%g", "6", "5"]
        assert "DELAY" not in decode_properties(sent.ext_fields["i"])
        assert decode_properties(sent.ext_fields["i"])["ORIGIN_MESSAGE_ID"] == "id"


async def test_when_no_broker_takes_it_the_client_keeps_it() -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND_BACK, UNSUPPORTED)
        peer.on(SEND, refuse(ResponseCode.MESSAGE_ILLEGAL))
        assert not await giving.send_back(failed_message())


async def test_a_broker_that_is_gone_does_not_hold_anything_up(free_port: int) -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, unreachable=f"127.0.0.1:{free_port}"))
        async with asyncio.timeout(30):
            assert not await giving.send_back(failed_message())


def test_pauses_grow_to_a_minute() -> None:
    pauses = [Redelivery.retry_delay(times) for times in range(30)]
    assert pauses == sorted(pauses)
    assert (pauses[1], pauses[-1]) == (1.0, 60.0)


async def test_a_message_of_an_inner_batch_comes_back_without_its_neighbours() -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND, stored())
        message = failed_message()
        message.sys_flag = 0xC0
        assert await giving.send_back(message)
        assert not peer.received[SEND_BACK]
        [sent] = peer.received[SEND]
        assert (sent.ext_fields["b"], sent.body) == ("%RETRY%g", b"body")


async def test_a_message_that_no_broker_takes_is_given_up_after_its_last_delivery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its queue must not be blocked permanently."""
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        for step in (SEND_BACK, SEND):
            peer.on(step, refuse(ResponseCode.MESSAGE_ILLEGAL))
        assert not await giving.send_back(failed_message(4))
        assert "given up" not in caplog.text
        assert await giving.send_back(failed_message(5))
    told = "given up where it is stored: no broker accepts it for a retry or as a dead letter: group=g topic=t"
    assert f'{told} queue=broker-0/2 offset=7 id=id keys="" attempt=6 error="ServerError: code 13' in caplog.text


@pytest.mark.parametrize("code", [14, 16, 26], ids=lambda code: ResponseCode(code).name.lower())
async def test_what_somebody_can_cure_is_waited_for(code: int) -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        for step in (SEND_BACK, SEND):
            peer.on(step, refuse(code))
        assert not await giving.send_back(failed_message(100))


@pytest.mark.parametrize("too_many", [0, 1])
async def test_a_copy_leaves_room_for_what_brokers_add(too_many: int, caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND_BACK, refuse(ResponseCode.MESSAGE_ILLEGAL))
        peer.on(SEND, stored())
        assert await giving.send_back(failed_message(2, note="v"))
        more = 32_767 - 1_024 - len(peer.received[SEND][0].ext_fields["i"]) + too_many
        assert await giving.send_back(failed_message(2, note="v" * (1 + more)))
        found = decode_properties(peer.received[SEND][1].ext_fields["i"])
        assert (found["RETRY_TOPIC"], found["DELAY"], found["UNIQ_KEY"]) == ("t", "5", "id")
        assert ("note" in found, found.get("__LEFT_OUT")) == ((False, "note") if too_many else (True, None))
        assert ("omits properties that do not fit" in caplog.text) is bool(too_many)


async def test_a_separator_in_a_value_is_no_reason_to_keep_a_message() -> None:
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND_BACK, UNSUPPORTED)
        peer.on(SEND, stored())
        assert await giving.send_back(failed_message(odd="b\x01c"))
        assert decode_properties(peer.received[SEND][0].ext_fields["i"])["odd"] == "b\x01c"


async def test_a_copy_is_compressed_as_its_message_was() -> None:
    """Uncompressed, a message of a compressed batch may exceed the size limit of brokers."""
    async with ScriptedPeer() as peer, redelivery(peer) as giving:
        peer.on(SEND, stored())
        message = failed_message()
        message.body, message.sys_flag = bytes(5 << 20), INNER_BATCH
        assert await giving.send_back(message)
        [sent] = peer.received[SEND]
        assert len(sent.body) < 100_000
        assert decompress(sent.body, int(sent.ext_fields["f"]), 6 << 20) == message.body


@pytest.mark.parametrize(("length", "is_taken"), [(1000 - len("k1") - 36, True), (1000 - len("k1") - 35, False)])
async def test_what_is_too_large_once_it_is_encrypted_again_is_kept_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, length: int, is_taken: bool
) -> None:
    """The limit is a setting of the broker that the consumer does not know, so the log has the broker's error."""
    message = failed_message(__ENCRYPTION_KEY="k1")
    message.body, message.sys_flag = os.urandom(length), INNER_BATCH
    async with Cluster(tmp_path, maxMessageSize="1000") as cluster:
        instance = ClientInstance.acquire(ClientConfig(cluster.name_servers, keys=OneKey()))
        try:
            assert (
                await Redelivery(instance, "g", ConsumerConfig(), ConsumeChain("g", ())).send_back(message) is is_taken
            )
        finally:
            await instance.release()
    told = [text for each in caplog.records if "retried by this client" in (text := each.getMessage())]
    assert ["body length limit 1000B" in each for each in told] == ([] if is_taken else [True])
