"""Checks that library operators make of their `with:`, so that every refusal names the parameter; and for which classes a
kind that follows from it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import FARTHEST
from reprise.spark_jobs.topology.quantity import parse_duration_us
from reprise.spark_jobs.topology.scalars import given_twice, nearest


def names(
    value: Any, field: str, least: int = 0, what: str = "column name", taken: Collection[str] = ()
) -> tuple[str, ...]:
    """A list of column names, or of `what` it is (one may stand alone).  SpecError unless there are at least `least`, all
    different, and other than those `taken`."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(i, str) and i for i in items):
        raise SpecError(field, f"expected {what}s as text, found {value!r}")
    if len(items) < least:
        raise SpecError(field, f"needs at least {least} {what}{'s' if least > 1 else ''}")
    if (twice := given_twice(items)) is not None:
        raise SpecError(field, f"{what} {twice!r} is there twice")
    if found := [name for name in items if name in taken]:
        raise SpecError(field, f"{found[0]!r} is the name of another output column: rename it in a Map")
    return tuple(items)


def steps_as(operator: Operator, cls: type[Operator]) -> bool:
    """Whether it steps as `cls` does, so that what this says of its kind holds of it.  A class of a user's that inherits all
    but `step` may remember what it likes, and says its kind itself."""
    return type(operator).step is cls.step


def duration_us(value: Any, field: str, least: int = 1) -> int:
    """A duration in microseconds.  SpecError unless it is at least `least` microseconds."""
    try:
        us = parse_duration_us(str(value))
    except ValueError as error:
        raise SpecError(field, str(error)) from None
    if us < least:
        raise SpecError(field, f"{value!r} is too short")
    if us >= FARTHEST:
        raise SpecError(field, f"{value!r} is too long: more than 36,000 years")
    return us


def choice(value: Any, field: str, known: Sequence[str]) -> str:
    """One of `known`.  SpecError proposes the nearest."""
    if value not in known:
        raise SpecError(field, f"{value!r} is not one of its values{nearest(str(value), list(known))}")
    return str(value)


def fail_or(value: Any, field: str, gives_up: Mapping[str, Mapping[str, str]]) -> str:
    """`fail`, or one of the values with which this parameter gives something up (`gives_up` of a source or a sink)."""
    return choice(value, field, ("fail", *gives_up[field]))


def whole(value: Any, field: str, least: int = 1) -> int:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SpecError(field, f"expected an integer of at least {least}, found {value!r}")
    return value


def truth(value: Any, field: str) -> bool:
    """True or false; no word in quotes."""
    if not isinstance(value, bool):
        raise SpecError(field, f"expected true or false, found {value!r}")
    return value
