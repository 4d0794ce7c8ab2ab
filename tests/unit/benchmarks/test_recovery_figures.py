"""The arithmetic of the recovery benchmark: areas, bounds, causes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import recovery, recovery_runs
from benchmarks.recovery_measure import (
    AVAILABLE,
    BOUNDS,
    CAUGHT_UP,
    OUTPUT,
    RESTORED,
    Curve,
    Evidence,
    area,
    bound_steps,
    curve_of,
    evidence_of,
    first_output,
    greatest_share,
    ladder,
)
from reprise.controller.local.report.history import Writes
from reprise.scheduler.node_start import StartPhase


def curve(**changes: Any) -> Curve:
    values: dict[str, Any] = {
        "elapsed": (-1.0, 0.0, 2.0, 10.0),
        "share": (1.0, 0.0, 0.5, 1.0),
        "available": (2, 0, 1, 2),
        "relative": (1.0, 1.0, 9.0, 1.0),
        "lost_nodes": 1,
        "priorities": {"a.0": 3, "b.0": 1},
        "nodes": {StartPhase.REQUESTED: (3.0,), StartPhase.HEARTBEAT: (4.0,), StartPhase.READY: (6.0,)},
        "queries": {RESTORED: {"a.0": 1.0, "b.0": 7.0}, OUTPUT: {"a.0": 2.0, "b.0": 9.0}},
        "again_s": 10.0,
    }
    return Curve(**values | changes)


def writes(*at: float) -> Writes:
    return Writes(np.arange(len(at), dtype=np.int64), np.array(at), np.array(at))


@pytest.mark.parametrize(
    ("until", "expected"), [(0.0, 0.0), (2.0, 0.0), (4.0, 1.0), (10.0, 4.0), (12.0, 6.0)]
)
def test_area_begins_at_the_failure_and_keeps_the_last_value(until: float, expected: float) -> None:
    one = curve()
    assert area(list(zip(one.elapsed, one.share, strict=True)), until) == pytest.approx(expected)


def test_the_bound_rises_with_each_arrival() -> None:
    assert bound_steps((4.0, -1.0), 1, lambda alive: alive / 3) == [(0.0, 1 / 3), (0.0, 2 / 3), (4.0, 1.0)]


def test_each_cause_takes_its_share_of_the_area() -> None:
    found = ladder(curve(), 2, lambda alive: alive / 2, 10.0)
    assert [name for name, _ in found] == ["no failure", *BOUNDS.values(), RESTORED, OUTPUT, "measured"]
    # restored: (3 x 9 s + 1 x 3 s) / 4; first output: (3 x 8 s + 1 x 1 s) / 4
    assert [value for _, value in found] == pytest.approx([10.0, 8.5, 8.0, 7.0, 7.5, 6.25, 4.0])


def test_without_a_bound_the_ladder_has_what_the_queries_did() -> None:
    found = ladder(curve(), 2, None, 10.0)
    assert [name for name, _ in found] == ["no failure", RESTORED, OUTPUT, "measured"]


def test_the_bound_of_nodes_that_never_came() -> None:
    found = dict(ladder(curve(nodes={StartPhase.HEARTBEAT: ()}), 2, lambda alive: alive / 2, 10.0))
    assert found[BOUNDS[StartPhase.HEARTBEAT]] == pytest.approx(5.0)
    assert BOUNDS[StartPhase.READY] not in found


def test_a_query_that_never_came_back_counts_as_gone_until_the_horizon() -> None:
    found = dict(ladder(curve(queries={RESTORED: {"a.0": 1.0}}), 2, lambda alive: alive / 2, 10.0))
    assert found[RESTORED] == pytest.approx(3 * 9 / 4)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ([96, 97, 98, 99, 100, 101, 109, 110], 9.0),
        ([96, 97, 98, 99, 107, 108, 120], 7.0),  # the first silence, not the longest one
        ([96, 97, 98, 99, 100, 101, 102, 103], 0.0),
        ([96, 97, 98, 99, 100], None),
        ([94, 95, 96, 97, 130, 131], 30.0),  # silent before the failure already
        ([], None),
    ],
    ids=["silent", "silent-again", "never-silent", "never-back", "silent-before", "no-output"],
)
def test_the_first_output_ends_the_first_silence(at: list[int], expected: float | None) -> None:
    assert first_output(writes(*map(float, at)), 100.0) == expected


def test_the_first_query_that_is_back() -> None:
    assert curve().first_s == 2.0
    assert curve(queries={}).first_s is None


@pytest.mark.parametrize(("room", "two"), [("scarce", 18 / 75), ("ample", 1.0)])
def test_the_greatest_share_of_topology_2(room: str, two: float) -> None:
    """Ten nodes run everything, no node nothing, and one more node never allows less."""
    options = recovery.parse(["--out", "x"])
    resource = recovery_runs.topology(options, room, "incremental", 0)
    share = greatest_share(resource, recovery_runs.cpu_milli(resource))
    found = [share(alive) for alive in (0, 1, 2, 3, 10)]
    assert found == sorted(found)
    assert found[0] == 0.0
    assert found[2] == pytest.approx(two)  # scarce: source, parser, o0 and o1, priorities 10 and 8 of 75
    assert found[-1] == 1.0


def test_a_stream_lasts_beyond_the_horizon() -> None:
    options = recovery.parse(["--out", "x", "--horizon", "50", "--interval", "0.3"])
    source = recovery_runs.topology(options, "scarce", "incremental", 0).sources[0].parameters
    assert source["batches"] == 300
    assert source["interval"] == "0.3s"


def report(**changes: Any) -> dict[str, Any]:
    requested = {"requested": 25.0, "heartbeat": 26.0}
    found = {
        "zero": 1000.0,
        "failure": 20.0,
        "incidents": [
            {
                "queries": {"a.0": {"restored": 24.0, "caught_up": None}},
                "node_starts": {
                    "n5#1": {"ended": {**requested, "ready": 27.5}},
                    "n6#1": {"ended": requested},
                },
            }
        ],
        "queries": {"a.0": {"priority": 2}, "b.0": {"priority": 1}},
        "timeline": [{"what": "kill", "elapsed": 20.0, "detail": "n3 n4"}],
    }
    return found | changes


def test_evidence_from_a_report() -> None:
    written = {"a.0": writes(1018.0)}
    found = evidence_of(report(), written)
    assert found == Evidence(
        zero=1000.0,
        failure=1020.0,
        writes=written,
        priorities={"a.0": 2, "b.0": 1},
        lost_nodes=2,
        nodes={
            StartPhase.REQUESTED: (1025.0, 1025.0), StartPhase.HEARTBEAT: (1026.0, 1026.0),
            StartPhase.READY: (1027.5,),
        },
        returns={RESTORED: {"a.0": 1024.0, "b.0": 1020.0}, CAUGHT_UP: {"b.0": 1020.0}},
    )  # fmt: skip
    assert evidence_of(report(failure=None), written) is None
    assert evidence_of(report(), {}) is None


def test_a_curve_until_the_horizon() -> None:
    """Batches of a second; `a.0` is silent for 10 s and then catches up, and `b.0` never was lost."""
    dues = np.arange(980.0, 1060.0)
    late = np.where((dues > 1000) & (dues < 1010), 1010.0, dues + 0.1)
    batches = np.arange(1, 81, dtype=np.int64)
    evidence = Evidence(
        zero=980.0,
        failure=1000.0,
        writes={"a.0": Writes(batches, dues, late), "b.0": Writes(batches, dues, dues + 0.1)},
        priorities={"a.0": 2, "b.0": 1},
        lost_nodes=1,
        nodes={StartPhase.REQUESTED: (1004.0,)},
        returns={RESTORED: {"a.0": 1009.0}},
    )
    found = curve_of(evidence, 1.0, 30.0)
    assert found.elapsed[0] >= -5.0 and 29.5 < found.elapsed[-1] <= 30.0
    assert found.share[0] == found.share[-1] == 1.0
    assert min(found.share) == pytest.approx(1 / 3)
    assert found.queries[OUTPUT] == pytest.approx({"a.0": 10.0, "b.0": 0.0})
    assert found.queries[RESTORED] == {"a.0": 9.0}
    assert found.queries[AVAILABLE]["b.0"] == 0.0
    assert 10.0 <= found.queries[AVAILABLE]["a.0"] == found.again_s
    assert found.again_s is not None and found.again_s < 15.0
    assert found.nodes == {StartPhase.REQUESTED: (4.0,)}
    assert found.last_s == pytest.approx(59.1)
    assert found.usual_s == pytest.approx(0.1)
    assert max(found.relative) > 20


def test_more_nodes_cannot_be_lost_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recovery.parse(["--out", "x", "--nodes", "4", "--kill", "5"])
    assert "--kill" in capsys.readouterr().err
