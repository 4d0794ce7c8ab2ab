"""Columns of values that JSON has: numbers are exact, and text is text."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.operators.frames import ColumnError, is_text
from reprise.spark_jobs.sources.text_types import converted as text_as
from reprise.spark_jobs.sources.text_types import is_exact, require_finite

SHORT = 16
"""Characters: a number that is written with no more, and without an exponent, is the same after it was a double."""
_NONE = pa.array([], pa.string())


def number(text: str) -> float | Decimal:
    """A number with a point or an exponent, exactly; for `json.loads`.  ValueError where nothing holds it."""
    if len(text) <= SHORT and "e" not in text and "E" not in text:
        return float(text)
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:40]} is beyond all numbers") from None


def inferred(values: Sequence[Any], name: str) -> Any:
    """A column with the type that its values have.  ColumnError where they do not go together, or no type holds them."""
    try:
        try:
            array = _of(values)
        except (
            pa.ArrowException,
            TypeError,
        ):  # of numbers in two forms, or of what does not go together at all
            array = _of([_plain(value) for value in values])
        if "decimal" in str(array.type):
            array = _of([_plain(value) for value in values])
    except OverflowError:
        raise ColumnError(
            f"column {name!r} has whole numbers beyond 64 bits: a `decimal(38, 0)` holds them"
        ) from None
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ColumnError(f"column {name!r}: {error}") from None
    if _is_number(array.type) and any(isinstance(value, bool) for value in values):
        raise ColumnError(f"column {name!r} has truth values and numbers")
    return array


def converted(values: Sequence[Any], kind: pa.DataType, name: str) -> Any:
    """A column as one of this type.  ColumnError names the column and what does not fit."""
    try:
        if pa.types.is_list(kind):
            return _lists(values, kind, name)
        if pa.types.is_decimal(kind):
            return pa.array([None if v is None else _decimal(v) for v in values], kind)
        if pa.types.is_floating(kind):
            return _doubles(values, kind, name)
        return (
            pa.array(values, kind) if pa.types.is_struct(kind) else _cast(inferred(values, name), kind, name)
        )
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        raise ColumnError(f"column {name!r} is {kind}: {error}") from None


def _cast(array: pa.Array, kind: pa.DataType, name: str) -> Any:
    if pa.types.is_string(array.type) and (pa.types.is_temporal(kind) or is_text(kind)):
        return text_as(array, kind, name, nothing=_NONE)
    whole = pa.types.is_integer(array.type) and pa.types.is_integer(kind)
    if whole or array.type == kind or pa.types.is_null(array.type):
        return array.cast(kind)
    raise ColumnError(f"column {name!r} is {kind}, and a value is {array.type}")


def _lists(values: Sequence[Any], kind: pa.DataType, name: str) -> Any:
    if wrong := [value for value in values if not (value is None or isinstance(value, list))]:
        raise ValueError(f"{wrong[0]!r} is no list")
    parts = converted([part for value in values for part in value or ()], kind.value_type, name)
    ends = accumulate((len(value or ()) for value in values), initial=0)
    begins = [at if value is not None else None for at, value in zip(ends, [*values, ()], strict=True)]
    return pa.ListArray.from_arrays(pa.array(begins, pa.int32()), parts)


def _doubles(values: Sequence[Any], kind: pa.DataType, name: str) -> Any:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | None):
            raise ColumnError(f"column {name!r} is {kind}, and a value is {value!r}")
    array = pa.array([None if value is None else float(value) for value in values], pa.float64()).cast(kind)
    return require_finite(array, pa.array([False] * len(values), pa.bool_()), kind, name)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{value!r} is no number")
    return Decimal(repr(value) if isinstance(value, float) else value)


def _of(values: Sequence[Any]) -> Any:
    try:
        return pa.array(values)
    except OverflowError:  # of 64 bits with a sign
        return pa.array(values, pa.uint64())


def _plain(value: Any) -> Any:
    """Numbers as doubles that are the same to as many digits as are written."""
    if isinstance(value, Decimal):
        if not is_exact(str(value)):
            raise ValueError(f"a double does not hold {value}: a `decimal(p, s)` does")
        return float(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
