"""Secrets of access control: created if they are missing, read individually, and never shown."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from raptormq.client import Credentials
from raptormq_operator.access_keys import AccessKeys, random_password
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.model.cluster import Cluster
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body


def cluster_with(**access: Any) -> Cluster:
    return Cluster.from_object(cluster_body(accessControl=access), SURROUNDINGS)


def secret(name: str, **texts: str) -> dict[str, Any]:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


async def test_secrets_that_are_missing_are_made_with_passwords_of_their_own() -> None:
    kube = FakeKube()
    keys = AccessKeys(kube)
    assert await keys.ensure(cluster_with()) is None
    made = {name: manifest for (kind, _, name), manifest in kube.objects.items() if kind == "Secret"}
    assert made.keys() == {"demo-admin", "demo-operator"}
    assert {one["type"] for one in made.values()} == {"kubernetes.io/basic-auth"}
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in made.values()} == {"uid-of-demo"}
    passwords = {base64.b64decode(one["data"]["password"]).decode() for one in made.values()}
    assert len(passwords) == 2
    (key,) = await keys.current(cluster_with())
    assert (key.access_key, key.secret_key in passwords) == ("raptormq-operator", True)
    before = dict(kube.objects)
    assert await keys.ensure(cluster_with()) is None
    assert kube.objects == before, "they are created once"
    assert random_password() != random_password()


async def test_a_secret_of_the_users_own_is_read_and_only_that() -> None:
    kube = FakeKube()
    kube.put(secret("boss", username="root", password="r"))
    kube.put(secret("robot", username="op", password="new\n", otherPassword="old"))
    kube.put(secret("foreign", username="x", password="y"))
    keys, cluster = AccessKeys(kube), cluster_with(adminSecretName="boss", operatorSecretName="robot")
    assert await keys.ensure(cluster) is None
    assert await keys.current(cluster) == (Credentials("op", "new"), Credentials("op", "old"))
    assert kube.writes == []


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ({"username": "op"}, "Secret demo-operator has no password"),
        ({"password": "secret-text"}, "Secret demo-operator has no username"),
        ({"username": "op", "password": " \n"}, "Secret demo-operator has no password"),
    ],
)
async def test_a_secret_without_user_or_password_is_named(texts: dict[str, str], fault: str) -> None:
    kube = FakeKube()
    kube.put(secret("demo-operator", **texts))
    said = await AccessKeys(kube).ensure(cluster_with())
    assert said is not None
    assert said.startswith(fault)
    assert "secret-text" not in said


async def test_without_the_right_it_says_which_value_gives_it() -> None:
    kube = FakeKube()
    kube.refuse_lists["Secret"] = Invalid(403, "secrets is forbidden")
    said = await AccessKeys(kube).ensure(cluster_with())
    assert said is not None
    assert "value accessControl.enabled of its chart" in said
    assert "secrets is forbidden" in said
    kube.refuse_lists["Secret"] = KubeError(500, "no etcd")
    with pytest.raises(KubeError, match="no etcd"):
        await AccessKeys(kube).ensure(cluster_with())


async def test_a_secret_that_the_api_server_does_not_take_is_named_with_its_words() -> None:
    kube = FakeKube()
    kube.refuse["Secret"] = Invalid(422, 'Secret "A B" is invalid: metadata.name')
    said = await AccessKeys(kube).ensure(cluster_with(adminSecretName="A B"))
    assert said == 'Secret A B cannot be created: Secret "A B" is invalid: metadata.name'


async def test_a_secret_that_cannot_be_read_is_not_asked_for_by_every_pulse() -> None:
    kube = FakeKube()
    kube.put(secret("demo-operator", username="op"))
    keys = AccessKeys(kube)
    assert [await keys.current(cluster_with()) for _ in range(3)] == [(), (), ()]
    assert kube.reads == 1
    kube.put(secret("demo-operator", username="op", password="p"))
    assert await keys.ensure(cluster_with()) is None
    assert await keys.current(cluster_with()) == (Credentials("op", "p"),)


async def test_nothing_is_made_where_access_control_is_off_but_what_there_is_signs() -> None:
    kube = FakeKube()
    keys, off = AccessKeys(kube), cluster_with(enabled=False)
    assert await keys.ensure(off) is None
    assert (await keys.current(off), kube.objects) == ((), {})
    kube.put(secret("demo-operator", username="op", password="p"))
    assert await keys.ensure(off) is None
    assert await keys.current(off) == (Credentials("op", "p"),)
    nothing = Cluster.from_object(cluster_body(), SURROUNDINGS)
    assert (await keys.ensure(nothing), await keys.current(nothing)) == (None, ())
