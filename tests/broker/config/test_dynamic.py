"""Dynamic changes of settings: those that take effect immediately, those that need a restart, and the resulting
file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.broker.config import BrokerConfig, load_broker_config
from raptormq.broker.config.dynamic import RunningConfig
from raptormq.errors import ConfigError

FILE = """# the brokers of the shop
brokerName=broker-a
autoCreateTopicEnable = \\
    true
maxMessageSize: 1M
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    path.chmod(0o640)
    return path


def loaded(path: Path) -> BrokerConfig:
    return load_broker_config(path, {"listenPort": "0"})[0]


def test_a_live_setting_changes_in_place_and_in_its_line_of_the_file(path: Path) -> None:
    config = loaded(path)
    policies, changed = config.policies, list[set[str]]()
    running = RunningConfig(config)
    running.listen(changed.append)
    assert running.update({"autoCreateTopicEnable": "false", "fileReservedTime": "24"}) == set()
    assert (policies.auto_create_topic, config.storage.retention_hours) == (False, 24)
    assert changed == [{"autoCreateTopicEnable", "fileReservedTime"}]
    assert path.read_text() == (
        "# the brokers of the shop\nbrokerName=broker-a\nautoCreateTopicEnable=false\n"
        "maxMessageSize: 1M\nfileReservedTime=24\n"
    )
    assert path.stat().st_mode & 0o777 == 0o640
    again = loaded(path)
    assert (again.policies, again.storage, again.identity) == (config.policies, config.storage, config.identity)


def test_other_settings_wait_for_the_next_start(path: Path) -> None:
    config = loaded(path)
    running = RunningConfig(config)
    assert running.update({"brokerName": "broker-b", "traceOn": "true"}) == {"brokerName"}
    assert config.identity.broker_name == "broker-a"
    assert (
        running.update({"rejectTransactionMessage": "true"}) == set()
    )  # a setting that already waits for the restart is not named again
    assert loaded(path).identity.broker_name == "broker-b"


def test_an_alias_changes_the_setting_that_counts(path: Path) -> None:
    path.write_text("mappedFileSizeCommitLog=64M\n")
    assert RunningConfig(loaded(path)).update({"mapedFileSizeCommitLog": "32M"}) == {"mappedFileSizeCommitLog"}
    assert loaded(path).storage.segment_bytes == 32 << 20


def test_keys_that_mean_nothing_here_are_kept_in_the_file(path: Path) -> None:
    assert RunningConfig(loaded(path)).update({"sendMessageThreadPoolNums": "8"}) == set()
    assert path.read_text().endswith("sendMessageThreadPoolNums=8\n")


@pytest.mark.parametrize(
    ("pairs", "hint"),
    [
        ({"maxMessageSize": "1K", "fileReservedTime": "never"}, "fileReservedTime"),
        ({"maxMessageSize": "1K", "fileReservedTimes": "1"}, "did you mean fileReservedTime"),
        ({"maxMessageSize": "1K", "brokerRole": "SLAVE"}, "brokerRole"),
        ({"maxMessageSize": "99M"}, "maxMessageSize"),
    ],
)
def test_all_or_nothing(path: Path, pairs: dict[str, str], hint: str) -> None:
    config = loaded(path)
    with pytest.raises(ConfigError, match=hint):
        RunningConfig(config).update(pairs)
    assert config.policies.max_message_bytes == 1 << 20
    assert path.read_text() == FILE


def test_a_file_that_cannot_be_written_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "broker.conf.new").mkdir()
    path = tmp_path / "broker.conf"
    path.write_text(FILE)
    config = loaded(path)
    with pytest.raises(ConfigError, match="cannot be written"):
        RunningConfig(config).update({"maxMessageSize": "1K"})
    assert config.policies.max_message_bytes == 1 << 20


def test_without_a_file_a_change_lasts_until_the_stop(tmp_path: Path) -> None:
    config = BrokerConfig.from_pairs({"storePathRootDir": str(tmp_path)})
    running = RunningConfig(config)
    running.update({"brokerPermission": "4"})
    running.update({"fileReservedTime": "1"})
    assert (config.policies.permission, config.storage.retention_hours) == (4, 1)
    assert list(tmp_path.iterdir()) == []


def test_what_no_request_may_change(path: Path) -> None:
    path.write_text(FILE + "configBlackList=storePathRootDir;brokerConfigPath\n")
    running = RunningConfig(loaded(path))
    pairs = {"storePathRootDir": "/x", "rocketmqHome": "/x", "configBlackList": "", "brokerName": "b"}
    assert running.forbidden(pairs) == ["storePathRootDir", "rocketmqHome", "configBlackList"]
    security = ["peerSecurityTransition", "authenticationEnabled", "useTLS"]
    assert running.forbidden(dict.fromkeys(security, "false")) == security


def test_comment_in_another_encoding_and_byte_order_mark_survive_a_change(path: Path) -> None:
    comment = "# 订单 \\\n".encode("gbk")
    path.write_bytes(b"\xef\xbb\xbf" + comment + b"brokerName=broker-a\n")
    RunningConfig(loaded(path)).update({"traceOn": "false"})
    assert path.read_bytes() == b"\xef\xbb\xbf" + comment + b"brokerName=broker-a\ntraceOn=false\n"


@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
def test_name_that_is_refused_for_a_new_store_is_refused_as_a_change(path: Path, key: str) -> None:
    running = RunningConfig(loaded(path))
    with pytest.raises(ConfigError, match=f"setting {key} = 'a b' is not usable as a name"):
        running.update({key: "a b"})
    assert running.update({key: "a-b"}) == {key}
