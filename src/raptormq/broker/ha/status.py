"""Status of a master or a slave for the operator, probes and tools.

A slave may always be restarted. A master may be restarted when a slave is in sync, because that slave then serves reads
and can be promoted. An ASYNC_MASTER without a slave counts as a broker without replication, because many settings files
contain this role as a default.
"""

from __future__ import annotations

from raptormq.broker.ha.master import HaMaster
from raptormq.broker.ha.slave import HaSlave
from raptormq.protocol.bodies.replication import (
    CAUGHT_UP_SLAVE_BYTES,
    MASTER_SLAVE,
    UNREPLICATED,
    CopyState,
    ReplicationState,
    Verdict,
)
from raptormq.storage.store import MessageStore


class HaStatus:
    """Status of one master or slave."""

    def __init__(
        self, ha: HaMaster | HaSlave, broker_name: str, store: MessageStore, address: str, *, is_sync: bool
    ) -> None:
        """Create the status.

        Args:
            ha: the replication of the broker.
            broker_name: name of the broker.
            store: the store of the broker.
            address: address of the broker for clients.
            is_sync: whether acknowledgements wait for slaves (SYNC_MASTER).
        """
        self._ha = ha
        self._is_sync = is_sync
        self._broker_name = broker_name
        self._store = store
        self._address = address

    def describe(self, restarting: str = "") -> ReplicationState:
        """Return the status of the master and its slaves as this broker knows it. A master knows its slaves by address.
        A slave knows its lag behind the last reported end of its master's log, and whether it follows (``answering``).
        If ``restarting`` is the address of this broker, the status contains whether it may be restarted.
        """
        shown = self._ha.connections()
        is_master = bool(shown["master"])
        slaves = tuple(
            CopyState(each["addr"], each["addr"], "slave", max(0, each["diff"]), None, True)
            for each in shown.get("haConnectionInfo", ())
        )
        if not is_master:
            facts = self._ha.facts()
            lag, is_connected = int(facts["haBehindBytes"]), facts["haConnected"] == "true"
            slaves = (CopyState(self._address, self._address, "slave", lag, None, is_connected),)
        return ReplicationState(
            group=self._broker_name,
            mode=MASTER_SLAVE if slaves or self._is_sync or not is_master else UNREPLICATED,
            member=self._address,
            role="master" if is_master else "slave",
            term=0,
            leader=self._address if is_master else self._ha.facts().get("haMaster", ""),
            confirmed_offset=self._store.confirmed_offset,
            last_offset=self._store.end_offset,
            address=self._address,
            members=slaves,
            remark=self._ha.facts().get("haReason", ""),
            restart=self._restart_verdict() if restarting == self._address else None,
            missing=self._ha.missing if isinstance(self._ha, HaSlave) else None,
        )

    async def may_restart(self) -> Verdict:
        """Return whether this broker may be restarted, by the rules in the module docstring."""
        return self._restart_verdict()

    def _restart_verdict(self) -> Verdict:
        shown = self._ha.connections()
        if not shown["master"]:
            return Verdict(True, "this broker is a slave; its master continues to serve")
        if not shown["haConnectionInfo"] and not self._is_sync:
            return Verdict(True, "no slave is connected; clients wait until this broker is up again")
        count = shown["inSyncSlaveNums"]
        return Verdict(count > 0, f"{count} slaves are in sync; clients cannot send until the master is up again")

    def has_caught_up(self) -> Verdict:
        """Return whether this broker has caught up with its master."""
        if self._ha.connections()["master"]:
            reason = self._ha.facts().get("haReason", "")
            return Verdict(not reason, reason or "this broker is the master")
        facts = self._ha.facts()
        if facts["haConnected"] != "true":
            return Verdict(False, f"no connection to the master {facts['haMaster']}".rstrip())
        behind = int(facts["haBehindBytes"])
        return Verdict(behind <= CAUGHT_UP_SLAVE_BYTES, f"{behind} bytes behind the master")
