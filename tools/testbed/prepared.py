"""Hosts get what partitions begin with on threads of their own; tests that speak of something else let these come first."""

from __future__ import annotations

from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.restoring import Restorer, _Preparation, _Stage
from tools.testbed.waiting import HANGS_S


def let_all_come(host: Host) -> None:
    """Wait until everything that the host has asked for is there, or has failed; nothing is installed by that."""
    restorer: Restorer = host._restorer
    with restorer._changed:
        came = restorer._changed.wait_for(
            lambda: not any(_awaited(o, restorer) for o in _all(restorer)), HANGS_S
        )
    assert came, f"not within {HANGS_S} s: {list(restorer._wanted)}"


def _all(restorer: Restorer) -> list[_Preparation]:
    return list(restorer._wanted.values())


def _awaited(one: _Preparation, restorer: Restorer) -> bool:
    """Standbys that wait for their turn get it when something is installed, and others when the driver grants it."""
    waits = one.standby or not restorer._is_granted(one)
    return one.stage is not _Stage.DONE and not (waits and one.stage is _Stage.QUEUED)
