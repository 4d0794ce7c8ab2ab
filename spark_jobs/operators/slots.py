"""Accumulator arrays indexed by slot, copied on the first write after a freeze.

Freezing must not hold up processing, so `freeze` only takes references and marks the arrays as shared;
whoever writes next copies what it writes to.  Invariant: an array handed out by `freeze` never changes.

`freeze_pages` copies nothing whole: from the first call on pages are kept of what is written (`reprise.spark_jobs.pages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.operators.aggregates import ROWS, Partials, combine, identity
from reprise.spark_jobs.operators.frames import ColumnError, Ints
from reprise.spark_jobs.pages import PageSet, Part

_LEAST = 256


class Accumulators:
    """Named arrays over slots 0..size-1 (slots beyond an array's end hold its identity)."""

    __slots__ = ("_arrays", "_pages", "_shared", "size")

    def __init__(self, arrays: Partials | None = None) -> None:
        self._arrays: Partials = dict(arrays or {})
        self.size = len(next(iter(self._arrays.values()))) if self._arrays else 0
        self._shared = bool(self._arrays)
        self._pages: PageSet | None = None
        """Kept from the first `freeze_pages` on."""

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
        """Types of all arrays, as numpy writes them."""
        return {name: array.dtype.str for name, array in self._arrays.items()}

    def retype(self, types: Mapping[str, str]) -> None:
        """Give arrays these types, also those that were never written.  ValueError where one has values of another."""
        for name, kind in types.items():
            array = self._arrays.get(name)
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
                values = np.full(len(slots), identity(name, array.dtype), array.dtype)
                values[inside] = array[slots[inside]]
                result[name] = values
        return result

    def present(self) -> Ints:
        """Slots that hold at least one row, in order."""
        return np.flatnonzero(self._arrays[ROWS][: self.size]) if self.size else np.zeros(0, np.int64)

    def freeze(self) -> Callable[[], pa.Table]:
        """A function that gives the arrays as columns, as of now."""
        self._shared = True
        arrays, size = dict(self._arrays), self.size
        return lambda: pa.table({name: array[:size] for name, array in arrays.items()})

    def freeze_pages(self) -> Callable[[], Part]:
        """The same, in pages; a table without columns where nothing was ever written."""
        if any(len(array) < self.size for array in self._arrays.values()) or not self._arrays:
            return self.freeze()
        if self._pages is None:
            self._pages = PageSet(self.size)
        frozen = self._pages.freeze(self._arrays, self.size)
        return lambda: (frozen,)

    def take(self, slots: Ints) -> Accumulators:
        """The same values under new numbers: slot `slots[i]` becomes i; trailing empty slots are cut."""
        inside = slots[slots < self.size]
        return Accumulators({name: array[inside] for name, array in self._arrays.items()})

    def fit(self, values: Partials) -> Partials:
        """The values in the types of these arrays.  Of a column that was nothing but nulls here, or is there, the type is
        not known yet, and it takes that of the other; ColumnError when both have values and their types differ."""
        for name, value in values.items():
            array = self._arrays.get(name)
            if array is None or array.dtype == value.dtype:
                continue
            if _only_nulls(name, values):
                values = {**values, name: np.full(len(value), identity(name, array.dtype), array.dtype)}
            elif _only_nulls(name, self._arrays):
                self._arrays[name] = np.full(len(array), identity(name, value.dtype), value.dtype)
                if self._pages is not None:
                    self._arrays = {other: held.copy() for other, held in self._arrays.items()}
                    self._pages.replaced(changed=True)
            else:
                raise ColumnError(
                    f"{name} changed its type from {array.dtype} to {value.dtype} between batches"
                )
        return values

    def _own(self, size: int, values: Partials) -> None:
        """Make every array in `values` writable and at least `size` long."""
        pages, before = self._pages, {} if self._pages is None else dict(self._arrays)
        for name, value in values.items():
            array = self._arrays.get(name)
            if array is None or len(array) < size or self._shared:
                length = max(size, _LEAST)
                if array is not None:
                    length = max(length, len(array) * 2 if len(array) < size else len(array))
                grown = np.full(length, identity(name, value.dtype), value.dtype)
                if array is not None:
                    grown[: self.size] = array[: self.size]
                self._arrays[name] = grown
        self._shared = False
        if pages is not None:
            self._tell(pages, before)
            pages.extend(self.size, size)
        self.size = size

    def _tell(self, pages: PageSet, before: Partials) -> None:
        """Pages are of all arrays: where one is another now, all are, and snapshots keep those that were."""
        same = [name for name, array in before.items() if self._arrays[name] is array]
        if len(same) < len(self._arrays):
            for name in same:
                self._arrays[name] = self._arrays[name].copy()
            pages.replaced(changed=len(before) < len(self._arrays))


def _only_nulls(name: str, values: Partials) -> bool:
    """Whether no value of the column behind an accumulator was seen."""
    seen = values.get(f"seen:{name.partition(':')[2]}")
    return seen is not None and not seen.any()


def restore(table: pa.Table) -> Accumulators:
    """The inverse of `Accumulators.freeze`."""
    return Accumulators({n: table.column(n).to_numpy() for n in table.column_names})


def merge(parts: Sequence[Accumulators], slots: Ints, names: Sequence[str]) -> Partials:
    """The named values of several accumulators in these slots, combined in order."""
    result: Partials = {}
    for part in parts:
        for name, values in part.gather(slots, names).items():
            result[name] = combine(name, result[name], values) if name in result else values
    return result
