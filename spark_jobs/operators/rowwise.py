"""Stateless operators: map, filter, flat-map, union and sink.

Expressions are polars SQL (`"dep_delay / 60.0 AS hours"`), evaluated row by row; whatever they cannot say is
a Python function `module:function` that takes and gives a polars DataFrame.  Such a function must depend on
its rows alone: it sees a batch, and how rows fall into batches must not show.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Kind, Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.exact import exact
from reprise.spark_jobs.operators.expressions import parse_expression
from reprise.spark_jobs.operators.frames import (
    REFUSED,
    ColumnError,
    canonical,
    inbox_table,
    is_text,
    to_arrow,
    to_polars,
    together,
)
from reprise.spark_jobs.operators.parameters import names, steps_as
from reprise.spark_jobs.topology.binding import resolve
from reprise.spark_jobs.topology.columns import merged, require

_BEYOND = re.compile(
    r"overflow in decimal|(?<!`str` )to `(i64|u64|decimal.(?:15|28|38),|datetime|duration)|out-of-range"
)
"""What polars says of a number or a time that another type does not hold."""
_REASONS = {
    "i64": "a whole number is beyond int64, or a time beyond 64 bits",
    "u64": "a whole number is beyond uint64",
}
_TOO_LONG = "a number has more than 38 digits (15 where it meets a float), or a time is beyond nanoseconds"
_ROW = "number of the row"
"""A column beside those of `select`: polars makes constants as long as it is."""
Function = Callable[[pl.DataFrame], pl.DataFrame]


class Map(Operator):
    """Rows to rows: `function` first, then the rows for which `where` holds, then the columns of `select`.

    `select`: a list of SQL expressions (`["*", "air_time / 60.0 AS hours"]`) or a mapping `{name:
    expression}`, which keeps no other columns.  At least one of the three must be given.

    It is `convergent` and not more, as a `function` can see the other rows of the batch.
    """

    def __init__(
        self,
        select: Sequence[str] | Mapping[str, str] | None = None,
        where: str | None = None,
        function: str | None = None,
    ) -> None:
        if select is None and where is None and function is None:
            raise SpecError("select", "give at least one of `select`, `where` and `function`")
        self.select = _select(select) if select is not None else None
        self.where = parse_expression(where, "where") if where is not None else None
        self.function = _function(function) if function is not None else None
        self._exact: tuple[pl.Schema, pl.Expr | None, list[pl.Expr] | None] | None = None
        if self.kind.deterministic and steps_as(self, Map):
            self.kind = Kind.CONVERGENT

    def oldest_needed(self, batch: int) -> int | None:
        return batch if self.kind is Kind.CONVERGENT else super().oldest_needed(batch)

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox_table(inbox)
        out = None if table is None else self._apply(to_polars(table))
        return state, out if out is None or table is None else self._as_before(out, table.schema)

    def _as_before(self, out: pa.Table, schema: pa.Schema) -> pa.Table:
        """The same with the types of columns that were taken as they are: polars has fewer than Arrow."""
        select = self.select if self.select is not None else [pl.all()]
        if self.function is not None:
            return out
        names: dict[str, str | None] = dict(zip(out.column_names, out.column_names, strict=True))
        for each in select:
            if not each.meta.eq(pl.all()):
                names[each.meta.output_name()] = each.meta.root_names()[0] if _is_plain(each) else None
        for at, field in enumerate(out.schema):
            of = names[field.name]
            kind = schema.field(of).type if of is not None and of in schema.names else field.type
            if not kind.equals(field.type) and not is_text(kind):
                with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowTypeError):
                    out = out.set_column(at, field.name, out.column(at).cast(kind))
        return out

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        return self._selected(merged(inputs) if self.function is None else None)

    def _selected(self, columns: Columns) -> Columns:
        """What `where` and `select` make of these columns."""
        if self.where is not None:
            require(columns, self.where.meta.root_names(), "where")
        names: list[str] = []
        for each in self.select if self.select is not None else [pl.all()]:
            require(columns, each.meta.root_names(), "select")
            if not each.meta.eq(pl.all()):
                names.append(each.meta.output_name())
            elif columns is None:
                return None
            else:
                names += columns
        return tuple(names)

    def _apply(self, frame: pl.DataFrame) -> pa.Table | None:
        try:
            if self.function is not None:
                frame = self.function(frame)
            if not isinstance(frame, pl.DataFrame):
                raise ColumnError(f"the function must return a polars DataFrame, not {type(frame).__name__}")
            where, select = self._exactly(frame.schema)
            if where is not None:
                frame = frame.filter(where)
            if select is not None:
                frame = frame.select(pl.int_range(pl.len()).alias(_ROW), *select).drop(_ROW)
        except pl.exceptions.ColumnNotFoundError as error:
            missing = str(error).partition("\n")[0]
            columns = ", ".join(frame.columns)
            raise ColumnError(f"column not found: {missing}; the input's columns are {columns}") from error
        except REFUSED as error:
            raise self._refused(frame, str(error).partition("\n")[0]) from error
        return to_arrow(frame) if frame.height else None

    def _exactly(self, schema: pl.Schema) -> tuple[pl.Expr | None, list[pl.Expr] | None]:
        """`where` and `select` for columns of these types."""
        if self._exact is None or self._exact[0] != schema:
            where = None if self.where is None else exact(self.where, schema)
            select = self.select and [
                each if _is_plain(each) else exact(each, schema) for each in self.select
            ]
            self._exact = schema, where, select
        return self._exact[1:]

    def _refused(self, frame: pl.DataFrame, reason: str) -> ColumnError:
        """What to say of an expression that polars has not computed."""
        columns = ", ".join(f"{name} {kind}" for name, kind in frame.schema.items())
        if "to a string value" in reason:
            reason = (
                "a time is compared with text; write DATE '2026-01-31' or TIMESTAMP '2026-01-31 12:00:00'"
            )
        elif "casting from string to" in reason:
            reason = (
                "a text is CAST to a time; write DATE(x, '%Y-%m-%d') or TIMESTAMP(x, '%Y-%m-%d %H:%M:%S')"
            )
        beyond = _BEYOND.search(reason)
        where = [] if self.where is None else [self.where.alias("where")]
        for each in [*where, *(self.select or ())] if beyond else ():
            try:
                _ = _is_plain(each) or frame.select(exact(each, frame.schema))
            except REFUSED:
                told = _REASONS.get(beyond[1] if beyond else "", _TOO_LONG)
                return ColumnError(
                    f"{each.meta.output_name()!r}: {told}; CAST it first, e.g. `CAST(x AS DOUBLE)`"
                )
        return ColumnError(f"{reason}; the input's columns are {columns}")


class Filter(Map):
    """The rows for which the SQL expression `where` is true."""

    def __init__(self, where: str) -> None:
        super().__init__(where=where)


class FlatMap(Map):
    """One row for every item of the list columns `explode` (rows with empty or null lists give none), then as
    `Map`.

    With several columns their lists must be equally long in each row.  Without `explode`, `function` must
    make the rows.
    """

    def __init__(
        self,
        explode: Sequence[str] = (),
        select: Sequence[str] | Mapping[str, str] | None = None,
        where: str | None = None,
        function: str | None = None,
    ) -> None:
        self.explode = names(explode, "explode")
        if not self.explode and function is None:
            raise SpecError("explode", "give list columns to explode, or a `function` that makes the rows")
        super().__init__(select=select if select is not None else ["*"], where=where, function=function)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, self.explode, "explode")
        return self._selected(columns if self.function is None else None)

    def _apply(self, frame: pl.DataFrame) -> pa.Table | None:
        if self.explode:
            for name in self.explode:
                kind = frame.schema.get(name)
                if kind != pl.List:
                    found = "is not in the input" if kind is None else f"holds {kind} and no lists"
                    raise ColumnError(
                        f"column {name!r} {found}; the input's columns are {', '.join(frame.columns)}"
                    )
            lengths = frame.select(pl.col(self.explode).list.len().fill_null(0))
            first = lengths.to_series()
            if any(not first.equals(each.alias(first.name)) for each in lengths):
                raise ColumnError(f"lists of {', '.join(self.explode)} are not equally long in a row")
            frame = frame.filter(first > 0).explode(list(self.explode))
        return super()._apply(frame) if frame.height else None

    def _as_before(self, out: pa.Table, schema: pa.Schema) -> pa.Table:
        rest = [field for field in schema if field.name not in self.explode]
        return super()._as_before(out, pa.schema(rest))


class Union(Operator):
    """The rows of all inputs in order, with the columns of the first (or `columns`); all inputs must have
    them."""

    kind = Kind.REPEATABLE

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = None if columns is None else names(columns, "columns", least=1)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        wanted = self.columns or next(iter(inputs.values()), None)
        for columns in inputs.values() if wanted is not None else ():
            require(columns, wanted or (), "columns")
        return wanted

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        tables = [canonical(i.table) for i in inbox.inputs if i.table.num_rows]
        if not tables:
            return state, None
        wanted = list(self.columns or tables[0].column_names)
        for each in tables:
            missing = [name for name in wanted if name not in each.column_names]
            if missing:
                raise ColumnError(
                    f"an input has no column {missing[0]!r}; its columns are {each.column_names}"
                )
        return state, together([t.select(wanted) for t in tables], "inputs have different columns")


class Sink(Operator):
    """Its input, as it came: an output operator that adds nothing."""

    kind = Kind.REPEATABLE

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        return merged(inputs)

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return state, inbox_table(inbox)


def _is_plain(each: pl.Expr) -> bool:
    """Whether it takes columns as they are, perhaps under another name."""
    return bool(each.meta.eq(pl.all()) or each.meta.undo_aliases().meta.is_column())


def _select(select: Sequence[str] | Mapping[str, str]) -> list[pl.Expr]:
    if isinstance(select, Mapping) and select:
        return [parse_expression(text, f"select.{name}").alias(str(name)) for name, text in select.items()]
    if isinstance(select, str) or not isinstance(select, Sequence) or not select:
        raise SpecError("select", "expected a list of SQL expressions or a mapping of names to them")
    return [_selectable(text, f"select[{i}]") for i, text in enumerate(select)]


def _selectable(text: str, field: str) -> pl.Expr:
    """An expression, or all columns."""
    return pl.all() if str(text).strip() == "*" else parse_expression(text, field, named=True)


def _function(path: str) -> Function:
    try:
        function = resolve(path)
    except ValueError as error:
        raise SpecError("function", str(error)) from error
    if not callable(function):
        raise SpecError("function", f"{path!r} is not a function")
    return function  # type: ignore[no-any-return]
