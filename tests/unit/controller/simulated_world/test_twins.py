"""What is checked of standbys and of gaps in every run: that each check finds what it is for, and that there is something
to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from reprise.algorithms.spans import Spans
from reprise.controller.simulated_world import faults
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.controller.simulated_world.kinds import ARBITRARY
from reprise.controller.simulated_world.operators import Chained, Sums, Windowed
from reprise.controller.simulated_world.schedule import Outcome, Schedule, run
from reprise.controller.simulated_world.twins import Seen, Twins
from reprise.spark_jobs.engine.skipping import Skipping
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.deltas import StateCopy
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.standbys import KeptOutput
from reprise.spark_jobs.sinks.files import BatchFiles
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import holds, promotions

pytestmark = pytest.mark.long
ACTIVE, PASSIVE, AMNESIA = "active-standby", "passive-standby", "amnesia"
FED_BESIDE = "checkpoint,upstream-backup,passive-standby"
DIES = Fault(13.0, "node-dies", 1, 60.0)
"""Long after the start; what it has hosted are partitions whose readers stay."""


def with_a_loss(availability: str) -> Outcome:
    return run(Schedule(3, (DIES,), availability=availability))


def invariant(outcome: Outcome) -> str:
    return "" if outcome.violation is None else outcome.violation.invariant


@seeds([4], range(95, 101), 300)
def test_nothing_breaks_where_batches_are_skipped(seed: int) -> None:
    holds(replace(Schedule.of(seed).plain(), availability=AMNESIA))


def test_batches_are_skipped_in_the_world_and_marked() -> None:
    outcome = with_a_loss(AMNESIA)
    assert outcome.violation is None
    assert outcome.marks


@pytest.mark.parametrize("availability", [ACTIVE, PASSIVE])
def test_states_are_compared_batch_by_batch(availability: str) -> None:
    outcome = with_a_loss(availability)
    assert outcome.violation is None
    assert outcome.twins >= 10


def test_two_that_send_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "silent", lambda command, partition: False)
    assert invariant(run(Schedule(3, (DIES,), availability=ACTIVE, exchange="chained"))) == "H1"


def test_a_standby_with_another_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = OperatorRuntime.advance

    def forgets(runtime: OperatorRuntime, wanted: Callable[[str], bool]) -> bool:
        moved = advance(runtime, wanted)
        if moved and isinstance(runtime.sink, KeptOutput):
            runtime.state = Sums()
        return moved

    monkeypatch.setattr(OperatorRuntime, "advance", forgets)
    assert invariant(run(Schedule(3, (), availability=ACTIVE))) == "H2"


def test_a_copy_with_another_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = StateCopy.tables
    monkeypatch.setattr(
        StateCopy, "tables", lambda copy: {name: t.slice(1) for name, t in (tables(copy) or {}).items()}
    )
    assert invariant(run(Schedule(3, (), availability=PASSIVE))) == "H2"


@pytest.mark.wide
def test_a_copy_beside_partitions_that_are_fed_again_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invariant(run(Schedule(3, (), availability=FED_BESIDE))) == ""
    tables = StateCopy.tables
    monkeypatch.setattr(
        StateCopy, "tables", lambda copy: {name: t.slice(1) for name, t in (tables(copy) or {}).items()}
    )
    assert invariant(run(Schedule(3, (), availability=FED_BESIDE))) == "H2"


WAITS = Schedule(
    3,
    (Fault(14.0, "its-node-dies", 1, 60.0),),
    availability="checkpoint,passive-standby,checkpoint",
    kinds=ARBITRARY,
    every=1,
)
"""`count` draws what it gives, which waits for its passive standby."""


@pytest.fixture
def its_node_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of("count.0")})


@pytest.mark.wide
@pytest.mark.usefixtures("its_node_dies")
def test_copies_of_an_arbitrary_operator_are_compared_with_what_it_has_had() -> None:
    with promotions() as promoted:
        outcome = run(WAITS)
    assert outcome.violation is None
    assert "count.0" in promoted
    assert outcome.twins >= 10


def test_a_copy_of_an_arbitrary_operator_with_another_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = StateCopy.tables
    monkeypatch.setattr(
        StateCopy, "tables", lambda copy: {name: t.slice(1) for name, t in (tables(copy) or {}).items()}
    )
    assert invariant(run(replace(WAITS, faults=()))) == "H2"


@pytest.mark.usefixtures("its_node_dies")
def test_an_arbitrary_operator_that_goes_on_at_its_standby_with_another_state_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore = OperatorRuntime.restore

    def forgets(runtime: OperatorRuntime, tables: Mapping[str, pa.Table]) -> None:
        restore(runtime, {name: t.slice(1) if name == "drawn" else t for name, t in tables.items()})

    monkeypatch.setattr(OperatorRuntime, "restore", forgets)
    assert invariant(run(WAITS)) == "H2"


def test_an_arbitrary_operator_may_have_had_several_states_and_its_copy_has_one_of_them() -> None:
    found: list[tuple[str, str]] = []
    twins = Twins(WAITS.resource, lambda *what: found.append(what))
    states = [{"drawn": pa.table({"key": [1], "drawn": [n]})} for n in (7, 8, 9)]
    for state in states[:2]:
        twins.has("host-1", "count.0", 6, (), Seen(lambda state=state: state))  # type: ignore[misc]
        twins.copies("host-2", "count.0", 6, state)
    twins.has("host-2", "count.0", 6, (), Seen(lambda: states[0]), promoted=True)
    assert not found
    twins.copies("host-2", "count.0", 6, states[2])
    twins.has("host-2", "count.0", 6, (), Seen(lambda: states[2]), promoted=True)
    assert [name for name, _ in found] == ["H2", "H2"]


def test_a_copy_of_a_batch_after_which_nobody_has_seen_its_partition_is_found() -> None:
    found: list[tuple[str, str]] = []
    twins = Twins(Schedule(3, (), availability=PASSIVE).resource, lambda *what: found.append(what))
    state = {"sums": pa.table({"key": [1], "n": [7]})}
    twins.has("host-1", "count.0", 6, (), Seen(lambda: state))
    twins.copies("host-2", "count.0", 6, state)
    assert not found
    twins.copies("host-2", "count.0", 7, state)
    ((name, said),) = found
    assert (name, said.endswith("and had no state then")) == ("H2", True)


def test_only_what_follows_from_batches_that_were_made_twice_may_be_otherwise() -> None:
    """`count.1` had come to batch 5, and was at the beginning again when `left.0` was skipped: it makes five batches twice,
    which are in windows of `best.0` up to batch 8."""
    found: list[tuple[str, str]] = []
    availability = "amnesia,passive-standby,active-standby"
    twins = Twins(Schedule(3, (), availability=availability).resource, lambda *what: found.append(what))
    states = [{"sums": pa.table({"key": [1], "n": [n]})} for n in (7, 8)]

    def steps(partition: str, position: int, state: int, skips: tuple[Skip, ...]) -> None:
        twins.has("host-1", partition, position, skips, Seen(lambda: states[state]))

    skip = Skip("left.0", 11, {"count.0": 5, "count.1": 0}, 5, {"best.0": (1, 12)})
    for position in range(1, 6):
        steps("count.1", position, 0, ())
    for position in range(6, 9):
        steps("best.0", position, 0, (skip,))
        steps("best.0", position, 1, (skip,))
    assert not found
    twins.copies("host-2", "best.0", 8, states[1])
    assert not found, "it is one of the states that it has had"
    for partition, position in (("best.0", 9), ("count.1", 3), ("count.0", 6)):
        steps(partition, position, 0, (skip,))
        steps(partition, position, 1, (skip,))
    assert [said.partition(" ")[0] for _, said in found] == ["best.0", "count.1", "count.0"]
    level = replace(skip, after={"count.1": 5}, until=10)
    steps("best.0", 7, 0, (level,))
    steps("best.0", 7, 1, (level,))
    assert len(found) == 4, "nobody was further once than it was then"


def test_a_standby_that_was_ahead_may_be_in_another_state_while_windows_have_what_is_skipped() -> None:
    """The standby of `count.0` had applied batches 6 and 7 of `left.0`, which `count.0` itself makes without it."""
    found: list[tuple[str, str]] = []
    resource = Schedule(3, (), availability="amnesia,active-standby,checkpoint").resource
    twins = Twins(resource, lambda *what: found.append(what))
    one, other = (pa.table({"key": [1], "n": [n]}) for n in (7, 8))
    skip = Skip("left.0", 11, {"count.0": 5, "count.1": 5}, 5, {"best.0": (6, 14)})
    for partition, last in (("count.0", 7), ("count.1", 5)):
        for position in range(1, last + 1):
            twins.has("host-1", partition, position, (), Seen(lambda: {"sums": one}))

    def both_step(partition: str, position: int) -> None:
        twins.has("host-1", partition, position, (skip,), Seen(lambda: {"sums": one}))
        twins.has("host-2", partition, position, (skip,), Seen(lambda: {"sums": other}))

    for position in range(6, 9):
        both_step("count.0", position)
    assert not found
    both_step("count.0", 9)
    both_step("count.1", 6)
    assert [said.partition(" ")[0] for _, said in found] == ["count.0", "count.1"]


@pytest.mark.parametrize("checkpoint", ["", ", state: paged"])
def test_a_partition_that_is_restored_to_another_state_is_found(
    monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    restore = OperatorRuntime.restore

    def forgets(runtime: OperatorRuntime, tables: Mapping[str, pa.Table]) -> None:
        restore(
            runtime,
            {
                name: t if name != "sums" else t.slice(0, 0) if not checkpoint else _empty(t)
                for name, t in tables.items()
            },
        )

    monkeypatch.setattr(OperatorRuntime, "restore", forgets)
    dies = replace(DIES, which=3)  # the second one has no partitions here
    assert invariant(run(Schedule(3, (dies,), checkpoint=checkpoint))) == "H2"


def _empty(table: pa.Table) -> pa.Table:
    """The same arrays with nothing in them."""
    return pa.table({name: [0] * table.num_rows for name in table.column_names})


def test_a_batch_that_lacks_rows_and_is_not_marked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFiles, "mark", lambda sink, batch: None)
    # where a replay comes to what was written first, that is found instead
    runs = (
        run(Schedule(3, (replace(DIES, at=at),), availability=AMNESIA)) for at in (12.4, 13.0, 13.3, 13.6)
    )
    assert any(invariant(outcome) == "H3" for outcome in runs)


def test_a_mark_that_nobody_has_put_on_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = SkipRecords.write
    monkeypatch.setattr(
        SkipRecords, "write", lambda records, skips: write(records, [replace(s, marked={}) for s in skips])
    )
    assert invariant(with_a_loss(AMNESIA)) == "H3"


def test_a_gap_that_no_incident_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Skipping, "marked", lambda skipping, since: {})
    assert invariant(with_a_loss(AMNESIA)) == "H3"


def test_an_incident_that_names_more_than_is_marked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = Skipping.marked

    def wide(skipping: Skipping, since: int) -> dict[str, Spans]:
        return {output: ((1, spans[-1][1]),) for output, spans in marked(skipping, since).items()}

    monkeypatch.setattr(Skipping, "marked", wide)
    assert invariant(with_a_loss(AMNESIA)) == "H3"


def test_a_window_that_goes_on_beyond_its_gap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that says it needs less than it does: rows would be wrong behind the last batch that is marked."""
    monkeypatch.setattr(Windowed, "step", Chained.step)
    assert invariant(with_a_loss(AMNESIA)) == "H3"


def test_seeds_run_it_too() -> None:
    assert 1 < sum(AMNESIA in Schedule.of(seed).availability for seed in range(100)) < 20
