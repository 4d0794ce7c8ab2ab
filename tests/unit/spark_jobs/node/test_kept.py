"""What partitions keep of their output for those that may be lost, what they drop for want of room, and that they say so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.kept import kept_since, lacking, relieve, wanted
from reprise.spark_jobs.node.runtime import OperatorRuntime, Output, SourceRuntime
from reprise.spark_jobs.topology import make_source
from tests.unit.spark_jobs.node.test_runtime import ANYBODY, PARTITIONS, RESOURCE, ROWS, Keeping, sender_of

TARGETS = ("wide.0", "wide.1", "wide.2")


@pytest.fixture
def budget(tmp_path: Path) -> Budget:
    return Budget(1 << 20, 1 << 20, tmp_path)


@pytest.fixture
def sender(budget: Budget) -> OperatorRuntime:
    return sender_of(5, budget)


@pytest.fixture
def source(budget: Budget) -> SourceRuntime:
    made = SourceRuntime(PARTITIONS["in.0"], make_source(RESOURCE.sources[0]), 5, budget)
    assert made.partition.place == Place("in", 0, 2)
    return made


def command(*at_work: str, window: int = 4, **positions: int) -> Command:
    return Command(1, 1, 0, "", "", "", routes=dict.fromkeys(at_work, 0), positions=positions, window=window)


def held(runtime: OperatorRuntime, target: str) -> list[int]:
    return sorted(runtime.buffers[target].entries)


def test_an_operator_keeps_for_everybody_or_for_those_at_work(sender: OperatorRuntime) -> None:
    told = command("wide.0")
    assert [t for t in TARGETS if wanted(sender, told, keeps=True)(t)] == list(TARGETS)
    assert [t for t in TARGETS if wanted(sender, told, keeps=False)(t)] == ["wide.0"]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_source_gives_rows_to_those_that_can_take_them_now(source: SourceRuntime, keeps: bool) -> None:
    """Who is further behind than the window is sent them later, read once more; so is who is not at work."""
    told = command("near", "far", "new", near=2, far=1)
    answer = wanted(source, told, keeps)
    assert answer("near") and answer("new")
    assert not answer("far") and not answer("lost")


def test_for_want_of_room_goes_what_those_at_work_have_applied(sender: OperatorRuntime) -> None:
    relieve([sender], {"wide.0": 3, "wide.1": 5})
    assert [held(sender, t) for t in TARGETS] == [[4, 5], [], [1, 2, 3, 4, 5]]


def test_all_goes_for_those_that_no_plan_brings_back(sender: OperatorRuntime) -> None:
    relieve([sender], {"wide.0": 3}, absent=True)
    assert [held(sender, t) for t in TARGETS] == [[4, 5], [], []]
    assert held(sender, "back.0") == [], "it is not at work either"


def test_what_a_cycle_needs_next_stays(sender: OperatorRuntime) -> None:
    """Over a feedback edge batch b is read for batch b + 1."""
    loops = OperatorRuntime(PARTITIONS["back.0"], Keeping(), None, 0, sender.buffers["wide.0"].budget, None)
    for batch in (1, 2):
        loops.emit(Output(batch, None, ROWS), ANYBODY)
        loops.position = batch
    relieve([loops], {"mid.0": 2})
    assert held(loops, "mid.0") == [2]


def test_who_has_dropped_what_would_be_needed_says_from_where_on_it_can_feed(sender: OperatorRuntime) -> None:
    everything = [sender]
    assert lacking(everything, Positions(0)) == {}
    assert kept_since(everything) == 0
    relieve(everything, dict.fromkeys(sender.buffers, 3))
    assert lacking(everything, Positions(3)) == {}
    assert lacking(everything, Positions(2)) == {"mid.0": 3}
    assert kept_since(everything) == 3
    assert lacking(everything, Positions(2, dict.fromkeys(sender.buffers, 3))) == {}, "each by its own line"


def test_a_source_lacks_what_it_cannot_read_again(source: SourceRuntime) -> None:
    source.ranges = {b: Range(b, b + 1) for b in range(6, 9)}
    source.forget(7)
    assert sorted(source.ranges) == [8]
    assert lacking([source], Positions(7)) == {}
    assert lacking([source], Positions(6)) == {"in.0": 7}
    assert kept_since([source]) == 7


def test_of_nobody_nothing_is_kept() -> None:
    assert kept_since([]) == 0
    assert lacking([], Positions(9)) == {}
    relieve([], {})


def test_an_empty_output_is_kept_as_well(sender: OperatorRuntime) -> None:
    sender.emit(Output(6, 7, pa.table({"n": pa.array([], pa.int64())})), ANYBODY)
    assert 6 in sender.buffers["wide.0"].entries, "its watermark has to come through"
