"""Encodes responses to sends.

JSON headers are formatted with a template, because the generic encoder takes longer than the append. The generic
encoder serves the binary format ROCKETMQ, which few clients use. Every successful response has ``extFields``, because
Java clients dereference it without a check. ``msgId`` is the offset id of the record. The response to a list has one id
per record, separated by commas. The response to a batch that is stored as one record has one id and ``batchUniqId``.
"""

from __future__ import annotations

import struct

from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.protocol.command import PROTOCOL_VERSION, CommandFlag, RemotingCommand, encode, response_to
from raptormq.protocol.headers.send import QueueBatchesResponseHeader, SendMessageResponseHeader
from raptormq.storage.queue import Appended

_FRAME_HEAD = struct.Struct(">ii")
_ONEWAY = int(CommandFlag.ONEWAY)


class SendAnswers:
    """Encodes the send responses of one broker."""

    def __init__(self, store_host: bytes, region_id: str, *, trace_on: bool) -> None:
        self._prefix = store_host.hex().upper()
        self._region_id = region_id
        self._trace_on = trace_on
        self.queue_batches = QueueBatchesResponseHeader(region_id, trace_on)
        """Header of all responses to sends for several queues."""
        plain = region_id.isascii() and region_id.replace("-", "").replace("_", "").isalnum()
        self._template = _template(self._prefix, region_id, trace_on) if plain else None

    def encode_group(
        self,
        admitted: list[AcceptedSend],
        result: Appended,
        code: int,
        remark: str = "",
        *,
        waiting: bool | None = None,
    ) -> bytes:
        """Return the concatenated response frames of a stored group, without oneway requests.

        ``waiting`` selects requests: True those with WAIT=true, False those with WAIT=false, None all.
        """
        frames: list[bytes] = []
        places, queue_offsets = result.physical_offsets, result.queue_offsets
        template, pack_head = self._template, _FRAME_HEAD.pack
        index = 0
        for request, _, _, count, queue_id, unique_key, wait, handle, in_batch, _ in admitted:
            first = index
            index += count
            if request.flag & _ONEWAY or (waiting is not None and wait is not waiting):
                continue
            place, queue_offset = places[first], queue_offsets[first]
            more = b"" if count == 1 else self._ids_of(places[first + 1 : index])
            if (
                template is None
                or request.serialize_type
                or remark
                or handle
                or not (unique_key.isalnum() or not unique_key)
            ):
                message_id = f"{self._prefix}{place:016X}{more.decode()}"
                fields = message_id, queue_id, queue_offset, unique_key or None, handle or None
                frames.append(self._generic(request, code, remark, fields, is_batch=in_batch > 0))
                continue
            ids = unique_key if not in_batch else f'{unique_key}","batchUniqId":"{unique_key}'
            header = template % (code, place, more, queue_id, queue_offset, ids.encode(), request.opaque)
            frames += pack_head(len(header) + 4, len(header)), header
        return b"".join(frames)

    def offset_ids(self, places: list[int]) -> str:
        """Return the offset ids of log offsets, separated by commas."""
        if len(places) == 1:
            return f"{self._prefix}{places[0]:016X}"
        return self._ids_of(places)[1:].decode()

    def _ids_of(self, places: list[int]) -> bytes:
        """Return the offset ids of log offsets, each preceded by a comma."""
        hexadecimal = struct.pack(f">{len(places)}q", *places).hex(",", 8).upper()
        return f",{self._prefix}{hexadecimal.replace(',', f',{self._prefix}')}".encode()

    def _generic(
        self,
        request: RemotingCommand,
        code: int,
        remark: str,
        fields: tuple[str, int, int, str | None, str | None],
        *,
        is_batch: bool,
    ) -> bytes:
        message_id, queue_id, queue_offset, unique_key, recall_handle = fields
        header = SendMessageResponseHeader(
            message_id,
            queue_id,
            queue_offset,
            transaction_id=unique_key,
            batch_uniq_id=unique_key if is_batch else None,
            recall_handle=recall_handle,
            region_id=self._region_id,
            trace_on=self._trace_on,
        )
        return encode(response_to(request, code, remark or None, header))


def _template(prefix: str, region_id: str, trace_on: bool) -> bytes:
    return (
        '{"code":%d,"extFields":{'
        f'"MSG_REGION":"{region_id}","TRACE_ON":"{str(trace_on).lower()}",'
        f'"msgId":"{prefix}%016X%b",'
        '"queueId":"%d","queueOffset":"%d","transactionId":"%b"},'
        f'"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
    ).encode()
