"""Output of ``raptormq topic describe``: the configuration on each broker and the bounds of each queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from raptormq.cli.output import moment, print_table
from raptormq.client import MessageQueue, Perm, TopicConfig, TopicOffset


def as_json(name: str, configs: Mapping[str, TopicConfig], stats: Mapping[MessageQueue, TopicOffset]) -> dict[str, Any]:
    """Return the topic as a JSON value. Times are in ms since 1970, 0 for never. The id is the topic id on the broker,
    which changes when the topic is recreated.
    """
    return {
        "topic": name,
        "brokers": {
            broker: {
                "read_queues": config.read_queue_nums,
                "write_queues": config.write_queue_nums,
                "perm": permission(config.perm),
                "order": config.order,
                "attributes": config.attributes,
                "id": config.topic_id or None,
            }
            for broker, config in configs.items()
        },
        "queues": [
            {
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "min_offset": offset.min_offset,
                "max_offset": offset.max_offset,
                "last_store_timestamp": offset.last_update_timestamp,
            }
            for queue, offset in sorted(stats.items())
        ],
        "messages": _messages(stats),
    }


def print_description(name: str, configs: Mapping[str, TopicConfig], stats: Mapping[MessageQueue, TopicOffset]) -> None:
    """Print two tables: brokers and queues."""
    click.echo(f"topic {name}: {_messages(stats)} messages")
    print_table(
        ["broker", "read queues", "write queues", "perm", "id", "attributes"],
        [
            [
                broker,
                config.read_queue_nums,
                config.write_queue_nums,
                permission(config.perm),
                config.topic_id or None,
                ",".join(f"{key}={value}" for key, value in sorted(config.attributes.items())) or None,
            ]
            for broker, config in sorted(configs.items())
        ],
    )
    print_table(
        ["broker", "queue", "min offset", "max offset", "messages", "last stored"],
        [
            [
                queue.broker_name,
                queue.queue_id,
                offset.min_offset,
                offset.max_offset,
                offset.max_offset - offset.min_offset,
                moment(offset.last_update_timestamp),
            ]
            for queue, offset in sorted(stats.items())
        ],
    )


def permission(bits: int) -> str:
    """Return the text form of permission bits: ``rw``, ``r``, ``w`` or ``-``."""
    return ("r" if bits & Perm.READ else "") + ("w" if bits & Perm.WRITE else "") or "-"


def _messages(stats: Mapping[MessageQueue, TopicOffset]) -> int:
    return sum(offset.max_offset - offset.min_offset for offset in stats.values())
