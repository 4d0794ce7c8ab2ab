"""Figures of the Kafka benchmark from what its reader saw; no broker."""

from __future__ import annotations

import pytest

from benchmarks import kafka, kafka_measure
from benchmarks.kafka_measure import Memory
from benchmarks.kafka_topics import Seen
from benchmarks.overhead_measure import Latency
from benchmarks.overhead_report import verdicts


def test_the_rate_is_that_of_the_steady_part() -> None:
    slow_start = [(float(t), 10 * t) for t in range(10)]
    steady = [(10 + t / 10, 100 + 100 * t) for t in range(100)]
    assert kafka_measure.rate(Seen([*slow_start, *steady]), 10_000) == pytest.approx(1000)
    assert kafka_measure.rate(Seen(steady[:2]), 10_000) is None


def test_latency_leaves_out_how_it_began_and_says_when_it_grew() -> None:
    steady = [(float(t), 9.0 if t < 20 else 0.5) for t in range(100)]
    found = kafka_measure.latency(Seen(delays=steady))
    assert found == Latency(0.5, 0.5, True)
    growing = kafka_measure.latency(Seen(delays=[(float(t), t / 5) for t in range(100)]))
    assert growing is not None
    assert not growing.kept_up
    assert kafka_measure.latency(Seen()) is None


def test_the_table_says_what_was_not_measured() -> None:
    runs = [
        kafka.Measured("reprise", 200.0, Latency(1.0, 2.0, True), Memory(300.0, 200.0), 10, 0),
        kafka.Measured("structured", 100.0, Latency(2.0, 3.0, False), None, 10, 3),
    ]
    assert kafka.ratios(runs) == {"throughput reprise / structured": 2.0, "latency reprise / structured": 0.5}
    rows = {line[0]: line[1:] for line in kafka.table(runs, 10, 5).rows}
    assert rows["Reprise"] == ("200", "2.00", "1.00", "2.00", "0.50", "300 + 200", "0")
    assert rows["Reprise, small limits"] == ("-", "-", "-", "-", "-", "-", "0")
    assert "(did not keep up)" in rows["Structured Streaming, as many rows a trigger"][2]
    assert sum("not measured" in line for line in verdicts(kafka.ratios(runs), "kafka")) == 1
