"""A seal on a file that has RocketMQ's layout, 4,096 bytes of which most are unused: damage shows, and RocketMQ reads
the file as ever::

     0  fields                 of the file
   504  "RQC1"
   508  CRC32 u32              of bytes 0 to 503

It is in the first 512 bytes, so that fields and seal are written together on disks with the smallest sectors, too.
RocketMQ writes its fields in place: a file that it has gone on with keeps the seal, which does not fit any more, and
one that it made has none.
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
    """Whether there is a seal on ``page``, broken or not."""
    return page[_AT:_END].ljust(len(_NONE), b"\0") != _NONE


def has_wrong_checksum(page: bytes) -> bool:
    """Whether there is a seal, and ``page`` is not what it was put on."""
    return has_checksum(page) and page[_AT:_END] != _trailer(page[:_AT])


def _trailer(body: bytes) -> bytes:
    return _MAGIC + crc32(body).to_bytes(4, "big")
