"""How long things took so far, reckoned by hand on incidents of odd courses."""

from __future__ import annotations

from dataclasses import replace

from reprise.controller.analysis.measured import Sample, measured
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.model import ChosenView, IncidentView, QueryTimesView
from reprise.scheduler.incident import Trigger
from tests.support import oncall

WELL = document(oncall.TOPOLOGY, oncall.steady())
PLAYED = document(oncall.TOPOLOGY, oncall.after_the_burst()).incident
assert PLAYED is not None
PLAN = PLAYED.plans[0]


def query(name: str, restored: float | None, back: float | None) -> QueryTimesView:
    return QueryTimesView(name, 1, 100.0, restored, back, 1)


def incident(
    *queries: QueryTimesView,
    plans: tuple[tuple[float, Trigger, tuple[str, ...]], ...] = (),
    closed: float | None = None,
) -> IncidentView:
    """Opened at 100.  `plans`: when, what for, and the queries that were chosen."""
    assert PLAYED is not None
    views = tuple(
        replace(PLAN, time=at, trigger=why, chosen=tuple(ChosenView(name, 1, 40, ()) for name in chosen))
        for at, why, chosen in plans
    )
    return replace(PLAYED, opened_at=100.0, closed_at=closed, queries=queries, plans=views)


def seen(now: IncidentView | None = None, last: IncidentView | None = None) -> StatusDocument:
    return replace(WELL, incident=now, last_incident=last)


def test_nothing_is_known_where_nothing_happened() -> None:
    found = measured(seen())
    assert (found.restore, found.catch_up, found.gaps, found.last_arrival) == (
        Sample(),
        Sample(),
        Sample(),
        None,
    )
    assert (found.restore.range, found.restore.middle, found.restore.exact) == (None, None, False)
    assert str(found.restore) == "not measured yet"


def test_restoring_counts_from_the_last_plan_that_chose_the_query_before_it_was_restored() -> None:
    plans = (
        (101.0, Trigger.FIRST, ("a",)), (110.0, Trigger.LOSS, ("a", "b")), (150.0, Trigger.ARRIVAL, ("a", "c")),
    )  # fmt: skip
    one = incident(query("a", 114.0, 120.0), query("b", None, None), query("c", 140.0, None), plans=plans)
    found = measured(seen(one))
    assert found.restore == Sample((4.0,)), "`c` was at work before a plan chose it, as far as the clocks say"
    assert found.catch_up == Sample((6.0,)), "what an open incident has not seen yet says nothing"
    assert found.restore.exact


def test_a_query_that_an_incident_did_not_see_back_took_at_least_until_its_end() -> None:
    last = incident(query("a", 110.0, 112.0), query("b", 120.0, None), query("c", None, None), closed=160.0)
    found = measured(seen(last=last))
    assert found.catch_up == Sample((2.0,), (40.0,))
    assert found.catch_up.range == (2.0, None) and found.catch_up.middle == 21.0 and not found.catch_up.exact
    assert str(found.catch_up) == "2.0 s in 1 case; at least 40.0 s in 1 case, not measured to the end"
    only = measured(seen(last=incident(query("b", 120.0, None), closed=160.0))).catch_up
    assert only.range == (40.0, None) and str(only) == "at least 40.0 s in 1 case, not measured to the end"


def test_gaps_are_those_between_arrivals_and_the_first_counts_from_the_detection() -> None:
    plans = (
        (101.0, Trigger.FIRST, ()), (130.0, Trigger.ARRIVAL, ()), (131.0, Trigger.LOSS, ()), (190.0, Trigger.ARRIVAL, ()),
    )  # fmt: skip
    found = measured(seen(incident(plans=plans)))
    assert found.gaps == Sample((30.0, 60.0)) and found.last_arrival == 190.0
    assert measured(seen(incident())).last_arrival == 100.0, "the detection"
    assert measured(seen(last=incident(plans=plans))).last_arrival is None, (
        "of an incident that is over none is awaited"
    )


def test_all_incidents_count_and_a_clock_that_went_back_gives_no_negative_time() -> None:
    earlier = incident(query("a", 130.0, 120.0), plans=((90.0, Trigger.ARRIVAL, ("a",)),), closed=140.0)
    found = measured(seen(incident(query("a", 105.0, 109.0))), [earlier])
    assert found.catch_up == Sample((0.0, 4.0)) and found.gaps == Sample((0.0,))
    assert found.restore == Sample((40.0,))
