"""Driver process of a SparkPipeline: runs the application, and serves the progress of its queries.

    python -m pyspark_raptormq.pipeline_driver APPLICATION [ARGUMENT ...]
    spark-submit .../pyspark_raptormq/pipeline_driver.py APPLICATION [ARGUMENT ...]

APPLICATION is a Python file, or an http or https URL of one. It runs as `__main__`, in a process whose Spark session
already exists: `SparkSession.builder.getOrCreate()` returns it. When the file ends and queries are still active, the
process waits for them.

    GET /progress    JSON for the operator, see `pipeline_progress`
    GET /metrics     metrics of `PrometheusListener`

The cause of a failure is one line in the termination message of the container, from which the operator takes the last
error. Exit codes: 1 if the application failed, 2 if it cannot be started, 70 if one of its queries is dead (see
`pipeline_watch`), which the application may not detect. SIGTERM ends the process immediately, because the JVM may be in
the middle of a call: the checkpoint is consistent at any time, and Kubernetes deletes the executors with the pod. See
also: `raptormq_operator.manifests.pipeline` and `spark_application` start the process.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import tempfile
import threading
import traceback
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_raptormq.metrics import PrometheusListener
from pyspark_raptormq.pipeline_progress import ProgressListener, cause
from pyspark_raptormq.pipeline_watch import DEADLINE_S, QueryFailed, QueryWatch, watch_session
from raptormq.errors import ConfigError, RaptorMQError

PORT = 8090
"""Port of /progress and /metrics."""
DOWNLOAD_TIMEOUT_S = 60.0
MAX_APPLICATION = 4 << 20
"""Maximum size in bytes of an application that is downloaded."""
TERMINATION_MESSAGE = Path("/dev/termination-log")
QUERY_FAILED = 70
"""Exit code for a dead query (EX_SOFTWARE of sysexits.h)."""


def main(arguments: list[str]) -> int:
    """Run an application. Return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        _run(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code:
            _leave(f"the application ended with exit code {code}" if end.code == code else str(end.code))
        return code
    except QueryFailed as error:
        _report(str(error))
        return QUERY_FAILED
    except StreamingQueryException as error:
        traceback.print_exc()
        _leave(cause(error))
        return QUERY_FAILED
    except RaptorMQError as error:
        _report(str(error))
        return 2
    except BaseException as error:  # noqa: BLE001 - whatever an application raises is its last error
        traceback.print_exc()
        _leave(cause(error))
        return 1
    return 0


def local_file(application: str, folder: Path) -> Path:
    """Return the file of an application. If `application` is a URL, the file is downloaded to `folder`.

    Raises:
        ConfigError: The file does not exist, or cannot be downloaded.
    """
    if not application.startswith(("http://", "https://")):
        path = Path(application)
        if not path.is_file():
            raise ConfigError(f"the image has no file {application}")
        return path
    try:
        with urllib.request.urlopen(application, timeout=DOWNLOAD_TIMEOUT_S) as answer:
            content = answer.read(MAX_APPLICATION + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot download {application}: {error}") from error
    if len(content) > MAX_APPLICATION:
        raise ConfigError(f"{application} has more than {MAX_APPLICATION} bytes")
    path = folder / "application.py"
    path.write_bytes(content)
    return path


def serve(listener: ProgressListener, port: int) -> ThreadingHTTPServer:
    """Start the HTTP server in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/progress":
                kind, body = "application/json", listener.document()
            elif self.path == "/metrics":
                kind, body = CONTENT_TYPE_LATEST, generate_latest()
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppress the log line, because the kubelet sends requests every few seconds."""

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    return server


def _run(arguments: list[str]) -> None:
    if not arguments:
        raise ConfigError("usage: python -m pyspark_raptormq.pipeline_driver APPLICATION [ARGUMENT ...]")
    with tempfile.TemporaryDirectory() as folder:
        path = local_file(arguments[0], Path(folder))
        if checkpoint := os.environ.get("RAPTORMQ_CHECKPOINT"):
            _make_checkpoint(Path(checkpoint))
        session = SparkSession.builder.getOrCreate()
        try:
            listener, watch = ProgressListener(), QueryWatch(_progress_deadline_s())
            session.streams.addListener(listener)
            session.streams.addListener(PrometheusListener())
            session.streams.addListener(watch)
            watch_session(session, watch, _end)
            server = serve(listener, PORT)
            sys.argv = [str(path), *arguments[1:]]
            sys.path.insert(0, str(path.parent))
            _run_file(path)
            watch.wait(stopped=SparkSession.getActiveSession() is None)
            server.shutdown()
        finally:
            with suppress(Exception):  # an interrupted call of the JVM leaves an unusable connection
                session.stop()


def _run_file(path: Path) -> None:
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:  # sys.exit(0) ends the file, not its queries
        if end.code:
            raise


def _progress_deadline_s() -> float:
    text = os.environ.get("RAPTORMQ_PROGRESS_DEADLINE_S", "")
    try:
        return float(text) if text else DEADLINE_S
    except ValueError as error:
        raise ConfigError(f"RAPTORMQ_PROGRESS_DEADLINE_S={text} is not a number of seconds") from error


def _make_checkpoint(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the checkpoint volume is not writable for user {os.getuid()}: {error}") from error


def _leave(text: str) -> None:
    """Write the termination message, if this is a container."""
    if TERMINATION_MESSAGE.exists():
        TERMINATION_MESSAGE.write_text(text, encoding="utf-8")


def _report(text: str) -> None:
    """Log why the process ends, and write the termination message."""
    _leave(text)
    sys.stderr.write(f"pipeline_driver: {text}\n")


def _end(fault: str) -> None:
    """End the process without the main thread: the application may be blocked, and Spark may not respond."""
    _report(fault)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(QUERY_FAILED)


def _stop(number: int, _: FrameType | None) -> None:
    sys.stdout.flush()
    os._exit(128 + number)


if __name__ == "__main__":
    if sys.path[0] == str(Path(__file__).parent):  # spark-submit adds this folder, whose files would shadow modules
        del sys.path[0]
    sys.exit(main(sys.argv[1:]))
