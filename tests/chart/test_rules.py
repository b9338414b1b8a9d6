"""Every CEL rule of the resource definitions has a case for a real API server (e2e/rules.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e import rules
from tests.chart.test_crds import FILES, load, parts

CASES = {
    "brokerclusters": rules.CLUSTERS + rules.CLUSTER_CHANGES,
    "topics": rules.TOPICS + rules.TOPIC_CHANGES,
    "sparkpipelines": rules.PIPELINES + rules.PIPELINE_CHANGES,
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_rule_is_put_to_a_real_api_server(path: Path) -> None:
    (version,) = load(path)["spec"]["versions"]
    messages = {
        rule["message"]
        for _, part in parts(version["schema"]["openAPIV3Schema"])
        for rule in part.get("x-kubernetes-validations", [])
    }
    refusals = [refusal for _, _, refusal in CASES[path.stem] if refusal]
    assert len(messages) >= 6
    assert [message for message in messages if not any(refusal in message for refusal in refusals)] == []


@pytest.mark.parametrize("kind", CASES)
def test_what_is_to_be_accepted_is_tried_as_well(kind: str) -> None:
    assert [spec for _, spec, refusal in CASES[kind] if not refusal]
