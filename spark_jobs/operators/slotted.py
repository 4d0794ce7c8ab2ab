"""Operators whose state is made of slots: parts that change on their own, such as a key, or a key in a window.

With `checkpoint.protocol: eventual` such a state is stored slot by slot (`reprise.spark_jobs.state.footprints`), and after a
failure batches are stepped once more with slots of different ages.  What that asks of an operator:

- each row of its input belongs to one slot, or to none, by the row's own columns;
- a slot's state depends on the rows of that slot alone, and on `rest`, which follows from watermarks;
- the rows of all its inputs are taken alike, from whichever operator they come.

Source: Z. Sebepou, K. Magoutis, "CEC: Continuous Eventual Checkpointing for Data Stream Processing Operators", section III.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import Inbox, Input, Operator, Place
from reprise.spark_jobs.operators.aggregates import DECIMAL, identity
from reprise.spark_jobs.operators.frames import inbox_table, select
from reprise.spark_jobs.operators.keys import KeyIndex, group, values_of
from reprise.spark_jobs.operators.slots import Accumulators, restore

KEY, VALUE = "key:", "value:"
"""What the columns of footprints begin with: names of keys and of accumulators may be the same."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What the last step did to slots: those that are open after it and were not before, or closed meanwhile; and those that
    closed, once or more, with the columns that name them."""

    opened: Sequence[Hashable] = ()
    closed: Sequence[Hashable] = ()
    closings: pa.Table | None = None
    moved: Mapping[int, int] | None = None
    """Of slots that are (something, number): which number each has now, after those that closed are gone."""


class Slotted(Operator):
    """An operator that offers its state slot by slot, beside `freeze`."""

    keys: tuple[str, ...] = ()
    """The columns of its input that are keys."""

    @property
    @abstractmethod
    def slot_columns(self) -> tuple[str, ...]:
        """The columns of `export` and `slots_of` that name a slot."""

    @property
    def offers_slots(self) -> bool:
        """Whether it has them with its parameters."""
        return True

    @abstractmethod
    def changes(self, state: Any) -> Changes:
        """What the last step has done."""

    @abstractmethod
    def open_slots(self, state: Any) -> Sequence[Hashable]:
        """All slots that are open now."""

    def open_count(self, state: Any) -> int:
        """How many those are.  It is asked with each snapshot, so a class says it that need not list them."""
        return len(self.open_slots(state))

    @abstractmethod
    def export(self, state: Any, slots: Sequence[Hashable]) -> pa.Table:
        """The state of these slots, a row each, in this order; nothing that later steps change."""

    @abstractmethod
    def load(self, place: Place, table: pa.Table | None, rest: Mapping[str, Any]) -> Any:
        """A state of these slots, which `export` gave (None: it has none), and of what `rest` gave."""

    @abstractmethod
    def slots_of(self, table: pa.Table) -> pa.Table:
        """The columns that name the slot of each row of an input."""

    def rest(self, state: Any) -> Mapping[str, Any]:
        """What the state has beside slots, as plain JSON values; small, as it is stored with each batch."""
        return {}

    def types(self, state: Any) -> Mapping[str, str]:
        """The types of accumulators, where rows set them: slots that have closed have left them to those that open."""
        return {}

    def retype(self, state: Any, types: Mapping[str, str]) -> None:
        """Give a state that `load` has made the types of a later one, of which no open slot differs."""
        return


_OWN = frozenset(
    (
        *("initial", "step", "freeze", "freeze_pages", "restore"),
        *("slots_of", "changes", "open_slots", "open_count", "export", "load", "rest", "types", "retype"),
    )
)


def slotted(operator: Operator) -> Slotted | None:
    """The operator, where its state can be stored slot by slot.  A class that has one of `_OWN` of its own and
    inherits the rest may keep more than that knows of, or name slots in another way: it is stored whole."""
    if isinstance(operator, Slotted) and operator.offers_slots:
        for kind in type(operator).__mro__:
            if "slot_columns" in vars(kind):
                return operator
            if _OWN & vars(kind).keys():
                break
    return None


def names_of(table: pa.Table, columns: Sequence[str]) -> list[Hashable]:
    """The slots of the rows of a table, as values that a dict finds again."""
    return values_of(table, columns, table.num_rows)


def unseen(operator: Slotted, inbox: Inbox, seen: Mapping[Hashable, int]) -> Inbox:
    """An inbox without the rows of slots that have seen its batch already."""
    table = inbox_table(inbox, keys=operator.keys)
    if table is None:
        return inbox
    groups = group(operator.slots_of(table), operator.slot_columns)
    names = values_of(groups.keys, operator.slot_columns, groups.size)
    new = np.fromiter((seen.get(name, 0) < inbox.batch for name in names), np.bool_, groups.size)
    if new.all():
        return inbox
    first = inbox.inputs[0]
    left = table.filter(pa.array(new[groups.codes]))
    return Inbox(inbox.batch, inbox.watermark, (Input(first.operator, first.partition, left),))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Footprints of one state, newest first, as one table.  Before a column had a value its type was not known: it has the
    one that it has now."""
    if len({table.schema for table in tables}) <= 1:
        return pa.concat_tables(tables)
    newest: dict[str, pa.DataType] = {}
    for table in tables:
        for each in table.schema:
            newest.setdefault(each.name, each.type)
    found = pa.concat_tables([_typed(table, newest) for table in tables], promote_options="permissive")
    for at, name in enumerate(found.column_names):
        if name.startswith(VALUE + DECIMAL):  # not known before the column had a value
            codes = found.column(name)
            found = found.set_column(at, name, pc.fill_null(codes, codes.drop_null()[0]))
    return found


def _typed(table: pa.Table, newest: Mapping[str, pa.DataType]) -> pa.Table:
    for at, field in enumerate(table.schema):
        if field.name.startswith(VALUE) and (kind := newest[field.name]) != field.type:
            name, dtype = field.name.removeprefix(VALUE), kind.to_pandas_dtype()
            nothing = np.full(table.num_rows, identity(name, dtype), dtype)
            table = table.set_column(at, field.name, pa.array(nothing))
    return table


def key_columns(keys: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Columns of keys as footprints have them."""
    return {KEY + name: keys.column(name) for name in keys.column_names}


def keys_in(footprints: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The inverse of `key_columns`."""
    return pa.table({name: footprints.column(KEY + name) for name in keys})


class _Keyed(Protocol):
    index: KeyIndex
    values: Accumulators


class KeySlots(Slotted):
    """What operators have in common whose slots are keys: numbers in a key index with a row of accumulators."""

    def _columns(self) -> tuple[str, ...]:
        return tuple(KEY + name for name in self.keys)

    def export(self, state: _Keyed, slots: Sequence[Hashable]) -> pa.Table:
        """See `Slotted.export`."""
        at = np.fromiter(slots, np.int64, len(slots))
        return pa.table(
            {**key_columns(state.index.keys(at))}
            | {VALUE + name: values for name, values in state.values.gather(at, state.values.names).items()}
        )

    def slots_of(self, table: pa.Table) -> pa.Table:
        """See `Slotted.slots_of`."""
        if not self.keys:
            return table  # one slot has all rows
        return pa.table(key_columns(select(table, self.keys)))

    def types(self, state: _Keyed) -> Mapping[str, str]:
        """See `Slotted.types`."""
        return state.values.types

    def retype(self, state: _Keyed, types: Mapping[str, str]) -> None:
        """See `Slotted.retype`."""
        state.values.retype(types)

    def loaded(self, table: pa.Table) -> tuple[KeyIndex, Accumulators]:
        """Index and accumulators of footprints."""
        values = [name for name in table.column_names if name.startswith(VALUE)]
        parts = table.select(values).rename_columns([name.removeprefix(VALUE) for name in values])
        return KeyIndex(self.keys, keys_in(table, self.keys), table.num_rows), restore(parts.combine_chunks())
