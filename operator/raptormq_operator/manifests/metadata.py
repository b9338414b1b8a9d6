"""Metadata that every object of a cluster carries: name, labels, and the owner that garbage collection follows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster

Manifest = dict[str, Any]
"""A Kubernetes object as JSON has it."""


def metadata(cluster: Cluster, name: str, labels: Mapping[str, str]) -> Manifest:
    """Metadata of a child: it goes when its BrokerCluster goes."""
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": dict(labels),
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": "BrokerCluster",
                "name": cluster.name,
                "uid": cluster.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def digest(value: object) -> str:
    """Short content hash of a JSON value; equal values have equal hashes whatever the order of their keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its own hash as an annotation, by which a field that is wanted no longer is noticed."""
    annotations = {**manifest["metadata"].get("annotations", {}), names.MANIFEST_HASH_ANNOTATION: digest(manifest)}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
