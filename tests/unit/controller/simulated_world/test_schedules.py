"""Random fault schedules: the real coordinator, driver, engine, hosts and agents, and what must hold after every event.

One that breaks something is printed shorter, as it can be pasted into a test.  More seeds:
`python -m reprise.controller.simulated_world --seed 1000 --schedules 500`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest

from reprise.controller.coordinator import transaction
from reprise.controller.simulated_world import faults
from reprise.controller.simulated_world.checks import Violation, require_equal_rows
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.faults import KINDS, Fault, draw
from reprise.controller.simulated_world.schedule import EVENTUAL, Schedule, run, shrink
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.standbys import Standbys
from reprise.spark_jobs.engine.upstream_backup import UpstreamBackup
from reprise.spark_jobs.node.arrival import Frontier
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.node.logged import LoggedRuntime
from reprise.spark_jobs.node.partition_log import EventualCheckpoint
from reprise.spark_jobs.sinks.files import encoded
from reprise.spark_jobs.state.ledger import RANGES, Block, Ledger


def holds(schedule: Schedule) -> None:
    outcome = run(schedule)
    if outcome.violation is not None:
        least = shrink(outcome)
        pytest.fail(f"{least.violation}\n{least.schedule}\n" + "\n".join(least.told))


@contextmanager
def promotions() -> Iterator[list[str]]:
    """The partitions whose standbys are promoted within."""
    seen: list[str] = []
    promote = Standbys.promote

    def promoted(standbys: Standbys, engine: object, partition: str) -> int:
        seen.append(partition)
        return promote(standbys, engine, partition)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Standbys, "promote", promoted)
        yield seen


@contextmanager
def fed_again() -> Iterator[list[str]]:
    """The partitions that begin within without a stored state, fed by what they read."""
    seen: list[str] = []
    begins = UpstreamBackup.begins

    def begun(backup: UpstreamBackup, found: Mapping[str, Install], installs: Set[str]) -> None:
        seen.extend(found)
        begins(backup, found, installs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UpstreamBackup, "begins", begun)
        yield seen


def test_a_run_without_faults_shows_what_run_local_does() -> None:
    outcome = run(Schedule(1, ()))
    assert outcome.violation is None
    assert 20 < outcome.virtual_s < 40, "about as long as its stream"


@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_breaks(seed: int) -> None:
    holds(Schedule.of(seed))


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(4, 40))
def test_nothing_breaks_in_many(seed: int) -> None:
    holds(Schedule.of(seed))


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(s, marks=pytest.mark.wide) for s in range(40, 60)),
             *(pytest.param(s, marks=pytest.mark.soak) for s in range(4000, 4300))],
)  # fmt: skip
def test_nothing_breaks_with_standbys(seed: int) -> None:
    """On the plain topology: the others refuse them."""
    holds(replace(Schedule.of(seed).plain(), availability=("active-standby", "passive-standby")[seed % 2]))


@pytest.mark.parametrize("availability", ["active-standby", "passive-standby"])
def test_a_standby_is_promoted_by_the_coordinator_and_nothing_goes_back(availability: str) -> None:
    """Long after the start, when standbys are there; the burst settles a second later at the soonest."""
    with promotions() as seen:
        holds(Schedule(3, (Fault(14.0, "node-dies", 0, 60.0),), availability=availability))
    assert seen


@pytest.mark.parametrize(
    "seed", [2, 9, *(pytest.param(s, marks=pytest.mark.wide) for s in range(60, 80)),
             *(pytest.param(s, marks=pytest.mark.soak) for s in range(5000, 5300))],
)  # fmt: skip
def test_nothing_breaks_with_upstream_backup(seed: int) -> None:
    """On the plain topology: the others refuse it."""
    holds(replace(Schedule.of(seed).plain(), availability="upstream-backup"))


def test_a_lost_partition_is_fed_again_by_what_the_coordinator_plans() -> None:
    with fed_again() as seen:
        holds(Schedule(3, (Fault(14.0, "node-dies", 0, 60.0),), availability="upstream-backup"))
    assert seen


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(s, marks=pytest.mark.wide) for s in range(80, 95)),
             *(pytest.param(s, marks=pytest.mark.soak) for s in range(6000, 6300))],
)  # fmt: skip
def test_nothing_breaks_in_the_order_of_arrival(seed: int) -> None:
    holds(Schedule.of(seed).in_arrival())


def test_an_executor_that_dies_alone_takes_everything_back_in_the_order_of_arrival() -> None:
    """Its node goes on with another one, so the next desired state still has its partitions there."""
    holds(Schedule(1059, (Fault(10.3, "executor-dies", 39),), order="arrival"))


def test_a_slow_source_makes_inputs_come_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    early = list[int]()
    take = Frontier.take
    monkeypatch.setattr(
        Frontier, "take", lambda self, messages: early.append(take(self, messages)) or early[-1]
    )  # type: ignore[func-returns-value]
    holds(Schedule(1, (), order="arrival"))
    assert sum(early) > 10


def file_of(rows: list[tuple[int, int, int]]) -> bytes:
    columns = zip(*rows, strict=True)
    return encoded("parquet", pa.table(dict(zip(("key", "n", "seen"), columns, strict=True))))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([[(1, 7, 1)], [(1, 9, 2)]], ""),
        ([[(1, 9, 1)], [(1, 7, 2)]], ""),
        ([[(1, 7, 1), (1, 9, 2)], []], ""),
        ([[(1, 7, 1)], []], "1 rows are missing, 0 too many"),
        ([[(1, 7, 1)], [(1, 9, 2), (1, 9, 3)]], "0 rows are missing, 1 too many"),
        ([[(1, 7, 1)], [(1, 9, 3)]], "key 1 counts 3 in place of 2"),
        ([[(1, 7, 1)], [(1, 9, 1)]], "key 1 counts 1 in place of 2"),
        ([[(1, 7, 1), (1, 9, 2)]], "files are missing"),
    ],
)
def test_rows_in_another_order_are_all_there_and_counted_once(
    given: list[list[tuple[int, int, int]]], why: str
) -> None:
    wanted = [[(1, 7, 1)], [(1, 9, 2)]]
    found, expected = (
        {f"count/0/batch-{n}.parquet": file_of(rows) if rows else b"" for n, rows in enumerate(batches)}
        for batches in (given, wanted)
    )
    with pytest.raises(Violation, match=why) if why else nullcontext():
        require_equal_rows(found, expected)


def test_an_executor_that_dies_while_it_is_stopped_keeps_no_node_away() -> None:
    stops = Fault(8.58, "node-stops", 19, 6.8), Fault(14.62, "node-stops", 32, 10.0)
    holds(Schedule(718, stops, recovery=", scope: ancestors", cpu="210m", feedback=True))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_nothing_breaks_in_very_many(first: int) -> None:
    for seed in range(first, first + 100):
        holds(Schedule.of(seed))


def test_the_same_seed_gives_the_same_run() -> None:
    faults = (Fault(3.0, "node-dies", 1, 4.0), Fault(6.0, "driver-dies"), Fault(9.0, "connection-breaks", 2))
    one, two = run(Schedule(5, faults)), run(Schedule(5, faults))
    assert one == two
    assert run(Schedule(6, faults)).events != one.events


def test_seeds_draw_all_kinds_of_faults() -> None:
    drawn = [fault for seed in range(200) for fault in draw(seed, 0.5, 19.0)]
    assert {fault.kind for fault in drawn} == KINDS.keys()
    assert all(0.5 <= fault.at <= 19.0 for fault in drawn)


@pytest.mark.wide
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_of_fault_does_something(kind: str) -> None:
    schedule = Schedule(7, (Fault(14.0, kind, 1, 2.0),), checkpoint=", localCopies: 0")
    assert run(schedule).acted == (kind,)


def removes_output(cluster: Cluster, fault: Fault) -> bool:
    """Not a fault of the world: what a wrong sink or pruning would do."""
    name = min(path for path in cluster.store.files if "/sink/" in path)
    del cluster.store.files[name]
    return True


def ends_the_driver(cluster: Cluster, fault: Fault) -> bool:
    """What a mistake in the driver's code would do; another driver is started, and all output comes."""

    def raises() -> None:
        raise KeyError("a mistake")

    cluster.world.begin(cluster.drivers[-1], raises, "mistake")
    return True


@pytest.mark.parametrize(("wrong", "found"), [(removes_output, "E1"), (ends_the_driver, "unforeseen")])
def test_what_a_wrong_product_would_do_is_found(
    wrong: Callable[[Cluster, Fault], bool], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "wrong": wrong})
    outcome = run(Schedule(1, (Fault(9.0, "wrong"),)))
    assert outcome.violation is not None and outcome.violation.invariant == found


def replaces(ledger: Ledger, first: int, block: Block) -> Block:
    ledger._files.replace(f"{RANGES}/{first:010d}.json", block.encode())
    return block


@pytest.mark.parametrize(
    ("method", "wrong", "faults"),
    [
        ("_put", replaces, (Fault(6.2, "driver-stops", 0, 12.0), Fault(7.2, "second-driver"))),
        ("_load", lambda ledger: None, (Fault(9.0, "driver-dies"),)),
    ],
    ids=["written-by-two", "forgotten"],
)
@pytest.mark.wide
def test_ranges_that_are_asked_for_twice_show(
    method: str, wrong: Callable[..., object], faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would see it: a source that says the same each time hides what the ledger is for.  At which moment two
    write depends on all that drivers ask before, so one of some seeds has to show it."""
    holds(Schedule(8, faults))
    monkeypatch.setattr(Ledger, "_put", replaces)
    monkeypatch.setattr(Ledger, method, wrong)
    monkeypatch.setattr(Ledger, "require", lambda *_: None)  # else a driver that finds nothing waits for it
    violations = (run(Schedule(seed, faults)).violation for seed in range(5, 13))
    assert any(found is not None and found.invariant == "E1" for found in violations)


OVERTAKEN = Schedule(5, (Fault(4.9, "coordinator-overtaken", 2, 3.0), Fault(5.0, "node-dies", 1, 20.0)))


def test_a_coordinator_that_is_overtaken_is_refused_by_the_versions_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session lives, and who leads is asked before it reads."""
    holds(OVERTAKEN)
    write = transaction._write
    monkeypatch.setattr(
        transaction, "_write", lambda path, data, version: write(path, data, None if version is None else -1)
    )
    monkeypatch.setattr(transaction, "_check", lambda path, _: lambda sent: sent.check(path, -1))
    outcome = run(OVERTAKEN)
    assert outcome.violation is not None and outcome.violation.invariant == "sequence"


def test_what_goes_back_is_installed_anew_also_where_nothing_of_it_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a rollback that forgets to forget one partition changes nothing: a host drops what is of another installation."""
    kept = list[str]()
    forget = Engine._forget

    def forgets(engine: Engine, partition: str) -> None:
        if partition == "count.1" and partition in engine.positions:
            kept.append(engine.installation[partition])
        else:
            forget(engine, partition)

    monkeypatch.setattr(Engine, "_forget", forgets)
    two = Fault(9.0, "node-dies", 0, 4.0), Fault(9.1, "node-dies", 1, 4.0)
    holds(Schedule(5, two, recovery=", scope: global"))
    assert kept, "it was to go back while it was at work"


def test_seeds_run_eventual_checkpoints_standbys_upstream_backup_and_arrival_too() -> None:
    drawn = [Schedule.of(seed) for seed in range(100)]
    assert 10 < sum(schedule.checkpoint == EVENTUAL for schedule in drawn) < 50
    for mode in ("active-standby", "passive-standby", "upstream-backup"):
        assert 3 < sum(schedule.availability == mode for schedule in drawn) < 30, mode
    assert 3 < sum(schedule.order == "arrival" for schedule in drawn) < 30
    assert all(schedule.allowed for schedule in drawn)


def test_slots_of_different_ages_are_restored_in_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    begin = LoggedRuntime.begin

    def begun(runtime: LoggedRuntime, checkpoint: EventualCheckpoint) -> None:
        seen.append((checkpoint.found.since, checkpoint.found.at))
        begin(runtime, checkpoint)

    monkeypatch.setattr(LoggedRuntime, "begin", begun)
    holds(Schedule(3, (Fault(9.0, "node-dies", 1, 2.0), Fault(14.0, "driver-dies")), checkpoint=EVENTUAL))
    assert any(since < at for since, at in seen)


def test_a_schedule_is_printed_as_it_is_written() -> None:
    schedule = Schedule(5, draw(5, 0.5, 19.0), coordinators=2, recovery=", scope: query")
    assert eval(str(schedule), {"Schedule": Schedule, "Fault": Fault}) == schedule
