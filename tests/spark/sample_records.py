"""Stored records for the tests of the Spark source, as hypothesis strategies and as byte buffers.

See also: `raptormq.protocol.record`, whose decoder is the reference for the columns.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.frame
import zstandard
from hypothesis import strategies as st

from raptormq.protocol.message import MessageQueue
from raptormq.protocol.record import StoredMessage, SysFlag, encode_record

QUEUE = MessageQueue("flights", "broker-a", 3)

COMPRESSIONS: dict[int, Callable[[bytes], bytes]] = {
    int(SysFlag.COMPRESSED): zlib.compress,
    int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB): zlib.compress,
    int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4): lz4.frame.compress,
    int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD): zstandard.ZstdCompressor().compress,
}
"""Compression of the bodies, by the bits of SYSFLAG."""


def message(offset: int, body: bytes = b"body", properties: str = "", **fields: object) -> StoredMessage:
    """One message of `QUEUE`."""
    plain = StoredMessage(QUEUE.topic, QUEUE.queue_id, body, properties, queue_offset=offset)
    for name, value in fields.items():
        setattr(plain, name, value)
    return plain


def buffer_of(*messages: StoredMessage) -> bytes:
    """Return the messages in the format of a pull response."""
    return b"".join(map(encode_record, messages))


def properties_text(**properties: str) -> str:
    """Return the text form of properties."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


_WORDS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
_NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "CLUSTER"]) | _WORDS
_PAIRS = st.tuples(_NAMES, _WORDS).map("\x01".join)
_WELL_FORMED = st.lists(_PAIRS, max_size=6).map(lambda pairs: "".join(pair + "\x02" for pair in pairs))
_UNTERMINATED = st.lists(_PAIRS, min_size=1, max_size=6).map("\x02".join)
_ANYTHING = st.text(st.sampled_from("\x01\x02AB é"), max_size=30)
_HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
_LONG = st.integers(-(2**63), 2**63 - 1)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    """Strategy for messages of any queue. About a third of the bodies are compressed."""
    body = draw(st.binary(max_size=300))
    sys_flag = draw(st.sampled_from([0, 0, 0, 2, *COMPRESSIONS]))
    return StoredMessage(
        topic=draw(st.sampled_from(["t", "flights", "x" * 127, "%RETRY%" + "g" * 200])),
        queue_id=draw(st.integers(0, 1000)),
        body=COMPRESSIONS[sys_flag](body) if sys_flag in COMPRESSIONS else body,
        properties=draw(_WELL_FORMED | _UNTERMINATED | _ANYTHING),
        sys_flag=sys_flag,
        queue_offset=draw(st.integers(0, 2**62)),
        physical_offset=draw(st.integers(0, 2**62)),
        born_timestamp=draw(st.integers(0, 4_000_000_000_000)),
        store_timestamp=draw(st.integers(0, 4_000_000_000_000)),
        born_host=draw(_HOSTS),
        store_host=draw(_HOSTS),
        reconsume_times=draw(st.integers(0, 16)),
        prepared_transaction_offset=draw(_LONG),
    )
