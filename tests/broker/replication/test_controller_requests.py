"""Controller requests of mqadmin to members of a group, and to a broker without replication."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.errors import BodyError
from raptormq.protocol.bodies.controller import decode_broker_names, encode_epochs
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import Peer, connected, running
from tests.broker.replication.test_brokers import LOOK_S, become, group, leader_of, part_of, status_of

NAME = "broker-a"
Request = tuple[RequestCode, dict[str, str], bytes]
QUESTIONS: tuple[Request, ...] = (
    (RequestCode.CONTROLLER_ELECT_MASTER, {"brokerName": NAME, "brokerId": "2", "designateElect": "true"}, b""),
    (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, b'["broker-a"]'),
    (RequestCode.CLEAN_BROKER_DATA, {"brokerName": NAME, "brokerControllerIdsToClean": "2"}, b""),
)
"""Requests that only the leader serves."""
FOR_ALL: tuple[Request, ...] = (
    (RequestCode.CONTROLLER_GET_METADATA_INFO, {}, b""),
    (RequestCode.GET_BROKER_EPOCH_CACHE, {}, b""),
    (RequestCode.GET_CONTROLLER_CONFIG, {}, b""),
    (RequestCode.UPDATE_CONTROLLER_CONFIG, {}, b"a=b\n"),
)


async def test_a_broker_without_a_group_has_no_controller(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for code, fields, body in QUESTIONS + FOR_ALL:
            answer = await peer.call(code, fields, body)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == "broker broker-a is not a member of a Dledger group"


async def refused(peer: Peer, code: int, fields: dict[str, str], body: bytes = b"") -> str:
    answer = await peer.call(code, fields, body)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    return answer.remark or ""


async def test_members_name_the_leader_which_alone_does_the_rest(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    async with group(tmp_path, free_ports(3)) as brokers:
        await become(lambda: bool(leader_of(brokers)))
        leader = leader_of(brokers)
        follower, other = (member for member in brokers if member != leader)
        await become(lambda: all(part_of(brokers[member]).member.leader == leader for member in brokers))
        await become(lambda: all(member.active for member in status_of(brokers[leader]).members))
        elect, clean = RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CLEAN_BROKER_DATA
        async with connected(brokers[leader]) as peer, connected(brokers[follower]) as its:
            for member, asked in ((leader, peer), (follower, its)):
                fields = (await asked.call(RequestCode.CONTROLLER_GET_METADATA_INFO)).ext_fields
                assert (fields["controllerLeaderId"], fields["controllerLeaderAddress"]) == (
                    leader,
                    brokers[leader].address,
                )
                assert fields["isLeader"] == ("true" if member == leader else "false")
                epochs = json.loads((await asked.call(RequestCode.GET_BROKER_EPOCH_CACHE)).body)
                assert epochs["brokerId"] == (0 if member == leader else int(member[1:]) + 1)
                assert [each["epoch"] for each in epochs["epochList"]][-1] == status_of(brokers[leader]).term
                assert epochs["epochList"][-1]["endOffset"] == epochs["maxOffset"]
            for code, wanted, body in QUESTIONS:
                answer = await its.call(code, wanted, body)
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert f"member {leader} (127.0.0.1:" in (answer.remark or "")
            assert "not of 'another'" in await refused(peer, elect, {"brokerName": "another", "brokerId": "1"})
            assert "no member has the id 9" in await refused(peer, elect, {"brokerName": NAME, "brokerId": "9"})
            assert "expected the ids" in await refused(peer, clean, {"brokerName": NAME})
            assert "removed only with -l" in await refused(
                peer, clean, {"brokerName": NAME, "brokerControllerIdsToClean": f"{int(other[1:]) + 1}"}
            )
            states = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
            assert "which is not asked for" in await refused(peer, states, {}, b'["another"]')

            itself = {"brokerName": NAME, "brokerId": str(int(leader[1:]) + 1), "designateElect": "true"}
            answer = await peer.call(elect, itself)
            assert (answer.code, answer.ext_fields["masterAddress"]) == (0, brokers[leader].address)
            assert leader_of(brokers) == leader

            await brokers.pop(other).stop()
            while True:
                info = json.loads((await peer.call(states, {}, b'["broker-a"]')).body)["replicasInfoTable"][NAME]
                if len(info["notInSyncReplicas"]) == 1:
                    break
                await asyncio.sleep(LOOK_S)
            assert info["notInSyncReplicas"][0]["brokerId"] == int(other[1:]) + 1
            assert info["notInSyncReplicas"][0]["alive"] is False
            assert sorted(each["brokerAddress"] for each in info["inSyncReplicas"]) == sorted(
                broker.address for broker in brokers.values()
            )
            answer = await peer.call(elect, {"brokerName": NAME, "brokerId": "-1"})
            assert answer.code == 0, answer.remark
            await become(lambda: leader_of(brokers) == follower)
            assert answer.ext_fields["masterBrokerId"] == str(int(follower[1:]) + 1)
            assert json.loads(answer.body)["brokerAddrs"]["0"] == brokers[follower].address


def test_each_term_ends_where_the_next_one_begins() -> None:
    found = json.loads(encode_epochs("c", "b", 1, [(1, 0), (4, 700)], 900))
    ranges = [(each["epoch"], each["startOffset"], each["endOffset"]) for each in found["epochList"]]
    assert ranges == [(1, 0, 700), (4, 700, 900)]
    assert json.loads(encode_epochs("c", "b", 1, [], 0))["epochList"] == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"x"])
def test_what_is_no_list_of_names_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode_broker_names(body)
