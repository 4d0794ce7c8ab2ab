"""The benchmark of ways to come back: its topologies are valid, and what it reads of records and writes into the
documentation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks import availability, command
from benchmarks.availability_cases import (
    AMNESIA,
    BACKUP,
    CHECKPOINT,
    EVERY,
    PASSIVE,
    TABLE_6,
    TOP,
    TWO_OF_FOUR,
    Case,
    cases,
)
from benchmarks.availability_measure import Figures, again, as_promised, marked, standstill
from benchmarks.availability_report import grids
from reprise.controller.local.report.compare import Comparison
from reprise.controller.local.report.history import Writes
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.spark_jobs.topology import check
from reprise.spark_jobs.topology.binding import unbound

ALL = frozenset(availability.TABLES)


@pytest.mark.parametrize("case", list(cases(ALL, wide=True)), ids=lambda case: case.name)
def test_each_run_is_of_a_valid_topology(case: Case) -> None:
    resource = case.resource
    check(resource)
    assert list(unbound(resource)) == []
    assert case.lost_at % EVERY not in (0, EVERY - 1), "it is behind a checkpoint"
    chosen = {o.name for o in resource.operators if o.availability == case.mode}
    top = {f"{name}{number}" for name in ("window", "query") for number in range(TOP)}
    assert chosen == (top if case.table == TWO_OF_FOUR else {"lost"}) or case.mode == CHECKPOINT


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


def run_of(table: str, row: str, mode: str, **more: object) -> Figures:
    return Figures(table, row, mode, "done", same=True, **more)  # type: ignore[arg-type]


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
