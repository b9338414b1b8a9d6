"""The collaborators that both reconcilers share, built once and passed on as one value."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq_operator.access_keys import AccessKeys
from raptormq_operator.admin import Admin
from raptormq_operator.cluster_probe import LatestProbes
from raptormq_operator.kube.client import KubeApi
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.leaders import Leaders
from raptormq_operator.model.cluster import Surroundings
from raptormq_operator.status_writer import StatusWriter


@dataclass(frozen=True, slots=True)
class ReconcilerParts:
    """Access to the API server and to the brokers, and the state that the reconcilers share."""

    api: KubeApi
    admin: Admin
    events: EventRecorder
    writer: StatusWriter
    surroundings: Surroundings
    probes: LatestProbes
    keys: AccessKeys
    leaders: Leaders
