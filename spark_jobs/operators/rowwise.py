"""Stateless operators: map, filter, flat-map, union and sink.

Expressions are polars SQL (`"dep_delay / 60.0 AS hours"`), evaluated row by row; whatever they cannot say is
a Python function `module:function` that takes and gives a polars DataFrame.  Such a function must depend on
its rows alone: it sees a batch, and how rows fall into batches must not show.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Kind, Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.expressions import has_point, parse_expression
from reprise.spark_jobs.operators.frames import (
    ColumnError,
    canonical,
    inbox_table,
    is_text,
    to_arrow,
    to_polars,
)
from reprise.spark_jobs.operators.parameters import names, steps_as
from reprise.spark_jobs.topology.binding import resolve
from reprise.spark_jobs.topology.columns import merged, require

Function = Callable[[pl.DataFrame], pl.DataFrame]


class Map(Operator):
    """Rows to rows: `function` first, then the rows for which `where` holds, then the columns of `select`.

    `select`: a list of SQL expressions (`["*", "air_time / 60.0 AS hours"]`) or a mapping `{name:
    expression}`, which keeps no other columns.  At least one of the three must be given.

    It is `convergent` and not more, as expressions and functions can see the other rows of the batch (`count(x) OVER ()`).
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
        self._of_floats = _of_floats(select) if select is not None else frozenset[int]()
        self.where = parse_expression(where, "where") if where is not None else None
        self.function = _function(function) if function is not None else None
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
        if self.function is not None or any(map(_is_of_several, select)):
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
        names: dict[str, None] = {}
        for each in self.select if self.select is not None else [pl.all()]:
            require(columns, each.meta.root_names(), "select")
            several = each.meta.has_multiple_outputs()
            if several and (columns is None or not each.meta.eq(pl.all())):
                return None
            one = each.meta.output_name(raise_if_undetermined=False)
            if not several and one is None:
                return None
            names |= dict.fromkeys(columns or ()) if several else {str(one): None}
        return tuple(names)

    def _apply(self, frame: pl.DataFrame) -> pa.Table | None:
        try:
            if self.function is not None:
                frame = self.function(frame)
            if self.where is not None:
                frame = _filtered(frame, self.where)
            if self.select is not None:
                frame = _selected(frame, self.select, self._of_floats)
        except pl.exceptions.ColumnNotFoundError as error:
            missing = str(error).partition("\n")[0]
            columns = ", ".join(frame.columns)
            raise ColumnError(f"column not found: {missing}; the input's columns are {columns}") from error
        except pl.exceptions.PolarsError as error:
            columns = ", ".join(f"{name} {kind}" for name, kind in frame.schema.items())
            raise ColumnError(
                f"{str(error).partition(chr(10))[0]}; the input's columns are {columns}"
            ) from error
        if not isinstance(frame, pl.DataFrame):
            raise ColumnError(f"the function must return a polars DataFrame, not {type(frame).__name__}")
        return to_arrow(frame) if frame.height else None


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
                if name not in frame.columns:
                    raise ColumnError(
                        f"column {name!r} is not in the input; its columns are {', '.join(frame.columns)}"
                    )
            frame = frame.filter(pl.col(self.explode[0]).list.len() > 0).explode(list(self.explode))
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
        try:
            return state, pa.concat_tables([t.select(wanted) for t in tables], promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ColumnError(f"inputs have columns of different types: {error}") from error


class Sink(Operator):
    """Its input, as it came: an output operator that adds nothing."""

    kind = Kind.REPEATABLE

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        return merged(inputs)

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return state, inbox_table(inbox)


def _filtered(frame: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """The rows for which it is true."""
    wide = _widened(frame, where.meta.root_names())
    found = wide.filter(where)
    return found.with_columns(
        pl.col(n).cast(frame.schema[n]) for n in frame.columns if wide.schema[n] != frame.schema[n]
    )


def _selected(frame: pl.DataFrame, select: Sequence[pl.Expr], of_floats: Collection[int]) -> pl.DataFrame:
    """What the expressions give.  Columns that are taken as they are keep their types; those of these numbers are of floats,
    though they are computed with decimals.  ColumnError: a whole number that one gives is beyond 64 bits."""
    if any(map(_is_of_several, select)):
        return frame.select(select)
    roots = {name for each in select if not _is_plain(each) for name in each.meta.root_names()}
    wide = _widened(frame, roots)
    found, casts = wide.select(select), []
    for number, each in enumerate(select):
        if each.meta.eq(pl.all()):
            named = {n: n for n in frame.columns}
        elif _is_plain(each):
            named = {each.meta.output_name(): each.meta.root_names()[0]}
        else:
            name, of = each.meta.output_name(), [frame.schema[n] for n in each.meta.root_names()]
            is_cast = "cast(" in str(each)
            casts += _narrowed(found[name], of, is_cast)
            if found.schema[name] == pl.Decimal and number in of_floats and not is_cast:
                casts.append(pl.col(name).cast(pl.Float64))
            continue
        casts += [
            pl.col(n).cast(frame.schema[of]) for n, of in named.items() if wide.schema[of] != frame.schema[of]
        ]
    return found.with_columns(casts)


def _narrowed(found: pl.Series, of: Sequence[pl.DataType], is_cast: bool) -> list[pl.Expr]:
    """How a column that was computed from columns of these types gets one of 64 bits."""
    if found.dtype == pl.Int128:
        whole = [kind for kind in of if kind.is_integer()]
        kind = pl.UInt64 if whole and all(one == pl.UInt64 for one in whole) else pl.Int64
        if found.cast(kind, strict=False).null_count() > found.null_count():
            name = "uint64" if kind == pl.UInt64 else "int64"
            raise ColumnError(
                f"{found.name!r}: a whole number is beyond {name}; make it a float first, e.g. `x * 1.0`"
            )
        return [pl.col(found.name).cast(kind)]
    if isinstance(found.dtype, pl.List) and found.dtype.inner == pl.Int128:
        return [pl.col(found.name).cast(pl.List(pl.Int64))]
    if found.dtype.is_integer() and not is_cast:  # so that `0 AS laps` and `laps + 1 AS laps` go together
        return [pl.col(found.name).cast(pl.Int64)]
    return []


def _is_plain(each: pl.Expr) -> bool:
    """Whether it takes columns as they are, perhaps under another name."""
    return bool(each.meta.eq(pl.all()) or each.meta.undo_aliases().meta.is_column())


def _is_of_several(each: pl.Expr) -> bool:
    """Whether it computes several columns at once (`COLUMNS('x|y') / 2`)."""
    return bool(each.meta.has_multiple_outputs() and not each.meta.eq(pl.all()))


def _widened(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with whole numbers in these columns as ones of 128 bits, which do not wrap around in an expression."""
    whole = [n for n in names if n in frame.columns and frame.schema[n].is_integer()]
    return frame.with_columns(pl.col(whole).cast(pl.Int128)) if whole else frame


def _select(select: Sequence[str] | Mapping[str, str]) -> list[pl.Expr]:
    if isinstance(select, Mapping):
        return [parse_expression(text, f"select.{name}").alias(str(name)) for name, text in select.items()]
    if isinstance(select, str) or not isinstance(select, Sequence):
        raise SpecError("select", "expected a list of SQL expressions or a mapping of names to them")
    return [parse_expression(text, f"select[{i}]") for i, text in enumerate(select)]


def _of_floats(select: Sequence[str] | Mapping[str, str]) -> frozenset[int]:
    """Numbers of the expressions in which there is one like 0.1."""
    texts = select.values() if isinstance(select, Mapping) else select
    return frozenset(number for number, text in enumerate(texts) if has_point(str(text)))


def _function(path: str) -> Function:
    try:
        function = resolve(path)
    except ValueError as error:
        raise SpecError("function", str(error)) from error
    if not callable(function):
        raise SpecError("function", f"{path!r} is not a function")
    return function  # type: ignore[no-any-return]
