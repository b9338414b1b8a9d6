"""The alerts, evaluated by promtool. Every metric in them is one of a broker or of the operator."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Gauge

from e2e.tools import tool
from raptormq.protocol.codes import RequestCode
from raptormq_operator import metrics
from tests.broker.harness import connected, running

RULES = Path(__file__).resolve().parents[2] / "helm" / "raptormq" / "rules"
CASES = {
    "brokers": Path(__file__).with_name("alarms.yaml"),
    "operator": Path(__file__).with_name("operator_alarms.yaml"),
}


def rules(about: str) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((RULES / f"{about}.yaml").read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def promtool(*arguments: str) -> None:
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("about", CASES)
def test_prometheus_takes_the_rules(about: str) -> None:
    promtool("check", "rules", str(RULES / f"{about}.yaml"))


@pytest.mark.parametrize("about", CASES)
def test_alarms_fire_when_they_have_to_and_only_then(about: str) -> None:
    promtool("test", "rules", str(CASES[about]))


@pytest.mark.parametrize(("about", "alarm"), [(about, rule["alert"]) for about in CASES for rule in rules(about)])
def test_every_alarm_has_a_case_that_fires_and_one_that_never_does(about: str, alarm: str) -> None:
    cases = [
        [bool(step["exp_alerts"]) for step in case["alert_rule_test"] if step["alertname"] == alarm]
        for case in yaml.safe_load(CASES[about].read_text(encoding="utf-8"))["tests"]
    ]
    assert any(True in fires for fires in cases)
    assert any(fires and True not in fires for fires in cases)


async def test_brokers_tell_every_figure_with_the_labels_that_alarms_read(tmp_path: Path, free_port: int) -> None:
    group = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "g",
        "dLegerPeers": f"n0-127.0.0.1:{free_port}",
        "dLegerSelfId": "n0",
    }
    async with running(tmp_path, group) as broker, connected(broker) as peer:
        while (await broker._pages.readiness())[0] != 200:
            await asyncio.sleep(0.02)
        await peer.send("t", b"x")
        fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1}
        assert (await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
        _, page = await broker._pages.by_path()["/metrics"]()
    samples = dict(re.findall(r"^(\w+)\{(.*)\} ", page.decode(), re.MULTILINE))
    for rule in rules("brokers"):
        (figure,) = re.findall(r"\braptormq_\w+", rule["expr"])
        names = set(re.findall(r'(\w+)="', samples[figure]))
        shown = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
        summed = [name for label_list in re.findall(r"by \((.*?)\)", rule["expr"]) for name in label_list.split(", ")]
        # Prometheus adds the namespace of a pod.
        assert {*shown, *summed} - {"namespace"} <= names, rule["alert"]


def test_the_operator_tells_every_figure_with_the_labels_that_alarms_read() -> None:
    labels = {each._name: set(each._labelnames) for each in vars(metrics).values() if isinstance(each, Gauge)}
    for rule in rules("operator"):
        (figure,) = re.findall(r"\braptormq_\w+", rule["expr"])
        shown = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
        summed = [name for label_list in re.findall(r"by \((.*?)\)", rule["expr"]) for name in label_list.split(", ")]
        assert {*shown, *summed} <= labels[figure], rule["alert"]
