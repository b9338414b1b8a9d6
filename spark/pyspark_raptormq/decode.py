"""Decoding of stored records of one queue into Arrow record batches. No I/O.

A buffer of several pull responses (about 4 MB, thousands of records) is decoded as a whole: `record_index` locates all
fields, then one call builds each column. A variable-length column is an array of alternating values and gaps over the
buffer, from which Arrow takes every second item, so bodies are copied once, by C++ code.

Used by `scan`; uses `columns` and `property_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_raptormq.columns import PropertiesAs, arrow_schema
from pyspark_raptormq.damage import Damage
from pyspark_raptormq.decryption import Decryption
from pyspark_raptormq.inner_batches import without_inner_batches
from pyspark_raptormq.property_columns import PropertyTable, property_table
from pyspark_raptormq.record_index import Longs, RecordIndex, index_records
from raptormq.client import EncryptionKeys
from raptormq.errors import RecordError
from raptormq.protocol import properties
from raptormq.protocol.compression import decompress
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.record import SysFlag

_V6_HOST_BYTES = 20
_PLAIN_BATCH_BYTES = 32 * 1024 * 1024
"""Size of decompressed bodies at which a batch ends. Compressed bodies may expand a thousandfold."""


class RecordDecoder:
    """Decodes the records of one queue into Arrow batches.

    Args:
        queue: the queue of the records.
        columns: names from `columns.KNOWN_COLUMNS`, in output order.
        properties_as: type of the column `properties`.
        tags: tags to return; empty for all. Brokers compare only hashes, so the tags are compared again here.
        verify_crc: whether to verify the checksums of bodies.
        damage: handler of damaged records; the default raises.
        keys: keys for decrypting bodies.
    """

    def __init__(
        self,
        queue: MessageQueue,
        columns: tuple[str, ...],
        properties_as: PropertiesAs = PropertiesAs.NONE,
        tags: frozenset[str] = frozenset(),
        *,
        verify_crc: bool = True,
        damage: Damage | None = None,
        keys: EncryptionKeys | None = None,
    ) -> None:
        self._queue = queue
        self._columns = columns
        self._properties_as = properties_as
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None
        self._verify_crc = verify_crc
        self._damage = damage or Damage(queue)
        self._decryption = Decryption(keys, self._damage, bodies_wanted="value" in columns)
        self._schema = arrow_schema(columns, properties_as)

    def decode(self, data: bytes, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of the records in `data` with queue offsets `start` <= o < `end`.

        Raises:
            RecordError: The data is damaged, and `damage` does not permit skipping it.
            KeyMissing: A body is encrypted with an unknown key.
        """
        index = index_records(data)
        batched = index.sys_flag & INNER_BATCH == INNER_BATCH
        of_interest = (index.queue_offset < end) & (batched | (index.queue_offset >= start))
        if not of_interest.all():
            index = index.select(of_interest)
        if self._verify_crc:
            index = self._with_right_crc(index)
        for records, decrypted in self._decryption.of_records(index):
            for messages in without_inner_batches(records, self._damage):
                wanted = (messages.queue_offset >= start) & (messages.queue_offset < end)
                chosen = messages if wanted.all() else messages.select(wanted)
                for plain in self._decryption.of_inner_messages(chosen, decrypted):
                    if len(plain):
                        yield from self._batches(_Records(plain, self._queue))

    def _with_right_crc(self, index: RecordIndex) -> RecordIndex:
        damaged = index.damaged_bodies()
        if not len(damaged):
            return index
        for offset in index.queue_offset[damaged].tolist():
            self._damage.report(offset, RecordError("the CRC of the body does not match"))
        whole = np.ones(len(index), np.bool_)
        whole[damaged] = False
        return index.select(whole)

    def _batches(self, records: _Records) -> Iterator[pa.RecordBatch]:
        index = records.index
        if "value" in self._columns and np.any(index.sys_flag & int(SysFlag.COMPRESSED)):
            chunks = _plain_bodies(index, self._damage)
        else:
            chunks = iter([(0, len(index), None)])
        columns = {name: self._column(records, name) for name in self._columns if name != "value"}
        wanted_tags = None if self._tags is None else pc.is_in(records.properties.values(properties.TAGS), self._tags)
        for first, last, plain in chunks:
            bodies = plain if plain is not None else index.bodies() if "value" in self._columns else None
            arrays = [bodies if name == "value" else columns[name][first:last] for name in self._columns]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            chosen = None if wanted_tags is None else wanted_tags[first:last]
            if plain is not None and plain.null_count:
                chosen = plain.is_valid() if chosen is None else pc.and_(chosen, plain.is_valid())
            if chosen is not None:
                batch = batch.filter(chosen)
            if batch.num_rows:
                yield batch

    def _column(self, records: _Records, name: str) -> pa.Array:
        if name != "properties":
            return _COLUMNS[name](records)
        if self._properties_as is PropertiesAs.RAW:
            return records.index.raw_properties
        return records.properties.map(without_system=self._properties_as is PropertiesAs.USER)


class _Records:
    """Intermediate values that several columns share, each computed at its first use."""

    def __init__(self, index: RecordIndex, queue: MessageQueue) -> None:
        self.index = index
        self.queue = queue
        self._properties: PropertyTable | None = None
        self._keys: pa.Array | None = None
        self._several_keys: bool | None = None

    @property
    def properties(self) -> PropertyTable:
        if self._properties is None:
            self._properties = property_table(self.index.raw_properties)
        return self._properties

    @property
    def keys(self) -> pa.Array:
        """The keys of each message as one text, separated by spaces."""
        if self._keys is None:
            self._keys = self.properties.values(properties.KEYS)
        return self._keys

    @property
    def several_keys(self) -> bool:
        """Whether a message has more than one key."""
        if self._several_keys is None:
            self._several_keys = bool(pc.any(pc.match_substring(self.keys, properties.KEY_SEPARATOR)).as_py())
        return self._several_keys

    def constant(self, value: str | int, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(self.index))


def _plain_bodies(index: RecordIndex, damage: Damage) -> Iterator[tuple[int, int, pa.Array]]:
    """Yield tuples of first row, end row (exclusive) and decompressed bodies, in portions of about
    `_PLAIN_BATCH_BYTES`. A damaged body is null."""
    bodies: list[bytes | None] = []
    first = size = 0
    rows = zip(index.body_at.tolist(), index.body_end.tolist(), index.sys_flag.tolist(), strict=True)
    for row, (start, end, sys_flag) in enumerate(rows, 1):
        try:
            bodies.append(body := decompress(index.data[start:end], sys_flag))
            size += len(body)
        except RecordError as error:
            damage.report(int(index.queue_offset[row - 1]), error)
            bodies.append(None)
        if size >= _PLAIN_BATCH_BYTES or row == len(index):
            yield first, row, pa.array(bodies, pa.binary())
            bodies, first, size = [], row, 0


def _timestamps(milliseconds: Longs) -> pa.Array:
    return pa.array(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))


def _message_ids(records: _Records) -> pa.Array:
    unique = records.properties.values(properties.UNIQUE_KEY)
    return unique if unique.null_count == 0 else pc.coalesce(unique, _offset_ids(records.index))


def _offset_ids(index: RecordIndex) -> pa.Array:
    if np.any(index.sys_flag & int(SysFlag.STORE_HOST_V6)):
        lengths = np.where(index.sys_flag & int(SysFlag.STORE_HOST_V6), _V6_HOST_BYTES, 8)
        hosts = zip(index.store_host_at.tolist(), lengths.tolist(), index.physical_offset.tolist(), strict=True)
        return pa.array([offset_id(index.data[at : at + size], offset) for at, size, offset in hosts], pa.string())
    # Eight bytes of address and eight of offset per record, converted to hexadecimal by one call.
    numbers = np.empty((len(index), 2), ">u8")
    numbers[:, 0] = _unaligned_longs(index.data)[index.store_host_at]
    numbers[:, 1] = index.physical_offset
    digits = numbers.tobytes().hex().upper().encode()
    bounds = np.arange(0, len(digits) + 1, 32, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(index), [None, pa.py_buffer(bounds), pa.py_buffer(digits)])


def _unaligned_longs(data: bytes) -> npt.NDArray[np.uint64]:
    return np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(properties.KEY_SEPARATOR) if word]


def _first_keys(records: _Records) -> pa.Array:
    if not records.several_keys:
        return records.keys
    return pa.array([next(iter(_words(text)), None) for text in records.keys.to_pylist()], pa.string())


def _all_keys(records: _Records) -> pa.Array:
    texts, kind = records.keys, pa.list_(pa.field("element", pa.string()))
    if records.several_keys:
        return pa.array([_words(text) for text in texts.to_pylist()], kind)
    present = texts.is_valid()
    bounds = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(present.to_numpy(zero_copy_only=False), out=bounds[1:])
    return pa.ListArray.from_arrays(pa.array(bounds), texts.drop_null(), type=kind)


_COLUMNS: dict[str, Callable[[_Records], pa.Array]] = {
    "key": _first_keys,
    "topic": lambda records: records.constant(records.queue.topic, pa.string()),
    "brokerName": lambda records: records.constant(records.queue.broker_name, pa.string()),
    "queueId": lambda records: records.constant(records.queue.queue_id, pa.int32()),
    "queueOffset": lambda records: pa.array(records.index.queue_offset),
    "storeTimestamp": lambda records: _timestamps(records.index.store_ms),
    "bornTimestamp": lambda records: _timestamps(records.index.born_ms),
    "tags": lambda records: records.properties.values(properties.TAGS),
    "keys": _all_keys,
    "msgId": _message_ids,
}
