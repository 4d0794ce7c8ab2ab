"""The demo's pace follows what was measured, and its faults are stretched with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.run.demo_pace import choose, measured, stretched
from controller.run.errors import RunError
from controller.run.faults import load_faults

EXAMPLES = Path(__file__).parents[3] / "examples"


def events(path: Path, **times: list[float]) -> Path:
    """Times of the outputs of each query."""
    lines = [
        json.dumps({"query": query, "batch": batch, "at": at, "due": 0.0})
        for query, each in times.items()
        for batch, at in enumerate(each, 1)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_usual_distance_of_a_warm_query_counts(tmp_path: Path) -> None:
    cold, warm = [0.0, 9.0], [10.0 + 0.5 * i for i in range(60)]
    assert measured(events(tmp_path / "e", a=cold + warm, b=warm, c=[1.0])) == pytest.approx(0.5, abs=0.05)


def test_many_batches_at_once_do_not_hide_how_long_a_job_takes(tmp_path: Path) -> None:
    bursts = [10.0 * job + 0.01 * batch for job in range(8) for batch in range(20)]
    assert measured(events(tmp_path / "e", a=bursts)) == pytest.approx(9.8, abs=0.3)


def test_a_run_that_wrote_too_little_is_no_measure(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="too few"):
        measured(events(tmp_path / "e", a=[1.0], b=[2.0]))


@pytest.mark.parametrize(
    ("output_s", "interval_s", "follows"),
    [(0.01, 1.0, True), (0.4, 1.0, True), (0.41, 1.1, True), (0.8, 2.0, True), (2.0, 3.0, True), (3.5, 3.0, False)],
)  # fmt: skip
def test_a_slow_machine_gets_a_slower_stream(output_s: float, interval_s: float, *, follows: bool) -> None:
    pace = choose(output_s)
    assert pace.interval_s == pytest.approx(interval_s)
    assert pace.stretch == pytest.approx(interval_s)
    assert pace.follows is follows
    assert ("CANNOT FOLLOW" in pace.describe()) is not follows
    assert f"one batch every {interval_s:g} s" in pace.describe()
    assert ("as slowly" in pace.describe()) is (interval_s > 1)


def test_faults_are_stretched_in_time_and_in_nothing_else() -> None:
    faults = load_faults(EXAMPLES / "faults" / "demo.yaml", 10)
    slow = stretched(faults, 2.0)
    assert [f.trigger.delay_s for f in slow] == [2 * f.trigger.delay_s for f in faults]
    assert [(f.action, f.nodes, f.count, f.trigger.kind, f.trigger.value) for f in slow] == [
        (f.action, f.nodes, f.count, f.trigger.kind, f.trigger.value) for f in faults
    ]
    assert stretched(faults, 1.0) == faults
