"""A producer of transactions: it sends half messages, commits or rolls back, and answers checks."""

from __future__ import annotations

import asyncio

from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message_id import parse_offset_id
from raptormq.storage.store import now_ms
from tests.broker.harness import Peer

PREPARED = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01K1\x02TAGS\x01a\x02"
QUICK = {"transactionTimeOut": "1", "transactionCheckInterval": "100", "transactionCheckMax": "2"}
NEVER = {"transactionCheckInterval": "86400000"}
COMMIT, ROLLBACK = 8, 12


async def prepare(peer: Peer, body: bytes = b"x", properties: str = PREPARED, age_ms: int = 0) -> RemotingCommand:
    sent = await peer.send("t", body, 2, properties, f=4, g=now_ms() - age_ms)
    assert sent.code == 0, sent.remark
    return sent


async def end(peer: Peer, sent: RemotingCommand, decision: int, **changes: object) -> RemotingCommand:
    fields: dict[str, object] = {
        "producerGroup": "producers",
        "tranStateTableOffset": sent.ext_fields["queueOffset"],
        "commitLogOffset": parse_offset_id(sent.ext_fields["msgId"]).physical_offset,
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "K1",
    }
    return await peer.call(RequestCode.END_TRANSACTION, fields | changes)


async def question(peer: Peer) -> RemotingCommand:
    while True:
        notice = await asyncio.wait_for(peer.notices.get(), 20)
        if notice.code == RequestCode.CHECK_TRANSACTION_STATE:
            return notice


async def announce(peer: Peer, client_id: str = "p1") -> None:
    await peer.call(RequestCode.HEART_BEAT, None, HeartbeatData(client_id, ["producers"], []).to_json())


async def answer(peer: Peer, asked: RemotingCommand, decision: int) -> RemotingCommand:
    fields = {name: asked.ext_fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
    decided = {"producerGroup": "producers", "commitOrRollback": decision, "fromTransactionCheck": "true"}
    return await peer.call(RequestCode.END_TRANSACTION, fields | decided)
