"""The declarations of the requests that a broker answers: :mod:`raptormq.broker.requests`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from raptormq.broker.ha.history_guard import HistoryGuard
from raptormq.broker.ha.slave_guard import master_only
from raptormq.broker.replication.follower_guard import leader_only
from raptormq.broker.replication.forwarding import Forwarding
from raptormq.broker.requests import REQUESTS, By
from raptormq.errors import NotLeader
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router, Taken
from tests.broker.ha.pair import pair
from tests.broker.harness import assembly_of, running
from tests.broker.replication.test_brokers import group

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "requests.md").read_text(encoding="utf-8")
CONNECTION = cast(Connection, object())


class Answered(NamedTuple):
    """Which brokers answer a request; see :class:`~raptormq.broker.requests.By`."""

    follower: bool
    slave_code: int | None
    is_withheld: bool


EXPECTED = {
    Answered(follower=False, slave_code=14, is_withheld=True): {
        10,
        36,
        41,
        42,
        310,
        320,
        323,
        324,
        325,
        3001,
        3002,
        3003,
        3006,
        3007,
        3008,
        30320,
        31031,
        31032,
        200050,
        200051,
        200053,
        200151,
    },
    Answered(follower=False, slave_code=11, is_withheld=True): {
        37,
        370,
    },
    Answered(follower=True, slave_code=None, is_withheld=True): {
        11,
        361,
    },
    Answered(follower=True, slave_code=None, is_withheld=False): {
        12,
        21,
        25,
        26,
        28,
        32,
        33,
        34,
        35,
        38,
        43,
        45,
        46,
        60,
        61,
        201,
        202,
        203,
        204,
        208,
        223,
        300,
        303,
        305,
        306,
        307,
        309,
        315,
        317,
        321,
        328,
        329,
        343,
        345,
        351,
        352,
        400,
        402,
        906,
        907,
        1002,
        1005,
        1006,
        1007,
        1009,
        1010,
        1011,
        3004,
        3005,
        3009,
        3010,
        31011,
        31012,
        31014,
        31015,
        31021,
        31022,
        200052,
        200054,
        200055,
    },
    Answered(follower=False, slave_code=None, is_withheld=True): {
        14,
        15,
        29,
        30,
        31,
    },
    Answered(follower=True, slave_code=1, is_withheld=False): {
        31001,
    },
    Answered(follower=False, slave_code=1, is_withheld=True): {
        17,
        18,
        200,
        207,
        215,
        222,
        225,
        314,
        316,
        353,
        401,
        5002,
        5003,
    },
}
"""Codes of requests, independent of the declarations. A change of this table changes what clients observe."""

FORWARDED = {10, 14, 15, 29, 30, 31, 36, 37, 310, 320, 370, 30320}


def refused_by(guard: Callable[[Connection, RemotingCommand], Any], code: int) -> int | None:
    """Return the response code of a refusal; None if the guard admits the request."""
    answer = guard(CONNECTION, RemotingCommand(code))
    assert not isinstance(answer, Taken)
    return None if answer is None else answer.code


def withholding() -> HistoryGuard:
    """Return the guard of a master that does not serve."""
    guard = HistoryGuard.__new__(HistoryGuard)
    guard.reason = "another copy has more messages"
    return guard


@pytest.mark.parametrize("answered", EXPECTED, ids=str)
def test_guards_refuse_what_another_broker_answers(answered: Answered) -> None:
    reason = NotLeader("n1 leads")
    follower, slave, master = leader_only(lambda: reason, lambda *_: False), master_only(lambda: reason), withholding()
    for code in EXPECTED[answered]:
        assert refused_by(follower, code) == (None if answered.follower else 14)
        assert refused_by(slave, code) == answered.slave_code
        assert refused_by(master.refusal, code) == (14 if answered.is_withheld else None)


def test_every_declared_request_is_expected() -> None:
    assert {code for codes in EXPECTED.values() for code in codes} == REQUESTS.keys()


def test_a_former_leader_forwards_what_does_not_depend_on_the_connection() -> None:
    forwarding = Forwarding.__new__(Forwarding)
    forwarding._held_bytes, forwarding._held, forwarding._search = 0, [], cast(Any, object())
    taken = {int(code) for code in RequestCode if forwarding.accept(CONNECTION, RemotingCommand(code))}
    assert taken == FORWARDED


def served_by(router: Router) -> set[int]:
    return {int(code) for code in (*router._handlers, *router._batch_handlers)}


async def test_every_request_that_a_broker_serves_is_declared(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with running(tmp_path / "alone") as broker:
        assert served_by(assembly_of(broker).router) == REQUESTS.keys()
    async with group(tmp_path / "group", free_ports(1)) as brokers:
        assert served_by(assembly_of(brokers["n0"]).router) <= REQUESTS.keys()
    async with pair(tmp_path / "pair", free_ports(2)) as others:
        for broker in (await others.master(), await others.slave()):
            assert served_by(assembly_of(broker).router) <= REQUESTS.keys()


def listed(codes: Iterable[int]) -> str:
    return ", ".join(str(int(code)) for code in sorted(codes))


def test_the_page_lists_which_broker_answers() -> None:
    rows = []
    for by in By:
        slave = "yes" if by.slave_code is None else f"no: {int(by.slave_code)}"
        withheld = "no: 14" if by.is_withheld else "yes"
        codes = listed(code for code, each in REQUESTS.items() if each.answered_by is by)
        rows.append(f"| {'yes' if by.follower else 'no: 14'} | {slave} | {withheld} | {codes} |")
    section = re.search(r"^## Which broker answers\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert [row for row in section[1].splitlines() if row.startswith("| ")][1:] == rows
    assert f"forwards {listed(code for code, each in REQUESTS.items() if each.is_forwarded)} to" in section[1]
