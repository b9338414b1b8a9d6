"""A checksum for files of 4,096 bytes in RocketMQ's layout, most of which is unused. Damage is detected, and RocketMQ
still reads the file::

     0  fields                 of the file
   504  "RQC1"
   508  CRC32 u32              of bytes 0 to 503

The checksum lies in the first 512 bytes, so that even disks with the smallest sectors write it together with the
fields. RocketMQ updates its fields in place: a file that RocketMQ has changed has a checksum that does not match, and a
file that RocketMQ has created has none.
"""

from __future__ import annotations

from zlib import crc32

PAGE_BYTES = 4096
_MAGIC = b"RQC1"
_AT = 504
_END = 512
_NONE = bytes(_END - _AT)


def checksummed_page(fields: bytes) -> bytes:
    """Return the whole file; ``fields`` are up to 504 bytes."""
    body = fields.ljust(_AT, b"\0")
    return (body + _trailer(body)).ljust(PAGE_BYTES, b"\0")


def has_checksum(page: bytes) -> bool:
    """Whether ``page`` has a checksum, valid or not."""
    return page[_AT:_END].ljust(len(_NONE), b"\0") != _NONE


def has_wrong_checksum(page: bytes) -> bool:
    """Whether ``page`` has a checksum that does not match its contents."""
    return has_checksum(page) and page[_AT:_END] != _trailer(page[:_AT])


def _trailer(body: bytes) -> bytes:
    return _MAGIC + crc32(body).to_bytes(4, "big")
