"""Runs the cases of `raw_cases`, and incorrectly ended transactions, against a broker: the client "raw".

The outcome of a case is the code and the remark of the response. Parts of remarks that differ in every run (addresses,
times) are replaced. Of a Java exception only the code is compared.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from raptormq.client import AdminClient
from raptormq.errors import TransportError
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.message_id import parse_offset_id
from tests.interop import raw_cases
from tests.interop.outcomes import EXCEPTION
from tests.interop.raw_cases import COUNT, GROUP, HUGE, TOPIC, Case
from tests.interop.raw_peer import RawPeer, broker_address, connected

SCENARIOS = {
    "BadHeaders": raw_cases.HEADERS,
    "BadOffsets": raw_cases.OFFSETS,
    "BadFilters": raw_cases.FILTERS,
    "BadNames": raw_cases.NAMES,
    "BadPops": raw_cases.POPS,
}
TRANSACTIONS = "BadTransactions"
NO_ANSWER_S = 1.0
COMMIT, ROLLBACK = 8, 12
_PREPARED = 4
_VARYING = [
    (re.compile(r"\d+\.\d+\.\d+\.\d+(:\d+)?"), "<address>"),
    (re.compile(r"(?:Cannot invoke \"|(?:java|com|org)[\w.$]*(?:Exception|Error)\b).*", re.DOTALL), EXCEPTION),
    (re.compile(r"\s*See https://.*", re.DOTALL), ""),
    (re.compile("^not set any response code$"), ""),
]


def play_raw(name_servers: str, chosen: list[str]) -> dict[str, dict[str, Any]]:
    """Run the named scenarios, or all. Return lines in the format of the other clients."""
    names = [*SCENARIOS, TRANSACTIONS] if chosen == ["all"] else chosen
    return asyncio.run(_play(name_servers, names))


async def _play(name_servers: str, names: list[str]) -> dict[str, dict[str, Any]]:
    lines = {}
    address = await broker_address(name_servers)
    async with connected(address) as peer:
        await _prepare(peer, name_servers)
        for name in names:
            begin = time.monotonic()
            outcome = await _transactions(peer) if name == TRANSACTIONS else await _cases(peer, SCENARIOS[name])
            seconds = round(time.monotonic() - begin, 3)
            lines[f"raw/{name}"] = {"scenario": name, "seconds": seconds, "outcome": outcome}
    return lines


async def _prepare(peer: RawPeer, name_servers: str) -> None:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, 2, 2)
    await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": GROUP}).encode())
    end: RemotingCommand | None = None
    while end is None or int(end.ext_fields.get("offset", 0)) < COUNT:  # stored, and in the queue
        if end is None:
            for _ in range(COUNT):
                await peer.call(RequestCode.SEND_MESSAGE_V2, raw_cases.send(), b"x")
        end = await peer.call(RequestCode.GET_MAX_OFFSET, raw_cases.place())


async def _cases(peer: RawPeer, cases: Mapping[str, Case]) -> dict[str, list[Any] | str]:
    return {name: await _answer(peer, *case) for name, case in cases.items()}


async def _answer(
    peer: RawPeer, code: int, fields: Mapping[str, object], body: bytes = b"", answered: bool = True
) -> list[Any] | str:
    try:
        answer = await peer.call(code, fields, body, timeout=10 if answered else NO_ANSWER_S)
    except TransportError:
        return "no answer"
    return [answer.code, comparable(answer.remark)]


def comparable(remark: str | None) -> str:
    """Return a remark without the parts that differ in every run."""
    text = remark or ""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text


async def _transactions(peer: RawPeer) -> dict[str, list[Any] | str]:
    """End transactions that were not begun, transactions of other producers, and transactions twice."""
    ordinary = await peer.call(RequestCode.SEND_MESSAGE_V2, raw_cases.send(), b"x")
    outcome: dict[str, list[Any] | str] = {}

    async def end(name: str, place: Mapping[str, object], answered: bool = True, **more: object) -> None:
        fields = {"producerGroup": "raw", "commitOrRollback": COMMIT, "fromTransactionCheck": "false", "msgId": "m"}
        outcome[name] = await _answer(peer, RequestCode.END_TRANSACTION, {**fields, **place, **more}, b"", answered)

    for name, decision in (("commit", COMMIT), ("rollback", ROLLBACK)):
        nowhere = {"commitLogOffset": 1 << 50, "tranStateTableOffset": 0, "commitOrRollback": decision}
        await end(f"{name}, nothing is there", nowhere)
        await end(f"{name}, before the log", nowhere | {"commitLogOffset": -1})
        await end(f"{name}, an ordinary message", _place_of(ordinary), commitOrRollback=decision)
        await end(f"{name}, another group", await _half(peer), producerGroup="another", commitOrRollback=decision)
        await end(
            f"{name}, another offset in the queue",
            await _half(peer),
            tranStateTableOffset=HUGE,
            commitOrRollback=decision,
        )
        await end(f"{name}, right", half := await _half(peer), commitOrRollback=decision)
        await end(f"{name}, once more", half, commitOrRollback=decision)
    await end("neither commit nor rollback", await _half(peer), answered=False, commitOrRollback=0)
    await end("a decision that there is not", await _half(peer), answered=False, commitOrRollback=5)
    return outcome


async def _half(peer: RawPeer) -> dict[str, object]:
    """Begin a transaction. Return the fields that identify it at its end."""
    properties = "TRAN_MSG\x01true\x02PGROUP\x01raw\x02UNIQ_KEY\x01raw\x02"
    return _place_of(await peer.call(RequestCode.SEND_MESSAGE_V2, raw_cases.send(f=_PREPARED, i=properties), b"half"))


def _place_of(sent: RemotingCommand) -> dict[str, object]:
    offset = parse_offset_id(sent.ext_fields["msgId"]).physical_offset
    return {"commitLogOffset": offset, "tranStateTableOffset": sent.ext_fields["queueOffset"]}
