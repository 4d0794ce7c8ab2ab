"""A run ends when its streams do, and when nothing that is left can go on; not before, and not never."""

from __future__ import annotations

from dataclasses import replace

from reprise.algorithms.failure import Failure
from reprise.controller.local.run.config import Outcome
from reprise.controller.local.run.ending import REST_S, STUCK_S, Ending
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Incident, Kind, Phase, Progress
from reprise.spark_jobs.topology import expand, load_text

TOPOLOGY = expand(
    load_text("""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two}
spec:
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource", with: {rate: 10, tags: 10}}
  operators:
    - {name: left, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: tweets}], output: {}}
    - {name: right, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: tweets}], output: {}}
""")
)
WELL = Progress("1", horizon=9, positions={"tweets.0": 9, "left.0": 8, "right.0": 7})
WHY = Failure.parse("poison: operator tweets, partition tweets.0, batch 8: ValueError: no")
LOST = replace(WELL, positions={"left.0": 7, "right.0": 7}, failed={"tweets.0": WHY})
INCIDENT = Incident("inc-1", Kind.CORRELATED, Phase.WAITING, 0.0, 5, 2, 2, 0.0)


def seen(
    progress: Progress | None, *, connected: bool = True, incident: Incident | None = None
) -> Observation:
    return Observation(0.0, connected, progress=progress, incident=incident)


def test_a_stream_that_has_ended_is_over_when_no_incident_is_open() -> None:
    ending, done = Ending(TOPOLOGY), replace(WELL, done=True)
    assert ending.look(seen(None), 0.0) is None
    assert ending.look(seen(WELL), 1.0) is None
    assert ending.look(seen(done, incident=INCIDENT), 2.0) is None
    assert ending.look(seen(done, connected=False), 3.0) is None
    assert ending.look(seen(done), 4.0) == (Outcome.DONE, "")
    poisoned = replace(done, failed={"left.0": Failure.parse("poison: x")})
    assert ending.look(seen(poisoned), 5.0) == (Outcome.POISONED, "left.0: poison: x")


def test_a_run_stops_when_every_query_needs_what_was_set_aside_and_what_was_under_way_has_come_out() -> None:
    ending = Ending(TOPOLOGY)
    assert ending.look(seen(LOST), 0.0) is None
    moved = replace(LOST, positions={"left.0": 7, "right.0": 8})
    assert ending.look(seen(moved, incident=INCIDENT), REST_S) is None  # one was still under way
    assert ending.look(seen(moved), 2 * REST_S - 0.1) is None
    assert ending.look(seen(moved, connected=False), 2 * REST_S) is None  # nobody knows
    assert ending.look(seen(moved, incident=INCIDENT), 2 * REST_S) == (
        Outcome.POISONED,
        f"every query needs what was set aside: tweets.0: {WHY}",
    )


def test_a_run_goes_on_while_one_query_can_and_while_what_was_lost_may_come_back() -> None:
    ending = Ending(TOPOLOGY)
    one = replace(WELL, positions={"tweets.0": 9, "right.0": 7}, failed={"left.0": WHY})
    nodes = replace(WELL, positions={}, failed=dict.fromkeys(TOPOLOGY.partitions, Failure.parse("node lost")))
    for now in range(0, 600, 10):
        assert ending.look(seen(one if now < 300 else nodes), float(now)) is None


def test_jobs_that_fail_alike_for_a_minute_end_the_run_with_what_was_said() -> None:
    ending, stuck = Ending(TOPOLOGY), replace(WELL, stuck="9 jobs in a row have failed: node n2: no")
    assert ending.look(seen(stuck), 0.0) is None
    assert ending.look(seen(WELL), STUCK_S) is None  # one went well
    assert ending.look(seen(stuck), 2 * STUCK_S) is None
    assert ending.look(seen(stuck), 3 * STUCK_S - 1) is None
    assert ending.look(seen(stuck), 3 * STUCK_S) == (Outcome.FAILED, stuck.stuck)
