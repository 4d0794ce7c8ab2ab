"""Polars SQL expressions of resources.

Invariant: what an expression gives for a row follows from that row.  Aggregates and windows are refused, as they would
show how rows fall into batches.  So are functions of the clock and of chance: polars asks the clock once, when it reads
the text, so each partition and each replay would have a time of its own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import lru_cache

import polars as pl

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.exact import LEAVES, Node, expression_of, tree_of
from reprise.spark_jobs.operators.frames import REFUSED

_WORD = re.compile(r"""\w+(?=(["`]?\s*(?:\(\s*(?:\)|--|/\*)|--|/\*))?)""")
"""A word, and whether it may be called without arguments: only comments can stand before and in its parentheses."""
_UNKNOWN = "reprise_no_such_function"

_CAST = "CAST the column first, as in CAST(x AS TIMESTAMP) AT TIME ZONE 'UTC'; for DATE_TRUNC use STRFTIME or a `function`"
_WAYS = {
    "Strptime": "give the format of the text, which polars guesses from the first row, or CAST a time AS DATE",
    "Explode": "FlatMap makes rows of lists",
    "Replace": "REPLACE takes texts and no columns",
}
"""By a word of the part, what helps."""


def parse_expression(text: str, field: str, named: bool = False) -> pl.Expr:
    """The expression of one column that a text of polars SQL stands for; `named`: it may name its result.  SpecError
    where it is none, where a replay would compute another value, and where other rows have a part in it."""
    try:
        found = pl.sql_expr(text)
        tree = tree_of(expression_of(tree_of(found)))
    except (*REFUSED, TypeError) as error:
        way = f"; {_CAST}" if "type of" in str(error) else ""
        raise SpecError(field, f"{text!r} is not a polars SQL expression: {error}{way}") from error
    if "Alias" in tree and not named:
        raise SpecError(
            field,
            f"{text!r} names its result {found.meta.output_name()!r}; leave out the name",
        )
    if found.meta.has_multiple_outputs():
        raise SpecError(field, f"{text!r} gives several columns; write one expression for each")
    if varying := next(_calls(text), None):
        raise SpecError(
            field,
            f"{varying!r} gives another value in each partition and replay; take it from a column of the input, or give a "
            '`function` and say `deterministic: false` of the operator (a column of this name is written in "quotes")',
        )
    if part := next(_of_several_rows(tree), None):
        way = next(
            (way for name, way in _WAYS.items() if name in part), "aggregate in an operator of its own"
        )
        raise SpecError(
            field, f"{text!r} depends on the other rows of its batch, which are there by chance: {way}"
        )
    return found


def _of_several_rows(node: Node) -> Iterator[str]:
    """Parts of an expression that polars computes over several rows.  Polars reports it of one part, without those in it."""
    parts = node if isinstance(node, list) else []
    if isinstance(node, dict):
        parts = [part for name, part in node.items() if name not in LEAVES]
    for part in parts:
        yield from _of_several_rows(part)
    if node == "Len":
        yield node
    if not isinstance(node, dict) or not parts:
        return
    if "Replace" in str(node.get("function")) and any("Column" in str(part) for part in node["input"][1:]):
        yield str(node)  # polars computes it for a single row alone
    # A part that is no expression raises an error, and so does a function that needs the types of its columns.
    with contextlib.suppress(*REFUSED, ValueError):
        meta = expression_of(node).meta
        of_rows = meta.is_scalar() or not meta.is_length_preserving() or not meta.is_row_separable()
        if of_rows and meta.root_names():
            yield str(node)


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
