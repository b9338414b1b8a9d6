"""A network of hosts that tests cut, slow down or make lossy: network namespaces of Linux on one bridge.

    this process ── veth ──┐
    n0 ── veth ────────────┤ bridge, in a namespace of its own
    n1 ── veth ────────────┘

Every host drops arriving packets with iptables, so a cut can have one direction. The kernel may lack netem, so a slow
host uses the token bucket filter of tc, which delays packets above its rate. Needs root.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.faults.dledger_processes import Host

_SUBNET = "198.18"
"""The network for benchmarks (RFC 2544), which is not routed."""
_CLIENT = 254
_BURST = "16kbit"
_QUEUE = "2s"


class NamespacesRefused(Exception):
    """This process may not create network namespaces. The message contains the error of the kernel or of ip."""


class Network:
    """Hosts, and the faults between them. ``client`` is the name of this process."""

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
            NamespacesRefused: This process may not create them.
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
        """Delete the namespaces and their links. Processes in them must have ended."""
        for space in (*(self._namespace(name) for name in self.hosts), self._hub):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)

    def cut(self, source: str, target: str) -> None:
        """Drop packets from ``source`` to ``target``, one of the hosts."""
        drop = ("-s", self.address(source), "-j", "DROP")
        self._in(self._namespace(target), "iptables", "-w", "-A", "INPUT", *drop)

    def isolate(self, name: str, others: Sequence[str]) -> None:
        """Cut a host off from ``others``, in both directions. ``others`` may contain the host itself."""
        for other in others:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def cut_to_client(self, source: str) -> None:
        """Drop packets from a host to this process."""
        drop = ("-d", self.address("client"), "-j", "DROP")
        self._in(self._namespace(source), "iptables", "-w", "-A", "OUTPUT", *drop)

    def lose(self, name: str, probability: float) -> None:
        """Drop a share of the packets that arrive at a host."""
        lottery = ("-m", "statistic", "--mode", "random", "--probability", str(probability), "-j", "DROP")
        self._in(self._namespace(name), "iptables", "-w", "-A", "INPUT", *lottery)

    def slow(self, name: str, rate: str) -> None:
        """Limit the send rate of a host, for example to ``2mbit``. Packets above the rate wait for up to 2 s and are
        then dropped.
        """
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
            subprocess.run(command, check=False, capture_output=True)  # an error if the host is not slow

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
    """Run a network of hosts, which is deleted at the end of the block.

    Raises:
        NamespacesRefused: This process may not create it.
    """
    created = Network(names)
    try:
        created.create()
        yield created
    finally:
        created.delete()
