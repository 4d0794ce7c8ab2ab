"""Settings of a topology that runs: the driver follows those of one version, between two jobs, and so does the next driver;
partitions, hosts and output stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper.settings_record import encode_settings
from reprise.spark_jobs.engine.settings import resource_in_effect
from reprise.spark_jobs.topology import StreamTopology, override
from reprise.spark_jobs.topology.changes import revision_of_settings, settings_of
from tests.support.local_driver import ROOT, LocalDriver, world_of
from tests.unit.controller.driver.test_loop import turns
from tests.unit.controller.driver.test_upgrade import OLD, change, expected, started

WANTED: dict[str, Any] = {
    "checkpoint.everyBatches": 3,
    "checkpoint.keep": 5,
    "operators[top].output.priority": 10,
    "recovery.scope": "ancestors",
}


def say(tree: MemoryServer, resource: StreamTopology) -> str:
    settings = settings_of(resource)
    tree.put(f"{ROOT}/commands/settings", encode_settings(settings))
    return revision_of_settings(settings)


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    """At work, with a checkpoint, and no setting but those that it was started with."""
    driver = started(world_of(OLD, folder), MemoryServer(), 1, 0, monkeypatch)
    turns(driver, lambda: driver.engine.punctuations.newest >= 10)
    assert driver.loop.progress().settings == revision_of_settings(settings_of(OLD))
    return driver


@pytest.mark.wide
def test_a_driver_follows_new_settings_and_nothing_is_installed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = begun(tmp_path, monkeypatch)
    engine, wanted = driver.engine, override(OLD, WANTED)
    before, document = dict(engine.installation), engine.resource.document
    hosts = dict(driver.world.nodes.hosts)
    assert all(host._keeps for host in hosts.values())
    revision = say(driver.tree, wanted)
    driver.turn()
    assert driver.loop.progress().settings == revision
    assert resource_in_effect(engine).document == wanted.document
    assert {q.priority for q in engine.topology.queries.values() if q.id.startswith("top")} == {10}
    turns(driver, lambda: engine.punctuations.newest % 10 in (3, 6, 9) or engine.done)
    assert engine.punctuations.newest % 3 == 0, "checkpoints come in the new rhythm"
    assert not any(host._keeps for host in hosts.values()), "what nobody will ask for is not kept"
    turns(driver, lambda: engine.done)
    assert engine.installation == before
    assert engine.resource.document == document, "hosts were told of no other resource"
    assert driver.world.nodes.hosts == hosts
    assert driver.world.output() == expected(OLD, tmp_path / "whole")


@pytest.mark.wide
@pytest.mark.parametrize("heard", [False, True], ids=["before it took them", "after"])
def test_a_driver_that_ends_is_followed_by_one_with_all_of_the_newest_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    driver = begun(tmp_path, monkeypatch)
    world, newest = driver.world, driver.engine.punctuations.newest
    say(driver.tree, override(OLD, {"recovery.cpuCap": 99, "checkpoint.keep": 9}))
    if heard:
        driver.turn()
    revision = say(driver.tree, override(OLD, WANTED))
    world.nodes.lose("a", "b")
    world.nodes.start("a", "b")
    later = started(world, driver.tree, 2, newest, monkeypatch)
    later.turn()
    assert later.loop.progress().settings == revision
    now = resource_in_effect(later.engine)
    assert (now.checkpoint.keep, now.recovery.cpu_cap) == (5, OLD.recovery.cpu_cap), "none of those between"
    turns(later, lambda: later.engine.done)
    assert world.output() == expected(OLD, tmp_path / "whole")


@pytest.mark.wide
def test_two_drivers_at_once_follow_one_version_each_and_show_one_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one was given up, has not heard of it, and hears of settings: it speaks no more, and shows nothing else."""
    driver = begun(tmp_path, monkeypatch)
    world = driver.world
    later = started(world, driver.tree, 2, driver.engine.punctuations.newest, monkeypatch)
    revision = say(driver.tree, override(OLD, WANTED))
    for _ in range(3):
        driver.turn()
        later.turn()
    assert driver.stop.is_set()
    turns(later, lambda: later.engine.done)
    assert later.loop.progress().settings == revision
    assert world.output() == expected(OLD, tmp_path / "whole")


def test_what_is_kept_from_now_on_serves_who_is_lost_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = override(OLD, {"recovery.scope": "global"})
    world = world_of(resource, tmp_path)
    driver = started(world, MemoryServer(), 1, 0, monkeypatch)
    turns(driver, lambda: driver.engine.punctuations.newest >= 10)
    assert not any(host._keeps for host in world.nodes.hosts.values())
    say(driver.tree, OLD)
    turns(driver, lambda: all(host._keeps for host in world.nodes.hosts.values()))
    since = driver.engine.horizon
    turns(driver, lambda: driver.engine.punctuations.newest > since or driver.engine.done)
    assert driver.engine.progress.kept_since <= driver.engine.punctuations.newest


def test_settings_that_cannot_be_read_are_a_problem_and_the_known_ones_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = begun(tmp_path, monkeypatch)
    revision = say(driver.tree, override(OLD, WANTED))
    driver.turn()
    driver.tree.put(f"{ROOT}/commands/settings", b'{"settings": 7}')
    driver.turn()
    told = driver.loop.progress()
    assert told.settings == revision
    assert any("commands/settings" in problem for problem in told.problems)
    change(driver.world, OLD)
