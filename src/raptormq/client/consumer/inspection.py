"""Handling of administrative requests that reach a consumer through its broker: reset of offsets (220), offsets (221),
running information (307), consumption of one message (309).

`ConsumerInspection` handles the requests for the consumers of one client. `dump_stacks` returns the stacks of the
threads and tasks of this process, which `mqadmin consumerStatus -s` shows. The text has the form of RocketMQ's
`UtilAll.jstack`: one line for each thread or task, then one line for each call, innermost first.

See also: `consumer.group_member` and `consumer.pop_member` attach a `ConsumerInspection` to their
`cluster.client_instance`. Source: RocketMQ `ClientRemotingProcessor`, `ConsumerRunningInfo`,
`ConsumeMessageDirectlyResult`, `UtilAll.jstack`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import CoroutineType, FrameType
from typing import Any, Protocol, runtime_checkable

from raptormq.client.cluster import ClientInstance
from raptormq.client.consumer.listener_call import EagerCoroutine
from raptormq.client.message import decode_messages
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.bodies.queue_offsets import decode_offsets, encode_progress
from raptormq.protocol.bodies.queues import queue_to_dict
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.relay import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerRunningInfoRequestHeader,
    ConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused

MAX_TASKS = 500
"""Maximum number of tasks in a dump. For further tasks only the number is included."""
_MAX_CALLS = 50


def dump_stacks() -> str:
    """Return the stacks of all threads and of all tasks of the running loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no public function
        lines += _format_stack(names.get(ident, "?"), f"TID: {ident}", _callers(frame))
    tasks = asyncio.all_tasks()
    for task in sorted(tasks, key=asyncio.Task.get_name)[:MAX_TASKS]:
        lines += _format_stack(task.get_name(), "TASK", _awaiting(task))
    if len(tasks) > MAX_TASKS:
        lines.append(f"and {len(tasks) - MAX_TASKS} more tasks")
    return "\n".join(lines) + "\n"


def _callers(frame: FrameType | None) -> Iterable[FrameType]:
    for _ in range(_MAX_CALLS):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _awaiting(task: asyncio.Task[object]) -> Iterable[FrameType]:
    """Return the frames of the coroutines of a task that await each other, which `Task.get_stack` does not follow."""
    frames: list[FrameType] = []
    awaited: object = task.get_coro()
    while isinstance(awaited, CoroutineType) and awaited.cr_frame is not None and len(frames) < _MAX_CALLS:
        frames.append(awaited.cr_frame)
        awaited = awaited.cr_await
        if isinstance(awaited, EagerCoroutine):  # the coroutine of a listener
            awaited = awaited.coroutine
    return reversed(frames)


def _format_stack(name: str, kind: str, frames: Iterable[FrameType]) -> list[str]:
    calls = [f"{name:<40}  {frame.f_code.co_qualname}({frame.f_code.co_filename}:{frame.f_lineno})" for frame in frames]
    return [f"{name:<40}  {kind}", *calls, ""]


@dataclass(frozen=True, slots=True)
class QueueState:
    """Offsets and unfinished messages of one queue, and the times of its last events in ms since 1970."""

    commit_offset: int
    next_offset: int
    unfinished_messages: int
    unfinished_bytes: int
    is_locked: bool
    """Whether an ordered consumer may start calls as far as the queue lock is concerned; False for others."""
    last_lock_ms: int
    last_pull_ms: int
    last_consume_ms: int
    """Last begin or end of a call."""


@dataclass(frozen=True, slots=True)
class PoppedState:
    """Popped messages of one queue."""

    unsettled_messages: int
    last_pop_ms: int
    """Time of the last pop in ms since 1970, by the clock of the broker."""


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """The state of a consumer."""

    queues: Mapping[MessageQueue, QueueState]
    subscriptions: list[Subscription]
    properties: dict[str, str] = field(default_factory=dict)
    popped: Mapping[MessageQueue, PoppedState] = field(default_factory=dict)

    def to_json(self, stacks: str | None = None) -> bytes:
        """Return the response to 307; its tables of queues are keyed by objects, as Java reads them."""
        table = dump_object_keyed((queue_to_dict(queue), _queue_to_dict(state)) for queue, state in self.queues.items())
        popped = dump_object_keyed((queue_to_dict(queue), _popped_to_dict(each)) for queue, each in self.popped.items())
        rest: dict[str, Any] = {
            "properties": self.properties,
            "statusTable": {},
            "subscriptionSet": [subscription.to_dict() for subscription in self.subscriptions],
            "userConsumerInfo": {},
        }
        if stacks is not None:
            rest["jstack"] = stacks
        return dumps(rest)[:-1] + b',"mqTable":' + table + b',"mqPopTable":' + popped + b"}"


def common_properties(instance: ClientInstance, consume_type: str, started_ms: int, *, orderly: bool) -> dict[str, str]:
    """Return the properties that the running information of every consumer has."""
    return {
        "PROP_CLIENT_VERSION": "V5_3_3",
        "PROP_CONSUMEORDERLY": "true" if orderly else "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_NAMESERVER_ADDR": ";".join(instance.config.addresses),
    }


@runtime_checkable
class InspectedConsumer(Protocol):
    """A consumer that can be inspected."""

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at the given offsets. Must not block."""

    def running_info(self) -> RunningInfo:
        """Describe the state of the consumer."""

    async def consume_directly(self, message: MessageExt) -> tuple[str, str]:
        """Call the listener; return RocketMQ's name of the result, and a remark."""


class ConsumerInspection:
    """Answers inspection requests for the consumers of one client."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        router = instance.router
        router.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader, self.reset)
        router.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ConsumerStatusRequestHeader, self.consumer_status)
        router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader, self.running_info)
        router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, self.consume_directly)

    def reset(self, _: Connection, command: RemotingCommand, header: ResetOffsetRequestHeader) -> RemotingCommand:
        """Handle 220: continue at the offsets in the body."""
        offsets = decode_offsets(command.body)
        self._consumer(header.group).reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
        )
        return response_to(command)

    def consumer_status(
        self, _: Connection, command: RemotingCommand, header: ConsumerStatusRequestHeader
    ) -> RemotingCommand:
        """Handle 221: return the consumer's committed offsets in the queues of a topic."""
        queues = self._consumer(header.group).running_info().queues
        offsets = {queue: state.commit_offset for queue, state in queues.items() if queue.topic == header.topic}
        return response_to(command, body=encode_progress(offsets))

    def running_info(
        self, _: Connection, command: RemotingCommand, header: ConsumerRunningInfoRequestHeader
    ) -> RemotingCommand:
        """Handle 307: return queues, subscriptions and settings of the consumer, optionally with the stacks of its
        threads and tasks."""
        stacks = dump_stacks() if header.jstack_enable else None
        return response_to(command, body=self._consumer(header.consumer_group).running_info().to_json(stacks))

    async def consume_directly(
        self, _: Connection, command: RemotingCommand, header: ConsumeMessageDirectlyRequestHeader
    ) -> RemotingCommand:
        """Handle 309: consume the message in the body now, without a commit and without a redelivery."""
        consumer = self._consumer(header.consumer_group)
        queue = MessageQueue(header.topic or "", header.broker_name or "", 0)
        messages = decode_messages(command.body, queue, keys=self._instance.config.keys)
        if not messages:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the request has no message")
        # The record may be a batch: the id selects one of its messages.
        message = next((each for each in messages if each.message_id == header.msg_id), messages[0])
        started = time.monotonic()
        result, remark = await consumer.consume_directly(message)
        value = {
            "autoCommit": True,
            "consumeResult": result,
            "order": False,
            "remark": remark,
            "spentTimeMills": int((time.monotonic() - started) * 1000),
        }
        return response_to(command, body=dumps(value))

    def _consumer(self, group: str) -> InspectedConsumer:
        member: object = self._instance.consumer(group)
        if not isinstance(member, InspectedConsumer):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return member


def _queue_to_dict(state: QueueState) -> dict[str, Any]:
    largest = state.next_offset - 1 if state.unfinished_messages else 0
    return {
        "cachedMsgCount": state.unfinished_messages,
        "cachedMsgMaxOffset": largest,
        "cachedMsgMinOffset": state.commit_offset if state.unfinished_messages else 0,
        "cachedMsgSizeInMiB": state.unfinished_bytes >> 20,
        "commitOffset": state.commit_offset,
        "droped": False,
        "lastConsumeTimestamp": state.last_consume_ms,
        "lastLockTimestamp": state.last_lock_ms,
        "lastPullTimestamp": state.last_pull_ms,
        "locked": state.is_locked,
    }


def _popped_to_dict(state: PoppedState) -> dict[str, Any]:
    return {"droped": False, "lastPopTimestamp": state.last_pop_ms, "waitAckCount": state.unsettled_messages}
