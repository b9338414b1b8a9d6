"""The HA port of a master and the connections of its slaves (``DefaultHAService``)."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

from raptormq.broker.config import HaSettings
from raptormq.broker.ha.acknowledgements import SlaveAcknowledgements
from raptormq.broker.ha.history_guard import HistoryGuard
from raptormq.broker.ha.master_client import PROMOTED_AT
from raptormq.broker.ha.slave_connection import SlaveConnection
from raptormq.errors import ConfigError, ProtocolError, StorageError
from raptormq.logs import get_logger
from raptormq.storage.store import MessageStore
from raptormq.transport.accept import Acceptor, Refusals, listen

logger = get_logger(__name__)

MAX_SLAVES = 64
_MAX_LOGGED = 1_000


class HaMaster:
    """Serves the slaves of a master. All methods run on the event loop."""

    def __init__(
        self,
        settings: HaSettings,
        bind_address: str,
        port: int,
        store: MessageStore,
        acknowledgements: SlaveAcknowledgements | None,
        *,
        is_needed: bool,
    ) -> None:
        """Create the server.

        Args:
            settings: HA settings of the broker.
            bind_address: address to listen on.
            port: HA port (``haListenPort``).
            store: the store of the master.
            acknowledgements: receives the reports of slaves; None unless the broker is a SYNC_MASTER.
            is_needed: whether the start of the broker must fail if the port is in use.
        """
        self._is_needed = is_needed
        self._settings = settings
        self._bind_address = bind_address
        self.port = port
        self._store = store
        self._acknowledgements = acknowledgements
        self._threads = ThreadPoolExecutor(2, "ha")
        self._slaves: dict[SlaveConnection, asyncio.Task[None]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._acceptor: Acceptor | None = None
        self._refusals = Refusals()
        self._logged: set[tuple[str, str]] = set()
        self._refused = 0
        self.history: HistoryGuard | None = None
        """Decides whether this master may serve; None if it always may."""

    async def start(self) -> None:
        """Open the port.

        Raises:
            ConfigError: the port is in use, and the broker needs it.
        """
        try:
            sockets = await listen(self._bind_address, self.port)
        except ConfigError as error:
            if self._is_needed:
                raise
            logger.warning("cannot serve slaves: %s; set haListenPort to a free port if this master has slaves", error)
            return
        self._acceptor = Acceptor(sockets, self._accept, self._has_room, self._refusals)
        logger.info("serving slaves on port %d", self.port)

    async def stop(self) -> None:
        """Close the port and the connections."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        tasks = [*self._starting, *self._slaves.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._acknowledgements is not None:
            self._acknowledgements.close()
        self._threads.shutdown(wait=False)
        if self.history is not None:
            await self.history.stop()

    def wake(self) -> None:
        """Push newly confirmed bytes to all slaves."""
        for slave in self._slaves:
            slave.wake()

    # --- connections ---

    def _has_room(self) -> bool:
        return len(self._slaves) + len(self._starting) < MAX_SLAVES

    def _accept(self, peer: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(peer))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _serve(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            host, port = peer.getpeername()[:2]
        except OSError:
            peer.close()
            return
        if not self._may_connect(host):
            self._refuse(host, f"{host}:{port}", "its address is not in haSlaveAddresses")
            peer.close()
            return
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, peer)
        except OSError:
            peer.close()
            return
        streams = reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        slave = SlaveConnection(
            streams, f"{host}:{port}", self._store, self._settings, self._in_thread, self._slave_reported
        )
        task = asyncio.current_task()
        assert task is not None
        self._slaves[slave] = task
        self._starting.discard(task)
        try:
            await slave.run()
        except (ProtocolError, ValueError) as error:
            self._refuse(host, slave.peer, str(error))
        except StorageError as error:
            logger.warning("cannot read the part of the log that the slave at %s needs: %s", slave.peer, error)
        except (OSError, EOFError):
            logger.info("the slave at %s has disconnected", slave.peer)
        finally:
            del self._slaves[slave]
            slave.close()
            if self._acknowledgements is not None:
                self._acknowledgements.gone(slave)

    async def _in_thread(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _may_connect(self, host: str) -> bool:
        networks = self._settings.allowed_networks
        if not networks:
            return True
        address = ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in networks)

    def _refuse(self, host: str, peer: str, reason: str) -> None:
        self._refused += 1
        if self.history is not None:
            self.history.check_soon()
        if (host, reason) not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add((host, reason))
            logger.warning("refused the slave at %s: %s", peer, reason)

    def _slave_reported(self, slave: SlaveConnection, end: int) -> None:
        if self._acknowledgements is not None:
            self._acknowledgements.reported(slave, end)

    # --- status ---

    @property
    def refusal(self) -> str:
        """Reason why this master does not serve; empty while it does."""
        return "" if self.history is None else self.history.reason

    def _gap(self, slave: SlaveConnection) -> int:
        return self._store.confirmed_offset - (slave.end or 0)

    def _in_sync(self, slave: SlaveConnection) -> bool:
        return slave.end is not None and self._gap(slave) < self._settings.max_gap_bytes

    def connections(self) -> dict[str, Any]:
        """Return the body of ``mqadmin haStatus`` (907)."""
        infos = [
            {
                "addr": slave.peer,
                "diff": self._gap(slave),
                "inSync": self._in_sync(slave),
                "slaveAckOffset": slave.end or 0,
                "transferFromWhere": slave.pushed_offset,
                "transferredByteInSecond": 0,
            }
            for slave in self._slaves
        ]
        return {"haConnectionInfo": infos, "inSyncSlaveNums": sum(map(self._in_sync, self._slaves)), "master": True}

    def facts(self) -> dict[str, str]:
        """Return the entries about slaves for ``mqadmin brokerStatus`` (28)."""
        return {f"haSlave_{slave.peer}": f"{self._gap(slave)} bytes behind" for slave in self._slaves} | {
            "haSlaves": str(len(self._slaves)),
            "haRefusedConnections": str(self._refused),
            **({PROMOTED_AT: str(at)} if self.history is not None and (at := self.history.promoted_at) else {}),
            **({"haReason": self.refusal} if self.refusal else {}),
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the gauges for Prometheus as name -> (help text, value)."""
        return {
            "ha_slaves": ("Connected slaves", float(len(self._slaves))),
            "ha_slaves_in_sync": (
                "Connected slaves that are less than haMaxGapNotInSync behind",
                float(sum(map(self._in_sync, self._slaves))),
            ),
            "ha_lag_bytes": (
                "Lag of the slowest connected slave in bytes",
                float(max(map(self._gap, self._slaves), default=0)),
            ),
            "ha_refused_connections_total": (
                "Connections to the HA port that were refused: not a slave of this master, or not in haSlaveAddresses",
                float(self._refused),
            ),
            "ha_refuses_to_serve": (
                "1 while this master serves nobody: another broker of its name has messages that it lacks",
                float(bool(self.refusal)),
            ),
        }
