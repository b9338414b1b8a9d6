"""The two frames of the HA protocol, big-endian (Apache RocketMQ ``DefaultHAClient``, ``DefaultHAConnection``).

Report, slave to master: first after connecting, then after every write and at least once per heartbeat interval::

    0          8
    +----------+
    | end i64  |     end of the slave's log; 0 if the log is empty
    +----------+

Push, master to slave; a push of size 0 is a heartbeat::

    0             8          12          12+size
    +-------------+----------+-----------+
    | offset i64  | size i32 | log       |     the bytes at ``offset``, within one segment
    +-------------+----------+-----------+

A push may end inside a record. The protocol has no version and no authentication; ``haSlaveAddresses`` restricts who
may connect.
"""

from __future__ import annotations

import struct

REPORT = struct.Struct(">q")
PUSH = struct.Struct(">qi")
