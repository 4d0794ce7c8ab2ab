"""The timeline of an incident: in the order of time, and never longer than a record may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.scheduler import Event, Incident, Kind, Phase
from reprise.scheduler.incident import MAX_DETAILS, MAX_EVENTS, EventName, PlanRecord, Trigger, number_in

EMPTY = Incident("inc-000001", Kind.CORRELATED, Phase.SETTLING, 0.0, 0, 1, 3, 0.0)


def logged(lines: int, detail: str = "x") -> Incident:
    """A line a second."""
    incident = EMPTY
    for k in range(lines):
        incident = incident.log(float(k), EventName.PLAN, detail)
    return incident


def test_lines_are_in_the_order_of_time_and_of_one_moment_in_that_of_saying() -> None:
    incident = EMPTY.log(5.0, EventName.OPENED).log(7.0, EventName.PLAN, "a")
    incident = incident.log(6.0, EventName.QUERIES_BEHIND).log(7.0, EventName.PLAN, "b")
    assert [(event.time, event.detail) for event in incident.events] == [
        (5.0, ""), (6.0, ""), (7.0, "a"), (7.0, "b"),
    ]  # fmt: skip


def test_a_timeline_of_too_many_lines_keeps_the_first_and_the_newest_and_counts_the_others() -> None:
    assert logged(MAX_EVENTS).whole
    assert len(logged(MAX_EVENTS).events) == MAX_EVENTS
    for more in (1, 2, 3, 10):
        incident = logged(MAX_EVENTS + more)
        first, second, third, *_, last = incident.events
        assert len(incident.events) == MAX_EVENTS
        gone = more + 1  # the line that says so takes a place, too
        assert (first.time, third.time, last.time) == (0.0, gone + 1.0, MAX_EVENTS + more - 1.0)
        assert second == Event(float(gone), EventName.LINES_DROPPED, str(gone)), "of the time of the last one"
        assert not incident.whole


def test_a_timeline_that_says_too_much_keeps_what_fits() -> None:
    assert logged(4, "x" * (MAX_DETAILS // 4)).whole
    incident = logged(7, "x" * (MAX_DETAILS // 4 - 1))
    assert [event.time for event in incident.events] == [0.0, 3.0, 4.0, 5.0, 6.0]
    assert incident.events[1].detail == "3"
    assert sum(len(event.detail) for event in incident.events) <= MAX_DETAILS


def test_a_single_line_that_says_too_much_stays() -> None:
    incident = logged(2).log(2.0, EventName.POISON, "x" * (MAX_DETAILS + 1))
    first, second, last = incident.events
    assert (first.time, second.detail, last.name) == (0.0, "1", EventName.POISON)


@pytest.mark.parametrize("name", [*EventName, "of-a-later-version"])
@pytest.mark.parametrize("detail", ["", "count.0 count.1"])
def test_a_line_is_written_as_it_was_read_also_where_this_version_does_not_know_its_name(
    name: str, detail: str
) -> None:
    event = Event.of(1.0, name, detail)
    assert event.name in EventName
    assert event.written == (str(name), detail)
    assert (event.name is EventName.OTHER) == (name in ("of-a-later-version", EventName.OTHER))


def test_records_stand_in_the_order_of_their_numbers_and_not_of_clocks() -> None:
    """A coordinator whose clock is behind opened the second; the tenth plan comes after the ninth of the same moment."""
    incidents = [
        replace(EMPTY, id=name, opened_at=at) for name, at in (("inc-000010", 3.0), ("inc-000009", 8.0))
    ]
    assert [incident.id for incident in sorted(incidents, key=lambda one: one.turn)] == [
        "inc-000009",
        "inc-000010",
    ]
    names = ["inc-000002-p10", "inc-000002-p9", "inc-000001-p11", "inc-000002-p1"]
    plans = [
        PlanRecord(name, name[:10], 5.0, Trigger.FIRST, False, 0, 1, {}, (), {}, {}, 0.0, {})
        for name in names
    ]
    plans[1] = replace(plans[1], time=99.0)
    found = [plan.id for plan in sorted(plans, key=lambda one: one.turn)]
    assert found == ["inc-000001-p11", "inc-000002-p1", "inc-000002-p9", "inc-000002-p10"]


def test_of_incidents_that_were_given_one_number_the_later_ones_have_another_besides() -> None:
    names = ["inc-000002-p1", "inc-000001-2-p10", "inc-000001-p11", "inc-000001-2-p9"]
    plans = [
        PlanRecord(name, name.rpartition("-p")[0], 5.0, Trigger.FIRST, False, 0, 1, {}, (), {}, {}, 0.0, {})
        for name in names
    ]
    found = [plan.id for plan in sorted(plans, key=lambda one: one.turn)]
    assert found == ["inc-000001-p11", "inc-000001-2-p9", "inc-000001-2-p10", "inc-000002-p1"]
    incidents = [
        replace(EMPTY, id=name) for name in ("inc-000002", "inc-000001-10", "inc-000001-9", "inc-000001")
    ]
    assert sorted(incidents, key=lambda one: one.turn) == incidents[::-1]
    assert number_in("inc-000012-2-p3") == number_in("inc-000012-2") == 12


def test_records_whose_names_have_no_number_stand_in_the_order_of_time() -> None:
    incidents = [replace(EMPTY, id=name, opened_at=at) for name, at in (("b", 1.0), ("a", 2.0))]
    assert sorted(incidents, key=lambda one: one.turn) == incidents
    assert (number_in("inc-000012-p3"), number_in("inc-000012"), number_in("p3")) == (12, 12, 0)
