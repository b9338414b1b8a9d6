"""Encryption from producer to consumer, with peers that store messages like brokers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumerConfig,
    EncryptionKeys,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
)
from raptormq.client.cluster.client_instance import ClientInstance
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.message import encryption
from raptormq.client.message.decoding import decode_batches, decode_messages
from raptormq.client.message.encryption import decrypt
from raptormq.client.security.keys import FOLDER_VARIABLE, KEYS_VARIABLE
from raptormq.errors import ConfigError, KeyMissing, MessageError, RecordError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.encryption import encrypt_body, is_encrypted_body
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage, encode_record
from tests.client.scripted_peer import ScriptedPeer, refuse, route, stored, stored_whole

BATCH, SINGLE = RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2
QUEUE = MessageQueue("t", "broker-0", 0)
SECRET = b"secret " * 1000
AES = "cryptography.hazmat.primitives.ciphers.aead"


class Keys:
    """Two keys, one of which is current."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.asked: list[str] = []

    def current(self) -> tuple[str, bytes]:
        return self.known[0], self.key(self.known[0])

    def key(self, key_id: str) -> bytes:
        self.asked.append(key_id)
        if key_id not in self.known:
            raise KeyMissing(f"no key {key_id}")
        return key_id[-1:].encode() * 16


@asynccontextmanager
async def producing(peer: ScriptedPeer, keys: EncryptionKeys, **settings: object) -> AsyncIterator[Producer]:
    peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
    values = {"encrypt": True, "retries": 0, **settings}
    config = ProducerConfig(**values)  # type: ignore[arg-type]
    async with Producer("g", config=config, client_config=ClientConfig(peer.address, keys=keys)) as producer:
        yield producer


def as_stored(sent: RemotingCommand, offset: int = 0) -> bytes:
    """Return the record of a single message or of an inner batch."""
    return encode_record(
        StoredMessage("t", 0, sent.body, sent.ext_fields["i"], sys_flag=int(sent.ext_fields["f"]), queue_offset=offset)
    )


def each_encrypted(sent: RemotingCommand) -> bytes:
    """Return the records of a batch on a SimpleCQ topic. Brokers add the properties of the batch to those of its
    messages.
    """
    return b"".join(
        encode_record(StoredMessage("t", 0, record.body, record.properties.decode(), queue_offset=n))
        for n, record in enumerate(decode_batch(sent.body))
    )


async def test_a_message_is_encrypted_compressed_and_comes_back() -> None:
    async with ScriptedPeer() as peer, producing(peer, Keys("k1")) as producer:
        peer.on(SINGLE, stored())
        await producer.send(Message("t", SECRET, "T"))
        await producer.submit(Message("t", b"short"))
        await producer.send_oneway(Message("t", b"oneway"))
        sent = await peer.wait_for(SINGLE, 3)
        assert all(is_encrypted_body(command.body) and command.ext_fields["f"] == "0" for command in sent)
        assert len(sent[0].body) < len(SECRET) / 10
        messages = [
            message for command in sent for message in decode_messages(as_stored(command), QUEUE, 0, Keys("k1"))
        ]
        assert [message.body for message in messages] == [SECRET, b"short", b"oneway"]
        assert messages[0].tags == "T"


async def test_batches_are_encrypted_whole_where_they_are_stored_whole_and_one_by_one_before_that_is_known() -> None:
    async with ScriptedPeer() as peer, producing(peer, Keys("k1")) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, stored(17))
        messages = [Message("t", SECRET), Message("t", b"short", properties={"a": "b"})]
        for _ in range(2):
            await producer.send_batch(messages)
        [unknown], [whole] = peer.received[BATCH], peer.received[SINGLE]
        assert all(is_encrypted_body(record.body) for record in decode_batch(unknown.body))
        assert is_encrypted_body(whole.body)
        assert int(whole.ext_fields["f"]) == 0xC0
        keys = Keys("k1")
        found = decode_messages(each_encrypted(unknown), QUEUE, 0, keys) + decode_messages(
            as_stored(whole), QUEUE, 0, keys
        )
        assert [message.body for message in found] == [SECRET, b"short"] * 2
        assert [message.properties.get("a") for message in found] == [None, "b"] * 2
        assert all(message.properties["__ENCRYPTION_KEY"] == "k1" for message in found)


async def test_what_was_encrypted_one_by_one_may_be_stored_whole() -> None:
    async with ScriptedPeer() as peer, producing(peer, Keys("k1")) as producer:
        peer.on(BATCH, stored_whole())
        await producer.send_batch([Message("t", b"one", "A"), Message("t", b"two", "B")])
        [sent] = peer.received[BATCH]
    sent.ext_fields |= {"f": "192", "i": sent.ext_fields["i"] + "INNER_NUM\x012\x02"}
    [batch] = decode_batches(as_stored(sent, 5), QUEUE, keys=Keys("k1"))
    assert [message.body for message in batch] == [b"one", b"two"]
    assert [list(each.offsets) for each in decode_batches(as_stored(sent, 5), QUEUE, 6, ["B"], keys=Keys("k1"))] == [
        [6]
    ]


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_without_the_package_that_encrypts_senders_hear_how_to_get_it(
    auto_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, AES, None)
    async with ScriptedPeer() as peer, producing(peer, Keys("k1"), auto_batch=auto_batch) as producer:
        with pytest.raises(ConfigError, match=r"pip install 'raptormq\[encryption\]'"):
            await producer.send(Message("t", b"secret"))
        assert not peer.received[SINGLE] + peer.received[BATCH]


def test_without_the_package_that_decrypts_a_key_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    body = encrypt_body(b"secret", 0, "k1", bytes(16), bytes(12))
    monkeypatch.setitem(sys.modules, AES, None)
    with pytest.raises(KeyMissing, match=r"key 'k1': .* pip install 'raptormq\[encryption\]'"):
        decrypt(body, Keys("k1"))


async def test_merged_messages_are_encrypted_together() -> None:
    async with ScriptedPeer() as peer, producing(peer, Keys("k1"), auto_batch=True, batch_max_delay_ms=1) as producer:
        peer.on(BATCH, stored_whole())
        peer.on(SINGLE, stored(17))
        for _ in range(2):
            await asyncio.gather(*(producer.submit(Message("t", b"%d" % n)) for n in range(3)))
        [whole] = peer.received[SINGLE]
        found = decode_messages(as_stored(whole), QUEUE, 0, Keys("k1"))
        assert [message.body for message in found] == [b"0", b"1", b"2"]


async def test_after_a_rotation_old_messages_are_read_with_the_old_key() -> None:
    async with ScriptedPeer() as peer:
        peer.on(SINGLE, stored())
        for keys in (Keys("k1"), Keys("k2", "k1")):
            async with producing(peer, keys) as producer:
                await producer.send(Message("t", b"body"))
        both = b"".join(map(as_stored, peer.received[SINGLE]))
        keys = Keys("k2", "k1")
        assert [message.body for message in decode_messages(both, QUEUE, 0, keys)] == [b"body"] * 2
        assert keys.asked == ["k1", "k2"]
        for missing in (Keys("k2"), None):
            with pytest.raises(KeyMissing, match="k1"):
                decode_messages(both, QUEUE, 0, missing)


async def test_a_wrong_key_under_a_right_name_is_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "_verified", set())
    right, wrong = (encrypt_body(b"body", 0, "k1", key, bytes(12)) for key in (b"1" * 16, b"2" * 16))
    with pytest.raises(KeyMissing, match="with the key k1; the key of this client has decrypted nothing yet"):
        decrypt(wrong, Keys("k1"))
    assert decrypt(right, Keys("k1")) == b"body"
    with pytest.raises(RecordError, match=r"not encrypted with the key k1$"):
        decrypt(wrong, Keys("k1"))


async def test_damage_is_no_missing_key() -> None:
    async with ScriptedPeer() as peer, producing(peer, Keys("k1")) as producer:
        peer.on(SINGLE, stored())
        await producer.send(Message("t", b"body"))
        [sent] = peer.received[SINGLE]
    told: list[int] = []

    def damaged(record: StoredMessage, _error: RecordError | KeyMissing) -> bool:
        told.append(record.queue_offset)
        return True

    assert len(decode_messages(as_stored(sent), QUEUE, 0, Keys("k1"))) == 1
    flipped = sent.body[:-1] + bytes(
        [sent.body[-1] ^ 1]
    )  # its last byte is random, so a fixed byte would be right at times
    for offset, body in enumerate((flipped, b"plain after all")):
        sent.body = body
        with pytest.raises(RecordError):
            decode_messages(as_stored(sent), QUEUE, 0, Keys("k1"))
        assert decode_batches(as_stored(sent, offset), QUEUE, 0, (), damaged, Keys("k1")) == []
    assert told == [0, 1]


class OwnKeys:
    """A user-defined key source that returns or raises this."""

    def __init__(self, given: bytes | str | Exception | None) -> None:
        self.given = given

    def current(self) -> tuple[str, bytes]:
        return "k1", self.key("k1")

    def key(self, _: str) -> bytes:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given  # type: ignore[return-value]


FAILURES = [TimeoutError("no answer"), KeyError("k1"), b"too short", "x" * 16, None]
OURS = [ConfigError("the key service is away"), RecordError("its answer is cut")]


@pytest.mark.parametrize("given", FAILURES + OURS)
def test_a_source_of_the_application_that_fails_has_no_key_now(given: bytes | str | Exception | None) -> None:
    encrypted = encrypt_body(b"plain", 0, "k1", b"1" * 16, b"n" * 12)
    with pytest.raises(KeyMissing, match="the key 'k1' cannot be read: "):
        decrypt(encrypted, OwnKeys(given))
    assert decrypt(encrypted, OwnKeys(b"1" * 16)) == b"plain"


@pytest.mark.parametrize("given", FAILURES)
async def test_who_sends_learns_that_the_source_of_the_application_failed(
    given: bytes | str | Exception | None,
) -> None:
    async with ScriptedPeer() as peer, producing(peer, OwnKeys(given)) as producer:
        with pytest.raises(ConfigError, match="there is no key to encrypt with: "):
            await producer.send(Message("t", SECRET))


class NamedKeys(OwnKeys):
    """A key source whose key has this name."""

    def __init__(self, name: object) -> None:
        super().__init__(b"1" * 16)
        self.name = name

    def current(self) -> tuple[str, bytes]:
        return self.name, self.key("")  # type: ignore[return-value]


@pytest.mark.parametrize("name", [5, None, b"k1", "", "k" * 256, "é" * 128, "k\ud800", "k\x01"])
@pytest.mark.parametrize("auto_batch", [False, True])
async def test_who_sends_learns_that_the_source_of_the_application_names_no_key(name: object, auto_batch: bool) -> None:
    async with ScriptedPeer() as peer, producing(peer, NamedKeys(name), auto_batch=auto_batch) as producer:
        with pytest.raises(ConfigError, match=r"there is no key to encrypt with: .* is not a valid key name"):
            await producer.send(Message("t", SECRET))
        assert not peer.received[SINGLE]


async def test_the_name_of_a_key_may_have_as_many_bytes_as_its_place_has_room_for() -> None:
    keys = NamedKeys("k" + "é" * 127)
    async with ScriptedPeer() as peer, producing(peer, keys) as producer:
        peer.on(SINGLE, stored())
        await producer.send(Message("t", SECRET))
        [sent] = peer.received[SINGLE]
    assert [message.body for message in decode_messages(as_stored(sent), QUEUE, 0, keys)] == [SECRET]


def test_who_encrypts_needs_keys() -> None:
    with pytest.raises(ConfigError, match="encrypt needs keys"):
        Producer("g", config=ProducerConfig(encrypt=True), client_config=ClientConfig("127.0.0.1:1", keys=None))


def test_who_encrypts_learns_at_once_that_the_keys_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, "/nope")
    Producer("g", name_servers="127.0.0.1:1")
    with pytest.raises(ConfigError, match="cannot read the key folder /nope"):
        Producer("g", name_servers="127.0.0.1:1", config=ProducerConfig(encrypt=True))


async def test_a_failed_message_of_an_encrypted_batch_is_sent_on_encrypted() -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        peer.on(RequestCode.CONSUMER_SEND_MSG_BACK, refuse(ResponseCode.SYSTEM_ERROR))
        peer.on(SINGLE, stored())
        instance = ClientInstance.acquire(ClientConfig(peer.address, keys=Keys("k2", "k1")))
        try:
            message = MessageExt(
                "t", b"body", {"__ENCRYPTION_KEY": "k1"}, QUEUE, 7, 8, "id", "offset id", 1, 2, sys_flag=0xC0
            )
            assert await Redelivery(instance, "g", ConsumerConfig(), ConsumeChain("g", ())).send_back(message)
        finally:
            await instance.release()
        [sent] = peer.received[SINGLE]
        assert decode_properties(sent.ext_fields["i"])["__ENCRYPTION_KEY"] == "k2"
        [again] = decode_messages(as_stored(sent), QUEUE, 0, Keys("k2"))
        assert again.body == b"body"


LIMIT = 1000
ROOM = LIMIT - len(encrypt_body(b"", 0, "k1", bytes(16), bytes(12)))
"""Additional room for an encrypted body."""


@pytest.mark.parametrize("way", ["send", "submit", "send_oneway"])
async def test_a_body_that_encryption_makes_too_large_is_refused_before_it_is_sent(way: str) -> None:
    async with ScriptedPeer() as peer, producing(peer, Keys("k1"), max_message_bytes=LIMIT) as producer:
        peer.on(SINGLE, stored())
        send = getattr(producer, way)
        await send(Message("t", os.urandom(ROOM)))
        with pytest.raises(MessageError, match="a body of 1001 bytes, encrypted, is larger than 1000"):
            await send(Message("t", os.urandom(ROOM + 1)))
        await send(Message("t", b"fits once it is compressed" * 30))
        sent = await peer.wait_for(SINGLE, 2)
        assert len(sent[0].body) == LIMIT


@pytest.mark.parametrize("whole", [False, True], ids=["one by one", "as a whole"])
async def test_a_list_that_encryption_makes_too_large_is_refused_before_it_is_sent(whole: bool) -> None:
    limit = 2 * LIMIT
    settings = {"max_message_bytes": limit, "compress_over_bytes": 0}
    async with ScriptedPeer() as peer, producing(peer, Keys("k1"), **settings) as producer:
        peer.on(BATCH, stored_whole() if whole else stored())
        peer.on(SINGLE, stored())
        await producer.send_batch([Message("t", b"")] * 2)  # tells the client the type of the topic
        kept = peer.received[SINGLE if whole else BATCH]
        await producer.send_batch([Message("t", bytes(600))] * 2)
        left = limit - len(kept[-1].body)
        await producer.send_batch([Message("t", bytes(600)), Message("t", bytes(600 + left))])
        assert len(kept[-1].body) == limit
        before = len(kept)
        with pytest.raises(MessageError, match=r"a batch of 2001 bytes, encrypted, .* split_messages .* key_id="):
            await producer.send_batch([Message("t", bytes(600)), Message("t", bytes(601 + left))])
        assert len(kept) == before


@pytest.mark.parametrize(
    "queues", [[None], [QUEUE], [QUEUE, MessageQueue("t", "broker-0", 1)]], ids=["any", "one", "two"]
)
async def test_messages_that_are_too_large_together_once_they_are_encrypted_go_one_by_one(
    queues: list[MessageQueue | None],
) -> None:
    settings = {"auto_batch": True, "batch_max_bytes": LIMIT, "max_message_bytes": LIMIT, "batch_max_delay_ms": 5.0}
    bodies = [os.urandom(10) for _ in range(10)]
    async with ScriptedPeer() as peer, producing(peer, Keys("k1"), **settings) as producer:
        peer.on(SINGLE, stored())
        await asyncio.gather(*(producer.submit(Message("t", body), queue=queue) for body in bodies for queue in queues))
        assert not peer.received[BATCH] + peer.received[RequestCode.SEND_QUEUE_BATCHES]
        found = [decode_messages(as_stored(sent), QUEUE, 0, Keys("k1"))[0].body for sent in peer.received[SINGLE]]
    assert sorted(found) == sorted(bodies * len(queues))
