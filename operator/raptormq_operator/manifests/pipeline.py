"""The Kubernetes objects of a SparkPipeline.

    ServiceAccount, Role, RoleBinding   permissions of Spark's driver to create executor pods
    ConfigMap                           spark-defaults.conf, and the template of executor pods
    Service                             headless: metrics and Spark's UI of the driver
    PersistentVolumeClaim               the checkpoint, unless the spec names a claim
    Pod                                 the driver, in client mode
    SparkApplication                    in place of ConfigMap and Pod, if Apache's operator runs the driver; see
                                        `spark_application`

The driver is a pod without a controller. Its name is fixed, so that there is never more than one driver: two drivers
would write the same checkpoint. A Deployment would start the next pod while the previous one is still terminating.
Executors connect to the driver's address instead of its Service, whose name may still resolve to the previous driver.
The entrypoint and the driver program are in spark/image and `pyspark_raptormq.pipeline_driver`.
Sources: Spark documentation, "Running Spark on Kubernetes" (client mode, pod templates, dynamic allocation).
"""

from __future__ import annotations

import json

from raptormq_operator.manifests.metadata import Manifest, digest, owner_reference
from raptormq_operator.manifests.pod import CONTAINER_SECURITY, beside, scheduling_fields
from raptormq_operator.model import names
from raptormq_operator.model.pipeline import Pipeline, PodSize

USER_ID = 185
"""User of the image."""
PROGRESS_PORT, DRIVER_PORT, BLOCKS_PORT, UI_PORT = 8090, 7078, 7079, 4040
QUERY_FAILED = 70
"""Exit code of the driver program for a dead query; its termination message is one sentence."""
PORTS = {"progress": PROGRESS_PORT, "driver": DRIVER_PORT, "blocks": BLOCKS_PORT, "ui": UI_PORT}
OF_THE_POD = {
    # Executors connect to the address to which the driver is bound (spark.kubernetes.executor.useDriverPodIP).
    "spark.driver.bindAddress": "$(POD_IP)",
    "spark.driver.host": "$(POD_IP)",
    "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
}
"""Properties of Spark that differ between drivers."""
CONF_DIRECTORY = "/etc/spark"
APPLICATION_DIRECTORY = "/opt/application"
CHECKPOINT_DIRECTORY = "/checkpoint"
TLS_DIRECTORY = "/etc/raptormq/tls"
EXECUTOR_TEMPLATE = "executor.yaml"
GRACE_S = 20
"""Time in seconds for the driver to remove its executors after SIGTERM."""
START_S = 900
"""Time in seconds for the driver to download its application and to create its session."""
SILENT_S = 120
"""Time in seconds without a response after which the kubelet kills the driver."""
_PROBE = {"httpGet": {"path": "/progress", "port": PROGRESS_PORT}, "timeoutSeconds": 5}
HASH_ANNOTATION = names.MANIFEST_HASH_ANNOTATION
SCRAPED = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PROGRESS_PORT)}
"""Annotations of driver pods for Prometheus."""

RESERVED = (
    "spark.app.name",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.driver.port",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.kubernetes.authenticate.",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.",
    "spark.kubernetes.executor.label.",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.namespace",
    "spark.master",
    "spark.submit.deployMode",
    "spark.ui.enabled",
    "spark.ui.port",
)
"""Properties of Spark that the operator sets. A name that ends with a point is a prefix."""


def reserved_properties(pipeline: Pipeline) -> list[str]:
    """Return the properties of the spec that belong to the operator, always or for the fields of this spec."""
    owned = _owned_properties(pipeline).keys()
    return sorted(
        key
        for key in pipeline.spark_conf
        if key in owned or any(key == name or (name.endswith(".") and key.startswith(name)) for name in RESERVED)
    )


def objects(pipeline: Pipeline) -> tuple[Manifest, ...]:
    """Return all objects except the one that runs the driver, in the order of their creation."""
    account = (_service_account(pipeline),) if pipeline.owns_service_account else ()
    rights = (_role(pipeline), _binding(pipeline))
    claim = (_claim(pipeline),) if pipeline.checkpoint.owned else ()
    configuration = () if pipeline.by_spark_operator else (config_map(pipeline),)
    return (*account, *rights, *configuration, _service(pipeline), *claim)


def driver_pod(pipeline: Pipeline, name_server_address: str, application: str = "") -> Manifest:
    """Return the driver pod. Its hash covers the configuration, and `application`, the text of the file in a
    ConfigMap."""
    pod: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(pipeline, names.driver(pipeline.name)) | {"labels": names.driver_labels(pipeline.name)},
        "spec": _driver_spec(pipeline, name_server_address),
    }
    seal = digest([pod["spec"], config_map(pipeline)["data"], application])
    pod["metadata"]["annotations"] = {HASH_ANNOTATION: seal, **SCRAPED}
    return pod


def hash_of(runner: Manifest) -> str:
    """Return the hash of a driver pod or SparkApplication; "" for one that the operator has not created."""
    return str(runner["metadata"].get("annotations", {}).get(HASH_ANNOTATION, ""))


def config_map(pipeline: Pipeline) -> Manifest:
    """Return the ConfigMap with Spark's configuration."""
    lines = "".join(f"{key} {_escaped(value)}\n" for key, value in sorted(_properties(pipeline).items()))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(pipeline, names.spark_config(pipeline.name)),
        "data": {
            "spark-defaults.conf": lines,
            EXECUTOR_TEMPLATE: json.dumps(executor_template(pipeline), indent=1, sort_keys=True) + "\n",
        },
    }


def _properties(pipeline: Pipeline) -> dict[str, str]:
    return properties(pipeline) | {
        "spark.kubernetes.executor.podTemplateFile": f"{CONF_DIRECTORY}/{EXECUTOR_TEMPLATE}",
        "spark.kubernetes.namespace": pipeline.namespace,
        "spark.master": "k8s://https://kubernetes.default.svc:443",
        "spark.submit.deployMode": "client",
    }


def properties(pipeline: Pipeline) -> dict[str, str]:
    """Return the properties of Spark that are the same for a driver pod and for a SparkApplication."""
    # Without memory, the thread of a query may die and leave a driver that seems to run.
    defaults = {
        "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.ui.showConsoleProgress": "false",
    }
    if pipeline.executors.most > pipeline.executors.least:
        # Kubernetes has no shuffle service, so executors with shuffle files are kept.
        defaults["spark.dynamicAllocation.shuffleTracking.enabled"] = "true"
    owned = {key: str(value) for key, value in _owned_properties(pipeline).items()}
    return defaults | dict(pipeline.spark_conf) | owned


def _owned_properties(pipeline: Pipeline) -> dict[str, str | int]:
    executors = pipeline.executors
    heap = executors.size.mebibytes // 2
    given: dict[str, str | int] = {
        "spark.app.name": pipeline.name,
        "spark.driver.blockManager.port": BLOCKS_PORT,
        "spark.driver.memory": f"{pipeline.driver.mebibytes // 2}m",
        "spark.driver.port": DRIVER_PORT,
        "spark.executor.cores": executors.cores,
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{executors.size.mebibytes - heap}m",
        "spark.kubernetes.container.image": pipeline.image,
        "spark.kubernetes.container.image.pullPolicy": pipeline.image_pull_policy,
        f"spark.kubernetes.executor.label.{names.PIPELINE_LABEL}": pipeline.name,
        "spark.kubernetes.executor.request.cores": executors.size.cpu,
        "spark.ui.port": UI_PORT,
    }
    if executors.most > executors.least:
        given |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.initialExecutors": executors.least,
            "spark.dynamicAllocation.maxExecutors": executors.most,
            "spark.dynamicAllocation.minExecutors": executors.least,
        }
    else:
        given["spark.executor.instances"] = executors.least
    if executors.size.cpu_limit is not None:
        given["spark.kubernetes.executor.limit.cores"] = executors.size.cpu_limit
    if pipeline.additions.py_files:
        given["spark.submit.pyFiles"] = ",".join(pipeline.additions.py_files)
    if pipeline.image_pull_secrets:
        given["spark.kubernetes.container.image.pullSecrets"] = ",".join(pipeline.image_pull_secrets)
    return given


def driver_template(pipeline: Pipeline, name_server_address: str) -> Manifest:
    """Return the part of the driver pod's spec that is the same for a driver pod and for a SparkApplication."""
    container: Manifest = {
        "name": "driver",
        # $(NAME) in values and arguments refers to earlier variables.
        "env": [
            *_environment(pipeline),
            {"name": "RAPTORMQ_NAME_SERVER", "value": name_server_address},
            {"name": "RAPTORMQ_TOPICS", "value": ",".join(pipeline.topics)},
            *([{"name": "RAPTORMQ_TOPIC_PATTERN", "value": pipeline.topic_pattern}] if pipeline.topic_pattern else ()),
            {"name": "RAPTORMQ_CHECKPOINT", "value": f"{CHECKPOINT_DIRECTORY}/{pipeline.checkpoint.folder}"},
            {"name": "RAPTORMQ_PROGRESS_DEADLINE_S", "value": str(pipeline.restart_policy.progress_deadline_s)},
            *map(dict, pipeline.additions.env),
        ],
        # The server responds as soon as the session exists. The process ends itself if a query or the JVM is dead. If
        # it has no threads left for that, the kubelet kills it.
        "startupProbe": _PROBE | {"periodSeconds": 5, "failureThreshold": START_S // 5},
        "readinessProbe": _PROBE | {"periodSeconds": 5},
        "livenessProbe": _PROBE | {"periodSeconds": 10, "failureThreshold": SILENT_S // 10},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [],
    }
    spec = _pod_spec(pipeline, container) | {"terminationGracePeriodSeconds": GRACE_S}
    _mount_checkpoint(pipeline, spec)
    if pipeline.application.config_map:
        container["volumeMounts"].append({"name": "application", "mountPath": APPLICATION_DIRECTORY, "readOnly": True})
        spec["volumes"].append({"name": "application", "configMap": {"name": pipeline.application.config_map}})
    return spec


def application_arguments(pipeline: Pipeline) -> list[str]:
    """Return the arguments of the driver program: path or URL of the application, then the application's arguments."""
    application = pipeline.application
    place = application.file or application.url or f"{APPLICATION_DIRECTORY}/{application.key}"
    return [place, *pipeline.arguments]


def _driver_spec(pipeline: Pipeline, name_server_address: str) -> Manifest:
    spec = driver_template(pipeline, name_server_address)
    (container,) = spec["containers"]
    submit = " ".join(f"--conf {key}={value}" for key, value in OF_THE_POD.items())
    container |= {
        "image": pipeline.image,
        "imagePullPolicy": pipeline.image_pull_policy,
        "args": ["python3", "-m", "pyspark_raptormq.pipeline_driver", *application_arguments(pipeline)],
        "env": [
            *(_from_field(*each) for each in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP"))),
            *container["env"],
            {"name": "SPARK_CONF_DIR", "value": CONF_DIRECTORY},
            {"name": "PYSPARK_SUBMIT_ARGS", "value": f"{submit} pyspark-shell"},
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in PORTS.items()],
        "resources": _resources(pipeline.driver),
    }
    container["volumeMounts"].append({"name": "spark", "mountPath": CONF_DIRECTORY, "readOnly": True})
    spec["volumes"].append({"name": "spark", "configMap": {"name": names.spark_config(pipeline.name)}})
    return spec | {"serviceAccountName": pipeline.service_account_name, "restartPolicy": "Never"}


def executor_template(pipeline: Pipeline) -> Manifest:
    """Return the template of executor pods."""
    env = [*_environment(pipeline), *map(dict, pipeline.additions.env)]
    container: Manifest = {"name": "executor", "env": env, "volumeMounts": []}
    spec = _pod_spec(pipeline, container) | {"automountServiceAccountToken": False}
    if not pipeline.owns_service_account:
        spec["serviceAccountName"] = pipeline.service_account_name
    if pipeline.stateful:
        _mount_checkpoint(pipeline, spec)
    if pipeline.executors.on_driver_node:
        spec["affinity"] = beside(pipeline.scheduling.affinity, names.driver_labels(pipeline.name))
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def _pod_spec(pipeline: Pipeline, container: Manifest) -> Manifest:
    """Return the common pod spec of driver and executors: security context, volumes, TLS and scheduling."""
    container["securityContext"] = CONTAINER_SECURITY
    volumes: list[Manifest] = []
    for name, path in (("tmp", "/tmp"), ("work", "/opt/work")):
        container["volumeMounts"].append({"name": name, "mountPath": path})
        volumes.append({"name": name, "emptyDir": {}})
    if pipeline.tls_secret:
        container["volumeMounts"].append({"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": pipeline.tls_secret, "defaultMode": 0o440}})
    container["volumeMounts"] += map(dict, pipeline.additions.volume_mounts)
    volumes += map(dict, pipeline.additions.volumes)
    spec: Manifest = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if pipeline.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pipeline.image_pull_secrets]
    return spec | scheduling_fields(pipeline.scheduling)


def _mount_checkpoint(pipeline: Pipeline, spec: Manifest) -> None:
    (container,) = spec["containers"]
    container["volumeMounts"].append({"name": "checkpoint", "mountPath": CHECKPOINT_DIRECTORY})
    claim = {"claimName": pipeline.checkpoint.claim}
    spec["volumes"].append({"name": "checkpoint", "persistentVolumeClaim": claim})


def _environment(pipeline: Pipeline) -> list[Manifest]:
    """Return the environment variables with credentials and TLS settings of the data source."""
    found: list[Manifest] = []
    if pipeline.credentials_secret:
        for name, key in (("RAPTORMQ_ACCESS_KEY", "accessKey"), ("RAPTORMQ_SECRET_KEY", "secretKey")):
            reference = {"name": pipeline.credentials_secret, "key": key}
            found.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    if pipeline.tls_secret:
        found.append({"name": "RAPTORMQ_TLS_CA", "value": f"{TLS_DIRECTORY}/ca.crt"})
    return found


def _from_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _resources(size: PodSize) -> Manifest:
    limits = {"memory": size.memory} | ({} if size.cpu_limit is None else {"cpu": size.cpu_limit})
    return {"requests": {"cpu": size.cpu, "memory": size.memory}, "limits": limits}


def metadata(pipeline: Pipeline, name: str) -> Manifest:
    """Return the metadata of an object of the pipeline."""
    return {
        "name": name,
        "namespace": pipeline.namespace,
        "labels": names.pipeline_labels(pipeline.name),
        "ownerReferences": [owner_reference("SparkPipeline", pipeline.name, pipeline.uid)],
    }


def _service_account(pipeline: Pipeline) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(pipeline, names.driver(pipeline.name))}


def _role(pipeline: Pipeline) -> Manifest:
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    resources = ["configmaps", "persistentvolumeclaims", "pods", "services"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(pipeline, names.driver(pipeline.name)),
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}],
    }


def _binding(pipeline: Pipeline) -> Manifest:
    name = names.driver(pipeline.name)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(pipeline, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": pipeline.service_account_name, "namespace": pipeline.namespace}
        ],
    }


def _service(pipeline: Pipeline) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(pipeline, names.driver(pipeline.name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.driver_labels(pipeline.name),
            "ports": [
                {"name": name, "port": port, "protocol": "TCP", "targetPort": port}
                for name, port in (("progress", PROGRESS_PORT), ("ui", UI_PORT))
            ],
        },
    }


def _claim(pipeline: Pipeline) -> Manifest:
    checkpoint = pipeline.checkpoint
    described = metadata(pipeline, checkpoint.claim)
    if checkpoint.when_deleted == "Retain":
        del described["ownerReferences"]
    spec: Manifest = {"accessModes": [checkpoint.access_mode], "resources": {"requests": {"storage": checkpoint.size}}}
    if checkpoint.storage_class_name is not None:
        spec["storageClassName"] = checkpoint.storage_class_name
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": described, "spec": spec}


def _escaped(value: str) -> str:
    """Return `value` escaped for a Java properties file."""
    return value.replace("\\", "\\\\")
