"""The SparkApplication of a SparkPipeline whose driver Apache's operator runs.

The SparkApplication has the same driver program, checkpoint volume and configuration as the driver pod of `pipeline`,
but runs in cluster mode: Apache's operator creates the driver pod, whose entrypoint calls spark-submit. Apache's
operator restarts the driver after a constant delay. A change of a SparkApplication has no effect on its driver.
Therefore RaptorMQ's operator replaces the SparkApplication when its hash changes.
Source: apache/spark-kubernetes-operator 1.0.0, class ApplicationSpec and docs/spark_custom_resources.md.
"""

from __future__ import annotations

from raptormq_operator.manifests import pipeline as driver
from raptormq_operator.manifests.metadata import Manifest, digest
from raptormq_operator.model import names
from raptormq_operator.model.pipeline import Pipeline

SPARK_VERSION = "4.3.0"
"""Version of Spark in the image."""
PROGRAM = "local:///opt/raptormq/pyspark_raptormq/pipeline_driver.py"
"""The driver program in the image."""
COUNTER_RESET_MS = 600_000
"""Length in ms of a run after which Apache's operator counts restarts from 0 again."""
MOST_RESTARTS = 2**31 - 1
"""Maximum number of restarts. Apache's operator requires a limit; a pipeline has none."""


def spark_application(pipeline: Pipeline, name_server_address: str, application: str = "") -> Manifest:
    """Return the SparkApplication. Its hash covers its spec, and `application`, the text of the file in a ConfigMap."""
    spec = {
        "mainClass": "org.apache.spark.deploy.PythonRunner",
        "pyFiles": PROGRAM,
        "driverArgs": driver.application_arguments(pipeline),
        "runtimeVersions": {"sparkVersion": SPARK_VERSION},
        "sparkConf": _properties(pipeline),
        "applicationTolerations": _tolerations(pipeline),
        "driverSpec": {"podTemplateSpec": _driver_template(pipeline, name_server_address)},
        "executorSpec": {"podTemplateSpec": {"spec": driver.executor_template(pipeline)["spec"]}},
    }
    metadata = driver.metadata(pipeline, pipeline.name)
    annotations = {driver.HASH_ANNOTATION: digest([spec, application])}
    return {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": metadata | {"annotations": annotations},
        "spec": spec,
    }


def _properties(pipeline: Pipeline) -> dict[str, str]:
    size = pipeline.driver
    limit = {} if size.cpu_limit is None else {"spark.kubernetes.driver.limit.cores": size.cpu_limit}
    return (
        driver.properties(pipeline)
        | limit
        | {
            "spark.driver.memoryOverhead": f"{size.mebibytes - size.mebibytes // 2}m",
            "spark.kubernetes.authenticate.driver.serviceAccountName": pipeline.service_account_name,
            "spark.kubernetes.driver.request.cores": size.cpu,
        }
    )


def _tolerations(pipeline: Pipeline) -> Manifest:
    policy = pipeline.restart_policy
    return {
        "applicationTimeoutConfig": {"driverReadyTimeoutMillis": driver.START_S * 1000},
        # Keeps the pod of a failed driver after the last attempt, so that its log can be read.
        "resourceRetainPolicy": "OnFailure",
        "restartConfig": {
            "restartPolicy": policy.type,
            "maxRestartAttempts": MOST_RESTARTS,
            "restartBackoffMillis": policy.backoff_s * 1000,
            "restartCounterResetMillis": COUNTER_RESET_MS,
        },
    }


def _driver_template(pipeline: Pipeline, name_server_address: str) -> Manifest:
    spec = driver.driver_template(pipeline, name_server_address)
    (container,) = spec["containers"]
    container["ports"] = [{"name": "progress", "containerPort": driver.PROGRESS_PORT, "protocol": "TCP"}]
    return {"metadata": {"labels": names.driver_labels(pipeline.name), "annotations": driver.SCRAPED}, "spec": spec}
