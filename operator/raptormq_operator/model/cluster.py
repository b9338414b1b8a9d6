"""Dataclasses for the spec of a BrokerCluster, after the API server has filled in the defaults.

The schema with defaults and limits is crds/brokerclusters.yaml. A field with a default is always present and has no
default here. `raptormq_operator.manifests` builds Kubernetes objects from these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from raptormq_operator.model import names
from raptormq_operator.model.definitions import needs_current_definition

DLEDGER = "dledger"
MASTER_SLAVE = "masterSlave"
SPREAD, INTERLEAVED = "Spread", "Interleaved"


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Scheduling constraints, with the fields of a pod spec."""

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
    """Settings of the name servers."""

    replicas: int
    config: Mapping[str, str]
    resources: Mapping[str, Any]
    scheduling: Scheduling


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Labels and annotations that the user adds to every pod, and the pods' grace period."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    termination_grace_period_seconds: int


@dataclass(frozen=True, slots=True)
class Image:
    """Container image of brokers and name servers."""

    reference: str
    pull_policy: str
    pull_secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with the certificate of a Secret."""

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
    """Authentication and authorization."""

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
class Replication:
    """Replication within a group."""

    mode: str
    """`none`, `masterSlave` or `dledger`."""
    acknowledge: str = "ASYNC"
    """Condition for the acknowledgement of a message by a master: `ASYNC` for none, `SYNC` for a slave."""
    layout: str = SPREAD
    """`Spread` or `Interleaved`."""
    leader_placement: str = SPREAD
    """`Spread` or `Keep`: whether leadership is transferred to spread the leaders of Dledger groups over nodes."""
    promote: str = ""
    """Name of the member to promote to the master of its group; empty for no promotion."""
    accept_loss: str = ""
    """Name of the member that may be promoted although its lag is large or its log begins late, from an annotation of
    the resource.
    """

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> Replication:
        return cls(
            mode=spec["mode"],
            acknowledge=spec.get("acknowledge", "ASYNC"),
            layout=spec.get("layout", SPREAD),
            leader_placement=spec.get("leaderPlacement", SPREAD),
            promote=spec.get("promote", ""),
            accept_loss=annotations.get(names.ACCEPT_LOSS_ANNOTATION, ""),
        )


@dataclass(frozen=True, slots=True)
class Mastery:
    """The master of a group according to the configuration of its members."""

    index: int = 0
    """Index of the member that is the master, or was the master until it was fenced."""
    successor: int | None = None
    """Index of the member that becomes the master. While this is set, all members are configured as slaves."""


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Number of brokers of a group. While `replicas` of a Dledger group changes, it differs from `replicas`
    (`membership`).
    """

    brokers: int
    """Number of brokers that have a StatefulSet: the members with indices below this number."""
    peers: int
    """Number of entries in `dLegerPeers` of each broker."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings of the operator that affect every cluster."""

    default_image: str
    """Image for clusters whose spec does not set one."""
    dns_domain: str
    """DNS domain of the Kubernetes cluster, usually cluster.local."""


@dataclass(frozen=True, slots=True)
class Member:
    """One broker: member `index` of group `group`. Each broker has its own StatefulSet with one pod, so that brokers
    are updated and scheduled independently."""

    cluster: str
    zone: str
    group: int
    index: int

    @property
    def name(self) -> str:
        """Name of the StatefulSet and of the ConfigMap; part of the name of the volume claim."""
        return names.member(self.cluster, self.group, self.index)

    @property
    def broker_name(self) -> str:
        """RocketMQ's brokerName, the same for all members of a group: `broker-0`."""
        return names.broker(self.group)

    @property
    def host(self) -> str:
        """Fully qualified DNS name of the pod, independent of its address.

        The kubelet writes this form to the pod's hosts file, so a broker can resolve its own name before DNS has it.
        """
        return f"{self.name}-0.{names.group_service(self.cluster, self.group)}.{self.zone}"

    @property
    def address(self) -> str:
        """Address that the broker registers and clients connect to, `host:port`."""
        return f"{self.host}:{names.BROKER_PORT}"

    @property
    def id(self) -> str:
        """Id within a Dledger group: `n0`."""
        return f"n{self.index}"

    @property
    def peer(self) -> str:
        """The member's entry in `dLegerPeers`, `id-host:port`."""
        return f"{self.id}-{self.host}:{names.REPLICATION_PORT}"


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
    replication: Replication
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
    masters: Mapping[int, Mastery] = field(default_factory=dict)
    """Masters by group, in mode masterSlave; by default member 0 of each."""
    sizes: Mapping[int, GroupSize] = field(default_factory=dict)
    """Sizes by group, in mode dledger; by default `replicas`."""
    accepted_claims: frozenset[str] = frozenset()
    """Volume claims of earlier clusters that are used in any case, from an annotation of the resource."""
    peers_in_transition: bool = False
    """Whether brokers accept their peers with and without signature and TLS (`security_change`)."""

    @classmethod
    @needs_current_definition
    def from_object(cls, body: Mapping[str, Any], surroundings: Surroundings) -> Cluster:
        """Parse a resource of the API server.

        Raises:
            OldDefinition: A field with a default is missing.
        """
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
            replication=Replication.from_spec(spec["replication"], metadata.get("annotations", {})),
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
            accepted_claims=frozenset(
                name.strip() for name in metadata.get("annotations", {}).get(names.USE_CLAIMS_ANNOTATION, "").split(",")
            ),
        )

    @property
    def authenticates(self) -> bool:
        """Whether brokers, and then name servers, accept only signed requests."""
        return self.access_control is not None and self.access_control.enabled

    @property
    def members(self) -> tuple[Member, ...]:
        """All brokers, group by group."""
        return tuple(member for group in range(self.groups) for member in self.group(group))

    @property
    def is_replicated(self) -> bool:
        """Whether groups are replicated: Dledger groups, or masters with slaves."""
        return self.is_dledger or self.is_master_slave

    @property
    def is_dledger(self) -> bool:
        """Whether the brokers of a group are the members of a Dledger group."""
        return self.replication.mode == DLEDGER

    @property
    def is_master_slave(self) -> bool:
        """Whether the brokers of a group are a master and its slaves."""
        return self.replication.mode == MASTER_SLAVE

    def with_sizes(self, sizes: Mapping[int, GroupSize]) -> Cluster:
        """Return the cluster with groups of these sizes."""
        return replace(self, sizes=sizes)

    def size(self, group: int) -> GroupSize:
        """Return the size of a group."""
        return self.sizes.get(group, GroupSize(self.replicas, self.replicas))

    def with_masters(self, masters: Mapping[int, Mastery]) -> Cluster:
        """Return the cluster with these masters."""
        return replace(self, masters=masters)

    def mastery(self, group: int) -> Mastery:
        """Return the master of a group."""
        return self.masters.get(group, Mastery())

    def is_master(self, member: Member) -> bool:
        """Return whether the configuration of a member makes it the master of its group."""
        return self.mastery(member.group) == Mastery(member.index)

    def slave_id(self, member: Member) -> int:
        """Return the `brokerId` of a member as a slave: its index, or for member 0 the index of the current master,
        which has id 0. The first slave has id 1, as consumers expect (`whichBrokerWhenConsumeSlowly`).
        """
        mastery = self.mastery(member.group)
        return member.index or (mastery.successor if member.index == mastery.index else mastery.index) or 0

    def slot(self, member: Member) -> int | None:
        """Return the slot of a member in the interleaved layout, which has one node per group: the master of a group
        shares its node with a slave of the previous group. None without this layout.
        """
        if self.replication.layout != INTERLEAVED or not self.is_master_slave:
            return None
        return (member.group + member.index) % self.groups

    def group(self, number: int) -> tuple[Member, ...]:
        """The brokers of one group."""
        return self._first(number, self.size(number).brokers)

    def peers(self, number: int) -> tuple[Member, ...]:
        """Return the members in `dLegerPeers` of a Dledger group, including those whose broker does not exist yet or
        any more.
        """
        return self._first(number, self.size(number).peers)

    def _first(self, group: int, count: int) -> tuple[Member, ...]:
        return tuple(Member(self.name, self.zone, group, index) for index in range(count))

    def leader_address(self, group: int) -> str:
        """`host:port` of the Service of the leader of a group."""
        return f"{names.leader_service(self.name, group)}.{self.zone}:{names.BROKER_PORT}"

    @property
    def name_server_service_address(self) -> str:
        """`host:port` of the Service, which resolves to the addresses of all existing name servers."""
        return f"{names.name_server(self.name)}.{self.zone}:{names.NAME_SERVER_PORT}"

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """`host:port` of each name server, independent of pod addresses."""
        service = names.name_server(self.name)
        return tuple(
            f"{service}-{ordinal}.{service}.{self.zone}:{names.NAME_SERVER_PORT}"
            for ordinal in range(self.name_servers.replicas)
        )

    @property
    def name_server_address(self) -> str:
        """The name server list in the form of clients and broker.conf, `host:port;host:port`."""
        return ";".join(self.name_server_addresses)
