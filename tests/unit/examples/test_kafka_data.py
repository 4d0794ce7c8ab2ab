"""What the Kafka demo expects, against a plain loop over the flights; and its verdict."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo import kafka_data as data
from examples.demo.flights_kafka import EXAMPLES, show
from examples.demo.kafka_data import Found
from reprise.controller.local.run.config import Outcome, RunResult, load

ROWS = 2000


@pytest.mark.parametrize("output", data.OUTPUTS, ids=lambda o: o.topic)
def test_what_must_come_out_is_a_group_by_over_all_flights(output: data.Output) -> None:
    frame = data.flights(ROWS)
    flights: Counter[tuple[object, ...]] = Counter()
    miles: Counter[tuple[object, ...]] = Counter()
    for row in frame.to_dicts():
        key = (*(row[name] for name in output.keys), row["time"] // output.size_us * output.size_us)
        flights[key] += 1
        miles[key] += row["distance"]
    found = data.expected(frame, output)
    assert {key: (n, m) for key, (n, _, m) in found.items()} == {k: (flights[k], miles[k]) for k in flights}


def test_the_example_writes_the_topics_that_are_checked() -> None:
    resource = load(EXAMPLES / "flights-kafka.yaml")
    sinks = {o.name: o.output.sink.parameters for o in resource.operators if o.output and o.output.sink}
    assert {name: (s["topic"], tuple(s["key"])) for name, s in sinks.items()} == {
        o.topic: (o.topic, o.keys) for o in data.OUTPUTS
    }


@pytest.mark.parametrize(
    ("outcome", "found", "good"),
    [
        (Outcome.DONE, [Found("t", 5, 0, 0, 0)], True),
        (Outcome.DONE, [Found("t", 5, 1, 0, 0)], False),
        (Outcome.DONE, [Found("t", 5, 0, 1, 0)], False),
        (Outcome.DONE, [Found("t", 5, 0, 0, 1)], False),
        (Outcome.DONE, [Found("t", 0, 0, 0, 0)], False),
        (Outcome.DONE, [], False),
        (Outcome.TIMEOUT, [Found("t", 5, 0, 0, 0)], False),
    ],
)
def test_the_verdict_is_good_only_when_nothing_is_missing_or_twice(
    outcome: Outcome, found: list[Found], good: bool
) -> None:
    console = Console(file=io.StringIO())
    assert show(console, RunResult(outcome, Path("out"), {}), found) is good
    assert ("PASSED" if good else "FAILED") in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_without_the_kill_is_no_success() -> None:
    console = Console(file=io.StringIO())
    good = Found("t", wanted=3, missing=0, twice=0, different=0)
    early = RunResult(Outcome.DONE, Path("out"), {"unfired": ["kill n1 n2", "add 2"]})
    assert show(console, early, [good]) is False
    assert "did not happen: kill n1 n2" in console.file.getvalue()  # type: ignore[attr-defined]
    late = RunResult(Outcome.DONE, Path("out"), {"unfired": ["add 2"]})
    assert show(console, late, [good]) is True
