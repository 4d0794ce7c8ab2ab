"""The arithmetic of the overhead benchmark: its input, what counts as steady, ratios and their ranges."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import overhead_measure as measure
from benchmarks import overhead_report as report
from benchmarks.overhead_data import Data, write
from benchmarks.overhead_feed import Feed
from benchmarks.overhead_measure import Latency
from benchmarks.overhead_report import Measured
from benchmarks.overhead_reprise import Sample, desired, placement
from benchmarks.overhead_structured import Trigger, parse
from benchmarks.overhead_topology import FASTEST, NEVER, counting, files, nearly_empty
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import expand
from tools.testbed.waiting import until

DATA = Data(Path("nowhere"), rows=100, fill=2, batches=40)


@pytest.fixture
def written(tmp_path: Path) -> Data:
    return write(tmp_path, keys=500, rows=5, batches=3)


def test_every_file_is_a_batch_of_equal_size(written: Data) -> None:
    assert [pq.read_metadata(path).num_rows for path in written.paths] == [5] * written.total


def test_the_first_files_hold_every_key(written: Data) -> None:
    tags = {
        tag
        for path in written.paths[: written.fill]
        for row in pq.read_table(path).column("hashtags").to_pylist()
        for tag in row
    }
    assert tags == {f"tag{rank}" for rank in range(1, 501)}


def test_files_are_in_the_order_in_which_structured_streaming_takes_them(written: Data) -> None:
    times = [Path(path).stat().st_mtime for path in written.paths]
    assert times == sorted(set(times))


def test_reprise_cuts_the_files_into_the_same_batches(written: Data) -> None:
    """One file a batch: the counts after the run are those of all files."""
    resource = counting("counting", files(written), 2, FASTEST, NEVER, "512Mi")
    assert sum(1 for _ in run_local(resource)) in (written.total, written.total + 1)


def test_the_nearly_empty_stream_has_as_many_batches() -> None:
    resource = counting("empty", nearly_empty(4), 2, FASTEST, NEVER, "512Mi")
    assert sum(1 for _ in run_local(resource)) in (4, 5)


def test_a_bare_data_plane_is_started_with_everything_in_place() -> None:
    found = desired({"a.0": "n1#1"}, retain=True)
    assert (found.driver, found.retain, found.assignment) == ("1", True, {"a.0": "n1#1"})


def test_everything_is_placed() -> None:
    resource = counting("empty", nearly_empty(4), 3, FASTEST, NEVER, "512Mi")
    placed = placement(resource, ["n1#1", "n2#1", "n3#1"])
    assert set(placed) == set(expand(resource).partitions)
    with pytest.raises(ValueError, match="too few"):
        placement(resource, ["n1#1"])


def test_what_is_steady() -> None:
    assert measure.steady(DATA) == (12, 38)


def test_throughput_of_an_even_stream() -> None:
    done = {batch: (0.0, 50.0 + batch / 4) for batch in range(1, 43)}
    assert measure.throughput(done, DATA) == pytest.approx(400.0)


def test_throughput_of_one_that_comes_in_gushes_is_nearly_the_same() -> None:
    even = Data(Path("nowhere"), rows=100, fill=0, batches=400)
    done = {batch: (0.0, 10.0 * -(-batch // 40)) for batch in range(1, 401)}
    assert measure.throughput(done, even) == pytest.approx(400.0, rel=0.1)


@pytest.mark.parametrize("done", [{}, {20: (0.0, 1.0)}, {20: (0.0, 1.0), 21: (0.0, 1.0)}])
def test_no_throughput_without_a_steady_part(done: dict[int, tuple[float, float]]) -> None:
    assert measure.throughput(done, DATA) is None


def test_a_batch_is_complete_when_its_last_partition_has_written(tmp_path: Path) -> None:
    lines = [
        {"query": "count.0", "batch": 1, "at": 5.0, "due": 4.0},
        {"query": "count.1", "batch": 1, "at": 7.0, "due": 4.0},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measure.completed(tmp_path) == {1: (4.0, 7.0)}


def test_latency_and_whether_it_grows() -> None:
    flat = {batch: (float(batch), batch + 0.5) for batch in range(1, 43)}
    growing = {batch: (float(batch), batch * 2.0) for batch in range(1, 43)}
    assert measure.latency(flat, DATA) == Latency(0.5, 0.5, True)
    found = measure.latency(growing, DATA)
    assert found is not None and not found.kept_up


def test_structured_streaming_has_its_latency_from_when_the_file_was_due() -> None:
    on_time = [Trigger(float(k), k + 0.25, 100) for k in range(42)]
    late = [Trigger(2.0 * k, 2.0 * k + 2.0, 100) for k in range(42)]
    found = measure.structured_latency(on_time, DATA, 1.0)
    assert found == Latency(0.25, 0.25, True)
    found = measure.structured_latency(late, DATA, 1.0)
    assert found is not None and not found.kept_up


def test_a_fed_file_is_late_by_the_end_of_the_trigger_that_took_it() -> None:
    due = {batch: float(batch) for batch in range(1, DATA.total + 1)}
    pairs = [
        Trigger(2.0 * k + 2, 2.0 * k + 2.5, 2 * DATA.rows) for k in range(DATA.total // 2)
    ]  # two files each
    found = measure.fed_latency(pairs, DATA, due)
    assert found is not None and found.kept_up
    assert found.median in (0.5, 1.0, 1.5) and found.p95 == pytest.approx(1.5)
    assert measure.fed_latency([], DATA, due) is None


def test_files_are_fed_when_the_state_is_full_and_one_an_interval(tmp_path: Path) -> None:
    data = write(tmp_path / "data", keys=64 * 10, rows=10, batches=3)
    done = [0]
    with Feed(data, tmp_path / "fed", 0.1, lambda: done[0]) as feed:
        assert len(list(feed.folder.iterdir())) == data.fill == 1
        done[0] = data.rows
        until(lambda: len(feed.due) == data.total)
    assert [path.name for path in sorted(feed.folder.iterdir())] == [Path(p).name for p in data.paths]
    due = [feed.due[number] for number in range(1, data.total + 1)]
    assert due == sorted(due) and due[-1] - due[0] > 0.1


def test_structured_streaming_throughput() -> None:
    triggers = [Trigger(float(k), k + 1.0, 100) for k in range(42)]
    assert measure.structured_throughput(triggers, DATA) == pytest.approx(100.0)
    assert measure.structured_throughput([], DATA) is None


def test_triggers_without_input_do_not_count() -> None:
    progress = [
        {
            "timestamp": "2026-01-01T00:00:00.000Z",
            "numInputRows": rows,
            "durationMs": {"triggerExecution": 1500},
        }
        for rows in (0, 7)
    ]
    (found,) = parse(progress)
    assert (found.ended - found.began, found.rows) == (pytest.approx(1.5), 7)


def test_parts_of_a_job() -> None:
    samples = [Sample(10.0 * k, 5 * k, 20 * k, 500.0) for k in range(5)]
    found = measure.parts(samples, 20, 60)
    assert found is not None
    assert (found.job_s, found.batches, found.operators_cpu_s) == pytest.approx((2.0, 4.0, 1.0))
    assert measure.parts(samples, 21, 39) is None


def measured(mode: str, **what: object) -> Measured:
    return Measured(mode, 1, (0.1, 0.2), **what)  # type: ignore[arg-type]


def test_ratios_are_of_medians_and_only_of_what_was_measured() -> None:
    runs = [measured("off", throughput=t) for t in (90.0, 100.0, 500.0)] + [measured("idle", throughput=95.0)]
    assert report.ratios(runs) == {"throughput idle / off": pytest.approx(0.95)}


def test_every_ratio_has_a_range() -> None:
    runs = [measured(mode, throughput=1.0, latency=Latency(1.0, 1.0, True)) for mode in report.THROUGHPUT]
    assert set(report.ratios(runs)) == set(report.ranges("overhead"))


@pytest.mark.parametrize(("value", "good"), [(0.89, False), (0.9, True), (1.1, True), (1.2, False)])
def test_a_range(value: float, good: bool) -> None:
    assert report.judge(value, {"least": 0.9, "most": 1.1}) is good


def test_what_lies_outside_is_bold() -> None:
    lines = report.verdicts({"throughput idle / off": 0.5, "throughput ordered / off": 1.0})
    assert lines[0].startswith("**throughput idle / off: 0.50, outside")
    assert "throughput ordered / off: 1.00" in "".join(line for line in lines if not line.startswith("**"))
    assert any("not measured" in line for line in lines)


def test_the_table_has_a_row_for_every_contestant() -> None:
    runs = [measured("off", throughput=1000.0), measured("idle", latency=Latency(0.5, 0.6, False))]
    text = report.table(runs).markdown()
    assert "1,000" in text and "did not keep up" in text
    assert len(report.table(runs).rows) == len(report.THROUGHPUT)
