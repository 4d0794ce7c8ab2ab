"""What goes into the driver's report, and what the engine is given: nothing is lost between the records and the engine."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Positions
from reprise.controller.driver.report import (
    MAX_PROBLEM,
    MIN_REASON,
    REASONS,
    InputRates,
    bounded,
    cut,
    progress_of,
    stats_of,
    wanted,
)
from reprise.controller.zookeeper.records import encode_progress, parse_progress
from reprise.scheduler.model import Desired, Moving, Progress
from reprise.spark_jobs.engine import progress as engine_output
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.node.command import Usage
from reprise.spark_jobs.operators.frames import END_OF_TIME

LOST = Failure(FailureKind.CHECKPOINT, "is damaged")
TOLD = engine_output.Progress(
    seq=14, generation=3, nodes=("n4#1", "n3#1"), positions={"a.0": 412}, failed={"b.0": LOST}, horizon=415,
    due=417, punctuation=400, ended=True, done=True, covers=Positions(400, {"b.0": 380}), bad_checkpoints=(380,),
    trimmed=390, not_kept=("a.0",), stuck="jobs fail", memory=10, disk=20, jobs=93, drained=400,
    overhead={"detection": 3.0, "plan": 1.25}, refused={"b.0": "w1"},
)  # fmt: skip


def test_the_engine_is_given_all_that_it_knows_of() -> None:
    """A field that is added to one side only, and has the same name, is not forgotten."""
    desired = Desired(
        seq=5, generation=2, checkpoint=40, driver="3", assignment={"a.0": "n1#1"}, retain=True, punctuate=False,
        plan="inc-000005-p1", paused=True, moving=Moving({"a.0": "n2#1"}, 47),
    )  # fmt: skip
    given_to_it = wanted(desired)
    assert not given_to_it.adopted, "somebody has decided it"
    names = {field.name for field in dataclasses.fields(EngineSpec)} - {"adopted"}
    derived = {name for name, value in vars(Desired).items() if isinstance(value, property)}
    assert derived | {field.name for field in dataclasses.fields(Desired)} >= names
    for name in names:
        assert getattr(given_to_it, name) == getattr(desired, name), name
    other = dataclasses.replace(desired, retain=False, punctuate=True, paused=False)
    assert (wanted(other).retain, wanted(other).punctuate, wanted(other).paused) == (False, True, False)
    assert wanted(dataclasses.replace(desired, plan=None)).plan == ""


def test_a_report_says_all_that_the_engine_tells() -> None:
    report = progress_of(2, TOLD, ["sources wait"], 12.5, 7, 670.0)
    for name in {field.name for field in dataclasses.fields(TOLD)} - {"memory", "disk", "failed"}:
        told, said = getattr(TOLD, name), getattr(report, name)
        assert said == (frozenset(told) if isinstance(said, frozenset) else told), name
    assert report.buffers == {"memory": TOLD.memory, "disk": TOLD.disk}
    assert report.failed == {"b.0": Failure(FailureKind.CHECKPOINT, "is damaged")}
    assert (report.driver, report.problems) == ("2", ("sources wait",))
    assert (report.time, report.turns, report.turn_limit_s) == (12.5, 7, 670.0)
    assert parse_progress(encode_progress(report)) == report, "and it is read as it was said"


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_kind_of_failure_has_a_name_in_the_records(kind: FailureKind) -> None:
    failed = {"a.0": Failure(kind, "so")}
    report = progress_of(1, dataclasses.replace(TOLD, failed=failed), [], 0.0, 0, 0.0)
    assert report.failed["a.0"].kind.value == kind.value


def test_passwords_are_nowhere_in_a_report() -> None:
    url = "postgresql://app:hunter2@db/x"
    told = dataclasses.replace(
        TOLD,
        stuck=f"jobs fail: {url}",
        failed={"a.0": Failure(LOST.kind, f"cannot reach {url}")},
    )
    assert b"hunter2" not in encode_progress(progress_of(1, told, [f"in.0: {url}"], 0.0, 0, 0.0))


@given(st.text(max_size=40), st.integers(0, 50))
def test_a_text_that_fits_is_left_alone_and_another_one_is_marked(text: str, length: int) -> None:
    found = cut(text, length)
    if len(text) <= length:
        assert found == text
    else:
        assert found == f"{text[:length]}..."


@given(st.integers(1, 3000), st.integers(0, 1200))
def test_reasons_of_user_code_have_a_length_together(partitions: int, length: int) -> None:
    failed = {f"a.{k}": Failure(FailureKind.CHECKPOINT, "x" * length) for k in range(partitions)}
    found = bounded(Progress("1", failed=failed, problems=("y" * (MAX_PROBLEM + 9),)))
    total = sum(len(failure.reason) for failure in found.failed.values())
    assert total <= max(REASONS, partitions * MIN_REASON) + 3 * partitions
    assert found.failed.keys() == failed.keys()
    assert all(len(failure.reason) >= min(length, MIN_REASON) for failure in found.failed.values())
    assert len(found.problems[0]) == MAX_PROBLEM + 3


@pytest.mark.parametrize("interval_s", [0.5, 10.0, 60.0])
def test_how_many_rows_come_does_not_depend_on_when_a_record_is_written(interval_s: float) -> None:
    """A record is written each 3 s, and a batch of 1,000 rows comes each `interval_s`: between two records there is
    none, one or several."""
    rates = InputRates.over_batches(interval_s, {}, 0.0)
    told = set[float]()
    for now in range(3, 900, 3):
        rows = 1000 * int(now / interval_s)
        told |= {rows_s for p, rows_s in rates.at({"a.0": Usage(1.0, rows=rows)}, float(now)).items()}
    exact = 1000 / interval_s
    assert told and all(0.7 * exact <= rows_s <= 1.3 * exact for rows_s in told), told


def test_before_enough_batches_have_come_nobody_says_how_many_rows_do() -> None:
    rates = InputRates.over_batches(10.0, {"a.0": Usage(1.0, rows=500)}, 0.0)
    assert rates.at({"a.0": Usage(2.0, rows=900)}, 39.0) == {}
    assert rates.at({"a.0": Usage(2.0, rows=900)}, 40.0) == {"a.0": 10.0}
    assert rates.at({"a.0": Usage(2.0, rows=950)}, 43.0) == {"a.0": 10.0}
    assert rates.at({"a.0": Usage(2.0, rows=123_900)}, 80.0) == {"a.0": 3080.0}, "three digits"


def test_who_was_installed_anew_counts_its_rows_from_zero() -> None:
    rates = InputRates.over_batches(1.0, {"a.0": Usage(9.0, rows=5_000)}, 0.0)
    assert rates.at({"a.0": Usage(1.0, rows=40), "b.0": Usage(1.0, rows=80)}, 4.0) == {
        "a.0": 10.0,
        "b.0": 20.0,
    }


def test_the_record_has_the_watermark_and_says_where_the_input_has_ended() -> None:
    usage = {
        "a.0": Usage(1.0, watermark=1_500_000),
        "b.0": Usage(1.0, watermark=END_OF_TIME),
        "c.0": Usage(1.0),
    }
    told = stats_of({}, usage, 1.0, {})
    assert {p: (one.watermark, one.input_ended) for p, one in told.items()} == {
        "a.0": (1_500_000, False), "b.0": (None, True), "c.0": (None, False),
    }  # fmt: skip
