"""Pages of topics and groups (21, 201), and deletions of several (5002, 5003), as RocketMQ 5.5 requests them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import Peer, connected, running

LISTS = {
    "topics": (RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq", "maxTopicNum", "totalTopicNum", "topicConfigTable"),
    "groups": (
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq", "maxGroupNum", "totalGroupNum",
        "subscriptionGroupTable",
    ),
}  # fmt: skip


async def create_topic(peer: Peer, topic: str) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": False,
    }  # fmt: skip
    assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0


async def create_group(peer: Peer, group: str) -> None:
    body = json.dumps({"groupName": group}).encode()
    assert (await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0


async def create(peer: Peer, kind: str, name: str) -> None:
    await (create_topic if kind == "topics" else create_group)(peer, name)


async def page(peer: Peer, kind: str, first: int, most: int | None, seen: Any = "") -> tuple[list[str], int, Any]:
    """Return the names of a page, the number of all names, and the version of the table."""
    code, first_field, most_field, total_field, member = LISTS[kind]
    fields: dict[str, object] = {first_field: first, "dataVersion": json.dumps(seen) if seen else ""}
    answer = await peer.call(code, fields | ({} if most is None else {most_field: most}))
    assert answer.code == 0, answer.remark
    body = json.loads(answer.body)
    return sorted(body[member]), int(answer.ext_fields[total_field]), body["dataVersion"]


@pytest.mark.parametrize("kind", LISTS)
async def test_pages_are_the_whole_list_in_the_order_of_names(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, {"splitMetadataSize": "4"}) as broker, connected(broker) as peer:
        for number in (3, 1, 2):
            await create(peer, kind, f"name{number}")
        whole, version = list[str](), None
        while True:
            names, total, found = await page(peer, kind, len(whole), 3, version)
            assert version in (None, found)
            version = found
            whole += names
            if len(whole) >= total:
                break
            assert len(names) == 3
        code, *_, member = LISTS[kind]
        everything = json.loads((await peer.call(code)).body)[member]
        past_the_end, _, _ = await page(peer, kind, total, 3, version)
        capped, _, _ = await page(peer, kind, 0, 1_000)
        unlimited, _, _ = await page(peer, kind, 0, None)
    assert whole == sorted(everything) == sorted(set(whole))
    assert {"name1", "name2", "name3"} <= set(whole)
    assert past_the_end == []
    assert len(capped) == len(unlimited) == min(4, total)


@pytest.mark.parametrize("kind", LISTS)
async def test_a_page_after_a_change_is_the_first_one(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for number in range(4):
            await create(peer, kind, f"name{number}")
        first, _, version = await page(peer, kind, 0, 2)
        second, _, _ = await page(peer, kind, 2, 2, version)
        await create(peer, kind, "a-name-before")
        changed, _, newer = await page(peer, kind, 2, 2, version)
        unknown, _, _ = await page(peer, kind, 2, 2)
        later, _, _ = await page(peer, kind, 2, 2, newer)
    assert not set(first) & set(second)
    assert newer != version
    assert changed == unknown
    assert not set(changed) & set(later)


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize(("first", "most"), [(-1, 5), (0, 0), (0, -3)])
async def test_a_page_that_cannot_be_is_refused(tmp_path: Path, kind: str, first: int, most: int) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        code, first_field, most_field, *_ = LISTS[kind]
        answer = await peer.call(code, {first_field: first, most_field: most})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "expected 1 or more entries" in (answer.remark or "")


async def test_without_pages_every_answer_is_whole(tmp_path: Path) -> None:
    async with running(tmp_path, {"enableSplitMetadata": "false"}) as broker, connected(broker) as peer:
        names, total, _ = await page(peer, "topics", 3, 2)
    assert len(names) == total > 2


async def test_a_page_of_groups_has_what_is_forbidden_to_them_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        for group in ("a", "b"):
            await create_group(peer, group)
            fields = {"group": group, "topic": "t", "readable": False}
            await peer.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields)
        answer = await peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": 0, "maxGroupNum": 1})
        whole = await peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert json.loads(answer.body)["forbiddenTable"] == {"a": {"t": 4}}
    assert set(json.loads(whole.body)["forbiddenTable"]) == {"a", "b"}


async def test_several_topics_are_deleted_at_once(tmp_path: Path) -> None:
    body = json.dumps({"topicList": ["t", "u", "t", "nowhere"]}).encode()
    async with running(tmp_path) as broker, connected(broker) as peer:
        for topic in ("t", "u", "v"):
            await create_topic(peer, topic)
            await peer.send(topic, b"x")
        answer = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, None, body)
        codes = [(await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).code for topic in "tuv"]
    assert answer.code == 0, answer.remark
    assert codes == [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS]
    async with running(tmp_path) as broker, connected(broker) as peer:
        assert (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})).code == ResponseCode.TOPIC_NOT_EXIST
        await create_topic(peer, "t")
        assert (await peer.pull("t", 0)).code == ResponseCode.PULL_NOT_FOUND, (
            "the messages of the deleted topic are gone"
        )


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        ({}, "The specified topic list is blank."),
        ({"topicList": []}, "The specified topic list is blank."),
        ({"topicList": ["t", " "]}, "The specified topic is blank."),
        ({"topicList": ["t", "SELF_TEST_TOPIC"]}, "The topic[SELF_TEST_TOPIC] is conflict with system topic."),
    ],
)
async def test_a_list_with_one_topic_that_stays_deletes_none(tmp_path: Path, body: Any, remark: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_topic(peer, "t")
        answer = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, None, json.dumps(body).encode())
        assert (await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"})).code == ResponseCode.SUCCESS
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


@pytest.mark.parametrize("clean", [False, True])
async def test_several_groups_are_deleted_at_once(tmp_path: Path, clean: bool) -> None:
    body = json.dumps({"groupNameList": ["g", "h", "nobody"], "cleanOffset": clean}).encode()
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"x")
        for group in ("g", "h", "i"):
            await create_group(peer, group)
            place = {"consumerGroup": group, "topic": "t", "queueId": 0}
            await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": 1})
        answer = await peer.call(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, None, body)
        codes = [(await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})).code for group in "ghi"]
        place = {"consumerGroup": "g", "topic": "t", "queueId": 0, "setZeroIfNotFound": False}
        offset = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, place)
    assert answer.code == 0, answer.remark
    assert codes == [ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST] * 2 + [ResponseCode.SUCCESS]
    assert (offset.code == ResponseCode.SUCCESS) is not clean


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        ({}, ResponseCode.INVALID_PARAMETER, "The specified group name list is blank."),
        ({"groupNameList": ["g", ""]}, ResponseCode.INVALID_PARAMETER, "The specified group name is blank."),
        (
            {"groupNameList": ["g", 7]},
            ResponseCode.SYSTEM_ERROR,
            "groupNameList has an element that is not a string: 7",
        ),
    ],
)
async def test_a_list_with_one_wrong_group_deletes_none(tmp_path: Path, body: Any, code: int, remark: str) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await create_group(peer, "g")
        answer = await peer.call(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, None, json.dumps(body).encode())
        assert (await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})).code == ResponseCode.SUCCESS
    assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark
