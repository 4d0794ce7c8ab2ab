"""That faults of links, clocks and disks break what they say, and the output stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.controller.simulated_world import core
from reprise.controller.simulated_world.core import Process
from reprise.controller.simulated_world.exchange import Exchange, Exchanges
from reprise.controller.simulated_world.faults import RECORDS, Fault
from reprise.controller.simulated_world.schedule import LITTLE_ROOM, Outcome, Schedule, run
from reprise.controller.simulated_world.spark import WorldJobs
from reprise.controller.simulated_world.stores import Store
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import DataPlaneError
from reprise.spark_jobs.node.command import Report
from reprise.spark_jobs.state import checkpoints, page_file
from reprise.spark_jobs.state.release import CLOCKS
from reprise.spark_jobs.state.skips import SKIPPED


def went_well(schedule: Schedule) -> Outcome:
    outcome = run(schedule)
    assert outcome.violation is None, outcome.violation
    return outcome


@pytest.mark.parametrize(("which", "what"), [(1, "orders and answers"), (5, "orders"), (9, "answers")])
def test_nothing_ends_while_a_link_is_cut_and_what_comes_late_changes_nothing(which: int, what: str) -> None:
    outcome = went_well(Schedule(3, (Fault(8.0, "link-cut", which, 6.0),)))
    cut = next(line for line in outcome.told if f"no {what} between driver-1 and n2" in line)
    whole = next(line for line in outcome.told if "hear each other again" in line)
    assert float(whole.split()[0]) - float(cut.split()[0]) == pytest.approx(6.0)


@pytest.mark.parametrize(("recovery", "suffix"), [("", ".state"), (", bufferMemory: 1", ".spill")])
def test_a_disk_that_is_full_takes_no_copies_and_no_output(
    recovery: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of states are done without; output waits until there is room."""
    tried: dict[bool, set[str]] = {True: set(), False: set()}
    real = core._write

    def write(process: Process, path: Path, pieces: list[bytes]) -> None:
        tried[process.disk_full].add(path.suffix)
        real(process, path, pieces)

    monkeypatch.setattr(core, "_write", write)
    full = [Fault(6.5, "disk-full", which, 8.0) for which in range(4)]
    outcome = went_well(Schedule(2, (*full, Fault(12.0, "node-dies", 1, 6.0)), recovery=recovery))
    assert outcome.acted.count("disk-full") == 4
    assert suffix in tried[True] and suffix in tried[False]


def test_a_store_that_is_full_is_written_to_again_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    real = Store.ask

    def ask(store: Store, verb: str, path: str) -> bool:
        if store.full and verb == "write":
            refused.append(path)
        return real(store, verb, path)

    monkeypatch.setattr(Store, "ask", ask)
    went_well(Schedule(4, (Fault(7.0, "store-full", 0, 6.0), Fault(8.0, "node-dies", 2, 4.0))))
    assert any("/sink/" in path for path in refused) and any("/checkpoints/" in path for path in refused)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_clocks_that_are_set_before_and_after_a_driver_begins(seed: int) -> None:
    """Batches have the stream's times, and nothing that lives is taken for dead."""
    which = range(0, 30, 5)
    clocks = tuple(Fault(4.0 + i, "clock-set", w) for i, w in enumerate(which))
    outcome = went_well(Schedule(seed, (*clocks, Fault(6.5, "driver-dies"), Fault(8.0, "node-dies", 1, 4.0))))
    assert outcome.acted.count("clock-set") == len(which)


def test_states_in_pages_are_restored_from_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: list[int] = []
    real = checkpoints.decode_pages

    def decode(data: bytes, fetch: page_file.Fetch) -> dict[str, pa.Table]:
        def counted(path: str, span: page_file.Span) -> bytes:
            elsewhere.append(len(span.pages))
            return fetch(path, span)

        return real(data, counted)

    monkeypatch.setattr(checkpoints, "decode_pages", decode)
    faults = (Fault(12.0, "rack-dies", 0, 4.0), Fault(15.0, "driver-dies"))
    went_well(Schedule(7, faults, checkpoint=", state: paged, localCopies: 0"))
    assert sum(elsewhere) > 0, "pages that did not change since an earlier snapshot are in its file"


@pytest.mark.parametrize(("which", "how"), [(range(6), "waited for"), (range(6, 12), "refused")])
def test_nodes_that_cannot_fetch_from_each_other_hold_up_what_is_between_them_alone(
    which: range, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pairs of four nodes: so some job has messages on a link that is cut.  Jobs fail, or wait until the link is whole;
    nobody is taken for lost, and no row is lost or doubled."""
    failed, waited = list[str](), list[float]()
    real, run_job = Engine._after_failure, WorldJobs.run

    def after(engine: Engine, error: DataPlaneError, slots: list[str], cancelled: bool) -> None:
        failed.append(str(error))
        real(engine, error, slots, cancelled)

    def timed(jobs: WorldJobs, *arguments: Any) -> list[Report]:
        began = jobs._world.now
        try:
            return run_job(jobs, *arguments)
        finally:
            waited.append(jobs._world.now - began)

    monkeypatch.setattr(Engine, "_after_failure", after)
    monkeypatch.setattr(WorldJobs, "run", timed)
    cuts = tuple(Fault(8.0, "nodes-cut", one, 14.0) for one in which)
    outcome = went_well(Schedule(3, cuts, exchange="chained"))
    assert outcome.acted.count("nodes-cut") == 6
    assert sum(f"it is {how}" in line for line in outcome.told) == 6
    if how == "refused":
        assert sum("FetchFailed" in said for said in failed) > 2
        assert max(waited) < 12.0, (
            "a slow task and a refusal take ten seconds together, and the links are cut for fourteen"
        )
    else:
        assert not failed
        assert max(waited) > 10.0
    assert not any("is dead" in line for line in outcome.told)


@pytest.mark.parametrize(
    ("kind", "which", "reason"),
    [
        pytest.param("nodes-cut", range(6), "has not answered for 10 s", id="cut", marks=pytest.mark.wide),
        pytest.param("nodes-cut", range(6, 12), "has ended", id="refused", marks=pytest.mark.wide),
        pytest.param(
            "one-way-cut", range(12), "has not answered for 10 s", id="one way", marks=pytest.mark.wide
        ),
        pytest.param("relay-dies", range(1), "has ended", id="relay"),
    ],
)
def test_where_frames_do_not_arrive_another_exchange_begins_and_nobody_is_lost(
    kind: str, which: range, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, exchanges = list[str](), list[int]()
    real, begin = Engine._after_failure, Exchanges.begin

    def after(engine: Engine, error: DataPlaneError, slots: list[str], cancelled: bool) -> None:
        failed.append(str(error))
        real(engine, error, slots, cancelled)

    def begun(all_of_them: Exchanges, hosts: Sequence[str], changed: Callable[[], None]) -> Exchange:
        found = begin(all_of_them, hosts, changed)
        exchanges.append(found.number)
        return found

    monkeypatch.setattr(Engine, "_after_failure", after)
    monkeypatch.setattr(Exchanges, "begin", begun)
    outcome = went_well(Schedule(3, tuple(Fault(8.0, kind, one, 14.0) for one in which)))
    assert outcome.acted == (kind,) * len(which)
    assert any(reason in said for said in failed), failed
    assert len(exchanges) > 1
    assert not any("is dead" in line for line in outcome.told)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("folder", [name for name in RECORDS if name not in (CLOCKS, SKIPPED)])
def test_each_kind_of_record_is_refused_and_nothing_breaks(folder: str, once: bool) -> None:
    """Some are written with a new driver alone."""
    which = RECORDS.index(folder) + len(RECORDS) * once
    refused = Fault(6.0, "record-refused", which, 9.0)
    outcome = went_well(Schedule(4, (refused, Fault(6.2, "driver-dies"), Fault(7.0, "node-dies", 1, 4.0))))
    hits = [line for line in outcome.told if f"checkpoints/{folder}" in line and "is refused" in line]
    assert hits
    assert len(hits) == 1 or not once


def test_a_stream_that_is_paused_stands_still_and_goes_on() -> None:
    lost = Fault(7.0, "node-dies", 1, 4.0)
    outcome = went_well(Schedule(4, (Fault(6.0, "paused", 0, 30.0), lost)))
    assert outcome.virtual_s > went_well(Schedule(4, (lost,))).virtual_s + 5.0


def test_what_else_differs_is_drawn_for_some_seeds() -> None:
    drawn = [Schedule.of(seed) for seed in range(200)]
    assert 20 < sum(one.live for one in drawn) < 70
    assert 10 < sum(LITTLE_ROOM in one.recovery for one in drawn) < 40
    assert 4 < sum(any(f.kind == "query-skipped" for f in one.faults) for one in drawn) < 40
    assert {"record-refused", "paused"} <= {fault.kind for one in drawn for fault in one.faults}
