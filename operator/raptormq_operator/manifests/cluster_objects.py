"""All objects of a BrokerCluster, grouped into units that are changed as a whole.

A broker's ConfigMap changes only together with its StatefulSet. Otherwise a pod that restarts for another reason would
read a new configuration before its rolling update.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from raptormq_operator.manifests import broker, config, name_server, services
from raptormq_operator.manifests.metadata import Manifest, sealed
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.model.peer_security import PeerSecurity


@dataclass(frozen=True, slots=True)
class Unit:
    """Objects in the order of their applies. The last object of a broker or name server unit is the StatefulSet."""

    objects: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wanted objects. `shared` may change at any time; Kubernetes rolls the name servers; the operator rolls `brokers`
    one at a time."""

    shared: Unit
    name_servers: Unit
    brokers: tuple[Unit, ...]

    @property
    def objects(self) -> tuple[Manifest, ...]:
        """All objects, in the order of units."""
        units = (self.shared, self.name_servers, *self.brokers)
        return tuple(manifest for unit in units for manifest in unit.objects)


def wanted(
    cluster: Cluster,
    *,
    brokers: Mapping[str, PeerSecurity] = MappingProxyType({}),
    name_servers: PeerSecurity | None = None,
    forming: Collection[int] = (),
    leaders: Mapping[int, int] = MappingProxyType({}),
    workloads: Mapping[str, Manifest] = MappingProxyType({}),
) -> Wanted:
    """Return the objects of a cluster with a valid spec.

    `brokers`, by name of the StatefulSet, and `name_servers` have the settings of access control and TLS
    (`security_change`), by default those of the spec. `forming` has the groups with a broker that will become the first
    member (`ClusterProbe.forming`), `leaders` the leading member by group (`Leaders`), `workloads` the existing
    StatefulSets by name, which keep their slots.
    """
    slots = broker.slots(cluster, workloads)
    by_spec = PeerSecurity.of_spec(cluster)
    served = (name_servers or by_spec).applied(cluster)
    groups = range(cluster.groups)
    return Wanted(
        shared=_unit(
            services.name_server_service(cluster),
            *(services.group_service(cluster, group) for group in groups),
            *(services.leader_service(cluster, group, leaders.get(group)) for group in groups if cluster.is_dledger),
            services.name_server_budget(cluster),
            *services.broker_budgets(cluster, forming),
        ),
        name_servers=_unit(
            config.name_server_config(served, authenticate=served.authenticates),
            name_server.stateful_set(served, authenticate=served.authenticates),
        ),
        brokers=tuple(
            _broker(brokers.get(member.name, by_spec).applied(cluster), member, slots[member.name])
            for member in cluster.members
        ),
    )


def _broker(cluster: Cluster, member: Member, slot: int | None) -> Unit:
    return _unit(config.broker_config(cluster, member), broker.stateful_set(cluster, member, slot))


def _unit(*objects: Manifest) -> Unit:
    return Unit(tuple(sealed(manifest) for manifest in objects))
