"""What the broker has done since it started: plain numbers, because the send path counts every message."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

from raptormq.broker.latencies import Latencies
from raptormq.storage.log_batch import Appended


@dataclass(slots=True)
class Counters:
    """Counted where it happens, read by the metrics and by GET_BROKER_RUNTIME_INFO (28)."""

    messages_in: int = 0
    """Messages stored."""
    bytes_in: int = 0
    """Bytes of log they took."""
    topic_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of log by topic."""
    sends_refused: int = 0
    """Send requests answered with an error."""
    messages_out: int = 0
    """Messages handed to consumers."""
    bytes_out: int = 0
    """Bytes of records handed to consumers."""
    copies_shortened: int = 0
    """Copies of messages that had no room for all of their properties."""
    pulls_found: int = 0
    """Pulls answered with messages."""
    pulls_empty: int = 0
    """Pulls answered without."""
    pulls_cold: int = 0
    """Pulls that had to wait for the disk."""
    pulls_refused: int = 0
    """Pulls answered with an error."""
    longest_read_ms: int = 0
    """Longest time that the messages of one pull took to be found and read, without the wait for their arrival."""
    put_times: Latencies = field(default_factory=Latencies)
    """From the append of what producers send to the moment when it may be answered (SYNC_FLUSH: the disk has it)."""

    def stored(self, result: Appended) -> None:
        """A group of messages is in the log."""
        self.messages_in += result.message_count
        self.bytes_in += result.end_offset - result.start_offset
        topics = self.topic_bytes
        for topic, size in result.bytes_by_topic().items():
            topics[topic] = topics.get(topic, 0) + size

    def read_since(self, began: float) -> None:
        """The messages of a pull have been found and read since ``began`` (``time.perf_counter``)."""
        took_ms = int((perf_counter() - began) * 1000)
        self.longest_read_ms = max(self.longest_read_ms, took_ms)
