"""The arithmetic of the overhead benchmark: its batches, what counts as steady, ratios and their ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import overhead_measure as measure
from benchmarks import overhead_report as report
from benchmarks.overhead_data import Data, write
from benchmarks.overhead_measure import Latency
from benchmarks.overhead_report import Measured
from benchmarks.overhead_reprise import Sample
from benchmarks.overhead_structured import Trigger
from benchmarks.overhead_topology import FASTEST, NEVER, counting, files
from reprise.spark_jobs.operators.local import run_local

DATA = Data(Path("nowhere"), rows=100, fill=2, batches=40)


@pytest.fixture
def written(tmp_path: Path) -> Data:
    return write(tmp_path, keys=500, rows=5, batches=3)


def test_reprise_cuts_the_files_into_the_same_batches(written: Data) -> None:
    """One file a batch: the counts after the run are those of all files."""
    resource = counting("counting", files(written), 2, FASTEST, NEVER, "512Mi")
    assert sum(1 for _ in run_local(resource)) in (written.total, written.total + 1)


def test_throughput_of_an_even_stream() -> None:
    done = {batch: (0.0, 50.0 + batch / 4) for batch in range(1, 43)}
    assert measure.throughput(done, DATA) == pytest.approx(400.0)


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


def test_structured_streaming_throughput() -> None:
    triggers = [Trigger(float(k), k + 1.0, 100) for k in range(42)]
    assert measure.structured_throughput(triggers, DATA) == pytest.approx(100.0)
    assert measure.structured_throughput([], DATA) is None


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


def test_runs_that_were_not_requested_are_not_judged() -> None:
    lines = report.verdicts({}, "recovery, counts", ("incremental", "blocking"))
    assert lines == ["**blocking / incremental: not measured (wanted: at most 1)**"]
