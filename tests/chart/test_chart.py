"""The chart, rendered by helm."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.tools import tool
from raptormq.client.security.tls import ClientTls, tls_from_environment
from raptormq_operator import uninstall
from raptormq_operator.handlers import CHILD_KINDS
from raptormq_operator.kube.client import RESOURCES
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.pipeline import objects as pipeline_objects
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.pipeline import Pipeline
from raptormq_operator.settings import Settings
from tests.operator.resources import SURROUNDINGS, cluster_body, pipeline_body

CHART = Path(__file__).resolve().parents[2] / "helm" / "raptormq"
pytestmark = pytest.mark.timeout(900)
"""Time limit of the first call, which may build helm."""
KUBE_VERSION = ("--kube-version", "1.34.4")
"""Kubernetes version for helm, because a helm built from its module has an old default."""


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("helm"), *arguments], capture_output=True, text=True, timeout=60, check=False)


def all_rendered(*options: str) -> list[dict[str, Any]]:
    """Return the objects of `helm template`, in the namespace `mq`."""
    done = helm("template", "raptormq", str(CHART), "--namespace", "mq", *KUBE_VERSION, *options)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def rendered(*options: str) -> list[dict[str, Any]]:
    """Return the objects that are installed, and the pod of `helm test`."""
    return [document for document in all_rendered(*options) if not _is_of_uninstall(document)]


def uninstallation(*options: str) -> list[dict[str, Any]]:
    """Return the objects that exist only during `helm uninstall`."""
    return [document for document in all_rendered(*options) if _is_of_uninstall(document)]


def _is_of_uninstall(document: dict[str, Any]) -> bool:
    return bool(document["metadata"].get("annotations", {}).get("helm.sh/hook") == "post-delete")


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in objects if document["kind"] == kind]


def deployment(*options: str) -> dict[str, Any]:
    (found,) = of_kind(rendered(*options), "Deployment")
    return found


def environment(*options: str) -> dict[str, str]:
    (container,) = deployment(*options)["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable.get("value", "from the pod") for variable in container["env"]}


def test_lint_has_nothing_to_say() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_the_documented_upgrade_has_all_definitions() -> None:
    shown = [document for document in yaml.safe_load_all(helm("show", "crds", str(CHART)).stdout) if document]
    plurals = ["brokerclusters", "sparkpipelines", "topics"]
    assert [one["metadata"]["name"] for one in shown] == [f"{plural}.raptormq.io" for plural in plurals]
    command = "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -"
    assert command in (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    assert command in (CHART / "README.md").read_text(encoding="utf-8")


def test_the_operator_gets_settings_that_it_understands() -> None:
    settings = Settings.from_environment(environment())
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    assert settings.image == container["image"] == "raptormq:0.2.0"
    assert settings.port == container["ports"][0]["containerPort"]
    assert settings.watch_namespaces == ()
    assert settings.dns_domain == "cluster.local"
    assert container["args"] == ["operator"]
    assert {"POD_NAME", "POD_NAMESPACE"} <= environment().keys()


def test_brokers_run_the_image_that_the_operator_runs() -> None:
    values = environment("--set", "image.repository=registry.example/mq,image.tag=7.1.0")
    assert values["RAPTORMQ_IMAGE"] == "registry.example/mq:7.1.0"


def test_a_secret_for_tls_is_mounted_where_the_environment_says() -> None:
    assert not any(name.startswith("RAPTORMQ_TLS") for name in environment())
    options = ("--set", "tls.secretName=own,tls.verify=true")
    pod = deployment(*options)["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "tls"]
    assert volume["secret"] == {"secretName": "own", "defaultMode": 0o440}
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "tls"]
    tls = tls_from_environment(environment(*options))
    authority, certificate, key = (f"{mount['mountPath']}/{name}" for name in ("ca.crt", "tls.crt", "tls.key"))
    assert tls == ClientTls(authority, certificate, key, auth_server=True)
    assert "RAPTORMQ_TLS_CA" not in environment("--set", "tls.secretName=own")


def test_the_pods_fit_the_restricted_standard() -> None:
    (job,) = of_kind(uninstallation(), "Job")
    for pod in (job["spec"]["template"]["spec"], deployment()["spec"]["template"]["spec"]):
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


def rules(role: dict[str, Any]) -> dict[str, set[str]]:
    """group/resource -> verbs."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return found


def operator_role(*options: str) -> dict[str, Any]:
    (found,) = [
        role
        for role in of_kind(rendered(*options), "ClusterRole")
        if not any(label.startswith("rbac.authorization.k8s.io/") for label in role["metadata"]["labels"])
    ]
    return found


def test_the_operator_may_do_what_it_does_and_no_more() -> None:
    allowed = rules(operator_role())
    assert not [verbs for verbs in allowed.values() if "*" in verbs]
    assert not [name for name in allowed if "*" in name or "secrets" in name]
    for version, plural in (RESOURCES[kind] for kind in CHILD_KINDS):
        group = version.rpartition("/")[0]
        assert allowed[f"{group}/{plural}"] == {"get", "list", "watch", "create", "patch", "delete"}
    ours = {
        "raptormq.io/brokerclusters": {"get", "list", "watch"},
        "raptormq.io/topics": {"get", "list", "watch", "patch"},
        "raptormq.io/sparkpipelines": {"get", "list", "watch"},
        "/pods": {"list"},
        "/persistentvolumeclaims": {"list", "patch"},
        "/pods/eviction": {"create"},
        "/events": {"get", "list", "create", "patch"},
    }
    assert {name: allowed[name] for name in ours} == ours
    known = {f"{version.rpartition('/')[0]}/{plural}" for version, plural in RESOURCES.values()}
    assert {name for name in allowed if not name.endswith(("/status", "/finalizers", "/eviction"))} <= known


def test_secrets_are_for_those_who_want_access_control() -> None:
    role = operator_role("--set", "accessControl.enabled=true")
    assert rules(role)["/secrets"] == {"get", "create"}
    assert all(rule["verbs"] == ["get", "create"] for rule in role["rules"] if "secrets" in rule["resources"])


def test_rights_to_run_pipelines_are_for_those_who_want_them() -> None:
    """The creator of a role needs its permissions, so the operator has those of drivers."""
    role = operator_role("--set", "sparkPipelines.enabled=true")
    allowed = rules(role)
    assert environment("--set", "sparkPipelines.enabled=true")["SPARK_PIPELINES"] == "true"
    assert environment()["SPARK_PIPELINES"] == "false"
    objects = pipeline_objects(Pipeline.from_object(pipeline_body()))
    (given,) = [manifest for manifest in objects if manifest["kind"] == "Role"]
    for name, verbs in rules(given).items():
        assert verbs <= allowed[name], name
    for kind in {manifest["kind"] for manifest in objects}:
        version, plural = RESOURCES[kind]
        group = version.rpartition("/")[0]
        assert {"get", "create", "patch"} <= allowed[f"{group}/{plural}"], kind
    assert allowed["/secrets"] == {"get"}


def test_policies_of_brokers_are_not_those_of_drivers() -> None:
    """Executors connect to ports of the driver that a broker does not have. The operator requests its progress."""
    switches = "sparkPipelines.enabled=true,networkPolicy.enabled=true,networkPolicy.clusterNamespaces={shop}"
    labels = names.driver_labels("delays").items()
    of_operator, of_brokers = of_kind(rendered("--set", switches), "NetworkPolicy")
    assert not of_brokers["spec"]["podSelector"]["matchLabels"].items() <= labels
    (rule,) = [
        rule for rule in of_operator["spec"]["egress"] if {"port": "progress", "protocol": "TCP"} in rule["ports"]
    ]
    assert rule["to"][0]["podSelector"]["matchLabels"].items() <= labels


def test_the_lease_is_the_one_that_the_operator_takes() -> None:
    """Each release has its own role, so that two in one namespace can manage different namespaces."""
    for options in ((), ("--set", "fullnameOverride=second")):
        (role,) = of_kind(rendered(*options), "Role")
        assert role["metadata"]["namespace"] == "mq"
        named = [rule for rule in role["rules"] if rule.get("resourceNames")]
        name = environment(*options)["LEASE_NAME"]
        assert name == ("second-operator" if options else "raptormq-operator")
        assert [(rule["resourceNames"], rule["verbs"]) for rule in named] == [([name], ["get", "update"])]


def test_watched_namespaces_get_a_role_each_and_nothing_is_cluster_wide() -> None:
    options = ["--set", "watchNamespaces={shop,bank},rbac.aggregateClusterRoles=false"]
    objects = rendered(*options)
    assert of_kind(objects, "ClusterRole") == of_kind(objects, "ClusterRoleBinding") == []
    assert {role["metadata"]["namespace"] for role in of_kind(objects, "Role")} == {"mq", "shop", "bank"}
    assert {binding["subjects"][0]["namespace"] for binding in of_kind(objects, "RoleBinding")} == {"mq"}
    assert environment(*options)["WATCH_NAMESPACES"] == "shop,bank"


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_people_get_rights_to_both_resources_with_kubernetes_own_roles(role: str) -> None:
    label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
    (found,) = [each for each in of_kind(rendered(), "ClusterRole") if label in each["metadata"]["labels"]]
    assert found["metadata"]["labels"][label] == "true"
    allowed = rules(found)
    verbs = {
        "view": {"get", "list", "watch"},
        "edit": {"create", "update", "patch", "delete"},
        "admin": {"create", "update", "patch", "delete", "deletecollection"},
    }
    assert {
        allowed[f"raptormq.io/{plural}"] == verbs[role] for plural in ("brokerclusters", "sparkpipelines", "topics")
    } == {True}
    assert {name.split("/")[0] for name in allowed} == {"raptormq.io"}


def test_an_image_from_a_registry_by_its_digest() -> None:
    digest = f"sha256:{'a' * 64}"
    values = environment("--set", f"image.registry=registry.example:5000,image.digest={digest},image.tag=ignored")
    assert values["RAPTORMQ_IMAGE"] == f"registry.example:5000/raptormq@{digest}"
    assert environment("--set", "image.registry=registry.example/mq/")["RAPTORMQ_IMAGE"].startswith(
        "registry.example/mq/raptormq:"
    )


def test_operators_are_spread_and_evicted_one_by_one() -> None:
    (budget,) = of_kind(rendered(), "PodDisruptionBudget")
    template = deployment()["spec"]["template"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == budget["spec"]["selector"]
    own = 'topologySpreadConstraints=[{"maxSkew": 2}]'
    assert deployment("--set-json", own)["spec"]["template"]["spec"]["topologySpreadConstraints"] == [{"maxSkew": 2}]
    options = ("--set", "podDisruptionBudget.enabled=false,priorityClassName=high")
    assert of_kind(rendered(*options), "PodDisruptionBudget") == []
    assert deployment(*options)["spec"]["template"]["spec"]["priorityClassName"] == "high"


def test_monitors_select_what_there_is() -> None:
    options = ("--set", "serviceMonitor.enabled=true,podMonitor.enabled=true,podMonitor.labels.release=mon")
    objects = rendered(*options)
    (service,) = of_kind(objects, "Service")
    (monitor,) = of_kind(objects, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [endpoint["port"] for endpoint in monitor["spec"]["endpoints"]] == [service["spec"]["ports"][0]["name"]]
    (pods,) = of_kind(objects, "PodMonitor")
    assert (pods["metadata"]["labels"]["release"], pods["spec"]["namespaceSelector"]) == ("mon", {"any": True})
    for template in server_templates():
        assert pods["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert "metrics" in port_names(template)
    narrow = rendered(*options, "--set", "watchNamespaces={shop}")
    assert of_kind(narrow, "PodMonitor")[0]["spec"]["namespaceSelector"] == {"matchNames": ["shop"]}
    assert of_kind(rendered(), "ServiceMonitor") == of_kind(rendered(), "PodMonitor") == []


def server_templates() -> list[dict[str, Any]]:
    """Return the pod templates of name servers and brokers that the operator creates."""
    modes: list[dict[str, Any]] = [{}]
    modes += [{"replicas": 3, "replication": {"mode": mode}} for mode in ("dledger", "masterSlave")]
    clusters = [Cluster.from_object(cluster_body(**mode), SURROUNDINGS) for mode in modes]
    objects = [one for cluster in clusters for one in wanted(cluster).objects]
    return [one["spec"]["template"] for one in objects if one["kind"] == "StatefulSet"]


def port_names(template: dict[str, Any]) -> set[str]:
    return {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}


def test_network_policies_are_about_the_pods_and_ports_that_there_are() -> None:
    assert of_kind(rendered(), "NetworkPolicy") == []
    peers = 'networkPolicy.clientsFrom=[{"podSelector": {"matchLabels": {"app": "shop"}}}]'
    options = ("--set", "networkPolicy.enabled=true,networkPolicy.clusterNamespaces={shop}", "--set-json", peers)
    own, clusters = sorted(of_kind(rendered(*options), "NetworkPolicy"), key=lambda one: one["metadata"]["namespace"])
    assert (own["metadata"]["namespace"], clusters["metadata"]["namespace"]) == ("mq", "shop")
    template = deployment()["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert own["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert {port["port"] for rule in own["spec"]["ingress"] for port in rule["ports"]} == port_names(template)
    (to_servers,) = [rule for rule in own["spec"]["egress"] if "to" in rule]
    clients, metrics, members = clusters["spec"]["ingress"]
    assert "from" not in metrics, "all users"
    shop, cluster, operator = clients["from"]
    assert shop == {"podSelector": {"matchLabels": {"app": "shop"}}}
    assert operator["podSelector"]["matchLabels"].items() <= labels.items()
    assert operator["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "mq"}
    open_ports = {port["port"] for rule in clusters["spec"]["ingress"] for port in rule["ports"]}
    servers = server_templates()
    for server in servers:
        selectors = (to_servers["to"][0], clusters["spec"], cluster, members["from"][0])
        for selector in selectors:
            assert selector["podSelector"]["matchLabels"].items() <= server["metadata"]["labels"].items()
    assert open_ports == set().union(*map(port_names, servers))


def test_helm_test_asks_the_service() -> None:
    (pod,) = of_kind(rendered(), "Pod")
    (service,) = of_kind(rendered(), "Service")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (text,) = pod["spec"]["containers"][0]["args"]
    assert f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/readyz" in text
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items(), "it is not an operator"
    compile(text, "test", "exec")


@pytest.mark.parametrize("watched", [(), ("shop", "bank")])
def test_uninstallation_gets_rights_to_release_the_resources_and_no_more(watched: tuple[str, ...]) -> None:
    options = ("--set", f"watchNamespaces={{{','.join(watched)}}}") if watched else ()
    objects = uninstallation(*options)
    prefix = "" if watched else "Cluster"
    roles, bindings = of_kind(objects, f"{prefix}Role"), of_kind(objects, f"{prefix}RoleBinding")
    (account,) = of_kind(objects, "ServiceAccount")
    (job,) = of_kind(objects, "Job")
    assert len(objects) == len(roles) + len(bindings) + 2
    for placed in (roles, bindings):
        assert [each["metadata"].get("namespace") for each in placed] == list(watched or [None])
    for role in roles:
        assert rules(role) == {
            **{f"raptormq.io/{plural}": {"list"} for plural in ("brokerclusters", "sparkpipelines")},
            **{f"raptormq.io/{plural}/status": {"patch"} for plural in ("brokerclusters", "sparkpipelines", "topics")},
            "raptormq.io/topics": {"list", "patch"},
        }
    for binding in bindings:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "mq"}
        ]
        assert binding["roleRef"]["name"] == roles[0]["metadata"]["name"]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    weights = {each["kind"]: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in objects}
    assert max(weights, key=lambda kind: weights[kind]) == "Job"


def test_uninstallation_ends_also_if_its_pod_cannot_start_and_removes_all_it_made() -> None:
    objects = uninstallation("--set", "watchNamespaces={shop,bank},logLevel=debug,image.tag=7.1.0")
    (job,) = of_kind(objects, "Job")
    assert uninstall.LIMIT_S < job["spec"]["activeDeadlineSeconds"] < 300, "Helm's time limit"
    assert job["spec"]["backoffLimit"] == 0
    for each in objects:
        assert each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    settings = Settings.from_environment({each["name"]: each["value"] for each in container["env"]})
    assert container["args"] == ["operator", "uninstall"]
    assert settings.watch_namespaces == ("shop", "bank")
    assert container["image"] == settings.image == "raptormq:7.1.0"
    (service,) = of_kind(rendered(), "Service")
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= labels.items(), "it is not an operator"


def test_an_account_of_the_users_own() -> None:
    objects = rendered("--set", "serviceAccount.create=false,serviceAccount.name=mine")
    assert of_kind(objects, "ServiceAccount") == []
    assert {binding["subjects"][0]["name"] for binding in of_kind(objects, "ClusterRoleBinding")} == {"mine"}


@pytest.mark.parametrize("skip", [(), ("--skip-schema-validation",)])
def test_no_account_gets_the_rights_by_mistake(skip: tuple[str, ...]) -> None:
    done = helm("template", "raptormq", str(CHART), *KUBE_VERSION, *skip, "--set", "serviceAccount.create=false")
    assert done.returncode != 0
    assert "name" in done.stderr


def test_metrics_have_a_service_unless_they_are_off() -> None:
    (found,) = of_kind(rendered(), "Service")
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    assert found["spec"]["selector"].items() <= labels.items()
    assert of_kind(rendered("--set", "metrics.enabled=false"), "Service") == []


def test_alarms_are_a_prometheus_rule_where_that_is_wanted() -> None:
    assert of_kind(rendered(), "PrometheusRule") == []
    found = of_kind(
        rendered("--set", "prometheusRule.enabled=true,prometheusRule.labels.release=mon"), "PrometheusRule"
    )
    for rule in found:
        about = rule["metadata"]["name"].removeprefix("raptormq-")
        assert rule["spec"] == yaml.safe_load((CHART / "rules" / f"{about}.yaml").read_text(encoding="utf-8"))
        assert rule["metadata"]["labels"]["release"] == "mon"
    assert len(found) == len(list((CHART / "rules").iterdir()))


def test_the_log_is_as_the_values_say_in_any_case() -> None:
    settings = Settings.from_environment(environment("--set", "logLevel=debug,logFormat=json"))
    assert (settings.log_level, settings.log_format) == ("DEBUG", "json")


def test_everything_carries_the_labels_of_the_release() -> None:
    for document in all_rendered("--set", "commonLabels.team=mq,prometheusRule.enabled=true"):
        labels = document["metadata"]["labels"]
        assert (labels["app.kubernetes.io/instance"], labels["team"]) == ("raptormq", "mq"), document["kind"]


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("replicas=0", "replicas"),
        ("replica=1", "replica"),
        ("logLevel=LOUD", "logLevel"),
        ("logFormat=xml", "logFormat"),
        ("watchNamespaces={Shop}", "watchNamespaces"),
        ("metrics.port=80", "port"),
        ("prometheusRule.enable=true", "prometheusRule"),
        ("image.repository=", "repository"),
        ("image.digest=abc", "digest"),
        ("tls.verify=true", "secretName"),
        (r"podLabels.app\.kubernetes\.io/name=x", "podLabels"),
        (r"podLabels.app\.kubernetes\.io/component=x", "podLabels"),
        (r"commonLabels.app\.kubernetes\.io/instance=x", "commonLabels"),
        (r"commonLabels.helm\.sh/chart=x", "commonLabels"),
        ("serviceMonitor.enabled=true,metrics.enabled=false", "metrics"),
        ("networkPolicy.clusterNamespaces={shop}", "clusterNamespaces"),
        ("podDisruptionBudget.maxUnavailable=0", "maxUnavailable"),
        ("fullnameOverride=A_B", "fullnameOverride"),
        ("fullnameOverride=dots.are.here", "fullnameOverride"),
        ("fullnameOverride=1st", "fullnameOverride"),
        (f"fullnameOverride={54 * 'a'}", "fullnameOverride"),
        ("nameOverride=A_B", "fullnameOverride"),
        ("nameOverride=-a", "nameOverride"),
    ],
)
def test_a_bad_value_is_refused_by_name(option: str, word: str) -> None:
    done = helm("template", "raptormq", str(CHART), *KUBE_VERSION, "--set", option)
    assert done.returncode != 0
    assert word in done.stderr


@pytest.mark.parametrize("release", ["dots.are.here", "1st"])
def test_release_name_that_services_refuse_is_refused_with_the_value_that_replaces_it(release: str) -> None:
    done = helm("template", release, str(CHART), *KUBE_VERSION)
    assert done.returncode != 0
    assert "set fullnameOverride" in done.stderr
    done = helm("template", release, str(CHART), *KUBE_VERSION, "--set", "fullnameOverride=mq")
    assert done.returncode == 0, done.stderr


def test_an_old_kubernetes_is_refused() -> None:
    done = helm("template", "raptormq", str(CHART), "--kube-version", "1.28.9")
    assert "requires kubeVersion" in done.stderr
