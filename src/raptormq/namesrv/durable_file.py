"""Replacing a small file so that a crash leaves the old or the new one, never half of it.

Used for the key-value store and the configuration that are changed by requests.
"""

from __future__ import annotations

import os
from pathlib import Path

from raptormq.errors import ConfigError


def write_file(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` (UTF-8) atomically and durably, making its folder when needed.

    Raises:
        ConfigError: the folder or the file cannot be written.
    """
    draft = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error
