"""Random fault schedules: the real coordinator, driver, engine, hosts and agents, and what must hold after every event.

One that breaks something is printed shorter, as it can be pasted into a test.  More seeds:
`python -m reprise.controller.simulated_world --seed 1000 --schedules 500`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product

import pyarrow as pa
import pytest

from reprise.controller.coordinator import transaction
from reprise.controller.coordinator.store import Reading
from reprise.controller.coordinator.store import Store as RecordStore
from reprise.controller.simulated_world import faults
from reprise.controller.simulated_world.checks import Violation, require_equal_rows
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.faults import KINDS, Fault, draw
from reprise.controller.simulated_world.schedule import EVENTUAL, OWN_CLOCKS, WAYS, Schedule, run, shrink
from reprise.controller.zookeeper.paths import SETTINGS as SETTINGS_PATH
from reprise.controller.zookeeper.settings_record import encode_settings
from reprise.scheduler.steps import AddPlan, CloseIncident, Decision
from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.settings import take_settings
from reprise.spark_jobs.engine.standbys import Standbys
from reprise.spark_jobs.node import installing
from reprise.spark_jobs.node.arrival import ArrivalRuntime, Frontier
from reprise.spark_jobs.node.logged import LoggedRuntime
from reprise.spark_jobs.node.partition_log import EventualCheckpoint
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.upstream_backup import begin_again
from reprise.spark_jobs.sinks.files import encoded
from reprise.spark_jobs.state.ledger import RANGES, Block, Ledger
from reprise.spark_jobs.topology import override
from reprise.spark_jobs.topology.changes import Settings, revision_of_settings, settings_of
from tests.support.seeds import seeds


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

    def begun(runtime: OperatorRuntime, replays_to: int) -> None:
        seen.append(runtime.partition.id)
        begin_again(runtime, replays_to)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installing, "begin_again", begun)
        yield seen


LEFT = "left.1"


def its_node_dies(cluster: Cluster, fault: Fault) -> bool:
    """The machine dies that has one partition.  Three of the four machines have all of them, and which three these are
    follows from how long each message took: the fourth one would die for nothing."""
    desired = cluster.record("desired")
    assert desired is not None
    node = str(desired["assignment"][LEFT]).partition("#")[0]  # type: ignore[index]
    return KINDS["node-dies"](cluster, replace(fault, which=sorted(cluster.machines).index(node)))


def test_a_run_without_faults_shows_what_run_local_does() -> None:
    outcome = run(Schedule(1, ()))
    assert outcome.violation is None
    assert 20 < outcome.virtual_s < 40, "about as long as its stream"


@seeds(range(1, 4), range(4, 40), 2000)
def test_nothing_breaks(seed: int) -> None:
    holds(Schedule.of(seed))


@seeds([2], range(40, 46), 300)
def test_nothing_breaks_with_standbys(seed: int) -> None:
    """On the plain topology, as the others refuse them, and with what may differ beside them."""
    mode = ("active-standby", "passive-standby")[seed % 2]
    holds(replace(Schedule.of(seed).plain(), availability=mode).drawn_further())


@pytest.mark.wide
@pytest.mark.parametrize("availability", ["active-standby", "passive-standby"])
def test_a_standby_is_promoted_by_the_coordinator_and_nothing_goes_back(
    availability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long after the start, when standbys are there; the burst settles a second later at the soonest."""
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": its_node_dies})
    with promotions() as seen:
        holds(Schedule(3, (Fault(14.0, "its-node-dies", 1, 60.0),), availability=availability))
    assert LEFT in seen


@seeds([2, 9], range(60, 66), 300)
def test_nothing_breaks_with_upstream_backup(seed: int) -> None:
    """On the plain topology, as the others refuse it, and with what may differ beside it."""
    holds(replace(Schedule.of(seed).plain(), availability="upstream-backup").drawn_further())


@pytest.mark.wide
def test_a_lost_partition_is_fed_again_by_what_the_coordinator_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": its_node_dies})
    with fed_again() as seen:
        holds(Schedule(3, (Fault(14.0, "its-node-dies", 1, 60.0),), availability="upstream-backup"))
    assert LEFT in seen


@seeds([3], range(80, 85), 300)
def test_nothing_breaks_in_the_order_of_arrival(seed: int) -> None:
    holds(Schedule.of(seed).in_arrival())


@seeds([4], range(100, 105), 300)
def test_nothing_breaks_in_the_order_of_arrival_by_own_clocks(seed: int) -> None:
    holds(Schedule.of(seed).in_arrival(OWN_CLOCKS))


@seeds([5], range(120, 125), 300)
def test_nothing_breaks_in_the_order_of_arrival_with_a_cycle(seed: int) -> None:
    holds(Schedule.of(seed).in_arrival(feedback=True))


@pytest.mark.wide
def test_rows_under_way_in_a_cycle_that_no_checkpoint_has_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot with the last message of its batch alone, where a batch is several."""
    loops = ArrivalRuntime.loops

    def forgets(runtime: ArrivalRuntime) -> dict[str, bytes]:
        marker, last = runtime.marker[runtime.position - 1], runtime.marker[runtime.position]
        runtime.marker[runtime.position - 1] = last - 1
        try:
            return loops(runtime)
        finally:
            runtime.marker[runtime.position - 1] = marker

    monkeypatch.setattr(ArrivalRuntime, "loops", forgets)
    schedules = (Schedule(n, LOST_THRICE, order="arrival", feedback=True) for n in range(1, 9))
    violations = (run(schedule).violation for schedule in schedules)
    assert any(found is not None and found.invariant == "E1" for found in violations)


@pytest.mark.wide
@pytest.mark.parametrize("checkpoint", ["", OWN_CLOCKS], ids=["rounds", "own clocks"])
def test_an_executor_that_dies_alone_takes_everything_back_in_the_order_of_arrival(checkpoint: str) -> None:
    """Its node goes on with another one, so the next desired state still has its partitions there."""
    holds(Schedule(1059, (Fault(10.3, "executor-dies", 39),), order="arrival", checkpoint=checkpoint))


def restored_uneven(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions that are restored from now on from a snapshot of which one input is further than another."""
    seen: list[str] = []
    counts_on = ArrivalRuntime._counts_on

    def counted(runtime: ArrivalRuntime, tables: Tables) -> None:
        counts_on(runtime, tables)
        if len({channel.complete for channel in runtime.frontier.channels.values()}) > 1:
            seen.append(runtime.partition.id)

    monkeypatch.setattr(ArrivalRuntime, "_counts_on", counted)
    return seen


LOST_THRICE = Fault(8.0, "node-dies", 1, 2.0), Fault(13.0, "driver-dies"), Fault(18.0, "node-dies", 2, 2.0)


def losses_at_some_moments() -> Iterator[Schedule]:
    """At which moment inputs are uneven depends on how many requests there are, so one of many has to show it."""
    for later, seed in product((0.0, -0.5, 0.5, -1.0), range(1, 9)):
        faults = tuple(replace(fault, at=fault.at + later) for fault in LOST_THRICE)
        yield Schedule(seed, faults, order="arrival", checkpoint=OWN_CLOCKS)


@pytest.mark.wide
def test_snapshots_with_uneven_inputs_are_restored_in_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = restored_uneven(monkeypatch)
    for schedule in losses_at_some_moments():
        holds(schedule)
        if seen:
            break
    assert seen


@pytest.mark.wide
def test_a_snapshot_that_forgets_what_came_early_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its senders have sent again behind the batch that it is at is applied twice then."""
    counts_on = ArrivalRuntime._counts_on

    def forgets(runtime: ArrivalRuntime, tables: Tables) -> None:
        counts_on(runtime, tables)
        for channel in runtime.frontier.channels.values():
            channel.taken = channel.marker(runtime.position)

    monkeypatch.setattr(ArrivalRuntime, "_counts_on", forgets)
    violations = (run(schedule).violation for schedule in losses_at_some_moments())
    assert any(found is not None and found.invariant == "E1" for found in violations)


@pytest.mark.wide
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


SETTINGS: tuple[dict[str, object], ...] = (
    {"checkpoint.everyBatches": 2, "checkpoint.keep": 1, "operators[count].output.priority": 9},
    {"recovery.scope": "global", "checkpoint.everyBatches": 9},
    {"recovery.scope": "ancestors", "recovery.strategy": "blocking", "recovery.cpuCap": 90},
)


def settings_change(cluster: Cluster, fault: Fault) -> bool:
    """Somebody applies a changed file, as `reprise apply` does."""
    wanted = settings_of(override(cluster.resource, SETTINGS[fault.which]))
    cluster.ensemble.tree.put(f"{cluster.root}/{SETTINGS_PATH}", encode_settings(wanted))
    return True


@pytest.mark.parametrize("seed", [100, *(pytest.param(s, marks=pytest.mark.wide) for s in range(101, 110))])
def test_nothing_breaks_while_settings_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times, between the faults of a seed: drivers and coordinators hear of it at different times, or not at all."""
    taken: list[str] = []

    def take(engine: Engine, settings: Settings) -> bool:
        taken.append(revision_of_settings(settings))
        return take_settings(engine, settings)

    monkeypatch.setattr("reprise.controller.driver.loop.take_settings", take)
    schedule = Schedule.of(seed).plain()
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "settings-change": settings_change})
    dice = random.Random(f"settings of {seed}")
    changes = (Fault(dice.uniform(1.0, 18.0), "settings-change", n) for n in range(len(SETTINGS)))
    both = replace(schedule, faults=tuple(sorted((*schedule.faults, *changes), key=lambda fault: fault.at)))
    holds(both)
    last = max((f for f in both.faults if f.kind == "settings-change"), key=lambda fault: fault.at)
    wanted = settings_of(override(both.resource, SETTINGS[last.which]))
    assert taken[-1] == revision_of_settings(wanted), "the newest is followed in the end"


@pytest.mark.wide
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


@pytest.mark.wide
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
    write depends on all that drivers ask before, so one of some seeds has to show it: in output, or in a state of the same
    position that is another one."""
    holds(Schedule(8, faults))
    monkeypatch.setattr(Ledger, "_put", replaces)
    monkeypatch.setattr(Ledger, method, wrong)
    monkeypatch.setattr(Ledger, "require", lambda *_: None)  # else a driver that finds nothing waits for it
    violations = (run(Schedule(seed, faults)).violation for seed in range(5, 13))
    assert any(found is not None and found.invariant in ("E1", "H2") for found in violations)


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Schedule:
    """A node is lost, and at the first decision in its incident that creates no record, and so is guarded by versions
    alone, the leader is stopped between what it has read and what it writes; another one decides meanwhile.  Its session
    does not end in that time."""
    waiting: list[tuple[Cluster, Fault]] = []
    commit = RecordStore.commit

    def overtaken_once(cluster: Cluster, fault: Fault) -> bool:
        cluster.second_coordinator()
        waiting.append((cluster, fault))
        return True

    def stopped_before(store: RecordStore, reading: Reading, decision: Decision) -> None:
        creates = any(isinstance(step, AddPlan | CloseIncident) for step in decision.steps)
        alone = decision.desired is not None and reading.versions.incident is not None and not creates
        if waiting and alone:
            cluster, fault = waiting.pop()
            process = next(p for p, leading in cluster.leading.items() if leading.store is store)
            assert faults.coordinator_displaced(cluster, fault)
            which = [p for p in cluster.coordinators.values() if p.alive].index(process)
            assert KINDS["coordinator-stops"](cluster, replace(fault, which=which))
            cluster.world.sleep(0.0)
        commit(store, reading, decision)

    monkeypatch.setattr(RecordStore, "commit", stopped_before)
    monkeypatch.setattr(
        faults, "KINDS", {**KINDS, "overtaken-once": overtaken_once, "its-node-dies": its_node_dies}
    )
    return Schedule(5, (Fault(4.9, "overtaken-once", 0, 0.8), Fault(5.0, "its-node-dies", 1, 20.0)))


@pytest.mark.wide
def test_a_coordinator_that_is_overtaken_is_refused_by_the_versions_alone(
    overtaken: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session lives, and who leads is asked before it reads."""
    holds(overtaken)
    write = transaction._write
    monkeypatch.setattr(
        transaction, "_write", lambda path, data, version: write(path, data, None if version is None else -1)
    )
    monkeypatch.setattr(transaction, "_check", lambda path, _: lambda sent: sent.check(path, -1))
    violation = run(overtaken).violation
    assert violation is not None and violation.invariant == "sequence"


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


@pytest.mark.wide
def test_seeds_run_eventual_checkpoints_standbys_upstream_backup_and_arrival_too() -> None:
    drawn = [Schedule.of(seed) for seed in range(100)]
    assert 10 < sum(schedule.checkpoint == EVENTUAL for schedule in drawn) < 50
    for mode in ("active-standby", "passive-standby", "upstream-backup"):
        assert 3 < sum(mode in schedule.availability for schedule in drawn) < 40, mode
    arrival = [schedule for schedule in drawn if schedule.order == "arrival"]
    assert 3 < len(arrival) < 30
    assert {schedule.checkpoint for schedule in arrival} == {"", OWN_CLOCKS}
    assert {schedule.feedback for schedule in arrival if not schedule.checkpoint} == {True, False}
    assert all(schedule.allowed for schedule in drawn)


@pytest.mark.wide
def test_half_of_the_seeds_with_a_way_to_be_available_have_several() -> None:
    drawn = [ways for seed in range(400) if (ways := Schedule.of(seed).availability) != "checkpoint"]
    mixed = [ways for ways in drawn if len(set(ways.split(","))) > 1]
    assert 0.35 < len(mixed) / len(drawn) < 0.65
    assert {way for ways in mixed for way in ways.split(",")} == set(WAYS)
    beside = {tuple(sorted(set(ways.split(",")) - {"checkpoint"})) for ways in mixed}
    assert len(beside) > 8, "of each of the four with another one, and of more"


@pytest.mark.wide
def test_slots_of_different_ages_are_restored_in_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ages they have depends on when each was written, so one of some seeds has to show it."""
    seen: list[tuple[int, int]] = []
    begin = LoggedRuntime.begin

    def begun(runtime: LoggedRuntime, checkpoint: EventualCheckpoint) -> None:
        seen.append((checkpoint.found.since, checkpoint.found.at))
        begin(runtime, checkpoint)

    def differ(seed: int) -> bool:
        seen.clear()
        lost = Fault(9.0, "node-dies", 1, 2.0), Fault(14.0, "driver-dies")
        holds(Schedule(seed, lost, checkpoint=EVENTUAL))
        return any(since < at for since, at in seen)

    monkeypatch.setattr(LoggedRuntime, "begin", begun)
    assert any(differ(seed) for seed in range(1, 9))


def test_a_schedule_is_printed_as_it_is_written() -> None:
    schedule = Schedule(5, draw(5, 0.5, 19.0), coordinators=2, recovery=", scope: query")
    assert eval(str(schedule), {"Schedule": Schedule, "Fault": Fault}) == schedule


@pytest.mark.wide
@pytest.mark.parametrize("availability", ["active-standby", "passive-standby"])
def test_a_notice_lets_standbys_take_over_before_the_node_is_gone(
    availability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which node has a partition with a standby is not said here: each of them leaves in its turn."""
    promote, alive = Standbys.promote, list[str]()

    def promoted(standbys: Standbys, engine: Engine, partition: str) -> int:
        alive.extend([partition] if partition in engine.positions else [])
        return promote(standbys, engine, partition)

    monkeypatch.setattr(Standbys, "promote", promoted)
    for which in range(4):
        holds(Schedule(3, (Fault(13.0, "node-leaves", which, 60.0),), availability=availability))
    assert alive
