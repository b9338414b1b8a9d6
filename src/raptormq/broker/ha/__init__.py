"""Master and slave: a master pushes its commit log to slaves, which serve reads (RocketMQ's classic HA protocol).

The peer may be a master or slave of Apache RocketMQ 5.3. The log is replicated over the HA port and the tables over
the port for clients. The slave opens both connections. :mod:`raptormq.storage.replica` is the slave's copy of the log.
A master has an ordinary store.

====================  ==============================================================================
``frames``            the two frames of the HA protocol
``master``            the HA port of a master
``slave_connection``  one slave of a master
``acknowledgements``  acknowledgements that a SYNC_MASTER waits for
``slave``             follows a master
``master_client``     requests of a slave to its master
``table_sync``        copies topics, groups, offsets and delivery progress to a slave
``accepted_commits``  commits of offsets that a slave hands over to its master
``history_guard``     a master does not serve while another broker of its name has messages that it lacks
``promotion_record``  where a slave was promoted to the master
``slave_guard``       the requests that a slave refuses
``copies``            reads parts of the log from the other brokers of the name, for repairs
``status``            status of a master or slave for the operator and probes
====================  ==============================================================================
"""

from __future__ import annotations

from raptormq.broker.ha.accepted_commits import AcceptedCommits
from raptormq.broker.ha.acknowledgements import SlaveAcknowledgements
from raptormq.broker.ha.copies import LogCopies
from raptormq.broker.ha.history_guard import HistoryGuard
from raptormq.broker.ha.master import HaMaster
from raptormq.broker.ha.master_client import MasterClient
from raptormq.broker.ha.promotion_record import PromotionRecord
from raptormq.broker.ha.slave import HaSlave
from raptormq.broker.ha.slave_guard import master_only
from raptormq.broker.ha.status import HaStatus
from raptormq.broker.ha.table_sync import SyncedTables, TableSync

__all__ = [
    "AcceptedCommits",
    "HaMaster",
    "HaSlave",
    "HaStatus",
    "HistoryGuard",
    "LogCopies",
    "MasterClient",
    "PromotionRecord",
    "SlaveAcknowledgements",
    "SyncedTables",
    "TableSync",
    "master_only",
]
