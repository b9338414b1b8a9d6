"""The session of a page: its command blocks, executed one after the other by one shell, as by a reader.

The shell starts in a folder with what a reader has before: the Makefile, the virtual environment, which is not active,
and nothing else. A block that serves runs in a terminal of its own, a subshell in the background, until the page ends.
The ports of the pages are replaced by free ones, in the text and as defaults of the servers. The first command that
fails ends the session.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.documentation.blocks import ROOT, Block, blocks_of
from tests.ports import free_port, free_port_run

NAME_SERVER_PORT, BROKER_PORT = "9876", "10911"
GROUP_PORTS = (*map(str, range(30911, 30916)), *map(str, range(40911, 40916)))
PORTS = (NAME_SERVER_PORT, BROKER_PORT, "10912", "11911", *GROUP_PORTS)
"""Ports in the texts of the pages."""
MEMBERS = 2, 50
"""Ports before and after that of a broker which `raptormq dev --members` uses."""
STOP_WITHIN_S = 30.0
_OF_OTHERS = "KUBECONFIG", "MAKE", "MFLAGS", "RAPTORMQ_"
"""Beginnings of the names of variables that the shell of a reader does not have."""
_OUTPUT = 3_000
"""Characters of the output of a block that are shown when it fails."""
_PRELUDE = """\
set -eo pipefail
raptormq() {
    case "$1" in
        dev) set -- dev --namesrv-port 9876 --broker-port 10911 --metrics-port 0 "${@:2}" ;;
        namesrv) set -- namesrv -c "$SESSION/namesrv.conf" --metrics-port -1 "${@:2}" ;;
        broker) set -- broker --metrics-port 0 "${@:2}" ;;
    esac
    if [ "$BASHPID" != $$ ]; then exec "$(type -P raptormq)" "$@"; fi  # a job is the process, and no shell around it
    command raptormq "$@"
}
await() {  # await TEXT FILE PID: return when a file has a text; fail if the process that writes it ends before
    until grep -q -- "$1" "$2"; do kill -0 "$3" || return 1; sleep 0.1; done
}
serve() {  # serve TEXT COMMAND...: execute a command in another terminal, return when its output has a text
    served=$(mktemp -p "$SESSION")
    ("${@:2}") >"$served" 2>&1 </dev/null &
    await "$1" "$served" $!
}
"""


class BlockFailed(Exception):
    """A block ended with an error, or its output is another one. The message has its place and its output."""


class Session:
    """One execution of a page in a folder."""

    def __init__(self, folder: Path) -> None:
        self._session = folder / "session"
        self._home = folder / "home"
        self._session.mkdir()
        self._home.mkdir()
        numbers = {port: free_port() for port in PORTS} | {BROKER_PORT: free_port_run(*MEMBERS)}
        self._ports = {port: str(number) for port, number in numbers.items()}
        self._script = self._with_ports(_PRELUDE)
        self._steps: list[tuple[list[Block], Path]] = []
        (self._session / "namesrv.conf").write_text(f"listenPort={self._ports[NAME_SERVER_PORT]}\n", encoding="utf-8")
        (self._home / ".venv").symlink_to(sys.prefix)
        for name in ("Makefile", "pyproject.toml", "requirements.lock"):
            shutil.copy(ROOT / name, self._home)
            os.utime(self._home / name, (0, 0))  # make has nothing to install

    def _with_ports(self, text: str) -> str:
        """Return a text with the ports of this session."""
        return re.sub(rf"\b({'|'.join(self._ports)})\b", lambda port: self._ports[port[0]], text)

    def add(self, programs: Iterable[list[Block]]) -> None:
        """Append blocks to the session. Those of a list are one program."""
        for blocks in programs:
            self._add(blocks)

    def _add(self, blocks: list[Block]) -> None:
        number, block = len(self._steps), blocks[-1]
        output = self._session / f"{number}.out"
        commands = "\n".join("\n".join([*each.arguments("names"), each.commands]) for each in blocks)
        first = [argument for each in blocks for argument in each.arguments("first")]
        if block.file is not None:
            commands = f"cat >{shlex.quote(block.file)} <<'END_OF_FILE'\n{commands}\nEND_OF_FILE"
        name = {"python": f"test_block_{number}.py"}.get(block.language, f"{number}.sh")
        self._write(f"{number}.first.sh", "\n".join(first))
        self._write(name, commands)
        execute = f'source "$SESSION/{name}"'
        if block.language == "python":
            module = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if block.arguments("pytest") else []
            execute = f'python {shlex.join(module)} "$SESSION/{name}"'
        redirect = f'>>"$SESSION/{output.name}" 2>&1 </dev/null'
        self._script += f'echo {number} >"$SESSION/step"\nsource "$SESSION/{number}.first.sh" {redirect}\n'
        if ready := block.arguments("serves"):
            self._script += f'served="$SESSION/{output.name}"\n( {execute} ) {redirect} &\n'
            self._script += f'await {shlex.quote(ready[0])} "$served" $!\n'
        else:
            self._script += f"{execute} {redirect}\n"
        self._steps.append((blocks, output))

    def _write(self, name: str, text: str) -> None:
        (self._session / name).write_text(self._with_ports(text) + "\n", encoding="utf-8")

    def execute(self, timeout_s: float, environment: Mapping[str, str] | None = None) -> None:
        """Execute the blocks, stop what they have started, and compare what they have printed.

        Raises:
            BlockFailed: A block ended with an error or did not end in time, or its output lacks what the page says.
        """
        (self._session / "session.sh").write_text(self._script, encoding="utf-8")
        reading, writing = os.pipe()  # has an end when all processes of the session have ended
        log = self._session / "session.out"
        with log.open("wb") as opened:
            process = subprocess.Popen(
                ["bash", str(self._session / "session.sh")],
                cwd=self._home,
                env=self._environment() | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=opened,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[writing],
            )
        os.close(writing)
        with os.fdopen(reading, "rb") as ends:
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _stop(process, ends.fileno())
        if code != 0:
            self._fail("was not done in time" if code is None else f"ended with {code}", log)
        for blocks, output in self._steps:
            for block in blocks:
                self._compare(block, output.read_text(encoding="utf-8", errors="replace"))

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_OTHERS)}
        path = [folder for folder in kept["PATH"].split(os.pathsep) if Path(folder) != Path(sys.prefix, "bin")]
        return kept | {
            "PATH": os.pathsep.join(path),
            "SESSION": str(self._session),
            "HOME": str(self._home),
            "NAMESRV_ADDR": f"127.0.0.1:{self._ports[NAME_SERVER_PORT]}",
        }

    def _fail(self, how: str, log: Path) -> None:
        (*_, block), output = self._steps[int((self._session / "step").read_text())]
        text = "".join(path.read_text(errors="replace") for path in (output, log) if path.exists())
        raise BlockFailed(f"{block.place} {how}:\n{text[-_OUTPUT:]}")

    @staticmethod
    def _compare(block: Block, found: str) -> None:
        for text in block.arguments("prints"):
            if text not in found:
                raise BlockFailed(f"{block.place} does not print {text!r}:\n{found[-_OUTPUT:]}")
        at = 0
        for line in block.output:
            match = re.compile(_loosely(line)).search(found, at)
            if match is None:
                raise BlockFailed(f"{block.place} does not print a line like {line!r}:\n{found[-_OUTPUT:]}")
            at = match.end()


def _loosely(line: str) -> str:
    """Return a pattern for a line of output: numbers and the width of spaces may be others."""
    return re.sub(r"(?:\\ )+", r"\\s+", re.sub(r"\d+", r"\\d+", re.escape(line)))


def _stop(process: subprocess.Popen[bytes], end: int) -> None:
    """End all processes of a session, and wait until they have ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        if _ended(end):
            break
    process.wait(STOP_WITHIN_S)


def _ended(end: int) -> bool:
    readable, _, _ = select.select([end], [], [], STOP_WITHIN_S)
    return bool(readable)


def programs_of(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return the blocks in lists: a block that continues a program is in its list."""
    found: list[list[Block]] = []
    for block in blocks:
        if block.arguments("continues"):
            next(program for program in reversed(found) if program[0].language == block.language).append(block)
        else:
            found.append([block])
    return found


def run_page(page: str, folder: Path, timeout_s: float, environment: Mapping[str, str] | None = None) -> None:
    """Execute all blocks of a page that need no Kubernetes; raises BlockFailed."""
    session = Session(folder)
    session.add(programs_of(block for block in blocks_of(page) if block.runs_here))
    session.execute(timeout_s, environment)
