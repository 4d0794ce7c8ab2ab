"""Columns of values that JSON has: numbers are exact, and text is text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.sources.text_types import converted as text_as

SHORT = 16
"""Characters: a number that is written with no more, and without an exponent, is the same after it was a double."""


def number(text: str) -> float | Decimal:
    """A number with a point or an exponent, exactly; for `json.loads`."""
    return float(text) if len(text) <= SHORT and "e" not in text and "E" not in text else Decimal(text)


def inferred(values: Sequence[Any], name: str) -> Any:
    """A column with the type that its values have.  ColumnError where they do not go together, or no type holds them."""
    return _array(values, name)


def converted(values: Sequence[Any], kind: pa.DataType, name: str) -> Any:
    """A column as one of this type.  ColumnError names the column and what does not fit."""
    try:
        if pa.types.is_decimal(kind):
            return pa.array([None if v is None else _decimal(v) for v in values], kind)
        array = _array(values, name)
        if array.type == kind or pa.types.is_null(array.type):
            return array.cast(kind)
        if pa.types.is_string(array.type) and (pa.types.is_temporal(kind) or pa.types.is_string(kind)):
            return text_as(array, kind, name)
        if not (_is_number(array.type) and _is_number(kind)) and not pa.types.is_nested(kind):
            raise ColumnError(f"column {name!r} is {kind}, and a value is {array.type}")
        return array.cast(kind)
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        raise ColumnError(f"column {name!r} is {kind}: {error}") from None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{value!r} is no number")
    return Decimal(repr(value) if isinstance(value, float) else value)


def _array(values: Sequence[Any], name: str) -> Any:
    try:
        try:
            array = _of(values)
        except (
            pa.ArrowException,
            TypeError,
        ):  # of numbers in two forms, or of what does not go together at all
            return _of([_plain(value) for value in values])
        return _of([_plain(value) for value in values]) if "decimal" in str(array.type) else array
    except OverflowError:
        raise ColumnError(
            f"column {name!r} has whole numbers beyond 64 bits: a `decimal(38, 0)` holds them"
        ) from None
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ColumnError(f"column {name!r}: {error}") from None


def _of(values: Sequence[Any]) -> Any:
    try:
        return pa.array(values)
    except OverflowError:  # of 64 bits with a sign
        return pa.array(values, pa.uint64())


def _plain(value: Any) -> Any:
    """Numbers as doubles that are written alike."""
    if isinstance(value, Decimal):
        double = float(value)
        if math.isinf(double) or Decimal(repr(double)) != value:
            raise ValueError(f"a double does not hold {value}: a `decimal(p, s)` does")
        return double
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
