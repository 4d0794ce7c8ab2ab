"""Aggregates written as `mean(dep_delay)`: parsing, the vectorised kernels, and accumulators that are cheap
to freeze.

Invariant: results depend on the rows and their order alone.  Sums are taken row by row (`numpy.bincount` and
`add.at` are sequential), never in the order of some thread pool, and a batch's partial sum is added to the
state once; so a replay gives the same bits in floating point too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.spark_jobs.contract import Columns
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import Bools, ColumnError, Ints, column
from reprise.spark_jobs.topology.columns import require

Array = npt.NDArray[Any]
Partials = dict[str, Array]

ROWS = "rows"
"""The accumulator that every keyed state has: how many rows a slot holds."""
_FORM = re.compile(r"^\s*(count|sum|mean|min|max)\s*\(\s*([^()]*?)\s*\)\s*$")
_LIMIT = 1 << 63
_TOO_LARGE = "a sum of integers is beyond 64 bits; make them floats first, e.g. `x * 1.0 AS x` in a Map"
_COMBINE: dict[str, Callable[[Array, Array], Array]] = {"min": np.minimum, "max": np.maximum}
_SCAN: dict[str, np.ufunc] = {"seen": np.add, "sum": np.add, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output column: `function(column)`; `count` may have no column and then counts rows."""

    name: str
    function: str
    column: str

    @property
    def accumulators(self) -> tuple[str, ...]:
        """Names of the arrays that it reads: what is summed or compared, and the number of values seen."""
        if not self.column:
            return (ROWS,)
        seen = f"seen:{self.column}"
        if self.function == "count":
            return (seen,)
        return (f"{'sum' if self.function == 'mean' else self.function}:{self.column}", seen)

    def finish(self, values: Mapping[str, Array]) -> pa.Array:
        """The output column; null where no value was seen (count: 0)."""
        if self.function == "count":
            return pa.array(values[self.accumulators[0]])
        value, seen = (values[name] for name in self.accumulators)
        if self.function == "mean":
            with np.errstate(divide="ignore", invalid="ignore"):
                value = value / seen
        return pa.array(value, mask=seen == 0)


def parse_aggregates(forms: Mapping[str, str], field: str = "aggregate") -> tuple[Aggregate, ...]:
    """Aggregates from YAML, e.g. `{flights: count(), delay: mean(dep_delay)}`.  SpecError names the wrong
    one."""
    if not isinstance(forms, Mapping) or not forms:
        raise SpecError(field, "expected at least one `name: function(column)`")
    parsed = []
    for name, form in forms.items():
        match = _FORM.match(str(form))
        if match is None or (not match[2] and match[1] != "count"):
            known = "count(), count(x), sum(x), mean(x), min(x) or max(x)"
            raise SpecError(f"{field}.{name}", f"{form!r} is not an aggregate; write {known}")
        parsed.append(Aggregate(str(name), match[1], match[2]))
    return tuple(parsed)


def require_other_names(
    aggregates: Sequence[Aggregate], taken: Collection[str], of: str = "a key column"
) -> None:
    """SpecError for an aggregate that is named as something else is: one of `taken`, which are names `of` that."""
    for each in aggregates:
        if each.name in taken:
            raise SpecError(f"aggregate.{each.name}", f"is the name of {of}")


def accumulators_of(aggregates: Sequence[Aggregate]) -> tuple[str, ...]:
    """Names of all arrays that are kept for these, each once; the first one counts rows."""
    return tuple(dict.fromkeys([ROWS, *(name for each in aggregates for name in each.accumulators)]))


def require_columns(columns: Columns, aggregates: Sequence[Aggregate]) -> None:
    """SpecError for an aggregate over a column that is not there."""
    for each in aggregates:
        require(columns, [each.column] if each.column else [], f"aggregate.{each.name}")


def partials(table: pa.Table, codes: Ints, size: int, aggregates: Sequence[Aggregate]) -> Partials:
    """Accumulators of one batch: for each name an array with one value a code."""
    result: Partials = {ROWS: np.bincount(codes, minlength=size)}
    cache: dict[str, tuple[Array | None, Bools | None]] = {}
    for aggregate in aggregates:
        name = aggregate.column
        if not name:
            continue
        if name not in cache:
            cache[name] = _numbers(table, name)
        values, valid = cache[name]
        own = codes if valid is None else codes[valid]
        for accumulator in aggregate.accumulators:
            if accumulator in result:
                continue
            function = accumulator.partition(":")[0]
            if function == "seen":
                result[accumulator] = np.bincount(own, minlength=size)
            elif values is None:
                raise ColumnError(
                    f"{function} of {name!r} needs numbers or times; the column holds {table[name].type}"
                )
            else:
                result[accumulator] = _reduce(accumulator, values, own, size)
    return result


def running(table: pa.Table, codes: Ints, aggregates: Sequence[Aggregate]) -> Partials:
    """Accumulators of one batch as they are after each row: for each name an array with one value a row, over the
    rows with the same code up to and with this one."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    lengths = np.diff(starts, append=len(order))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    count = np.arange(1, len(order) + 1) - np.repeat(starts, lengths)
    result: Partials = {ROWS: count[place]}
    for each in aggregates:
        if not each.column or (each.accumulators[-1] in result and each.accumulators[0] in result):
            continue
        values, valid = _numbers(table, each.column)
        for accumulator in each.accumulators:
            function = accumulator.partition(":")[0]
            if function == "seen":
                own: Array = np.ones(len(codes), np.int64) if valid is None else valid.astype(np.int64)
            elif values is None:
                raise ColumnError(
                    f"{function} of {each.column!r} needs numbers or times; the column holds {table[each.column].type}"
                )
            else:
                own = np.full(len(codes), identity(function, values.dtype), values.dtype)
                own[slice(None) if valid is None else valid] = values
            if function == "sum" and own.dtype == np.int64 and _large(own):
                halves = own[order] & 0xFFFFFFFF, own[order] >> 32
                low, high = (_scanned(np.add, half, starts, lengths) for half in halves)
                _require_64_bits(accumulator, low, high)
            result[accumulator] = _scanned(_SCAN[function], own[order], starts, lengths)[place]
    return result


def _scanned(ufunc: np.ufunc, values: Array, starts: Ints, lengths: Ints) -> Array:
    """Each run of values accumulated from its start, in order."""
    found = values.copy()
    for start, length in zip(starts[lengths > 1].tolist(), lengths[lengths > 1].tolist(), strict=True):
        ufunc.accumulate(values[start : start + length], out=found[start : start + length])
    return found


def _numbers(table: pa.Table, name: str) -> tuple[Array | None, Bools | None]:
    """Non-null values of a column as int64 or float64 (None: not numbers), and which rows they are (None:
    all)."""
    array = column(table, name)
    kind = array.type
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        array = array.cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        array = array.cast(pa.int64())
    else:
        return None, valid
    return array.drop_null().to_numpy(zero_copy_only=False), valid


def _reduce(accumulator: str, values: Array, codes: Ints, size: int) -> Array:
    function = accumulator.partition(":")[0]
    if function == "sum" and values.dtype == np.float64:
        # Without a single value bincount forgets the weights' type.
        return np.bincount(codes, weights=values, minlength=size).astype(np.float64, copy=False)
    if function == "sum":
        _require_room(accumulator, values, codes, size)
    result = np.full(size, identity(function, values.dtype), values.dtype)
    ufunc = {"sum": np.add, "min": np.minimum, "max": np.maximum}[function]
    ufunc.at(result, codes, values)
    return result


def _require_room(accumulator: str, values: Ints, codes: Ints, size: int) -> None:
    """ColumnError when a sum of integers does not fit into 64 bits; numpy would wrap around without a word."""
    if not _large(values):
        return
    low, high = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(low, codes, values & 0xFFFFFFFF)
    np.add.at(high, codes, values >> 32)
    _require_64_bits(accumulator, low, high)


def _large(values: Ints) -> bool:
    """Whether a sum of some of these may be beyond 64 bits."""
    return bool(len(values)) and max(-int(values.min()), int(values.max())) * len(values) >= _LIMIT


def _require_64_bits(accumulator: str, low: Ints, high: Ints) -> None:
    """ColumnError for sums, as sums of their lower and their upper halves, that are too large."""
    high = high + (low >> 32)
    if np.any((high < -(1 << 31)) | (high >= 1 << 31)):
        raise ColumnError(f"{accumulator}: {_TOO_LARGE}")


def identity(name: str, dtype: npt.DTypeLike) -> Any:
    """The value of an accumulator that has seen nothing; `name` as in `Aggregate.accumulators`."""
    function = name.partition(":")[0]
    if function not in _COMBINE:
        return 0
    if np.dtype(dtype) == np.float64:
        return np.inf if function == "min" else -np.inf
    limits = np.iinfo(np.int64)
    return limits.max if function == "min" else limits.min


def combine(name: str, left: Array, right: Array) -> Array:
    """Two accumulators of one name put together, `left` first."""
    merge = _COMBINE.get(name.partition(":")[0])
    if merge:
        return merge(left, right)
    total = left + right
    if total.dtype == np.int64 and np.any((left ^ total) & (right ^ total) < 0):
        raise ColumnError(f"{name}: {_TOO_LARGE}")
    return total
