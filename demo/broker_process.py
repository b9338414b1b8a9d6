"""Runs `raptormq dev` as a separate process on free ports with a temporary folder, and stops it with SIGTERM."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

READY_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0


class BrokerFailed(Exception):
    """The process did not become ready. The message contains the end of its log."""


@contextlib.contextmanager
def running_broker(folder: Path, **settings: str) -> Iterator[str]:
    """Run a name server and a broker with settings of broker.conf in `folder`. Yield the name server's address.

    Raises:
        BrokerFailed: The process ended or was not ready in time.
    """
    namesrv_port, broker_port, metrics_port = _free_ports(3)
    log_path = folder / "raptormq.log"
    command = [str(Path(sys.executable).with_name("raptormq")), "dev", "--host", "127.0.0.1"]
    command += ["--data-dir", str(folder / "store"), "--namesrv-port", str(namesrv_port)]
    command += ["--broker-port", str(broker_port), "--metrics-port", str(metrics_port)]
    if settings:
        config = folder / "broker.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        command += ["-c", str(config)]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            _wait_until_ready(process, log_path)
            yield f"127.0.0.1:{namesrv_port}"
        finally:
            _stop(process)


def _wait_until_ready(process: subprocess.Popen[str], log_path: Path) -> None:
    # The process prints a line "ready". If it hangs before, the timer kills it, which ends the loop over its output.
    watchdog = threading.Timer(READY_WITHIN_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        ready = any(line.startswith("ready") for line in process.stdout)
    finally:
        watchdog.cancel()
    if not ready:
        raise BrokerFailed(f"raptormq dev did not get ready:\n{log_path.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
