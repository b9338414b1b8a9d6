"""Requests for several queues of one broker, and their attempts (code 30320, `raptormq.protocol.queue_batches`).

What `delivery` does for one message is done here for all parts of a request: the parts that another attempt may cure
are tried again; so are all of them where the broker has too much to do. Every part belongs to a queue, so there is
nowhere else to go. A broker that does not know such requests is remembered for a while; what was meant for it is sent
part by part.
Neighbours: `accumulator` says what leaves together, `batch_sending` and `sealing` say in which form.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from raptormq.client.attempts import Attempts
from raptormq.client.config import ProducerConfig
from raptormq.client.delivery import STATUSES, Delivery, master_of, may_succeed_later
from raptormq.client.departures import IsWanted, Outcome, Parcel, Settle
from raptormq.client.in_flight import InFlight
from raptormq.client.instance import ClientInstance
from raptormq.client.outgoing import Outgoing
from raptormq.client.refusals import Refusals
from raptormq.client.results import SendResult
from raptormq.errors import NoRoute, RaptorMQError, ServerError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.send import QueueBatchesRequestHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.queue_batches import (
    TOPIC_SEPARATOR,
    Part,
    PartAnswer,
    PartKind,
    decode_answers,
    encode_parts,
)
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC


class Shipping:
    """Sends for one producer group.

    Args:
        form: the last change before a parcel leaves (compression or encryption of a whole batch).
    """

    def __init__(
        self,
        instance: ClientInstance,
        delivery: Delivery,
        group: str,
        config: ProducerConfig,
        form: Callable[[Outgoing, MessageQueue], Outgoing],
    ) -> None:
        self._pool = instance.pool
        self._routes = instance.routes
        self._in_flight = instance.shared(InFlight.of)
        self._delivery = delivery
        self._group = group
        self._config = config
        self._form = form
        self._refusals = Refusals()

    def serves(self, broker_name: str) -> bool:
        """Whether the broker is worth a try."""
        return broker_name not in self._refusals

    async def send(self, parcels: dict[int, Parcel], timeout: float, settle: Settle, is_wanted: IsWanted) -> None:
        """Send parcels for one broker. Each is taken out and settled as soon as no further attempt would change what
        became of it, or nobody wants one: nobody waits for another topic, which may be read-only.

        Raises:
            ServerError: the broker does not take the request, it answered nothing of what is left; `serves` tells why.
        """
        clock = asyncio.get_running_loop().time
        for number, (outgoing, queue) in list(parcels.items()):
            try:
                parcels[number] = self._form(outgoing, queue), queue
            except Exception as error:  # noqa: BLE001 - no memory to compress it, no key: no matter of the others
                del parcels[number]
                settle(number, error)
        deadline = clock() + timeout  # not before: compressing is no fault of the broker's
        attempts = Attempts(self._config.retries, deadline, clock)
        while parcels:
            outcomes = await self._attempt(tuple(parcels.values()), attempts.seconds(), deadline)
            failed: dict[int, RaptorMQError] = {}
            for number, outcome in zip(tuple(parcels), outcomes, strict=True):
                if isinstance(outcome, RaptorMQError) and may_succeed_later(outcome):
                    failed[number] = outcome
                else:
                    del parcels[number]
                    settle(number, outcome)
            goes_on = bool(failed) and await self._another(parcels, failed, attempts, deadline)
            for number, cause in failed.items():
                if not (goes_on and is_wanted(number)):
                    del parcels[number]
                    settle(number, cause)

    async def _another(
        self, parcels: Mapping[int, Parcel], failed: Mapping[int, RaptorMQError], attempts: Attempts, deadline: float
    ) -> bool:
        """Whether there is another attempt for what has failed; its time has come then."""
        # A topic that the client knows decides: what is wrong with another one may be wrong with that alone.
        chosen_by = next((each for each in failed if self._routes.known(parcels[each][0].topic)), next(iter(failed)))
        topic = parcels[chosen_by][0].topic
        pause = attempts.another(found_nobody=self._delivery.found_nobody(topic, failed[chosen_by]))
        if pause is None:
            return False
        await asyncio.sleep(pause)
        with contextlib.suppress(RaptorMQError):  # the next attempt will say so
            await self._delivery.refresh(topic, (deadline - asyncio.get_running_loop().time()) / 2)
        return True

    async def _attempt(self, parcels: Sequence[Parcel], left: float, deadline: float) -> Sequence[Outcome]:
        """Send once; an error of the way there is the outcome of all, but that no broker was found has a cause for each
        topic.
        """
        size = sum(len(outgoing.body) for outgoing, _ in parcels)
        clock = asyncio.get_running_loop().time
        end = clock() + left
        address = await self._address(parcels, end)
        if not isinstance(address, str):
            return self._failed(parcels, [address[outgoing.topic] for outgoing, _ in parcels])
        try:
            command = self._request(parcels)
            if not self._in_flight.try_take(size):
                await self._delivery.take_room(size, deadline)
            try:
                answer = await self._pool.request(address, command, max(end - clock(), 0.0))
            finally:
                self._in_flight.give_back(size)
            if answer.code != ResponseCode.SUCCESS:
                raise ServerError(answer.code, answer.remark, address)
            answers = decode_answers(answer.body, len(parcels))
        except ServerError as error:
            if error.code == ResponseCode.SYSTEM_BUSY:  # a request per part would make it more so
                return [error] * len(parcels)
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._refusals.note(parcels[0][1].broker_name)
            raise
        except RaptorMQError as error:
            return self._failed(parcels, [error] * len(parcels))
        return [
            self._outcome(outgoing, queue, part, address)
            for (outgoing, queue), part in zip(parcels, answers, strict=True)
        ]

    def _failed(self, parcels: Sequence[Parcel], causes: Sequence[RaptorMQError]) -> Sequence[Outcome]:
        """Note, once for each topic, what parcels have failed with, and return it."""
        now = asyncio.get_running_loop().time()
        by_topic = {outgoing.topic: (queue, cause) for (outgoing, queue), cause in zip(parcels, causes, strict=True)}
        for topic, (queue, cause) in by_topic.items():
            self._delivery.note_failure(topic, queue, cause, now)
        return causes

    async def _address(self, parcels: Sequence[Parcel], end: float) -> str | dict[str, RaptorMQError]:
        """Return where the broker of the parcels is, or why it was not found, by topic.

        All topics have the same broker, so one that is known will do: nobody waits for a name server, or fails, because
        of another topic, which may not exist.
        """
        where, known, clock = parcels[0][1].broker_name, self._routes.known, asyncio.get_running_loop().time
        causes: dict[str, RaptorMQError] = {}
        unknown: list[str] = []
        for topic in dict.fromkeys(outgoing.topic for outgoing, _ in parcels):
            topic_queues = known(topic)
            if topic_queues is None or not topic_queues.write_queues:
                unknown.append(topic)
                continue
            try:
                return master_of(topic_queues, MessageQueue(topic, where, 0))
            except NoRoute as error:
                causes[topic] = error
        for topic in unknown:
            try:
                return master_of(await self._delivery.find(topic, end - clock()), MessageQueue(topic, where, 0))
            except RaptorMQError as error:
                causes[topic] = error
        return causes

    def _request(self, parcels: Sequence[Parcel]) -> RemotingCommand:
        topics: dict[str, int] = {}
        new, number_of, the_list = tuple.__new__, topics.setdefault, RequestCode.SEND_BATCH_MESSAGE
        parts = []
        for outgoing, queue in parcels:
            kind = PartKind.LIST if outgoing.code == the_list else PartKind.MESSAGE
            place = kind, number_of(outgoing.topic, len(topics)), queue.queue_id
            parts.append(new(Part, (*place, outgoing.sys_flag, outgoing.flag, outgoing.properties, outgoing.body)))
        header = QueueBatchesRequestHeader(
            self._group,
            TOPIC_SEPARATOR.join(topics),
            AUTO_CREATE_TOPIC,
            self._config.default_topic_queues,
            parcels[0][0].born_ms,
            parcels[0][1].broker_name,
        )
        return request(RequestCode.SEND_QUEUE_BATCHES, header, encode_parts(parts))

    def _outcome(self, outgoing: Outgoing, queue: MessageQueue, part: PartAnswer, address: str) -> Outcome:
        status = STATUSES.get(part.code)
        if status is None:
            if part.code == ResponseCode.TOPIC_NOT_EXIST and self._routes.known(outgoing.topic) is None:
                return NoRoute.to(outgoing.topic)  # as if it had been looked for
            self._delivery.note_refusal(outgoing, queue, part.code)
            return ServerError(part.code, part.text, address)
        self._delivery.note_success(outgoing, queue, whole=part.is_whole)
        if part.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, part.queue_id)
        fields = status, outgoing.message_id, part.text, queue, part.queue_offset, None
        return tuple.__new__(SendResult, fields)  # half the time of the constructor, which is a Python function
