"""What observation adds to the record of an open incident, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

from reprise.scheduler import Incident, Kind, Phase, Poison, Policy, QueryTimeline
from reprise.scheduler.incident import batches_in
from reprise.scheduler.observe import observe
from reprise.scheduler.view import look
from tests.support.recovery_simulator import World, diamond


def test_a_query_of_the_incident_that_is_poisoned_is_down_again_and_no_other_one_is_added() -> None:
    w = World(diamond(3, 50), Policy(nodes_wanted=4)).started(4)
    back = QueryTimeline(lost_at=w.now - 9.0, restored_at=w.now - 5.0)
    incident = Incident(
        "inc-000002", Kind.CORRELATED, Phase.VERIFYING, w.now - 9.0, 0, 1, 4, 0.0,
        queries={"sink.0": back, "sink.2": back},
    )  # fmt: skip
    assert w.driver is not None
    poison = Poison(w.driver.epoch, {"sink.0": "poison: batch 7", "sink.1": "poison: batch 8"})
    found = observe(look(replace(w.snapshot(), poison=poison), w.policy), incident)
    assert set(found.queries) == {"sink.0", "sink.2"}
    assert (found.queries["sink.0"].restored_at, found.queries["sink.0"].losses) == (None, 2)
    assert (found.queries["sink.2"].restored_at, found.queries["sink.2"].losses) == (back.restored_at, 1)
    assert [(event.name, event.detail) for event in found.events] == [("queries-lost", "sink.0")]


def test_what_the_driver_skips_is_in_the_record_and_in_the_time_line_once() -> None:
    w = World(diamond(3, 50), Policy(nodes_wanted=4)).started(4)
    incident = Incident("inc-000002", Kind.CORRELATED, Phase.RECOVERING, w.now - 9.0, 40, 1, 4, 0.0)
    snapshot = w.snapshot()
    assert snapshot.progress is not None
    skipped = {
        "mid.0": ((43, 51),),
        "mid.1": ((12, 39),),
    }  # the second one is of an incident before the checkpoint
    marked = {"sink.0": ((12, 39), (43, 55)), "sink.1": ((12, 39),)}
    told = replace(snapshot.progress, skipped=skipped, marked=marked)
    view = look(replace(snapshot, progress=told), w.policy)
    found = observe(view, incident)
    assert (found.skipped, found.marked) == ({"mid.0": ((43, 51),)}, {"sink.0": ((43, 55),)})
    lines = [(event.name, event.detail) for event in found.events]
    assert lines.count(("batches-skipped", "without rows of mid.0 43 to 51; marked: sink.0 43 to 55")) == 1
    assert observe(view, found) == found


def test_two_gaps_in_one_incident_are_two_and_what_is_whole_between_them_is_not_counted() -> None:
    w = World(diamond(3, 50), Policy(nodes_wanted=4)).started(4)
    incident = Incident("inc-000002", Kind.CORRELATED, Phase.RECOVERING, w.now - 9.0, 40, 1, 4, 0.0)
    snapshot = w.snapshot()
    assert snapshot.progress is not None
    skipped, marked = ((43, 45), (60, 62)), ((43, 49), (60, 66))
    # the driver reports gaps behind its checkpoint, which moves behind the first one
    for gap in (0, 1):
        told = replace(
            snapshot.progress, skipped={"mid.0": (skipped[gap],)}, marked={"sink.0": (marked[gap],)}
        )
        view = look(replace(snapshot, progress=told), w.policy)
        incident = observe(view, incident)
    assert (incident.skipped, incident.marked) == ({"mid.0": skipped}, {"sink.0": marked})
    assert batches_in(incident.marked) == 14
    lines = [event.detail for event in incident.events if event.name == "batches-skipped"]
    assert lines == [
        "without rows of mid.0 43 to 45; marked: sink.0 43 to 49",
        "without rows of mid.0 60 to 62; marked: sink.0 60 to 66",
    ]
    assert observe(view, incident) == incident


def test_a_gap_that_no_report_told_alone_is_told_with_the_next() -> None:
    """The driver was away from ZooKeeper between two gaps: its next report has both."""
    w = World(diamond(3, 50), Policy(nodes_wanted=4)).started(4)
    incident = Incident("inc-000002", Kind.CORRELATED, Phase.RECOVERING, w.now - 9.0, 40, 1, 4, 0.0)
    snapshot = w.snapshot()
    assert snapshot.progress is not None
    gaps = {"sink.0": ((43, 49), (60, 66))}
    told = replace(snapshot.progress, skipped={"mid.0": ((43, 45), (60, 62))}, marked=gaps)
    incident = observe(look(replace(snapshot, progress=told), w.policy), incident)
    assert incident.marked == gaps
    (line,) = [event.detail for event in incident.events if event.name == "batches-skipped"]
    assert line == "without rows of mid.0 43 to 45; mid.0 60 to 62; marked: sink.0 43 to 49; sink.0 60 to 66"
