"""Bodies of the requests that mqadmin sends to the controller of Apache RocketMQ 5 (``BrokerReplicasInfo``,
``EpochEntryCache``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from raptormq.errors import BodyError
from raptormq.protocol.bodies.tolerant_json import dumps, loads


class Replica(NamedTuple):
    """One copy of a broker."""

    broker_id: int
    address: str
    alive: bool
    in_sync: bool


@dataclass(frozen=True, slots=True)
class ReplicasInfo:
    """The copies of one broker and its master (1006)."""

    broker_name: str
    master_broker_id: int
    master_address: str
    master_epoch: int
    sync_state_set_epoch: int
    replicas: Sequence[Replica]

    def _identities(self, *, in_sync: bool) -> list[dict[str, Any]]:
        return [
            {
                "alive": each.alive,
                "brokerAddress": each.address,
                "brokerId": each.broker_id,
                "brokerName": self.broker_name,
            }
            for each in self.replicas
            if each.in_sync is in_sync
        ]

    def to_json(self) -> bytes:
        """Return the body of the response to 1006, with this broker only."""
        info = {
            "inSyncReplicas": self._identities(in_sync=True),
            "masterAddress": self.master_address,
            "masterBrokerId": self.master_broker_id,
            "masterEpoch": self.master_epoch,
            "notInSyncReplicas": self._identities(in_sync=False),
            "syncStateSetEpoch": self.sync_state_set_epoch,
        }
        return dumps({"replicasInfoTable": {self.broker_name: info}})


def encode_epochs(
    cluster: str, broker_name: str, broker_id: int, epochs: Sequence[tuple[int, int]], end_offset: int
) -> bytes:
    """Return the body of the response to 1007. ``epochs`` are the terms with their first offsets, oldest first."""
    ends = [begin for _, begin in epochs[1:]] + [end_offset]
    return dumps(
        {
            "brokerId": broker_id,
            "brokerName": broker_name,
            "clusterName": cluster,
            "epochList": [
                {"endOffset": end, "epoch": term, "startOffset": begin}
                for (term, begin), end in zip(epochs, ends, strict=bool(epochs))
            ],
            "maxOffset": end_offset,
        }
    )


def decode_broker_names(data: bytes) -> list[str]:
    """Decode the body of 1006: a list of broker names.

    Raises:
        BodyError: ``data`` is not a list of strings.
    """
    names = loads(data)
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise BodyError("the body is not a list of broker names")
    return names
