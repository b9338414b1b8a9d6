"""namesrv.conf: RocketMQ's keys, one line for a bad value, a warning for an unknown key."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptormq.errors import ConfigError
from raptormq.namesrv.config import load_name_server_config
from raptormq.namesrv.running_config import RunningConfig
from raptormq.transport.tls.contexts import ServerTls


def test_defaults_are_those_of_the_reference() -> None:
    config, warnings = load_name_server_config(None)
    assert (config.listen_port, config.scan_not_active_broker_interval_ms) == (9876, 5000)
    assert config.kv_config_path.endswith("/namesrv/kvConfig.json")
    assert warnings == []


def test_a_file_is_read_and_becomes_the_place_of_changes(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("# name server\nlistenPort = 19876\norderMessageEnable=true\nserverWorkerThreads=8\n")
    config, warnings = load_name_server_config(path)
    assert config.listen_port == 19876
    assert config.order_message_enable
    assert config.config_store_path == str(path)
    assert warnings == []


def test_an_unknown_key_is_a_warning_with_the_nearest_key(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenport=19876\n")
    config, warnings = load_name_server_config(path)
    assert config.listen_port == 9876
    assert warnings == ["unknown setting listenport is ignored, did you mean listenPort?"]


@pytest.mark.parametrize(
    "line",
    [
        "listenPort=70000",
        "orderMessageEnable=yes",
        "enableControllerInNamesrv=true",
        "scanNotActiveBrokerInterval=0",
        "kvConfigPath=",
    ],
)
def test_a_bad_value_is_an_error_that_names_the_key(tmp_path: Path, line: str) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=line.split("=", maxsplit=1)[0]):
        load_name_server_config(path)


def test_tls_can_be_set_by_the_file_and_not_by_requests(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(f"tls.server.mode=enforcing\nconfigStorePath={tmp_path / 'stored'}\n")
    config, warnings = load_name_server_config(path)
    assert (config.tls, warnings) == (ServerTls(enforcing=True), [])
    running = RunningConfig(config)
    assert running.forbidden({"tls.server.mode": "disabled", "listenPort": "1"}) == ["tls.server.mode"]
    running.update({"orderMessageEnable": "true"})
    assert running.current.tls == config.tls
    assert "tls." not in running.text()
