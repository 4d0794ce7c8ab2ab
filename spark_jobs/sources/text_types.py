"""Types of columns whose values are text: found over all files at once, and never such that a value changes.

A column gets the first type that each of its values can be written as: text with a leading zero is no number, and a number
with more digits than its type holds stays text.  A declared type takes more ways to write a value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.column_types import type_name
from reprise.spark_jobs.operators.frames import INSTANT, ZONED, ColumnError, first_wrong, instants, is_text

NOTHING = pa.array(
    [
        *(
            "",
            "#N/A",
            "#N/A N/A",
            "#NA",
            "-1.#IND",
            "-1.#QNAN",
            "-NaN",
            "-nan",
            "1.#IND",
            "1.#QNAN",
            "N/A",
            "NA",
        ),
        *("NULL", "NaN", "n/a", "nan", "null"),
    ]
)
"""Text that is null in a column of another type than text, as Arrow and others have it."""
_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_ANY_WHOLE = r"^[+-]?[0-9]+$"
_ANY_NUMBER = r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|Inf|Infinity)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_BELOW_MICROSECONDS = r"\.[0-9]{6}0*[1-9]"
_SHOWN = 60
_EXACT_DIGITS = 15
"""So many decimal digits are the same after they were a double."""

Texts = pa.Array | pa.ChunkedArray


def infer(texts: Texts) -> pa.DataType:
    """The type of a column of text."""
    given = pc.utf8_trim_whitespace(texts)
    given = given.filter(pc.invert(pc.is_in(given, NOTHING))).drop_null()
    if not len(given):
        return pa.null()
    for kind, fits in KINDS:
        if fits(given):
            return kind
    if _all(given, INSTANT):
        unit = "ns" if _any(given, _BELOW_MICROSECONDS) else "us"
        kind = pa.timestamp(unit, "UTC" if _any(given, ZONED) else None)
        if _converts(given, kind):
            return kind
    return pa.string()


def converted(texts: Texts, kind: pa.DataType, name: str, nothing: pa.Array = NOTHING) -> Texts:
    """A column of text as one of this type; `nothing`: text that is null.  ColumnError names the column and a value that is
    none."""
    try:
        return _converted(texts, kind, name, nothing)
    except pa.ArrowNotImplementedError:
        raise ColumnError(
            f"column {name!r} is {type_name(kind)}, which is not read from text: declare it as string"
        ) from None
    except (pa.ArrowException, ArithmeticError):
        wrong = first_wrong(texts, lambda part: _converted(part, kind, name, nothing))
        raise refusal(name, kind, wrong.as_py()) from None


def _converted(texts: Texts, kind: pa.DataType, name: str, nothing: pa.Array) -> Texts:
    if is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _as(texts, kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(texts))
    values = pc.utf8_trim_whitespace(texts)
    values = pc.if_else(pc.is_in(values, nothing), pa.scalar(None, pa.string()), values)
    if pa.types.is_timestamp(kind):
        unit = "ns" if _any(values, _BELOW_MICROSECONDS) else "us"
        return _as(instants(values, name, unit), kind)
    return _number(values, kind, name)


def _number(values: Texts, kind: pa.DataType, name: str) -> Texts:
    if pa.types.is_integer(kind):  # Arrow takes hexadecimal numbers, too
        _require(values, _ANY_WHOLE, kind, name)
        return _as(pc.replace_substring_regex(values, r"^\+?(-?)0*([0-9])", r"\1\2"), kind)
    if pa.types.is_decimal(kind):
        _require(values, _ANY_NUMBER, kind, name)
        return _decimals(values, kind)
    if pa.types.is_floating(kind):
        _require(values, _ANY_NUMBER, kind, name)
        plain = pc.replace_substring_regex(values, r"^\+", "")
        return require_finite(_as(plain, kind), pc.match_substring_regex(plain, "[iI]nf"), kind, name)
    return _as(values, kind)


def _decimals(values: Texts, kind: pa.DataType) -> pa.Array:
    """Exactly, where Arrow wraps digits beyond 128 bits and rounds small numbers to 0.  ArithmeticError: one has no room."""
    exact, last = Context(kind.precision, traps=[Inexact, InvalidOperation]), Decimal(1).scaleb(-kind.scale)
    return pa.array(
        [None if v is None else Decimal(v).quantize(last, context=exact) for v in values.to_pylist()], kind
    )


def refusal(name: str, kind: pa.DataType, value: Any) -> ColumnError:
    """That a value is none of the type that its column has."""
    number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    hint = ": the decimal sign is a point" if number and isinstance(value, str) and "," in value else ""
    return ColumnError(f"column {name!r} is {type_name(kind)}, and {shown(value)} is none{hint}")


def shown(value: Any) -> str:
    """A value in a message: its beginning."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def require_finite(values: Texts, infinite: Texts, kind: pa.DataType, name: str) -> Texts:
    """ColumnError where a number became infinite that is not, by `infinite`."""
    if pc.any(pc.and_not(pc.is_inf(values), infinite)).as_py():
        raise ColumnError(f"column {name!r} is {type_name(kind)}, and a value is beyond that")
    return values


def _as(values: Texts, kind: pa.DataType) -> Texts:
    found: Texts = values.cast(kind)
    return found


def _require(values: Texts, pattern: str, kind: pa.DataType, name: str) -> None:
    wrong = values.filter(pc.invert(pc.match_substring_regex(values, pattern)))
    if len(wrong):
        raise refusal(name, kind, wrong[0].as_py())


def _all(texts: Texts, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _any(texts: Texts, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _converts(given: Texts, kind: pa.DataType) -> bool:
    try:
        converted(given, kind, "")
    except ColumnError:
        return False
    return True


def _is(kind: pa.DataType, pattern: str) -> Callable[[Texts], bool]:
    return lambda given: _all(given, pattern) and _converts(given, kind)


def _is_double(given: Texts) -> bool:
    """Whether each value is a number that a double holds as it is written."""
    if not _all(given, _NUMBER) or _all(given, _WHOLE):  # whole numbers beyond 64 bits
        return False
    digits = pc.replace_substring_regex(given, r"[eE].*|[^0-9]", "")
    doubtful = pc.or_(
        pc.greater(pc.utf8_length(digits), _EXACT_DIGITS), pc.match_substring_regex(given, "[eE]")
    )
    return all(map(is_exact, given.filter(doubtful).unique().to_pylist()))


def is_exact(text: str) -> bool:
    """Whether a double that is read from this text is the same number, to as many digits as are written."""
    try:
        written = Decimal(text)
        precision = Context(prec=max(1, len(written.as_tuple().digits)))
        return precision.create_decimal(Decimal(float(text))) == written
    except (ArithmeticError, ValueError):  # beyond all exponents
        return False


KINDS: tuple[tuple[pa.DataType, Callable[[Texts], bool]], ...] = (
    (pa.bool_(), lambda given: _all(given, "^(true|false|True|False|TRUE|FALSE)$")),
    (pa.int64(), _is(pa.int64(), _WHOLE)),
    (pa.uint64(), _is(pa.uint64(), _WHOLE)),
    (pa.float64(), _is_double),
    (pa.date32(), _is(pa.date32(), _DATE)),
)
