"""The measured start finds no queues and no index, and builds both completely."""

from __future__ import annotations

from pathlib import Path

from bench.filled_log import count_messages, fill_log
from bench.rebuild import Rebuild, remove_what_is_built, table


def test_all_queues_are_built_again_from_the_log(tmp_path: Path) -> None:
    store = tmp_path / "store"
    messages = fill_log(store, 3_000_000)
    before = {path.name for path in store.iterdir()}
    remove_what_is_built(store)
    assert before - {path.name for path in store.iterdir()} == {"consumequeue", "index", "checkpoint", "queueEnds"}
    assert count_messages(store) == messages > 2_000


def test_starts_without_come_before_those_with() -> None:
    found = [Rebuild(True, 1_000_000, 4.0, 3.0, 5.0), Rebuild(False, 1_000_000, 8.0, 7.0, 0.0)]
    rows = [line.split(" | ") for line in table(found).splitlines()[2:]]
    assert [row[2:] for row in rows] == [["8.0", "125,000", "7.0", "0.0 |"], ["4.0", "250,000", "3.0", "5.0 |"]]
    assert [row[0] for row in rows] == [f"| `enableBuildConsumeQueueConcurrently={on}`" for on in ("false", "true")]
