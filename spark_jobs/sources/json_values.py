"""Columns of values that JSON has: numbers are exact, and text is text."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.column_types import type_name
from reprise.spark_jobs.operators.frames import ColumnError, first_wrong, is_text
from reprise.spark_jobs.sources.text_types import converted as text_as
from reprise.spark_jobs.sources.text_types import is_exact, refusal, require_finite, shown

SHORT = 16
"""Characters: a number that is written with no more, and without an exponent, is the same after it was a double."""
_DIGITS = 400
"""So many hold each number that a double holds."""
_NONE = pa.array([], pa.string())
_WORDS = {
    **dict.fromkeys((int, float, Decimal), "numbers"),
    **{str: "text", bool: "truth values", list: "lists", dict: "objects"},
}
_DECLARE = "declare its type with `columns`, e.g. decimal(38, 9), or double, which rounds"
_AS_TEXT = "write it as text"


def number(text: str) -> float | Decimal:
    """A number with a point or an exponent, exactly; for `json.loads`.  ValueError where nothing holds it."""
    if len(text) <= SHORT and "e" not in text and "E" not in text:
        return float(text)
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:40]} is beyond all numbers") from None


def row(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, for `json.loads`.  ValueError where a name is there twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def whole(text: str) -> int:
    """A number without a point, for `json.loads`.  ValueError where nothing holds it."""
    if len(text) > _DIGITS:
        raise ValueError(f"a number has {len(text)} digits: write it as text")
    return int(text)


def inferred(values: Sequence[Any], name: str, way: str = _DECLARE) -> Any:
    """A column with the type that its values have.  ColumnError where they do not go together, or no type holds them; `way`:
    what helps then."""
    found = {_WORDS[type(value)]: value for value in reversed(values) if value is not None}
    if len(found) > 1:
        both = " and ".join(f"{word} ({shown(value)})" for word, value in sorted(found.items())[:2])
        raise ColumnError(f"column {name!r} has {both}: write its values alike")
    if "lists" in found:
        return _listed(values, inferred(_parts(values), name, way))
    if "objects" in found:
        names = tuple(dict.fromkeys(key for value in values for key in value or ()))
        if not names:
            return pa.array(values)
        within = [[None if value is None else value.get(key) for value in values] for key in names]
        fields = [inferred(part, f"{name}.{key}", _AS_TEXT) for key, part in zip(names, within, strict=True)]
        return pa.StructArray.from_arrays(
            fields, list(names), mask=pa.array([value is None for value in values])
        )
    return _numbers(values, name, way) if "numbers" in found else pa.array(values)


def converted(values: Sequence[Any], kind: pa.DataType, name: str) -> Any:
    """A column as one of this type.  ColumnError names the column and what does not fit."""
    if pa.types.is_list(kind):
        if wrong := [value for value in values if not (value is None or isinstance(value, list))]:
            raise refusal(name, kind, wrong[0])
        return _listed(values, converted(_parts(values), kind.value_type, name))
    if pa.types.is_decimal(kind):
        texts = [_text_of_number(value, kind, name) for value in values]
        return text_as(pa.array(texts, pa.string()), kind, name, nothing=_NONE)
    if pa.types.is_floating(kind):
        return _doubles(values, kind, name)
    array = inferred(values, name)
    if pa.types.is_string(array.type) and (pa.types.is_temporal(kind) or is_text(kind)):
        return text_as(array, kind, name, nothing=_NONE)
    if not (pa.types.is_integer(array.type) and pa.types.is_integer(kind)) and not (
        array.type == kind or pa.types.is_null(array.type)
    ):
        raise ColumnError(f"column {name!r} is {type_name(kind)}, and a value is {type_name(array.type)}")
    try:
        return array.cast(kind)
    except pa.ArrowException:
        raise refusal(name, kind, first_wrong(array, lambda part: part.cast(kind)).as_py()) from None


def _parts(values: Sequence[Any]) -> list[Any]:
    return [part for value in values for part in value or ()]


def _listed(values: Sequence[Any], parts: Any) -> Any:
    ends = accumulate((len(value or ()) for value in values), initial=0)
    begins = [at if value is not None else None for at, value in zip(ends, [*values, ()], strict=True)]
    return pa.ListArray.from_arrays(pa.array(begins, pa.int32()), parts)


def _numbers(values: Sequence[Any], name: str, way: str) -> Any:
    """Of 64 bits, or doubles that are the same to as many digits as are written."""
    if all(isinstance(value, int | None) for value in values):
        for kind in (pa.int64(), pa.uint64()):
            with contextlib.suppress(OverflowError):
                return pa.array(values, kind)
        wrong = max((value for value in values if value is not None), key=abs)
        raise ColumnError(
            f"column {name!r} has whole numbers that 64 bits do not hold, as {shown(wrong)}: {way}"
        )
    for value in values:
        exact = is_exact(str(value)) if isinstance(value, Decimal) else abs(value or 0) <= 1 << 53
        if not (exact or isinstance(value, float)):
            raise ColumnError(f"column {name!r}: a double does not hold {shown(value)}: {way}")
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def _doubles(values: Sequence[Any], kind: pa.DataType, name: str) -> Any:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | None):
            raise refusal(name, kind, value)
    array = pa.array([None if value is None else float(value) for value in values], pa.float64()).cast(kind)
    return require_finite(array, pa.array([False] * len(values), pa.bool_()), kind, name)


def _text_of_number(value: Any, kind: pa.DataType, name: str) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | None):
        raise refusal(name, kind, value)
    return None if value is None else str(value)
