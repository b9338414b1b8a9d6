"""Headers of masters and slaves (Apache RocketMQ ``ExchangeHAInfoResponseHeader``). 31015, 31021 and 31022 are
specific to RaptorMQ."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class CompareLogRequestHeader(Header):
    """31021: compare ``size`` bytes of the master's log at ``offset`` with a CRC-32. The body of the response is
    ``same`` or ``other``.
    """

    offset: int
    size: int
    crc32: int


@dataclass(slots=True)
class ReadLogRangeRequestHeader(Header):
    """31015: return records of the log from ``begin`` on that end at or before ``limit``."""

    begin: int
    limit: int


@dataclass(slots=True)
class PromoteRequestHeader(Header):
    """31022: make a slave the master. ``force`` is required while its current master responds."""

    force: bool = False


@dataclass(slots=True)
class PromoteResponseHeader(Header):
    """31022: log offsets. ``log_end`` is the end of the new master's log, ``master_end`` the last known end of the old
    master's log."""

    log_end: int
    master_end: int


@dataclass(slots=True)
class ExchangeHaInfoResponseHeader(Header):
    """906: addresses of a master, for its slaves."""

    master_ha_address: str
    master_flush_offset: int | None = None
    master_address: str | None = None
