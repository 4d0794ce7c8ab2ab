"""The benchmark of ways to come back: its topologies are valid, its windows are what they say, and what it reads of
records and writes into the documentation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import availability, command
from benchmarks.availability_cases import (
    ACTIVE,
    AMNESIA,
    BACKUP,
    CHECKPOINT,
    EVERY,
    FIG_6,
    MODES,
    PASSIVE,
    TABLE_6,
    TABLE_7,
    TABLE_8,
    TOP,
    TWO_OF_FOUR,
    Case,
    cases,
)
from benchmarks.availability_measure import (
    CpuWatch,
    Figures,
    again,
    as_promised,
    marked,
    source_bytes,
    standstill,
)
from benchmarks.availability_parts import Sliding
from benchmarks.availability_report import NO_BYTES, grids, markdown
from reprise.controller.local.report.compare import Comparison
from reprise.controller.local.report.history import Writes
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.scheduler.placement import spread
from reprise.spark_jobs.contract import Inbox, Input, Place
from reprise.spark_jobs.node.wire import encode_table
from reprise.spark_jobs.topology import check, expand
from reprise.spark_jobs.topology.binding import unbound

ALL = frozenset(availability.TABLES)
PLACE = Place("lost", 0, 1)


@pytest.mark.parametrize("case", list(cases(ALL, wide=True)), ids=lambda case: case.name)
def test_each_run_is_of_a_valid_topology(case: Case) -> None:
    resource = case.resource
    check(resource)
    assert list(unbound(resource)) == []
    assert case.lost_at % EVERY not in (0, EVERY - 1), "it is behind a checkpoint"
    chosen = {o.name for o in resource.operators if o.availability == case.mode}
    top = {f"{name}{number}" for name in ("window", "query") for number in range(TOP)}
    assert chosen == (top if case.table == TWO_OF_FOUR else {"lost"}) or case.mode == CHECKPOINT


def test_the_source_of_the_run_that_loses_two_nodes_is_on_neither() -> None:
    """Else every query waits for a plan, whatever the mode of its operators is."""
    (case,) = (c for c in cases(ALL) if c.table == TWO_OF_FOUR and c.mode == PASSIVE)
    costs = {p.id: p.cpu_milli for p in expand(case.resource).partitions.values()}
    at = spread(costs, costs, {f"n{k}": 1000 for k in range(1, 5)})
    assert at is not None and at["source.0"] not in case.kills
    assert len({at[p] for p in at if p.startswith("query") and at[p] in case.kills}) > 0


def test_the_usual_runs_take_less_than_twenty_minutes_and_are_among_all() -> None:
    usual, wide = list(cases(ALL)), list(cases(ALL, wide=True))
    assert sum(case.seconds for case in usual) < 20 * 60
    assert set(usual) < set(wide)
    assert len({case.name for case in wide}) == len(wide)
    assert {(c.operator, c.mode) for c in wide if c.table == TABLE_6} == {
        (operator, mode) for operator in ("filter", "aggregate", "union") for mode in MODES
    }
    assert len([c for c in usual if c.table == TABLE_6]) == 13, (
        "all that have a figure of theirs are among the usual ones"
    )


def inbox(batch: int, rows: int) -> Inbox:
    return Inbox(batch, None, (Input("source", "source.0", pa.table({"tweet": list(range(rows))})),))


@pytest.mark.parametrize("chain", [1, 3])
def test_windows_that_are_begun_anew_at_their_oldest_batch_give_the_same(chain: int) -> None:
    operator = Sliding(size=4, advance=2, chain=chain)
    state, seen = operator.initial(PLACE), {}
    for batch in range(1, 31):
        state, table = operator.step(state, inbox(batch, batch % 5))
        seen[batch] = None if table is None else table.to_pylist()
        state = operator.restore(PLACE, operator.freeze(state)())
    assert seen[30] is not None and seen[29] is None
    if chain == 1:
        assert seen[30] == [{"batch": 30, "n": sum(b % 5 for b in range(27, 31))}]
    first = operator.oldest_needed(30)
    assert first == 30 - chain * 3
    again_state = operator.initial(PLACE)
    for batch in range(first, 31):
        again_state, table = operator.step(again_state, inbox(batch, batch % 5))
    assert table is not None and table.to_pylist() == seen[30]


def test_the_longest_time_without_a_batch_begins_before_the_kill() -> None:
    written = np.array([1.0, 2.0, 3.0, 6.0, 6.5, 7.0])
    writes = Writes(np.arange(1, 7), written, written)
    assert standstill(writes, 3.5) == (6.0, 3.0)
    assert standstill(writes, 0.5) is None
    assert standstill(writes, 9.0) is None


@pytest.mark.parametrize(
    ("mode", "log", "expected"),
    [
        (BACKUP, "event=upstream-backup partition=lost.0 position=12 low=29", 18),
        (PASSIVE, "event=standby-promoted partition=lost.0 node=n4 position=27", 3),
        (PASSIVE, "event=standby-promoted partition=other.0 node=n4 position=27", None),
        (CHECKPOINT, "", 10),
        (AMNESIA, "", 0),
    ],
)
def test_what_is_made_again_is_counted_from_what_was_shown(
    tmp_path: Path, mode: str, log: str, expected: int | None
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "driver.log").write_text(f"a line\n{log}\n")
    result = RunResult(Outcome.DONE, tmp_path, {}, {"incidents": [{"checkpoint": 20}]})
    times = np.arange(1.0, 41.0)
    writes = Writes(np.arange(1, 41), times, times)
    assert again(Case(TABLE_6, "filter", mode, "filter"), result, writes, 30.5) == expected


def test_only_batches_that_are_marked_may_differ(tmp_path: Path) -> None:
    folder = tmp_path / "sink" / "out" / "0"
    folder.mkdir(parents=True)
    for name in ("batch-00000003.jsonl", "batch-00000004.jsonl", "batch-00000004.gap.mark"):
        (folder / name).touch()
    marks = marked(tmp_path)
    assert marks == {("out.0", 4)}
    for different, extra, promised in ((4, 0, True), (3, 0, False), (4, 9, False)):
        more = (("out.0", extra),) if extra else ()
        assert as_promised(Comparison(1, (), more, (("out.0", different),), ()), marks) is promised


def test_cpu_and_bytes_are_those_of_the_batches_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([(5, 0.0), (12, 1.0), (40, 2.4), (79, 9.0)])
    now = iter(range(10))
    watch = CpuWatch(until=80)
    monkeypatch.setattr("benchmarks.availability_measure.time.monotonic", lambda: next(now))
    for batch, cpu in looks:
        monkeypatch.setattr("benchmarks.availability_measure.hosts_cpu_s", lambda cpu=cpu: cpu)
        watch(_state(batch), None)
    assert watch.ms_a_batch == pytest.approx(1400 / 28)
    assert watch.sent == (100.0, 30.0, 7.0)
    assert CpuWatch(until=80).ms_a_batch is None
    assert CpuWatch(until=80).sent == (None, None, None)


def _state(horizon: int) -> object:
    class Progress:
        pass

    progress, observation, state = Progress(), Progress(), Progress()
    progress.horizon, observation.progress, state.observation = horizon, progress, observation  # type: ignore[attr-defined]
    sent = {"message_bytes": 100, "standby_bytes": 30, "acknowledgement_bytes": 7}
    applied = horizon - (4 if horizon < 20 else 1)
    progress.positions = {"source.0": horizon, "out.0": applied}  # type: ignore[attr-defined]
    progress.stored = {name: each * applied + 5 for name, each in sent.items()}  # type: ignore[attr-defined]
    return state


def run_of(table: str, row: str, mode: str, **more: object) -> Figures:
    return Figures(table, row, mode, "done", same=True, **more)  # type: ignore[arg-type]


def test_medians_stand_beside_their_figures_and_the_replay_of_their_model() -> None:
    runs = [run_of(TABLE_6, "filter", BACKUP, detection_s=1.0, after_s=r, again=3) for r in (2.0, 9.0, 3.0)]
    window = run_of(TABLE_7, "window 300", BACKUP, again=70)
    advance = run_of(TABLE_8, "advance 5", PASSIVE)
    sixth, seventh, eighth = grids([*runs, window, advance])
    (row,) = sixth.rows
    assert row[0] == "filter, upstream-backup"
    assert (row[1], row[3], row[4], row[7], row[-1]) == ("47.62", "60", "15", "3.00", "3")
    assert float(row[2]) == pytest.approx(47.62, rel=0.1)
    assert seventh.rows[0][1:5] == ("138.70", seventh.rows[0][2], "360", "350")
    assert (eighth.rows[0][1], eighth.rows[0][5]) == ("51.60", "-")


def test_rows_of_sources_are_as_many_bytes_as_their_messages() -> None:
    one, two = (source_bytes(Case(TABLE_6, o, CHECKPOINT, o).resource) for o in ("filter", "union"))
    assert two == pytest.approx(2 * one, rel=0.02)
    table = pa.table({"tweet": pa.array(range(200), pa.int64())})
    assert one > len(encode_table(table)), "200 rows a batch, of more columns than that"


def test_bytes_for_availability_stand_beside_theirs() -> None:
    sent: dict[str, object] = {"source_b": 1000.0, "rows_b": 1500.0, "acknowledgements_b": 10.0}
    found = [
        run_of(TABLE_6, "filter", CHECKPOINT, **sent | {"standbys_b": 0.0, "acknowledgements_b": 0.0}),
        run_of(TABLE_6, "aggregate", ACTIVE, **sent, standbys_b=1000.0),
        run_of(TABLE_6, "union", BACKUP, **sent, standbys_b=0.0),
        run_of(TABLE_7, "window 300", PASSIVE, **sent, standbys_b=1115.4),
        run_of(TABLE_7, "window 300", BACKUP),
        run_of(TABLE_8, "advance 5", PASSIVE, **sent, standbys_b=1200.0),
        run_of(FIG_6, "200 ms", PASSIVE, **sent, standbys_b=1100.0),
    ]
    (grid,) = [grid for grid in grids(found) if grid.title.startswith("Bytes")]
    assert [row[:4] for row in grid.rows] == [
        ("Table 6: filter, checkpoint", "", "", "0.00"),
        ("Table 6: aggregate, active-standby", "100.96", "100.96", "101.00"),
        ("Table 6: union, upstream-backup", "1.28", "1.28", "1.00"),
        ("Table 7: window 300, passive-standby", "111.54", "111.55", "112.54"),
        ("Table 8: advance 5, passive-standby", "121.50", "121.55", "121.00"),
        ("Fig. 6: 200 ms, passive-standby", "", grid.rows[-1][2], "111.00"),
    ]
    assert 60 < float(grid.rows[-1][2]) < 100, (
        "a tuple that left the window meanwhile is in no checkpoint of theirs"
    )
    assert NO_BYTES not in markdown(found, "Taken so.")
    assert NO_BYTES in markdown([run_of(TABLE_6, "filter", AMNESIA)], "Taken so.")


def test_availability_lost_stands_beside_the_cpu_that_it_costs() -> None:
    usual = run_of(TWO_OF_FOUR, "five queries", CHECKPOINT, lost_s=8.0, cpu_ms=50.0)
    active = run_of(TWO_OF_FOUR, "five queries", "active-standby", lost_s=2.0, cpu_ms=75.0)
    (grid,) = grids([usual, active])
    assert [(row[0], row[2], row[5]) for row in grid.rows] == [
        ("checkpoint", "1.00", "1.00"),
        ("active-standby", "0.25", "1.50"),
    ]


def test_figures_of_before_are_put_into_a_document(tmp_path: Path) -> None:
    saved = {"conditions": "Taken so.", "runs": [asdict(run_of(TABLE_6, "filter", AMNESIA, after_s=1.5))]}
    (tmp_path / "availability.json").write_text(json.dumps(saved))
    document, (begin, end) = tmp_path / "figures.md", command.marks(availability.FIGURES)
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for _ in range(2):
        given = ["--from", str(tmp_path / "availability.json"), "--write", str(document)]
        assert availability.main(given) == 0
    text = document.read_text()
    assert text.startswith(f"before\n{begin}\n\nTaken so.\n") and text.endswith(f"\n{end}\nafter\n")
    assert "| filter, amnesia |" in text and "old" not in text
    assert text.count("Taken so.") == 1
    with pytest.raises(ValueError, match="are needed"):
        command.put_figures(tmp_path / "availability.json", availability.FIGURES, "")
