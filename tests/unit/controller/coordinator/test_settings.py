"""A coordinator of its own process follows the settings of its topology, all of one version, between two looks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reprise.controller.coordinator import __main__ as program
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.settings import SettingsFollower
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.session import SessionState, ZooKeeperSession
from reprise.controller.zookeeper.settings_record import encode_settings
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from reprise.spark_jobs.topology.changes import settings_of
from tests.support.hashtags import WITH_STANDBYS
from tests.support.scripted import TEXT
from tests.unit.controller.coordinator.test_main import NEEDED, ROOT

STARTED = load_text(TEXT)
RECORD = f"{ROOT}/{paths.SETTINGS}"


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def coordinator(server: MemoryServer) -> Coordinator:
    options = program._parser().parse_args([*NEEDED, "--settle", "2.5", "--driver-grace", "9"])
    return program._coordinator(options, STARTED, ZooKeeperSession(cast(Any, server.session())))


def say(server: MemoryServer, **changes: Any) -> StreamTopology:
    wanted = override(STARTED, changes)
    server.put(RECORD, encode_settings(settings_of(wanted)))
    return wanted


def priorities(coordinator: Coordinator) -> set[int]:
    return {query.priority for query in coordinator.store.topology.queries}


def test_it_plans_with_the_settings_that_are_there_now(
    server: MemoryServer, coordinator: Coordinator
) -> None:
    coordinator.refresh()
    before = coordinator.policy
    assert before.cpu_cap == STARTED.recovery.cpu_cap
    say(server, **{"recovery.cpuCap": 61, "operators[out].output.priority": 9, "checkpoint.keep": 8})
    assert coordinator.store.changed.is_set(), "it looks at once"
    coordinator.refresh()
    assert coordinator.policy.cpu_cap == pytest.approx(0.61)
    assert (coordinator.policy.settle_s, coordinator.policy.driver_grace_s) == (2.5, 9.0)
    assert priorities(coordinator) == {9}
    assert coordinator.store.keep == 8
    say(server)
    coordinator.refresh()
    assert coordinator.policy == before


def test_standbys_are_placed_by_the_label_that_is_wanted_now(server: MemoryServer) -> None:
    """After the outage of a zone they can be told to keep clear of something else, with the same driver."""
    started = load_text(WITH_STANDBYS, changes={"operators[count].standby": {"failureDomain": "zone"}})
    options = program._parser().parse_args([*NEEDED])
    coordinator = program._coordinator(options, started, ZooKeeperSession(cast(Any, server.session())))
    coordinator.refresh()
    for label in ("pool", "rack", None):
        wanted = override(started, {"operators[count].standby.failureDomain": label})
        server.put(RECORD, encode_settings(settings_of(wanted)))
        coordinator.refresh()
        domains = coordinator.store.topology.domains
        found = {p: at for p, at in domains.items() if p.startswith("count.")}
        assert found == ({} if label is None else {"count.0": label, "count.1": label})


def test_what_cannot_be_read_leaves_what_was_known(server: MemoryServer, coordinator: Coordinator) -> None:
    say(server, **{"recovery.cpuCap": 61})
    coordinator.refresh()
    server.put(RECORD, b"[]")
    coordinator.refresh()
    assert coordinator.policy.cpu_cap == pytest.approx(0.61)
    say(server, **{"recovery.cpuCap": 62})
    coordinator.refresh()
    assert coordinator.policy.cpu_cap == pytest.approx(0.62)


def test_after_an_outage_settings_are_read_anew(
    server: MemoryServer, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that was set in a session that ended tells of nothing any more."""
    coordinator.refresh()
    client = coordinator.store.client
    say(server, **{"recovery.cpuCap": 61})
    with monkeypatch.context() as away:
        away.setattr(type(client), "state", SessionState.LOST)
        coordinator.refresh()
    assert coordinator.policy.cpu_cap == STARTED.recovery.cpu_cap
    coordinator.refresh()
    assert coordinator.policy.cpu_cap == pytest.approx(0.61)


# -- the follower itself -----------------------------------------------------------------------------------------------


def test_the_same_settings_are_taken_over_once(
    server: MemoryServer, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = SettingsFollower(coordinator, STARTED)
    followed: list[object] = []
    monkeypatch.setattr(type(coordinator.store), "follow", lambda _store, *what: followed.append(what))
    follower.refresh()
    assert followed == [], "nobody has said anything"
    say(server, **{"checkpoint.keep": 8})
    for _ in range(3):
        follower.refresh()
    assert [keep for _, keep, _ in followed] == [8]  # type: ignore[misc]
    say(server, **{"checkpoint.keep": 8, "paused": True})
    follower.refresh()
    assert [paused for _, _, paused in followed] == [STARTED.paused, True]  # type: ignore[misc]


def test_settings_are_applied_to_the_topology_that_was_started_and_not_to_each_other(
    server: MemoryServer, coordinator: Coordinator
) -> None:
    """What an earlier version of the settings has changed, and the newest does not say, is as it was at the start."""
    follower = SettingsFollower(coordinator, STARTED)
    say(server, **{"recovery.cpuCap": 61})
    follower.refresh()
    say(server, **{"operators[out].output.priority": 9})
    follower.refresh()
    assert coordinator.policy.cpu_cap == STARTED.recovery.cpu_cap
    assert priorities(coordinator) == {9}


def test_what_is_no_record_is_told_and_the_next_one_counts(
    server: MemoryServer, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    follower = SettingsFollower(coordinator, STARTED)
    server.put(RECORD, b"{")
    follower.refresh()
    assert "event=settings-not-read" in caplog.text
    say(server, **{"checkpoint.keep": 8})
    follower.refresh()
    assert coordinator.store.keep == 8
