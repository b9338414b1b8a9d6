"""Keys added in runs and by properties, in any order: the rows equal those of single messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.protocol.properties import find_value
from raptormq.storage.index.key_hash import key_hash
from raptormq.storage.index.key_index import KeyIndex, PendingKeys
from raptormq.storage.queue.append_batches import AppendResult, PendingBatch, PendingRecord
from tests.storage.batch_stores import batch
from tests.storage.memory_filesystem import MemoryFileSystem

KEY = st.integers(0, 10**9).map(lambda number: b"%010d" % number)
RUN = st.lists(KEY, min_size=1, max_size=5) | st.lists(KEY.map(lambda key: key[:7]), min_size=1, max_size=5)
NOTE = st.tuples(st.sampled_from(["t", "other"]), RUN, st.booleans(), st.sampled_from([b"", b"KEYS\x01a b\x02"]))


@given(st.lists(NOTE, min_size=1, max_size=8))
def test_rows_of_runs_and_texts(notes: list[tuple[str, list[bytes], bool, bytes]]) -> None:
    pending = PendingKeys()
    expected: list[tuple[int, int, int]] = []
    for number, (topic, keys, as_run, more) in enumerate(notes):
        offset, timestamp = number * 100, 1_000 + number
        if as_run:
            pending.add_run(topic, b"".join(keys), len(keys), offset, timestamp)
            words = keys
        else:
            texts = [b"UNIQ_KEY\x01%b\x02%b" % (key, more) for key in keys]
            pending.add_all(topic, texts[:-1], [offset] * (len(texts) - 1), timestamp)
            pending.add(topic, texts[-1], offset, timestamp)
            words = [word for key in keys for word in (key, *filter(None, find_value(more, b"KEYS\x01").split(b" ")))]
        expected += [(key_hash(topic, word.decode()), offset, timestamp) for word in words]
    assert pending.count == sum(len(keys) for _, keys, _, _ in notes)
    assert list(zip(*(column.tolist() for column in pending.rows()), strict=True)) == expected


@given(st.lists(st.text("ab", min_size=6, max_size=6), min_size=1, max_size=9))
def test_keys_that_begin_alike_differ_anywhere_or_nowhere(keys: list[str]) -> None:
    pending = PendingKeys()
    pending.add_run("t", "".join(keys).encode(), len(keys), 0, 0)
    assert pending.rows().hashes.tolist() == [key_hash("t", key) for key in keys]


def test_nothing_has_no_rows() -> None:
    assert PendingKeys().count == 0


def index_file(record: PendingRecord) -> bytes:
    """Return the file of an index with an ordinary record and ``record``."""
    volume = MemoryFileSystem()
    volume.make_folders("/index")
    index = KeyIndex(volume, "/index", 50, 500, lambda: 1_700_000_000_000)
    index.open(crashed=False)
    plain = PendingRecord("t", 0, b"", b"UNIQ_KEY\x01plain\x02KEYS\x01a\x02")
    for number, group in enumerate(([plain], [record, plain])):
        result = AppendResult(group, 0, [5 + number] * len(group))
        result.physical_offsets = [1000 * number + place for place in range(len(group))]
        index.build(result)
    assert index.flush(100)
    (name,) = volume.names("/index")
    file = volume.open(f"/index/{name}")
    return file.read_at(0, file.size())


def test_the_index_of_a_batch_is_the_same_whoever_looked_at_its_messages() -> None:
    record = batch(["one", "two", "six"], topic="t")
    by_texts, by_keys = PendingBatch(*record), PendingBatch(*record)
    by_keys.messages, by_keys.keys = 3, b"u-oneu-twou-sixb-one"
    by_texts.messages, by_texts.texts = 3, [b"UNIQ_KEY\x01u-%b\x02" % word for word in (b"one", b"two", b"six")]
    assert index_file(by_keys) == index_file(by_texts) == index_file(record)  # a recovery has only the record


@pytest.mark.parametrize(
    "own", [b"UNIQ_KEY\x01b-longer\x02", b"UNIQ_KEY\x01b-one\x02KEYS\x01a b\x02", b"KEYS\x01a\x02"]
)
def test_a_batch_from_the_log_is_found_by_each_key_of_its_own(own: bytes) -> None:
    record = batch(["one", "two", "six"], topic="t")._replace(properties=own + b"INNER_NUM\x013\x02")
    by_texts = PendingBatch(*record)
    by_texts.messages, by_texts.texts = 3, [b"UNIQ_KEY\x01u-%b\x02" % word for word in (b"one", b"two", b"six")]
    assert index_file(by_texts) == index_file(record)
