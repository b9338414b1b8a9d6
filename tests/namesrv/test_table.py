"""The route table: registration rules, liveness, permissions, and its invariants under any sequence of events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raptormq.namesrv.table import (
    DEFAULT_EXPIRY_MS,
    LOST_GROUP_MS,
    MAX_LOST_GROUPS,
    MasterAddress,
    Registration,
    RegistrationRefused,
    RouteTable,
)
from raptormq.protocol.bodies.route import QueueData
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable

T0 = 1_000_000


def topics(*names: str, perm: int = 6, version: int = 1, state: int = 0) -> TopicConfigTable:
    configs = {name: TopicConfig(name, 4, 4, perm) for name in names}
    return TopicConfigTable(configs, DataVersion(state, T0, version))


def registration(
    broker_name: str = "broker-a",
    broker_id: int = 0,
    address: str = "10.0.0.1:10911",
    *,
    table: TopicConfigTable | None = None,
    channel: object = "channel-1",
    timeout_ms: int | None = None,
    acting: bool | None = None,
    cluster: str = "c",
    is_shared: bool = False,
) -> Registration:
    return Registration(
        cluster=cluster,
        broker_name=broker_name,
        broker_id=broker_id,
        address=address,
        ha_address=address + "2",
        table=topics("t", "u") if table is None else table,
        channel=channel,
        timeout_ms=timeout_ms,
        enable_acting_master=acting,
        is_shared=is_shared,
    )


def perms(table: RouteTable, broker_name: str = "broker-a") -> dict[str, int]:
    return {topic: queues[broker_name].perm for topic, queues in table.queues.items() if broker_name in queues}


def test_a_registration_lists_the_broker_and_its_topics() -> None:
    table = RouteTable()
    assert table.register(registration(), T0) is None
    assert table.groups["broker-a"].addresses == {0: "10.0.0.1:10911"}
    assert table.queues["t"] == {"broker-a": QueueData("broker-a", 4, 4, 6)}
    assert table.data_version("10.0.0.1:10911") == DataVersion(0, T0, 1)


def test_a_slave_learns_its_master_and_brings_no_topics() -> None:
    table = RouteTable()
    table.register(registration(), T0)
    answer = table.register(registration(broker_id=1, address="10.0.0.2:10911", table=topics("x", "y")), T0)
    assert answer == MasterAddress("10.0.0.1:10911", "10.0.0.1:109112")
    assert set(table.queues) == {"t", "u"}


def test_a_slave_without_master_gets_no_addresses() -> None:
    assert RouteTable().register(registration(broker_id=1), T0) is None


def test_an_unknown_broker_must_not_register_a_single_topic() -> None:
    table = RouteTable()
    with pytest.raises(RegistrationRefused):
        table.register(registration(table=topics("t")), T0)
    assert not table.groups
    assert not table.live


def test_a_known_broker_may_register_a_single_topic() -> None:
    table = RouteTable()
    table.register(registration(), T0)
    table.register(registration(table=topics("new", version=2)), T0)
    assert set(table.queues) == {"t", "u", "new"}


def test_missing_topics_stay_unless_configured() -> None:
    for delete, expected in ((False, {"t", "u", "v", "w"}), (True, {"v", "w"})):
        table = RouteTable()
        table.register(registration(), T0)
        table.register(registration(table=topics("v", "w", version=2)), T0, delete_missing=delete)
        assert set(table.queues) == expected


def test_an_unchanged_version_changes_no_known_topic_but_adds_unknown_ones() -> None:
    table = RouteTable()
    table.register(registration(), T0)
    table.register(registration(table=topics("t", "v", perm=4)), T0)
    assert perms(table) == {"t": 6, "u": 6, "v": 4}
    table.register(registration(table=topics("t", perm=4, version=2)), T0)
    assert perms(table)["t"] == 4


def test_a_shared_address_stays_when_the_connection_of_the_leader_ends() -> None:
    table = RouteTable()
    shared, follower, other = "leader:10911", "10.0.0.2:10911", "10.0.0.1:10911"
    table.register(registration(address=shared, is_shared=True), T0)
    table.register(registration(broker_id=2, address=follower, channel="channel-2"), T0)
    assert table.channel_closed("channel-1") == []
    assert table.groups["broker-a"].addresses == {0: shared, 2: follower}
    next_leader = registration(address=shared, channel="channel-2", is_shared=True, table=topics("t", version=2))
    assert table.displaced_by(next_leader) == [], "the former owner does not matter"
    table.register(next_leader, T0)
    assert table.unregister("broker-a", follower)
    assert table.groups["broker-a"].addresses == {0: shared}
    by_its_own = registration(address=other, channel="channel-3")
    assert table.displaced_by(by_its_own) == []
    table.register(by_its_own, T0)
    assert table.groups["broker-a"].addresses == {0: other}
    assert table.channel_closed("channel-3") == [other]
    table.register(registration(address=shared, is_shared=True), T0)
    assert table.expire(T0 + 120_001) == [shared], "there is no leader any more"


def test_an_address_that_changes_its_id_is_moved() -> None:
    table = RouteTable()
    table.register(registration(broker_id=0), T0)
    table.register(registration(broker_id=1), T0)
    assert table.groups["broker-a"].addresses == {1: "10.0.0.1:10911"}


def test_an_address_that_changes_its_broker_name_leaves_the_old_group() -> None:
    table = RouteTable()
    table.register(registration("broker-a"), T0)
    table.register(registration("broker-b"), T0)
    assert set(table.groups) == {"broker-b"}
    assert all(set(queues) == {"broker-b"} for queues in table.queues.values())


def test_the_newcomer_with_the_smaller_state_version_is_ignored() -> None:
    table = RouteTable()
    table.register(registration(address="10.0.0.1:1", table=topics("t", "u", state=5)), T0)
    table.register(registration(address="10.0.0.2:1", table=topics("t", "u", state=4)), T0)
    assert table.groups["broker-a"].addresses == {0: "10.0.0.1:1"}
    assert set(table.live) == {"10.0.0.1:1"}
    table.register(registration(address="10.0.0.2:1", table=topics("t", "u", state=5)), T0)
    assert table.groups["broker-a"].addresses == {0: "10.0.0.2:1"}
    assert set(table.live) == {"10.0.0.2:1"}


def test_silence_removes_a_broker_after_120_seconds_or_its_own_timeout() -> None:
    table = RouteTable()
    table.register(registration("broker-a", address="10.0.0.1:1"), T0)
    table.register(registration("broker-b", address="10.0.0.2:1", timeout_ms=10_000), T0)
    assert table.expire(T0 + 10_000) == []
    assert table.expire(T0 + 10_001) == ["10.0.0.2:1"]
    table.touch("10.0.0.1:1", T0 + 60_000)
    assert table.expire(T0 + 60_000 + DEFAULT_EXPIRY_MS) == []
    assert table.expire(T0 + 60_001 + DEFAULT_EXPIRY_MS) == ["10.0.0.1:1"]
    assert not table.groups
    assert not table.queues


def test_a_heartbeat_of_an_unknown_address_registers_nothing() -> None:
    table = RouteTable()
    table.touch("10.9.9.9:1", T0)
    assert not table.live


def test_closing_the_channel_removes_only_what_registered_by_it_last() -> None:
    table = RouteTable()
    table.register(registration(channel="old"), T0)
    table.register(registration(channel="new"), T0)
    assert table.channel_closed("old") == []
    assert table.channel_closed("new") == ["10.0.0.1:10911"]
    assert not table.groups


def test_unregistering_needs_the_right_name() -> None:
    table = RouteTable()
    table.register(registration(), T0)
    assert not table.unregister("broker-b", "10.0.0.1:10911")
    assert table.unregister("broker-a", "10.0.0.1:10911")
    assert not table.unregister("broker-a", "10.0.0.1:10911")
    assert not table.queues


def test_wiping_lasts_until_the_topics_change() -> None:
    table = RouteTable()
    table.register(registration(), T0)
    assert table.wipe_write_permission("broker-a") == 2
    assert perms(table) == {"t": 4, "u": 4}
    table.register(registration(), T0)
    assert perms(table) == {"t": 4, "u": 4}
    table.register(registration(table=topics("t", "u", version=2)), T0)
    assert perms(table) == {"t": 6, "u": 6}


def test_adding_write_sets_exactly_read_and_write() -> None:
    table = RouteTable()
    table.register(registration(table=topics("t", "u", perm=7)), T0)
    assert table.add_write_permission("broker-a") == 2
    assert perms(table) == {"t": 6, "u": 6}
    assert table.add_write_permission("nobody") == 0


def test_without_its_master_an_acting_group_becomes_read_only_and_recovers() -> None:
    table = RouteTable()
    table.register(registration(acting=True), T0)
    table.register(registration(broker_id=1, address="10.0.0.2:1", acting=True), T0)
    table.unregister("broker-a", "10.0.0.1:10911")
    assert perms(table) == {"t": 4, "u": 4}
    table.register(registration(broker_id=1, address="10.0.0.2:1", acting=True, table=topics("v", "w", version=2)), T0)
    assert perms(table)["v"] == 4
    table.register(registration(acting=True), T0)
    assert perms(table)["t"] == 6


def test_topics_are_deleted_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    table.register(registration("broker-a", address="10.0.0.1:1", cluster="c1"), T0)
    table.register(registration("broker-b", address="10.0.0.2:1", cluster="c2"), T0)
    table.delete_topic("t", "c1")
    assert set(table.queues["t"]) == {"broker-b"}
    table.delete_topic("t")
    assert "t" not in table.queues
    table.delete_topic("never-seen")


def test_a_group_without_brokers_is_remembered_with_its_queues_until_it_registers() -> None:
    table = RouteTable()
    table.register(registration("broker-a", address="10.0.0.1:1", cluster="c1"), T0)
    table.register(registration("broker-b", address="10.0.0.2:1", channel="b"), T0)
    table.register(registration("broker-b", 1, address="10.0.0.3:1", channel="slave"), T0)
    table.channel_closed("b")
    assert not table.lost
    table.channel_closed("slave")
    table.unregister("broker-a", "10.0.0.1:1")
    assert {name: set(group.queues) for name, group in table.lost.items()} == {
        "broker-a": {"t", "u"},
        "broker-b": {"t", "u"},
    }
    table.delete_topic("t", "c1")
    assert {name: set(group.queues) for name, group in table.lost.items()} == {
        "broker-a": {"u"},
        "broker-b": {"t", "u"},
    }
    table.register(registration("broker-b", address="10.0.0.9:1"), T0)
    assert set(table.lost) == {"broker-a"}


def test_a_lost_group_is_forgotten_after_72_hours() -> None:
    table = RouteTable()
    table.register(registration(timeout_ms=10_000), T0)
    table.expire(T0 + 10_001)
    table.expire(T0 + 10_001 + LOST_GROUP_MS)
    assert set(table.lost) == {"broker-a"}
    table.expire(T0 + 10_002 + LOST_GROUP_MS)
    assert not table.lost


def test_the_first_of_too_many_lost_groups_is_forgotten() -> None:
    table = RouteTable()
    for number in range(MAX_LOST_GROUPS + 1):
        table.register(registration(f"broker-{number}", channel=number), T0)
        table.channel_closed(number)
    assert len(table.lost) == MAX_LOST_GROUPS
    assert "broker-0" not in table.lost


def test_topics_registered_by_hand_need_a_known_broker() -> None:
    table = RouteTable()
    table.register(registration(), T0)
    table.register_topic("by-hand", [QueueData("broker-a", 1, 1, 6), QueueData("broker-x", 1, 1, 6)])
    table.register_topic("nowhere", [QueueData("broker-x", 1, 1, 6)])
    assert set(table.queues["by-hand"]) == {"broker-a"}
    assert "nowhere" not in table.queues


NAMES = st.sampled_from(["broker-a", "broker-b"])
ADDRESSES = st.sampled_from([f"10.0.0.{host}:1" for host in range(4)])
CHANNELS = st.integers(0, 3)
TOPIC_SETS = st.sets(st.sampled_from(["t", "u", "v", "w"]))


class RouteTableMachine(RuleBasedStateMachine):
    """Any sequence of events keeps the invariants in the module's docstring."""

    @initialize(delete=st.booleans())
    def start(self, delete: bool) -> None:
        self.table = RouteTable()
        self.delete_missing = delete
        self.now = T0

    @rule(
        name=NAMES,
        broker_id=st.integers(0, 2),
        address=ADDRESSES,
        names=TOPIC_SETS,
        version=st.integers(0, 2),
        state=st.integers(0, 1),
        channel=CHANNELS,
        acting=st.sampled_from([None, False, True]),
        cluster=st.sampled_from(["c1", "c2"]),
    )
    def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        names: set[str],
        version: int,
        state: int,
        channel: int,
        acting: bool | None,
        cluster: str,
    ) -> None:
        wanted = registration(
            name,
            broker_id,
            address,
            table=topics(*sorted(names), version=version, state=state),
            channel=channel,
            acting=acting,
            cluster=cluster,
        )
        before = (dict(self.table.live), {name: replace(group) for name, group in self.table.groups.items()})
        try:
            self.table.register(wanted, self.now, delete_missing=self.delete_missing)
        except RegistrationRefused:
            assert (self.table.live, self.table.groups) == before
            return
        holder = self.table.groups[name].addresses.get(broker_id)
        if holder == address:
            assert self.table.live[address].last_seen_ms == self.now
            if broker_id == 0:
                assert all(name in self.table.queues[topic] for topic in names)
        else:
            assert holder is not None
            assert self.table.live[holder].data_version.state_version > state

    @rule(address=ADDRESSES)
    def heartbeat(self, address: str) -> None:
        self.table.touch(address, self.now)

    @rule(name=NAMES, address=ADDRESSES)
    def unregister(self, name: str, address: str) -> None:
        self.table.unregister(name, address)

    @rule(channel=CHANNELS)
    def close_channel(self, channel: int) -> None:
        self.table.channel_closed(channel)
        assert all(live.channel != channel for live in self.table.live.values())

    @rule(step=st.sampled_from([1, 60_000, 120_001]))
    def pass_time(self, step: int) -> None:
        self.now += step
        self.table.expire(self.now)
        assert all(live.last_seen_ms + live.timeout_ms >= self.now for live in self.table.live.values())

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        self.table.wipe_write_permission(name)
        assert all(not perm & 2 for perm in perms(self.table, name).values())

    @rule(topic=st.sampled_from(["t", "u"]), cluster=st.sampled_from([None, "c1", "c2"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)

    @rule(topic=st.sampled_from(["t", "x"]), name=NAMES)
    def register_topic(self, topic: str, name: str) -> None:
        self.table.register_topic(topic, [QueueData(name, 1, 1, 6)])

    @invariant()
    def every_group_has_addresses_and_each_address_one_place(self) -> None:
        listed = [address for group in self.table.groups.values() for address in group.addresses.values()]
        assert all(group.addresses for group in self.table.groups.values())
        assert len(listed) == len(set(listed))
        assert set(listed) == set(self.table.live)

    @invariant()
    def live_records_name_their_group(self) -> None:
        for address, live in self.table.live.items():
            assert address in self.table.groups[live.broker_name].addresses.values()

    @invariant()
    def queues_refer_to_listed_groups(self) -> None:
        for queues in self.table.queues.values():
            assert queues
            assert set(queues) <= set(self.table.groups)
            assert all(data.broker_name == name for name, data in queues.items())


RouteTableMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRouteTableInvariants = RouteTableMachine.TestCase
