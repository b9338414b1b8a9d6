"""Topic attributes: what may be set, what is fixed, what comes later."""

from __future__ import annotations

import pytest

from raptormq.broker.tables.topics import apply_attributes
from raptormq.errors import RaptorMQError


@pytest.mark.parametrize(
    ("text", "current", "expected"),
    [
        (None, None, {}),
        ("", {"message.type": "FIFO"}, {"message.type": "FIFO"}),
        ("+message.type=FIFO", None, {"message.type": "FIFO"}),
        (" +message.type=DELAY , +queue.type=SimpleCQ ", None, {"message.type": "DELAY", "queue.type": "SimpleCQ"}),
        ("+queue.type=BatchCQ", None, {"queue.type": "BatchCQ"}),
        ("+message.type=FIFO", {"message.type": "NORMAL"}, {"message.type": "FIFO"}),
        ("-message.type", {"message.type": "NORMAL", "queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ("+queue.type=SimpleCQ", {"queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ("+queue.type=SimpleCQ,+cleanup.policy=DELETE", {}, {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}),
    ],
)
def test_accepted(text: str | None, current: dict[str, str] | None, expected: dict[str, str]) -> None:
    assert apply_attributes(text, current) == expected


@pytest.mark.parametrize(
    ("text", "current", "complaint"),
    [
        ("+queue.type=BatchCQ", {}, "cannot be changed after creation"),
        ("+queue.type=SimpleCQ", {"queue.type": "BatchCQ"}, "cannot be changed after creation"),
        ("+cleanup.policy=COMPACTION", None, "not supported by this version"),
        ("+message.type=MIXED", None, "not supported by this version"),
        ("+queue.type=Other", None, "value is not in set: [SimpleCQ, BatchCQ] (queue.type=Other)"),
        ("+colour=red", None, "unsupported key: colour; a topic may have cleanup.policy, message.type, queue.type"),
        ("queue.type=SimpleCQ", None, "neither +key=value nor -key"),
        ("+queue.type", None, "neither +key=value nor -key"),
        ("-queue.type=SimpleCQ", None, "neither +key=value nor -key"),
        ("-queue.type", None, "cannot be removed from a topic that does not exist"),
        ("+message.type=FIFO,-message.type", {}, "is both set and removed"),
        ("-queue.type", {"queue.type": "SimpleCQ"}, "cannot be changed after creation"),
        ("-queue.type", {}, "cannot be changed after creation"),
    ],
)
def test_refused(text: str, current: dict[str, str] | None, complaint: str) -> None:
    with pytest.raises(RaptorMQError) as caught:
        apply_attributes(text, current)
    assert complaint in str(caught.value)
