"""The demo's pace follows from how late outputs are, and its faults are stretched with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.demo.pace import LEAST_S, MOST_S, measured, stretched
from reprise.controller.errors import RunError
from reprise.controller.local.faults.faults import load_faults
from reprise.controller.local.report.history import Writes

EXAMPLES = Path(__file__).parents[3] / "examples"


def writes(*late: float) -> Writes:
    """Batch b is due at b seconds and written so much later, and never before the one before it."""
    batches = np.arange(1, len(late) + 1)
    return Writes(batches, batches * LEAST_S, np.maximum.accumulate(batches * LEAST_S + np.array(late)))


def in_jobs(batches: int, job_s: float, busy_s: float = 0.0) -> Writes:
    """What a machine writes whose jobs take `job_s` and as much as `busy_s` more for each batch: each applies all batches
    that are due when it begins."""
    found: list[float] = []
    now = LEAST_S
    while len(found) < batches:
        due = min(batches, int(now / LEAST_S)) - len(found)
        if due < 1:
            now = (len(found) + 1) * LEAST_S
            continue
        now += job_s + busy_s * due
        found += [now - (len(found) + i + 1) * LEAST_S for i in range(due)]
    return writes(*found)


@pytest.mark.parametrize("job_s", [0.1, 0.5, 1.0, 1.5, 3.0, 4.5])
def test_a_machine_that_follows_a_batch_a_second_gets_one(job_s: float) -> None:
    pace = measured({"a": in_jobs(57, job_s), "b": in_jobs(57, job_s)})
    assert pace.follows
    assert pace.interval_s == LEAST_S
    assert "This machine follows" in pace.describe()


def test_a_slow_start_and_one_job_that_took_long_are_forgotten() -> None:
    slow_start = [30.0 - b for b in range(30)]
    usual = [0.8] * 27
    usual[20:24] = [6.0, 5.0, 4.0, 3.0]
    pace = measured({"a": writes(*slow_start, *usual), "b": writes(*slow_start, *usual)})
    assert pace.late_s == pytest.approx(0.8)


@pytest.mark.parametrize(("job_s", "busy_s"), [(6.0, 0.0), (4.0, 0.4), (9.0, 0.0), (0.5, 1.05)])
def test_a_machine_that_is_late_gets_a_slower_stream(job_s: float, busy_s: float) -> None:
    pace = measured({"a": in_jobs(57, job_s, busy_s)})
    assert LEAST_S < pace.interval_s <= MOST_S
    assert pace.follows
    assert pace.stretch == pytest.approx(pace.interval_s)
    assert f"a batch every {pace.interval_s:g} s" in pace.describe()
    assert f"{pace.stretch:g} times as slowly" in pace.describe()
    assert "VERY BUSY" not in pace.describe()


@pytest.mark.parametrize(("job_s", "busy_s"), [(20.0, 0.0), (1.0, 1.6)], ids=["long jobs", "falls behind"])
def test_a_machine_that_is_far_too_slow_is_told_so(job_s: float, busy_s: float) -> None:
    pace = measured({"a": in_jobs(57, job_s, busy_s)})
    assert pace.interval_s == MOST_S
    assert not pace.follows
    assert "VERY BUSY OR VERY SLOW" in pace.describe()


def test_a_run_that_wrote_too_little_is_no_measure() -> None:
    with pytest.raises(RunError, match="too few"):
        measured({"a": writes(*[1.0] * 11), "b": writes()})


def test_faults_are_stretched_in_time_and_in_nothing_else() -> None:
    faults = load_faults(EXAMPLES / "faults" / "demo.yaml", 10)
    slow = stretched(faults, 2.0)
    assert [f.trigger.delay_s for f in slow] == [2 * f.trigger.delay_s for f in faults]
    assert [(f.action, f.nodes, f.count, f.trigger.kind, f.trigger.value) for f in slow] == [
        (f.action, f.nodes, f.count, f.trigger.kind, f.trigger.value) for f in faults
    ]
    assert stretched(faults, 1.0) == faults
