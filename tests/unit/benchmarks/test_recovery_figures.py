"""The arithmetic of the recovery benchmark: schedules, areas, the bound, the expected order."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import recovery
from benchmarks.recovery_measure import (
    Curve,
    area,
    bound_steps,
    curve_of,
    greatest_share,
    order_broken,
    worth,
)
from benchmarks.recovery_schedule import ACQUIRE_S, arrivals, lost, schedule
from benchmarks.recovery_show import Grid, spread
from reprise.controller.local.faults.faults import most_killed, parse_faults


def curve(**changes: Any) -> Curve:
    values: dict[str, Any] = {
        "elapsed": (-1.0, 0.0, 2.0, 10.0),
        "share": (1.0, 0.0, 0.5, 1.0),
        "available": (2, 0, 1, 2),
        "relative": (1.0, 1.0, 9.0, 1.0),
        "arrivals": (4.0,),
        "lost_nodes": 1,
        "again_s": 10.0,
    }
    return Curve(**values | changes)


def test_arrivals_follow_from_the_seed_and_lie_in_the_range_of_the_paper() -> None:
    found = arrivals(7, 8, 6.0)
    assert found == arrivals(7, 8, 6.0) != arrivals(8, 8, 6.0)
    assert found == sorted(found)
    assert all(ACQUIRE_S[0] / 6 <= at <= ACQUIRE_S[1] / 6 for at in found)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("nodes", ["@o0", "@o1"]), ("topological", ["@o0", "@o1"]), ("reverse", ["@o14", "@o13"])],
)
def test_which_nodes_are_lost(order: str, expected: list[str]) -> None:
    assert lost(order, 4, 2) == expected


def test_an_order_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="sideways"):
        lost("sideways", 4, 2)


def test_a_schedule_is_a_fault_file() -> None:
    faults = parse_faults(schedule(lost("nodes", 10, 8), arrivals(0, 8, 6.0)), "schedule", 10)
    assert most_killed(faults) == 8
    assert [fault.action for fault in faults] == ["kill"] + ["add"] * 8


@pytest.mark.parametrize(
    ("until", "expected"), [(0.0, 0.0), (2.0, 0.0), (4.0, 1.0), (10.0, 4.0), (12.0, 6.0)]
)
def test_area_begins_at_the_failure_and_keeps_the_last_value(until: float, expected: float) -> None:
    one = curve()
    assert area(list(zip(one.elapsed, one.share, strict=True)), until) == pytest.approx(expected)


def test_the_bound_rises_with_each_arrival() -> None:
    assert bound_steps(curve(), 2, lambda alive: alive / 2) == [(0.0, 0.5), (4.0, 1.0)]


def test_a_node_that_was_there_before_the_failure_is_not_counted_twice() -> None:
    steps = bound_steps(curve(arrivals=(-3.0, 4.0)), 2, lambda alive: alive / 2)
    assert steps[-1] == (4.0, 1.0)


def test_worth_of_a_run() -> None:
    found = worth(curve(), 2, lambda alive: alive / 2, 10.0)
    assert (found.area_s, found.bound_s, found.lost_s) == pytest.approx((4.0, 8.0, 6.0))
    assert found.of_bound == pytest.approx(0.5)


def test_the_greatest_share_of_topology_2() -> None:
    """Ten nodes run everything, none nothing, and one more node never allows less."""
    options = recovery._options(["--out", "x"])
    resource = recovery.topology(options, "incremental", 0)
    share = greatest_share(resource, recovery.cpu_milli(resource))
    found = [share(alive) for alive in (0, 1, 2, 3, 10)]
    assert found == sorted(found)
    assert found[0] == 0.0
    assert found[2] == pytest.approx(18 / 75)  # source, parser, o0 and o1: priorities 10 and 8 of 75
    assert found[-1] == 1.0


@pytest.mark.parametrize(
    ("areas", "broken"),
    [
        ({"best-case": 9.0, "incremental": 7.0, "operator-centric": 5.0, "blocking": 4.0}, 0),
        ({"best-case": 9.0, "incremental": 9.0, "operator-centric": 5.0, "blocking": 4.0}, 0),
        ({"best-case": 6.0, "incremental": 7.0, "operator-centric": 7.0, "blocking": 8.0}, 3),
        ({"incremental": 7.0}, 0),
    ],
)
def test_the_expected_order(areas: dict[str, float], broken: int) -> None:
    assert len(order_broken(areas)) == broken


def test_a_curve_from_a_report() -> None:
    report = {
        "failure": 20.0,
        "incidents": [{"queries": {"a.0": {}}}],
        "queries": {"a.0": {"available_again_s": 8.0}, "b.0": {"available_again_s": 0.0}},
        "timeline": [
            {"what": "kill", "elapsed": 20.0, "detail": "n3 n4"},
            {"what": "arrived", "elapsed": 26.0, "detail": "n5"},
        ],
        "series": {
            "elapsed": [10.0, 19.0, 21.0],
            "share": [1.0, 1.0, 0.5],
            "available": [2, 2, 1],
            "relative_latency": {"a.0": [1.0, 1.0, 7.0], "b.0": [1.0, 1.0, 1.0]},
        },
    }
    found = curve_of(report)
    assert found == Curve((-1.0, 1.0), (1.0, 0.5), (2, 1), (1.0, 7.0), (6.0,), 2, 8.0)


@pytest.mark.parametrize("report", [{"failure": 1.0}, {"failure": None, "series": {}}])
def test_a_run_without_a_curve(report: dict[str, Any]) -> None:
    assert curve_of(report) is None


def test_a_table_as_markdown() -> None:
    text = Grid("Title", ("a", "b"), (("1", "2"),)).markdown()
    assert text == "Title\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n"


def test_spread_of_one_and_of_several() -> None:
    assert spread([0.5]) == "0.50"
    assert spread([0.5, 1.0]) == "0.75 (0.50 .. 1.00)"


def test_more_nodes_cannot_be_lost_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recovery._options(["--out", "x", "--nodes", "4", "--kill", "5"])
    assert "--kill" in capsys.readouterr().err
