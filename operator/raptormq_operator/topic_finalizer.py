"""The finalizer of Topics with `deletionPolicy: Delete`, which keeps a resource until its topic is deleted from the
brokers. Only the operator removes it.
"""

from __future__ import annotations

from typing import Protocol

from raptormq_operator.kube.errors import KubeError
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names

FINALIZER_MANAGER = f"{names.FIELD_MANAGER}-finalizer"


class Applier(Protocol):
    """The method of `KubeApi` that writes the finalizer."""

    async def apply(self, manifest: Manifest, manager: str = ...) -> Manifest:
        """See `KubeApi.apply`."""


def has_finalizer(body: Manifest) -> bool:
    """Return whether a Topic resource has the finalizer."""
    return names.TOPIC_FINALIZER in body["metadata"].get("finalizers", ())


async def set_finalizer(api: Applier, body: Manifest, *, present: bool) -> None:
    """Add or remove the finalizer by server-side apply, with a separate field manager that owns only our entry.

    The uid keeps the apply from recreating a deleted resource. A resource that was deleted or recreated is ignored.

    Raises:
        KubeError: The request failed.
    """
    metadata = {key: body["metadata"][key] for key in ("name", "namespace", "uid")}
    manifest = {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": metadata | ({"finalizers": [names.TOPIC_FINALIZER]} if present else {}),
    }
    try:
        await api.apply(manifest, manager=FINALIZER_MANAGER)
    except KubeError as error:
        if error.status not in (404, 409):
            raise
