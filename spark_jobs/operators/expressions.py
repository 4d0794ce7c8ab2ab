"""Polars SQL expressions of resources.

Invariant: what an expression gives follows from the rows of its batch.  Functions of the clock and of chance are refused:
polars asks the clock once, when it reads the text, so each partition and each replay would have a time of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import polars as pl

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import REFUSED

_WORD = re.compile(r"""\w+(?=(["`]?\s*(?:\(\s*(?:\)|--|/\*)|--|/\*))?)""")
"""A word, and whether it may be called without arguments: only comments can stand before and in its parentheses."""
_UNKNOWN = "reprise_no_such_function"


def parse_expression(text: str, field: str) -> pl.Expr:
    """The expression of one column that a text of polars SQL stands for.  SpecError where it is none, and where a replay
    would compute another value."""
    try:
        found = pl.sql_expr(text)
    except (*REFUSED, TypeError) as error:
        raise SpecError(field, f"{text!r} is not a polars SQL expression: {error}") from error
    if found.meta.has_multiple_outputs():
        raise SpecError(field, f"{text!r} gives several columns; write one expression for each")
    if varying := next(_calls(text), None):
        raise SpecError(
            field,
            f"{varying!r} gives another value in each partition and replay; take it from a column of the input, or give a "
            '`function` and say `deterministic: false` of the operator (a column of this name is written in "quotes")',
        )
    return found


def _calls(text: str) -> Iterator[str]:
    """What of this expression is a clock or chance.  Polars alone knows what a text, a comment or a name is: a word is
    called if a function that polars does not know is refused in its place."""
    for found in _WORD.finditer(text):
        word, before, after = found.group(), text[: found.start()], text[found.end() :]
        if found.group(1) and _varies(f"{word}()") and not _is_read(f"{before}{_UNKNOWN}{after}"):
            yield f"{word}()"
        elif (
            _varies(word)
            and not _is_read(f"{before}{_UNKNOWN}(){after}")
            and _is_read(f"{before}({word}){after}")  # the name of a result has no parentheses
        ):
            yield word


def _is_read(text: str) -> bool:
    try:
        pl.sql_expr(text)
    except REFUSED:
        return False
    return True


@lru_cache(maxsize=1024)
def _varies(call: str) -> bool:
    """Whether polars makes a time of nothing but this, or another value when it is asked again."""
    try:
        first, again = (pl.select(pl.sql_expr(call)) for _ in range(2))
    except REFUSED:
        return False
    return first.dtypes[0].is_temporal() or not first.equals(again)
