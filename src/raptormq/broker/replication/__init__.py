"""A broker as a member of a Dledger group: each member has a copy of the commit log, and the leader takes messages.

The library :mod:`raptormq.raft` decides, :mod:`raptormq.storage.replica` is the copy. This room connects the two with
the disk and the network, and with the broker's tables and services. It knows no handler and no client.

==================  ================================================================================
``replication``     puts the parts together, starts and stops what only a leader runs
``group_member``    drives the library for one member
``links``           connections between the members
``codec``           their messages as frames
``member_files``    what a member keeps beside the log
``table_records``   topics, groups and offsets as records of the log
``follower_guard``  the requests that a follower refuses
==================  ================================================================================
"""

from __future__ import annotations

from raptormq.broker.replication.follower_guard import leader_only
from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.broker.replication.replication import LeaderWork, Replication, files_of_member
from raptormq.broker.replication.table_records import TABLES_TOPIC, TableRecords

__all__ = [
    "TABLES_TOPIC",
    "LeaderWork",
    "MemberFiles",
    "Progress",
    "Replication",
    "TableRecords",
    "files_of_member",
    "leader_only",
]
