"""The operator process on a real API server: what it watches, what it writes, and when it ends."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from raptormq.client import AdminClient, TopicConfig
from tests.api.control_plane import CRDS, ControlPlane, program
from tests.api.operator_process import GRACE_S, OperatorProcess, until
from tests.api.peers import BROKER_PORT, address_of, broker
from tests.api.resources import OURS, make, peers, post, reasons, topics
from tests.api.stand_ins import settling

CHART = Path(__file__).resolve().parents[2] / "helm" / "raptormq"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def holder(plane: ControlPlane, lease: str = "raptormq-operator") -> str:
    try:
        found: str = plane.request("GET", f"{LEASES}/{lease}")["spec"].get("holderIdentity", "")
    except OSError:
        return ""
    return found


def allow(plane: ControlPlane, *namespaces: str, values: str = "", template: str = "rbac") -> None:
    """The user `limited` with the permissions of a template of the chart in these namespaces."""
    command = [program("helm"), "template", "raptormq", str(CHART), f"--show-only=templates/{template}.yaml"]
    command += [
        "--namespace=default",
        "--kube-version=1.34.0",
        "--set",
        f"watchNamespaces={{{','.join(namespaces)}}},{values}",
    ]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for manifest in filter(None, yaml.safe_load_all(rendered)):
        if not manifest["apiVersion"].startswith("rbac."):
            continue
        if "subjects" in manifest:
            manifest["subjects"] = [{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}]
        plural = f"{manifest['kind'].lower()}s"
        where = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{manifest['metadata']['namespace']}/{plural}"
        try:
            plane.request("POST", where, manifest)
        except OSError as error:
            if getattr(error, "code", None) != 409:  # a lease of another test
                raise


def forbid(plane: ControlPlane, namespace: str) -> None:
    plane.request("DELETE", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")


async def test_a_cluster_and_its_topics(tmp_path: Path, shared_plane: ControlPlane, namespace: str) -> None:
    with (
        peers(tmp_path, (namespace, "demo", 2, 2)),
        settling(shared_plane),
        OperatorProcess(
            tmp_path, shared_plane.kubeconfig(), LEASE_NAME=namespace, WATCH_NAMESPACES=namespace
        ) as operator,
    ):
        make(shared_plane, namespace, "BrokerCluster", "demo", groups=2)
        for number in range(20):
            make(shared_plane, namespace, "Topic", f"t{number}")
        await until(
            "the cluster is ready", lambda: reasons(shared_plane, namespace, "brokerclusters")["demo"] == "Ready"
        )
        await until("all topics are", lambda: set(reasons(shared_plane, namespace).values()) == {"Ready"})
        assert operator.ask("/readyz") == (200, "ok\n")
        address = f"{address_of(broker(namespace, 'demo', 1))}:{BROKER_PORT}"
        async with AdminClient(name_servers="127.0.0.1:1") as admin:
            await admin.put_topics(address, [TopicConfig("t5", read_queue_nums=3)])

            async def restored() -> bool:
                return (await admin.topic_configs(address)).topics["t5"].read_queue_nums == 8

            begun = time.monotonic()
            while not await restored():
                assert time.monotonic() - begun < 30
                await asyncio.sleep(0.1)
        make(shared_plane, namespace, "Topic", "again", name="t0")
        await until(
            "the second one for a name is told", lambda: reasons(shared_plane, namespace)["again"] == "TopicConflict"
        )
        assert operator.terminate() < GRACE_S / 2
        assert holder(shared_plane, namespace) == ""


async def test_messages_that_a_topic_with_fewer_queues_hides_are_a_condition_until_they_can_be_read(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    place = f"{OURS}/namespaces/{namespace}/topics/orders"

    def conditions() -> dict[str, str]:
        status = shared_plane.request("GET", place).get("status", {})
        return {each["type"]: each["message"] for each in status.get("conditions", ()) if each["status"] == "True"}

    def set_queues(count: int) -> None:
        queues = {"spec": {"readQueues": count, "writeQueues": count}}
        shared_plane.request("PATCH", place, queues, "application/merge-patch+json")

    with (
        peers(tmp_path, (namespace, "demo", 2, 1)),
        settling(shared_plane),
        OperatorProcess(tmp_path, shared_plane.kubeconfig(), LEASE_NAME=namespace, WATCH_NAMESPACES=namespace),
    ):
        make(shared_plane, namespace, "BrokerCluster", "demo")
        make(shared_plane, namespace, "Topic", "orders", readQueues=3, writeQueues=3)
        await until("the topic is ready", lambda: conditions().keys() == {"Ready"})
        (tmp_path / f"stored-{broker(namespace, 'demo', 0)}").write_text('{"orders": [50, 50, 50]}')
        set_queues(1)
        await until("the messages are reported", lambda: conditions().keys() == {"Ready", "MessagesUnreadable"})
        assert conditions()["MessagesUnreadable"].startswith("100 messages are in queues that consumers do not read")
        (tmp_path / f"stored-{broker(namespace, 'demo', 0)}").write_text('{"orders": [50, 50, 0]}')
        await until("a part has expired", lambda: conditions()["MessagesUnreadable"].startswith("50 messages"))
        set_queues(3)
        await until("all can be read", lambda: conditions().keys() == {"Ready"})


async def test_a_silent_broker_costs_its_cluster_alone(
    tmp_path: Path, shared_plane: ControlPlane, namespaces: Callable[[ControlPlane, int], list[str]]
) -> None:
    sick, well = namespaces(shared_plane, 2)
    with (
        peers(tmp_path, (sick, "demo", 2, 2), (well, "demo", 2, 1)),
        settling(shared_plane),
        OperatorProcess(tmp_path, shared_plane.kubeconfig(), LEASE_NAME=sick, WATCH_NAMESPACES=f"{sick},{well}"),
    ):
        make(shared_plane, sick, "BrokerCluster", "demo", groups=2)
        make(shared_plane, well, "BrokerCluster", "demo")
        for number in range(100):
            make(shared_plane, sick, "Topic", f"t{number}")
        await until("all are ready", lambda: set(reasons(shared_plane, sick).values()) == {"Ready"})
        await until("both are", lambda: reasons(shared_plane, well, "brokerclusters") == {"demo": "Ready"})
        (tmp_path / f"silent-{broker(sick, 'demo', 1)}").touch()
        await until(
            "the sick one says so", lambda: reasons(shared_plane, sick, "brokerclusters")["demo"] == "BrokerUnreachable"
        )
        make(shared_plane, well, "Topic", "new")
        took = await until("a new one elsewhere is made", lambda: reasons(shared_plane, well)["new"] == "Ready")
        assert took < 3.0, "less than the time of one request to a silent broker"
        (tmp_path / f"silent-{broker(sick, 'demo', 1)}").unlink()
        await until("it is well again", lambda: set(reasons(shared_plane, sick).values()) == {"Ready"})


async def test_a_namespace_that_is_forbidden_costs_the_others_nothing(
    tmp_path: Path, shared_plane: ControlPlane, namespaces: Callable[[ControlPlane, int], list[str]]
) -> None:
    """Check that the permissions of the chart are sufficient, and that the next leader changes nothing."""
    first, second = namespaces(shared_plane, 2)
    allow(shared_plane, first, second)
    environment = {"WATCH_NAMESPACES": f"{first},{second}"}
    kubeconfig = shared_plane.kubeconfig("limited")
    for namespace in (first, second):
        make(shared_plane, namespace, "Topic", "before")
    with OperatorProcess(tmp_path, kubeconfig, "one", **environment) as one:
        for namespace in (first, second):
            await until("served", lambda where=namespace: reasons(shared_plane, where)["before"] == "ClusterNotFound")  # type: ignore[misc]
        forbid(shared_plane, first)
        make(shared_plane, second, "Topic", "after")
        await until("the other is served", lambda: reasons(shared_plane, second)["after"] == "ClusterNotFound")
        await until("it is said", lambda: f"in {first}" in one.ask("/readyz")[1])
        assert one.ask("/healthz")[0] == 200
        assert one.leads
        one.process.kill()
        with OperatorProcess(tmp_path, kubeconfig, "two", **environment) as two:
            make(shared_plane, second, "Topic", "then")
            await until("the next leader serves it", lambda: reasons(shared_plane, second)["then"] == "ClusterNotFound")
            make(shared_plane, first, "Topic", "then")
            allow(shared_plane, first)
            await until("and what it may see again", lambda: reasons(shared_plane, first)["then"] == "ClusterNotFound")
            assert two.terminate() < GRACE_S / 2


async def test_who_sees_nothing_leaves_the_lease_to_who_does(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    allow(shared_plane, namespace)
    make(shared_plane, namespace, "Topic", "before")
    with OperatorProcess(tmp_path, shared_plane.kubeconfig("limited"), "blind", WATCH_NAMESPACES=namespace) as blind:
        await until("it leads", lambda: reasons(shared_plane, namespace)["before"] == "ClusterNotFound")
        forbid(shared_plane, namespace)
        kubeconfig = shared_plane.kubeconfig()
        with OperatorProcess(tmp_path, kubeconfig, "seeing", WATCH_NAMESPACES=namespace) as seeing:
            make(shared_plane, namespace, "Topic", "after")
            await until("the other takes over", lambda: reasons(shared_plane, namespace)["after"] == "ClusterNotFound")
            assert holder(shared_plane) == "seeing"
            await until("it is said", lambda: "cannot lead" in blind.ask("/readyz")[1])
            assert blind.ask("/healthz")[0] == 200
            assert max(blind.terminate(), seeing.terminate()) < GRACE_S / 2


async def test_definitions_deleted_and_made_again(tmp_path: Path, own_plane: ControlPlane) -> None:
    own_plane.namespace("shop")
    own_plane.undefine("topics")
    with OperatorProcess(tmp_path, own_plane.kubeconfig()) as operator:
        await until("it waits", lambda: "does not serve Topic" in operator.log.read_text())
        own_plane.define("topics")
        make(own_plane, "shop", "Topic", "first")
        await until("it is served", lambda: reasons(own_plane, "shop")["first"] == "ClusterNotFound")
        own_plane.undefine("topics")
        own_plane.define("topics")
        make(own_plane, "shop", "Topic", "second")
        await until("made again it is, too", lambda: reasons(own_plane, "shop")["second"] == "ClusterNotFound")
        assert operator.terminate() < GRACE_S / 2


async def test_operator_with_old_definitions_does_not_lead_until_they_are_updated(
    tmp_path: Path, own_plane: ControlPlane
) -> None:
    own_plane.namespace("shop")
    definition = yaml.safe_load((CRDS / "brokerclusters.yaml").read_text(encoding="utf-8"))
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    old = spec["properties"].pop("flush")
    own_plane.update(definition)
    with OperatorProcess(tmp_path, own_plane.kubeconfig(), "new") as operator:
        await until("it finds the missing field", lambda: "BrokerCluster lacks spec.flush" in operator.log.read_text())
        status, text = operator.ask("/readyz")
        assert status == 503
        assert "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -" in text
        assert operator.ask("/healthz")[0] == 200
        make(own_plane, "shop", "Topic", "orders")
        assert holder(own_plane) == ""
        spec["properties"]["flush"] = old
        own_plane.update(definition)
        await until("it works", lambda: reasons(own_plane, "shop").get("orders") == "ClusterNotFound")
        assert operator.ask("/readyz") == (200, "ok\n")
        del spec["properties"]["flush"]
        own_plane.update(definition)
        await until("it releases the lease", lambda: holder(own_plane) == "")
        assert operator.log.read_text().count("WARNING this process cannot lead") <= 2
        assert operator.terminate() < GRACE_S / 2


async def test_an_api_server_that_hangs_does_not_keep_it(tmp_path: Path, own_plane: ControlPlane) -> None:
    with OperatorProcess(tmp_path, own_plane.kubeconfig()) as operator:
        await until("it leads", lambda: operator.leads)
        own_plane.freeze()
        try:
            assert operator.terminate() < GRACE_S
        finally:
            own_plane.thaw()


async def test_one_that_cannot_renew_the_lease_ends(tmp_path: Path, own_plane: ControlPlane) -> None:
    with OperatorProcess(tmp_path, own_plane.kubeconfig()) as operator:
        await until("it leads", lambda: operator.leads)
        own_plane.freeze()
        try:
            await until("it ends", lambda: operator.process.poll() is not None)
        finally:
            own_plane.thaw()
    assert operator.process.returncode == 2
    assert (
        operator.log.read_text()
        .rstrip()
        .splitlines()[-1]
        .startswith("raptormq_operator: the lease could not be renewed")
    )


async def test_two_installations_in_one_namespace_have_a_lease_each(
    tmp_path: Path, shared_plane: ControlPlane, namespaces: Callable[[ControlPlane, int], list[str]]
) -> None:
    first, second = namespaces(shared_plane, 2)
    kubeconfig = shared_plane.kubeconfig()
    with (
        OperatorProcess(tmp_path, kubeconfig, "one", LEASE_NAME="one", WATCH_NAMESPACES=first) as one,
        OperatorProcess(tmp_path, kubeconfig, "two", LEASE_NAME="two", WATCH_NAMESPACES=second) as two,
    ):
        for namespace in (first, second):
            make(shared_plane, namespace, "Topic", "t")
            await until("served", lambda where=namespace: reasons(shared_plane, where)["t"] == "ClusterNotFound")  # type: ignore[misc]
        one.terminate()
        two.terminate()
    assert [holder(shared_plane, name) for name in ("one", "two")] == ["", ""]


async def test_foreign_objects_are_not_even_read(tmp_path: Path, own_plane: ControlPlane) -> None:
    own_plane.namespace("shop")
    make(own_plane, "shop", "Topic", "t")
    with OperatorProcess(tmp_path, own_plane.kubeconfig()) as operator:
        await until("served", lambda: reasons(own_plane, "shop")["t"] == "ClusterNotFound")
        before = operator.resident_mb()
        for number in range(60):
            body = {"metadata": {"name": f"big-{number}"}, "data": {"text": "x" * 500_000}}
            own_plane.request("POST", "/api/v1/namespaces/shop/configmaps", body)
        operator.process.kill()
    with OperatorProcess(tmp_path, own_plane.kubeconfig(), "again") as operator:
        make(own_plane, "shop", "Topic", "u")
        await until("served", lambda: reasons(own_plane, "shop")["u"] == "ClusterNotFound")
        assert operator.resident_mb() < before + 15, "30 MB of foreign ConfigMaps are not kept in memory"


@pytest.mark.timeout(300)
def test_three_thousand_topics(tmp_path: Path, own_plane: ControlPlane) -> None:
    """Not a coroutine, because the time limit of coroutines is too short."""
    own_plane.namespace("shop")
    with (
        peers(tmp_path, ("shop", "demo", 2, 1)),
        settling(own_plane),
        OperatorProcess(tmp_path, own_plane.kubeconfig()) as operator,
    ):
        make(own_plane, "shop", "BrokerCluster", "demo")
        post(own_plane, topics("shop", "demo", (f"t{number}" for number in range(3000))))

        def ready() -> bool:
            found = reasons(own_plane, "shop")
            return len(found) == 3000 and set(found.values()) == {"Ready"}

        asyncio.run(until("all are ready", ready, 240.0, every=2.0))
        operator.terminate()
