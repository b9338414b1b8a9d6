"""The OpenMessaging Benchmark as the load, if `OMB_DIR` names a built checkout or an unpacked distribution.

Its default warm-up is one minute; its shortest measurement is one minute, and it has no limit on the number of
messages. The Java program in this repository measures the same values in less time; this module serves for
comparisons.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench.batch.result import LoadResult
from bench.batch.workload import BODY_BYTES, REQUESTS_UNDER_WAY, TOTAL_BATCH_BYTES, Timing, Workload
from tests.interop.rocketmq_java import ProcessError

VARIABLE = "OMB_DIR"
BEGINS = "Starting benchmark traffic"
ENDS = "Aggregated Pub Latency"
DONE = "Writing test result into"
"""Text in the last line of the benchmark, which may not exit because a thread of its Kafka driver does not end."""
TIMING = Timing(warm_up_seconds=60, seconds=60)
DISK_GB_PER_MINUTE = 30
"""Write rate of the fastest runs in GB per minute."""
_PERIOD_S = 10


def folder() -> Path | None:
    """Return the folder from the environment variable; None if it is not set."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def class_path(installed: Path) -> str:
    """Return the class path of a distribution (`lib`) or of a checkout (from its build); raises ProcessError."""
    if (installed / "lib").is_dir():
        return str(installed / "lib/*")
    built = installed / "benchmark-framework/target"
    if not (built / "classpath.txt").is_file():
        raise ProcessError(f"{VARIABLE} names no built OpenMessaging Benchmark: {built}/classpath.txt is missing")
    return os.pathsep.join([str(built / "classes"), (built / "classpath.txt").read_text().strip()])


def rocketmq_driver(workload: Workload, address: str) -> str:
    """Return the settings of the RocketMQ driver, with the benchmark's values."""
    return _yaml(
        {
            "name": "RocketMQ",
            "driverClass": "io.openmessaging.benchmark.driver.rocketmq.RocketMQBenchmarkDriver",
            "clusterName": "DefaultCluster",
            "namesrvAddr": address,
            "vipChannelEnabled": "false",
            "batchCQ": str(workload.queue_type == "BatchCQ").lower(),
            "autoBatch": str(workload.auto_batch).lower(),
            "batchMaxBytes": workload.batch_bytes,
            "batchMaxDelayMs": workload.delay_ms,
            "totalBatchMaxBytes": TOTAL_BATCH_BYTES,
            "enableBackpressure": "true",
            "backpressureConcurrency": REQUESTS_UNDER_WAY,
        }
    )


def kafka_driver(workload: Workload, address: str) -> str:
    """Return the settings of the Kafka driver: one replica, the given batch settings, otherwise the benchmark's
    values."""
    linger, size = (workload.delay_ms, workload.batch_bytes) if workload.auto_batch else (0, 0)
    return _yaml(
        {
            "name": "Kafka",
            "driverClass": "io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver",
            "replicationFactor": 1,
            "topicConfig": '""',
            "commonConfig": _block([f"bootstrap.servers={address}"]),
            "producerConfig": _block(["acks=all", f"linger.ms={linger}", f"batch.size={size}"]),
            "consumerConfig": _block(
                ["auto.offset.reset=earliest", "enable.auto.commit=false", "max.partition.fetch.bytes=10485760"]
            ),
        }
    )


def workload_file(workload: Workload) -> str:
    """Return a workload file; its durations must be whole minutes."""
    return _yaml(
        {
            "name": workload.name,
            "topics": 1,
            "partitionsPerTopic": workload.queues,
            "messageSize": BODY_BYTES,
            "useRandomizedPayloads": "true",
            "randomBytesRatio": 0.5,
            "randomizedPayloadPoolSize": 1000,
            "subscriptionsPerTopic": min(workload.consumers, 1),
            "consumerPerSubscription": workload.consumers,
            "producersPerTopic": workload.producers,
            "producerRate": workload.rate,
            "consumerBacklogSizeGB": 0,
            "warmupDurationMinutes": workload.timing.warm_up_seconds // 60,
            "testDurationMinutes": workload.timing.seconds // 60,
        }
    )


def read_result(output: Path) -> LoadResult:
    """Return the result file of the benchmark; raises ProcessError if there is none."""
    try:
        found = json.loads(output.read_text())
    except (OSError, ValueError) as error:
        raise ProcessError(f"the OpenMessaging Benchmark has written no result: {error}") from error
    published, received = found["publishRate"], sum(found["consumeRate"]) * _PERIOD_S
    result = LoadResult(
        seconds=len(published) * _PERIOD_S,
        sent=round(sum(published) * _PERIOD_S),
        failed=round(sum(found["publishErrorRate"]) * _PERIOD_S),
        publish_p50_ms=found["aggregatedPublishLatency50pct"],
        publish_p99_ms=found["aggregatedPublishLatency99pct"],
    )
    if not received:
        return result
    return LoadResult(
        **vars(result)
        | {
            "received": round(received),
            "end_to_end_p50_ms": found["aggregatedEndToEndLatency50pct"],
            "end_to_end_p99_ms": found["aggregatedEndToEndLatency99pct"],
            "backlog": found["backlog"][-1],
        }
    )


def _yaml(values: dict[str, object]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in values.items())


def _block(lines: list[str]) -> str:
    return "|\n" + "\n".join(f"  {line}" for line in lines)
