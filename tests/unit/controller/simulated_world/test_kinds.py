"""Every way to be available with every kind of operator: what is allowed comes back in its way, in the order in which a real
coordinator plans it, and what is not allowed is refused with the reason (docs/simulated-world.md has the table)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from reprise.controller.simulated_world import faults, kinds
from reprise.controller.simulated_world.checks import Violation, require_one_try
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.controller.simulated_world.schedule import WAYS, Schedule, run
from reprise.controller.simulated_world.topology import modes_of
from reprise.spark_jobs.contract import Inbox, Input
from reprise.spark_jobs.engine.restore_point import RestorePoint
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.node import passive, standbys
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.operators.testing import check_kind, check_recovery
from reprise.spark_jobs.sinks.files import encoded
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import fed_again, holds, promotions

pytestmark = pytest.mark.long
ALL = (kinds.ARBITRARY, *kinds.CLASSES)
ITS = "count.0"
"""Of the operator in the middle, of which the kind and the way are said."""
REFUSED = {
    ("active-standby", "arbitrary"): "it could come to another state than its standby",
    ("upstream-backup", "arbitrary"): "'count' is arbitrary, so everything goes back",
    ("upstream-backup", "deterministic"): "needs an operator that does not depend on all input before",
    ("amnesia", "arbitrary"): "'count' is arbitrary, so everything goes back",
    ("amnesia", "deterministic"): "all later output could differ",
    ("amnesia", "by state"): "nobody knows of rows that are lost",
}
ALLOWED = [(way, kind) for way in WAYS for kind in ALL if (way, kind) not in REFUSED]


def loses_its_node(way: str, kind: str, at: float = 14.0) -> Schedule:
    """Long after the start, when standbys are there; neither of the operators beside it holds it up."""
    three = kind if kind == kinds.ARBITRARY else f"repeatable,{kind},repeatable"
    lost = Fault(at, "its-node-dies", 1, 60.0)
    return Schedule(3, (lost,), availability=f"checkpoint,{way},checkpoint", kinds=three, every=1)


@pytest.mark.wide
@pytest.mark.parametrize(("way", "kind"), ALLOWED)
def test_each_kind_comes_back_in_each_way(way: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of(ITS)})
    with promotions() as promoted, fed_again() as fed:
        outcome = run(loses_its_node(way, kind))
    assert outcome.violation is None
    assert outcome.acted == ("its-node-dies",)
    assert (ITS in promoted) is way.endswith("standby")
    assert (ITS in fed) is (way == "upstream-backup")
    assert any(mark.startswith("count/0/") for mark in outcome.marks) is (way == "amnesia")


@pytest.mark.parametrize(("way", "kind"), REFUSED)
def test_what_a_kind_does_not_allow_is_refused_with_the_reason(way: str, kind: str) -> None:
    with pytest.raises(SpecError) as refused:
        _ = loses_its_node(way, kind).resource
    assert REFUSED[way, kind] in str(refused.value)


@contextmanager
def causes_of_deltas() -> Iterator[Counter[str]]:
    """Why something is sent to passive standbys within, each time by what alone would do."""
    seen, due = Counter[str](), passive._due

    def counted(runtime: OperatorRuntime, there: int, every: int, command: Command, stands: bool) -> bool:
        if found := due(runtime, there, every, command, stands):
            by_checkpoint = due(runtime, there, runtime.position + 1, command, stands)
            seen["empty" if there < 0 else "checkpoint" if by_checkpoint else "every"] += 1
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passive, "_due", counted)
        yield seen


@pytest.mark.wide
@pytest.mark.parametrize(
    ("every", "causes"), [(None, {"empty", "checkpoint"}), (1, {"empty", "checkpoint", "every"})]
)
def test_each_cause_of_a_delta_occurs(every: int | None, causes: set[str]) -> None:
    with causes_of_deltas() as seen:
        holds(Schedule(3, (), availability="passive-standby", every=every))
    assert seen.keys() == causes, seen


@pytest.mark.wide
def test_seeds_draw_what_may_differ_beside_a_way_to_be_available() -> None:
    drawn = [schedule for schedule in map(Schedule.of, range(400)) if schedule.availability != "checkpoint"]
    copied = [schedule for schedule in drawn if "passive-standby" in schedule.availability]
    assert all(n > 10 for n in Counter(schedule.every for schedule in copied).values())
    assert {schedule.every for schedule in copied} == {None, 1, 3}
    assert all(schedule.every is None for schedule in drawn if schedule not in copied)
    assert sum("state: paged" in schedule.checkpoint for schedule in copied) > 3
    assert sum("bufferMemory" in schedule.recovery for schedule in drawn) > 20
    named = {
        (way, kind)
        for schedule in drawn
        if schedule.kinds
        for way, kind in zip(modes_of(schedule.availability), schedule.kinds.split(","), strict=True)
    }
    assert named == {cell for cell in ALLOWED if cell[1] != kinds.ARBITRARY}
    assert all(schedule.allowed for schedule in drawn)
    assert any(schedule.kinds == kinds.ARBITRARY for schedule in map(Schedule.of, range(200)))


@seeds([1], [], 300)
def test_nothing_breaks_with_an_arbitrary_operator(seed: int) -> None:
    holds(Schedule.of(seed).arbitrary())


def waits(schedule: Schedule) -> Schedule:
    """The same with an arbitrary operator whose output waits for its passive standby."""
    every = random.Random(schedule.seed).choice((None, 1, 3))
    return replace(schedule.arbitrary(), availability="checkpoint,passive-standby,checkpoint", every=every)


@seeds([1], [], 300)
def test_nothing_breaks_where_what_it_gives_waits_for_its_standby(seed: int) -> None:
    holds(waits(Schedule.of(seed)))


@pytest.mark.wide
def test_output_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standby goes on behind what its readers have, and gives that anew: it was sent nothing for some batches."""
    monkeypatch.setattr(standbys, "let_wait", lambda *_: None)
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of(ITS)})
    violation = run(replace(loses_its_node("passive-standby", kinds.ARBITRARY, 15.2), every=None)).violation
    assert violation is not None and violation.invariant == "E1"


def test_going_back_behind_what_is_shown_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a product believed that an arbitrary operator gives the same again: outputs are of different tries then."""
    monkeypatch.setattr(RestorePoint, "deterministic", True)
    monkeypatch.setattr("reprise.spark_jobs.node.installing.replayable", lambda *_: True)
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of(ITS)})
    violation = run(loses_its_node("checkpoint", kinds.ARBITRARY)).violation
    assert violation is not None and violation.invariant == "E1"


def file_of(rows: list[tuple[int, ...]], *more: str) -> bytes:
    return encoded("parquet", kinds.table_of(("key", "n", "seen", "drawn", *more), rows))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"count/0/2": [(1, 9, 2, 8, 6)], "best/0/2": [(1, 9, 2, 8)]}, "a row that is not shown"),
        ({"best/0/1": [(1, 7, 1, 6)]}, "different tries"),
        ({"count/0/1": [], "best/0/1": []}, "rows of another batch"),
    ],
)
def test_what_is_of_another_try_is_found(changes: dict[str, list[tuple[int, ...]]], why: str) -> None:
    rows = {
        "count/0/1": [(1, 7, 1, 5, 0)], "count/0/2": [(1, 9, 2, 8, 5)],
        "best/0/1": [(1, 7, 1, 5)], "best/0/2": [(1, 9, 2, 8)],
    }  # fmt: skip

    def files(of: dict[str, list[tuple[int, ...]]]) -> dict[str, bytes]:
        return {
            name: file_of(given, *(["before"] if name.startswith("count") else [])) if given else b""
            for name, given in of.items()
        }

    if not why:
        require_one_try(files(rows), files(rows))
        return
    with pytest.raises(Violation, match=why):
        require_one_try(files(rows | changes), files(rows))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("operator", [kinds.Stateless(), kinds.EventTime(size=4)])
def test_each_is_of_the_kind_that_it_says(operator: kinds.Stateless | kinds.EventTime, seed: int) -> None:
    dice = random.Random(seed)
    inboxes = []
    for batch in range(1, 30):
        rows = [(dice.randrange(3), dice.randrange(100)) for _ in range(dice.randint(0, 4))]
        one = Input("in", "in.0", kinds.table_of(("key", "n"), rows))
        inboxes.append(Inbox(batch, batch, (one,)))
    check_kind(operator, inboxes)
    check_recovery(operator, inboxes)


def test_rows_of_a_closed_window_are_left_out() -> None:
    """Else nothing would depend on when a window was closed."""
    operator = kinds.EventTime(size=4)
    state, late = operator.initial(None), 0  # type: ignore[arg-type]
    for batch in range(1, 40):
        table = kinds.table_of(("key", "n"), [(n, batch * n) for n in range(3)])
        before = state
        state, out = operator.step(state, Inbox(batch, batch, (Input("in", "in.0", table),)))
        given = 0 if out is None else out.num_rows
        ended = {at for at in before.sums if at[0] + operator.size <= state.closed}
        late += given < 3 + len(ended)
    assert late > 3
