"""Keys of rows as small integers: codes within a batch, slots within a state.

Problem: a keyed operator sees 100,000 rows a second and keeps a million keys.  Work per row is vectorised
(Arrow's dictionary encoding gives each row a code); only the distinct keys of a batch touch a Python dict,
which gives each key its slot for good. Values then live in arrays indexed by slot.  Invariant: codes and
slots are numbered by first appearance in inbox order, so two runs over the same input number alike, and a
restored index numbers on as the original would have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.frames import ColumnError, Ints, column, require_one_key
from reprise.spark_jobs.pages import Part
from reprise.spark_jobs.spill import SpillStore

_NAN = float("nan")
"""The one NaN of dicts: two different ones are never equal."""
LOOKED_AT = 16
"""Keys whose bytes are counted, for all of a dict."""
_INT = sys.getsizeof(1 << 20)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a batch by key."""

    codes: Ints
    """For each row, the number of its key in `keys`."""
    keys: pa.Table
    """Distinct keys in order of first appearance (no columns when rows are not grouped)."""
    size: int
    """Number of distinct keys."""


def group(table: pa.Table, by: Sequence[str]) -> Groups:
    """Rows by the key columns `by`, which `one_form` has given; null is a key like others.  Without columns all rows form
    one group.  ColumnError for a column of lists or other nested values."""
    if not by:
        return Groups(np.zeros(table.num_rows, np.int64), pa.table({}), 1 if table.num_rows else 0)
    arrays = [column(table, name) for name in by]
    if len(arrays) == 1:
        encoded = _encoded(arrays[0], by[0])
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Groups(codes, pa.table([encoded.dictionary], names=list(by)), len(encoded.dictionary))
    codes, first = _combined([_encoded(array, name) for array, name in zip(arrays, by, strict=True)])
    keys = pa.table([a.take(pa.array(first)) for a in arrays], names=list(by))
    return Groups(codes, keys, len(first))


def _encoded(array: pa.Array, name: str) -> pa.DictionaryArray:
    try:
        return array.dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError:
        raise ColumnError(
            f"key column {name!r} holds {array.type}; use strings, numbers, times or booleans"
        ) from None


def _combined(columns: Sequence[pa.DictionaryArray]) -> tuple[Ints, Ints]:
    """Codes over several columns by first appearance, and the row in which each code appears first."""
    total = np.zeros(len(columns[0]), np.int64)
    for encoded in columns:
        total = total * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        # Renumber densely after each column: products of column sizes cannot overflow.
        _, first, total = np.unique(total, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[total], first[order].astype(np.int64)


class KeyIndex:
    """Slots 0, 1, 2, ... of the keys seen so far.

    Keys are kept twice: as Python values in the dict that finds them, and as the Arrow chunks in which they
    arrived, which makes freezing a reference and encoding a concatenation.
    """

    __slots__ = ("_keys", "_slots", "by", "size")

    def __init__(self, by: Sequence[str], keys: pa.Table | None = None, size: int = 0) -> None:
        self.by = tuple(by)
        self._keys = ChunkStore()
        self._slots: dict[Hashable, int] = {}
        self.size = 0
        if size:
            self._add(keys if keys is not None else pa.table({}), size)

    def slots(self, groups: Groups) -> Ints:
        """The slot of each group's key; unknown keys get the next slots."""
        found = self.find(groups)
        new = np.flatnonzero(found < 0)
        if len(new):
            found[new] = np.arange(self.size, self.size + len(new))
            self._add(groups.keys.take(pa.array(new)) if self.by else groups.keys, len(new))
        return found

    def find(self, groups: Groups) -> Ints:
        """The slot of each group's key; -1 for unknown keys.  ColumnError where keys have another type than known ones."""
        if self.by and (known := self._keys.schema) is not None and not known.equals(groups.keys.schema):
            require_one_key(known, groups.keys.schema, self.by)
        values = values_of(groups.keys, self.by, groups.size)
        return np.fromiter(map(self._slots.get, values, repeat(-1)), np.int64, groups.size)

    def keys(self, slots: Ints) -> pa.Table:
        """The keys in these slots, as key columns."""
        return self._keys.take(slots) if self.by and self.size else pa.table({})

    def freeze(self) -> Callable[[], pa.Table]:
        """A function that gives all keys in slot order, as of now."""
        return self._keys.freeze()

    def freeze_pages(self) -> Callable[[], Part]:
        """The same, in pages."""
        return self._keys.freeze_pages()

    def spill(self, store: SpillStore, least: int) -> int:
        """See `Spillable.spill`: keys as columns are put there; the dict that finds them stays in memory, and is counted."""
        return self._keys.spill(store, least) + dict_bytes(self._slots)

    def keep(self, slots: Ints) -> KeyIndex:
        """A new index of only these keys, renumbered in this order."""
        return KeyIndex(self.by, self.keys(slots), len(slots))

    def _add(self, keys: pa.Table, count: int) -> None:
        values = values_of(keys, self.by, count)
        self._slots.update(zip(values, range(self.size, self.size + count), strict=True))
        if self.by:
            self._keys.append(keys)
        self.size += count


def dict_bytes(slots: Mapping[Hashable, int]) -> int:
    """What a dict that finds the slots of keys takes in memory, with its keys; about, as only some of them are looked at."""
    some = list(islice(slots, LOOKED_AT))
    parts = [part for key in some if isinstance(key, tuple) for part in key]
    of_some = sum(map(sys.getsizeof, [*some, *parts]))
    return sys.getsizeof(slots) + len(slots) * (_INT + of_some // max(1, len(some)))


def in_order(keys: pa.Table) -> Ints:
    """The places of distinct keys in ascending order, column by column; NaN and null last.  It depends on the keys
    alone.  Of types that Arrow does not sort it is that of their text."""
    try:
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        texts = list(zip(*([repr(v) for v in column.to_pylist()] for column in keys.columns), strict=True))
        return np.array(sorted(range(keys.num_rows), key=texts.__getitem__), np.int64)
    places: Ints = order.to_numpy().astype(np.int64)
    return places


def ranks(codes: Ints) -> Ints:
    """How many rows with its code are before each row."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(starts, append=len(codes)))
    return found


def values_of(keys: pa.Table, by: Sequence[str], count: int) -> list[Hashable]:
    """Keys as values that a dict finds again; `count`: how many there are, where `by` names no column."""
    if not by:
        return [()] * count
    columns = [_hashable(keys.column(name)) for name in by]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _hashable(column: pa.ChunkedArray) -> list[Hashable]:
    """Values that a dict finds again exactly when they are the same key.

    As datetimes the two instants of a repeated hour are equal where clocks are put back, so times are numbers.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        return [_NAN if value != value else value for value in column.to_pylist()]  # noqa: PLR0124
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        unit = _NANOSECONDS[kind.unit]
        return [None if value is None else value * unit for value in column.cast(pa.int64()).to_pylist()]
    found: list[Hashable] = column.to_pylist()
    return found
