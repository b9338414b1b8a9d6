"""Leader election with a coordination.k8s.io Lease.

Clocks of different machines are never compared. A candidate takes over when the Lease has not changed for its duration,
measured with the candidate's own clock. The holder ends after `RENEW_DEADLINE_S` without a successful renewal, before a
candidate may take over. Two processes therefore never lead at the same time, provided that their clocks run at about
the same rate.

    holder      renew .. renew .. X ----- deadline 10 s: exit
    candidate                     | no change seen for 15 s -------- take over
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import Conflict, KubeError
from raptormq_operator.manifests.metadata import Manifest

LEASE_DURATION_S = 15
RENEW_DEADLINE_S = 10.0
RETRY_PERIOD_S = 2.0
RELEASE_S = 5.0
"""Timeout in seconds for releasing the lease at the end of the process."""

log = get_logger(__name__)


class LeaseLost(RaptorMQError):
    """This process is no longer the leader and must end."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Lease, and the identity of this candidate."""

    namespace: str
    name: str
    identity: str


class Lease:
    """Leader election: `await acquire(fit)`, then `await keep()` while leading, then `await release()`."""

    def __init__(
        self, api: KubeApi, candidate: Candidate, *, monotonic: Callable[[], float], now: Callable[[], str]
    ) -> None:
        self._api = api
        self._candidate = candidate
        self._monotonic = monotonic
        self._now = now
        self._seen_version: str | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        """When this process began its last successful request to acquire or renew the lease."""
        self.fault: str | None = None
        """Reason why this process cannot become the leader; None if there is none."""

    async def acquire(self, fit: Callable[[], Awaitable[None]]) -> None:
        """Wait until this process is the leader. While `fit` raises `KubeError`, the process does not take the
        lease."""
        while True:
            try:
                await fit()
                if await self.try_once():
                    self.fault = None
                    return
                self.fault = None
            except KubeError as error:
                if self.fault is None:
                    log.warning("this process cannot lead: %s", error)
                self.fault = str(error)
            await asyncio.sleep(RETRY_PERIOD_S)

    async def keep(self) -> None:
        """Renew the lease until cancelled.

        Raises:
            LeaseLost: The lease could not be renewed for `RENEW_DEADLINE_S`, or another process holds it.
        """
        while True:
            await asyncio.sleep(min(RETRY_PERIOD_S, max(self._left(), 0.0)))
            try:
                async with asyncio.timeout(self._left()):
                    held = await self.try_once()
            except (KubeError, TimeoutError) as error:
                log.warning("the lease could not be renewed: %s", error)
                held = True
            if not held:
                raise LeaseLost("another operator holds the lease")
            if self._left() <= 0:
                raise LeaseLost(f"the lease could not be renewed for {RENEW_DEADLINE_S:.0f} s")

    def _left(self) -> float:
        """Return the seconds until this process has to end unless it renews the lease."""
        return self._renewed_at + RENEW_DEADLINE_S - self._monotonic()

    async def release(self) -> None:
        """Release the lease, so that another candidate can take it immediately."""
        try:
            async with asyncio.timeout(RELEASE_S):
                current = await self._read()
                if current is not None and current["spec"].get("holderIdentity") == self._candidate.identity:
                    await self._api.replace({**current, "spec": {**current["spec"], "holderIdentity": ""}})
        except (KubeError, TimeoutError) as error:
            log.warning("the lease was not released: %s", str(error) or "timeout")

    async def try_once(self) -> bool:
        """Try once to acquire or renew the lease. Return False if another process holds it. Raises `KubeError`."""
        current = await self._read()
        began = self._monotonic()  # other candidates may see the change long before its response arrives
        try:
            if current is None:
                await self._api.create(self._record(None))
            elif self._may_take(current):
                await self._api.replace(self._record(current))
            else:
                return False
        except Conflict:
            return False
        self._renewed_at = began
        return True

    def _may_take(self, current: Manifest) -> bool:
        version = current["metadata"]["resourceVersion"]
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._monotonic()
        holder = current["spec"].get("holderIdentity")
        expired = self._monotonic() - self._seen_at >= current["spec"].get("leaseDurationSeconds", LEASE_DURATION_S)
        return not holder or holder == self._candidate.identity or expired

    async def _read(self) -> Manifest | None:
        return await self._api.get("Lease", self._candidate.namespace, self._candidate.name)

    def _record(self, current: Manifest | None) -> Manifest:
        now, who = self._now(), self._candidate
        before = current["spec"] if current else {}
        same = before.get("holderIdentity") == who.identity
        metadata = current["metadata"] if current else {"namespace": who.namespace, "name": who.name}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": who.identity,
                "leaseDurationSeconds": LEASE_DURATION_S,
                "acquireTime": before["acquireTime"] if same else now,
                "renewTime": now,
                "leaseTransitions": before.get("leaseTransitions", 0) + (0 if same else 1),
            },
        }
