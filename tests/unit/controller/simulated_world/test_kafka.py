"""Output that goes to Kafka, in the simulated world: brokers are away, or lose answers, while nodes, drivers and
coordinators are lost, and each row is committed once, as without a failure, for whatever way its operator comes back in.

That brokers keep the promises of the model that is used here, tests with a real one show (`tests/kafka`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reprise.controller.simulated_world import faults, kinds
from reprise.controller.simulated_world.faults import Fault, drawn
from reprise.controller.simulated_world.schedule import FIRST_S, LAST_S, Outcome, Schedule, run
from reprise.spark_jobs.kafka.sink import KafkaSink
from reprise.spark_jobs.kafka.transactions import Marker, Session
from reprise.spark_jobs.node import standbys
from tests.support.seeds import seeds
from tests.support.world_kafka import KAFKA, KafkaCluster, with_brokers
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import fed_again, holds, promotions

pytestmark = pytest.mark.long
ITS = "count.0"
WAYS = ("checkpoint", "active-standby", "passive-standby", "upstream-backup")


@pytest.fixture(autouse=True)
def clusters() -> Iterator[list[KafkaCluster]]:
    with with_brokers() as seen:
        yield seen


def loses_its_node(way: str, *more: Fault) -> Schedule:
    lost = Fault(13.0, "its-node-dies", 1, 60.0)
    availability = f"checkpoint,{way},checkpoint"
    kinds = "repeatable,convergent,repeatable"
    return Schedule(3, (*more, lost), availability=availability, kinds=kinds, every=1, sink=KAFKA)


def ran(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.setattr(faults, "KINDS", {**faults.KINDS, "its-node-dies": at_node_of(ITS)})
    return run(schedule)


@pytest.mark.parametrize("way", WAYS)
def test_nodes_are_lost_while_brokers_are_away(
    way: str, monkeypatch: pytest.MonkeyPatch, clusters: list[KafkaCluster]
) -> None:
    """What the sink has taken and nobody has committed is lost with its node; what is committed is not written again."""
    away = Fault(11.0, "brokers-away", 0, 24.0)
    with promotions() as promoted, fed_again() as fed:
        outcome = ran(loses_its_node(way, away), monkeypatch)
    assert outcome.violation is None
    assert outcome.acted == ("brokers-away", "its-node-dies")
    assert (ITS in promoted) is way.endswith("standby")
    assert (ITS in fed) is (way == "upstream-backup")
    (cluster,) = clusters
    assert cluster.brokers.refused, "nobody had to give up"
    assert len(cluster.brokers.messages) > 40


def waits_for_its_standby() -> Schedule:
    """What `count` gives is drawn, so it leaves when its passive standby has it, and is committed when a checkpoint covers
    it.  The standby is sent something every few batches, and the node is lost while some of them wait."""
    away, lost = Fault(11.0, "brokers-away", 0, 18.0), Fault(15.2, "its-node-dies", 1, 60.0)
    plain = replace(loses_its_node("passive-standby"), every=None)
    return replace(plain, faults=(away, lost), kinds=kinds.ARBITRARY)


@pytest.mark.wide
def test_what_waits_for_its_standby_is_committed_once_and_is_of_one_try(
    monkeypatch: pytest.MonkeyPatch, clusters: list[KafkaCluster]
) -> None:
    """What the sink had taken and not committed is given to the sink of the standby, as it was."""
    with promotions() as promoted:
        outcome = ran(waits_for_its_standby(), monkeypatch)
    assert outcome.violation is None
    assert outcome.acted == ("brokers-away", "its-node-dies")
    assert ITS in promoted
    (cluster,) = clusters
    assert cluster.brokers.refused, "nobody had to give up"
    assert len(cluster.brokers.messages) > 40


@pytest.mark.wide
def test_what_does_not_wait_for_its_standby_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers have a batch that the standby gives anew: what is committed is of another try than what they show."""
    monkeypatch.setattr(standbys, "let_wait", lambda *_: None)
    violation = ran(waits_for_its_standby(), monkeypatch).violation
    assert violation is not None and "different tries" in str(violation)


@pytest.mark.parametrize("way", WAYS)
@seeds([1], range(2, 6), 150)
def test_nothing_breaks_where_brokers_fail_beside_others(
    way: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"brokers of {seed}")
    more = [
        Fault(round(dice.uniform(FIRST_S, LAST_S), 2), kind, 0, round(dice.uniform(0.5, 10.0), 1))
        for kind in ("brokers-away", "brokers-unsure", "brokers-unsure")
    ]
    lost = [drawn(dice, "node-dies", FIRST_S, LAST_S) for _ in range(2)]
    plain = replace(Schedule.of(seed).plain(), availability=f"checkpoint,{way},checkpoint", sink=KAFKA)
    every = sorted((*plain.faults, *more, *lost), key=lambda fault: fault.at)
    holds(replace(plain, faults=tuple(every), kinds="repeatable,convergent,repeatable"))


def test_a_sink_that_forgets_what_it_has_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_claim", lambda session, producer, found: Marker(0, session._owner))
    early = Fault(10.0, "its-node-dies", 1, 60.0)  # some batches after a checkpoint
    violation = ran(replace(loses_its_node("checkpoint"), faults=(early,)), monkeypatch).violation
    assert violation is not None and violation.invariant == "E1" and "committed twice" in str(violation)


@pytest.mark.wide
def test_a_batch_that_counts_as_shown_before_it_is_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = KafkaSink.write

    def boasts(sink: KafkaSink, batch: int, table: object) -> None:
        write(sink, batch, table)  # type: ignore[arg-type]
        sink.visible = batch

    monkeypatch.setattr(KafkaSink, "write", boasts)
    away = Fault(9.0, "brokers-away", 0, 12.0)
    assert ran(loses_its_node("checkpoint", away), monkeypatch).violation is not None
