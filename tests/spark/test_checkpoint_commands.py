"""`raptormq spark offsets`: contents of checkpoints, their comparison, and the start of a query from a rewritten
checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from pyspark_raptormq.checkpoint import Checkpoint
from pyspark_raptormq.commands import spark as command
from pyspark_raptormq.errors import CheckpointError
from raptormq.protocol.message import MessageQueue
from tests.spark.memory_broker import MemoryBroker
from tests.spark.test_streaming_query import Sink, run

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def call(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["offsets", *map(str, arguments)])


def done(*arguments: object) -> Any:
    result = call(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def reason(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code != 0
    return str(result.exception if result.exit_code == 1 else result.output)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Write three batches of a query with a source of RaptorMQ and another source. The last batch is committed."""
    folder = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number in range(3):
        ours = {"v": 2, "i": {"t": {"a": "id-t"}, "u": {"a": "id-u"}}}
        ours["q"] = {"t": {"a": {"0": 10 * number, "1": 5}}, "u": {"a": {"0": number}}}
        lines = ["v1", METADATA, '{"logOffset":7}', json.dumps(ours), "-"]
        (folder / "offsets" / str(number)).write_text("\n".join(lines), encoding="utf-8")
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
        (folder / "commits" / str(number)).write_text("v1\n{}", encoding="utf-8")
    return folder


def test_offsets_are_shown(checkpoint: Path) -> None:
    shown = call("show", checkpoint)
    assert "batch 2, committed" in shown.output
    assert [line.split() for line in shown.output.splitlines() if " a " in line] == [
        ["1", "t", "a", "0", "20"],
        ["1", "t", "a", "1", "5"],
        ["1", "u", "a", "0", "2"],
    ]
    (checkpoint / "commits" / "2").unlink()
    assert "batch 2, not committed" in call("show", checkpoint).output
    first = done("show", checkpoint, "--batch", 0)
    assert (first["batch"], first["committed"]) == (0, True)
    assert first["sources"]["1"]["q"]["t"]["a"] == {"0": 0, "1": 5}
    assert "has no batch 9; it has 0 to 2" in reason("show", checkpoint, "--batch", 9)


def test_offsets_are_compared(checkpoint: Path, tmp_path: Path) -> None:
    moved = done("diff", checkpoint)
    assert [(row["topic"], row["queue"], row["before"], row["after"], row["difference"]) for row in moved] == [
        ("t", 0, 10, 20, 10),
        ("u", 0, 1, 2, 1),
    ]
    assert "no difference from" in call("diff", checkpoint, checkpoint).output
    with MemoryBroker() as broker:
        broker.create("t", 2)
        broker.create("u", 1)
        for _ in range(30):
            broker.send("t", 0, b"x")
        document = {"v": 1, "q": {"t": {"broker-a": {"0": 20, "1": 0}}}}
        path = checkpoint / "offsets" / "2"
        path.write_text("\n".join(["v1", METADATA, json.dumps(document)]), encoding="utf-8")
        behind = done("diff", checkpoint, "-n", broker.address)
    assert [(row["queue"], row["offset"], row["end"], row["lag"], row["lost"]) for row in behind] == [
        (0, 20, 30, 10, 0),
        (1, 0, 0, 0, 0),
    ]


def test_offsets_are_rewritten_and_the_old_ones_kept(checkpoint: Path) -> None:
    before = (checkpoint / "offsets" / "2").read_text(encoding="utf-8")
    assert call("rewrite", checkpoint, "--source", 1, "--to", '{"t": {"a": {"0": 3}}}', "--yes").exit_code == 0
    log = Checkpoint(checkpoint)
    lines = (checkpoint / "offsets" / "2").read_text(encoding="utf-8").split("\n")
    assert lines[:3] == before.split("\n")[:3]
    assert lines[4] == "-"
    offset = log.read().offsets()[1]
    assert offset.queues[MessageQueue("t", "a", 0)] == 3
    assert offset.queues[MessageQueue("t", "a", 1)] == 5
    assert offset.topic_ids == {("u", "a"): "id-u"}  # the offsets of t may belong to another topic with this name
    assert not (checkpoint / "offsets" / ".2.crc").exists()
    assert (checkpoint / "offsets-before-rewrite" / "2").read_text(encoding="utf-8") == before
    with_id = '{"v": 2, "i": {"t": {"a": "new"}}, "q": {"t": {"a": {"0": 4}}}}'
    assert call("rewrite", checkpoint, "--source", 1, "--to", with_id, "--yes").exit_code == 0
    assert log.read().offsets()[1].topic_ids == {("t", "a"): "new", ("u", "a"): "id-u"}
    assert (checkpoint / "offsets-before-rewrite" / "2").read_text(encoding="utf-8") == before


def test_mistakes_are_named(checkpoint: Path, tmp_path: Path) -> None:
    assert "is not a checkpoint of a streaming query" in reason("show", tmp_path)
    assert "give name servers with -n" in reason("rewrite", checkpoint, "--source", 1, "--to", "latest")
    assert "not JSON" in reason("rewrite", checkpoint, "--source", 1, "--to", "{")
    assert "source 0 of" in reason("rewrite", checkpoint, "--to", '{"t": {"a": {"0": 3}}}')
    (checkpoint / "commits" / "2").unlink()
    to = '{"t": {"a": {"0": 3}}}'
    assert "batch 2 is not committed, so Spark will repeat it" in reason(
        "rewrite", checkpoint, "--source", 1, "--to", to
    )
    (checkpoint / "offsets" / "2").write_text("v2\n{}\n-", encoding="utf-8")
    assert "has version 'v2' of the offset log, not v1" in reason("show", checkpoint)
    (checkpoint / "offsets" / "2").write_bytes(b"\xff")
    assert "is not a file of an offset log" in reason("show", checkpoint)
    (checkpoint / "offsets" / "2").write_text(f"v1\n{METADATA}\n-", encoding="utf-8")
    assert "batch 2 has no offsets of RaptorMQ" in reason("show", checkpoint)


@pytest.mark.parametrize(
    ("offsets", "with_brokers", "expected"),
    [
        ({"x": {"a": {"0": 3}}}, False, "the checkpoint has no offsets of topic x; it has those of t, u"),
        (
            {"t": {"a": {"9": 3}}},
            False,
            "the checkpoint has no offset of t@a:9; if the queue is new, give name servers",
        ),
        ({"x": {"broker-a": {"0": 3}}}, True, "the checkpoint has no offsets of topic x; it has those of t, u"),
        ({"t": {"broker-a": {"9": 3}}}, True, "the JSON text names t@broker-a:9; broker-a has 3 queues of t"),
        ({"t": {"broker-a": {"0": 31}}}, True, "t@broker-a:0 has the offsets 10 to 30, not 31"),
        ({"t": {"broker-a": {"0": 9}}}, True, "t@broker-a:0 has the offsets 10 to 30, not 9"),
        ({"u": {"broker-a": {"0": 0}}}, True, "topic u does not exist"),
    ],
)
def test_rewrite_to_offsets_that_are_not_there_is_refused(
    checkpoint: Path, offsets: dict[str, object], with_brokers: bool, expected: str
) -> None:
    before = (checkpoint / "offsets" / "2").read_text(encoding="utf-8")
    with MemoryBroker() as broker:
        broker.create("t", 3, first=10)
        for _ in range(20):
            broker.send("t", 0, b"x")
        where = ["-n", broker.address] if with_brokers else []
        command_line = ["rewrite", checkpoint, "--source", 1, "--yes", "--to", json.dumps(offsets), *where]
        assert expected in " ".join(reason(*command_line).replace("\u2502", "").split())
    assert (checkpoint / "offsets" / "2").read_text(encoding="utf-8") == before


def test_rewrite_with_brokers_takes_offsets_from_first_to_end_and_new_queues(checkpoint: Path) -> None:
    with MemoryBroker() as broker:
        broker.create("t", 3, first=10)
        for _ in range(20):
            broker.send("t", 0, b"x")
        for queue, offset in (("0", 10), ("0", 30), ("2", 10)):
            to = json.dumps({"t": {"broker-a": {queue: offset}}})
            result = call("rewrite", checkpoint, "--source", 1, "--yes", "--to", to, "-n", broker.address)
            assert result.exit_code == 0, result.output
            assert (
                Checkpoint(checkpoint).read().offsets()[1].queues[MessageQueue("t", "broker-a", int(queue))] == offset
            )


def test_a_query_that_runs_is_noticed(checkpoint: Path) -> None:
    log = Checkpoint(checkpoint)
    logged = log.read()
    path = checkpoint / "offsets" / "3"
    path.write_text((checkpoint / "offsets" / "2").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="changed meanwhile: stop the query first"):
        log.rewrite(logged, logged.sources)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_goes_on_from_rewritten_offsets(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with MemoryBroker() as broker:
        broker.create("t", 2)
        for number in range(20):
            broker.send("t", number % 2, b"x", f"KEYS\x01k{number}\x02")
        run(spark, broker.address, "t", folder, Sink(), maxOffsetsPerTrigger="12")
        assert call("rewrite", folder, "--to", '{"t": {"broker-a": {"0": 7}}}', "--yes").exit_code == 0
        again = Sink()
        run(spark, broker.address, "t", folder, again)
        assert again.keys == Counter(("k14", "k16", "k18"))
        assert call("rewrite", folder, "--to", "earliest", "-n", broker.address, "--yes").exit_code == 0
        everything = Sink()
        run(spark, broker.address, "t", folder, everything)
    assert everything.keys == Counter(f"k{number}" for number in range(20))
