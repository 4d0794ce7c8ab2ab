"""Savepoints that an annotation asks for reach the driver once each, whoever asks for how often."""

from __future__ import annotations

from typing import Any, cast

from reprise.controller.operator.savepoint_wishes import hand_on
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.spark_jobs.state.savepoint_wish import SavepointWish

ROOT = "/reprise/default/minimal"
FOLDER = f"{ROOT}/{paths.SAVEPOINT_WISHES}"


def test_each_wish_is_written_once_and_what_nobody_can_read_holds_none_up() -> None:
    server = MemoryServer()
    session = ZooKeeperSession(cast(Any, server.session()))
    first, later = SavepointWish("before-v2", "w1"), SavepointWish("before-v3", "w2")
    for wishes in ([first], [first], [first, later]):
        hand_on(session, ROOT, wishes)
    assert sorted(session.get_children(FOLDER)) == ["w1", "w2"]
    assert server.records[f"{FOLDER}/w1"][1] == 0, "it is not written again"
    server.put(f"{ROOT}/{paths.SAVEPOINTS}", b"none such")
    hand_on(session, ROOT, [SavepointWish("before-v4", "w3")])
    assert "w3" in session.get_children(FOLDER)
