"""Queries that people skip, with plans that a person approves, and with standby nodes for the best case: who begins anew
does so by a plan that was approved as such, and all ends right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.crd.convert import APPROVED
from reprise.controller.operator.status.approval import PlanApproval
from reprise.controller.simulated_world import cluster, faults
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.controller.simulated_world.schedule import Schedule, run
from reprise.scheduler import Decision
from reprise.scheduler.incident import PlanRecord
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import holds

pytestmark = pytest.mark.long
RECOMMEND, BEST_CASE = ", mode: recommend", ", strategy: best-case"
ITS = "count.0"
QUERY = 1
"""The same among the queries, by name."""


@dataclass
class Person:
    """Approves each plan when it has been proposed for `after` seconds; what a plan's object is to the operator."""

    after: float
    clock: Any = None
    reference: Any = field(default_factory=lambda: SimpleNamespace(name="simulated"))
    proposed: dict[str, float] = field(default_factory=dict)
    """Object of a plan -> when it was first seen."""
    carried_out: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    """When a plan was, and who of it begins anew."""

    def propose(self, name: str, plan: PlanRecord) -> None:
        self.proposed.setdefault(name, self.clock())

    def find_plan(self, name: str) -> dict[str, Any]:
        seen = self.clock() - self.proposed[name] >= self.after
        return {"metadata": {"annotations": {APPROVED: "true"} if seen else {}}}

    def approve(self, name: str) -> None:
        assert self.clock() - self.proposed[name] >= self.after

    def supersede(self, name: str) -> None: ...


@contextmanager
def approved_after(seconds: float) -> Iterator[Person]:
    """Every coordinator within asks this person."""
    person = Person(seconds)

    def made(*of: Any, clock: Any, **more: Any) -> Coordinator:
        person.clock = clock
        events = SimpleNamespace(note=lambda *_: None)
        approval = PlanApproval(person, events, clock, required=True)  # type: ignore[arg-type]

        def permits(decision: Decision) -> bool:
            permitted = approval.permits(decision)
            if permitted and decision.plan is not None and decision.desired is not None:
                begun = decision.plan.added.keys() & decision.desired.anew.keys()
                person.carried_out.append((clock(), tuple(sorted(begun))))
            return permitted

        return Coordinator(*of, clock=clock, permits=permits, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "Coordinator", made)
        yield person


def skipped(recovery: str, later: float) -> Schedule:
    """Its node is lost long after the start, and somebody asks to skip a query `later`."""
    lost = Fault(13.0, "its-node-dies", 1, 60.0)
    wish = Fault(13.0 + later, "query-skipped", QUERY)
    return Schedule(3, (lost, wish), recovery=recovery, windowed=True)


@pytest.fixture
def its_node_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of(ITS)})


@pytest.mark.wide
@pytest.mark.usefixtures("its_node_dies")
@pytest.mark.parametrize("later", [2.0, 8.0], ids=["in the burst", "while the first plan waits"])
@pytest.mark.parametrize("recovery", [RECOMMEND, RECOMMEND + BEST_CASE])
def test_what_begins_anew_is_part_of_a_plan_that_was_approved_with_it(recovery: str, later: float) -> None:
    """Nobody approves a restoration that would be taken back at once."""
    with approved_after(12.0) as person:
        outcome = run(skipped(recovery, later))
    assert outcome.violation is None
    assert outcome.acted == ("its-node-dies", "query-skipped")
    ((at, begun),) = [found for found in person.carried_out if found[0] > 13.0]
    assert ITS in begun
    assert at >= 13.0 + later + 12.0, "it was approved before somebody asked for it"
    assert any(mark.startswith("count/0/") for mark in outcome.marks)


@pytest.mark.usefixtures("its_node_dies")
def test_a_wish_that_comes_after_the_approval_needs_another_one_only_where_something_is_missing() -> None:
    with approved_after(1.0) as person:
        outcome = run(skipped(RECOMMEND, 10.0))
    assert outcome.violation is None
    assert [begun for at, begun in person.carried_out if at > 13.0] == [()], "it was restored, and is at work"
    assert outcome.marks == ()


@pytest.mark.usefixtures("its_node_dies")
def test_with_standby_nodes_a_query_is_skipped_as_without() -> None:
    outcome = run(replace(skipped(BEST_CASE, 2.0), exchange="chained"))
    assert outcome.violation is None
    assert any(mark.startswith("count/0/") for mark in outcome.marks)


@pytest.mark.parametrize("recovery", [RECOMMEND, BEST_CASE])
@seeds([2], range(300, 304), 300)
def test_nothing_breaks_where_people_skip_queries_and_approve_plans(seed: int, recovery: str) -> None:
    schedule = replace(Schedule.of(seed).plain(), recovery=recovery, windowed=True).with_wishes()
    if recovery == BEST_CASE:
        holds(schedule)
        return
    with approved_after(0.5 + seed % 7):
        holds(schedule)
