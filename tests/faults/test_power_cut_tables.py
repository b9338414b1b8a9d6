"""A power failure after the response to a change of a table or a setting: the change is durable. It is checked directly
after each response, because a later save may make it durable as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from raptormq.config_file import parse_properties
from raptormq.protocol.codes import RequestCode
from tests.faults.broker_process import Client, serving
from tests.faults.power_cut import PowerCutVolume
from tests.faults.powerless_broker import STORE, powerless_broker


class Change(NamedTuple):
    """A request, the file that it changes, and a text that the file then contains, or no longer contains."""

    code: RequestCode
    fields: Mapping[str, object]
    body: object
    file: str
    text: str
    is_there: bool = True


TOPIC = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip
PASSWORD = {"password": "secret", "userType": "Normal"}
ENTRY = {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}
POLICY = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [ENTRY]}]}
MODE = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
LISTED = {"topicConfigList": [{"topicName": "listed", "perm": 6}]}
CONFIG = f"{STORE}/config"
R = RequestCode
BROKER_CHANGES = [
    Change(R.UPDATE_AND_CREATE_TOPIC, TOPIC, None, f"{CONFIG}/topics.json", '"orders"'),
    Change(R.UPDATE_AND_CREATE_TOPIC_LIST, {}, LISTED, f"{CONFIG}/topics.json", '"listed"'),
    Change(R.UPDATE_AND_CREATE_TOPIC, TOPIC | {"perm": 4}, None, f"{CONFIG}/topics.json", '"perm": 4'),
    Change(R.DELETE_TOPIC_IN_BROKER, {"topic": "listed"}, None, f"{CONFIG}/topics.json", '"listed"', False),
    Change(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "g"}, f"{CONFIG}/subscriptionGroup.json", '"g"'),
    Change(R.SET_MESSAGE_REQUEST_MODE, {}, MODE, f"{CONFIG}/messageRequestMode.json", '"POP"'),
    Change(R.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}, None, f"{CONFIG}/subscriptionGroup.json", '"g"', False),
    Change(R.AUTH_CREATE_USER, {"username": "alice"}, PASSWORD, f"{CONFIG}/users.json", "alice"),
    Change(R.AUTH_CREATE_USER, {"username": "bob"}, PASSWORD, f"{CONFIG}/users.json", "bob"),
    Change(R.AUTH_CREATE_ACL, {"subject": "User:alice"}, POLICY, f"{CONFIG}/acls.json", "orders"),
    Change(R.AUTH_DELETE_ACL, {"subject": "User:alice"}, None, f"{CONFIG}/acls.json", "orders", False),
    Change(R.AUTH_DELETE_USER, {"username": "bob"}, None, f"{CONFIG}/users.json", "bob", False),
    Change(R.UPDATE_BROKER_CONFIG, {}, "fileReservedTime=11\n", "broker.conf", "fileReservedTime=11"),
]
ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
NAME_SERVER_CHANGES = [
    Change(R.PUT_KV_CONFIG, ORDER | {"value": "broker-a:4"}, None, "new/kv.json", "broker-a:4"),
    Change(R.PUT_KV_CONFIG, ORDER | {"value": "broker-a:5"}, None, "new/kv.json", "broker-a:5"),
    Change(R.DELETE_KV_CONFIG, ORDER, None, "new/kv.json", "broker-a:5", False),
    Change(R.UPDATE_NAMESRV_CONFIG, {}, "enableTopicList=false\n", "namesrv.properties", "enableTopicList=false"),
]


async def expect_durable(volume: PowerCutVolume, client: Client, change: Change) -> None:
    body = change.body if isinstance(change.body, str) else json.dumps(change.body) if change.body else ""
    answer = await client.call(change.code, change.fields, body.encode())
    assert answer.code == 0, (change, answer)
    durable = (volume.durable(change.file) or b"nothing").decode()
    assert (change.text in durable) is change.is_there, (change, durable)


async def test_what_a_broker_has_changed(tmp_path: Path, free_port: int) -> None:
    async with powerless_broker(tmp_path, free_port) as broker:
        async with broker.life():
            for change in BROKER_CHANGES:
                await expect_durable(broker.volume, broker.client, change)
        assert parse_properties((broker.volume.root / "broker.conf").read_text())["fileReservedTime"] == "11"
        async with broker.life():
            for code, text in (
                (R.GET_ALL_TOPIC_CONFIG, b'"orders"'),
                (R.GET_ALL_MESSAGE_REQUEST_MODE, b'"POP"'),
                (R.AUTH_LIST_USER, b"alice"),
            ):
                assert text in (await broker.client.call(code, {})).body
            assert broker.warnings() == ""


async def test_what_a_name_server_has_changed(tmp_path: Path, free_port: int) -> None:
    volume, client = PowerCutVolume(tmp_path), Client(free_port)
    config = tmp_path / "namesrv.conf"
    pairs = {
        "listenPort": free_port, "bindAddress": "127.0.0.1", "kvConfigPath": volume.root / "new/kv.json",
        "configStorePath": volume.root / "namesrv.properties",
    }  # fmt: skip
    config.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    command = ["namesrv", "-c", str(config), "--log-level", "error"]
    async with serving(command, environment=volume.environment()):
        for change in NAME_SERVER_CHANGES:
            await expect_durable(volume, client, change)
        await expect_durable(volume, client, NAME_SERVER_CHANGES[0])
    volume.cut()
    async with serving(command):
        kept = await client.call(R.GET_KV_CONFIG, ORDER)
        assert kept.ext_fields["value"] == "broker-a:4"
    await client.close()
    assert (volume.root / "namesrv.properties").read_text() == "enableTopicList=false\n"
