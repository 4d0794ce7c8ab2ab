"""The benchmark of hot keys: what it runs and refuses, its search for a rate, and its figures from records."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks import checkpoints, skew
from benchmarks.skew_cases import (
    ORDERS,
    PROTOCOLS,
    QUERIES,
    UNGUARDED,
    Case,
    Query,
    Size,
    Way,
    cases,
    refusals,
    resource,
    sustainable,
    unpaced,
)
from benchmarks.skew_measure import (
    Figures,
    Second,
    Watch,
    by_second,
    figures,
    halves,
    late_in_halves,
    lateness,
    longest,
    quantile,
    rows,
    same,
    slowest,
    state_files,
    stored,
    uneven_ends,
)
from benchmarks.skew_probe import (
    APPLIED,
    BALLAST,
    FROZEN,
    NotedJoin,
    NotedRunningAggregate,
    NotedSink,
    read_notes,
)
from benchmarks.skew_report import Measured, grids, plot, plot_seconds, plot_states, rates_grid, theirs
from reprise.contract import Inbox, Input, Place
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import CheckpointRecord
from reprise.scheduler.model import Progress
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import expand

SIZE = Size(3, 10)
ALIGNED, ARRIVAL = Way("aligned", "coordinated"), Way("arrival", "coordinated")
WAYS = [Way(order, protocol) for order in ORDERS for protocol in PROTOCOLS]


# -- what is run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", QUERIES)
def test_one_partition_of_everything_a_worker_and_a_lost_node_has_room_elsewhere(query: str) -> None:
    found = resource(query, ALIGNED, 4000, 0.2, 80, SIZE)
    assert {s.parallelism for s in found.sources} == {3} == {o.parallelism for o in found.operators}
    assert found.nodes.count == 3
    assert {s.parameters["hot"] for s in found.sources} == {0.2}
    assert {s.parameters["rate"] for s in found.sources} == {4000}
    needed = sum(p.cpu_cores for p in expand(found).partitions.values())
    assert needed <= found.recovery.cpu_cap * (found.nodes.count - 1) * found.nodes.cpu_cores


@pytest.mark.parametrize("query", QUERIES)
def test_the_operators_that_note_give_the_rows_of_those_of_the_library(query: str, tmp_path: Path) -> None:
    plain = resource(query, ALIGNED, 600, 0.3, 25, Size(2, 5))
    noted = resource(query, ALIGNED, 600, 0.3, 25, Size(2, 5, tmp_path))
    outputs = list(expand(plain).queries)
    seen = 0
    for one, other in zip(run_local(plain), run_local(noted), strict=True):
        for output in outputs:
            expected, found = one[output], other[output]
            if expected is None:
                assert found is None
            else:
                assert found is not None and expected.equals(found)
                seen += expected.num_rows
    applied = sum(n for _, note in read_notes(tmp_path, APPLIED) for _, n in note["rows"])
    assert seen == applied > 0


def test_the_order_of_arrival_is_refused_with_communication_induced_checkpoints() -> None:
    found = refusals(list(QUERIES), WAYS, SIZE)
    assert set(found) == {w for w in WAYS if w.order == "arrival" and w.protocol == "communication-induced"}
    assert all("spec.checkpoint.protocol" in reason for reason in found.values())


def test_windows_of_processing_time_end_with_a_round() -> None:
    q8, size = QUERIES["q8"], Size(3, 10)
    assert q8.window is not None and q8.window % size.every == 0
    assert resource("q8", ARRIVAL, 4000, 0.0, 80, size).checkpoint.every_batches == 10
    assert resource("q3", ARRIVAL, 4000, 0.0, 80, size).checkpoint.interval_s == 5.0


def test_rates_are_shares_of_what_is_sustained_and_the_same_input_comes_together() -> None:
    rates = {("q3", ALIGNED): 1000.0, ("q3", ARRIVAL): 1000.0}
    found = list(cases(["q3"], [0.5, 0.8], [0.0, 0.3], rates))
    assert [c.rate for c in found] == [500] * 4 + [800] * 4
    inputs = [c.same_input for c in found]
    assert inputs == sorted(inputs, key=inputs.index) and len(set(inputs)) == 4
    assert list(cases(["q8"], [0.5], [0.0], rates)) == []
    own = list(cases(["q3"], [0.5], [0.0], {**rates, ("q3", ARRIVAL): 600.0}))
    assert [c.rate for c in own] == [500, 300]
    assert len({c.folder for c in found}) == len(found)


@pytest.mark.parametrize(
    ("limit", "precision", "expected"),
    [
        (700, 0.25, 625.0),
        (1000, 0.05, 968.75),
        (1000, 0.25, 750.0),
        (90, 0.25, 78.125),
        (60, 0.25, 0.0),
        (0, 0.25, 0.0),
    ],
)
def test_the_rate_is_found_by_halving(limit: float, precision: float, expected: float) -> None:
    tried = list[float]()

    def holds_up_to(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    assert sustainable(1000, precision, holds_up_to) == expected
    assert len(tried) <= 6
    assert all(rate < 1000 for rate in tried)
    too_fast = [rate for rate in tried if rate > limit]
    if expected and too_fast:
        assert min(too_fast) - expected <= precision * min(too_fast)


@pytest.mark.parametrize(
    ("cost_of_a_batch_s", "tried"),
    [(0.0, [1000, 100_000]), (0.2, [1000, 2450, 5810]), (0.9, [1000])],
)
def test_the_unpaced_rate_is_that_of_batches_as_large_as_at_that_rate(
    cost_of_a_batch_s: float, tried: list[int]
) -> None:
    """A row takes 10 us, and batches come twice a second."""
    asked = list[int]()

    def throughput(rate: int) -> float:
        asked.append(rate)
        return rate / 2 / (cost_of_a_batch_s + rate / 2 * 1e-5)

    found = unpaced(1000, throughput)
    assert asked == pytest.approx(tried, rel=0.02)
    assert found == pytest.approx(tried[-1] / 2 / (cost_of_a_batch_s + tried[-1] / 2 * 1e-5), rel=0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--hot", "1.5"],
        ["--shares", "0"],
        ["--precision", "1"],
        ["--batches", "20"],
        ["--nodes", "1"],
        ["--rate", "0"],
        ["--rates", "--rate", "50"],
        ["--states", "-1"],
        ["--states", "5", "--queries", "q1", "q3"],
    ],
)
def test_options_that_mean_nothing(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        skew._options(["--out", "x", *wrong])
    assert wrong[0] in capsys.readouterr().err


def test_all_of_the_paper_is_one_option_and_others_narrow_it() -> None:
    found = skew._options(["--out", "x", "--all", "--queries", "q12"])
    assert (found.queries, found.hot, found.shares) == (["q12"], [0.0, 0.1, 0.2, 0.3], [0.5, 0.8])


# -- figures -------------------------------------------------------------------------------------------------------------


def test_quantiles_count_rows() -> None:
    assert quantile([(1.0, 98), (9.0, 2)], 0.5) == 1.0
    assert quantile([(9.0, 2), (1.0, 98)], 0.99) == 9.0
    assert quantile([], 0.5) is None


def test_which_batches_are_before_and_after() -> None:
    due = {b: float(b) for b in range(1, 42)}
    before, after = halves(due, 21.0)
    assert before == frozenset(range(11, 21))
    assert after == frozenset(range(31, 42))


def test_lateness_is_by_the_batch_that_a_row_came_with() -> None:
    notes = [{"at": 5.0, "rows": [[3, 7], [4, 2]]}, {"at": 6.0, "rows": [[9, 1]]}]
    assert lateness(notes, {3: 2.0, 4: 4.5}, frozenset({3, 4})) == [(3.0, 7), (0.5, 2)]


@pytest.mark.parametrize(("slower", "expected"), [(0.0, True), (0.04, True), (0.06, False)])
def test_a_rate_holds_while_output_gets_no_later_by_more_than_two_batches(
    slower: float, expected: bool
) -> None:
    done = {b: (b / 2, b / 2 + 3.0 + slower * b) for b in range(1, 61)}
    late = late_in_halves(done, 21)
    assert late is not None and late.holds is expected
    assert late.first == pytest.approx(3.0 + slower * 30.5)


def test_a_rate_does_not_hold_where_nothing_came_out() -> None:
    assert late_in_halves(dict.fromkeys(range(1, 4), (0.0, 1.0)), 1) is None


@pytest.mark.long
@pytest.mark.parametrize(("more", "expected"), [(-1, False), (0, True), (1, True)])
def test_a_rate_holds_only_where_every_batch_came_out(
    more: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream ends with a batch of its own."""
    bench = skew.Bench(skew._options(["--out", "x", "--warm", "5", "--hold", "10"]), Console(quiet=True))
    done = {b: (b / 2, b / 2 + 1.0) for b in range(1, 31 + more)}
    monkeypatch.setattr(bench, "_plain", lambda *_: done)
    assert bench._holds(cast(EmbeddedCluster, None), "q3", ALIGNED, 1000.0) is expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], {ALIGNED: 900.0, ARRIVAL: 900.0}),
        (["--own"], {ALIGNED: 900.0}),
        (["--own", "--rate", "50"], {ALIGNED: 50.0, ARRIVAL: 50.0}),
    ],
)
def test_all_have_the_rate_of_the_first_way_or_each_its_own_and_who_sustains_none_is_left_out(
    more: list[str], expected: dict[Way, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = skew.Bench(
        skew._options(["--out", "x", "--protocols", "coordinated", *more]), Console(quiet=True)
    )
    found = {ALIGNED: 900.0, ARRIVAL: 0.0}
    monkeypatch.setattr(bench, "_sustained", lambda _cluster, _query, way: found[way])
    bench._measure_rates(cast(EmbeddedCluster, None), "q3")
    assert bench.rates == {("q3", way): rate for way, rate in expected.items()}


def test_each_way_and_no_checkpoints_have_a_rate_and_nothing_else_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = skew._options(["--out", str(tmp_path), "--rates", "--orders", "aligned", "--queries", "q1"])
    bench = skew.Bench(options, Console(quiet=True))
    sustained = {"none": 1000.0, "coordinated": 900.0, "uncoordinated": 0.0, "communication-induced": 450.0}
    monkeypatch.setattr(bench, "_sustained", lambda _cluster, _query, way: sustained[way.protocol])
    monkeypatch.setattr(skew, "EmbeddedCluster", lambda _config: nullcontext())
    bench.run()
    bench.write()
    assert bench.found == []
    (grid,) = [rates_grid(bench.rates)]
    assert [row[:4] for row in grid.rows] == [
        ("Q1", "aligned, none", "1,000", "-"),
        ("Q1", "aligned, coordinated", "900", "90%"),
        ("Q1", "aligned, communication-induced", "450", "45%"),
    ]
    assert "| 90% |" in (tmp_path / "skew.md").read_text()


def test_no_checkpoint_is_due_in_a_run_without() -> None:
    for query in QUERIES:
        checkpoint = resource(query, UNGUARDED, 4000, 0.0, 80, SIZE).checkpoint
        assert checkpoint.protocol == "coordinated" and checkpoint.interval_s is None
        assert checkpoint.every_batches is not None and checkpoint.every_batches > 80


def test_latency_by_the_second_counts_rows_from_the_kill() -> None:
    due = {1: 8.0, 2: 9.0, 3: 10.0}
    applied = [
        {"at": 9.25, "rows": [[1, 10]]},
        {"at": 9.75, "rows": [[1, 1], [2, 1], [99, 5]]},
        {"at": 12.5, "rows": [[3, 4]]},
    ]
    assert by_second(applied, due, 10.0) == (Second(-1, 1.25, 1.75, 12), Second(2, 2.5, 2.5, 4))


def test_latency_is_drawn_over_time(tmp_path: Path) -> None:
    seconds = (Second(-1, 0.5, 0.75, 10), Second(4, 2.0, 3.0, 10))
    one = Measured(Case("q3", ALIGNED, 0.5, 0.0, 500), Figures("done", seconds=seconds), True, (1.0, 2.0))
    assert plot_seconds([one], "q3", tmp_path / "one.png").stat().st_size > 0
    none = Measured(one.case, Figures("failed"), True, (1.0, 2.0))
    assert plot_seconds([none], "q3", tmp_path / "none.png").stat().st_size > 0


def test_states_are_larger_in_the_runs_that_say_so(tmp_path: Path) -> None:
    found = list(cases(["q3"], [0.5], [0.0], {("q3", ALIGNED): 1000.0}, [0, 30]))
    assert [case.ballast for case in found] == [0, 30]
    assert len({case.folder for case in found}) == 2 and len({case.same_input for case in found}) == 1
    noted = resource("q3", ALIGNED, 500, 0.0, 80, Size(3, 10, tmp_path, 30))
    assert noted.operator("join").parameters["ballast"] == 30


def test_ballast_is_stored_and_read_with_the_state(tmp_path: Path) -> None:
    place = Place("count", 0, 1)
    parameters: dict[str, Any] = {"keys": ["k"], "aggregate": {"seen": "count()"}, "notes": str(tmp_path)}
    first = NotedRunningAggregate(ballast=2, **parameters)
    tables = first.freeze(first.initial(place))()
    stored_bytes = tables[BALLAST]["bytes"].to_pylist()
    assert [len(one) for one in stored_bytes] == [2**20, 2**20] and stored_bytes[0] != stored_bytes[1]
    second = NotedRunningAggregate(ballast=2, **parameters)
    again = second.freeze(
        second.restore(place, {n: t.slice(0, 1) if n == BALLAST else t for n, t in tables.items()})
    )()
    assert again[BALLAST].num_rows == 1, "it is what was read"
    assert BALLAST not in NotedRunningAggregate(**parameters).freeze(first.initial(place))()


def test_restart_is_drawn_by_the_size_of_states(tmp_path: Path) -> None:
    runs = [
        Measured(Case("q3", ALIGNED, 0.5, 0.0, 500, mib), Figures("done", restart=s), True, (1.0, 2.0))
        for mib, s in ((0, 2.0), (30, 3.0))
    ]
    assert plot_states(runs, "q3", tmp_path / "states.png").stat().st_size > 0
    (grid,) = grids(runs, {}, {("q3", ALIGNED): 1000.0})
    found = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    assert [(row["state +, MiB"], row["restart, s"]) for row in found] == [("0", "2.00"), ("30", "3.00")]


def test_a_snapshot_is_stored_when_its_own_file_is() -> None:
    frozen = [
        ("join.0", {"batch": 10, "at": 5.0}),
        ("join.0", {"batch": 20, "at": 9.0}),
        ("join.1", {"batch": 10, "at": 7.0}),
    ]
    assert stored(frozen, {("join.0", 10): 5.5, ("join.1", 10): 6.0}) == [0.5]


def test_figures_of_a_run(tmp_path: Path) -> None:
    """Batches are due every second from 1 on; the kill comes at 21."""
    out, notes = tmp_path / "run", tmp_path / "notes"
    notes.mkdir()
    applied = [{"at": b + (2.0 if b < 21 else 4.0), "rows": [[b, 10]]} for b in range(1, 42)]
    _write(notes / f"{APPLIED}.sink.0.7.jsonl", applied)
    _write(notes / f"{FROZEN}.join.0.7.jsonl", [{"batch": 10, "at": 12.0, "pause_s": 0.003}])
    state = out / "checkpoints" / "cp-00000010" / "join.0.a.state"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"")
    os.utime(state, (12.25, 12.25))
    queries = {
        "sink.0": {"restored_after_s": 2.0, "recovery_s": 8.0, "at_least_s": None},
        "sink.1": {"restored_after_s": 3.0, "recovery_s": 7.0, "at_least_s": None},
    }
    told = {"timeline": [{"what": "kill", "time": 21.0}], "incidents": [{"queries": queries}]}
    result = RunResult(Outcome.DONE, out, {}, told)
    watch = Watch({10: (12.6, 0.9), 30: (33.0, 5.0)}, [(19.0, 2), (20.5, 3), (23.0, 40)])
    done = {b: (float(b), b + 2.5) for b in range(1, 42)}
    found = figures(result, notes, watch, ARRIVAL, done)
    assert (found.p50_before, found.p99_before, found.shown_before) == (2.0, 2.0, 2.5)
    assert (found.p50_after, found.p99_after) == (4.0, 4.0)
    assert (found.pause_ms, found.stored) == (3.0, 0.25)
    assert (found.complete, found.behind) == (0.9, 3)
    assert [(second.at, second.p50) for second in found.seconds][:2] == [(-18, 2.0), (-17, 2.0)]
    assert found.seconds[-1].p50 == 4.0 and sum(second.rows for second in found.seconds) == 410
    assert (found.outcome, found.incidents, found.restart, found.recovery) == ("done", 1, 3.0, 8.0)
    own_clocks = figures(result, notes, watch, Way("aligned", "uncoordinated"), done)
    assert own_clocks.complete is None
    assert state_files(out) == {("join.0", 10): 12.25}


def test_a_time_that_one_query_did_not_reach_is_not_known() -> None:
    reached: dict[str, Any] = {"a": {"recovery_s": 3.0}, "b": {"recovery_s": 9.0}}
    assert slowest([{"queries": reached}, {"queries": {"a": {"recovery_s": 99.0}}}], "recovery_s") == 9.0
    assert slowest([{"queries": {**reached, "c": {"recovery_s": None}}}], "recovery_s") is None
    assert longest([{"queries": {**reached, "c": {"recovery_s": None}}}], "recovery_s") == 9.0
    assert slowest([], "recovery_s") is None


def test_a_watch_counts_from_the_slowest_output_and_keeps_each_round() -> None:
    looking_on, watch = Watch(), Watch(outputs=("sink.0", "sink.1"))
    for number, positions in enumerate([{"sink.0": 3}, {"sink.0": 5, "sink.1": 3}], 1):
        progress = Progress("driver", time=float(number), due=9, positions={**positions, "join.0": 1})
        checkpoint = CheckpointRecord(position=2 * number, time=float(number), seconds=0.5)
        seen = Observation(0.0, progress=progress, checkpoint=checkpoint)
        for one in (looking_on, watch):
            one(cast(RunState, SimpleNamespace(observation=seen)), [])
    assert watch.lags == [(2.0, 6)]
    assert watch.rounds == looking_on.rounds == {2: (1.0, 0.5), 4: (2.0, 0.5)}
    assert looking_on.lags == []


def test_a_run_that_came_to_nothing_has_no_figures(tmp_path: Path) -> None:
    result = RunResult(Outcome.TIMEOUT, tmp_path, {}, {})
    assert figures(result, tmp_path, Watch(), ALIGNED, {}) == Figures("timeout")


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# -- notes ---------------------------------------------------------------------------------------------------------------


def test_rows_are_noted_by_the_batch_of_the_source(tmp_path: Path) -> None:
    sink, place = NotedSink(notes=str(tmp_path), interval=500_000), Place("sink", 1, 2)
    table = pa.table({"time": [0, 499_999, 500_000, 1_000_000]})
    state, found = sink.step(sink.initial(place), Inbox(9, None, (Input("join", "join.1", table),)))
    assert state is None and found is not None and found.equals(table)
    assert [(p, note["rows"]) for p, note in read_notes(tmp_path, APPLIED)] == [
        ("sink.1", [[1, 2], [2, 1], [3, 1]])
    ]


def test_a_line_that_a_kill_has_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / f"{APPLIED}.sink.0.9.jsonl").write_text('{"at": 1, "rows": []}\n{"at": 2, "ro')
    assert [note["at"] for _, note in read_notes(tmp_path, APPLIED)] == [1]


@pytest.mark.parametrize("kind", ["join", "count"])
def test_snapshots_are_noted_and_restore_what_was_frozen(kind: str, tmp_path: Path) -> None:
    operator: NotedJoin | NotedRunningAggregate
    sources: tuple[str, ...] = ("a", "b")
    if kind == "join":
        operator = NotedJoin(notes=str(tmp_path), left="a", right="b", keys=["k"])
    else:
        operator = NotedRunningAggregate(notes=str(tmp_path), keys=["k"], aggregate={"n": "count()"})
        sources = ("a",)
    place = Place(kind, 0, 1)

    def inbox(batch: int) -> Inbox:
        return Inbox(
            batch, None, tuple(Input(s, f"{s}.0", pa.table({"k": [1, 2], s: [batch, 7]})) for s in sources)
        )

    state, _ = operator.step(operator.initial(place), inbox(4))
    tables = operator.freeze(state)()
    _, expected = operator.step(state, inbox(5))
    _, again = operator.step(operator.restore(place, tables), inbox(5))
    assert expected is not None and again is not None and again.equals(expected)
    ((partition, note),) = read_notes(tmp_path, FROZEN)
    assert (partition, note["batch"]) == (f"{kind}.0", 4)
    assert note["pause_s"] >= 0


# -- outputs -------------------------------------------------------------------------------------------------------------


def _run(folder: Path, batches: dict[int, list[dict[str, Any]]], complete: tuple[int, ...] = ()) -> Path:
    files = folder / "sink" / "sink" / "0"
    files.mkdir(parents=True)
    for batch, lines in batches.items():
        _write(files / f"batch-{batch:08d}.jsonl", lines)
    for position in complete:
        manifest = folder / "checkpoints" / f"cp-{position:08d}" / "COMPLETE.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{}")
    return folder


def test_rows_in_another_order_and_other_batches_are_the_same_rows(tmp_path: Path) -> None:
    one = _run(tmp_path / "a", {1: [{"x": 1, "y": 2}, {"x": 3, "y": 4}], 2: []})
    other = _run(tmp_path / "b", {1: [{"y": 4, "x": 3}], 2: [{"x": 1, "y": 2}]})
    twice = _run(tmp_path / "c", {1: [{"x": 3, "y": 4}, {"x": 3, "y": 4}], 2: [{"x": 1, "y": 2}]})
    wrong = _run(tmp_path / "d", {1: [{"x": 3, "y": 4}], 2: [{"x": 1, "y": 9}]})
    assert same(QUERIES["q3"], (ALIGNED, ARRIVAL), (one, other)) is True
    assert same(QUERIES["q3"], (ALIGNED, ARRIVAL), (one, twice)) is False
    assert same(QUERIES["q3"], (ALIGNED, ARRIVAL), (one, wrong)) is False
    assert same(QUERIES["q3"], (ALIGNED, ALIGNED), (one, other)) is False
    assert rows(one, ("x",)) == rows(wrong, ("x",)) != rows(twice, ("x",))


def test_columns_that_depend_on_the_order_are_not_compared(tmp_path: Path) -> None:
    one = _run(
        tmp_path / "a",
        {1: [{"bidder": 1, "time": 5, "bids": 1}, {"bidder": 1, "time": 6, "bids": 2}]},
    )
    other = _run(
        tmp_path / "b",
        {1: [{"bidder": 1, "time": 6, "bids": 1}, {"bidder": 1, "time": 5, "bids": 2}]},
    )
    assert same(QUERIES["q12"], (ALIGNED, ARRIVAL), (one, other)) is True
    assert same(QUERIES["q3"], (ALIGNED, ARRIVAL), (one, other)) is False


def test_windows_that_ended_between_checkpoints_are_not_compared(tmp_path: Path) -> None:
    """Windows of two batches, 1 s: [0, 1), [1, 2) and [2, 3) s."""
    windowed = Query("q8", (), "join", "NotedJoin", window=2)

    def run(name: str, in_batch: list[int], complete: tuple[int, ...] = ()) -> Path:
        lines = [
            {"window_start": (b - 1) // 2 * 1_000_000, "x": x}
            for b, x in zip(range(1, 7), in_batch, strict=True)
        ]
        return _run(tmp_path / name, {b: [line] for b, line in enumerate(lines, 1)}, complete)

    def compared(other: Path) -> bool | str:
        return same(windowed, (ALIGNED, ARRIVAL), (one, other))

    one = run("a", [1, 2, 3, 4, 5, 6])
    even = run("b", [2, 1, 4, 3, 6, 5], complete=(2, 4, 6))
    uneven = run("c", [1, 3, 2, 4, 6, 5], complete=(3, 4, 6))
    wrong = run("d", [1, 3, 2, 4, 5, 5], complete=(3, 4, 6))
    ends = [uneven_ends(r, ARRIVAL, 2) for r in (even, uneven, wrong)]
    assert (uneven_ends(one, ALIGNED, 2), *ends) == ([], [], [2], [2])
    assert compared(even) is True
    assert "beside batch 2," in str(compared(uneven))
    assert compared(wrong) is False
    by_own_clocks = same(windowed, (ALIGNED, Way("arrival", "uncoordinated")), (one, wrong))
    assert by_own_clocks == "not compared: by own clocks no window ends with even inputs"


# -- what is shown -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "share", "hot", "expected"),
    [
        (ALIGNED, 0.5, 0.0, ("", "")),
        (ALIGNED, 0.5, 0.2, ("x 100 or more", "alike for all; no recovery in 60 s")),
        (ALIGNED, 0.8, 0.1, ("the worst, on Q3 already at 10%", "")),
        (Way("aligned", "uncoordinated"), 0.5, 0.1, ("stays low", "alike for all")),
        (ALIGNED, 0.6, 0.1, ("", "")),
        (ALIGNED, 0.5, 0.15, ("", "")),
    ],
)
def test_what_checkmate_says_stands_beside_what_it_has_run(
    way: Way, share: float, hot: float, expected: tuple[str, str]
) -> None:
    assert theirs(Case("q3", way, share, hot, 500)) == expected


@pytest.mark.long
def test_the_table_has_growth_over_no_skew_and_what_is_refused(tmp_path: Path) -> None:
    base, skewed = (
        Figures("done", p50_before=0.5, complete=1.0, restart=2.0, recovery=4.0),
        Figures("done", p50_before=2.0, complete=3.0, not_before=9.0),
    )
    found = [
        Measured(Case("q3", ALIGNED, 0.5, 0.0, 500), base, "the first of its input", (1.0, 2.0)),
        Measured(Case("q3", ALIGNED, 0.5, 0.3, 500), skewed, False, (1.0, 2.0)),
    ]
    refused = Way("arrival", "uncoordinated")
    (grid,) = grids(found, {refused: "why"}, {("q3", ALIGNED): 1000.0})
    assert "50% of what is sustainable without skew (500 of 1,000 rows/s)" in grid.title
    table = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    assert (table[1]["p50, s"], table[1]["complete, s"], table[1]["same rows"]) == ("2.00", "3.00", "**no**")
    assert [row[3] for row in grid.rows] == ["x 1.0", "x 4.0", ""]
    assert [line["recovery, s"] for line in table] == ["4.00", "over 9.00", ""]
    assert (table[2]["way"], table[2]["same rows"]) == (str(refused), "refused")
    assert plot(found, "q3", tmp_path / "skew.png").stat().st_size > 0


# -- the other benchmark of protocols ------------------------------------------------------------------------------------


def test_checkpoints_in_the_order_of_arrival_are_rounds_or_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoints._options(["--out", "x", "--order", "arrival"]).runs == ["coordinated", "checkpointed"]
    assert checkpoints._options(["--out", "x"]).runs == list(checkpoints.RUNS)
    with pytest.raises(SystemExit):
        checkpoints._options(["--out", "x", "--order", "arrival", "--runs", "memory"])
    assert "spec.checkpoint.log" in capsys.readouterr().err
