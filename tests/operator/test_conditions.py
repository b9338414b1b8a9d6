"""The Ready condition: its transition time changes only with its status."""

from __future__ import annotations

from raptormq_operator.conditions import Reason, Verdict, ready_condition

READY = Verdict(Reason.READY, "all well")
LATE = Verdict(Reason.NOT_REGISTERED, "one is missing")
GONE = Verdict(Reason.BROKER_UNREACHABLE, "nobody answers")


def test_the_first_condition_has_everything() -> None:
    assert ready_condition(READY, 3, [], "t1") == {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "all well",
        "observedGeneration": 3,
        "lastTransitionTime": "t1",
    }


def test_another_reason_is_no_transition() -> None:
    first = ready_condition(LATE, 1, [], "t1")
    second = ready_condition(GONE, 2, [first], "t2")
    assert (second["status"], second["reason"], second["observedGeneration"]) == ("False", "BrokerUnreachable", 2)
    assert second["lastTransitionTime"] == "t1"


def test_another_status_is_a_transition() -> None:
    first = ready_condition(LATE, 1, [], "t1")
    other = {"type": "Other", "status": "True"}
    assert ready_condition(READY, 1, [other, first], "t2")["lastTransitionTime"] == "t2"


def test_only_one_reason_is_ready() -> None:
    assert [reason for reason in Reason if Verdict(reason, "").ready] == [Reason.READY]
