"""A child process that is observed through its output and stopped by its process id; `java` runs a Java class.

Its output is also written to a log file, whose end is part of errors.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

STOP_TIMEOUT_S = 90.0
LOG_TAIL_CHARACTERS = 3000
CONNECT_PATIENCE = "-Dcom.rocketmq.remoting.client.connect.timeout=30000"
"""Connect timeout of RocketMQ clients in ms, 3,000 by default. On a busy machine their threads may need longer."""


class ProcessError(Exception):
    """The process ended early, failed, or did not print the expected text in time."""


class WatchedProcess:
    """A running process whose output and standard error are copied to `log` by threads.

    Each has its own pipe, because in a common pipe a warning may interrupt a long line.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """`name` is for errors; `environment` and working `folder` replace the inherited ones.

        `on_line` is called with each line, on the thread that reads it.
        """
        self.name = name
        self.log = log
        self._on_line = on_line
        self._wanted: str | None = None
        self._seen = threading.Event()
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=dict(environment) if environment is not None else None,
            cwd=folder,
        )
        streams = (self.process.stdout, self.process.stderr)
        self._streams = [stream for stream in streams if stream is not None]
        self._open = len(self._streams)
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), name=f"output of {self.name}", daemon=True)
            for stream in self._streams
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, text: str, timeout: float) -> str:
        """Wait for the first line of output that contains `text`, and return it.

        Raises ProcessError after `timeout` seconds, or if the process ends before.
        """
        with self._lock:
            self._wanted = text
            if not self._open or any(text in line for line in self._lines):
                self._seen.set()
            else:
                self._seen.clear()
        self._seen.wait(timeout)
        for line in self.lines():
            if text in line:
                return line
        code = self.process.poll()
        happened = "is silent" if code is None else f"ended with exit code {code}"
        raise ProcessError(f"{self.name} {happened} and did not print {text!r}:\n{self.tail()}")

    def finish(self, timeout: float) -> list[str]:
        """Wait for the end of the process and return its lines; raises ProcessError if it takes too long or fails."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"{self.name} did not end within {timeout:g} s:\n{self.tail()}") from None
        self._close()
        if code != 0:
            raise ProcessError(f"{self.name} ended with exit code {code}:\n{self.tail()}")
        return self.lines()

    def finish_after(self, text: str, timeout: float, patience: float) -> list[str]:
        """Like `finish`, for a process that may continue after its work. It has `patience` seconds after the line that
        contains `text`, and is then killed.
        """
        self.wait_for(text, timeout)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.lines()
        return self.finish(patience)

    def stop(self) -> None:
        """Send SIGTERM and wait for the end; raises ProcessError if the process had to be killed after 90 s."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(
                f"{self.name} did not end within {STOP_TIMEOUT_S:g} s of SIGTERM:\n{self.tail()}"
            ) from None
        self._close()

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        self.process.kill()
        self.process.wait()
        self._close()

    def lines(self) -> list[str]:
        with self._lock:
            return list(self._lines)

    def tail(self) -> str:
        return "".join(self.lines())[-LOG_TAIL_CHARACTERS:]

    def _read(self, stream: IO[str]) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            for line in stream:
                if self._on_line is not None:
                    self._on_line(line)
                log.write(line)
                log.flush()
                with self._lock:
                    self._lines.append(line)
                    if self._wanted is not None and self._wanted in line:
                        self._seen.set()
        with self._lock:
            self._open -= 1
            if not self._open:
                self._seen.set()

    def _close(self) -> None:
        """Wait until the last output of the process is read."""
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        for stream in self._streams:
            stream.close()


def java(
    main_class: str,
    arguments: Sequence[str],
    *,
    class_path: str,
    log: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    prefix: Sequence[str] = (),
    on_line: Callable[[str], None] | None = None,
) -> WatchedProcess:
    """Run a Java class. `options` are for the JVM, `prefix` precedes `java` (nice, taskset)."""
    return WatchedProcess(
        main_class.rpartition(".")[2],
        [*prefix, "java", CONNECT_PATIENCE, *options, "-cp", class_path, main_class, *arguments],
        log=log,
        environment=environment,
        folder=folder,
        on_line=on_line,
    )
