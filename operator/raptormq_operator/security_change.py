"""Changes of access control and TLS of a running cluster, in phases that keep its servers connected. No I/O.

Servers are restarted one at a time, so that old and new settings meet. `decide` is called after every change, with the
existing objects; it keeps no state. The rules for the brokers of replicated groups:

1. If each broker can talk with the new settings, brokers get these.
2. Otherwise, if each can talk with the new settings in transition (`peer_security`), brokers get these.
3. Otherwise, brokers get their own settings in transition. Rule 2 holds when all have them.
4. While it is not known whether a broker runs its settings, because its pod is being replaced, all brokers keep theirs.
   This does not wait for a broker that does not respond and whose pod is not settled, which may be for good. Its
   settings count nevertheless, because it may just restart with them.

The transition thus begins with rule 2 or 3, and rule 1 ends it. Brokers without replication do not connect to each
other and get the new settings at once.

Name servers are changed before brokers (`plan`), and send no requests to them. They get the new settings when these
accept all brokers, and until then accept both plain and encrypted, unsigned requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from raptormq_operator.conditions import Concern, Reason, Verdict
from raptormq_operator.manifests.config import BROKER_FILE, NAME_SERVER_FILE, PEER_TRANSITION_KEY
from raptormq_operator.manifests.pod import runs_config, security_of
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Tls
from raptormq_operator.model.peer_security import PeerSecurity
from raptormq_operator.plan import Observed, all_updated, is_owned, settled

IN_TRANSITION = (
    "access control or TLS changes: until all brokers have the new settings, the brokers of a group accept each other's"
    " requests without signature and without TLS"
)
TOO_OLD = (
    f"the image of the brokers does not know {PEER_TRANSITION_KEY}, with which access control and TLS of a replicated"
    " cluster are changed: set an image of this version first"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Settings of the servers."""

    brokers: Mapping[str, PeerSecurity] = field(default_factory=dict)
    """By name of the broker's StatefulSet."""
    name_servers: PeerSecurity = field(default_factory=PeerSecurity)
    wanted: PeerSecurity = field(default_factory=PeerSecurity)
    """The settings in the spec."""
    is_open: bool = False
    """Whether brokers are, or will be, in transition."""
    obstacle: str = ""
    """Reason why the change cannot continue; empty without one."""

    def said_with(self, verdict: Verdict) -> Verdict:
        """Return the verdict on the cluster. The cluster is not Ready while its servers have other settings than the
        spec.
        """
        if self.obstacle:
            message = self.obstacle if verdict.ready else f"{verdict.message}; {self.obstacle}"
            return Verdict(Reason.PROGRESSING if verdict.ready else verdict.reason, message, blocked=True)
        is_done = all(each == self.wanted for each in (*self.brokers.values(), self.name_servers))
        if verdict.ready and not is_done:
            return Verdict(Reason.PROGRESSING, "access control or TLS changes")
        return verdict

    def concerns(self) -> dict[Concern, str]:
        """Return the condition about the transition."""
        return {Concern.SECURITY_CHANGING: IN_TRANSITION} if self.is_open else {}


@dataclass(frozen=True, slots=True)
class _Broker:
    name: str
    configured: PeerSecurity
    runs_it: bool
    is_away: bool
    """Whether it does not respond and its pod is not settled."""


def decide(cluster: Cluster, observed: Observed, unknown_settings: frozenset[str] = frozenset()) -> Decision:
    """Return the settings of each server. `unknown_settings` are the warnings of the brokers about their settings."""
    wanted = PeerSecurity.of_spec(cluster)
    existing = list(_brokers(cluster, observed))
    targets, obstacle = _targets(cluster, wanted, existing, unknown_settings)
    senders = [*(each.configured for each in existing), *targets.values()]
    is_open = any(each.in_transition for each in senders)
    servers = _name_servers(
        cluster, observed, wanted, senders, is_certain=all(each.runs_it or each.is_away for each in existing)
    )
    return Decision(targets, servers, wanted, is_open, obstacle)


def _targets(
    cluster: Cluster, wanted: PeerSecurity, brokers: list[_Broker], unknown_settings: frozenset[str]
) -> tuple[dict[str, PeerSecurity], str]:
    """Return the settings by broker, and the reason why the change cannot continue."""
    everyone = [member.name for member in cluster.members]
    configured = {each.name: each.configured for each in brokers}
    if not cluster.is_replicated or all(each == wanted for each in configured.values()):
        return dict.fromkeys(everyone, wanted), ""
    first = brokers[0].configured
    is_too_old = any(PEER_TRANSITION_KEY in text for text in unknown_settings)
    if is_too_old or not all(each.runs_it or each.is_away for each in brokers):
        return {name: configured.get(name, first) for name in everyone}, TOO_OLD if is_too_old else ""
    for target in (wanted, wanted.opened):
        if all(each.configured.talks_with(target) for each in brokers):
            return dict.fromkeys(everyone, target), ""
    return {name: configured.get(name, first).opened for name in everyone}, ""


def _brokers(cluster: Cluster, observed: Observed) -> Iterator[_Broker]:
    """Return the existing brokers."""
    for member in cluster.members:
        config_map = observed.objects.get(("ConfigMap", member.name))
        workload = observed.objects.get(("StatefulSet", member.name))
        if config_map is None or workload is None or not is_owned(observed, workload):
            continue
        is_away = not settled(workload) and member.name not in observed.answering
        runs_it = all_updated(workload) and runs_config(workload, config_map)
        yield _Broker(member.name, security_of(workload, config_map, BROKER_FILE), runs_it, is_away)


def _name_servers(
    cluster: Cluster, observed: Observed, wanted: PeerSecurity, senders: list[PeerSecurity], *, is_certain: bool
) -> PeerSecurity:
    name = names.name_server(cluster.name)
    config_map, workload = observed.objects.get(("ConfigMap", name)), observed.objects.get(("StatefulSet", name))
    current = None
    if config_map is not None and workload is not None and is_owned(observed, workload):
        current = security_of(workload, config_map, NAME_SERVER_FILE)
    if current is not None and not is_certain and all(map(current.accepts, senders)):
        return current
    access = wanted.access if all(map(wanted.accepts_signatures, senders)) else None
    if all(map(wanted.accepts_connections, senders)):
        return PeerSecurity(wanted.tls, access)
    certificates = [wanted.tls, *([current.tls] if current is not None else []), *(each.tls for each in senders)]
    certificate = next(each.secret_name for each in certificates if each is not None)
    return PeerSecurity(Tls(certificate, "permissive"), access)
