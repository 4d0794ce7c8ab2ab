"""Figures of the Kafka benchmark from what its reader saw; no broker."""

from __future__ import annotations

import json

import pytest

from benchmarks import kafka, kafka_measure, kafka_reprise
from benchmarks.kafka_measure import Memory
from benchmarks.kafka_topics import COLUMNS, Seen, row, until
from benchmarks.overhead_measure import Latency
from benchmarks.overhead_report import verdicts
from reprise.spark_jobs.topology import expand
from reprise.spark_jobs.topology.resource import Mode


def test_the_rate_is_that_of_the_steady_part() -> None:
    slow_start = [(float(t), 10 * t) for t in range(10)]
    steady = [(10 + t / 10, 100 + 100 * t) for t in range(100)]
    assert kafka_measure.rate(Seen([*slow_start, *steady]), 10_000) == pytest.approx(1000)
    assert kafka_measure.rate(Seen(steady[:2]), 10_000) is None


def test_output_in_few_pieces_is_measured_as_a_whole() -> None:
    assert kafka_measure.whole_rate(Seen([(0.0, 100), (4.0, 1100)]), 1100) == 250
    assert kafka_measure.whole_rate(Seen([(0.0, 100)]), 1100) is None
    assert kafka_measure.whole_rate(Seen([(0.0, 100), (4.0, 900)]), 1100) is None


def test_latency_leaves_out_how_it_began_and_says_when_it_grew() -> None:
    steady = [(float(t), 9.0 if t < 20 else 0.5) for t in range(100)]
    found = kafka_measure.latency(Seen(delays=steady))
    assert found == Latency(0.5, 0.5, True)
    growing = kafka_measure.latency(Seen(delays=[(float(t), t / 5) for t in range(100)]))
    assert growing is not None
    assert not growing.kept_up
    assert kafka_measure.latency(Seen()) is None


def test_rows_are_what_the_topology_reads() -> None:
    assert set(json.loads(row(7))) == set(COLUMNS)
    assert until("t", 10, 4) == {"t/0": 3, "t/1": 3, "t/2": 2, "t/3": 2}


@pytest.mark.parametrize("mode", kafka.LIMITS)
def test_the_topology_moves_no_row_between_partitions(mode: str) -> None:
    found = kafka_reprise.pipe(
        "127.0.0.1:1", "a", "b", rows=100, logs=4, nodes=2, interval="1us", memory_mb=512, limits=kafka.LIMITS[mode]
    )  # fmt: skip
    assert len(expand(found).partitions) == 4
    assert found.operators[0].inputs[0].grouping.mode is Mode.FORWARD


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
