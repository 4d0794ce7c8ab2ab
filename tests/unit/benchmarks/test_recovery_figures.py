"""The arithmetic of the recovery benchmark: areas, the bound, the expected order."""

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


@pytest.mark.parametrize(
    ("until", "expected"), [(0.0, 0.0), (2.0, 0.0), (4.0, 1.0), (10.0, 4.0), (12.0, 6.0)]
)
def test_area_begins_at_the_failure_and_keeps_the_last_value(until: float, expected: float) -> None:
    one = curve()
    assert area(list(zip(one.elapsed, one.share, strict=True)), until) == pytest.approx(expected)


def test_the_bound_rises_with_each_arrival() -> None:
    assert bound_steps(curve(), 2, lambda alive: alive / 2) == [(0.0, 0.5), (4.0, 1.0)]


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


def test_more_nodes_cannot_be_lost_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recovery._options(["--out", "x", "--nodes", "4", "--kill", "5"])
    assert "--kill" in capsys.readouterr().err
