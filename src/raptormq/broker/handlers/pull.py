"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361) (``PullMessageProcessor``).

The handlers validate and convert requests. :class:`~raptormq.broker.pull.PullService` serves them. Clients that can
unpack batches receive batches of BatchCQ topics unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.clients import ClientRegistry, SubscriptionFilter, SubscriptionFilters
from raptormq.broker.config import BrokerConfig
from raptormq.broker.metrics import Statistics
from raptormq.broker.pull import Attempt, OffsetResets, PullRequest, PullService
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.broker.validation import require_group, require_read_queue, require_same_topic
from raptormq.protocol.bodies.heartbeat import BROADCASTING
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.pull import PullFlag, PullMessageRequestHeader, PullMessageResponseHeader
from raptormq.protocol.inner_batch import understands_encrypted_batches, understands_inner_batches
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.storage.read import ReadOptions
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_READ = int(Perm.READ)
_COMMIT, _SUBSCRIPTION = int(PullFlag.COMMIT_OFFSET), int(PullFlag.SUBSCRIPTION)


class PullHandlers:
    """Validates pulls and passes them to the pull service."""

    def __init__(
        self,
        service: PullService,
        resets: OffsetResets,
        topics: TopicTable,
        groups: GroupTable,
        registry: ClientRegistry[Connection],
        statistics: Statistics,
        config: BrokerConfig,
        accepts_commits: Callable[[], bool] = lambda: True,
    ) -> None:
        """``accepts_commits`` returns whether a pull may commit an offset. A follower of a group serves pulls, but its
        own table of offsets is a copy of the leader's.
        """
        self._accepts_commits = accepts_commits
        self._service = service
        self._resets = resets
        self._topics = topics
        self._groups = groups
        self._registry = registry
        self._statistics = statistics
        self._config = config
        self._subscriptions = SubscriptionFilters(registry, config.policies)

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, self.pull)
        router.add(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader, self.lite_pull)
        router.on_closed(self._service.connection_closed)

    def lite_pull(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """361: serve a pull of a lite consumer."""
        if not self._config.policies.lite_pull:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker does not serve lite pulls (litePullMessageEnable)")
        return self.pull(connection, request, header)

    def pull(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """11: serve a pull of messages of one queue, starting at an offset."""
        if (forbidden := self._forbidden(header)) is not None:
            fields = PullMessageResponseHeader(0, header.queue_offset, 0, 0, forbidden[0])
            return response_to(request, ResponseCode.NO_PERMISSION, forbidden[1], fields)
        topic_id = require_same_topic(self._topics, header.topic, header.topic_id)
        if header.topic_id != TOPIC_ID_QUERY:
            topic_id = header.topic_id
        require_read_queue(self._topics, header.topic, header.queue_id, connection)
        selected = self._filter(header)
        place = header.topic, header.consumer_group, header.queue_id
        self._statistics.pull_offsets.setdefault(place, header.queue_offset)
        pulling = self._config.pulling
        if header.max_msg_bytes is None:
            max_count, max_bytes = pulling.memory_count, pulling.memory_bytes
        else:
            max_count, max_bytes = pulling.asked_count, min(max(header.max_msg_bytes, 1), pulling.asked_bytes)
        max_count = min(max(header.max_msg_nums, 1), max_count)
        if header.sys_flag & _COMMIT and header.commit_offset >= 0 and self._accepts_commits():
            self._resets.commit(*place, header.commit_offset)
        client = request.language, request.version
        batches = understands_inner_batches(*client), understands_encrypted_batches(*client)
        options = ReadOptions(max_count, max_bytes, *selected, *batches)
        pull = PullRequest(connection, request, header, header.queue_offset, options, topic_id)
        self._service.serve(pull, Attempt.FIRST)
        return None

    def _forbidden(self, header: PullMessageRequestHeader) -> tuple[int, str] | None:
        """Return forbiddenType and remark if the pull is not permitted, or None."""
        if not self._config.policies.permission & _READ:
            return 1, "this broker serves no messages (brokerPermission)"
        auto_create = self._config.policies.auto_create_group
        group = require_group(self._groups, header.consumer_group, auto_create=auto_create)
        if not group.consume_enable:
            return 2, f"group {group.name} may not consume"
        topic = self._topics.get(header.topic)
        if topic is not None and not topic.perm & _READ:
            return 3, f"topic {header.topic} is not readable"
        if not group.consume_broadcast_enable and not header.sys_flag & _SUBSCRIPTION:
            consumers = self._registry.consumers.get(header.consumer_group)
            if consumers and consumers.message_model == BROADCASTING:
                return 4, f"group {group.name} may not consume by broadcasting"
        if self._groups.forbidden and not self._groups.may_read(header.consumer_group, header.topic):
            return 5, f"group {group.name} may not read topic {header.topic}"
        return None

    def _filter(self, header: PullMessageRequestHeader) -> SubscriptionFilter:
        """Return the filter of the request, or of the group's heartbeats."""
        if header.sys_flag & _SUBSCRIPTION:
            return self._subscriptions.from_request(
                header.topic, header.subscription, header.expression_type, header.sub_version
            )
        return self._subscriptions.from_heartbeats(header.consumer_group, header.topic, header.sub_version)
