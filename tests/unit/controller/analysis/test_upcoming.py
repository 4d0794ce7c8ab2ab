"""What comes back next: in the order of the plan, with the time that explain says, and each query once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.analysis import upcoming as module
from reprise.controller.analysis.explain import explain
from reprise.controller.analysis.upcoming import Upcoming, upcoming
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.query_state import Status
from tests.support import oncall


@pytest.fixture(scope="module")
def one_came() -> StatusDocument:
    return document(oncall.TOPOLOGY, oncall.after_the_burst())


def names(found: tuple[Upcoming, ...]) -> list[str]:
    return [entry.query for entry in found]


def stands(found: StatusDocument, **states: Status) -> StatusDocument:
    """The document with other states of queries, by the number of the partition: `q1=...` is `count.1`."""
    chosen = {f"count.{name[1:]}": state for name, state in states.items()}
    items = tuple(replace(q, state=chosen.get(q.id, q.state)) for q in found.queries.items)
    return replace(found, queries=replace(found.queries, items=items))


def test_nothing_comes_where_nothing_is_missing() -> None:
    assert upcoming(document(oncall.TOPOLOGY, oncall.steady())) == ()


def test_each_has_the_reason_and_the_time_of_explain(one_came: StatusDocument) -> None:
    found = upcoming(one_came)
    down = {q.id for q in one_came.queries.items if q.state is not Status.AVAILABLE}
    assert set(names(found)) == down and len(found) == len(down) > 0
    for entry in found:
        told = explain(one_came, entry.query)
        assert (entry.waits_for, entry.expected) == (told.waits_for, told.expected)
        assert told.capacity is None or entry.enters_at == told.capacity.enters_at


def test_what_needs_least_capacity_comes_before_what_is_worth_more(one_came: StatusDocument) -> None:
    """`count.1` is worth more and comes in at 200, `count.0` at 90: the next node brings `count.0`."""
    assert one_came.plan is not None
    entries = {entry.query: entry for entry in one_came.plan.left_out}
    template = next(iter(entries.values()))
    left_out = (
        replace(template, query="count.1", priority=2, enters_at=200),
        replace(template, query="count.0", priority=1, enters_at=90),
    )
    plan = replace(one_came.plan, chosen=(), left_out=left_out)
    waiting = dict.fromkeys(("q0", "q1"), Status.WAITING)
    ready = dict.fromkeys(("q2", "q3"), Status.AVAILABLE)
    found = stands(replace(one_came, plan=plan), **waiting, **ready)
    assert names(upcoming(found)) == ["count.0", "count.1"]


def test_what_is_on_its_way_comes_first_as_plans_chose_it_and_what_no_plan_has_looked_at_last(
    one_came: StatusDocument,
) -> None:
    assert one_came.plan is not None and one_came.incident is not None and one_came.plan.left_out
    chosen = next(plan for plan in one_came.incident.plans if plan.chosen).chosen[0]
    plan = replace(
        one_came.plan,
        chosen=tuple(replace(chosen, query=q) for q in ("count.2", "count.3")),
        left_out=(replace(one_came.plan.left_out[0], query="count.1", enters_at=70),),
    )
    told = replace(one_came, plan=plan, incident=replace(one_came.incident, plans=(plan,)))
    states = {"q0": Status.WAITING, "q1": Status.WAITING, "q2": Status.WAITING, "q3": Status.RECOVERING}
    assert names(upcoming(stands(told, **states))) == ["count.3", "count.2", "count.1", "count.0"]
    states["q2"] = Status.RECOVERING
    assert names(upcoming(stands(told, **states)))[:2] == ["count.2", "count.3"], "the order of the plan"


def test_what_waits_for_repaired_code_comes_last_and_its_time_is_unknown() -> None:
    seen = oncall.played_until([oncall.BURST])
    assert seen.progress is not None
    poison = {"count.3": Failure(FailureKind.POISON, "KeyError in batch 7")}
    found = document(oncall.TOPOLOGY, replace(seen, progress=replace(seen.progress, failed=poison)))
    order = upcoming(found)
    assert order[-1].query == "count.3" and len(order) > 1
    assert order[-1].waits_for.startswith("repaired code") and order[-1].expected.low is None


def test_a_thousand_are_not_explained_all(monkeypatch: pytest.MonkeyPatch) -> None:
    burst = document(oncall.TOPOLOGY, oncall.played_until([oncall.BURST]))
    every = names(upcoming(burst))
    monkeypatch.setattr(module, "MOST", 1)
    assert names(upcoming(burst)) == every[:1] != every
