"""Progress of a broadcasting consumer, which is its own and stays on its machine.

File `<folder>/<client id>/<group>/offsets.json`, in the Java client's form: `{"offsetTable":{{queue}:offset}}`. The
client id holds the process unless `ClientConfig.instance_name` is set: only then does the next process find the file.
Neighbours: `commits` writes, `queue_reader` asks. Source: RocketMQ `LocalFileOffsetStore`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from raptormq.errors import ClientError, ProtocolError
from raptormq.protocol.bodies.queue_offsets import decode_offsets, encode_offsets
from raptormq.protocol.message import MessageQueue


class LocalOffsets:
    """The offsets of one consumer.

    Raises:
        ClientError: the file is there and cannot be read.
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        self._path = folder / client_id / group / "offsets.json"
        self._writing = asyncio.Lock()
        self._noted = self._written = 0
        """How often progress was noted, and how much of that is in the file."""
        try:
            self._offsets = decode_offsets(self._path.read_bytes())
        except FileNotFoundError:
            self._offsets = {}
        except (OSError, ProtocolError) as error:
            raise ClientError(f"the offsets in {self._path} cannot be read: {error}") from error

    def get(self, queue: MessageQueue) -> int | None:
        """Return where to go on, None in a queue that is new."""
        return self._offsets.get(queue)

    async def put(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; on return it is in the file. What is noted during a write goes into the next one together.

        Raises:
            ClientError: it could not be written.
        """
        self._offsets[queue] = offset
        self._noted = own = self._noted + 1
        async with self._writing:
            if self._written >= own:
                return
            noted = self._noted
            try:
                await asyncio.to_thread(self._write, dict(self._offsets))
                self._written = noted
            except OSError as error:
                raise ClientError(f"the offsets cannot be written to {self._path}: {error.strerror}") from error

    def _write(self, offsets: dict[MessageQueue, int]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".tmp")
        fresh.write_bytes(encode_offsets(offsets))
        os.replace(fresh, self._path)
