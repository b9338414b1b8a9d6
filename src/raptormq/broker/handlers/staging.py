"""STAGE_BATCH (31031) stores a list of messages without delivering it. COMMIT_STAGED (31032) publishes the lists of a
batch. Apache RocketMQ does not have these requests. They are refused with 3 unless ``stagedMessagesEnable`` is true.

A list is validated like a send (320). The response contains the offset of the list in the staging queue, by which a
commit identifies the list. A retry after a lost response stores the list again under another offset. Lists that no
commit names are never delivered; retention deletes them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from raptormq.broker.config import BrokerConfig
from raptormq.broker.security.required_permissions import to_send
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.send_service import SendService
from raptormq.broker.staging.commit_record import CommitRecord, batch_name
from raptormq.broker.staging.staged_list import StagedList, staged
from raptormq.broker.staging.staging_service import StagingService
from raptormq.errors import BodyError
from raptormq.protocol.bodies.staging import decode_decision, encode_decision
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.staging import (
    CommitStagedRequestHeader,
    CommitStagedResponseHeader,
    StageBatchRequestHeader,
    StageBatchResponseHeader,
)
from raptormq.security.gate import Authorizer
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_QUERY = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PATIENCE_S = 2.0
"""Maximum time in seconds that a commit waits for the publication of its batch and for slaves. Clients time out after
3 s.
"""


class StagingHandlers:
    """Handles the requests for staged messages."""

    def __init__(
        self,
        sends: SendService,
        admission: Admission,
        staging: StagingService,
        authorizer: Authorizer | None,
        config: BrokerConfig,
        clock: Callable[[], int],
    ) -> None:
        self._sends = sends
        self._admission = admission
        self._staging = staging
        self._authorizer = authorizer
        self._config = config
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.STAGE_BATCH, StageBatchRequestHeader, self.stage)
        router.add(RequestCode.COMMIT_STAGED, CommitStagedRequestHeader, self.commit)

    async def stage(
        self, connection: Connection, command: RemotingCommand, header: StageBatchRequestHeader
    ) -> RemotingCommand:
        """Handle 31031: store the list and respond like a send, with 10, 11 or 12 if the flush or a copy timed out."""
        self._check(header.query, header.batch)
        send = RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, command.ext_fields, command.body, opaque=command.opaque)
        entry = self._admission.admit(send, self._sends.born_host(connection))
        name = batch_name(header.query, header.batch)
        record = staged(entry.pending, name)
        stored = entry._replace(pending=record, is_list=False, later_topic=header.topic)
        result = self._sends.append([stored], are_lists=False)
        place, stored_at = result.physical_offsets[0], result.store_timestamp
        staged_list = StagedList(name, entry.pending.topic, entry.pending.queue_id, stored_at, place)
        self._staging.note_staged(result.queue_offsets[0], staged_list)
        unsaved = self._sends.any_unsaved([stored])
        code = await self._sends.wait(result.end_offset, self._sends.leadership, unsaved=unsaved, waiting=True)
        return response_to(command, code, header=StageBatchResponseHeader(result.queue_offsets[0]))

    async def commit(
        self, connection: Connection, command: RemotingCommand, header: CommitStagedRequestHeader
    ) -> RemotingCommand:
        """Handle 31032: commit the batch and respond when it is published and slaves have it, or after 2 s. On a
        SYNC_MASTER the response has code 11 or 12, like that of a send, while slaves lack a published batch.

        A batch that cannot be published is refused with 604.
        """
        self._check(header.query, header.batch)
        if not self._config.policies.permission & Perm.WRITE:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is not writable (brokerPermission)")
        try:
            decision = decode_decision(command.body)
        except BodyError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        wanted = CommitRecord(header.query, header.batch, decision, self._clock(), topic=header.topic)

        def may_publish(topic: str) -> bool:
            return self._authorizer is None or self._authorizer(connection, command, to_send(topic))

        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        found = await self._staging.commit(wanted, may_publish, deadline)
        outcome = found.outcome
        if outcome is not None and outcome.lost:
            remark = (
                f"{outcome.lost} staged lists of batch {wanted.batch_name} were damaged or deleted before they were"
                " published"
            )
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        messages = self._staging.progress(header.query, header.batch) if outcome is None else outcome.messages
        answer = CommitStagedResponseHeader(outcome is not None, messages)
        code: int = ResponseCode.SUCCESS
        if outcome is not None:
            end = self._staging.published_end(header.query)
            try:
                async with asyncio.timeout_at(deadline):
                    code = await self._sends.wait(end, self._sends.leadership, unsaved=False, waiting=True)
            except TimeoutError:  # the published batch is confirmed, so only slaves lack it
                code = ResponseCode.FLUSH_SLAVE_TIMEOUT
        return response_to(
            command, code, header=answer, body=encode_decision(found.decision) if found.decision else b""
        )

    def _check(self, query: str, batch: int) -> None:
        if not self._config.staging.enabled:
            raise Refused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "this broker does not stage messages: set stagedMessagesEnable = true and restart it",
            )
        if not _QUERY.fullmatch(query) or batch < 0:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, "query is 1 to 128 letters, digits and _.:-, batch a number from 0 on"
            )
