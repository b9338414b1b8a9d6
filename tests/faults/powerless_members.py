"""Members of a Dledger group whose machines lose power: of each disk only what was synced is left, and the machine then
has another boot id, which members compare.

See also: :mod:`~tests.faults.power_cut` has the volume. A member runs in a mount namespace of its own, where a file
stands for the boot id of the kernel. Needs root.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from tests.faults.dledger_processes import DledgerProcesses, Host
from tests.faults.power_cut import PowerCutVolume

_MEMBERS = ("n0", "n1", "n2")
_SCRIPT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec env LD_PRELOAD="$SYNCED_ONLY_LIBRARY" "$@"'
"""The library is loaded into the broker alone, because it does not stay loaded in programs that a process starts."""


class PowerlessMembers(DledgerProcesses):
    """The processes. :meth:`cut_power` ends one."""

    def __init__(
        self, folder: Path, opened: AsyncExitStack, more: str, hosts: Mapping[str, Host] | None = None
    ) -> None:
        self._volumes: dict[str, PowerCutVolume] = {}
        self._boot_ids = {member: folder / f"{member}.boot" for member in _MEMBERS}
        for member, boot_id in self._boot_ids.items():
            (folder / f"node-{member}").mkdir(exist_ok=True)
            self._volumes[member] = PowerCutVolume(folder / f"node-{member}")
            boot_id.write_text("boot 1", encoding="ascii")
        super().__init__(folder, opened, more, hosts=hosts, environment=self._preloaded)
        self.hosts = dict(self.hosts) | {
            member: Host(host.address, (*host.enter, "unshare", "-m", "sh", "-c", _SCRIPT, str(self._boot_ids[member])))
            for member, host in self.hosts.items()
            if member in self._boot_ids
        }

    def _preloaded(self, member: str) -> dict[str, str]:
        variables = self._volumes[member].environment()
        return variables | {"SYNCED_ONLY_LIBRARY": variables.pop("LD_PRELOAD")}

    def root(self, member: str) -> Path:
        return self._volumes[member].root / "store"

    def wipe(self, member: str) -> None:
        """Replace the disk of a stopped member by an empty one."""
        self._volumes[member].cut()
        super().wipe(member)

    def cut_power(self, member: str) -> None:
        """End a member with a power failure of its machine."""
        self.kill(member)
        self._volumes[member].cut()
        boot_id = self._boot_ids[member]
        number = int(boot_id.read_text(encoding="ascii").split()[1])
        boot_id.write_text(f"boot {number + 1}", encoding="ascii")
