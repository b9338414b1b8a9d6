"""Metadata of the objects that the operator creates: name, labels, and the owner reference for garbage collection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster

Manifest = dict[str, Any]
"""A Kubernetes object as a JSON value."""


def metadata(cluster: Cluster, name: str, labels: Mapping[str, str]) -> Manifest:
    """Return the metadata of a child object. Kubernetes deletes the object with its BrokerCluster."""
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner_reference("BrokerCluster", cluster.name, cluster.uid)],
    }


def owner_reference(kind: str, name: str, uid: str) -> Manifest:
    """Return the owner reference of a child object of one of our resources."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def digest(value: object) -> str:
    """Return a hash of a JSON value, 16 hexadecimal digits. The order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def sealed(manifest: Manifest) -> Manifest:
    """Return the manifest with its hash as an annotation. The hash reveals fields that are no longer wanted."""
    annotations = {**manifest["metadata"].get("annotations", {}), names.MANIFEST_HASH_ANNOTATION: digest(manifest)}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
