"""`reprise drain`: what it says while a node is emptied, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.algorithms.failure import Failure
from reprise.controller.cli import drain_command, exits
from reprise.controller.cli.app import main
from reprise.controller.cli.target import Address
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Desired, Leaving, Moving, Node, Progress
from reprise.spark_jobs.topology import load_topology
from reprise.spark_jobs.topology.graph import expand
from tests.support.fake_target import FakeTarget

RESOURCE = load_topology(Path(__file__).parents[4] / "examples" / "minimal.yaml")
PARTITIONS = tuple(expand(RESOURCE).partitions)


def seen(assignment: Mapping[str, str], leaving: str = "n2", cpu: int = 4000, gone: str = "") -> Observation:
    names = [name for name in ("n1", "n2") if name != gone]
    nodes = {
        f"{n}#1": Node(n, 1, cpu, leaving=Leaving("reprise drain") if n == leaving else None) for n in names
    }
    return Observation(
        1.0,
        True,
        nodes,
        Progress("1", 7, nodes=frozenset(nodes), positions=dict.fromkeys(assignment, 5)),
        desired=Desired(7, 1, 0, "1", assignment),
    )


def left(number: int) -> dict[str, str]:
    """So many partitions on n2, the others on n1."""
    return {p: "n2#1" if k < number else "n1#1" for k, p in enumerate(PARTITIONS)}


def drain(monkeypatch: pytest.MonkeyPatch, target: FakeTarget, *words: str) -> Result:
    monkeypatch.setattr(Address, "open", lambda _: target)
    monkeypatch.setattr(drain_command, "LOOK_S", 0.0)
    monkeypatch.setattr(drain_command, "STUCK_S", 0.0)
    return CliRunner().invoke(main, ["drain", *words, "--out", "x"])


def test_it_asks_and_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen(left(1)))
    result = drain(monkeypatch, target, "n2")
    assert (result.exit_code, result.output) == (0, "written\n")
    assert target.asked == [("n2", True)]


def test_the_wish_is_taken_back_also_of_a_node_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen(left(0), gone="n2"))
    result = drain(monkeypatch, target, "n2", "--undo")
    assert (result.exit_code, result.output) == (0, "written\n"), result.output
    assert target.asked == [("n2", False)]
    refused = drain(monkeypatch, target, "n2")
    assert refused.exit_code == exits.BAD_INPUT
    assert "there is no node 'n2'; there are n1" in refused.output
    assert len(target.asked) == 1


def test_waiting_it_says_how_many_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, *(seen(left(k)) for k in (2, 2, 2, 1, 0)))
    result = drain(monkeypatch, target, "n2", "--wait")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "written",
        "n2: 2 partitions left",
        "n2: 1 partition left",
        "n2 is empty",
    ]


def test_without_room_it_says_what_stays_and_how_much_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    small = seen(left(1), cpu=1)
    result = drain(monkeypatch, FakeTarget(RESOURCE, small), "n2", "--wait")
    assert result.exit_code == exits.NO
    assert f"n2 cannot be emptied: 1 partition stays for want of room ({PARTITIONS[0]})" in result.output
    assert "milli-CPU" in result.output
    warned = drain(monkeypatch, FakeTarget(RESOURCE, small), "n2")
    assert warned.exit_code == 0
    assert "not all of it can go" in warned.output
    assert small.desired is not None
    moving = replace(small, desired=replace(small.desired, moving=Moving({PARTITIONS[0]: "n1#1"}, 3)))
    late = drain(monkeypatch, FakeTarget(RESOURCE, moving), "n2", "--wait", "--timeout", "0.05")
    assert late.exit_code == exits.TIMED_OUT, "while something moves nothing is stuck"


def test_a_node_that_goes_meanwhile_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    result = drain(monkeypatch, FakeTarget(RESOURCE, seen(left(1)), seen(left(1), gone="n2")), "n2", "--wait")
    assert result.exit_code == exits.NO
    assert "n2 is gone, with 1 partition on it" in result.output


def test_out_of_time_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = seen(left(1))
    assert observed.desired is not None
    paused = replace(observed, desired=replace(observed.desired, paused=True))
    result = drain(monkeypatch, FakeTarget(RESOURCE, paused), "n2", "--wait", "--timeout", "0")
    assert result.exit_code == exits.TIMED_OUT
    assert "the topology is paused" in result.output


def test_a_node_is_empty_when_the_driver_has_taken_that_over(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = seen(left(0))
    assert moved.progress is not None
    before = replace(moved, progress=replace(moved.progress, seq=6))
    result = drain(monkeypatch, FakeTarget(RESOURCE, before, before, moved), "n2", "--wait")
    assert (result.exit_code, result.output.count("n2 is empty")) == (0, 1)
    late = drain(monkeypatch, FakeTarget(RESOURCE, before), "n2", "--wait", "--timeout", "0")
    assert late.exit_code == exits.TIMED_OUT
    assert "the driver has not taken that over" in late.output


def test_partitions_that_are_set_aside_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(left(2))
    assert found.progress is not None and found.desired is not None
    poisoned = replace(found.progress, failed={PARTITIONS[0]: Failure.parse("poison: a batch raises")})
    desired = replace(found.desired, moving=Moving({PARTITIONS[1]: "n1#1"}, 3))
    target = FakeTarget(RESOURCE, replace(found, progress=poisoned, desired=desired))
    late = drain(monkeypatch, target, "n2", "--wait", "--timeout", "0")
    assert late.exit_code == exits.TIMED_OUT
    assert f"set aside ({PARTITIONS[0]})" in late.output


def test_nothing_is_waited_for_with_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(RESOURCE, seen(left(1)))
    result = drain(monkeypatch, target, "n2", "--undo", "--wait")
    assert result.exit_code == 2
    assert "--wait" in result.output
    assert target.asked == []
