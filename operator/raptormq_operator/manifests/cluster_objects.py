"""Everything a BrokerCluster wants to exist, grouped by what is changed together.

A `Unit` is changed as one: a broker's ConfigMap only ever changes together with its StatefulSet, so that a pod which
happens to restart does not pick up a configuration before its turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptormq_operator.manifests import broker, config, name_server, services
from raptormq_operator.manifests.metadata import Manifest, sealed
from raptormq_operator.model.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Unit:
    """Objects in the order in which they are applied. The last of a broker's or name server's unit is its workload."""

    objects: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`shared` may change at any time, `name_servers` is rolled by Kubernetes, `brokers` are rolled one at a time."""

    shared: Unit
    name_servers: Unit
    brokers: tuple[Unit, ...]

    @property
    def objects(self) -> tuple[Manifest, ...]:
        """All objects, in the order of units."""
        units = (self.shared, self.name_servers, *self.brokers)
        return tuple(manifest for unit in units for manifest in unit.objects)


def wanted(cluster: Cluster, *, name_servers_authenticate: bool = False) -> Wanted:
    """The objects of a cluster whose spec was found acceptable. `name_servers_authenticate` says that all brokers sign
    (`plan.name_servers_may_authenticate`)."""
    authenticate = cluster.authenticates and name_servers_authenticate
    groups = range(cluster.groups)
    return Wanted(
        shared=_unit(
            services.name_server_service(cluster),
            *(services.group_service(cluster, group) for group in groups),
            services.name_server_budget(cluster),
            *services.broker_budgets(cluster),
        ),
        name_servers=_unit(
            config.name_server_config(cluster, authenticate=authenticate),
            name_server.stateful_set(cluster, authenticate=authenticate),
        ),
        brokers=tuple(
            _unit(config.broker_config(cluster, member), broker.stateful_set(cluster, member))
            for member in cluster.members
        ),
    )


def _unit(*objects: Manifest) -> Unit:
    return Unit(tuple(sealed(manifest) for manifest in objects))
