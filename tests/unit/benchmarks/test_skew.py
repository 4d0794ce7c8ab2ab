"""The benchmark of hot keys: what it refuses, its search for a rate, and its figures from records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import checkpoints, skew
from benchmarks.skew_cases import (
    ORDERS,
    PROTOCOLS,
    QUERIES,
    Query,
    Size,
    Way,
    refusals,
    resource,
    sustainable,
)
from benchmarks.skew_measure import (
    Figures,
    Watch,
    figures,
    late_in_halves,
    longest,
    quantile,
    rows,
    same,
    slowest,
    state_files,
    uneven_ends,
)
from benchmarks.skew_probe import APPLIED, FROZEN, read_notes
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import expand

SIZE = Size(3, 10)
ALIGNED, ARRIVAL = Way("aligned", "coordinated"), Way("arrival", "coordinated")
WAYS = [Way(order, protocol) for order in ORDERS for protocol in PROTOCOLS]


# -- what is run ---------------------------------------------------------------------------------------------------------


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


# -- figures -------------------------------------------------------------------------------------------------------------


def test_quantiles_count_rows() -> None:
    assert quantile([(1.0, 98), (9.0, 2)], 0.5) == 1.0
    assert quantile([(9.0, 2), (1.0, 98)], 0.99) == 9.0
    assert quantile([], 0.5) is None


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


def test_a_run_that_came_to_nothing_has_no_figures(tmp_path: Path) -> None:
    result = RunResult(Outcome.TIMEOUT, tmp_path, {}, {})
    assert figures(result, tmp_path, Watch(), ALIGNED, {}) == Figures("timeout")


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


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


# -- the other benchmark of protocols ------------------------------------------------------------------------------------


def test_checkpoints_in_the_order_of_arrival_are_rounds_or_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoints._options(["--out", "x", "--order", "arrival"]).runs == ["coordinated", "checkpointed"]
    assert checkpoints._options(["--out", "x"]).runs == list(checkpoints.RUNS)
    with pytest.raises(SystemExit):
        checkpoints._options(["--out", "x", "--order", "arrival", "--runs", "memory"])
    assert "spec.checkpoint.log" in capsys.readouterr().err
