"""Types of columns whose values are text: found over all files at once, and never such that a value changes.

A column gets the first type of `KINDS` that each of its values can be written as: text with a leading zero is no number, and
a number with more digits than its type holds stays text.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.operators.frames import INSTANT, ColumnError, instants

NOTHING = pa.array(["", "null", "NULL", "NA", "N/A", "NaN", "nan"])
"""Text that is null in a column of another type than text."""
_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_EXACT_DIGITS = 15
"""So many decimal digits are the same after they were a double."""

Texts = pa.Array | pa.ChunkedArray


def infer(texts: Texts) -> pa.DataType:
    """The type of a column of text."""
    given = pc.utf8_trim_whitespace(texts)
    given = given.filter(pc.invert(pc.is_in(given, NOTHING))).drop_null()
    if not len(given):
        return pa.null()
    return next((kind for kind, fits in KINDS if fits(given)), pa.string())


def converted(texts: Texts, kind: pa.DataType, name: str) -> Texts:
    """A column of text as one of this type.  ColumnError names the column and a value that is none."""
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_null(kind):
        return pa.nulls(len(texts))
    values = pc.utf8_trim_whitespace(texts)
    values = pc.if_else(pc.is_in(values, NOTHING), pa.scalar(None, pa.string()), values)
    try:
        if pa.types.is_timestamp(kind):
            moments: Texts = instants(values, name).cast(kind)
            return moments
        if pa.types.is_integer(kind):  # Arrow takes hexadecimal numbers, too
            _require(values, _WHOLE, kind, name)
        if pa.types.is_floating(kind):
            _require(values, _NUMBER, kind, name)
        typed: Texts = values.cast(kind)
        return typed
    except pa.ArrowException as error:
        raise ColumnError(f"column {name!r} is {kind}: {error}") from None


def _require(values: Texts, pattern: str, kind: pa.DataType, name: str) -> None:
    wrong = values.filter(pc.invert(pc.match_substring_regex(values, pattern)))
    if len(wrong):
        raise ColumnError(f"column {name!r} is {kind}, and {wrong[0].as_py()!r} is none")


def _matches(pattern: str) -> Callable[[Texts], bool]:
    return lambda given: bool(pc.all(pc.match_substring_regex(given, pattern)).as_py())


def _is(kind: pa.DataType, pattern: str) -> Callable[[Texts], bool]:
    def fits(given: Texts) -> bool:
        if not _matches(pattern)(given):
            return False
        try:
            given.cast(kind)
        except pa.ArrowInvalid:
            return False
        return True

    return fits


def _is_double(given: Texts) -> bool:
    """Whether each value is a number that a double holds as it is written."""
    if not _matches(_NUMBER)(given):
        return False
    digits = pc.replace_substring_regex(given, r"[eE].*|[^0-9]", "")
    long = given.filter(pc.greater(pc.utf8_length(digits), _EXACT_DIGITS)).unique().to_pylist()
    far = given.filter(pc.match_substring_regex(given, r"[eE]")).unique().to_pylist()
    return all(is_exact(text) for text in (*long, *far))


def is_exact(text: str) -> bool:
    """Whether a double that is read from this text is written as the same number."""
    return Decimal(repr(float(text))) == Decimal(text)


def _is_instant(given: Texts) -> bool:
    if not _matches(INSTANT)(given):
        return False
    try:
        instants(given, "")
    except ColumnError:
        return False
    return True


KINDS: tuple[tuple[pa.DataType, Callable[[Texts], bool]], ...] = (
    (pa.bool_(), _matches("^(true|false|True|False|TRUE|FALSE)$")),
    (pa.int64(), _is(pa.int64(), _WHOLE)),
    (pa.uint64(), _is(pa.uint64(), _WHOLE)),
    (pa.float64(), _is_double),
    (pa.date32(), _is(pa.date32(), _DATE)),
    (pa.timestamp("us", "UTC"), _is_instant),
)
