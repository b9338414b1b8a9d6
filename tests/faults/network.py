"""A network of hosts that tests cut, slow down and make lossy: network namespaces of Linux on one bridge.

    this process ── veth ──┐
    n0 ── veth ────────────┤ bridge, in a namespace of its own
    n1 ── veth ────────────┘

Every host drops packets by iptables where they arrive, so a cut can have one direction. The kernel may have no netem,
so a slow host has the token bucket filter of tc, which delays what exceeds its rate. Needs root.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.faults.dledger_processes import Host

_SUBNET = "198.18"
"""A network for benchmarks (RFC 2544), which no machine routes."""
_CLIENT = 254
_BURST = "16kbit"
_QUEUE = "2s"


class NamespacesRefused(Exception):
    """This process may not create network namespaces; the text says what the kernel or ip answered."""


class Network:
    """Hosts and the faults between them. ``client`` is the name of this process."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"rq{os.getpid()}"
        self._net = f"{_SUBNET}.{os.getpid() % 250}"
        self._hub = f"{self._prefix}-hub"
        self._numbers = {name: number for number, name in enumerate(names, 1)} | {"client": _CLIENT}
        self.hosts = {name: Host(self.address(name), ("ip", "netns", "exec", self._namespace(name))) for name in names}

    def address(self, name: str) -> str:
        """Return the address of a host, or of this process."""
        return f"{self._net}.{self._numbers[name]}"

    def create(self) -> None:
        """Create the namespaces and connect them.

        Raises:
            NamespacesRefused: this process may not.
        """
        _run("ip", "netns", "add", self._hub)
        self._in(self._hub, "ip", "link", "add", "br0", "type", "bridge")
        self._in(self._hub, "ip", "link", "set", "br0", "up")
        for name in self.hosts:
            space = self._namespace(name)
            _run("ip", "netns", "add", space)
            self._in(space, "ip", "link", "set", "lo", "up")
            self._connect(name, space)
        self._connect("client", None)

    def _connect(self, name: str, space: str | None) -> None:
        outer, inner = f"{self._prefix}h{self._numbers[name]}", f"{self._prefix}e{self._numbers[name]}"
        _run("ip", "link", "add", inner, "type", "veth", "peer", "name", outer)
        _run("ip", "link", "set", outer, "netns", self._hub)
        self._in(self._hub, "ip", "link", "set", outer, "master", "br0", "up")
        if space is not None:
            _run("ip", "link", "set", inner, "netns", space)
        self._in(space, "ip", "address", "add", f"{self.address(name)}/24", "dev", inner)
        self._in(space, "ip", "link", "set", inner, "up")

    def delete(self) -> None:
        """Delete the namespaces, and with them their links. Processes in them have to be dead."""
        for space in (*(self._namespace(name) for name in self.hosts), self._hub):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)

    def cut(self, source: str, target: str) -> None:
        """Drop what ``source`` sends to ``target``, one of the hosts."""
        drop = ("-s", self.address(source), "-j", "DROP")
        self._in(self._namespace(target), "iptables", "-w", "-A", "INPUT", *drop)

    def isolate(self, name: str, others: Sequence[str]) -> None:
        """Cut a host off from ``others``, in both directions; ``others`` may have the host itself."""
        for other in others:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def cut_to_client(self, source: str) -> None:
        """Drop what a host sends to this process."""
        drop = ("-d", self.address("client"), "-j", "DROP")
        self._in(self._namespace(source), "iptables", "-w", "-A", "OUTPUT", *drop)

    def lose(self, name: str, probability: float) -> None:
        """Drop a part of what arrives at a host."""
        lottery = ("-m", "statistic", "--mode", "random", "--probability", str(probability), "-j", "DROP")
        self._in(self._namespace(name), "iptables", "-w", "-A", "INPUT", *lottery)

    def slow(self, name: str, rate: str) -> None:
        """Limit what a host sends, for instance to ``2mbit``; what exceeds it waits for up to 2 s, then is dropped."""
        shape = ("root", "tbf", "rate", rate, "burst", _BURST, "latency", _QUEUE)
        link = f"{self._prefix}e{self._numbers[name]}"
        self._in(self._namespace(name), "tc", "qdisc", "add", "dev", link, *shape)

    def heal(self) -> None:
        """End all faults."""
        for name in self.hosts:
            space = self._namespace(name)
            self._in(space, "iptables", "-w", "-F")
            link = f"{self._prefix}e{self._numbers[name]}"
            command = ["ip", "netns", "exec", space, "tc", "qdisc", "delete", "dev", link, "root"]
            subprocess.run(command, check=False, capture_output=True)  # an error if the host was not slow

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    @staticmethod
    def _in(space: str | None, *command: str) -> None:
        _run(*(("ip", "netns", "exec", space) if space else ()), *command)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NamespacesRefused(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        raise NamespacesRefused(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """A network of hosts, deleted at the end of the block.

    Raises:
        NamespacesRefused: this process may not create it.
    """
    created = Network(names)
    try:
        created.create()
        yield created
    finally:
        created.delete()
