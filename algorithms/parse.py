"""JSON instances in, `Instance` values out, or one error that names the field.

The parser is total: any object leads to an `Instance` or an `InstanceError`. Decimals are scaled to integers
exactly (never rounded): the scale is the least power of ten that makes every cost and capacity whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NoReturn

from reprise.algorithms.errors import InstanceError
from reprise.algorithms.model import (
    DEFAULT_PRIORITY,
    MAX_TOTAL,
    FailedQuery,
    Instance,
    NodeCapacity,
    PartitionCost,
)

MAX_DECIMALS = 12
"""More digits behind the point than this are an error: no CPU is measured that finely, and sums must fit
MAX_TOTAL."""

FIELDS = ("capacity", "nodes", "partitions", "edges", "queries")


def loads_instance(text: str) -> Instance:
    """`parse_instance` of a JSON text, with decimals read digit by digit instead of through floats."""
    try:
        obj = json.loads(text, parse_float=Decimal, parse_constant=_constant)
    except (ValueError, InvalidOperation, RecursionError) as error:
        raise InstanceError("$", f"is not JSON: {error}") from error
    return parse_instance(obj)


def parse_instance(obj: object) -> Instance:
    """Read the documented instance format. Raises InstanceError(field, reason)."""
    top = _object(obj, "$", FIELDS, required=("partitions", "queries"))
    nodes = _entries(top.get("nodes", []), "nodes", ("id", "free"))
    partitions = _entries(top["partitions"], "partitions", ("id", "cost"))
    numbers = [_number(entry["free"], f"nodes[{i}].free") for i, entry in enumerate(nodes)]
    costs = [_number(entry["cost"], f"partitions[{i}].cost") for i, entry in enumerate(partitions)]
    if "capacity" in top:
        capacity = _number(top["capacity"], "capacity")
    elif nodes:
        capacity = sum(numbers, Decimal(0))
    else:
        raise InstanceError("capacity", "is missing, and there are no nodes to sum up")
    scale = 10 ** max((_decimals(number) for number in [capacity, *numbers, *costs]), default=0)
    instance = Instance(
        capacity=int(capacity * scale),
        partitions=tuple(
            PartitionCost(_id(e["id"], f"partitions[{i}].id"), int(cost * scale))
            for i, (e, cost) in enumerate(zip(partitions, costs, strict=True))
        ),
        queries=_queries(top["queries"]),
        nodes=tuple(
            NodeCapacity(_id(e["id"], f"nodes[{i}].id"), int(free * scale))
            for i, (e, free) in enumerate(zip(nodes, numbers, strict=True))
        ),
        edges=_edges(top.get("edges", [])),
        scale=scale,
    )
    validate(instance)
    return instance


def validate(instance: Instance) -> None:
    """What must hold of an instance however it was built: ids known and unique, numbers in range."""
    known = _unique([p.id for p in instance.partitions], "partitions")
    _unique([n.id for n in instance.nodes], "nodes")
    _unique([q.id for q in instance.queries], "queries")
    _in_range([instance.capacity], "capacity")
    _in_range([n.free for n in instance.nodes], "nodes", "free")
    _in_range([p.cost for p in instance.partitions], "partitions", "cost")
    _in_range([q.priority for q in instance.queries], "queries", "priority")
    for i, query in enumerate(instance.queries):
        where = f"queries[{i}].partitions"
        if not query.partitions:
            raise InstanceError(where, "is empty: a failed query has a failed partition")
        if query.priority < 1:
            raise InstanceError(f"queries[{i}].priority", "must be at least 1")
        if not known.issuperset(_unique(query.partitions, where, entries="")):
            member = next(name for name in query.partitions if name not in known)
            raise InstanceError(where, f"names unknown partition {member!r}")
    for i, edge in enumerate(instance.edges):
        for end in edge:
            if end not in known:
                raise InstanceError(f"edges[{i}]", f"names unknown partition {end!r}")


def _queries(obj: object) -> tuple[FailedQuery, ...]:
    fields = ("id", "priority", "partitions")
    found = []
    for i, entry in enumerate(_list(obj, "queries")):
        where = f"queries[{i}]"
        query = _object(entry, where, fields, required=("id", "partitions"))
        priority = _number(query.get("priority", DEFAULT_PRIORITY), f"{where}.priority")
        if _decimals(priority):
            raise InstanceError(f"{where}.priority", f"must be a whole number, not {priority}")
        members = tuple(
            _id(member, f"{where}.partitions[{j}]")
            for j, member in enumerate(_list(query["partitions"], f"{where}.partitions"))
        )
        found.append(FailedQuery(_id(query["id"], f"{where}.id"), int(priority), members))
    return tuple(found)


def _edges(obj: object) -> tuple[tuple[str, str], ...]:
    found = []
    for i, entry in enumerate(_list(obj, "edges")):
        pair = _list(entry, f"edges[{i}]")
        if len(pair) != 2:
            raise InstanceError(f"edges[{i}]", "must be a pair [upstream, downstream]")
        found.append((_id(pair[0], f"edges[{i}][0]"), _id(pair[1], f"edges[{i}][1]")))
    return tuple(found)


def _entries(obj: object, where: str, fields: tuple[str, ...]) -> list[Mapping[str, object]]:
    return [_object(entry, f"{where}[{i}]", fields, fields) for i, entry in enumerate(_list(obj, where))]


def _object(
    obj: object, where: str, fields: tuple[str, ...], required: tuple[str, ...]
) -> Mapping[str, object]:
    if not isinstance(obj, Mapping):
        raise InstanceError(where, f"must be an object, not {type(obj).__name__}")
    for name in required:
        if name not in obj:
            raise InstanceError(where, f"has no field {name!r}")
    for name in obj:
        if name not in fields:
            raise InstanceError(where, f"has unknown field {name!r}; known: {', '.join(fields)}")
    return obj


def _list(obj: object, where: str) -> Sequence[object]:
    if not isinstance(obj, list | tuple):
        raise InstanceError(where, f"must be a list, not {type(obj).__name__}")
    return obj


def _id(obj: object, where: str) -> str:
    if not isinstance(obj, str) or not obj:
        raise InstanceError(where, f"must be a non-empty string, not {obj!r}")
    return obj


def _number(obj: object, where: str) -> Decimal:
    if isinstance(obj, bool) or not isinstance(obj, int | float | Decimal):
        raise InstanceError(where, f"must be a number, not {obj!r}")
    if isinstance(obj, float) and not math.isfinite(obj):
        raise InstanceError(where, f"must be a finite number, not {obj}")
    # repr of a float is its shortest decimal: 0.1 means one tenth, not its binary neighbour
    number = Decimal(repr(obj)) if isinstance(obj, float) else Decimal(obj)
    if not number.is_finite():
        raise InstanceError(where, f"must be a finite number, not {obj}")
    if number < 0:
        raise InstanceError(where, f"must not be negative, but is {obj}")
    if number > MAX_TOTAL:
        raise InstanceError(where, f"must not exceed {MAX_TOTAL}")
    if _decimals(number) > MAX_DECIMALS:
        raise InstanceError(where, f"has more than {MAX_DECIMALS} decimals")
    return number


def _decimals(number: Decimal) -> int:
    if number == 0:
        return 0
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    assert isinstance(exponent, int)  # finite: checked by _number
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(0, -(exponent + trailing))


def _unique(ids: Sequence[str], where: str, entries: str = ".id") -> set[str]:
    seen = set(ids)
    if len(seen) < len(ids):
        i, name = next((i, name) for i, name in enumerate(ids) if name in ids[:i])
        raise InstanceError(f"{where}[{i}]{entries}", f"{name!r} is there twice")
    return seen


def _in_range(numbers: Sequence[int], where: str, field: str = "") -> None:
    for i, number in enumerate(numbers):
        if number < 0:
            raise InstanceError(f"{where}[{i}].{field}" if field else where, "must not be negative")
    if sum(numbers) > MAX_TOTAL:
        raise InstanceError(where, f"sum up to more than {MAX_TOTAL} units after scaling decimals")


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
