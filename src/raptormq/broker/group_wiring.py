"""Opens and connects the parts of a member of a Dledger group.

Only a member imports this module. The Raft library and the replication are about a tenth of the code that a broker
executes at its start, and other brokers do not need it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from raptormq.broker.config import BrokerConfig
from raptormq.broker.core import Core, own_credentials
from raptormq.broker.registration import Registrar
from raptormq.broker.replication import (
    REPLICATED_TABLES,
    TABLES_TOPIC,
    Forwarding,
    LeaderPort,
    MemberFiles,
    Progress,
    Replication,
    TableRecords,
    files_of_member,
    leader_only,
)
from raptormq.broker.table_files import apply_settings
from raptormq.errors import StorageError, StoreDamaged
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import MASTER_SLAVE, UNREPLICATED
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig
from raptormq.protocol.command import RemotingCommand
from raptormq.storage.fs import FileSystem
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.router import Router

logger = get_logger(__name__)

_OWNER_ONLY = 0o700


class OpenedMember(NamedTuple):
    """The state of a member after its store was opened."""

    files: MemberFiles
    progress: Progress
    """The replication progress that an earlier process saved."""
    was_clean: bool
    """Whether the store was shut down cleanly."""


def open_member(config: BrokerConfig, store: MessageStore, filesystem: FileSystem | None) -> OpenedMember:
    """Open the files and the store of a member. Blocks on the disk.

    Raises:
        StorageError: the store cannot be opened.
    """
    files = files_of_member(config, filesystem)
    files.finish_reset(lambda offset: store.start_over(offset, REPLICATED_TABLES))
    progress = files.load_progress()
    was_clean = store.open(confirmed_offset=progress.commit.offset).clean
    files.rejoin(store.end_offset)
    progress = files.load_progress()
    if config.security.is_on and filesystem is None:
        _hide_log(store)
    return OpenedMember(files, progress, was_clean)


def leave_group(config: BrokerConfig, store: MessageStore, filesystem: FileSystem | None) -> None:
    """Record that a broker without a group has opened the store of a member. Blocks on the disk.

    Raises:
        StorageError: the disk failed.
    """
    mode = MASTER_SLAVE if config.ha.is_slave or config.serves_slaves else UNREPLICATED
    try:
        files_of_member(config, filesystem).leave(mode, store.end_offset)
    except StoreDamaged as error:  # a member does not start with it either
        logger.warning("the store was that of a group member, and its state cannot be read: %s", error)
    except OSError as error:
        raise StorageError(f"cannot record that this broker has no group: {error}") from error


def _hide_log(store: MessageStore) -> None:
    """Restrict the log to the server's account, because it replicates users and passwords."""
    settings = store.config
    folder = settings.commit_log_dir or settings.root_dir / "commitlog"
    try:
        folder.chmod(_OWNER_ONLY)
    except OSError as error:
        logger.warning("other accounts may read %s, which has the passwords of users: %s", folder, error)


def create_replication(core: Core, router: Router, registrar: Registrar, files: MemberFiles) -> Replication:
    """Create the replication of a member. A follower refuses the requests that only a leader may execute."""
    core.topics.add_missing([TopicConfig(TABLES_TOPIC, 1, 1, int(Perm.INHERIT))])
    security = core.tables.security
    tables = TableRecords(
        core.store, core.topics, core.groups, core.tables.modes, core.reput.schedule, time.monotonic, security
    )
    core.barrier.records = tables
    gate, in_transition = core.gate, core.config.security.peers_in_transition

    def refusal(connection: Connection, request: RemotingCommand) -> str | None:
        """Return why a replication request is refused, or None. With access control a super user must sign it, except
        while the members are given other settings of access control.
        """
        if in_transition or not gate.authenticates:
            return None
        refused = gate.refusal(connection, request)
        if refused is not None:
            return refused.remark
        return None if gate.is_by_super_user(request) else "it is not signed by a super user"

    replication = Replication(
        core.config,
        core.store,
        files,
        tables,
        refusal,
        core.address,
        own_credentials(core.config),
        partial(apply_settings, core.config, core.tables),
    )
    core.barrier.confirm_leadership = replication.confirm_leadership
    forwarding = Forwarding(replication.member, replication.ask, router.handle_admitted, core.config.outgoing_tls)
    replication.attach_forwarding(forwarding)
    if core.config.replication.leader_address:
        replication.attach_leader_port(_leader_port(core, replication, forwarding, registrar))
    router.add_guard(leader_only(replication.not_serving, forwarding.accept))
    core.reput.listen_runs(replication.member.dispatched)
    replication.member.can_dispatch = core.reput.is_working
    return replication


def _leader_port(core: Core, replication: Replication, forwarding: Forwarding, registrar: Registrar) -> LeaderPort:
    """Create the port on which the leader alone serves clients."""
    limits = ConnectionLimits(credentials=own_credentials(core.config))
    settings, tls = core.config.replication, core.config.outgoing_tls
    return LeaderPort(settings, core.address, replication.member, forwarding, registrar, limits, tls)
