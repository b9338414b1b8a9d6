"""Conversion of the properties of many messages into Arrow columns. No I/O.

The encoding (`raptormq.protocol.properties`) is ``name 0x01 value 0x02``, repeated; Java clients before 5.0 omit the
last 0x02. If the separators alternate in all messages, numpy locates all names and values as slices of one buffer.
Otherwise (a value with 0x01, an empty name, invalid UTF-8) messages are parsed one by one, with the same result.

Used by `decode`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raptormq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR, SYSTEM, decode_properties

_NAME_END = ord(NAME_SEPARATOR)
_PAIR_END = ord(PAIR_SEPARATOR)
_SMALL_VOCABULARY = 256
_SYSTEM = pa.array(sorted(SYSTEM), pa.string())


class PropertyTable(Protocol):
    """Properties of n messages."""

    def values(self, name: str) -> pa.Array:
        """Return one property as a string column of n rows; null for messages without it."""

    def map(self, *, without_system: bool = False) -> pa.Array:
        """Return the properties as a map<string, string> column of n rows: all, or only those of the application."""


def property_table(raw: pa.Array) -> PropertyTable:
    """Parse a binary column, without nulls, of encoded properties."""
    try:
        return SeparatedProperties(raw)
    except (_Irregular, pa.ArrowInvalid):
        return ParsedProperties(raw)


class _Irregular(Exception):
    """Raised if the separators do not alternate."""


class SeparatedProperties:
    """Properties with alternating separators.

    Raises:
        _Irregular: The separators do not alternate.
        pa.ArrowInvalid: The text is not UTF-8.
    """

    def __init__(self, raw: pa.Array) -> None:
        raw = _terminated(raw).cast(pa.string())  # validates the encoding
        self._rows = len(raw)
        _, offsets, data = raw.buffers()
        row_bounds = np.frombuffer(offsets, np.int32, self._rows + 1, raw.offset * 4)
        self._data: pa.Buffer = data if data is not None else pa.py_buffer(b"")
        base, stop = int(row_bounds[0]), int(row_bounds[-1])
        text = np.frombuffer(self._data, np.uint8)[base:stop]
        separators = np.flatnonzero(text <= _PAIR_END)
        if len(separators) % 2 or np.any(text[separators].reshape(-1, 2) != (_NAME_END, _PAIR_END)):
            raise _Irregular
        separators += base
        self._name_end, self._value_end = separators[0::2], separators[1::2]
        self._name_at = np.empty_like(self._value_end)
        self._name_at[:1] = base
        self._name_at[1:] = self._value_end[:-1] + 1
        self._name_bytes = self._name_end - self._name_at
        if np.any(self._name_bytes <= 0) or np.any(self._value_end <= self._name_end + 1):
            raise _Irregular
        # Number of pairs before the end of each row: the offsets of a list column; also maps a pair to its row.
        self._pair_bounds = np.searchsorted(self._value_end, row_bounds).astype(np.int32)
        self._segments = self._slices()

    def _slices(self) -> pa.Array:
        """Return name, gap, value, gap, name, ... as one array over the buffer, without a copy."""
        bounds = np.empty(4 * len(self._value_end) + 1, np.int32)
        bounds[0:-1:4] = self._name_at
        bounds[1::4] = self._name_end
        bounds[2::4] = self._name_end + 1
        bounds[3::4] = self._value_end
        bounds[-1] = self._value_end[-1] + 1 if len(self._value_end) else 0
        return pa.Array.from_buffers(pa.string(), len(bounds) - 1, [None, pa.py_buffer(bounds), self._data])

    def values(self, name: str) -> pa.Array:
        """See `PropertyTable`."""
        pairs = self._pairs_named(name.encode())
        row_of_pair = np.searchsorted(self._pair_bounds, pairs, side="right") - 1
        pair_of_row = np.full(self._rows, -1, np.int64)
        pair_of_row[row_of_pair] = pairs  # the last of equal names wins, as numpy assigns in order
        return self._segments.take(pa.array(4 * pair_of_row + 2, mask=pair_of_row < 0))

    def _pairs_named(self, name: bytes) -> npt.NDArray[Any]:
        pairs = np.flatnonzero(self._name_bytes == len(name))
        # Names are compared in words of 8 or 4 bytes as integers; the frequently used names have these lengths.
        for at in range(0, len(name), 8):
            word = name[at : at + 8]
            kind = np.dtype(f"u{len(word)}") if len(word) in (4, 8) else np.dtype((np.void, len(word)))
            if not len(pairs):
                break
            windows: npt.NDArray[Any] = np.ndarray((len(self._data) - len(word) + 1,), kind, self._data, strides=(1,))
            pairs = pairs[windows[self._name_at[pairs] + at] == np.frombuffer(word, kind)[0]]
        return pairs

    def map(self, *, without_system: bool = False) -> pa.Array:
        """See `PropertyTable`."""
        pairs = np.arange(len(self._value_end), dtype=np.int64)
        bounds = self._pair_bounds
        names = self._segments.take(pa.array(4 * pairs))
        chosen = self._last_of_equal_names(names)
        if without_system:
            chosen &= ~pc.is_in(names, _SYSTEM).to_numpy(zero_copy_only=False)
        if not np.all(chosen):
            pairs, names = pairs[chosen], names.filter(pa.array(chosen))
            bounds = np.concatenate(([0], np.cumsum(chosen)))[bounds].astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(bounds), names, self._segments.take(pa.array(4 * pairs + 2)))

    def _last_of_equal_names(self, names: pa.Array) -> npt.NDArray[np.bool_]:
        encoded = names.dictionary_encode()
        vocabulary = len(encoded.dictionary)
        pairs = np.arange(len(names))
        rows = np.repeat(np.arange(self._rows), np.diff(self._pair_bounds))
        slots = rows * vocabulary + encoded.indices.to_numpy(zero_copy_only=False)
        if vocabulary > _SMALL_VOCABULARY:  # a table of rows x vocabulary would be too large
            _, slots = np.unique(slots, return_inverse=True)
        last_of_slot = np.full(int(slots.max(initial=-1)) + 1, -1)
        last_of_slot[slots] = pairs
        return np.asarray(last_of_slot[slots] == pairs)


def _terminated(raw: pa.Array) -> pa.Array:
    """Append the pair separator to non-empty texts that lack it."""
    separator = pa.scalar(bytes([_PAIR_END]), raw.type)
    fine = pc.or_(pc.ends_with(raw, PAIR_SEPARATOR), pc.equal(pc.binary_length(raw), 0))
    if pc.all(fine).as_py() is not False:
        return raw
    return pc.if_else(fine, raw, pc.binary_join_element_wise(raw, pa.scalar(b"", raw.type), separator))


class ParsedProperties:
    """Properties that are parsed one message at a time."""

    def __init__(self, raw: pa.Array) -> None:
        self._rows = [decode_properties(text.decode(errors="replace")) for text in raw.to_pylist()]

    def values(self, name: str) -> pa.Array:
        """See `PropertyTable`."""
        return pa.array([row.get(name) for row in self._rows], pa.string())

    def map(self, *, without_system: bool = False) -> pa.Array:
        """See `PropertyTable`."""
        left_out = SYSTEM if without_system else frozenset[str]()
        rows = [[pair for pair in row.items() if pair[0] not in left_out] for row in self._rows]
        return pa.array(rows, pa.map_(pa.string(), pa.string()))
