"""A map of an own operator's state: values by key, of which a snapshot in pages stores what has changed.

Each key has a slot, and stands in an append-only table in the order of slots.  Values of fixed width (numbers and truth
values) are in arrays over the slots; others, such as text, are rows of a second append-only table, and the slot has the
number of its row.  A key that is removed leaves its slot empty; where that, or rows that no slot names, are more than half,
all of it is written anew.

What is written one by one waits in a dict until there is enough of it, or somebody reads all.

Invariants: keys are in the order in which they came, as in a dict; and nothing that can be read depends on when slots were
written or put together, so a state that was restored goes on alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.operators.aggregates import Array
from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.frames import Bools, ColumnError, Ints
from reprise.spark_jobs.operators.keys import dict_bytes, values_of
from reprise.spark_jobs.operators.slots import Accumulators, restore
from reprise.spark_jobs.operators.state_columns import Row, RowType, StateStructure, Types
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable, SpillStore

AT_ONCE = 4096
"""Keys that were written one by one, and wait to be written together."""
COMPACT_FROM = 1024
_LIVE, _ROW, _VALUE = "live", "row", "value:"
"""Arrays over slots: whether there is a key, the number of its row, and the values of a column."""


class MapState(StateStructure):
    """Values by key.  `keys`: columns of whole numbers, text, bytes or truth values; `values`: of any type.

    A key, or value, of one column is that value, one of several a tuple.  Numbers and truth values cannot be None.
    """

    def __init__(self, keys: Types, values: Types) -> None:
        self._key, self._value = RowType(keys), RowType(values)
        for name, kind in keys.items():
            if not _is_key(kind):
                raise TypeError(
                    f"the key {name!r} is of {kind}; use whole numbers, strings, bytes or booleans"
                )
        if twice := keys.keys() & values.keys():
            raise TypeError(f"{min(twice)!r} is a key and a value")
        self._row_type = RowType({**keys, **values})
        self._fixed = tuple(name for name, kind in values.items() if _is_fixed(kind))
        self._wide = tuple(name for name in values if name not in self._fixed)
        self._begin()

    def _begin(self) -> None:
        self._slots: dict[Hashable, int] = {}
        self._keys, self._arrays, self._rows = ChunkStore(), Accumulators(), ChunkStore()
        self._waiting: dict[Hashable, Row] = {}
        self._gone: list[int] = []

    # -- one by one ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._write()
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        found = self._hashable(key)
        return found in self._waiting or found in self._slots

    def __getitem__(self, key: Any) -> Any:
        if (row := self._find(key)) is None:
            raise KeyError(key)
        return self._value.shown(row)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key; `default` where it has none."""
        row = self._find(key)
        return default if row is None else self._value.shown(row)

    def __setitem__(self, key: Any, value: Any) -> None:
        row = self._value.row(value)
        for name, each in zip(self._value.names, row, strict=True):
            if each is None and name in self._fixed:
                raise TypeError(f"{name} is a number or truth value, and cannot be None")
        self._waiting[self._hashable(key)] = row
        if len(self._waiting) >= AT_ONCE:
            self._write()

    def __delitem__(self, key: Any) -> None:
        found = self._hashable(key)
        was_waiting = self._waiting.pop(found, None) is not None
        slot = self._slots.pop(found, None)
        if slot is not None:
            self._gone.append(slot)
            if len(self._gone) >= AT_ONCE:
                self._write()
        elif not was_waiting:
            raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        """The keys, in the order in which they came."""
        self._write()
        return iter(list(self._slots))

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values, in the order in which the keys came."""
        rows = self.table()
        keys, values = (
            zip(*(rows.column(n).to_pylist() for n in kind.names), strict=True)
            for kind in (self._key, self._value)
        )
        return ((self._key.shown(k), self._value.shown(v)) for k, v in zip(keys, values, strict=True))

    def clear(self) -> None:
        self._begin()

    # -- batches -------------------------------------------------------------------------------------------------------

    def take(self, keys: pa.Table) -> pa.Table:
        """The values of these keys, one row for each of theirs; null where a key has none.  ColumnError: they are not
        keys."""
        self._write()
        slots = self._of(self._key.fitted(keys))
        known = slots >= 0
        if not known.any():
            return pa.table(
                [pa.nulls(len(slots), kind) for kind in self._value.schema.types],
                schema=self._value.schema,
            )
        place = pa.array(np.cumsum(known) - 1, mask=~known)
        return self._values(slots[known]).take(place).combine_chunks()

    def extend(self, rows: pa.Table) -> None:
        """Write rows with the columns of keys and values; of rows with the same key the last one counts.  ColumnError:
        their columns do not fit, or a number is null."""
        table = self._row_type.fitted(rows)
        self._write()
        last = {key: row for row, key in enumerate(values_of(table, self._key.names, table.num_rows))}
        if len(last) < table.num_rows:
            table = table.take(pa.array(list(last.values())))
        for name in self._fixed:
            if table.column(name).null_count:
                raise ColumnError(f"{name} is a number or truth value, and cannot be null")
        if last:
            self._put(last.keys(), table)

    def remove(self, keys: pa.Table) -> None:
        """Remove these keys, as far as they are there.  ColumnError: they are not keys."""
        table = self._key.fitted(keys)
        self._write()
        found = (self._slots.pop(key, None) for key in values_of(table, self._key.names, table.num_rows))
        self._gone += [slot for slot in found if slot is not None]
        self._write()

    def table(self) -> pa.Table:
        self._write()
        if not self._slots:
            return self._row_type.schema.empty_table()
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        keys, values = self._keys.take(slots), self._values(slots)
        return pa.table([*keys.columns, *values.columns], schema=self._row_type.schema)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @property
    def row_type(self) -> RowType:
        return self._row_type

    @property
    def form(self) -> tuple[str, int]:
        return "map", len(self._key.names)

    def freeze(self) -> Callable[[], Tables]:
        self._write()
        keys, arrays, rows = self._keys.freeze(), self._arrays.freeze(), self._rows.freeze()
        return lambda: {"keys": keys(), "values": arrays(), "rows": rows()}

    def freeze_pages(self) -> Callable[[], Parts]:
        self._write()
        keys, arrays, rows = self._keys.freeze_pages(), self._arrays.freeze_pages(), self._rows.freeze_pages()
        return lambda: {"keys": keys(), "values": arrays(), "rows": rows()}

    def load(self, tables: Tables) -> None:
        self.clear()
        self._keys, self._arrays = ChunkStore(tables["keys"]), restore(tables["values"])
        self._rows = ChunkStore(tables["rows"])
        if self._keys.size:
            live = self._arrays.gather(np.arange(self._arrays.size), [_LIVE])[_LIVE]
            self._slots = self._found(tables["keys"], np.flatnonzero(live))

    def spillable(self) -> Sequence[Spillable]:
        return self._keys, self._arrays, self._rows, self

    def spill(self, store: SpillStore, least: int) -> int:
        """See `Spillable.spill`: the dict that finds keys stays in memory."""
        return dict_bytes(self._slots)

    def empty(self) -> MapState:
        return MapState(
            *({n: kind.schema.field(n).type for n in kind.names} for kind in (self._key, self._value))
        )

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _hashable(self, key: Any) -> Hashable:
        found: Hashable = self._key.shown(self._key.row(key))
        return found

    def _found(self, keys: pa.Table, slots: Ints) -> dict[Hashable, int]:
        values = values_of(keys, self._key.names, keys.num_rows)
        return {values[slot]: slot for slot in slots.tolist()}

    def _of(self, keys: pa.Table) -> Ints:
        values = values_of(keys, self._key.names, keys.num_rows)
        return np.fromiter((self._slots.get(key, -1) for key in values), np.int64, len(values))

    def _find(self, key: Any) -> Row | None:
        found = self._hashable(key)
        if (row := self._waiting.get(found)) is not None:
            return row
        if (slot := self._slots.get(found)) is None:
            return None
        values = {
            name: bool(value) if pa.types.is_boolean(self._value.schema.field(name).type) else value
            for name in self._fixed
            for value in [self._arrays.value(slot, _VALUE + name)]
        }
        if self._wide:
            wide = self._rows.take(np.array([self._arrays.value(slot, _ROW)]))
            values |= {name: wide.column(name)[0].as_py() for name in self._wide}
        return tuple(values[name] for name in self._value.names)

    def _values(self, slots: Ints) -> pa.Table:
        """The values in these slots, which have keys."""
        columns: dict[str, Any] = {}
        for name, array in self._arrays.gather(slots, [_VALUE + n for n in self._fixed]).items():
            column = name.removeprefix(_VALUE)
            columns[column] = pa.array(array).cast(self._value.schema.field(column).type)
        if self._wide:
            rows = self._rows.take(self._arrays.gather(slots, [_ROW])[_ROW])
            columns |= {name: rows.column(name) for name in self._wide}
        return pa.table([columns[name] for name in self._value.names], schema=self._value.schema)

    def _write(self) -> None:
        """What was said one by one."""
        if self._gone:
            slots = np.unique(np.array(self._gone, np.int64))
            self._arrays.put(slots, {_LIVE: np.zeros(len(slots), np.uint8)})
            self._gone = []
            self._compact()
        if self._waiting:
            keys, rows = self._waiting.keys(), list(self._waiting.values())
            plain = [(key,) if len(self._key.names) == 1 else key for key in keys]
            table = self._row_type.table([(*key, *row) for key, row in zip(plain, rows, strict=True)])  # type: ignore[misc]
            self._waiting = {}
            self._put(keys, table)

    def _put(self, keys: Any, table: pa.Table) -> None:
        """Rows of distinct keys."""
        slots = np.fromiter((self._slots.get(key, -1) for key in keys), np.int64, table.num_rows)
        new: Bools = slots < 0
        if count := int(new.sum()):
            before = self._keys.size
            slots[new] = np.arange(before, before + count)
            self._slots.update(
                (key, slot) for key, slot in zip(keys, slots.tolist(), strict=True) if slot >= before
            )
            self._keys.append(table.select(self._key.names).filter(pa.array(new)))
        arrays: dict[str, Array] = {_LIVE: np.ones(len(slots), np.uint8)}
        for name in self._fixed:
            column = table.column(name)
            if pa.types.is_boolean(column.type):
                column = column.cast(pa.uint8())
            arrays[_VALUE + name] = column.to_numpy()
        if self._wide:
            arrays[_ROW] = np.arange(self._rows.size, self._rows.size + len(slots))
            self._rows.append(table.select(self._wide))
        self._arrays.put(slots, arrays)
        self._compact()

    def _compact(self) -> None:
        """Write anew what is needed, where it is less than half."""
        count = len(self._slots)
        slots_few = self._keys.size >= COMPACT_FROM and 2 * count < self._keys.size
        rows_few = self._rows.size >= COMPACT_FROM and 2 * count < self._rows.size
        if not (slots_few or rows_few):
            return
        live = np.fromiter(self._slots.values(), np.int64, count)
        arrays = self._arrays.gather(live, self._arrays.names)
        rows = self._rows.take(arrays[_ROW]) if self._wide and count else None
        if rows is not None:
            arrays[_ROW] = np.arange(count)
        keys = self._keys.take(live)
        self._keys, self._rows = ChunkStore(keys), ChunkStore(rows)
        self._arrays = Accumulators(arrays if count else None)
        self._slots = {key: slot for slot, key in enumerate(self._slots)}


def _is_key(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_boolean(kind)
    )


def _is_fixed(kind: pa.DataType) -> bool:
    """Whether values are numbers that arrays of numpy hold."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_boolean(kind)
    )
