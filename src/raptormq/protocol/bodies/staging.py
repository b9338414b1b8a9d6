"""Body of COMMIT_STAGED (31032): the staged lists of each broker group that form a batch.

::

    {"broker-a": [[0, 17], [20, 20]], "broker-b": [[3, 9]]}

Each pair is the first and the last offset of a range. All broker groups get the same body, so that each of them can
return the whole decision to a later attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from raptormq.errors import BodyError
from raptormq.protocol.bodies.tolerant_json import dumps, loads_request

Ranges = list[tuple[int, int]]
"""Ascending ranges of offsets, first and last."""
Decision = dict[str, Ranges]
"""Ranges by broker name."""

MAX_STAGED_LISTS = 1_000_000
"""Maximum number of lists of one batch at one broker group."""


def to_ranges(offsets: Iterable[int]) -> Ranges:
    """Return ascending ranges of the offsets, which may be in any order."""
    found: Ranges = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset - 1:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found


def offsets_in(ranges: Ranges) -> Iterator[int]:
    """Yield all offsets of the ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def encode_decision(decision: Mapping[str, Ranges]) -> bytes:
    """Return the body."""
    return dumps({name: decision[name] for name in sorted(decision)})


def decode_decision(data: bytes) -> Decision:
    """Decode the body.

    Raises:
        BodyError: not a JSON object of ascending ranges, or more than :data:`MAX_STAGED_LISTS` lists of a broker.
    """
    value = loads_request(data)
    return {str(name): _ranges(str(name), ranges) for name, ranges in value.items()}


def _ranges(broker: str, value: object) -> Ranges:
    found: Ranges = []
    end, count = -1, 0
    for pair in value if isinstance(value, list) else [value]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
            raise BodyError(f"the staged lists of broker {broker} are not pairs of a first and a last offset")
        first, last = pair
        if not end < first <= last:
            raise BodyError(f"the staged lists of broker {broker} are not in ascending ranges: {first} to {last}")
        found.append((first, last))
        end, count = last, count + last - first + 1
    if count > MAX_STAGED_LISTS:
        raise BodyError(f"a batch of {count} staged lists at broker {broker}, more than {MAX_STAGED_LISTS}")
    return found
