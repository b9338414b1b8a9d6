"""Cost of a million pending timer messages, and their recovery after a restart.

The delivery times are spread over the range of `timerMaxDelaySec`; none is due before the end of the run. The metric
`timers_waiting` has the number of messages in the timer index, which every start rebuilds.
"""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from pathlib import Path

from rich.progress import track

from bench.figure import Figure
from bench.output import errors
from bench.process_usage import memory
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, decode, encode
from raptormq.protocol.frame import FrameDecoder
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import ProcessError

MEMORY_GOAL_MB = 200
_AT_ONCE = 500
_FIRST_HOUR, _LAST_HOUR = 1, 70
_STEP = 7_919
"""Step of the delivery times, a prime number, so that they are not in order."""
_SEGMENT_BYTES = 128 << 20
_LONGEST_S = 60.0
_POLL_S = 0.2


def timers(folder: Path, count: int) -> list[Figure]:
    """Store `count` timer messages, then restart the broker."""
    settings = {"mappedFileSizeCommitLog": str(_SEGMENT_BYTES)}  # the disk needs little more space than the messages
    with RaptorMQDev(folder / "timers", settings=settings) as server:
        empty = _resident(server)
        _send(server.broker_port, count)
        stored = _known(server, count)
        resident = _resident(server)
        server.restart()
        kept = _known(server, count)
        again = _resident(server)
    errors.print(f"resident memory before the first message: {empty / 1e6:.0f} MB")
    what = f"{count:,} pending timer messages"
    return [
        Figure(f"{what}, known", stored, "", count, at_least=True),
        Figure(f"{what}, resident memory", resident / 1e6, "MB", MEMORY_GOAL_MB),
        Figure(f"{what}, known after a restart", kept, "", count, at_least=True),
        Figure(f"{what}, resident memory after a restart", again / 1e6, "MB", MEMORY_GOAL_MB),
    ]


def _send(port: int, count: int) -> None:
    """Send encoded frames and count the responses. A client would use most of the CPU and is not measured here."""
    begin = time.time_ns() // 1_000_000 + _FIRST_HOUR * 3_600_000
    span = (_LAST_HOUR - _FIRST_HOUR) * 3_600_000
    with (
        socket.create_connection(("127.0.0.1", port), timeout=_LONGEST_S) as peer,
        peer.makefile("rb") as answers,
    ):
        for start in track(range(0, count, _AT_ONCE), description="storing timers", console=errors):
            numbers = range(start, min(start + _AT_ONCE, count))
            peer.sendall(b"".join(_frame(number, begin + number * _STEP * 1_000 % span) for number in numbers))
            for _ in numbers:
                length = answers.read(4)
                (frame,) = FrameDecoder().feed(length + answers.read(int.from_bytes(length, "big")))
                if (answer := decode(frame)).code:
                    raise ProcessError(f"a timer message was refused: {answer.remark}")


def _frame(number: int, due_ms: int) -> bytes:
    properties = f"UNIQ_KEY\x017F0000010A2B18B4AAC2{number:012X}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    values = ("timers", "timers", "TBW102", 4, 0, 0, 1_700_000_000_000, 0, properties, 0, "false")
    fields = {name: str(value) for name, value in zip("abcdefghijk", values, strict=True)}
    return encode(RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"due", opaque=number))


def _known(server: RaptorMQDev, count: int) -> int:
    """Wait up to a minute until ``count`` timers are indexed. Return the number of indexed timers."""
    deadline = time.monotonic() + _LONGEST_S
    while (known := _waiting(server)) < count and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return known


def _waiting(server: RaptorMQDev) -> int:
    with urllib.request.urlopen(server.metrics_address, timeout=_LONGEST_S) as page:
        found = re.search(r"^raptormq_broker_timers_waiting\{.*\} (\S+)$", page.read().decode(), re.MULTILINE)
    if found is None:
        raise ProcessError("the broker does not say how many timers wait")
    return int(float(found[1]))


def _resident(server: RaptorMQDev) -> int:
    assert server.broker is not None
    return memory(server.broker.pid).resident
