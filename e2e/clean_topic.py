"""A SparkPipeline copies one topic of a Dledger group to another, exactly once, while its driver and the leader are
deleted.

The pipeline is the example spark-clean-topic.yaml. It starts at the messages of a given time, and more records are sent
while it runs. The cleaned topic must have each message of the raw topic since that time equally often, including the
copies of repeated sends.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from e2e import command_line, dledger
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.pipelines import END_TIMEOUT_S, RunningPipeline, compare
from e2e.progress import say
from e2e.records import Record

NAME = "clean-topic"
RAW, CLEANED = "flights", "cleaned"
FIELDS = ("date", "origin", "destination", "delay", "distance")
"""Fields of a cleaned record. A raw record also has its number."""
LIVE = 500
"""Number of records that are sent together while the pipeline runs."""

Row = tuple[str, str, str]
"""Keys, tag and values of a cleaned message."""


def is_exact(kubernetes: Kubernetes, image: str, sent: list[Record]) -> None:
    """Clean the second half of the records of `dledger.loses_nothing`, and records that are sent meanwhile."""
    dledger.make_topic(kubernetes, CLEANED, readQueues=4, writeQueues=4)
    since = _middle(command_line.consume(kubernetes, dledger.NAME, RAW))
    pipeline = RunningPipeline(kubernetes, NAME)
    names = {"name: demo": f"name: {dledger.NAME}", "2026-01-01T00:00:00Z": since}
    pipeline.start("spark-clean-topic.yaml", image, names)
    pipeline.wait_for_batch(0, executors=2)
    backfilled = len(command_line.consume(kubernetes, dledger.NAME, CLEANED))
    say(f"{backfilled} messages since {since} are cleaned")
    first = pipeline.driver_uid()
    _send(kubernetes, sent[:LIVE])
    kubernetes.kubectl("delete", "pod", pipeline.driver, "-n", NAMESPACE, timeout=90)
    _send(kubernetes, sent[LIVE : 2 * LIVE])
    kubernetes.wait_until("another driver", lambda: pipeline.driver_uid() not in ("", first), END_TIMEOUT_S)
    pipeline.wait_for_batch(1, executors=2)
    _send(kubernetes, sent[2 * LIVE : 3 * LIVE])
    dledger.take_leader(kubernetes, with_volume=False)
    _send(kubernetes, sent[3 * LIVE : 4 * LIVE])
    wanted = raw_rows(command_line.consume(kubernetes, dledger.NAME, RAW, since))
    if wanted.total() < backfilled + 4 * LIVE:
        raise Failed(f"{wanted.total()} raw messages since {since}, expected at least {backfilled} and {4 * LIVE}")
    found: Counter[Row] = Counter()

    def has_all() -> bool:
        if not pipeline.has_read_everything():
            return False
        found.clear()
        found.update(cleaned_rows(command_line.consume(kubernetes, dledger.NAME, CLEANED)))
        return found.total() >= wanted.total()

    kubernetes.wait_until("every message is cleaned", has_all, END_TIMEOUT_S)
    compare("cleaned messages", found, wanted)
    say(f"{found.total()} messages are cleaned, each once")
    pipeline.goes()


def raw_rows(messages: Iterable[dict[str, Any]]) -> Counter[Row]:
    """Return the rows into which the pipeline must convert raw messages."""
    found: Counter[Row] = Counter()
    for message in messages:
        record = json.loads(message["body"])
        found[str(message["keys"]), record["origin"], json.dumps([record[name] for name in FIELDS])] += 1
    return found


def cleaned_rows(messages: Iterable[dict[str, Any]]) -> Counter[Row]:
    """Return the rows of cleaned messages."""
    found: Counter[Row] = Counter()
    for message in messages:
        record = json.loads(message["body"])
        values = json.dumps(list(record.values())) if tuple(record) == FIELDS else message["body"]
        found[str(message["keys"]), message["tag"], values] += 1
    return found


def _middle(messages: list[dict[str, Any]]) -> str:
    """Return the second in which the median message was stored."""
    times = sorted(message["store_timestamp"] for message in messages)
    return datetime.fromtimestamp(times[len(times) // 2] // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _send(kubernetes: Kubernetes, records: list[Record]) -> None:
    command_line.produce(kubernetes, dledger.NAME, RAW, {f"live-{n}": record for n, record in enumerate(records)})
