"""A broker as a member of a Dledger group: each member has a copy of the commit log, and the leader accepts messages.

:mod:`raptormq.raft` implements the consensus algorithm and :mod:`raptormq.storage.replica` the copy of the log. This
package connects the two with the disk, the network, the broker's tables and its services. It does not import request
handlers or the client.

==================  ================================================================================
``replication``     assembles the parts; starts and stops the services that only a leader runs
``group_member``    drives the Raft library for one member
``links``           connections between the members
``codec``           encoding of Raft messages as frames
``member_files``    the Raft state of a member on its disk
``table_records``   topics, groups and offsets as records of the log
``log_history``     topic types and deletions that a member needs before it builds queues
``renewal``         a member with a log that begins too late drops it and copies that of the leader
``room``            what a member with a full disk cannot write, and when it tries again
``status``          status of the member and its group for operators and probes
``duplicate_ids``   detection of two processes with the same member id
``catch_up``        whether the member has every entry that was committed when it began to follow
``read_barrier``    waits until the member has what the group had confirmed when a read arrived
``forwarding``      forwards sends to the next leader after a planned transfer of leadership
``leader_port``     the port on which only the leader serves clients
``follower_guard``  the requests that a follower refuses
==================  ================================================================================
"""

from __future__ import annotations

from raptormq.broker.replication.follower_guard import leader_only
from raptormq.broker.replication.forwarding import Forwarding
from raptormq.broker.replication.leader_port import LeaderPort
from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.broker.replication.replication import Replication, files_of_member
from raptormq.broker.replication.table_records import REPLICATED_TABLES, TableRecords
from raptormq.protocol.topic_names import TABLES_TOPIC

__all__ = [
    "REPLICATED_TABLES",
    "TABLES_TOPIC",
    "Forwarding",
    "LeaderPort",
    "MemberFiles",
    "Progress",
    "Replication",
    "TableRecords",
    "files_of_member",
    "leader_only",
]
