"""Apache RocketMQ 5.5.0 as a Dledger group of three brokers with a name server, on one machine."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from raptormq.client import AdminClient
from raptormq.errors import NoRoute
from tests.interop.rocketmq_java import JavaBuild, Release, RocketMQServers
from tests.ports import free_port

MEMBERS = ("n0", "n1", "n2")
_GROUP = "broker-a"
_HEAP = "2g"
_ELECTION_S = 60.0
_POLL_S = 0.1


class ApacheDledger:
    """The name server and the brokers."""

    def __init__(self, build: JavaBuild, folder: Path) -> None:
        peers = ";".join(f"{member}-127.0.0.1:{free_port()}" for member in MEMBERS)
        port = free_port()
        self._members = [
            RocketMQServers(
                build,
                folder / f"apache-{member}",
                heap=_HEAP,
                namesrv_port=port,
                options=["-Dtls.server.mode=disabled"],  # otherwise each broker takes seconds to create a certificate
                release=Release.NEWEST,
                settings={
                    "brokerName": _GROUP,
                    "enableDLegerCommitLog": "true",
                    "dLegerGroup": _GROUP,
                    "dLegerPeers": peers,
                    "dLegerSelfId": member,
                    "sendMessageThreadPoolNums": "16",
                    # With the default of 200 ms the leader refuses nearly all messages of a load without a rate limit.
                    "waitTimeMillsInSendQueue": "10000",
                    "diskMaxUsedSpaceRatio": "95",
                },
            )
            for member in MEMBERS
        ]

    @property
    def name_servers(self) -> str:
        return self._members[0].name_servers

    def start(self) -> None:
        """Start the name server and the brokers, and wait until their ports are open; raises ProcessError."""
        for member in self._members:
            member.folder.mkdir(parents=True)
        self._members[0].start_name_server()
        with ThreadPoolExecutor(len(MEMBERS)) as threads:
            list(threads.map(RocketMQServers.start_broker, self._members))

    @staticmethod
    async def wait_for_leader(admin: AdminClient) -> None:
        """Wait until the members have elected a leader, which registers as a master. Raises TimeoutError."""
        async with asyncio.timeout(_ELECTION_S):
            while True:
                try:
                    await admin.masters()
                    return
                except NoRoute:
                    await asyncio.sleep(_POLL_S)

    def kill(self) -> None:
        """Send SIGKILL to all processes; the data is not needed afterwards."""
        for member in self._members:
            member.kill()
