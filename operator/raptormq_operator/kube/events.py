"""Kubernetes Events with fixed reasons. Each Event is also logged as one line.

Events expire after an hour; the conditions have the current state. The name of an Event is a hash of the object, the
reason and the message, so a repeated Event increments the count of the existing one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from raptormq.logs import get_logger
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import Conflict, KubeError
from raptormq_operator.manifests.metadata import Manifest, digest
from raptormq_operator.model import names

MAX_MESSAGE = 1000

log = get_logger(__name__)


class EventRecorder:
    """Writes Events about our resources. A failure is logged and never stops a reconciliation."""

    def __init__(self, api: KubeApi, now: Callable[[], str]) -> None:
        self._api = api
        self._now = now

    async def normal(self, about: Manifest, reason: str, message: str) -> None:
        """Record an Event of type Normal."""
        await self._record(about, "Normal", reason, message)

    async def warning(self, about: Manifest, reason: str, message: str) -> None:
        """Record an Event of type Warning."""
        await self._record(about, "Warning", reason, message)

    async def _record(self, about: Manifest, kind: str, reason: str, message: str) -> None:
        log_about(about, kind == "Warning", reason, message)
        try:
            await self._write(_event(about, kind, reason, message[:MAX_MESSAGE], self._now()))
        except KubeError as error:
            log.warning("event %s about %s was not written: %s", reason, about["metadata"]["name"], error)

    async def _write(self, event: Manifest) -> None:
        try:
            await self._api.create(event)
        except Conflict:
            where: dict[str, Any] = event["metadata"]
            before = await self._api.get("Event", where["namespace"], where["name"])
            count = 1 + (before or {}).get("count", 0)
            again = {"count": count, "lastTimestamp": event["lastTimestamp"]}
            await self._api.merge("Event", where["namespace"], where["name"], again)


def log_about(about: Manifest, warning: bool, reason: str, message: str) -> None:
    """Log one line about a resource: `BrokerCluster shop/demo: Created: made Service demo-namesrv`."""
    level = logging.WARNING if warning else logging.INFO
    where = {key: about["metadata"][key] for key in ("namespace", "name")}
    fields = {"kind": about["kind"], **where, "reason": reason}
    place = f"{about['kind']} {where['namespace']}/{where['name']}"
    log.log(level, "%s: %s: %s", place, reason, message, extra={"fields": fields})


def _event(about: Manifest, kind: str, reason: str, message: str, now: str) -> Manifest:
    metadata = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{digest([metadata['uid'], kind, reason, message])}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": names.FIELD_MANAGER,
    }
