"""BrokerCluster as values: what `spec` says after the API server filled in its defaults.

The schema with its defaults and limits is crds/brokerclusters.yaml. The defaults are not repeated here: a field that
carries one there is always present. `raptormq_operator.manifests` turns the values into Kubernetes objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raptormq_operator.model import names
from raptormq_operator.model.definitions import filled_in


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Where pods may run, in the words of a pod spec."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    affinity: Mapping[str, Any]
    priority_class_name: str | None

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Scheduling:
        return cls(
            node_selector=spec.get("nodeSelector", {}),
            tolerations=tuple(spec.get("tolerations", ())),
            affinity=spec.get("affinity", {}),
            priority_class_name=spec.get("priorityClassName"),
        )


@dataclass(frozen=True, slots=True)
class Storage:
    """The volume of each broker."""

    size: str
    storage_class_name: str | None
    local: bool
    when_deleted: str

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Storage:
        return cls(
            size=spec["size"],
            storage_class_name=spec.get("storageClassName"),
            local=spec["local"],
            when_deleted=spec["whenDeleted"],
        )


@dataclass(frozen=True, slots=True)
class NameServers:
    """The name servers of a cluster."""

    replicas: int
    config: Mapping[str, str]
    resources: Mapping[str, Any]
    scheduling: Scheduling


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What the user adds to every pod."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    termination_grace_period_seconds: int


@dataclass(frozen=True, slots=True)
class Image:
    """Image of brokers and name servers."""

    reference: str
    pull_policy: str
    pull_secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tls:
    """Encryption of connections with the certificate of a Secret."""

    secret_name: str
    mode: str
    """`permissive` or `enforcing`."""
    client_auth: str = "none"
    """`none`, `optional` or `require`."""

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Tls:
        return cls(spec["secretName"], spec["mode"], spec["clientAuth"])


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Who may use the servers."""

    enabled: bool
    authorization: bool
    admin_secret: str
    operator_secret: str

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], cluster: str) -> AccessControl:
        return cls(
            enabled=spec["enabled"],
            authorization=spec["authorization"],
            admin_secret=spec.get("adminSecretName") or names.admin_secret(cluster),
            operator_secret=spec.get("operatorSecretName") or names.operator_secret(cluster),
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a cluster depends on and its spec does not say."""

    default_image: str
    """Image where the spec names none."""
    dns_domain: str
    """Domain of the Kubernetes cluster's Services, mostly cluster.local."""


@dataclass(frozen=True, slots=True)
class Member:
    """One broker: `index` within group number `group`. Each is a StatefulSet of one pod, so that each can be rolled,
    placed and lost alone.
    """

    cluster: str
    zone: str
    group: int
    index: int

    @property
    def name(self) -> str:
        """Name of the StatefulSet, its ConfigMap and its volume claim's suffix."""
        return names.member(self.cluster, self.group, self.index)

    @property
    def broker_name(self) -> str:
        """Name in routes, the same for all members of a group: `broker-0`."""
        return names.broker(self.group)

    @property
    def host(self) -> str:
        """DNS name of the pod; it stays when the pod gets another address.

        In full, because this form stands in the pod's own hosts file: a broker can resolve its name before DNS knows
        it.
        """
        return f"{self.name}-0.{names.group_service(self.cluster, self.group)}.{self.zone}"

    @property
    def address(self) -> str:
        """What the broker registers and clients connect to, `host:port`."""
        return f"{self.host}:{names.BROKER_PORT}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One BrokerCluster."""

    name: str
    namespace: str
    zone: str
    uid: str
    generation: int
    image: Image
    name_servers: NameServers
    groups: int
    replicas: int
    replication_mode: str
    flush: str
    storage: Storage
    config: Mapping[str, str]
    resources: Mapping[str, Any]
    scheduling: Scheduling
    tls: Tls | None
    access_control: AccessControl | None
    metrics_enabled: bool
    metrics_port: int
    pod_template: PodTemplate

    @classmethod
    def from_object(cls, body: Mapping[str, Any], surroundings: Surroundings) -> Cluster:
        """Reads the resource as the API server returns it.

        Raises:
            OldDefinition: it has no value where the definition has a default.
        """
        with filled_in(body):
            return cls._from_object(body, surroundings)

    @classmethod
    def _from_object(cls, body: Mapping[str, Any], surroundings: Surroundings) -> Cluster:
        metadata, spec = body["metadata"], body["spec"]
        template = spec["podTemplate"]
        servers = spec["nameServers"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            zone=f"{metadata['namespace']}.svc.{surroundings.dns_domain}",
            uid=metadata["uid"],
            generation=metadata["generation"],
            image=Image(
                reference=spec.get("image", surroundings.default_image),
                pull_policy=spec["imagePullPolicy"],
                pull_secrets=tuple(secret["name"] for secret in spec.get("imagePullSecrets", ())),
            ),
            name_servers=NameServers(
                replicas=servers["replicas"],
                config=servers["config"],
                resources=servers["resources"],
                scheduling=Scheduling.from_spec(servers["scheduling"]),
            ),
            groups=spec["groups"],
            replicas=spec["replicas"],
            replication_mode=spec["replication"]["mode"],
            flush=spec["flush"],
            storage=Storage.from_spec(spec["storage"]),
            config=spec["config"],
            resources=spec["resources"],
            scheduling=Scheduling.from_spec(spec["scheduling"]),
            tls=Tls.from_spec(spec["tls"]) if "tls" in spec else None,
            access_control=(
                AccessControl.from_spec(spec["accessControl"], metadata["name"]) if "accessControl" in spec else None
            ),
            metrics_enabled=spec["metrics"]["enabled"],
            metrics_port=spec["metrics"]["port"],
            pod_template=PodTemplate(
                labels=template.get("labels", {}),
                annotations=template.get("annotations", {}),
                termination_grace_period_seconds=template["terminationGracePeriodSeconds"],
            ),
        )

    @property
    def authenticates(self) -> bool:
        """Whether brokers, and then name servers, are to take signed requests only."""
        return self.access_control is not None and self.access_control.enabled

    @property
    def members(self) -> tuple[Member, ...]:
        """All brokers, group by group."""
        return tuple(
            Member(self.name, self.zone, group, index) for group in range(self.groups) for index in range(self.replicas)
        )

    @property
    def name_server_service_address(self) -> str:
        """One name for all name servers; it resolves to the addresses of those that are there."""
        return f"{names.name_server(self.name)}.{self.zone}:{names.NAME_SERVER_PORT}"

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """`host:port` of each name server; stable while pods come and go."""
        service = names.name_server(self.name)
        return tuple(
            f"{service}-{ordinal}.{service}.{self.zone}:{names.NAME_SERVER_PORT}"
            for ordinal in range(self.name_servers.replicas)
        )

    @property
    def name_server_address(self) -> str:
        """The list as clients and broker.conf take it, `host:port;host:port`."""
        return ";".join(self.name_server_addresses)
