"""Status of a BrokerCluster: pure functions of the spec, the plan and the probe.

Ready means that clients can use the whole cluster as specified. The checks run in the order objects, pods, answers of
the servers; the first failed check determines the reason. A group that served before and accepts no messages now takes
precedence over all of them (`outage`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from raptormq_operator.cluster_probe import LEADER, SLAVE, ClusterProbe
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.manifests.config import SLAVE_ADDRESSES_KEY, denied_keys
from raptormq_operator.model import names
from raptormq_operator.model.cluster import DLEDGER, MASTER_SLAVE, Cluster, Member
from raptormq_operator.plan import Apply, Plan, Step
from raptormq_operator.pod_diagnostics import NO_DIAGNOSTICS, PodDiagnostics

NOTHING: Mapping[str, Mapping[str, Any]] = {}


def refusal(cluster: Cluster) -> Verdict | None:
    """Return why the spec is rejected; None if it is valid. Existing objects are not changed for a rejected spec."""
    # The API server checks this, too, once it has the definition of this version.
    is_guarded = cluster.authenticates or (cluster.tls is not None and cluster.tls.mode == "enforcing")
    if cluster.is_master_slave and is_guarded and SLAVE_ADDRESSES_KEY not in cluster.config:
        return Verdict(
            Reason.NOT_SUPPORTED,
            f"replication.mode {MASTER_SLAVE} with accessControl or tls.mode enforcing needs"
            f" config.{SLAVE_ADDRESSES_KEY}: slaves neither sign nor encrypt, so it has to be said which networks pods"
            " have, such as 10.244.0.0/16",
        )
    denied = denied_keys(cluster)
    if denied:
        return Verdict(
            Reason.CONFIG_DENIED,
            f"these keys belong to the operator, remove them or set the field beside them: {', '.join(denied)}",
        )
    return None


def held_by_budget(pods: Sequence[str]) -> Verdict:
    """Return the verdict while the disruption budget forbids the evictions of an applied change."""
    text = (
        f"the disruption budget does not allow evicting {', '.join(pods)} for a change: another broker is unavailable"
    )
    return Verdict(Reason.PROGRESSING, text)


def eviction_refused(texts: Sequence[str]) -> Verdict:
    """Return the verdict if the API server rejects the evictions of a change and retries do not help."""
    return Verdict(Reason.PROGRESSING, "; ".join(texts), blocked=True)


def secret_not_usable(fault: str) -> Verdict:
    """Return the verdict if a Secret of access control is missing or invalid."""
    return Verdict(Reason.SECRET_NOT_USABLE, fault)


def outage(cluster: Cluster, probe: ClusterProbe, served: Collection[int]) -> Verdict | None:
    """Return the verdict on groups that accept no messages because they have no leader or master; None if there are
    none. `served` has the groups that had one before: a group of a new cluster is starting, which its pods explain.
    """
    if cluster.is_dledger:
        electing = probe.electing(cluster).intersection(served)
        groups = ", ".join(map(names.broker, sorted(electing)))
        return Verdict(Reason.NO_LEADER, f"no member leads {groups}") if electing else None
    masterless = [broker for broker in probe.leaderless(cluster) if broker in map(names.broker, served)]
    return _no_master(cluster, probe, masterless) if masterless else None


def divergence(cluster: Cluster, probe: ClusterProbe) -> Verdict | None:
    """Return the verdict on members whose stores have messages that their Dledger groups do not have; None if there are
    none. The group serves without these messages, and the user decides which of the stores to keep.
    """
    diverged = probe.diverged(cluster)
    if not diverged:
        return None
    text = f"the group may lack acknowledged messages of {', '.join(diverged)}; {_said(diverged)}"
    return Verdict(Reason.STORES_DIVERGE, text, blocked=True)


def with_outage(outage: Verdict | None, verdict: Verdict) -> Verdict:
    """Return the verdict of a cluster with an outage or a divergence. It takes precedence, since nothing else impairs
    clients as much. The message of the other verdict, which often names the cause, is appended.
    """
    if outage is None or verdict.reason is outage.reason:
        return verdict
    known = outage.message in verdict.message
    return Verdict(outage.reason, verdict.message if known else f"{outage.message}; {verdict.message}", verdict.blocked)


def verdict(cluster: Cluster, plan: Plan, probe: ClusterProbe, words: PodDiagnostics = NO_DIAGNOSTICS) -> Verdict:
    """Return whether the cluster matches its spec, after the steps of `plan` were taken.

    `words` explains why pods are not ready.
    """
    if plan.conflicts:
        text = f"objects of another owner, delete them or rename the cluster: {', '.join(plan.conflicts)}"
        return Verdict(Reason.NAME_CONFLICT, text)
    held = _held(plan)
    if changing := [step for step in plan.steps if not _is_follow(step)]:
        return Verdict(Reason.PROGRESSING, "; ".join([f"{len(changing)} objects are being changed", *held]))
    lack = _copies_lack(cluster, probe, probe.silent()) if cluster.is_master_slave else None
    lacks = [] if lack is None else [lack.message]
    if words.failing:
        return Verdict(Reason.PODS_FAILING, "; ".join([words.failing, *lacks, *held]))
    if plan.waiting:
        text = f"pods are not available yet: {', '.join(plan.waiting)}"
        texts = [text, *filter(None, [words.ending, words.waiting]), *lacks, *held]
        return Verdict(Reason.PODS_NOT_READY, "; ".join(texts), blocked=bool(words.waiting))
    gaps = gaps_in(cluster, probe)
    if gaps is not None:
        return Verdict(gaps.reason, "; ".join([gaps.message, *held]))
    if plan.staying:
        text = f"another controller changes fields after they were applied: {'; '.join(plan.staying)}"
        return Verdict(Reason.OBJECT_DIFFERS, "; ".join([text, *held]))
    if held:
        return Verdict(Reason.PROGRESSING, "; ".join(held))
    return _ready(cluster, probe)


def _is_follow(step: Step) -> bool:
    """Return whether a step directs the Service of a leader to the member that leads now. That is no change of the
    cluster.
    """
    return (
        isinstance(step, Apply)
        and step.exists
        and step.manifest["kind"] == "Service"
        and all(each.field.startswith(("spec.selector", "metadata.annotations")) for each in step.differences)
    )


def _held(plan: Plan) -> list[str]:
    """Return a text for each pending change with its reason. Brokers with the same change and reason share a text."""
    alike: dict[tuple[str, str], list[str]] = {}
    for held in plan.held:
        alike.setdefault((held.change, held.why), []).append(held.broker)
    return [f"waiting to be changed ({change}): {', '.join(names)}, as {why}" for (change, why), names in alike.items()]


def _ready(cluster: Cluster, probe: ClusterProbe) -> Verdict:
    """Return the Ready verdict. Warnings about unknown settings are appended: they are often misspellings and do not
    impair the brokers."""
    text = f"{len(cluster.members)} brokers serve and are listed by {cluster.name_servers.replicas} name servers"
    if cluster.is_replicated:
        leads = "is the master of" if cluster.is_master_slave else "leads"
        text += f"; {', '.join(f'{leader.name} {leads} {leader.broker_name}' for leader in probe.masters(cluster))}"
    if by_route := probe.found_by_route(cluster):
        text += f"; clients find the leader of {', '.join(by_route)} by their route, not by its Service"
    return Verdict(Reason.READY, "; ".join([text, *sorted(probe.unknown_settings)]))


def gaps_in(cluster: Cluster, probe: ClusterProbe) -> Verdict | None:
    """Return the first failure in the responses of the servers; None when every name server lists every broker."""
    if probe.refusals:
        return Verdict(Reason.BROKER_REFUSED, f"the operator is denied access by {_said(probe.refusals)}")
    unheard = {server: said for server, said in probe.name_servers.items() if isinstance(said, str)}
    if unheard:
        return Verdict(Reason.NAME_SERVER_UNREACHABLE, _said(unheard))
    silent = {broker: said for broker, said in probe.brokers.items() if said is not None}
    if cluster.is_master_slave and (gap := _copies_lack(cluster, probe, silent)) is not None:
        return gap
    if silent:
        return Verdict(Reason.BROKER_UNREACHABLE, _said(silent))
    if leaderless := probe.leaderless(cluster):
        return Verdict(Reason.NO_LEADER, f"no member leads {', '.join(leaderless)}")
    missing = {server: probe.missing(server, cluster) for server in probe.name_servers}
    lists = [
        f"{server} does not list {', '.join(member.name for member in members)}"
        for server, members in missing.items()
        if members
    ]
    return Verdict(Reason.NOT_REGISTERED, "; ".join(lists)) if lists else None


def _copies_lack(cluster: Cluster, probe: ClusterProbe, silent: Mapping[str, str]) -> Verdict | None:
    """Return the most severe problem of a group of a master and slaves; None if there is none.

    A group without its master accepts no messages. With SYNC it acknowledges none while no slave follows. With ASYNC it
    also works without slaves, but does not match the spec.
    """
    if masterless := probe.leaderless(cluster):
        return _no_master(cluster, probe, masterless)
    masters = list(probe.masters(cluster))
    slaves = [member for member in cluster.members if member not in masters]
    alone = [
        master.broker_name
        for master in masters
        if not any(probe.follows(slave) for slave in slaves if slave.group == master.group)
    ]
    if alone and cluster.replication.acknowledge == "SYNC":
        text = f"no slave of {', '.join(alone)} follows: sends are answered with SLAVE_NOT_AVAILABLE"
        return Verdict(Reason.NO_SLAVE, "; ".join([text, *_not_following(slaves, probe)]))
    if behind := _not_following([slave for slave in slaves if slave.address not in silent], probe):
        return Verdict(Reason.SLAVE_BEHIND, "; ".join(behind))
    return None


def _no_master(cluster: Cluster, probe: ClusterProbe, masterless: Collection[str]) -> Verdict:
    texts = [f"no member responds as the master of {', '.join(masterless)}: what its slaves have can be read"]
    silent = probe.silent()
    members = [each for each in cluster.members if each.broker_name in masterless]
    texts += [f"{each.address}: {silent[each.address]}" for each in members if each.address in silent]
    return Verdict(Reason.NO_MASTER, "; ".join(texts))


def _not_following(slaves: Sequence[Member], probe: ClusterProbe) -> list[str]:
    """Return the reasons of slaves that do not follow."""
    texts = []
    for slave in slaves:
        if not probe.follows(slave):
            state = probe.replication.get(slave.address)
            why = probe.brokers[slave.address] or (state.remark if state is not None else "")
            texts.append(f"{slave.name} does not follow its master: {why or 'it is not connected yet'}")
    return texts


def status(
    cluster: Cluster,
    probe: ClusterProbe,
    plan: Plan | None = None,
    previous: Mapping[str, Mapping[str, Any]] = NOTHING,
    now: str = "",
    stores: Mapping[str, Mapping[str, Any]] = NOTHING,
) -> dict[str, Any]:
    """Return the status without conditions. `plan` is None for a rejected spec; then no broker counts as updated.

    `previous` has the entries of the last `status.brokers` by name, from which `waiting.since` is copied. `stores` is
    the recorded state of each broker's store (see `concerns`).
    """
    members = cluster.members
    electing = probe.electing(cluster)
    serving = probe.serving(cluster) - {each.name for each in members if each.group in electing}
    informed = probe.informed(cluster)
    updated = plan.updated if plan is not None else frozenset()
    held = {each.broker: each for each in plan.held} if plan is not None else {}

    def broker(member: Member) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": member.name,
            "group": member.broker_name,
            "address": member.address,
            "ready": member.name in serving,
            "updated": member.name in updated,
        }
        found |= _slave_standing(cluster, member, probe) if cluster.is_master_slave else _standing(member, probe)
        waits = held.get(member.name)
        if waits is not None:
            since = previous.get(member.name, {}).get("waiting", {}).get("since", now)
            found["waiting"] = {"change": waits.change, "reason": waits.why, "since": since}
        if member.name in stores:
            found["store"] = dict(stores[member.name])
        return found

    return {
        "observedGeneration": cluster.generation,
        "groups": cluster.groups,
        "selector": names.selector(names.broker_labels(cluster.name)),
        "brokersReady": f"{len(serving)}/{len(members)}",
        "brokersUpdated": f"{len(updated)}/{len(members)}",
        "nameServersReady": f"{len(informed)}/{cluster.name_servers.replicas}",
        "nameServerAddress": cluster.name_server_address,
        "brokers": [broker(member) for member in members],
    }


def _standing(member: Member, probe: ClusterProbe) -> dict[str, Any]:
    """Return the role of a group member, and its lag as reported by the leader."""
    state = probe.replication.get(member.address)
    if state is None or state.mode != DLEDGER:
        return {}
    standing: dict[str, Any] = {"role": state.role}
    lags = (
        copy.lag_bytes
        for other in probe.replication.values()
        if other.role == LEADER and other.group == member.broker_name
        for copy in other.members
        if copy.id == member.id
    )
    lag = next((lag for lag in lags if lag is not None), None)
    return standing if lag is None else standing | {"lagBytes": lag}


def _slave_standing(cluster: Cluster, member: Member, probe: ClusterProbe) -> dict[str, Any]:
    """Return the role of a member of a group with a master, and the lag of a slave."""
    state = probe.replication.get(member.address)
    if state is None:
        return {}
    lag = probe.lag(cluster, member) if state.role == SLAVE else 0
    return {"role": state.role} | ({} if lag is None else {"lagBytes": lag})


def _said(answers: Mapping[str, str]) -> str:
    return "; ".join(f"{address}: {text}" for address, text in answers.items())
