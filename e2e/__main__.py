"""`python -m e2e`: one run from a new cluster to figures that are exactly equal. Leaves no cluster behind.

    --keep     keep the cluster after a failure, and say how to reach it
    --no-spark only the brokers' part

`python -m e2e operator-scale` measures a large operator instead (`operator_scale`), without kind.

On failure the logs, events and objects are saved to a folder that the last line names.
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
    drain,
    evidence,
    isolation,
    local_disks,
    operator_duties,
    operator_scale,
    records,
)
from e2e import spark as spark_jobs
from e2e.images import build
from e2e.kubernetes import Kubernetes
from e2e.progress import say, step
from raptormq.errors import RaptorMQError


def main() -> int:
    """Runs everything; the exit code says whether it was well."""
    if sys.argv[1:2] == ["operator-scale"]:
        return operator_scale.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m e2e", description="the whole way on a Kubernetes made by kind")
    parser.add_argument("--keep", action="store_true", help="keep the cluster after a failure")
    parser.add_argument("--no-spark", action="store_true", help="only the brokers' part")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    folder = Path(tempfile.mkdtemp(prefix="raptormq-e2e-"))
    kubernetes = Kubernetes(f"raptormq-e2e-{os.getpid()}", folder)
    keep_folder = keep_cluster = False
    try:
        run(kubernetes, spark=not options.no_spark)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - also a bug of ours leaves evidence
        say(f"FAILED: {str(error) or type(error).__name__}")
        if not isinstance(error, RaptorMQError | KeyboardInterrupt | SystemExit):
            traceback.print_exc()
        evidence.save(kubernetes, folder / "evidence")
        say(f"logs, events and objects are in {folder / 'evidence'}")
        keep_folder, keep_cluster = True, options.keep
        return 1
    finally:
        if keep_cluster:
            say(
                f"the cluster is kept: KUBECONFIG={kubernetes.kubeconfig}, kind delete cluster --name {kubernetes.name}"
            )
        else:
            kubernetes.delete()
        if not keep_folder:
            shutil.rmtree(folder)
    say("everything is exactly as it has to be")
    return 0


def run(kubernetes: Kubernetes, *, spark: bool) -> None:
    """All steps in order; the first that fails ends the run."""
    sent = records.read()
    say(f"{len(sent)} records of {len(records.figures(sent))} origins")
    with step("build the broker image"):
        image = build("broker_image/build.sh", "raptormq:e2e", os.environ.get("PYTHON_BASE_IMAGE"))
    spark_image = ""
    if spark:
        with step("build the Spark image"):
            spark_image = build("spark/image/build.sh", "raptormq-spark:e2e", os.environ.get("JAVA_BASE_IMAGE"))
    with step("create a cluster with kind"):
        kubernetes.create()
    with step("load the broker image"):
        kubernetes.load(image)
    brokers.install(kubernetes, image)
    with step("what comes later is refused with a reason"):
        operator_duties.refuses_what_comes_later(kubernetes)
    with step("what pods lack is in the condition"):
        operator_duties.says_what_pods_lack(kubernetes)
    with step("a topic of queueType BatchCQ becomes ready"):
        operator_duties.makes_batch_topics(kubernetes)
    with step("a broker that answers nobody costs its own cluster alone"):
        isolation.silent_broker(kubernetes)
    with step("others' ConfigMaps cost the operator nothing"):
        isolation.foreign_objects(kubernetes)
    with step("a drain of the node takes one broker"):
        drain.takes_one_broker(kubernetes)
    with step("access control is turned on and off under a client"):
        access_control.turns_on_and_off(kubernetes, image)
    with step("brokers on disks of their nodes keep their messages there"):
        local_disks.serve(kubernetes)
    with step("send every record while a broker is taken away"):
        brokers.send(kubernetes, image, sent)
    if spark:
        count_with_spark(kubernetes, spark_image, records.figures(sent))
    with step("the last words of a pod that fails are in the condition"):
        operator_duties.says_why_a_pod_fails(kubernetes)
    with step("an image that cannot be had takes no broker away"):
        operator_duties.leaves_the_brokers_alone(kubernetes)
    with step("another image and configuration roll through the brokers"):
        operator_duties.rolls_a_change(kubernetes, image)
    with step("deletion takes what it may and nothing hangs"):
        operator_duties.deletes_what_it_may(kubernetes)
    with step("a namespace goes with everything in it"):
        operator_duties.lets_a_namespace_go(kubernetes)


def count_with_spark(kubernetes: Kubernetes, image: str, expected: dict[str, records.Figures]) -> None:
    """Batch, then stream."""
    with step("load the Spark image"):
        kubernetes.load(image)
    with step("Spark counts everything once, with two executors"):
        spark_jobs.batch(kubernetes, image, expected)
    with step("Spark reads a stream, its driver is taken away in the middle"):
        spark_jobs.stream(kubernetes, image, expected)


def _stop(number: int, _frame: FrameType | None) -> None:
    """The cluster has to go also when the run is told to stop."""
    sys.exit(f"stopped by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
