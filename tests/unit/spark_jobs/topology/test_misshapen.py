"""What is told of a document beside what is wrong with its shape, and what is not, as it may only follow from that."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.misshapen import beside_its_shape

SOURCE = {"name": "tweets", "class": "reprise.sources:HashtagSource", "with": {"rate": 10}}
COUNT = {
    "name": "count",
    "class": "reprise.operators:KeyedCount",
    "with": {"keys": ["tag"]},
    "inputs": [{"from": "tweets"}],
}
PLACE = "spec.operators[count]"


def told(*operators: Any, wrong: tuple[str, ...] = (), source: Any = SOURCE) -> list[str]:
    """The fields that are told; `wrong`: those whose shape is wrong."""
    document = {"spec": {"sources": [source], "operators": list(operators)}}
    return [error.field for error in beside_its_shape(document, [SpecError(field, "so") for field in wrong])]


def test_of_what_is_right_nothing_is_told() -> None:
    assert told(COUNT) == []


def test_inputs_classes_parameters_and_sinks_are_told() -> None:
    sink = {"sink": {"class": "nowhere:Sink"}}
    count = {
        **COUNT,
        "with": {"key": ["tag"]},
        "inputs": [{"from": "tweets"}, {"from": "twets"}],
        "output": sink,
    }
    assert told(
        count, source={**SOURCE, "class": "reprise.sources:Hashtags"}, wrong=(f"{PLACE}.paralelism",)
    ) == [
        "spec.sources[tweets].class",
        f"{PLACE}.inputs[1].from",
        f"{PLACE}.with.key",
        f"{PLACE}.output.sink.class",
    ]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"with": 5}, ()),
        ({"with": {"key": 5}}, (f"{PLACE}.with.key",)),  # its shape is told already
        ({"with": {"keys": 5}, "class": 7}, (f"{PLACE}.class",)),
        ({"inputs": "twets"}, (f"{PLACE}.inputs",)),
        ({"inputs": [{"from": 5}, "twets"]}, ()),
        ({"output": {"sink": "nowhere:Sink"}}, ()),
    ],
)
def test_what_cannot_be_read_is_passed_over(changes: dict[str, Any], wrong: tuple[str, ...]) -> None:
    assert told({**COUNT, **changes}, wrong=wrong) == []


def test_parameters_whose_name_is_mistyped_are_not_missed() -> None:
    renamed = {"wiht" if key == "with" else key: value for key, value in COUNT.items()}
    assert told(renamed) == []
    assert told({key: value for key, value in COUNT.items() if key != "with"}) == [f"{PLACE}.with.keys"]


@pytest.mark.parametrize("other", [{"nam": "twets"}, {"name": 7}, 7])
def test_where_a_name_cannot_be_read_no_input_is_missed(other: Any) -> None:
    """It may be the one that is meant."""
    assert told({**COUNT, "inputs": [{"from": "twets"}]}, other) == []


def test_of_two_with_one_name_neither_is_told_of() -> None:
    """It could not be said which of them is meant, nor in which line it is."""
    assert told({**COUNT, "with": {}}, COUNT) == []


@pytest.mark.parametrize(
    "document", [None, 7, [], {"spec": 7}, {"spec": {"sources": 7, "operators": [None]}}]
)
def test_whatever_a_document_is_nothing_else_is_raised(document: Any) -> None:
    assert list(beside_its_shape(document, [])) == []
