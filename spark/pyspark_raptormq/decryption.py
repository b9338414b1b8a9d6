"""Decryption of bodies in an index of stored records. Decrypted bodies are appended to the response buffer. No I/O.

A single message is encrypted on its own. Of a batch that is stored whole, either the batch or each of its messages is
encrypted (`raptormq.protocol.encryption`). Bodies are decrypted one by one.
`decode` calls this module before and after `inner_batches` unpacks the batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from pyspark_raptormq.damage import Damage
from pyspark_raptormq.record_index import RecordIndex
from raptormq.client import EncryptionKeys
from raptormq.client.message import decrypt
from raptormq.errors import KeyMissing, RecordError
from raptormq.protocol.compression import decompress
from raptormq.protocol.encryption import is_encrypted_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.properties import ENCRYPTION_KEY_ID, NAME_SEPARATOR, find_property
from raptormq.protocol.record import SysFlag

_ENCRYPTED = f"{ENCRYPTION_KEY_ID}{NAME_SEPARATOR}".encode()
_COMPRESSION = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
_PLAIN_BYTES = 32 * 1024 * 1024
"""Size of decrypted bodies at which a part of the index ends. Bodies are compressed before they are encrypted, so they
may expand."""


class Decryption:
    """Decrypts the bodies of one task.

    Args:
        keys: keys for decrypting bodies.
        damage: handler of damaged bodies.
        bodies_wanted: whether to decrypt single messages. Batches are always decrypted, because they must be unpacked.
    """

    def __init__(self, keys: EncryptionKeys | None, damage: Damage, *, bodies_wanted: bool) -> None:
        self._keys = keys
        self._damage = damage
        self._bodies_wanted = bodies_wanted

    def of_records(self, index: RecordIndex) -> Iterator[tuple[RecordIndex, frozenset[int]]]:
        """Yield the index in parts, with decrypted bodies, and the queue offsets of the decrypted records.

        Raises:
            KeyMissing: A body is encrypted with an unknown key.
            RecordError: A body is damaged, and `damage` does not permit skipping it.
        """
        return self._parts(index, done=())

    def of_inner_messages(self, index: RecordIndex, done: Collection[int]) -> Iterator[RecordIndex]:
        """Yield the index after unpacking in parts, with decrypted bodies. Messages at offsets in `done` are already
        decrypted.

        Raises:
            KeyMissing, RecordError: See `of_records`.
        """
        return (part for part, _ in self._parts(index, done))

    def _parts(self, index: RecordIndex, done: Collection[int]) -> Iterator[tuple[RecordIndex, frozenset[int]]]:
        if not index.may_have_property(_ENCRYPTED):
            yield index, frozenset()
            return
        plain: dict[int, bytes] = {}
        dropped: set[int] = set()
        first = grown = 0
        for row in range(len(index)):
            offset = int(index.queue_offset[row])
            try:
                body = None if offset in done else self._plain(index, row)
            except KeyMissing as error:
                hint = "set option encryptionKeyFile or encryptionKeyFolder"
                raise KeyMissing(f"offset {offset} of the queue cannot be read: {error}; {hint}") from error
            except RecordError as error:
                self._damage.report(offset, error)
                dropped.add(row)
                continue
            if body is not None:
                plain[row] = body
                grown += len(body)
            if grown >= _PLAIN_BYTES:
                yield _replaced(index, range(first, row + 1), plain, dropped)
                first, grown, plain = row + 1, 0, {}
        if first < len(index):
            yield _replaced(index, range(first, len(index)), plain, dropped)

    def _plain(self, index: RecordIndex, row: int) -> bytes | None:
        """Return the decrypted body; None if the body is not encrypted or not needed."""
        text = index.data[index.properties_at[row] : index.properties_end[row]].decode("utf-8", "replace")
        if find_property(text, ENCRYPTION_KEY_ID) is None:
            return None
        sys_flag = int(index.sys_flag[row])
        batched = sys_flag & INNER_BATCH == INNER_BATCH
        if not (batched or self._bodies_wanted):
            return None
        body = decompress(index.data[index.body_at[row] : index.body_end[row]], sys_flag)
        if batched and not is_encrypted_body(body):
            return None  # the messages of this batch are encrypted individually
        return decrypt(body, self._keys)


def _replaced(
    index: RecordIndex, rows: range, plain: dict[int, bytes], dropped: set[int]
) -> tuple[RecordIndex, frozenset[int]]:
    """Return the given rows with their decrypted bodies, without the rows in `dropped`."""
    body_at, body_end, sys_flag = index.body_at.copy(), index.body_end.copy(), index.sys_flag.copy()
    bodies, position = [index.data], len(index.data)
    for row, body in plain.items():
        bodies.append(body)
        body_at[row], position = position, position + len(body)
        body_end[row] = position
        sys_flag[row] &= ~_COMPRESSION
    chosen = np.array([row for row in rows if row not in dropped], np.int64)
    whole = replace(index, data=b"".join(bodies), body_at=body_at, body_end=body_end, sys_flag=sys_flag)
    return whole.select(chosen), frozenset(index.queue_offset[list(plain)].tolist())
