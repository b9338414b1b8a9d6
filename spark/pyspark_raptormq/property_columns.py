"""Properties of many messages as Arrow columns: parsed with numpy where they are well formed, one by one where not.
Pure.

The text form (`raptormq.protocol.properties`) is ``name 0x01 value 0x02`` repeated; Java clients before 5.0 leave out
the last 0x02. When all separators alternate, their positions are all there is to know: names and values are slices of
one buffer. Anything else (a value that holds 0x01, an empty name, text that is not UTF-8) goes the slow way, with the
same result.

Neighbour: `decode`, which asks for single properties and for the map.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raptormq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR, decode_properties

_NAME_END = ord(NAME_SEPARATOR)
_PAIR_END = ord(PAIR_SEPARATOR)
_SMALL_VOCABULARY = 256


class PropertyTable(Protocol):
    """The properties of n messages."""

    def values(self, name: str) -> pa.Array:
        """Return one property as a string column of n rows, null where a message does not have it."""

    def map(self) -> pa.Array:
        """Return all properties as a map<string, string> column of n rows."""


def property_table(raw: pa.Array) -> PropertyTable:
    """Return the table of a binary column without nulls that holds the text forms."""
    try:
        return SeparatedProperties(raw)
    except (_Irregular, pa.ArrowInvalid):
        return ParsedProperties(raw)


class _Irregular(Exception):
    """The separators do not alternate."""


class SeparatedProperties:
    """Properties whose separators alternate; `_Irregular` otherwise."""

    def __init__(self, raw: pa.Array) -> None:
        raw = _terminated(raw)
        self._rows = len(raw)
        _, offsets, data = raw.buffers()
        row_bounds = np.frombuffer(offsets, np.int32, self._rows + 1, raw.offset * 4)
        self._data: pa.Buffer = data if data is not None else pa.py_buffer(b"")
        base, stop = int(row_bounds[0]), int(row_bounds[-1])
        text = np.frombuffer(self._data, np.uint8)[base:stop]
        self._name_end = np.flatnonzero(text == _NAME_END) + base
        self._value_end = np.flatnonzero(text == _PAIR_END) + base
        self._name_at = np.empty_like(self._value_end)
        self._name_at[:1] = base
        self._name_at[1:] = self._value_end[:-1] + 1
        self._check()
        # Pairs before the end of each row: the offsets of a list column, and the way back from a pair to its row.
        self._pair_bounds = np.searchsorted(self._value_end, row_bounds).astype(np.int32)
        self._segments: pa.Array = self._slices(pa.binary()).cast(pa.string())

    def _check(self) -> None:
        if len(self._name_end) != len(self._value_end):
            raise _Irregular
        empty_name = self._name_end <= self._name_at
        empty_value = self._value_end <= self._name_end + 1
        if np.any(empty_name) or np.any(empty_value):
            raise _Irregular

    def _slices(self, kind: pa.DataType) -> pa.Array:
        """Return name, gap, value, gap, name, ... as one array over the buffer; nothing is copied."""
        bounds = np.empty(4 * len(self._value_end) + 1, np.int32)
        bounds[0:-1:4] = self._name_at
        bounds[1::4] = self._name_end
        bounds[2::4] = self._name_end + 1
        bounds[3::4] = self._value_end
        bounds[-1] = self._value_end[-1] + 1 if len(self._value_end) else 0
        return pa.Array.from_buffers(kind, len(bounds) - 1, [None, pa.py_buffer(bounds), self._data])

    def values(self, name: str) -> pa.Array:
        """See `PropertyTable`."""
        pairs = self._pairs_named(name.encode())
        row_of_pair = np.searchsorted(self._pair_bounds, pairs, side="right") - 1
        pair_of_row = np.full(self._rows, -1, np.int64)
        pair_of_row[row_of_pair] = pairs  # of equal names the last one counts, and numpy assigns in order
        return self._segments.take(pa.array(4 * pair_of_row + 2, mask=pair_of_row < 0))

    def _pairs_named(self, name: bytes) -> npt.NDArray[Any]:
        candidates = np.flatnonzero(self._name_end - self._name_at == len(name))
        if len(candidates) == 0:
            return candidates
        windows: npt.NDArray[Any] = np.ndarray(
            (len(self._data) - len(name) + 1,), np.dtype((np.void, len(name))), self._data, strides=(1,)
        )
        found = windows[self._name_at[candidates]].view(np.uint8).reshape(-1, len(name))
        return candidates[np.all(found == np.frombuffer(name, np.uint8), axis=1)]

    def map(self) -> pa.Array:
        """See `PropertyTable`."""
        pairs = np.arange(len(self._value_end), dtype=np.int64)
        bounds = self._pair_bounds
        names = self._segments.take(pa.array(4 * pairs))
        last = self._last_of_equal_names(names)
        if not np.all(last):
            pairs, names = pairs[last], names.filter(pa.array(last))
            bounds = np.concatenate(([0], np.cumsum(last)))[bounds].astype(np.int32)
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
    """Append the pair separator where a non-empty text lacks it."""
    separator = pa.scalar(bytes([_PAIR_END]), raw.type)
    fine = pc.or_(pc.ends_with(raw, PAIR_SEPARATOR), pc.equal(pc.binary_length(raw), 0))
    if pc.all(fine).as_py() is not False:
        return raw
    return pc.if_else(fine, raw, pc.binary_join_element_wise(raw, pa.scalar(b"", raw.type), separator))


class ParsedProperties:
    """Properties parsed one message at a time."""

    def __init__(self, raw: pa.Array) -> None:
        self._rows = [decode_properties(text.decode(errors="replace")) for text in raw.to_pylist()]

    def values(self, name: str) -> pa.Array:
        """See `PropertyTable`."""
        return pa.array([row.get(name) for row in self._rows], pa.string())

    def map(self) -> pa.Array:
        """See `PropertyTable`."""
        return pa.array([list(row.items()) for row in self._rows], pa.map_(pa.string(), pa.string()))
