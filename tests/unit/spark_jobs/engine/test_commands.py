"""The command of each node: what it is to host and how that begins, and that all nodes are told the same of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.commands import commands_of
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.topology import load_text
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(engine_module, "WINDOW", 3)  # nobody is far ahead
    made = World(load_text(DIAMOND), tmp_path, "w")
    made.nodes.start("a", "b", "c")
    made.want(1, 0, made.spread("a", "b"))
    return made


def told(world: World, *slots: str) -> list[Command]:
    return commands_of(world.engine, slots, 9)


def test_each_partition_is_hosted_once_and_everybody_knows_where(world: World) -> None:
    a, b = told(world, "a", "b")
    assert a.hosted.keys() | b.hosted.keys() == set(world.topology.partitions)
    assert not a.hosted.keys() & b.hosted.keys()
    for slot, one in enumerate((a, b)):
        assert one.slot == slot
        assert {p for p, at in one.routes.items() if at == slot} == set(one.hosted)
    assert a.routes == b.routes
    assert (a.window, a.epoch, a.generation) == (9, world.engine.epoch, 1)


def test_only_a_source_partition_has_ranges(world: World) -> None:
    tick(world, 2)
    for one in told(world, "a", "b"):
        assert set(one.ranges) == {p for p in one.hosted if p.startswith("tweets")}


def test_a_node_that_hosts_nothing_is_told_so(world: World) -> None:
    commands = told(world, "a", "b", "c")
    assert (commands[2].hosted, commands[2].installs) == ({}, {})
    assert commands[2].positions == commands[0].positions


def test_how_a_partition_begins_is_told_until_it_is_at_work(world: World) -> None:
    first = told(world, "a", "b")
    assert {p for one in first for p in one.installs} == set(world.topology.partitions)
    world.run(past(3))
    assert world.engine.installing == set()
    assert [dict(one.installs) for one in told(world, "a", "b")] == [{}, {}], (
        "it would begin with what is long past"
    )


def test_what_moves_is_installed_where_it_goes_from_the_checkpoint(world: World) -> None:
    world.run(lambda e: e.punctuations.newest >= 10)
    newest = world.engine.punctuations.newest
    moved = {**world.engine.desired.assignment, "count.0": "c"}
    before = world.engine.installation["count.0"]
    world.want(1, newest, moved)
    by_slot = dict(zip("abc", told(world, "a", "b", "c"), strict=True))
    assert by_slot["c"].hosted.keys() == {"count.0"}
    assert by_slot["c"].hosted["count.0"] != before, "another installation"
    install = by_slot["c"].installs["count.0"]
    assert install.position == newest and install.file is not None
    assert "count.0" in by_slot["a"].resend, "its upstreams send again what follows"
    assert by_slot["a"].installs.keys() <= {"count.0"} - by_slot["a"].hosted.keys()


def test_what_is_covered_is_the_newest_checkpoint(world: World) -> None:
    world.run(lambda e: e.punctuations.newest >= 10)
    (one, _) = told(world, "a", "b")
    assert one.covered.of("count.0") == one.published == world.engine.punctuations.newest
    world.want(1, one.published, world.engine.desired.assignment, retain=True)
    assert told(world, "a", "b")[0].retain


def test_what_has_failed_is_hosted_nowhere(world: World) -> None:
    world.run(past(3))
    world.nodes.lose("b")
    tick(world)
    (one,) = told(world, "a")
    assert set(one.hosted) == {p for p, n in world.engine.desired.assignment.items() if n == "a"}
    assert set(one.routes) == set(one.hosted)
