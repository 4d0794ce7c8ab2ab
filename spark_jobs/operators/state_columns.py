"""What maps, lists and deques of own operators have in common: columns of given types, and how they are stored.

Invariant: a value is brought into the type of its column when it is written, and refused then where it has another.  So what
is read does not depend on whether it was stored in between.  For the same reason a list, struct or map that is read is a
copy: what somebody changes in it is stored where it is written again, and nowhere else.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from numbers import Integral
from typing import Any, Self

import pyarrow as pa

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.operators.frames import as_schema
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable

Types = Mapping[str, pa.DataType]
"""Columns by name, in order."""
Row = tuple[Any, ...]

FORM, COLUMNS = "form", "columns"
"""The tables that say of what kind a structure is, and which columns it has."""


class RowType:
    """Rows of given columns.  A row of one column is written as its value, one of several as a tuple in their order."""

    __slots__ = ("_nested", "_plain", "names", "schema")

    def __init__(self, columns: Types) -> None:
        if not columns or not all(isinstance(kind, pa.DataType) for kind in columns.values()):
            raise TypeError(f"columns must be types of pyarrow by name, one at least, not {columns!r}")
        self.schema = pa.schema(list(columns.items()))
        self.names = tuple(columns)
        self._plain = tuple(_plain(kind) for kind in self.schema.types)
        self._nested = any(pa.types.is_nested(kind) for kind in self.schema.types)

    def row(self, value: Any) -> Row:
        """A row as it was written.  TypeError: it does not have these columns, or a value is not of its column's type."""
        values = (value,) if len(self.names) == 1 else value
        if not isinstance(values, tuple) or len(values) != len(self.names):
            raise TypeError(f"{value!r} is no tuple of {', '.join(self.names)}")
        return tuple(
            each if type(each) is plain else self._in_type(number, each)
            for number, (each, plain) in enumerate(zip(values, self._plain, strict=True))
        )

    def shown(self, row: Row) -> Any:
        """The inverse of `row`."""
        row = copy.deepcopy(row) if self._nested else row
        return row[0] if len(row) == 1 else row

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as a table."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self.names)
        return pa.table(
            [pa.array(each, kind) for each, kind in zip(columns, self.schema.types, strict=True)],
            schema=self.schema,
        )

    def fitted(self, table: pa.Table) -> pa.Table:
        """These columns of a table, in their types.  ColumnError: one is missing, or does not fit."""
        return as_schema(table, self.schema)

    def _in_type(self, number: int, value: Any) -> Any:
        kind = self.schema.types[number]
        if isinstance(value, bool) and not pa.types.is_boolean(kind):
            raise TypeError(f"{self.names[number]}: {value!r} is no {kind}")
        try:
            found = pa.scalar(value, kind).as_py()
            kept = _is_kept(value, found)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{self.names[number]}: {value!r} is no {kind}") from error
        if not kept:
            raise TypeError(f"{self.names[number]}: {value!r} is no {kind}, and would become {found!r}")
        return found


def _is_kept(value: Any, found: Any) -> bool:
    """Whether a written value is what is read.  A float may lose digits that its column does not hold.  A time without a
    zone is one of UTC, and a whole number is a time."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(found, float):
        return math.isinf(value) or not math.isinf(found)
    if isinstance(found, datetime) and isinstance(value, datetime):
        return _utc(value) == _utc(found)
    if isinstance(found, int | date | time | timedelta):
        return isinstance(value, Integral) or bool(value == found)
    if isinstance(found, dict):
        value = dict(value)
        return value.keys() <= found.keys() and all(_is_kept(value[name], found[name]) for name in value)
    if isinstance(found, list | tuple):
        return all(map(_is_kept, value.items() if isinstance(value, Mapping) else value, found))
    return True


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _plain(kind: pa.DataType) -> type | None:
    """The class all values of which can be stored as this type as they are."""
    if pa.types.is_float64(kind):
        return float
    if pa.types.is_binary(kind):
        return bytes
    return bool if pa.types.is_boolean(kind) else None


class StateStructure(ABC):
    """A part of a state that is stored in pages where `checkpoint.state` is `paged`, and whole else."""

    __hash__ = None  # type: ignore[assignment]
    """So no dataclass takes one as the default of a field, which all states of a process would share."""

    @property
    @abstractmethod
    def row_type(self) -> RowType:
        """What rows with all of its columns are."""

    @property
    @abstractmethod
    def form(self) -> tuple[str, int]:
        """What it is, and a number that it needs to be made again."""

    @abstractmethod
    def freeze(self) -> Callable[[], Tables]:
        """A function that gives its tables, as of now, beside `FORM` and `COLUMNS`."""

    @abstractmethod
    def freeze_pages(self) -> Callable[[], Parts]:
        """The same, those that are large in pages."""

    @abstractmethod
    def load(self, tables: Tables) -> None:
        """Take over what `freeze` has given, in place of what it holds; it has the same columns."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all."""

    @abstractmethod
    def spillable(self) -> Sequence[Spillable]:
        """What of it may be on the node's disk."""

    @abstractmethod
    def table(self) -> pa.Table:
        """All of it, in order."""

    @abstractmethod
    def extend(self, rows: pa.Table) -> None:
        """Write rows that have all of its columns."""

    @abstractmethod
    def empty(self) -> Self:
        """One with the same columns, that holds nothing."""

    @abstractmethod
    def __len__(self) -> int: ...

    def described(self) -> Tables:
        """The tables that say what it is."""
        kind, number = self.form
        return {
            FORM: pa.table({"kind": [kind], "number": [number]}),
            COLUMNS: self.row_type.schema.empty_table(),
        }
