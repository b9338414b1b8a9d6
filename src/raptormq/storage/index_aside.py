"""Files of the key index that are set aside: they have another number of slots than files are to have, or are none, so
that their keys are not found. Each is kept, for who sets the old number again, while the log has messages of its.

Neighbour: :mod:`~raptormq.storage.key_index` sets them aside, :mod:`~raptormq.storage.housekeeping` has the timer.
"""

from __future__ import annotations

import contextlib
import re

from raptormq.logs import get_logger
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.index_file import HEADER, HEADER_BYTES

logger = get_logger(__name__)

_ASIDE = ".aside"
"""What is behind the name of such a file."""
_NAME = re.compile(r"[0-9]{17}\.aside")


def set_aside(filesystem: FileSystem, path: str, reason: Exception) -> None:
    """Give ``path`` another name, with a warning.

    Raises:
        OSError: it cannot be renamed.
    """
    aside = f"{path}{_ASIDE}"
    filesystem.replace(path, aside)
    logger.warning("keys in %s are not found, it is %s now: %s", path, aside, reason)


def remove_aside(filesystem: FileSystem, folder: str, log_min: int) -> None:
    """Remove files below ``folder`` that were set aside and only have messages before ``log_min``; what has no header
    stays, it may be anything. Waits for the disk.

    Raises:
        OSError: one cannot be read or removed.
    """
    for name in filesystem.names(folder):
        path = f"{folder}/{name}"
        if not _NAME.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            if _end_offset(filesystem, path, log_min) < log_min:
                filesystem.remove(path)
                logger.info("%s is removed, the log has none of its messages any more", path)


def _end_offset(filesystem: FileSystem, path: str, unknown: int) -> int:
    """Return the place of the last message of a file, ``unknown`` when it has no header that says so."""
    try:
        file = filesystem.open(path)
    except IsADirectoryError:
        return unknown
    with contextlib.closing(file):
        data = file.read_at(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return unknown
    begin_timestamp, end_timestamp, begin, end, _, next_entry = HEADER.unpack(data)
    is_header = 0 < begin_timestamp <= end_timestamp and 0 <= begin <= end and next_entry > 1
    return int(end) if is_header else unknown
