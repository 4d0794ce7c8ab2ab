"""What senders keep for partitions that would begin anew, that they say what they have dropped, and how one begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.runtime import OperatorRuntime, Output, SourceRuntime
from reprise.spark_jobs.node.upstream_backup import begin_again, dropped, with_causes
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.topology import make_source
from tests.unit.spark_jobs.node.test_runtime import ANYBODY, PARTITIONS, RESOURCE, ROWS, Keeping, sender_of


@pytest.fixture
def budget(tmp_path: Path) -> Budget:
    return Budget(1 << 20, 1 << 20, tmp_path)


@pytest.fixture
def sender(budget: Budget) -> OperatorRuntime:
    return sender_of(9, budget)


def command(causes: dict[str, int], covered: Positions | None = None) -> Command:
    return Command(1, 1, 0, "", "", "", causes=causes, covered=covered or Positions())


def test_a_target_that_would_be_fed_again_needs_all_behind_its_causes() -> None:
    assert with_causes({"a": 9, "b": 9}, {"a": 4}) == {"a": 4, "b": 9}
    assert with_causes({"a": 3}, {"a": 4}) == {"a": 3}, "what it has not applied it needs in any case"
    assert with_causes({}, {"a": 4}) == {"a": 4}, "it is not at work now"


def test_without_such_partitions_nothing_is_copied() -> None:
    positions = {"a": 9}
    assert with_causes(positions, {}) is positions


def test_what_was_dropped_is_said_with_the_batch_behind_which_it_is_there(sender: OperatorRuntime) -> None:
    causes = {"wide.0": 2, "wide.1": 2}
    assert dropped([sender], command(causes)) == {}
    sender.trim("wide.0", 5)
    assert dropped([sender], command(causes)) == {"wide.0": 5}
    assert dropped([sender], command(causes, Positions(5))) == {}, "what is covered is not fed again"
    assert dropped([sender], command({})) == {}


def test_of_several_senders_the_one_that_has_dropped_most_counts(budget: Budget) -> None:
    readers = []
    for name, upto in (("in.0", 3), ("in.1", 6)):
        source = SourceRuntime(PARTITIONS[name], make_source(RESOURCE.sources[0]), 0, budget)
        source.ranges = {b: Range(b, b + 1) for b in range(1, 9)}
        source.forget(upto)
        readers.append(source)
    assert dropped(readers, command({"mid.0": 0})) == {"mid.0": 6}
    assert dropped(reversed(readers), command({"mid.0": 0})) == {"mid.0": 6}


def test_a_source_has_what_it_can_read_again_whatever_its_buffers_hold(budget: Budget) -> None:
    source = SourceRuntime(PARTITIONS["in.0"], make_source(RESOURCE.sources[0]), 0, budget)
    source.trim("mid.0", 9)
    assert dropped([source], command({"mid.0": 0})) == {}


def test_one_that_begins_anew_steps_and_gives_nothing_until_it_is_where_it_was(budget: Budget) -> None:
    operator = Keeping()
    fed = OperatorRuntime(PARTITIONS["wide.0"], operator, None, 0, budget, None)
    begin_again(fed, 2)
    for batch in (1, 2, 3):
        fed.deliver(Message("mid.0", "wide.0", batch, None, ROWS))
        assert fed.advance(ANYBODY)
    assert (fed.position, [one.batch for one in operator.given]) == (3, [1, 2, 3])


def test_what_it_gives_begins_behind_that_batch(sender: OperatorRuntime, budget: Budget) -> None:
    fed = OperatorRuntime(PARTITIONS["mid.0"], Keeping(), None, 0, budget, None)
    begin_again(fed, 7)
    assert {(b.floor, b.cursor) for b in fed.buffers.values()} == {(8, 8)}
    assert fed.kept_since == 7
    assert not fed.rewind("wide.0", 6) and fed.rewind("wide.0", 7)


def test_over_a_feedback_edge_a_reader_needs_the_batch_at_which_it_is(budget: Budget) -> None:
    back = OperatorRuntime(PARTITIONS["back.0"], Keeping(), None, 0, budget, None)
    for batch in range(1, 10):
        back.emit(Output(batch, None, ROWS), ANYBODY)
        back.position = batch
    causes = {"mid.0": 2}
    assert dropped([back], command(causes)) == {}
    back.trim("mid.0", 5)
    assert dropped([back], command(causes)) == {"mid.0": 5}, "batch 5 is here"
    assert dropped([back], command(causes, Positions(5))) == {}
    back.buffers["mid.0"].trim(5)
    assert dropped([back], command(causes, Positions(5))) == {"mid.0": 6}
    assert not back.rewind("mid.0", 5) and back.rewind("mid.0", 6)


def test_a_source_over_a_feedback_edge_is_read_again_from_the_batch_at_which_its_reader_is(
    budget: Budget,
) -> None:
    late = PARTITIONS["in.0"].downstream[0]
    delayed = replace(PARTITIONS["in.0"], downstream=(replace(late, feedback=True),))
    source = SourceRuntime(delayed, make_source(RESOURCE.sources[0]), 0, budget)
    source.ranges = {b: Range(b, b + 1) for b in range(1, 9)}
    source.forget(6)
    assert source.forgotten == 5
    assert dropped([source], command({"mid.0": 0})) == {"mid.0": 6}
    assert dropped([source], command({"mid.0": 0}, Positions(6))) == {}
    assert not source.rewind("mid.0", 5) and source.rewind("mid.0", 6)


@pytest.fixture
def late_source(budget: Budget) -> SourceRuntime:
    """One that began with a state behind batch 6, with a reader over a feedback edge and one over another."""
    late = PARTITIONS["in.0"].downstream[0]
    others = replace(late, targets=("other.0",))
    partition = replace(PARTITIONS["in.0"], downstream=(replace(late, feedback=True), others))
    assert partition.late == 1
    source = SourceRuntime(partition, make_source(RESOURCE.sources[0]), 6, budget)
    source.ranges = {b: Range(b, b + 1) for b in range(4, 9)}
    source.state = object()
    return source


def test_a_source_of_which_only_the_rows_are_known_is_read_again_over_feedback_edges_alone(
    late_source: SourceRuntime,
) -> None:
    """Nobody knows the watermark of batch 6 any more; who reads it over a feedback edge does not ask."""
    assert late_source.rewind("mid.0", 6), "it is sent batch 6"
    assert not late_source.rewind("mid.0", 5)
    assert late_source.rewind("other.0", 6), "it has batch 6, and is sent 7"
    assert not late_source.rewind("other.0", 5)
    assert (late_source.since("mid.0"), late_source.since("other.0")) == (6, 6)


def test_a_source_whose_watermarks_were_stored_with_its_state_is_read_again_by_anybody(
    late_source: SourceRuntime,
) -> None:
    late_source.forgotten, late_source.marks = 3, {4: 40, 5: 50, 6: 60}
    assert late_source.rewind("other.0", 3) and not late_source.rewind("other.0", 2)
    assert late_source.since("other.0") == 3


def test_a_source_without_a_state_gives_the_watermark_of_any_batch(late_source: SourceRuntime) -> None:
    late_source.state = None
    assert late_source.rewind("other.0", 5) and not late_source.rewind("other.0", 4)
    assert late_source.since("other.0") == 5
