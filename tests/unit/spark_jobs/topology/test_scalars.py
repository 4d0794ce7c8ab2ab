"""What a name, a duration or a quantity is, and that nothing unknown passes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from reprise.spark_jobs.topology.scalars import (
    Bytes,
    ClassPath,
    Closed,
    Cpu,
    Duration,
    Location,
    MaybeNoBytes,
    MaybeNoDuration,
    Name,
    ObjectName,
    Parallelism,
    Priority,
    TopologyName,
    closest,
    given_twice,
    nearest,
)


class Part(Closed):
    not_taken: ClassVar[Mapping[str, str]] = {"replicas": "nodes are counted once, in `nodes.count`"}

    every_batches: int = 1
    source: str = Field("", alias="from")


def taken(kind: Any, value: Any) -> Any:
    return TypeAdapter(kind).validate_python(value)


def refusal(kind: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        taken(kind, value)
    return str(refused.value)


@given(st.lists(st.integers(0, 5)))
def test_the_first_that_is_there_twice_is_the_first_to_have_been_there(values: list[int]) -> None:
    twice = [v for v in values if values.count(v) > 1]
    assert given_twice(values) == (twice[0] if twice else None)


def test_the_word_that_was_meant_is_named_and_else_all_that_are_known() -> None:
    assert closest("parallelsim", ["parallelism", "priority"]) == "parallelism"
    assert closest("x", ["parallelism"]) is None
    assert nearest("prioritty", ["parallelism", "priority"]) == "; did you mean 'priority'?"
    assert nearest("x", ["b", "a"]) == "; known: a, b"
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (Duration, "1m30s", "1m30s"),
        (MaybeNoDuration, "0s", "0s"),
        (Cpu, "500m", "500m"),
        (Cpu, 2, "2"),
        (Bytes, "64Mi", "64Mi"),
        (MaybeNoBytes, 0, "0"),
    ],
)
def test_a_quantity_stays_as_it_was_written(kind: Any, value: Any, found: str) -> None:
    assert taken(kind, value) == found


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Duration, "0s", "'0s' must be more than 0"),
        (Duration, 5, "is not a duration"),
        (Cpu, 0.5, "0.5 is a number with a point: write a number with a unit, e.g. 500m for half a core"),
        (Duration, 5.5, "5.5 is a number with a point: write a number with a unit, e.g. 5500ms"),
        (Cpu, True, "True is no text"),
        (Cpu, None, "None is no text"),
        (Cpu, "0", "'0' must be more than 0"),
        (Cpu, -1, "is not a quantity"),
        (Bytes, ["64Mi"], "['64Mi'] is no text: write a number with a unit, e.g. 1536Mi"),
        (Bytes, "64m", "'64m' counts parts of a byte: write 64Mi, perhaps"),
        (MaybeNoBytes, "64000m", "'64000m' counts parts of a byte"),
        (Bytes, "0.0001k", "'0.0001k' counts parts of a byte"),
        (Bytes, "1" * 33, "is not a quantity of at most 32 characters"),
        (Duration, "1" * 32 + "s", "is not a duration of at most 32 characters"),
        (MaybeNoBytes, "-1", "is not a quantity"),
        (MaybeNoDuration, "never", "is not a duration"),
    ],
)
def test_what_two_readers_could_take_differently_is_refused(kind: Any, value: Any, reason: str) -> None:
    assert reason in refusal(kind, value)


@pytest.mark.parametrize("kind", [Cpu, Bytes, MaybeNoBytes, Duration, MaybeNoDuration])
def test_what_the_schema_of_the_resource_refuses_is_refused(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    for text in (
        "64m",
        "64Mi",
        "5n",
        "1e3",
        "1e333",
        "0",
        "0.5",
        "0.5k",
        "1h",
        "0s",
        "9" * 32,
        "9" * 33,
        "9" * 32 + "s",
        "1 ",
    ):
        if len(text) > schema["maxLength"] or not re.search(schema["pattern"], text):
            refusal(kind, text)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Name, ["a", "a-1", "9", "n" * 63], ["", "A", "-a", "a-", "a.b", "a_b", "n" * 64]),
        (TopologyName, ["t" * 40], ["t" * 41, "a.b"]),
        (ObjectName, ["a.b-c", "o" * 253], ["o" * 254, ".a", "A"]),
        (ClassPath, ["m:C", "a.b_c:_D"], ["m.C", "m:", ":C", "m:C.D", "1m:C"]),
        (Priority, [1, 10], [0, 11, 1.0, "1", True]),
        (Parallelism, [1, 1024], [0, 1025, "2"]),
    ],
)
def test_names_and_numbers_have_limits(kind: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert taken(kind, value) == value
    for value in bad:
        refusal(kind, value)


def test_a_location_has_no_password() -> None:
    assert taken(Location, "s3://bucket/a:b@c") == "s3://bucket/a:b@c"
    for location in ("ftp://me:hunter2@store", "https://store/x?SIG=hunter2"):
        with pytest.raises(ValidationError) as refused:
            taken(Location, location)
        (error,) = refused.value.errors()
        assert "holds credentials" in error["msg"] and "hunter2" not in error["msg"]


def test_an_unknown_field_is_refused_with_the_one_that_was_meant() -> None:
    assert Part.model_validate({"everyBatches": 3, "from": "s"}) == Part(**{"everyBatches": 3, "from": "s"})
    with pytest.raises(ValidationError) as refused:
        Part.model_validate({"everyBatch": 3})
    (error,) = refused.value.errors()
    assert error["type"] == "unknown_field"
    assert error["ctx"] == {
        "reason": "unknown field 'everyBatch'; did you mean 'everyBatches'?",
        "field": "everyBatch",
        "meant": "everyBatches",
    }


def test_pythons_names_of_fields_are_unknown_too() -> None:
    with pytest.raises(ValidationError, match="unknown field 'every_batches'"):
        Part.model_validate({"every_batches": 3})


def test_a_field_that_is_looked_for_here_and_not_taken_says_why() -> None:
    with pytest.raises(ValidationError, match="is not for a topology to say: nodes are counted once"):
        Part.model_validate({"replicas": 3})


def test_values_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Part().every_batches = 2  # type: ignore[misc]
