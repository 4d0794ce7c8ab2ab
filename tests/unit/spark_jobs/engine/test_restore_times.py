"""What a recovery would have to do: never less than it then has to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.failure import FailureKind
from reprise.algorithms.positions import Positions
from reprise.algorithms.recovery_time import RestoreWork
from reprise.spark_jobs.engine import local_lines, restore_times
from reprise.spark_jobs.engine.restore_times import MOST_KNOWN, RestoreTimes
from reprise.spark_jobs.node.command import Usage
from reprise.spark_jobs.topology import load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_eventual import WINDOWS
from tools.testbed.local_engine import past

BATCHES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), min_size=1, max_size=40)
"""Rows of each batch, and how far behind it the newest snapshot is after it."""


def works_of(steps: list[tuple[int, int]], every: int = 1) -> tuple[list[int], list[int]]:
    """After each step: rows that are told, and rows that were applied behind the snapshot."""
    times, told, real = RestoreTimes(), list[int](), list[int]()
    rows, covered = [0], 0
    for batch, (count, lag) in enumerate(steps, 1):
        rows.append(rows[-1] + count)
        covered = max(covered, batch - lag)
        if batch % every == 0:
            times.applied({"p": batch}, {"p": Usage(0.0, rows=rows[-1])}, Positions(covered), {"p": "1"})
            told.append(times.works()["p"].rows)
            real.append(rows[-1] - rows[covered])
    return told, real


@given(BATCHES, st.integers(1, 4))
def test_rows_are_never_less_than_those_behind_the_snapshot(steps: list[tuple[int, int]], every: int) -> None:
    told, real = works_of(steps, every)
    assert all(said >= rows for said, rows in zip(told, real, strict=True)), (told, real)


def test_they_are_the_most_since_the_snapshot_before_the_newest() -> None:
    lags = [1, 2, 3, 4, 0, 1, 2, 0, 1, 0, 1]
    told, real = works_of([(10, lag) for lag in lags])
    assert real == [10, 20, 30, 40, 0, 10, 20, 0, 10, 0, 10]
    assert told == [10, 20, 30, 40, 40, 40, 40, 20, 20, 10, 10]


def test_of_a_long_time_without_a_snapshot_few_positions_are_kept() -> None:
    times, rows, long = RestoreTimes(), 0, 40 * MOST_KNOWN
    for batch in range(1, long + 1):
        rows += 3
        times.applied({"p": batch}, {"p": Usage(0.0, rows=rows)}, Positions(0), {"p": "1"})
    assert len(times._known["p"].behind) <= MOST_KNOWN
    assert times.works()["p"].rows == rows
    covered = long // 2
    for _ in range(2):  # what the snapshot before had does not count any more after two
        covered += 1
        times.applied({"p": long}, {"p": Usage(0.0, rows=rows)}, Positions(covered), {"p": "1"})
    assert times.works()["p"].rows >= (long - covered) * 3


def test_another_installation_begins_at_its_own_position() -> None:
    times = RestoreTimes()
    times.applied({"p": 100}, {"p": Usage(0.0, rows=900)}, Positions(60), {"p": "1"})
    times.applied({"p": 62}, {"p": Usage(0.0, rows=20)}, Positions(60), {"p": "2"})
    assert times.works()["p"].rows == 20


def test_rates_are_those_that_were_measured_last_and_outlive_an_installation() -> None:
    times, at = RestoreTimes(), Positions(0)
    times.applied({"p": 1}, {"p": Usage(0.5, rows=restore_times.LEAST_ROWS - 1)}, at, {"p": "1"})
    assert times.works() == {"p": RestoreWork(restore_times.LEAST_ROWS - 1)}, "too few to say anything"
    times.applied({"p": 2}, {"p": Usage(0.5, rows=1000, load_bytes=600, load_s=0.25)}, at, {"p": "1"})
    assert times.works() == {"p": RestoreWork(1000, 2000.0, 2400.0)}
    times.applied({"p": 1}, {"p": Usage(0.0, rows=10)}, at, {"p": "2"})
    assert times.works() == {"p": RestoreWork(10, 2000.0, 2400.0)}


def test_planning_took_as_long_as_the_first_of_those_that_were_lost_together() -> None:
    times = RestoreTimes()
    assert times.overhead() == {"detection": 3.0}
    for partition in ("a", "b", "c"):
        times.loses(partition, FailureKind.NODE_LOST, 10.0)
    times.loses("d", FailureKind.POISON, 10.0)
    times.installs("a", 11.5)
    times.installs("b", 11.5)
    times.installs("c", 90.0)  # it has waited for a node
    times.installs("d", 95.0)
    times.installs("e", 95.0)  # a move: nothing was lost
    assert times.overhead() == {"detection": 3.0, "plan": 1.5}
    times.installed(0.75, Usage(0.0, load_bytes=10, load_s=0.5))
    assert times.overhead() == {"detection": 3.0, "plan": 1.5, "install": 0.25}, (
        "reading its state is told apart"
    )


@pytest.mark.parametrize("protocol", ["coordinated", "uncoordinated", "eventual"])
def test_what_was_told_before_a_loss_is_what_the_recovery_then_has_to_do(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in rows, on local nodes: those that are applied up to where the partition was."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    own = {"recovery.bufferMemory": "64Mi"}
    if protocol != "coordinated":
        own["checkpoint.log"] = "checkpointed"
    world = begun(
        override(load_text(WINDOWS), {"checkpoint.protocol": protocol, **own}), tmp_path, name=protocol
    )
    world.run(past(9))
    engine = world.engine
    lost = [p for p, node in engine.desired.assignment.items() if node == "b"]

    def something_is_to_be_made_again(_: object) -> bool:
        works = engine.figures.times.works()
        return engine.punctuations.newest > 0 and all(p in works and works[p].rows > 0 for p in lost)

    world.run(something_is_to_be_made_again)
    told, at = engine.figures.times.works(), dict(engine.positions)
    world.nodes.lose("b")
    world.run(lambda e: all(p in e.failed for p in lost), limit=3)
    home = {p: "c" if p in lost else node for p, node in engine.desired.assignment.items()}
    world.want(1, engine.punctuations.newest, home, retain=True)
    began = {p: engine.positions[p] for p in lost}
    applied: dict[str, int] = {}

    def there(_: object) -> bool:
        for partition in lost:
            if engine.positions.get(partition, -1) >= at[partition] and partition not in engine.installing:
                applied.setdefault(partition, engine.usage[partition].rows)
        return applied.keys() == set(lost)

    world.run(there)
    per_batch = {p: max(1, applied[p] // max(1, engine.positions[p] - began[p])) for p in lost}
    for partition in lost:
        beyond = engine.positions[partition] - at[partition]  # a job may take it further than it was
        slack = 3 * per_batch[partition] * (beyond + 1)
        assert told[partition].rows + slack >= applied[partition], partition
