"""Old incidents and their plans leave ZooKeeper, so that a topology that runs for years does not fill it.

Nothing decides by them: `reprise history` and the report of a run read them.  The newest closed incidents stay with all of
their plans, as many as `Kept` allows in number and in bytes: ZooKeeper holds all records of all topologies in its memory,
and an incident of ten thousand partitions weighs a thousand times one of ten.  The open one is another record, and the
newest closed one stays however large it is.  Removing is no part of a decision's transaction: a coordinator that dies
half-way leaves something for its successor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import ClientError, NoNodeError
from reprise.controller.zookeeper.session import ZooKeeperSession

log = logging.getLogger("reprise.coordinator")


@dataclass(frozen=True, slots=True)
class Kept:
    """How much history of one topology stays on record."""

    incidents: int = 100
    """Closed ones."""
    size_bytes: int = 4 * 2**20
    """Of these and their plans together, as ZooKeeper holds them.  Default 4 MiB: the chart's ZooKeeper with its heap of
    256 MiB has room for the full history of forty large topologies, and small ones never reach it."""


def prune(client: ZooKeeperSession, root: str, kept: Kept = Kept()) -> int:
    """Remove the oldest closed incidents that are too many, with their plans; how many incidents went.

    Ids count up, so they sort by age.  Trouble with ZooKeeper is logged and left to the next time.
    """
    removed = 0
    try:
        closed = sorted(client.get_children(f"{root}/{paths.INCIDENTS}"))
        plans: dict[str, list[str]] = {incident: [] for incident in closed}
        for plan in client.get_children(f"{root}/{paths.PLANS}") if closed else []:
            plans.get(plan.rpartition("-p")[0], []).append(plan)
        records = {
            incident: [f"{root}/{paths.PLANS}/{plan}" for plan in plans[incident]]
            + [f"{root}/{paths.INCIDENTS}/{incident}"]
            for incident in closed
        }
        for incident in _too_many(_sizes(client, records), kept):
            for path in records[incident]:  # the incident last: its plans are found by its name
                _delete(client, path)
            removed += 1
    except ClientError as error:
        log.warning("event=history-not-pruned error=%r", error)
    return removed


def _too_many(sizes: Mapping[str, int], kept: Kept) -> list[str]:
    """Choose of incidents with their bytes, oldest first, those that must go, oldest first."""
    newest = list(sizes)[::-1]
    total = accumulate(sizes[incident] for incident in newest)
    stay = sum(
        1 for k, size in enumerate(total) if k == 0 or (k < kept.incidents and size <= kept.size_bytes)
    )
    return newest[stay:][::-1]


def _sizes(client: ZooKeeperSession, records: Mapping[str, list[str]]) -> dict[str, int]:
    """Bytes of all records of each incident; all are asked for before the first is waited for."""
    asked = {incident: [client.exists_async(path) for path in paths_] for incident, paths_ in records.items()}
    found = {}
    for incident, answers in asked.items():
        stats = [answer.get() for answer in answers]
        found[incident] = sum(stat.length for stat in stats if stat is not None)
    return found


def _delete(client: ZooKeeperSession, path: str) -> None:
    try:
        client.delete_async(path).get()
    except NoNodeError:
        return
