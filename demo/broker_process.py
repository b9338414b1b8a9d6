"""Runs `raptormq dev` as a separate process on free ports with a temporary folder, and stops it with SIGTERM."""

from __future__ import annotations

import contextlib
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
    log_path = folder / "raptormq.log"
    command = [str(Path(sys.executable).with_name("raptormq")), "dev", "--host", "127.0.0.1"]
    command += ["--data-dir", str(folder / "store")]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"]
    if settings:
        config = folder / "broker.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        command += ["-c", str(config)]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield _wait_until_ready(process, log_path)
        finally:
            _stop(process)


def _wait_until_ready(process: subprocess.Popen[str], log_path: Path) -> str:
    """Wait for the line "ready", and return the name server's address in it."""
    # If the process hangs before, the timer kills it, which ends the loop over its output.
    watchdog = threading.Timer(READY_WITHIN_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        ready = next((line for line in process.stdout if line.startswith("ready ")), "")
    finally:
        watchdog.cancel()
    if not ready:
        raise BrokerFailed(f"raptormq dev did not get ready:\n{log_path.read_text(errors='replace')[-2000:]}")
    return dict(part.split("=", 1) for part in ready.split()[1:])["namesrv"]


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
