"""Makes `tests/golden/`: bytes of Apache RocketMQ 5.3.3, and how its own classes decode them.

    python -m tests.interop.make_golden

A broker and a name server of Apache RocketMQ run behind recording proxies, once with JSON and once with binary headers.
The Java program GoldenSession sends requests to them. The first few recorded frames of each kind are kept
(`Selection`), and the used part of the first broker's store after its stop. Every address in the files is 127.0.0.1,
and every path is relative.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.rocketmq_java import JavaBuild, Release, RocketMQServers, build, java
from tests.interop.rocketmq_java.recording import Frame, RecordingProxy
from tests.ports import free_port, free_port_run

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
PACKAGE = "io.raptormq.interop.golden"
SESSION_S = 240.0
DESCRIBE_S = 60.0
MAX_FRAME_BYTES = 16_384
KEPT_PER_KIND = 1
KEPT_OF_REQUEST = {310: 5, 11: 4, 34: 3, 105: 2, 15: 2, 14: 2}
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "6000",
    "maxIndexNum": "1000",
    "maxHashSlotNum": "1000",
}
CONFIGURATIONS = ("consumerOffset.json", "subscriptionGroup.json", "topics.json", "delayOffset.json")


@dataclass
class Recorder:
    """Collects frames of several proxies in the order in which they were read."""

    frames: list[Frame] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, frame: Frame) -> None:
        with self._lock:
            self.frames.append(frame)


@dataclass
class Selection:
    """Keeps the first frames of each kind: (peer, direction, request code, response code or request)."""

    counts: Counter[tuple[str, bool, int, int, bool]] = field(default_factory=Counter)

    def wants(self, entry: dict[str, Any]) -> bool:
        response = bool(entry["flag"] & 1)
        kind = (entry["peer"], entry["toServer"], entry["requestCode"], entry["code"], response)
        self.counts[kind] += 1
        limit = KEPT_OF_REQUEST.get(entry["requestCode"], KEPT_PER_KIND)
        return self.counts[kind] <= limit and entry["length"] <= MAX_FRAME_BYTES


def main() -> None:
    built = build()
    shutil.rmtree(GOLDEN / "store", ignore_errors=True)
    for old in [*GOLDEN.glob("*.bin"), *GOLDEN.glob("*.json")]:
        old.unlink()
    GOLDEN.mkdir(exist_ok=True)
    for serialize_type, name in (("JSON", "json"), ("ROCKETMQ", "binary")):
        with tempfile.TemporaryDirectory() as scratch:
            make(built, Path(scratch), serialize_type, name)
    total = sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file())
    sys.stderr.write(f"tests/golden holds {total:,} bytes\n")


def make(built: JavaBuild, scratch: Path, serialize_type: str, name: str) -> None:
    """Run one session with `serialize_type` headers. Its frames are in `client-` and `registration-<name>`."""
    client, registration = Recorder(), Recorder()
    namesrv_port, broker_port = _port(), free_port_run(before=2, after=1)
    broker_proxy = RecordingProxy("broker", ("127.0.0.1", broker_port), client.record)
    replace = (f"127.0.0.1:{broker_port}".encode(), f"127.0.0.1:{broker_proxy.port}".encode())
    namesrv_proxy = RecordingProxy("namesrv", ("127.0.0.1", namesrv_port), client.record, replace=replace)
    registration_proxy = RecordingProxy("namesrv", ("127.0.0.1", namesrv_port), registration.record)
    options = [f"-Drocketmq.serialize.type={serialize_type}", "-Djava.net.preferIPv4Stack=true"]
    servers = RocketMQServers(
        built,
        scratch / "servers",
        settings=SETTINGS,
        options=options,
        registration_address=f"127.0.0.1:{registration_proxy.port}",
        namesrv_port=namesrv_port,
        broker_port=broker_port,
    )
    try:
        with servers:
            run_session(built, scratch, options, f"127.0.0.1:{namesrv_proxy.port}")
    finally:
        for proxy in (broker_proxy, namesrv_proxy, registration_proxy):
            proxy.close()
    save_frames(built, scratch, f"client-{name}", client.frames)
    save_frames(built, scratch, f"registration-{name}", registration.frames)
    if serialize_type == "JSON":
        save_store(built, scratch, servers.store)


def _port() -> int:
    """Return a free port of five digits, so that addresses can be replaced by addresses of the same length."""
    return next(port for port in iter(free_port, 0) if port >= 10_000)


def run_session(built: JavaBuild, scratch: Path, options: list[str], name_server: str) -> None:
    session = java(
        f"{PACKAGE}.GoldenSession",
        [name_server],
        class_path=built.client_class_path(Release.REFERENCE),
        log=scratch / "session.log",
        options=[*options, f"-Duser.home={scratch}"],
    )
    session.finish(SESSION_S)


def save_frames(built: JavaBuild, scratch: Path, name: str, frames: list[Frame]) -> None:
    """Describe all frames with the Java classes, and write the selection to `name`.bin and `name`.json."""
    entries: list[dict[str, Any]] = []
    offset = 0
    for frame in frames:
        length = len(frame.data)
        entries.append(
            {
                "peer": frame.peer,
                "connection": frame.connection,
                "toServer": frame.to_server,
                "offset": offset,
                "length": length,
            }
        )
        offset += length
    recorded, index, described = scratch / "all.bin", scratch / "all.json", scratch / "described.json"
    recorded.write_bytes(b"".join(frame.data for frame in frames))
    index.write_text(json.dumps(entries))
    describe(built, scratch, "DescribeFrames", recorded, index, described)
    selection = Selection()
    kept: list[dict[str, Any]] = []
    blob = b""
    for frame, entry in zip(frames, json.loads(described.read_text()), strict=True):
        if selection.wants(entry):
            kept.append({**entry, "offset": len(blob)})
            blob += frame.data
    (GOLDEN / f"{name}.bin").write_bytes(blob)
    write_lines(GOLDEN / f"{name}.json", kept)


def save_store(built: JavaBuild, scratch: Path, store: Path) -> None:
    """Copy the used part of the commit log and of every consume queue, the checkpoint, index files and JSON
    configurations.
    """
    target = GOLDEN / "store"
    target.mkdir()
    log = next((store / "commitlog").iterdir())
    described = scratch / "store.json"
    describe(built, scratch, "DescribeStore", log, described)
    description = json.loads(described.read_text())
    (target / "commitlog.bin").write_bytes(log.read_bytes()[: description["end"]])
    for name in CONFIGURATIONS:
        shutil.copy(store / "config" / name, target / name)
    shutil.copy(store / "checkpoint", target / "checkpoint.bin")
    write_lines(target / "messages.json", description["messages"])
    (target / "queues.json").write_text(json.dumps(save_queues(store / "consumequeue", target), indent=1) + "\n")


def save_queues(queues: Path, target: Path) -> dict[str, int]:
    """Copy all consume queues to one file. Return the start of each as {"topic/queue": byte}, in the order of the
    file.
    """
    places: dict[str, int] = {}
    blob = b""
    for path in sorted(queues.glob("*/*/*")):
        items = path.read_bytes()
        used = next((at for at in range(0, len(items), 20) if items[at + 8 : at + 12] == b"\0\0\0\0"), len(items))
        places[f"{path.parent.parent.name}/{path.parent.name}"] = len(blob)
        blob += items[:used]
    (target / "consumequeue.bin").write_bytes(blob)
    return places


def describe(built: JavaBuild, scratch: Path, program: str, *paths: Path) -> None:
    arguments = [str(path) for path in paths]
    java(
        f"{PACKAGE}.{program}",
        arguments,
        class_path=built.client_class_path(Release.REFERENCE),
        log=scratch / "describe.log",
    ).finish(DESCRIBE_S)


def write_lines(path: Path, entries: list[dict[str, Any]]) -> None:
    """Return a JSON list with one entry per line, so that a difference shows the changed entry."""
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in entries)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
