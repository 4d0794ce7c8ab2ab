"""Accumulator arrays indexed by slot, copied on the first write after a freeze.

Freezing must not hold up processing, so `freeze` only takes references and marks the arrays as shared;
whoever writes next copies what it writes to.  Invariant: an array handed out by `freeze` never changes.

`freeze_pages` copies nothing whole: from the first call on pages are kept of what is written (`reprise.spark_jobs.pages`).

Arrays may be in files of the node (`spill`).  Such an array grows where it is; what it has behind the last slot is not said,
and becomes the identity when slots are added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.operators.aggregates import (
    DECIMAL,
    ROWS,
    Array,
    Partials,
    combine,
    decimal_code_of,
    identity,
    unwritten,
)
from reprise.spark_jobs.operators.frames import ColumnError, Ints
from reprise.spark_jobs.pages import PageSet, Part
from reprise.spark_jobs.spill import SpillFullError, SpillStore

_LEAST = 256
_OF_DECIMALS = f"{DECIMAL}:"


class Accumulators:
    """Named arrays over slots 0..size-1 (slots beyond an array's end hold its identity)."""

    __slots__ = ("_arrays", "_pages", "_shared", "_store", "size")

    def __init__(self, arrays: Partials | None = None) -> None:
        self._arrays: Partials = dict(arrays or {})
        self.size = len(next(iter(self._arrays.values()))) if self._arrays else 0
        self._shared = bool(self._arrays)
        self._pages: PageSet | None = None
        """Kept from the first `freeze_pages` on."""
        self._store: SpillStore | None = None
        """Where arrays are that were put into files."""

    def update(self, slots: Ints, values: Partials) -> None:
        """Combine one value a slot into each named array; `slots` must be distinct."""
        values = self.fit(values)
        self._own(max(self.size, int(slots.max()) + 1), values)
        if self._pages is not None:
            self._pages.touch(slots)
        for name, value in values.items():
            array = self._arrays[name]
            array[slots] = combine(name, array[slots], value)

    def put(self, slots: Ints, values: Partials) -> None:
        """The same, instead of what these slots had."""
        values = self.fit(values)
        self._own(max(self.size, int(slots.max()) + 1), values)
        if self._pages is not None:
            self._pages.touch(slots)
        for name, value in values.items():
            self._arrays[name][slots] = value

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all arrays."""
        return tuple(self._arrays)

    @property
    def types(self) -> dict[str, str]:
        """Types of all arrays, as numpy writes them; types of decimals with their code behind a colon."""
        return {
            name: f"{array.dtype.str}:{self._code(name)}"
            if name.startswith(_OF_DECIMALS)
            else array.dtype.str
            for name, array in self._arrays.items()
        }

    def only_nulls(self, name: str) -> bool:
        """Whether no value of the column behind this array was seen."""
        return _only_nulls(name, self._arrays)

    def retype(self, types: Mapping[str, str]) -> None:
        """Give arrays these types, also those that were never written.  ValueError where one has values of another."""
        for name, told in types.items():
            array, (kind, _, code) = self._arrays.get(name), told.partition(":")
            if code:
                if self._code(name) not in (0, int(code)):
                    raise ValueError(f"{name.removeprefix(_OF_DECIMALS)!r} has decimals of another type")
                self._arrays[name] = np.full(max(self.size, 1), int(code), kind)  # known also without a slot
                continue
            if array is not None and array.dtype != kind and not _only_nulls(name, self._arrays):
                raise ValueError(f"{name} has values of {array.dtype}, not {kind}")
            if array is None or array.dtype != kind:
                size = self.size if array is None else len(array)
                self._arrays[name] = np.full(size, identity(name, kind), kind)

    def gather(self, slots: Ints, names: Sequence[str]) -> Partials:
        """The named values in these slots; names never written are left out."""
        inside = slots < self.size
        result = {}
        for name in names:
            if name in self._arrays:
                array = self._arrays[name]
                values = np.full(len(slots), self._nothing(name, array), array.dtype)
                values[inside] = array[slots[inside]]
                result[name] = values
        return result

    def value(self, slot: int, name: str) -> Any:
        """One value in a slot that has been written, as a Python number."""
        return self._arrays[name][slot].item()

    def present(self) -> Ints:
        """Slots that hold at least one row, in order."""
        return np.flatnonzero(self._arrays[ROWS][: self.size]) if self.size else np.zeros(0, np.int64)

    def freeze(self) -> Callable[[], pa.Table]:
        """A function that gives the arrays as columns, as of now."""
        self._shared = True
        arrays, size = in_order(self._arrays), self.size
        return lambda: pa.table({name: array[:size] for name, array in arrays.items()})

    def freeze_pages(self) -> Callable[[], Part]:
        """The same, in pages; a table without columns where nothing was ever written."""
        if any(len(array) < self.size for array in self._arrays.values()) or not self._arrays:
            return self.freeze()
        if self._pages is None:
            self._pages = PageSet(self.size)
            self._pages.keep = None if self._store is None else self._store.kept
        frozen = self._pages.freeze(in_order(self._arrays), self.size)
        return lambda: (frozen,)

    def spill(self, store: SpillStore, least: int) -> int:
        """See `Spillable.spill`.  All arrays go together: pages are of all of them."""
        here = {name: array for name, array in self._arrays.items() if not store.has(array.ctypes.data)}
        held = sum(array.nbytes for array in here.values())
        short = any(len(array) < self.size for array in self._arrays.values())
        if short or not any(array.nbytes >= least for array in here.values()):
            return held
        rows = self._with_room(self.size)
        self._arrays = {name: store.moved(array[: self.size], rows) for name, array in self._arrays.items()}
        self._shared, self._store = False, store
        if self._pages is not None:
            self._pages.keep = store.kept
            self._pages.replaced(changed=False)
        return 0

    @staticmethod
    def _with_room(size: int) -> int:
        """Slots of an array in a file that has so many now."""
        return max(size + size // 8, _LEAST)

    def take(self, slots: Ints) -> Accumulators:
        """The same values under new numbers: slot `slots[i]` becomes i; trailing empty slots are cut."""
        inside = slots[slots < self.size]
        return Accumulators({name: array[inside] for name, array in self._arrays.items()})

    def fit(self, values: Partials) -> Partials:
        """The values in the types of these arrays.  Of a column that was nothing but nulls here, or is there, the type is
        not known yet, and it takes that of the other; ColumnError when both have values and their types differ."""
        values = self._fit_decimals(values)
        for name, value in values.items():
            array = self._arrays.get(name)
            if array is None or array.dtype == value.dtype:
                continue
            if _only_nulls(name, values):
                values = {**values, name: np.full(len(value), identity(name, array.dtype), array.dtype)}
            elif _only_nulls(name, self._arrays):
                self._replace(name, np.full(len(array), identity(name, value.dtype), value.dtype))
            else:
                raise ColumnError(
                    f"{name} changed its type from {array.dtype} to {value.dtype} between batches"
                )
        return values

    def _fit_decimals(self, values: Partials) -> Partials:
        """The values with the types of decimals that these arrays have, which get those of `values`.  ColumnError: a column
        has decimals of another type, or other numbers, on the other side."""
        names = {name for name in (*self._arrays, *values) if name.startswith(_OF_DECIMALS)}
        for name in sorted(names):
            here, there = self._code(name), decimal_code_of(values.get(name))
            kind, of = here or there, name.removeprefix(_OF_DECIMALS)
            if here and there and here != there:
                raise ColumnError(f"{of!r} changed its precision or scale between batches")
            if not kind:
                continue
            if (not here and _has_numbers(of, self._arrays)) or (not there and _has_numbers(of, values)):
                raise ColumnError(f"{of!r} has decimals in some batches and other numbers in others")
            if not here and self.size:
                self._replace(name, np.full(self.size, kind, np.int16))
            if not there:
                values = {**values, name: np.full(len(next(iter(values.values()), ())), kind, np.int16)}
        return values

    def _replace(self, name: str, array: Array) -> None:
        """Another array under this name."""
        self._arrays[name] = array
        if self._pages is not None:
            self._arrays = {other: held.copy() for other, held in self._arrays.items()}
            self._pages.replaced(changed=True)

    def _nothing(self, name: str, like: Array) -> Any:
        """What a slot has that was never written."""
        if name.startswith(_OF_DECIMALS):
            return self._code(name) or unwritten(name, like)
        return identity(name, like.dtype)

    def _code(self, name: str) -> int:
        """The code of a type of decimals, which all slots have; 0: not known."""
        array = self._arrays.get(name)
        return int(array[0]) if array is not None and len(array) else 0

    def _own(self, size: int, values: Partials) -> None:
        """Make every array writable, and those in `values` at least `size` long."""
        pages, before = self._pages, {} if self._pages is None else dict(self._arrays)
        longer = self._lengthen(size, values)
        for name, value in values.items():
            array = self._arrays.get(name)
            if array is None or len(array) < size or self._shared:
                length = max(size, _LEAST)
                if array is not None:
                    length = max(length, len(array) * 2 if len(array) < size else len(array))
                grown = np.full(length, self._nothing(name, value), value.dtype)
                if array is not None:
                    grown[: self.size] = array[: self.size]
                self._arrays[name] = grown
        if self._shared:  # those that are not written now may be written next
            self._arrays |= {n: array.copy() for n, array in self._arrays.items() if n not in values}
        self._shared = False
        if pages is not None:
            self._tell(pages, before, longer)
            pages.extend(self.size, size)
        if self._store is not None and size > self.size:
            for name, array in self._arrays.items():
                if self._store.has(array.ctypes.data):
                    array[self.size : size] = self._nothing(name, array)
        self.size = size

    def _lengthen(self, size: int, values: Partials) -> Collection[str]:
        """Give the arrays of `values` that are in files, and too short, more room where they are; their names.  None, where
        there is no room on the disk, or others have to change: these go back into memory."""
        if self._store is None or self._shared or any(name not in self._arrays for name in values):
            return ()
        short = {n: a for n in values if len(a := self._arrays[n]) < size}
        if not short or not all(self._store.has(array.ctypes.data) for array in short.values()):
            return ()
        try:
            rows = self._with_room(size)
            self._arrays |= {name: self._store.longer(array, rows) for name, array in short.items()}
        except SpillFullError as error:
            self._store.seen.problem = str(error)
            return ()
        return short.keys()

    def _tell(self, pages: PageSet, before: Partials, longer: Collection[str]) -> None:
        """Pages are of all arrays: where one is another now, all are, and snapshots keep those that were.  One that is
        `longer` has its rows where they were."""
        same = [name for name, array in before.items() if self._arrays[name] is array or name in longer]
        if len(same) < len(self._arrays):
            for name in same:
                self._arrays[name] = self._arrays[name].copy()
            pages.replaced(changed=len(before) < len(self._arrays))


def _has_numbers(column: str, values: Partials) -> bool:
    """Whether there are sums, minima or maxima of a column, of any value."""
    held = any(f"{function}:{column}" in values for function in ("sum", "min", "max"))
    return held and not _only_nulls(f":{column}", values)


def in_order(arrays: Partials) -> Partials:
    """The same in one order: types of decimals, which may come later than the rest, are last."""
    late = sorted(name for name in arrays if name.startswith(_OF_DECIMALS))
    return {name: arrays[name] for name in [*(n for n in arrays if n not in late), *late]}


def _only_nulls(name: str, values: Partials) -> bool:
    """Whether no value of the column behind an accumulator was seen."""
    seen = values.get(f"seen:{name.partition(':')[2]}")
    return seen is not None and not seen.any()


def restore(table: pa.Table) -> Accumulators:
    """The inverse of `Accumulators.freeze`."""
    return Accumulators({n: table.column(n).to_numpy() for n in table.column_names})


def unified(parts: Sequence[Accumulators]) -> None:
    """Give each array one type in all of these, that of those that have values.  ColumnError: values are of several."""
    types: dict[str, str] = {}
    for part in parts:
        for name, kind in part.types.items():
            if kind.endswith(":0"):
                continue
            if ":" in kind and types.get(name, kind) != kind:
                raise ColumnError(f"{name.removeprefix(_OF_DECIMALS)!r} has decimals of several types")
            if name not in types or not part.only_nulls(name):
                types[name] = kind
    for part in parts:
        try:
            part.retype(types)
        except ValueError as error:
            raise ColumnError(str(error)) from None


def merge(parts: Sequence[Accumulators], slots: Ints, names: Sequence[str]) -> Partials:
    """The named values of several accumulators in these slots, combined in order."""
    result: Partials = {}
    for part in parts:
        for name, values in part.gather(slots, names).items():
            result[name] = combine(name, result[name], values) if name in result else values
    return result
