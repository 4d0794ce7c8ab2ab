"""Aggregates written as `mean(dep_delay)`: parsing, the vectorised kernels, and accumulators that are cheap
to freeze.

Invariants: results depend on the rows and their order alone.  Sums are taken row by row (`numpy.bincount` and
`add.at` are sequential), never in the order of some thread pool, and a batch's partial sum is added to the
state once; so a replay gives the same bits in floating point too.  Integers and decimals are exact: a value or a sum
beyond 64 bits is refused.  Decimals are kept as integers of their last digit, with their type beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
DECIMAL = "decimal"
"""The accumulator with the type of a decimal column: `decimal_code`, the same in each slot."""
_FORM = re.compile(r"^\s*(count|sum|mean|min|max)\s*\(\s*([^()]*?)\s*\)\s*$")
_LONGEST = 38
"""Digits of a decimal128."""
_DIGITS_OF_64_BITS = 19
_MORE_DIGITS = 10
"""Digits before the point that a sum of decimals has more than they."""
_TOO_LARGE = "a sum is beyond 64 bits; make the numbers floats first, e.g. `x * 1.0 AS x` in a Map"
_TOO_LONG = (
    "a decimal has more digits than 64 bits hold; make them floats first, e.g. `x * 1.0 AS x` in a Map"
)
_TWO_TYPES = "decimals of one column have several precisions or scales"
_SCALES, _NO_SCALE = 256, 128
_COMBINE: dict[str, Callable[[Array, Array], Array]] = {"min": np.minimum, "max": np.maximum}
_SCAN: dict[str, np.ufunc] = {"seen": np.add, "sum": np.add, **_COMBINE}  # type: ignore[dict-item]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output column: `function(column)`; `count` may have no column and then counts rows."""

    name: str
    function: str
    column: str

    @property
    def accumulators(self) -> tuple[str, ...]:
        """Names of the arrays that it reads: what is summed or compared, the number of values seen, and the type of a column
        of decimals, which others do not have."""
        if not self.column:
            return (ROWS,)
        seen = f"seen:{self.column}"
        if self.function == "count":
            return (seen,)
        value = f"{'sum' if self.function == 'mean' else self.function}:{self.column}"
        return value, seen, f"{DECIMAL}:{self.column}"

    def finish(self, values: Mapping[str, Array]) -> pa.Array:
        """The output column; null where no value was seen (count: 0).  A sum of decimals has the scale of its column and ten
        more digits, their mean is a double."""
        if self.function == "count":
            return pa.array(values[self.accumulators[0]])
        of_value, of_seen, of_type = self.accumulators
        value, seen = values[of_value], values[of_seen]
        code = decimal_code_of(values.get(of_type))
        precision, scale = divmod(code, _SCALES) if code else (0, _NO_SCALE)
        scale -= _NO_SCALE
        if self.function == "mean":
            with np.errstate(divide="ignore", invalid="ignore"):
                value = value / (seen * 10.0**scale)
        elif code:
            longer = _MORE_DIGITS if self.function == "sum" else 0
            kind = pa.decimal128(min(precision + longer, _LONGEST), scale)
            return decimals(pa.array(value, mask=seen == 0), kind)
        if value.dtype == np.float64:  # processors differ in the form of NaN and in the lesser of two zeros
            value = np.where(np.isnan(value), np.nan, value + 0.0)
        return pa.array(value, mask=seen == 0)


def decimal_code(kind: pa.DataType) -> int:
    """A decimal's precision and scale as one number of 16 bits, which is not 0."""
    return int(kind.precision * _SCALES + kind.scale + _NO_SCALE)


def decimal_code_of(codes: Array | None) -> int:
    """The one in an accumulator; 0 where it is not known.  ColumnError: there are several."""
    if codes is None or not len(codes):
        return 0
    least, most = int(codes.min()), int(codes.max())
    if least != most:
        raise ColumnError(_TWO_TYPES)
    return most


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
    for name, values, valid in _columns(table, aggregates, result):
        own = codes if valid is None else codes[valid]
        function = name.partition(":")[0]
        if function == "seen":
            result[name] = np.bincount(own, minlength=size)
        elif function == DECIMAL:
            result[name] = np.full(size, values[0], values.dtype)
        else:
            result[name] = _reduce(name, values, own, size)
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
    for name, values, valid in _columns(table, aggregates, result):
        function = name.partition(":")[0]
        if function == "seen":
            own: Array = np.ones(len(codes), np.int64) if valid is None else valid.astype(np.int64)
        elif function == DECIMAL:
            result[name] = np.full(len(codes), values[0], values.dtype)
            continue
        else:
            own = np.full(len(codes), identity(function, values.dtype), values.dtype)
            own[slice(None) if valid is None else valid] = values
        if function == "sum" and own.dtype.kind in "iu" and _large(own):
            low, high = (_scanned(np.add, half, starts, lengths) for half in _halves(own[order]))
            _require_64_bits(name, low, high, own.dtype)
        result[name] = _scanned(_SCAN[function], own[order], starts, lengths)[place]
    return result


def _columns(
    table: pa.Table, aggregates: Sequence[Aggregate], done: Collection[str]
) -> Iterator[tuple[str, Array, Bools | None]]:
    """Name of each accumulator that is not `done`, the non-null values of its column, and which rows they are (None: all).
    ColumnError where an aggregate needs numbers and has none.  Of `seen`, which needs none, values are not to be read; of
    `decimal`, there is one, the type."""
    read: dict[str, tuple[Array | None, Bools | None]] = {}
    for aggregate in aggregates:
        of = aggregate.column
        for name in aggregate.accumulators if of else ():
            function = name.partition(":")[0]
            kind = column(table, of).type
            if name in done or (function == DECIMAL and not pa.types.is_decimal(kind)):
                continue
            if function == DECIMAL:
                yield name, np.array([decimal_code(kind)], np.int16), None
                continue
            if function == "seen":
                array = column(table, of)
                valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
                yield name, np.zeros(0), valid
                continue
            if of not in read:
                read[of] = numbers(table, of)
            values, valid = read[of]
            if values is None:
                raise ColumnError(f"{function} of {of!r} needs numbers or times; the column holds {kind}")
            yield name, values, valid


def _scanned(ufunc: np.ufunc, values: Array, starts: Ints, lengths: Ints) -> Array:
    """Each run of values accumulated from its start, in order."""
    found = values.copy()
    for start, length in zip(starts[lengths > 1].tolist(), lengths[lengths > 1].tolist(), strict=True):
        ufunc.accumulate(values[start : start + length], out=found[start : start + length])
    return found


def numbers(table: pa.Table, name: str) -> tuple[Array | None, Bools | None]:
    """Non-null values of a column as int64, uint64 or float64 (None: not numbers), and which rows they are (None: all).
    Times are microseconds, decimals whole numbers of their last digit.  ColumnError: one is none of 64 bits."""
    array = column(table, name)
    kind = array.type
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    array = array.drop_null()
    if pa.types.is_timestamp(kind):
        try:
            array = array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
        except pa.ArrowInvalid:
            raise ColumnError(
                f"{name!r}: a time is no whole number of microseconds of 64 bits; CAST it in a Map"
            ) from None
    elif pa.types.is_floating(kind) or pa.types.is_null(kind):
        array = array.cast(pa.float64())
    elif pa.types.is_decimal(kind):
        array = _last_digits(array, name)
    elif pa.types.is_uint64(kind):
        pass
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        array = array.cast(pa.int64())
    else:
        return None, valid
    return array.to_numpy(zero_copy_only=False), valid


def _last_digits(array: pa.Array, name: str) -> pa.Array:
    """Decimals as whole numbers of their last digit.  ColumnError: one is beyond 64 bits."""
    if array.type.scale > _LONGEST:
        raise ColumnError(f"{name!r}: {_TOO_LONG}")
    try:
        longest = array.cast(pa.decimal128(_LONGEST, array.type.scale))
        digits: pa.Array = longest.view(pa.decimal128(_LONGEST, 0)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise ColumnError(f"{name!r}: {_TOO_LONG}") from None
    return digits


def decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The inverse: whole numbers of the last digit as decimals of this type."""
    found: pa.Array = values.cast(pa.decimal128(_DIGITS_OF_64_BITS, 0)).view(kind)
    return found


def _reduce(accumulator: str, values: Array, codes: Ints, size: int) -> Array:
    function = accumulator.partition(":")[0]
    if function == "sum" and values.dtype == np.float64:
        # Without a single value bincount forgets the weights' type.
        return np.bincount(codes, weights=values, minlength=size).astype(np.float64, copy=False)
    if function == "sum":
        _require_room(accumulator, values, codes, size)
    result = np.full(size, identity(function, values.dtype), values.dtype)
    ufunc = {"sum": np.add, "min": np.minimum, "max": np.maximum}[function]
    with np.errstate(invalid="ignore"):  # numpy warns of NaN
        ufunc.at(result, codes, values)
    return result


def _require_room(accumulator: str, values: Ints, codes: Ints, size: int) -> None:
    """ColumnError when a sum of integers does not fit into 64 bits; numpy would wrap around without a word."""
    if not _large(values):
        return
    low, high = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for total, half in zip((low, high), _halves(values), strict=True):
        np.add.at(total, codes, half)
    _require_64_bits(accumulator, low, high, values.dtype)


def _halves(values: Ints) -> tuple[Ints, Ints]:
    """The lower and the upper 32 bits."""
    return (values & 0xFFFFFFFF).astype(np.int64), (values >> 32).astype(np.int64)


def _large(values: Ints) -> bool:
    """Whether a sum of some of these may be beyond 64 bits."""
    most = max(-int(values.min()), int(values.max())) if len(values) else 0
    return most * len(values) > np.iinfo(values.dtype).max


def _require_64_bits(accumulator: str, low: Ints, high: Ints, dtype: npt.DTypeLike) -> None:
    """ColumnError for sums, as sums of their lower and their upper halves, that are too large."""
    high = high + (low >> 32)
    limits = np.iinfo(dtype)
    if np.any((high < limits.min >> 32) | (high > limits.max >> 32)):
        raise ColumnError(f"{accumulator}: {_TOO_LARGE}")


def identity(name: str, dtype: npt.DTypeLike) -> Any:
    """The value of an accumulator that has seen nothing; `name` as in `Aggregate.accumulators`."""
    function = name.partition(":")[0]
    if function not in ("min", "max"):
        return 0
    if np.dtype(dtype) == np.float64:
        return np.inf if function == "min" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if function == "min" else limits.min


def unwritten(name: str, like: Array) -> Any:
    """What a slot has to which no row has come, where others have what is in `like`."""
    return decimal_code_of(like) if name.startswith(f"{DECIMAL}:") else identity(name, like.dtype)


def combine(name: str, left: Array, right: Array) -> Array:
    """Two accumulators of one name put together, `left` first."""
    function, _, of = name.partition(":")
    if function == DECIMAL:
        if np.any(left != right):
            raise ColumnError(f"{of!r}: {_TWO_TYPES}")
        return left
    if function in _COMBINE:
        return _COMBINE[function](left, right)
    total = left + right
    if total.dtype == np.uint64:
        over = total < left
    else:
        over = (left ^ total) & (right ^ total) < 0 if total.dtype == np.int64 else np.zeros(0, np.bool_)
    if np.any(over):
        raise ColumnError(f"{name}: {_TOO_LARGE}")
    return total
