"""Encrypted bodies in an index of stored records: the plain ones take their places, behind the response. Pure.

A message is encrypted by itself, a batch that is stored whole as one, or every message in it
(`raptormq.protocol.encryption`). Nothing of this can be done for many records at once.
Neighbours: `decode` asks before and after `inner_batches` takes batches apart.
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
"""Bodies are compressed before they are encrypted: a part of the index ends when this much came out of them."""


class Decryption:
    """Decrypts the bodies of one task.

    Args:
        keys: what bodies are decrypted with.
        damage: whether to go on without bodies that are damaged.
        bodies_wanted: whether single messages have to be decrypted too: else only batches, to be taken apart.
    """

    def __init__(self, keys: EncryptionKeys | None, damage: Damage, *, bodies_wanted: bool) -> None:
        self._keys = keys
        self._damage = damage
        self._bodies_wanted = bodies_wanted

    def of_records(self, index: RecordIndex) -> Iterator[tuple[RecordIndex, frozenset[int]]]:
        """Yield the index in parts, with plain bodies, and the queue offsets of the messages that were encrypted.

        Raises:
            KeyMissing: a body is encrypted with a key that is not there.
            RecordError: a body is damaged, and `damage` does not let it pass.
        """
        return self._parts(index, done=())

    def of_inner_messages(self, index: RecordIndex, done: Collection[int]) -> Iterator[RecordIndex]:
        """Yield the index of messages that stood in batches, or are those of `done`, in parts, with plain bodies.

        Raises:
            KeyMissing, RecordError: as in `of_records`.
        """
        return (part for part, _ in self._parts(index, done))

    def _parts(self, index: RecordIndex, done: Collection[int]) -> Iterator[tuple[RecordIndex, frozenset[int]]]:
        if _ENCRYPTED not in index.data:
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
        """Return the plain body of an encrypted one, `None` when it is to stay as it is."""
        text = index.data[index.properties_at[row] : index.properties_end[row]].decode("utf-8", "replace")
        if find_property(text, ENCRYPTION_KEY_ID) is None:
            return None
        sys_flag = int(index.sys_flag[row])
        batched = sys_flag & INNER_BATCH == INNER_BATCH
        if not (batched or self._bodies_wanted):
            return None
        body = decompress(index.data[index.body_at[row] : index.body_end[row]], sys_flag)
        if batched and not is_encrypted_body(body):
            return None  # its messages are encrypted one by one
        return decrypt(body, self._keys)


def _replaced(
    index: RecordIndex, rows: range, plain: dict[int, bytes], dropped: set[int]
) -> tuple[RecordIndex, frozenset[int]]:
    """Return some rows with their plain bodies, without those `dropped`."""
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
