"""Why a query waits, at which capacity it comes back and when; with 'unknown' where nothing was measured."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from reprise.controller.analysis.explain import Expected, Part, _sum, explain
from reprise.controller.analysis.measured import Sample, measured
from reprise.controller.cli.explain_command import explanation_page
from reprise.controller.status import StatusDocument, document
from reprise.controller.status.partition_state import PartitionState
from reprise.scheduler import QueryTimeline
from tests.support import oncall


@pytest.fixture(scope="module")
def burst() -> StatusDocument:
    """After the burst, nothing arrived."""
    return document(oncall.TOPOLOGY, oncall.played_until([oncall.BURST]))


@pytest.fixture(scope="module")
def one_came() -> StatusDocument:
    return document(oncall.TOPOLOGY, oncall.after_the_burst())


def test_without_an_arrival_the_time_is_unknown_and_says_why(burst: StatusDocument) -> None:
    found = explain(burst, "count.3")
    assert found.state == "waiting"
    assert [m.partition for m in found.missing] == ["count.3"]
    assert found.capacity is not None
    assert (found.capacity.needs, found.capacity.free, found.capacity.missing) == (40, 0, 40)
    assert found.capacity.enters_at == 40
    assert found.capacity.exact
    assert found.capacity.nodes_needed is None
    assert found.expected.low is None
    assert found.expected.basis.startswith("unknown: no node has arrived yet")
    assert found.waits_for.startswith("capacity: needs 40")


def test_with_arrivals_and_restores_measured_it_is_a_range_with_its_basis(one_came: StatusDocument) -> None:
    found = explain(one_came, "count.1")
    assert found.capacity is not None
    assert (found.capacity.nodes_needed, found.capacity.node_size) == (1, 80)
    assert found.expected.low is not None
    assert found.expected.high is not None
    times = measured(one_came)
    assert times.gaps.range is not None
    since = one_came.time - (times.last_arrival or 0)
    wanted = times.gaps.range[0] - since + 4.0 + 2.0
    assert wanted - 1 < found.expected.low <= found.expected.high < wanted + 2
    assert "1 node needed; nodes came every" in found.expected.basis
    assert "restoring took" in found.expected.basis


def test_longer_than_ever_before_is_said(one_came: StatusDocument) -> None:
    later = replace(one_came, time=one_came.time + 500)
    found = explain(later, "count.1").expected
    assert "longer than ever before" in found.basis


def test_what_is_being_restored_does_not_wait_for_capacity(one_came: StatusDocument) -> None:
    partitions = tuple(
        replace(p, state=PartitionState.RESTORING, node="n1#1") if p.id == "count.1" else p
        for p in one_came.partitions
    )
    plan = one_came.plan
    assert plan is not None
    restoring = replace(one_came, partitions=partitions, plan=replace(plan, left_out=(), time=one_came.time))
    found = explain(restoring, "count.1")
    assert found.capacity is None
    assert found.expected.low == pytest.approx(6.0, abs=0.5)


def test_an_available_query_waits_for_nothing(burst: StatusDocument) -> None:
    found = explain(burst, "count.0")
    assert (found.waits_for, found.expected.low, found.missing) == ("nothing: it is available", 0.0, ())
    assert "back in" not in _page(burst, "count.0")


@pytest.mark.parametrize(("backed", "said"), [(True, "feed it again"), (False, "from the checkpoint")])
def test_it_is_said_whether_a_lost_partition_can_be_fed_again(
    burst: StatusDocument, backed: bool, said: str
) -> None:
    (before,) = explain(burst, "count.3").missing
    parts = tuple(replace(p, backed=backed) if p.id == "count.3" else p for p in burst.partitions)
    (missing,) = explain(replace(burst, partitions=parts), "count.3").missing
    assert missing.reason.startswith(before.reason)
    assert said in missing.reason
    assert said not in before.reason


def test_where_there_is_upstream_backup_its_level_is_said_once(burst: StatusDocument) -> None:
    """Of an operator that the query needs, whether its partitions are lost or not; not of one that has standbys."""
    parts = tuple(
        replace(p, backed=p.id != "count.3") if p.operator == "count" else p for p in burst.partitions
    )
    backed = replace(burst, partitions=parts)
    for query in ("count.0", "count.3"):
        assert explain(backed, query).fed_again == ("count",)
        assert _page(backed, query).count("level 1") == 1
    operators = tuple(replace(o, standbys=o.name == "count") for o in backed.graph.operators)
    beside = replace(backed, graph=replace(backed.graph, operators=operators))
    assert explain(beside, "count.3").fed_again == ()
    assert explain(burst, "count.3").fed_again == ()
    assert "level 1" not in _page(burst, "count.3")


def _page(document: StatusDocument, query: str) -> str:
    console = Console(width=100, record=True, file=StringIO())
    console.print(explanation_page(explain(document, query)))
    return console.export_text()


@pytest.mark.parametrize("query", ["count.0", "count.3"])
def test_what_was_known_last_is_not_told_as_if_it_were_so(burst: StatusDocument, query: str) -> None:
    """The conditions of the resource are Unknown then, too."""
    before, found = explain(burst, query), explain(replace(burst, connected=False), query)
    assert found.waits_for == f"unknown: ZooKeeper does not answer; as known last: {before.waits_for}"
    assert found.expected == Expected(None, None, "unknown: ZooKeeper does not answer")


def test_poison_waits_for_people(burst: StatusDocument) -> None:
    partitions = tuple(
        replace(p, state=PartitionState.POISONED) if p.id == "count.3" else p for p in burst.partitions
    )
    found = explain(replace(burst, partitions=partitions), "count.3")
    assert found.waits_for.startswith("repaired code")
    assert found.expected.basis == "unknown: it depends on when the code is repaired"


def test_no_time_is_promised_for_an_output_that_does_not_advance() -> None:
    """All of its partitions are at work again, and how long queries caught up is measured."""
    seen = oncall.after_the_burst()
    assert seen.progress is not None
    assert seen.incident is not None
    lost = {"count.0": QueryTimeline(seen.time - 60, seen.time - 50)}
    behind = replace(
        seen,
        progress=replace(seen.progress, horizon=seen.progress.horizon + 40),
        incident=replace(seen.incident, queries={**seen.incident.queries, **lost}),
    )
    moves = explain(document(oncall.TOPOLOGY, behind), "count.0")
    assert moves.expected.low is not None
    stands = replace(behind, still={"count.0": seen.time - 50.0})
    found = explain(document(oncall.TOPOLOGY, stands), "count.0")
    assert found.waits_for.startswith("shows nothing after batch")
    assert found.expected == Expected(None, None, "unknown: its output does not advance")


def test_nodes_above_their_cap_are_named_that_the_query_needs(burst: StatusDocument) -> None:
    slow, full, *rest = burst.nodes
    nodes = replace(slow, used=1350, cpu=1000, slowdown=1.35), replace(full, slowdown=1.0)
    above = replace(burst, nodes=(*nodes, *rest))
    partitions = tuple(
        replace(p, node=full.id if p.operator == "tweets" else slow.id) for p in burst.partitions
    )
    (said,) = explain(replace(above, partitions=partitions), "count.0").slower
    assert slow.name in said and "1.35" in said
    assert explain(burst, "count.0").slower == ()


def test_a_sum_of_which_a_part_was_not_measured_to_the_end_is_a_lower_bound() -> None:
    expected = _sum([Part("catching up took", Sample((20.0,), (50.0,)))], 0.0)
    assert (expected.low, expected.high) == (20.0, None)
    assert _sum([Part("catching up took", Sample(()))], 0.0).low is None


def test_an_unknown_query_is_answered_with_the_known_ones(burst: StatusDocument) -> None:
    with pytest.raises(LookupError, match=r"no query 'nobody'; there are count\.3, count\.2"):
        explain(burst, "nobody")
