"""Hosts get what partitions begin with on threads of their own; tests that speak of something else let these come first."""

from __future__ import annotations

from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.restoring import Restorer, _Preparation, _Stage
from tools.testbed.waiting import HANGS_S


def let_all_come(host: Host) -> None:
    """Wait until everything that the host has asked for is there, or has failed; nothing is installed by that."""
    restorer: Restorer = host._restorer
    with restorer._changed:
        came = restorer._changed.wait_for(lambda: not any(map(_awaited, restorer._wanted.values())), HANGS_S)
    assert came, f"not within {HANGS_S} s: {list(restorer._wanted)}"


def _awaited(one: _Preparation) -> bool:
    """Standbys that wait for their turn get it when something is installed."""
    return one.stage is not _Stage.DONE and not (one.standby and one.stage is _Stage.QUEUED)
