"""A child process watched through its output, and stopped by its process id; `java` makes one of a Java class.

Everything it prints goes to a log file as well; the tail of that file explains a failure.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_TIMEOUT_SECONDS = 30.0
LOG_TAIL_CHARACTERS = 3000


class ProcessError(Exception):
    """The process ended early, failed, or did not say in time what was expected of it."""


class WatchedProcess:
    """A running process whose output, standard error included, a thread copies into `log`."""

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
        """`name` is for messages; `environment` and working `folder` replace the inherited ones.

        `on_line` is called with each line as it comes, on the thread that reads the output.
        """
        self.name = name
        self.log = log
        self._on_line = on_line
        self._wanted: str | None = None
        self._ended = False
        self._seen = threading.Event()
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(environment) if environment is not None else None,
            cwd=folder,
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {self.name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_for(self, text: str, timeout: float) -> str:
        """Wait for the first line of output that holds `text` and return it.

        Raises ProcessError after `timeout` seconds or when the process ends before.
        """
        with self._lock:
            self._wanted = text
            if self._ended or any(text in line for line in self._lines):
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
        """Wait for the end of the process and return its lines; raises ProcessError when it takes too long or fails."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise ProcessError(f"{self.name} did not end within {timeout:g} s:\n{self.tail()}") from None
        self._reader.join(STOP_TIMEOUT_SECONDS)
        self._close()
        if code != 0:
            raise ProcessError(f"{self.name} ended with exit code {code}:\n{self.tail()}")
        return self.lines()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 30 s; returns when the process is gone."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_TIMEOUT_SECONDS)
        self._close()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.process.kill()
        self.process.wait()
        self._reader.join(STOP_TIMEOUT_SECONDS)
        self._close()

    def lines(self) -> list[str]:
        with self._lock:
            return list(self._lines)

    def tail(self) -> str:
        return "".join(self.lines())[-LOG_TAIL_CHARACTERS:]

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.log.open("a", encoding="utf-8") as log:
            for line in self.process.stdout:
                if self._on_line is not None:
                    self._on_line(line)
                log.write(line)
                log.flush()
                with self._lock:
                    self._lines.append(line)
                    if self._wanted is not None and self._wanted in line:
                        self._seen.set()
        with self._lock:
            self._ended = True
            self._seen.set()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


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
    """Start a Java class; `options` go to the JVM, `prefix` before `java` (nice, taskset)."""
    return WatchedProcess(
        main_class.rpartition(".")[2],
        [*prefix, "java", *options, "-cp", class_path, main_class, *arguments],
        log=log,
        environment=environment,
        folder=folder,
        on_line=on_line,
    )
