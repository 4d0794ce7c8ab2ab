"""What else the Kafka sink does, in the simulated world: marks of batches that may lack rows, upserts and dead letters,
while brokers are away, or lose answers, and nodes, drivers and coordinators are lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from reprise.controller.simulated_world import kinds
from reprise.controller.simulated_world.faults import Fault, drawn
from reprise.controller.simulated_world.schedule import FIRST_S, LAST_S, Schedule, run
from reprise.spark_jobs.kafka import sink as module
from reprise.spark_jobs.kafka.sink import KafkaSink
from reprise.spark_jobs.kafka.transactions import Session
from tests.support.seeds import soak_numbers
from tests.support.world_kafka import KafkaCluster, kafka, with_brokers
from tests.support.world_kafka_readers import GAPS, LETTERS
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import holds

pytestmark = pytest.mark.long
ITS = "count.0"
QUERY = 1
"""The same among the queries, by name."""
ALL = ("gaps", "skips", "upserts", "letters")
SINKS = {
    "gaps": kafka(f"gaps: {GAPS}"),
    "upserts": kafka("mode: upsert, key: [key], delete: gone"),
    "letters": kafka(
        f'key: [key], on_too_large: dead-letter, dead_letters: {LETTERS}, config: {{"message.max.bytes": 1000}}'
    ),
}
TOTALS = 'class: "tests.support.world_kafka_readers:Totals"\n      with: '
KINDS = {"upserts": f"{TOTALS}{{gone: 4}}", "letters": f"{TOTALS}{{large: 3}}"}
"""By what the sink does, the operator whose output goes there; batches are skipped of `convergent` ones."""


@pytest.fixture(autouse=True)
def clusters() -> Iterator[list[KafkaCluster]]:
    # not by the fixture, which would put back what tests replace when this has ended
    with pytest.MonkeyPatch.context() as patch, with_brokers(its_node_dies=at_node_of(ITS)) as seen:
        patch.setattr(kinds, "CLASSES", {**kinds.CLASSES, **KINDS})
        yield seen


def made(what: str, seed: int, *more: Fault) -> Schedule:
    """Where batches are marked `count` skips what it has missed, or a person asks for that."""
    if what == "skips":
        return Schedule(seed, more, windowed=True, sink=SINKS["gaps"])
    kind, way = ("convergent", "amnesia") if what == "gaps" else (what, "checkpoint")
    availability = f"checkpoint,{way},checkpoint"
    return Schedule(
        seed, more, availability=availability, kinds=f"repeatable,{kind},repeatable", sink=SINKS[what]
    )


def loses_its_node(what: str, earlier_s: float = 0.0) -> Schedule:
    """While brokers are away, after half of the stream."""
    at, batches = (13.0, 34) if what == "skips" else (7.6, 24)
    at -= earlier_s
    away, lost = Fault(at - 1.0, "brokers-away", 0, 8.0), Fault(at, "its-node-dies", 1, 60.0)
    wish = [Fault(at + 1.5, "query-skipped", QUERY)] if what == "skips" else []
    return replace(made(what, 3, away, lost, *wish), batches=batches)


@pytest.mark.parametrize("what", ALL)
def test_its_node_is_lost_while_brokers_are_away(what: str, clusters: list[KafkaCluster]) -> None:
    outcome = run(loses_its_node(what))
    assert outcome.violation is None
    assert outcome.acted[:2] == ("brokers-away", "its-node-dies")
    (cluster,) = clusters
    assert cluster.brokers.held, "nobody had to wait"
    readers = cluster.readers
    marked = {mark for mark in outcome.marks if mark.startswith("count/0/")}
    assert bool(marked) is (what in ("gaps", "skips"))
    assert len(readers.marks) == sum(mark.startswith("count/") for mark in outcome.marks)
    assert bool(readers.letters) is (what == "letters")
    assert bool(readers.deletions) is (what == "upserts")


@pytest.mark.parametrize(
    ("what", "seed"),
    [("skips", 1), *(pytest.param(w, s, marks=pytest.mark.soak) for w, s in product(ALL, soak_numbers(150)))],
)  # fmt: skip
def test_nothing_breaks_where_brokers_fail_beside_others(what: str, seed: int) -> None:
    dice = random.Random(f"brokers of {seed}")
    more = [
        Fault(round(dice.uniform(FIRST_S, LAST_S), 2), kind, 0, round(dice.uniform(0.5, 10.0), 1))
        for kind in ("brokers-away", "brokers-unsure", "brokers-unsure")
    ]
    lost = [drawn(dice, "node-dies", FIRST_S, LAST_S) for _ in range(2)]
    plain = Schedule.of(seed).plain()
    every = sorted((*plain.faults, *more, *lost), key=lambda fault: fault.at)
    schedule = replace(made(what, seed, *every), coordinators=plain.coordinators, cpu=plain.cpu)
    holds(schedule.with_wishes() if what == "skips" else schedule)


def is_found(said: str) -> bool:
    """Whether a wrong mark is seen in one of a few runs: it matters which rows are lost, and where the sink stands then."""
    found = (run(loses_its_node("gaps", earlier_s)).violation for earlier_s in (0.0, 0.3, 0.6, 0.9, 1.2))
    return any(v is not None and v.invariant == "H3" and said in str(v) for v in found)


def claims(sink: KafkaSink, batch: int) -> None:
    sink._gaps.add(batch)


def forgets(_sink: KafkaSink, _batch: int) -> None: ...


@pytest.mark.parametrize(
    ("mark", "said"), [(claims, "may lack rows, and is not marked yet"), (forgets, "in place of")]
)
def test_rows_that_are_committed_before_their_gap_is_marked_are_found(
    mark: Callable[[KafkaSink, int], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaSink, "mark", mark)
    assert is_found(said)


def test_a_batch_that_is_marked_by_another_key_the_second_time_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a compacted topic would have two marks of it."""
    send, sent = Session._send, list[bytes]()

    def numbered(session: Session, producer: Any, topic: str, value: Any, key: Any, *more: Any) -> None:
        if topic == GAPS:
            key += b"" if not sent else b"/%d" % len(sent)
            sent.append(key)
        send(session, producer, topic, value, key, *more)

    monkeypatch.setattr(Session, "_send", numbered)
    assert is_found("is marked by")


def test_an_upsert_that_is_not_the_last_of_its_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    upserts = module.upserts
    monkeypatch.setattr(module, "upserts", lambda found, deleted: upserts(found[::-1], deleted[::-1])[::-1])
    violation = run(loses_its_node("upserts")).violation
    assert violation is not None and violation.invariant == "E1" and "in place of" in str(violation)


def test_upserts_that_are_committed_in_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is there once, and the values that stay are old ones."""
    write = Session.write
    monkeypatch.setattr(Session, "write", lambda session, batches: write(session, batches[::-1]))
    violation = run(loses_its_node("upserts")).violation
    assert violation is not None and violation.invariant == "E1" and "was committed after" in str(violation)


def test_letters_that_are_sent_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    produce = Session._produce

    def twice(session: Session, producer: Any, written: Any) -> None:
        produce(session, producer, replace(written, letters=[*written.letters, *written.letters]))

    monkeypatch.setattr(Session, "_produce", twice)
    violation = run(loses_its_node("letters")).violation
    assert violation is not None and violation.invariant == "E1" and "count-letters" in str(violation)
