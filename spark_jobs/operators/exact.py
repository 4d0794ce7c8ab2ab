"""Expressions whose whole numbers, comparisons and times are exact.

Problem: polars computes in the types that it meets: a year has 32 bits, products wrap around, a whole number is compared
with a float as a float, and nanoseconds with microseconds as the latter.  The parsed expression gets casts instead.
Invariant: each whole number has 128 bits, and each cast keeps the value or fails.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

import polars as pl

from reprise.spark_jobs.operators.frames import ColumnError

Node = Any
"""Of an expression, as polars writes it to JSON: an object with one key, or a part of one."""
Unit = Literal["us", "ns"]
_WHOLE = pl.Decimal(38, 0)
"""Whole numbers in arithmetic: polars fails where a decimal overflows, and wraps integers around."""
_TIMES = (pl.Datetime, pl.Duration)
_OF_FLOATS = pl.Decimal(15, 0)
"""Whole numbers that a float keeps."""
LEAVES = ("Literal", "Column", "evaluation")
"""Parts that stay as they are; the last is that of each element of a list."""
_SHORT = re.compile(r"\d(ns|us|ms|s|m|h)\b")
"""An interval of less than days."""
_SUMS = ("Plus", "Minus", "Multiply", "Add", "Sub", "Mul")
_CHOICES = ("Ternary", "Coalesce", "MaxHorizontal", "MinHorizontal")
_ASIDE = "predicate"
"""The part of which no value becomes that of the whole."""
_COMPARISONS = ("Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity", "IsIn", "Contains")


def exact(expression: pl.Expr, schema: pl.Schema) -> pl.Expr:
    """The same expression over columns of these types, without a step that wraps around or rounds.  Unless it is a CAST, a
    whole number gets 64 bits, and what is made with a number like 0.1 is a float.  ColumnError: it compares a decimal with a
    float, or adds lists."""
    types, tree = _Types(schema), tree_of(expression)
    found = expression_of(exact_tree := types.exact(tree))
    if "Cast" in tree_of(expression.meta.undo_aliases()):
        return found
    kind = types.kind(exact_tree)
    if _inner(kind).is_integer():
        of = [one for name in expression.meta.root_names() if (one := schema[name]).is_integer()]
        whole = pl.UInt64() if of and all(one == pl.UInt64 for one in of) else pl.Int64()
        return found.cast(pl.List(whole) if isinstance(kind, pl.List) else whole)
    return found.cast(pl.Float64) if kind == pl.Decimal and _has_float(tree) else found


def _has_point(digits: int, scale: int) -> bool:
    """Whether a number that polars takes for a decimal is written with a point; so it takes whole ones beyond 64 bits."""
    return scale > 0 or digits < 19


def _decimals(node: Node) -> list[tuple[int, int]]:
    """Digits and scale of each decimal that is written in it, and may become its value."""
    if isinstance(node, dict) and isinstance(scalar := node.get("Scalar"), dict) and "Decimal" in scalar:
        _, digits, scale = scalar["Decimal"]
        return [(digits, scale)]
    if isinstance(node, dict):
        node = [part for name, part in node.items() if name != _ASIDE]
    return [each for part in node for each in _decimals(part)] if isinstance(node, list) else []


def _has_float(node: Node) -> bool:
    """Whether a number with a point is written in it, which makes floats of its decimals."""
    return any(_has_point(*each) for each in _decimals(node))


class _Types:
    """Rewrites expressions over columns of these types."""

    def __init__(self, schema: pl.Schema) -> None:
        self.schema, self.frame = schema, pl.LazyFrame(schema=schema)

    def exact(self, node: Node) -> Node:
        """The node with exact parts."""
        if not isinstance(node, dict) or not node:
            return [self.exact(each) for each in node] if isinstance(node, list) else node
        inner = {key: value if key in LEAVES else self.exact(value) for key, value in node.items()}
        kind, of = next(iter(inner.items()))
        if kind == "Column":
            return self._wide(node)
        if kind == "BinaryExpr":
            return self._operation(inner, of, ("left", "right"), of["op"])
        if kind == "Ternary":
            return self._operation(inner, of, ("truthy", "falsy"), kind)
        if kind == "Cast" and self.kind(node) in (pl.Date, pl.Time):
            of["expr"] = self._local(of["expr"])
        return self._function(inner) if kind == "Function" else inner

    def _function(self, node: Node) -> Node:
        of, name = node["Function"]["input"], _name(node["Function"]["function"])
        kinds = [self.kind(each) for each in of]
        if name == "ToFloat" and kinds[0].is_integer():
            of[0] = self._cast(of[0], pl.Float64)
        elif name == "Abs":
            of[0] = self._wide(of[0])
        elif name == "OffsetBy" and (unit := _finer(kinds[0], json.dumps(of[1]))):
            of[0] = self._cast(of[0], pl.Datetime(unit, getattr(kinds[0], "time_zone", None)))
        return self._operation(node, of, range(len(of)), name)

    def _operation(self, node: Node, of: Any, at: Sequence[Any], name: str) -> Node:
        """A node with operands `of[at]`, which are made of one kind."""
        kinds = [self.kind(of[each]) for each in at]
        inner = [_inner(kind) for kind in kinds]
        wanted = [_in_unit(kind, inner) for kind in inner]
        whole = all(kind.is_integer() for kind in inner)
        if name in _SUMS and any(isinstance(kind, pl.List) for kind in kinds):
            raise ColumnError(
                "lists are not added or multiplied; make rows of them with FlatMap, or use a `function`"
            )
        if name in _SUMS and whole:
            wanted = [_WHOLE for _ in inner]
        elif name == "Div":
            wanted = [pl.Float64() if kind == pl.Decimal else kind for kind in inner]
        elif name in _COMPARISONS:
            wanted = self._compared([of[each] for each in at], wanted)
        elif name in _CHOICES and any(
            k.is_float() or _has_float(of[each]) for k, each in zip(inner, at, strict=True)
        ):
            wanted = [_OF_FLOATS if kind.is_integer() else kind for kind in wanted]
        for each, kind, now, then in zip(at, kinds, inner, wanted, strict=True):
            for one in () if now == then else (then, pl.Float64()) if then == _OF_FLOATS else (then,):
                of[each] = self._cast(of[each], pl.List(one) if isinstance(kind, pl.List) else one)
        if name in _SUMS and all(isinstance(kind, _TIMES) or kind.is_integer() for kind in wanted):
            return self._shifted(node, of, at)
        if name == "Div" and (kind := self.kind(node)).is_float():
            of[at[1]] = self._of_each_row(of[at[1]], kind)
        return self._cast(node, pl.Int128) if name in _SUMS and whole else node

    def _of_each_row(self, divisor: Node, kind: pl.DataType) -> Node:
        """A divisor in a column.  Polars multiplies by the reciprocal of a single one if there are several rows."""
        product = tree_of(pl.lit(1.0) * (pl.int_range(pl.len()) * 0 + 1).cast(kind))
        product["BinaryExpr"]["left"] = divisor if kind == pl.Float32 else self._cast(divisor, kind)
        return product

    def _shifted(self, node: Node, of: Any, at: Sequence[Any]) -> Node:
        """A sum or a product of times, which polars wraps around."""
        kind = self.kind(node)
        for each in at:
            of[each] = self._cast(self._cast(of[each], pl.Int64), _WHOLE)
        return self._cast(self._cast(node, pl.Int64), kind)

    def _compared(self, nodes: Sequence[Node], kinds: Sequence[pl.DataType]) -> list[pl.DataType]:
        """In which types values of these are compared."""
        if not any(kind.is_float() for kind in kinds):
            return [pl.Int128() if kind.is_integer() else kind for kind in kinds]
        for node, kind in zip(nodes, kinds, strict=True):
            for name in expression_of(node).meta.root_names() if kind == pl.Decimal else ():
                if isinstance(self.schema.get(name), pl.Decimal | pl.Struct | pl.List):
                    raise ColumnError(
                        f"{name!r} holds decimals and is compared with a float; write CAST({name} AS DOUBLE)"
                    )
        return [_OF_FLOATS if kind.is_integer() else kind for kind in kinds]

    def _wide(self, node: Node) -> Node:
        """Whole numbers, also in lists, as ones of 128 bits."""
        kind = self.kind(node)
        if not _inner(kind).is_integer():
            return node
        return self._cast(node, pl.List(pl.Int128) if isinstance(kind, pl.List) else pl.Int128)

    def _local(self, node: Node) -> Node:
        """A time with a zone as its clock shows it; polars takes the day and the time of day from UTC."""
        if not getattr(self.kind(node), "time_zone", None):
            return node
        local = tree_of(pl.col("").dt.replace_time_zone(None))
        local["Function"]["input"][0] = node
        return local

    def kind(self, node: Node) -> pl.DataType:
        """What it gives."""
        (kind,) = self.frame.select(expression_of(node)).collect_schema().dtypes()
        return kind

    def _cast(self, node: Node, kind: pl.DataType | type[pl.DataType]) -> Node:
        cast = tree_of(pl.col("").cast(kind))
        cast["Cast"]["expr"] = node
        return cast


def _inner(kind: pl.DataType) -> pl.DataType:
    """What is in a list of this type, or the type itself."""
    return kind.inner if isinstance(kind, pl.List) else kind  # type: ignore[return-value]


def _name(function: Node) -> str:
    while isinstance(function, dict):
        name, inner = next(iter(function.items()))
        function = inner if name in ("Sql", "Binary", "ListExpr", "TemporalExpr") else name
    return str(function)


def _finer(kind: pl.DataType, interval: str) -> Unit | None:
    """The unit of a time of this type with an interval added, where it is a finer one."""
    if "ns" in _SHORT.findall(interval):
        return None if kind == pl.Datetime("ns") else "ns"
    return "us" if kind == pl.Datetime("ms") or (kind == pl.Date and _SHORT.search(interval)) else None


def _in_unit(kind: pl.DataType, others: Sequence[pl.DataType]) -> pl.DataType:
    """The type of a time in the finest unit of all, and in the first zone; without a zone it is one of UTC."""
    times = [each for each in others if isinstance(each, _TIMES)]
    units = {each.time_unit for each in times}
    unit: Unit = "ns" if "ns" in units else "us"
    if isinstance(kind, pl.Duration) and len(units) > 1:
        return pl.Duration(unit)
    zones = dict.fromkeys(each.time_zone for each in times if isinstance(each, pl.Datetime))
    if (kind == pl.Date and times) or (isinstance(kind, pl.Datetime) and (len(units) > 1 or len(zones) > 1)):
        return pl.Datetime(unit, next(filter(None, zones), None))
    return kind


def tree_of(expression: pl.Expr) -> Node:
    """The expression as polars writes it to JSON."""
    return json.loads(expression.meta.serialize(format="json"))


def expression_of(node: Node) -> pl.Expr:
    """The inverse of `tree_of`."""
    return pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
