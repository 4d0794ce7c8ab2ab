"""What would have been otherwise, reckoned by hand on incidents of odd courses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from reprise.controller.analysis.postmortem.counterfactual import (
    Counterfactuals,
    blocking_loses,
    counterfactuals,
)
from reprise.controller.analysis.postmortem.markdown import markdown
from reprise.controller.analysis.postmortem.pictures import _availability, _queries
from reprise.controller.analysis.postmortem.story import Story, make_story
from reprise.controller.errors import ReportError
from reprise.controller.status.model import AvailabilityPoint
from reprise.scheduler import Incident, LostNode, QueryTimeline
from reprise.scheduler.incident import Candidate, Kind, Phase, PlanRecord, Trigger
from tests.support import oncall

OPENED = 1000.0
PRIORITY = {"count.1": 2, "count.2": 3, "count.3": 4}
"""Of the lost queries; count.0 survives with priority 1."""


def plan(
    number: int,
    at: float,
    free: Mapping[str, int],
    chosen: Sequence[str] = (),
    candidates: Sequence[str] = tuple(PRIORITY),
) -> PlanRecord:
    """A plan made `at` seconds after the detection; each lost query misses one partition of 40 milli-CPU."""
    return PlanRecord(
        f"inc-000007-p{number}", "inc-000007", OPENED + at, Trigger.FIRST if number == 1 else Trigger.ARRIVAL, False, 5, 2,
        free, tuple(Candidate(query, PRIORITY[query], 40) for query in candidates), {"queries": list(chosen)}, {}, 0.01,
        {}, pending=tuple(candidates),
    )  # fmt: skip


def incident(back: Mapping[str, float | None], closed: float | None, before: int = 3) -> Incident:
    """`back`: seconds after the detection at which each query was back."""
    times = {
        query: QueryTimeline(
            OPENED, None if at is None else OPENED + at - 1, None if at is None else OPENED + at
        )
        for query, at in back.items()
    }
    return Incident(
        "inc-000007", Kind.CORRELATED, Phase.CLOSED if closed is not None else Phase.WAITING, OPENED, 5, 2, before, OPENED,
        lost=(LostNode("n2#1", OPENED), LostNode("n3#1", OPENED)), queries=times, costs=dict.fromkeys(PRIORITY, 40),
        closed_at=None if closed is None else OPENED + closed,
    )  # fmt: skip


NONE_FIT = plan(1, 1, {"n1#1": 20})
TWO_FIT = plan(2, 30, {"n1#1": 20, "n4#1": 80}, ["count.3", "count.2"])
ALL_FIT = plan(3, 60, {"n1#1": 20, "n4#1": 0, "n5#1": 80}, ["count.1"], ["count.1"])
COURSE = incident({"count.1": 64, "count.2": 36, "count.3": 36}, 70)


def told(
    of: Incident, plans: Sequence[PlanRecord], now: float = 70, **more: Sequence[tuple[float, str]]
) -> Story:
    return make_story(oncall.TOPOLOGY, of, plans, OPENED + now, **more)


def otherwise(story: Story) -> Counterfactuals:
    found = counterfactuals(story)
    assert found is not None
    return found


def test_all_courses_by_hand() -> None:
    """From a plan until the query is back: 6, 6 and 4 seconds, so 6 in the model."""
    story = told(COURSE, [NONE_FIT, TWO_FIT, ALL_FIT])
    found = otherwise(story)
    assert found.recorded.back == {"count.1": 64, "count.2": 36, "count.3": 36}
    assert found.recorded.lost_s == pytest.approx((2 * 64 + 3 * 36 + 4 * 36) / 10)
    assert found.replayed.back == {"count.1": 66, "count.2": 36, "count.3": 36}
    assert found.replayed.lost_s == pytest.approx((2 * 66 + 3 * 36 + 4 * 36) / 10)
    assert found.node_free == 80 and found.one_more is not None and found.blocking is not None
    assert found.one_more.back == {"count.1": 36, "count.2": 7, "count.3": 7}
    assert found.one_more.lost_s == pytest.approx((2 * 36 + 3 * 7 + 4 * 7) / 10)
    assert found.blocking_at == 66
    assert found.blocking.back == dict.fromkeys(("count.0", "count.1", "count.2", "count.3"), 66)
    assert found.blocking.lost_s == pytest.approx(((2 + 3 + 4) * 66 + 1 * (66 - 1)) / 10), (
        "the survivor stops at the plan"
    )
    assert [curve.name for curve in (found.recorded, found.replayed, found.blocking, found.one_more)] == [
        "recorded", "replayed", "blocking", "one more node",
    ]  # fmt: skip
    assumed = "\n".join(found.assumptions)
    for part in ("takes 6.0 s, the median", "80 milli-CPU free", "when 3 nodes are ready"):
        assert part in assumed
    assert "not replayed" not in assumed
    lines = markdown(story, found, ["availability.svg"]).splitlines()
    for line in (
        "# Incident inc-000007 of oncall",
        "| state | closed after 70.0 s |",
        "| nodes lost | 2 of 3: n2#1, n3#1 |",
        "![availability](availability.svg)",
        "| `count.1` | 2 | 0.0 | 63.0 | 64.0 | 64.0 s | 1 | 0 |",
        "| as it happened | 38.0 s |  | 3 | 64.0 s |",
        "| blocking recovery | 65.9 s | +27.9 s | 4 | 66.0 s |",
        "| one more node (80 milli-CPU) | 12.1 s | -25.9 s | 3 | 36.0 s |",
    ):
        assert line in lines, line


def test_what_blocking_recovery_loses_at_least_in_all_incidents_of_a_run() -> None:
    """Until the third node is ready, 60 s after the detection; `count.0`, the survivor, stops at the first plan."""
    planned = told(COURSE, [NONE_FIT, TWO_FIT, ALL_FIT])
    small = told(incident({"count.1": 10}, 20), [])
    assert blocking_loses([planned, small]) == pytest.approx(((2 + 3 + 4) * 60 + 59) / 10 + 2 * 10 / 10)
    assert blocking_loses([small]) is None and blocking_loses([]) is None
    never = told(COURSE, [NONE_FIT, TWO_FIT])
    assert blocking_loses([never]) == pytest.approx(((2 + 3 + 4) * 70 + 69) / 10), (
        "until the end of the record"
    )


def test_what_would_end_a_cell_of_a_table_is_escaped() -> None:
    left = replace(NONE_FIT, left_out={"count.1": "a | b\nc"}, note="a note | as it is")
    page = markdown(told(COURSE, [left]), None, [])
    assert "| `count.1` | a \\| b c |" in page and "\na note | as it is\n" in page


def test_more_nodes_may_be_lost_than_there_were_before() -> None:
    every = (*COURSE.lost, LostNode("n4#1", OPENED + 40), LostNode("n4#2", OPENED + 50))
    page = markdown(told(replace(COURSE, lost=every), [NONE_FIT]), None, [])
    assert "| nodes lost | 4, where 3 were before: n2#1, n3#1, n4#1, n4#2 |" in page


def test_blocking_waits_for_as_many_nodes_and_for_room() -> None:
    """Room for everything on too few nodes, then as many nodes without the room."""
    roomy = [plan(1, 1, {"n1#1": 20}), plan(2, 30, {"n1#1": 20, "n4#1": 200}, tuple(PRIORITY))]
    of = incident(dict.fromkeys(PRIORITY, 36.0), 70)
    assert otherwise(told(of, roomy)).blocking_at is None
    assert otherwise(told(replace(of, nodes_before=2), roomy)).blocking_at == 36
    narrow = [plan(1, 1, {"n1#1": 20, "n6#1": 20, "n7#1": 20}), roomy[1]]
    assert otherwise(told(of, narrow)).blocking_at == 36
    assert (
        otherwise(told(of, [plan(1, 1, {"n1#1": 40, "n6#1": 40, "n7#1": 40}, tuple(PRIORITY))])).blocking_at
        == 36
    )


def test_what_would_be_back_after_the_record_is_not_said_to_be_back() -> None:
    """The second plan was made four seconds before the records were read, and it takes six until a query is back."""
    early = plan(1, 1, {"n1#1": 40}, ["count.3"])
    late = plan(2, 30, {"n1#1": 0, "n4#1": 80, "n5#1": 80}, ["count.1", "count.2"], ["count.1", "count.2"])
    story = told(incident({"count.1": None, "count.2": None, "count.3": 7}, None), [early, late], now=34)
    found = otherwise(story)
    assert found.recorded.back == found.replayed.back == {"count.3": 7}
    assert found.replayed.lost_s == pytest.approx((4 * 7 + (2 + 3) * 34) / 10)
    assert found.blocking_at is None and found.blocking is not None and found.blocking.back == {}
    assert found.blocking.lost_s == pytest.approx((9 * 34 + 1 * 33) / 10)
    page = markdown(story, found, [])
    for course in ("as it happened", "the same by the model", "blocking recovery"):
        assert f"| {course} | at least " in page
    assert "What it lost is a lower bound." in page
    later = told(story.incident, story.plans, now=37)
    assert otherwise(later).replayed.back == {"count.1": 36, "count.2": 36, "count.3": 7}
    assert otherwise(later).blocking_at == 36


def test_a_query_that_two_plans_chose_takes_its_time_from_the_last() -> None:
    """The first was superseded: more was lost before the query was back."""
    plans = [plan(1, 1, {"n1#1": 40}, ["count.3"]), plan(2, 30, {"n1#1": 40}, ["count.3"])]
    found = otherwise(told(incident({"count.1": None, "count.2": None, "count.3": 34}, None), plans))
    assert "takes 4.0 s" in "\n".join(found.assumptions)


def test_plans_that_chose_nothing_and_answers_that_cannot_be_read_teach_no_time() -> None:
    odd = replace(plan(1, 1, {"n1#1": 40}), plan={"queries": 7})
    found = otherwise(told(incident(dict.fromkeys(PRIORITY, 36.0), 70), [odd]))
    assert "takes 0.0 s" in "\n".join(found.assumptions)
    assert found.replayed.back == {"count.3": 1}


def test_a_first_plan_without_candidates_is_not_the_question() -> None:
    nothing = plan(1, 0.5, {"n1#1": 999}, candidates=[])
    assert counterfactuals(told(COURSE, [nothing])) is None
    found = otherwise(told(COURSE, [nothing, replace(TWO_FIT, time=OPENED + 2, free={"n1#1": 80})]))
    assert min(found.replayed.back.values()) > 2


def test_one_more_node_where_a_node_came_only_when_nothing_was_left_to_plan() -> None:
    """What is free on such a node is on no record: it counts as what the plan found on a survivor."""
    only = plan(1, 1, {"n1#1": 40, "n6#1": 60}, ["count.3", "count.2"])
    of = incident({"count.1": None, "count.2": 5, "count.3": 5}, None)
    found = otherwise(told(of, [only], heartbeats=[(OPENED + 20, "n9")]))
    assert found.node_free == 60
    assert "60 milli-CPU free (the most that one of the survivors had free)" in "\n".join(found.assumptions)
    assert found.one_more is not None and found.one_more.back == dict.fromkeys(PRIORITY, 5)
    assert found.blocking_at == 24, "two survivors and the one that came"
    assert found.replayed.back == {"count.1": 24, "count.2": 5, "count.3": 5}


def test_heartbeats_of_nodes_that_a_plan_knew_and_of_other_incidents_are_not_counted() -> None:
    beats = [(OPENED + 5, "n1"), (OPENED - 1, "n8"), (OPENED + 71, "n9"), (OPENED + 70, "n7"), (OPENED, "n6")]
    story = told(COURSE, [NONE_FIT, TWO_FIT], heartbeats=beats)
    assert [(at - OPENED, node, free) for at, node, free in story.arrivals] == [
        (0, "n6", 80), (30, "n4#1", 80), (70, "n7", 80),
    ]  # fmt: skip


def test_with_no_room_anywhere_nothing_is_said_of_one_more_node() -> None:
    found = otherwise(told(incident(dict.fromkeys(PRIORITY), None), [plan(1, 1, {})]))
    assert (found.one_more, found.node_free, found.replayed.back) == (None, None, {})
    assert "one more node" not in "\n".join(found.assumptions)
    found = otherwise(told(incident(dict.fromkeys(PRIORITY), None), [plan(1, 1, {"n1#1": 0})]))
    assert found.node_free is None


def test_a_blocking_recovery_is_not_compared_with_itself() -> None:
    story = told(replace(COURSE, kind=Kind.BLOCKING), [NONE_FIT, TWO_FIT, ALL_FIT])
    assert otherwise(story).blocking is None
    assert "| blocking recovery |" not in markdown(story, otherwise(story), [])


def test_plans_stand_in_the_order_in_which_they_were_made_though_the_clock_went_back() -> None:
    """Another coordinator made the second plan, and its clock is a minute behind."""
    story = told(COURSE, [replace(TWO_FIT, time=OPENED - 30), ALL_FIT, NONE_FIT])
    assert [plan.id[-2:] for plan in story.plans] == ["p1", "p2", "p3"]
    assert [(at - OPENED, node) for at, node, _ in story.arrivals] == [(1, "n4#1"), (60, "n5#1")]
    assert {"count.2", "count.3"} <= otherwise(story).replayed.back.keys(), (
        "the node is counted though it came before the plan"
    )


def test_plans_from_before_the_incident_by_their_clock_lose_no_negative_time() -> None:
    """All of them were made by a coordinator whose clock is behind that of the one that opened the incident."""
    plans = [replace(plan, time=plan.time - 500) for plan in (NONE_FIT, TWO_FIT, ALL_FIT)]
    story = told(COURSE, plans)
    assert [at - OPENED for at, _, _ in story.arrivals] == [0, 0]
    found = otherwise(story)
    assert found.blocking is not None and found.one_more is not None
    for curve in (found.replayed, found.blocking, found.one_more):
        assert 0.0 <= curve.lost_s <= 70.0 and all(0.0 <= at <= 70.0 for at in curve.back.values())
    assert found.blocking_at is None or 0.0 <= found.blocking_at <= 70.0


def test_the_tenth_plan_comes_after_the_ninth_of_the_same_moment() -> None:
    plans = [plan(number, 5, {f"n{number}#1": 40}) for number in (10, 9, 11)]
    assert [node for _, node, _ in told(COURSE, plans).arrivals] == ["n10#1", "n11#1"]


def test_an_incident_that_was_closed_by_a_clock_that_is_behind_has_lost_no_negative_time() -> None:
    story = told(replace(COURSE, closed_at=OPENED - 5), [NONE_FIT, TWO_FIT])
    found = otherwise(story)
    assert story.end == OPENED and "closed after 0.0 s" in markdown(story, found, [])
    assert found.blocking is not None and found.one_more is not None
    for curve in (found.replayed, found.blocking, found.one_more):
        assert curve.lost_s == 0.0
    assert _availability(story, [], found).axes, "it can be drawn"


def test_a_loss_in_the_moment_of_the_first_plan_is_part_of_it_and_a_later_one_is_named() -> None:
    lost = (*COURSE.lost, LostNode("n8#1", NONE_FIT.time), LostNode("n9#1", NONE_FIT.time + 0.1))
    found = otherwise(told(replace(COURSE, lost=lost), [NONE_FIT, TWO_FIT]))
    assert found.assumptions[-1] == "losses after the first plan are not replayed: n9#1"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"pending": ("count.9",)}, "pending: topology.json has no partition 'count.9'"),
        ({"candidates": (Candidate("gone.1", 1, 40),)}, "candidates: topology.json has no query 'gone.1'"),
    ],
)
def test_a_plan_of_another_topology_is_refused_by_name(changed: Mapping[str, object], named: str) -> None:
    with pytest.raises(ReportError, match=rf"^the incident's records: plan inc-000007-p1: {named}$"):
        counterfactuals(told(COURSE, [replace(NONE_FIT, **changed)]))  # type: ignore[arg-type]


def test_a_partition_without_a_cost_is_refused_by_name() -> None:
    with pytest.raises(ReportError, match=r"incident inc-000007: costs: no partition 'count\.1'"):
        counterfactuals(told(replace(COURSE, costs={"count.2": 40, "count.3": 40}), [NONE_FIT]))


def test_lines_of_the_picture_are_those_of_the_courses() -> None:
    story = told(COURSE, [NONE_FIT, TWO_FIT, ALL_FIT])
    points = [
        AvailabilityPoint(time=OPENED + at, share=share, available=1, bound=bound)
        for at, share, bound in ((-5, 1.0, None), (0, 0.1, 0.3), (36, 0.8, None), (71, 1.0, 1.0))
    ]
    (axes,) = _availability(story, points, otherwise(story)).axes
    drawn = {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert drawn["as it happened"] == ([0, 36, 70], [10, 80, 80])
    assert drawn["the capacity allowed"][1][0] == 30 and drawn["the capacity allowed"][1][1] != 0
    assert drawn["blocking"] == ([0, 66, 66, 66, 66, 70], [0, 10, 30, 60, 100, 100])
    assert drawn["one more node"] == ([0, 7, 7, 36, 70], [10, 40, 80, 100, 100])
    assert [line.get_xdata()[0] for line in axes.lines if str(line.get_label()).startswith("_")] == [30, 60]
    assert axes.get_xlim() == (0, 70)


def test_bars_of_the_picture_are_the_times_of_the_queries() -> None:
    story = told(incident({"count.1": None, "count.3": 36}, None), [], now=50)
    (axes,) = _queries(story).axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [(0, 35), (35, 1), (0, 50), (50, 0)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["count.3  p4", "count.1  p2"]
