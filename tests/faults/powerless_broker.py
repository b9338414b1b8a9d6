"""A broker process with SYNC_FLUSH, each run of which ends with a power failure.

See also: :mod:`~tests.faults.power_cut` has the volume, :mod:`~tests.faults.broker_process` the process.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from raptormq.protocol.codes import RequestCode
from raptormq.storage.fs.page_checksum import PAGE_BYTES
from raptormq.storage.recovery.checkpoint_file import Checkpoint, decode_checkpoint
from tests.broker.harness import send_fields
from tests.faults.broker_process import Client, process
from tests.faults.power_cut import PowerCutVolume

STORE = "deep/down/store"
"""The broker. None of its folders exists before the first start."""


class PowerlessBroker:
    """Settings of all runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self.volume = PowerCutVolume(folder)
        self.store = self.volume.root / STORE
        self.client = Client(port)
        self._log = folder / "broker.log"
        self._port = port

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[subprocess.Popen[bytes]]:
        """Run the broker during the block. The power fails at its end."""
        pairs = {"storePathRootDir": str(self.store), "flushDiskType": "SYNC_FLUSH"}
        preloaded = self.volume.environment()
        async with process(self.volume.root, self._port, pairs, environment=preloaded, log=self._log) as server:
            yield server
        self.volume.cut()

    async def send(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> None:
        """Send a message. When this returns, the message is acknowledged."""
        answer = await self.client.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), body)
        assert answer.code == 0, answer

    def warnings(self) -> str:
        """Log of the current or the last run."""
        return self._log.read_text()

    def checkpoint(self) -> Checkpoint:
        """What the last power failure has left of it."""
        data = (self.store / "checkpoint").read_bytes()
        assert len(data) == PAGE_BYTES
        return decode_checkpoint(data)


@contextlib.asynccontextmanager
async def powerless_broker(folder: Path, port: int) -> AsyncIterator[PowerlessBroker]:
    """The broker. Its files are below ``folder``, which is empty."""
    broker = PowerlessBroker(folder, port)
    try:
        yield broker
    finally:
        await broker.client.close()
