"""Rows that come from Kafka and go to Kafka, in the simulated world: brokers are away while nodes and drivers are lost, and
each offset is in one batch, which has the same offsets and rows whenever it is read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.simulated_world.faults import Fault, drawn
from reprise.controller.simulated_world.schedule import FIRST_S, LAST_S, Schedule, run
from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.kafka import reader
from reprise.spark_jobs.kafka.source import KafkaSource
from tests.support.seeds import seeds
from tests.support.world_kafka import KAFKA, KafkaCluster, with_brokers
from tests.support.world_kafka_sources import ENDS, SOURCE
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import holds

pytestmark = pytest.mark.long
ITS = "in.0"


@pytest.fixture(autouse=True)
def clusters() -> Iterator[list[KafkaCluster]]:
    with with_brokers(its_node_dies=at_node_of(ITS)) as seen:
        yield seen


FAULTS = (
    Fault(6.0, "brokers-away", 0, 8.0),
    Fault(7.0, "its-node-dies", 1, 60.0),
    Fault(15.0, "driver-dies", 0),
)


def from_kafka(seed: int, more: Sequence[Fault] = FAULTS) -> Schedule:
    return Schedule(seed, tuple(more), source=SOURCE, sink=KAFKA)


@pytest.mark.wide
def test_a_node_is_lost_while_brokers_are_away_and_the_driver_is_lost_later(
    clusters: list[KafkaCluster],
) -> None:
    outcome = run(from_kafka(3))
    assert outcome.violation is None
    assert outcome.acted == tuple(fault.kind for fault in FAULTS)
    (cluster,) = clusters
    assert cluster.brokers.held, "nobody had to wait"
    assert {log for span in cluster.spans.values() for log in span.logs} == ENDS.keys()
    assert len(cluster.brokers.messages) > 60


@seeds([1], [], 300)
def test_nothing_breaks_where_brokers_fail_beside_others(seed: int) -> None:
    dice = random.Random(f"brokers of {seed}")
    more = [
        Fault(round(dice.uniform(FIRST_S, LAST_S), 2), kind, 0, round(dice.uniform(0.5, 10.0), 1))
        for kind in ("brokers-away", "brokers-unsure", "brokers-unsure")
    ]
    lost = [drawn(dice, "node-dies", FIRST_S, LAST_S), drawn(dice, "driver-dies", FIRST_S, LAST_S)]
    plain = Schedule.of(seed).plain()
    every = sorted((*plain.faults, *more, *lost), key=lambda fault: fault.at)
    way = random.Random(f"way of {seed}").choice(("checkpoint", "active-standby", "passive-standby"))
    made = replace(from_kafka(seed, every), coordinators=plain.coordinators, cpu=plain.cpu)
    holds(replace(made, availability=f"checkpoint,{way},checkpoint"))


def test_a_range_that_counts_as_read_before_all_of_it_has_come_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader._Log, "complete", lambda log, _end: bool(log.kept) or log.ends_at >= 0)
    violation = run(from_kafka(3)).violation
    assert violation is not None and violation.invariant == "E1"


def test_offsets_that_are_in_two_batches_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = KafkaSource.plan

    def overlaps(source: KafkaSource, place: Place, batch: int, before: Range) -> Range | None:
        back = {log: (begin, max(begin, end - (batch == 7))) for log, (begin, end) in before.logs.items()}
        return plan(source, place, batch, before._replace(logs=back))

    monkeypatch.setattr(KafkaSource, "plan", overlaps)
    violation = run(from_kafka(3, ())).violation
    assert (
        violation is not None and violation.invariant == "E1" and "the one before ends at" in str(violation)
    )


def test_a_batch_that_has_other_offsets_when_it_is_read_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, known = KafkaSource.read, set[tuple[str, int]]()

    def shrinks(source: KafkaSource, place: Place, batch: int, span: Range) -> Any:
        again = (place.partition, batch) in known
        known.add((place.partition, batch))
        less = {log: (begin, max(begin, end - again)) for log, (begin, end) in span.logs.items()}
        return read(source, place, batch, span._replace(logs=less))

    monkeypatch.setattr(KafkaSource, "read", shrinks)
    violation = run(from_kafka(3)).violation
    assert violation is not None and violation.invariant == "E1" and "in place of" in str(violation)
