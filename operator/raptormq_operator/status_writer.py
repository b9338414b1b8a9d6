"""Writes the status and conditions of a resource when they change, and records Events for transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raptormq_operator.conditions import Concern, Reason, Verdict, concern_conditions, ready_condition
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.metrics import READY, REASON

QUIET_REASONS = frozenset(
    {Reason.READY, Reason.PROGRESSING, Reason.PODS_NOT_READY, Reason.CLUSTER_NOT_READY, Reason.DELETING}
)
"""Reasons of normal operation. Other reasons, and blocked verdicts, cause an Event of type Warning."""
NO_CONCERNS: Mapping[Concern, str] = {}


class StatusWriter:
    """Writes the statuses of BrokerClusters and Topics."""

    def __init__(self, api: KubeApi, events: EventRecorder, now: Callable[[], str]) -> None:
        self._api = api
        self._events = events
        self._now = now
        self._reasons: dict[tuple[str, str, str], Reason] = {}

    async def write(
        self,
        body: Manifest,
        status: dict[str, Any],
        verdict: Verdict,
        concerns: Mapping[Concern, str] = NO_CONCERNS,
        *,
        told: bool = False,
    ) -> Manifest | None:
        """Write the status if it differs from the status in `body`, the resource as it was read.

        With `told`, the Event for Ready is omitted, because it was recorded before. Return the updated resource; None
        if nothing was written.

        Raises:
            KubeError: The write failed.
        """
        metadata, before = body["metadata"], body.get("status", {})
        previous: list[dict[str, Any]] = before.get("conditions", [])
        condition = ready_condition(verdict, metadata["generation"], previous, self._now())
        further = concern_conditions(concerns, metadata["generation"], previous, self._now())
        self._measure(body, verdict)
        after = {**status, "conditions": [condition, *further]}
        if after == before:
            return None
        address = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        manifest = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": address, "status": after}
        try:
            written = await self._api.apply_status(manifest)
        except KubeError as error:
            if error.status in (404, 409):  # deleted meanwhile, or recreated with the same name
                return None
            raise
        if not told:
            await self._tell(body, previous, condition, verdict)
        for each in further:
            if not _said_before(previous, each, "message"):
                await self._events.warning(body, each["reason"], each["message"])
        return written

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove the metrics of a deleted resource."""
        READY.labels(kind, namespace, name)  # creates the series, as `remove` raises for a missing one
        READY.remove(kind, namespace, name)
        self._forget_reason((kind, namespace, name))

    def _measure(self, body: Manifest, verdict: Verdict) -> None:
        place = (body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])
        READY.labels(*place).set(verdict.ready)
        if self._reasons.get(place) != verdict.reason:
            self._forget_reason(place)
            self._reasons[place] = verdict.reason
            REASON.labels(*place, verdict.reason).set(1)

    def _forget_reason(self, place: tuple[str, str, str]) -> None:
        reason = self._reasons.pop(place, None)
        if reason is not None:
            REASON.remove(*place, reason)

    async def _tell(
        self, body: Manifest, previous: list[dict[str, Any]], condition: dict[str, Any], verdict: Verdict
    ) -> None:
        """Record an Event for the Ready condition: a Warning for each new message, a Normal event for each new
        reason."""
        if verdict.reason in QUIET_REASONS and not verdict.blocked:
            if not _said_before(previous, condition, "reason"):
                await self._events.normal(body, condition["reason"], condition["message"])
        elif not _said_before(previous, condition, "message"):
            await self._events.warning(body, condition["reason"], condition["message"])


def _said_before(previous: list[dict[str, Any]], condition: dict[str, Any], field: str) -> bool:
    """Return whether the previous condition has the same reason and the same value of this field."""
    return any(
        before["type"] == condition["type"]
        and before["reason"] == condition["reason"]
        and before[field] == condition[field]
        for before in previous
    )
