"""The key ``mapedFileSizeConsumeQueue`` of published files, which Apache RocketMQ 5 does not have.

RocketMQ ignores the key, so a migrated store has queue files of the default size. Earlier versions of this broker used
the value, so their stores have files of that size. The files decide.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from raptormq.config_file import parse_setting, size
from raptormq.storage.queue import ITEM_BYTES

OLD_QUEUE_SIZE, QUEUE_SIZE = "mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"
QUEUE_FILE_BYTES = size(ITEM_BYTES, 1 << 31)
"""Parser of both keys."""
_EXAMINED_FILES = 100


def is_size_of_queue_files(text: str, root_dir: str) -> bool:
    """Return whether the queue files of a store have the size ``text``, rounded up to whole items.

    Raises:
        ConfigError: ``text`` is not a size.
    """
    wanted = -(-parse_setting(OLD_QUEUE_SIZE, text, QUEUE_FILE_BYTES) // ITEM_BYTES) * ITEM_BYTES
    files = Path(root_dir, "consumequeue").glob("*/*/*")
    return any(file.stat().st_size == wanted for file in islice(files, _EXAMINED_FILES))
