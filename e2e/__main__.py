"""Command `python -m e2e`: one run on a new cluster, which is deleted at the end.

    --keep     keep the cluster after a failure, and print how to access it
    --no-spark run only the tests of brokers and operator

`python -m e2e spark-pipelines` runs only SparkPipelines: those of the whole run, and the join of two topics.
`python -m e2e members` changes the number of members of a Dledger group, and `python -m e2e claims` creates clusters on
volume claims of earlier ones. Both are not part of the whole run.
`python -m e2e operator-scale` measures the operator with many resources instead (`operator_scale`), without kind.

After a failure, logs, events and objects are saved to a folder whose name is in the last line of the output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType

from e2e import (
    access_control,
    brokers,
    chart_upgrade,
    clean_topic,
    dledger,
    drain,
    evidence,
    guides,
    isolation,
    local_disks,
    master_slave,
    members,
    operator_duties,
    operator_scale,
    peer_security,
    records,
    reused_claims,
    route_delays,
    weather_join,
)
from e2e import spark as spark_jobs
from e2e.images import build
from e2e.kubernetes import Kubernetes
from e2e.progress import say, step
from raptormq.errors import RaptorMQError


def main() -> int:
    """Run all tests. Return the exit code."""
    if sys.argv[1:2] == ["operator-scale"]:
        return operator_scale.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m e2e", description="the whole way on a Kubernetes made by kind")
    parser.add_argument(
        "scenario",
        nargs="?",
        choices=["everything", "claims", "members", "security", "spark-pipelines"],
        default="everything",
    )
    parser.add_argument("--keep", action="store_true", help="keep the cluster after a failure")
    parser.add_argument("--no-spark", action="store_true", help="only the brokers' part")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    folder = Path(tempfile.mkdtemp(prefix="raptormq-e2e-"))
    kubernetes = Kubernetes(f"raptormq-e2e-{os.getpid()}", folder)
    keep_folder = keep_cluster = False
    try:
        if options.scenario == "spark-pipelines":
            run_pipelines(kubernetes)
        elif options.scenario == "claims":
            claims_of_earlier_clusters(kubernetes)
        elif options.scenario == "members":
            members_of_a_group(kubernetes)
        elif options.scenario == "security":
            security_of_a_group(kubernetes)
        else:
            run(kubernetes, spark=not options.no_spark)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - also a bug of ours leaves evidence
        say(f"FAILED: {str(error) or type(error).__name__}")
        if not isinstance(error, RaptorMQError | KeyboardInterrupt | SystemExit):
            traceback.print_exc()
        evidence.save(kubernetes, folder / "evidence", error)
        say(f"logs, events and objects are in {folder / 'evidence'}")
        keep_folder, keep_cluster = True, options.keep
        return 1
    finally:
        if keep_cluster:
            say(
                f"the cluster is kept: KUBECONFIG={kubernetes.kubeconfig}, kind delete cluster --name {kubernetes.name}"
            )
        else:
            _delete(kubernetes)
        if not keep_folder:
            shutil.rmtree(folder)
    say("everything is exactly as it has to be")
    return 0


def run(kubernetes: Kubernetes, *, spark: bool) -> None:
    """Run all steps in order; the first failure ends the run."""
    sent = read_records()
    image = build_broker_image()
    spark_image = build_spark_image() if spark else ""
    with step("build the image of the Java client"):
        java_image = build("e2e/java_client/build.sh", "raptormq-java-client:e2e", os.environ.get("JAVA_BASE_IMAGE"))
    with step("create a cluster with kind"):
        kubernetes.create()
    with step("load the broker image"):
        kubernetes.load(image)
    brokers.install(kubernetes, image)
    with step("a setting of the operator is refused with a reason"):
        operator_duties.refuses_settings_of_its_own(kubernetes)
    with step("a condition reports missing objects of pods"):
        operator_duties.says_what_pods_lack(kubernetes)
    with step("a topic of queueType BatchCQ becomes ready"):
        operator_duties.makes_batch_topics(kubernetes)
    with step("an unresponsive broker affects only its own cluster"):
        isolation.silent_broker(kubernetes)
    with step("foreign ConfigMaps do not affect the operator"):
        isolation.foreign_objects(kubernetes)
    with step("a drain of the node evicts one broker"):
        drain.takes_one_broker(kubernetes)
    with step("load the image of the Java client"):
        kubernetes.load(java_image)
    with step("access control is turned on and off while Java clients are connected"):
        access_control.turns_on_and_off(kubernetes, java_image)
    with step("brokers on local disks find their messages again"):
        local_disks.serve(kubernetes)
    with step("send every record while a broker is deleted"):
        brokers.send(kubernetes, image, sent)
    if spark:
        count_with_spark(kubernetes, spark_image, records.figures(sent))
        demo_pipeline(kubernetes, spark_image, sent)
    dledger_group(kubernetes, image, java_image, spark_image, sent)
    master_and_slave(kubernetes, image, sent)
    with step("a condition reports the last log line of a failing pod"):
        operator_duties.says_why_a_pod_fails(kubernetes)
    with step("an unavailable image stops no broker"):
        operator_duties.leaves_the_brokers_alone(kubernetes)
    with step("a new image and configuration reach all brokers, one after the other"):
        operator_duties.rolls_a_change(kubernetes, image)
    with step("the commands of the guides succeed"):
        guides.commands_succeed(kubernetes)
    with step("deletions complete and keep the volume claims"):
        operator_duties.deletes_what_it_may(kubernetes)
    with step("a namespace is deleted with all its objects"):
        operator_duties.lets_a_namespace_go(kubernetes)
    with step("after helm uninstall nothing is ready, and no finalizer blocks a namespace"):
        operator_duties.leaves_resources_without_an_operator(kubernetes)


def run_pipelines(kubernetes: Kubernetes) -> None:
    """Run the steps of SparkPipelines and their prerequisites."""
    sent = read_records()
    image, spark_image = build_broker_image(), build_spark_image()
    with step("create a cluster with kind"):
        kubernetes.create()
    with step("load the images"):
        kubernetes.load(image)
        kubernetes.load(spark_image)
    brokers.install(kubernetes, image)
    with step("send every record while a broker is deleted"):
        brokers.send(kubernetes, image, sent)
    demo_pipeline(kubernetes, spark_image, sent)
    with step("a SparkPipeline joins two topics"):
        weather_join.is_exact(kubernetes, spark_image, sent, records.weather())
    with step("a Dledger group of three members becomes ready"):
        dledger.becomes_ready(kubernetes)
    with step("send every record while the leader's pod is deleted twice, and once with its volume"):
        dledger.loses_nothing(kubernetes, image, sent)
    ledger_pipeline(kubernetes, spark_image, sent)


def read_records() -> list[records.Record]:
    """Return the records that are sent."""
    sent = records.read()
    say(f"{len(sent)} records of {len(records.figures(sent))} origins")
    return sent


def build_broker_image() -> str:
    """Return the reference of the broker image on the nodes."""
    with step("build the broker image"):
        return build("broker_image/build.sh", "raptormq:e2e", os.environ.get("PYTHON_BASE_IMAGE"))


def build_spark_image() -> str:
    """Return the reference of the image of drivers and executors on the nodes."""
    with step("build the Spark image"):
        return build("spark/image/build.sh", "raptormq-spark:e2e", os.environ.get("JAVA_BASE_IMAGE"))


def claims_of_earlier_clusters(kubernetes: Kubernetes) -> None:
    """Test clusters that are created on volume claims of earlier clusters."""
    image = build_broker_image()
    with step("create a cluster with kind, with the image and the chart"):
        kubernetes.create()
        kubernetes.load(image)
        brokers.make_namespace(kubernetes)
        chart_upgrade.install(kubernetes, image)
    with step("claims of a cluster with another mode are used only after a decision"):
        reused_claims.need_a_decision(kubernetes)


def members_of_a_group(kubernetes: Kubernetes) -> None:
    """Test a Dledger group that grows and shrinks."""
    java_image = group_under_java_clients(kubernetes, from_one_copy=True)
    with step("three members become five, and three again, while Java clients are connected"):
        members.change_under_clients(kubernetes, java_image)


def security_of_a_group(kubernetes: Kubernetes) -> None:
    """Test a Dledger group, and a master with its slave, whose access control and TLS change."""
    java_image = group_under_java_clients(kubernetes)
    with step("a master and a slave become ready"):
        master_slave.becomes_ready(kubernetes, peer_security.PODS)
    with step("access control and TLS change while Java clients are connected"):
        peer_security.changes_under_clients(kubernetes, java_image)


def group_under_java_clients(kubernetes: Kubernetes, *, from_one_copy: bool = False) -> str:
    """Create a Kubernetes cluster with a Dledger group, which begins as a broker with `from_one_copy`. Return the
    reference of the image of the Java client.
    """
    image = build_broker_image()
    with step("build the image of the Java client"):
        java_image = build("e2e/java_client/build.sh", "raptormq-java-client:e2e", os.environ.get("JAVA_BASE_IMAGE"))
    with step("create a cluster with kind, with the images and the chart"):
        kubernetes.create()
        kubernetes.load(image)
        kubernetes.load(java_image)
        brokers.make_namespace(kubernetes)
        chart_upgrade.install(kubernetes, image)
    with step("a Dledger group of three members becomes ready"):
        dledger.becomes_ready(kubernetes, from_one_copy=from_one_copy)
    return java_image


def dledger_group(
    kubernetes: Kubernetes, image: str, java_image: str, spark_image: str, sent: list[records.Record]
) -> None:
    """Test a Dledger group that loses members while records are sent; without a Spark image, without the pipeline."""
    with step("a Dledger group of three members becomes ready"):
        dledger.becomes_ready(kubernetes)
    with step("Java clients follow the leader through its Service"):
        dledger.java_follows(kubernetes, java_image)
    with step("send every record while the leader's pod is deleted twice, and once with its volume"):
        dledger.loses_nothing(kubernetes, image, sent)
    if spark_image:
        ledger_pipeline(kubernetes, spark_image, sent)
    with step("the group is deleted"):
        dledger.goes(kubernetes)


def demo_pipeline(kubernetes: Kubernetes, spark_image: str, sent: list[records.Record]) -> None:
    """Run the pipeline that reads the records of `brokers.send`."""
    with step("a SparkPipeline counts windows while its executor, a broker and its driver are deleted"):
        route_delays.is_exact(kubernetes, spark_image, sent)


def ledger_pipeline(kubernetes: Kubernetes, spark_image: str, sent: list[records.Record]) -> None:
    """Run the pipeline that reads and writes the Dledger group."""
    with step("a SparkPipeline copies a topic exactly once while its driver and the leader are deleted"):
        clean_topic.is_exact(kubernetes, spark_image, sent)


def master_and_slave(kubernetes: Kubernetes, image: str, sent: list[records.Record]) -> None:
    """Test a master and a slave while records are sent."""
    with step("a master and a slave become ready"):
        master_slave.becomes_ready(kubernetes)
    with step("send records while the master restarts, loses its volume, and its slave is promoted"):
        master_slave.loses_nothing(kubernetes, image, sent)
    with step("the pair is deleted"):
        master_slave.goes(kubernetes)


def count_with_spark(kubernetes: Kubernetes, image: str, expected: dict[str, records.Figures]) -> None:
    """Run the Spark batch job and compare its figures with `expected`."""
    with step("load the Spark image"):
        kubernetes.load(image)
    with step("Spark counts everything once, with two executors"):
        spark_jobs.batch(kubernetes, image, expected)


def _delete(kubernetes: Kubernetes) -> None:
    """Delete the cluster. An error does not change the result of the run."""
    try:
        kubernetes.delete()
    except RaptorMQError as error:
        say(f"the cluster was not deleted: {error}")


def _stop(number: int, _frame: FrameType | None) -> None:
    """Raise an exception on SIGTERM, so that the cluster is deleted."""
    sys.exit(f"stopped by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
