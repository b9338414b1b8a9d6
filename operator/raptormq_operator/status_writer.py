"""Writes a status with its Ready condition when it differs from what is there, and tells people of transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq_operator.conditions import Reason, Verdict, ready_condition
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.metrics import READY

QUIET_REASONS = frozenset(
    {Reason.READY, Reason.PROGRESSING, Reason.PODS_NOT_READY, Reason.CLUSTER_NOT_READY, Reason.DELETING}
)
"""Reasons that belong to normal life; all others are worth a warning Event."""


class StatusWriter:
    """The one place where statuses are written."""

    def __init__(self, api: KubeApi, events: EventRecorder, now: Callable[[], str]) -> None:
        self._api = api
        self._events = events
        self._now = now

    async def write(
        self, body: Manifest, status: dict[str, Any], verdict: Verdict, *, told: bool = False
    ) -> Manifest | None:
        """`body` is the resource as it was read; its old status decides what changes. With `told` an Event has said it
        already. Returns the resource with the new status, None when nothing was written. Raises `KubeError`."""
        metadata, before = body["metadata"], body.get("status", {})
        conditions = before.get("conditions", [])
        condition = ready_condition(verdict, metadata["generation"], conditions, self._now())
        READY.labels(body["kind"], metadata["namespace"], metadata["name"]).set(verdict.ready)
        after = {**status, "conditions": [condition]}
        if after == before:
            return None
        address = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        manifest = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": address, "status": after}
        try:
            written = await self._api.apply_status(manifest)
        except KubeError as error:
            if error.status in (404, 409):  # deleted meanwhile, or made anew under the same name
                return None
            raise
        if not told:
            await self._tell(body, conditions, verdict)
        return written

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """The resource is gone: its metric goes too."""
        READY.labels(kind, namespace, name)  # removing one that never was is an error
        READY.remove(kind, namespace, name)

    async def _tell(self, body: Manifest, before: list[dict[str, Any]], verdict: Verdict) -> None:
        if any(condition["type"] == "Ready" and condition["reason"] == verdict.reason for condition in before):
            return
        say = self._events.normal if verdict.reason in QUIET_REASONS else self._events.warning
        await say(body, str(verdict.reason), verdict.message)
