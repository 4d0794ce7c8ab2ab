"""Old incidents and their plans leave ZooKeeper, so that a topology that runs for years does not fill it.

Nothing decides by them: `reprise history` and the report of a run read them.  The newest `KEEP` closed incidents stay with
all of their plans; the open one is another record.  Removing is no part of a decision's transaction: a coordinator that
dies half-way leaves something for its successor.
"""

from __future__ import annotations

import logging

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from controller.coordination import paths
from controller.coordination.store import ANSWER_S

log = logging.getLogger("reprise.coordinator")

KEEP = 100
"""Closed incidents that stay on record."""


def prune(client: KazooClient, root: str, keep: int = KEEP) -> int:
    """Remove all but the newest `keep` closed incidents and the plans of those removed; how many incidents went.

    Ids count up, so they sort by age.  Trouble with ZooKeeper is logged and left to the next time.
    """
    removed = 0
    try:
        closed = sorted(_children(client, f"{root}/{paths.INCIDENTS}"))[: -keep or None]
        plans = _children(client, f"{root}/{paths.PLANS}") if closed else []
        for incident in closed:
            for plan in (p for p in plans if p.startswith(f"{incident}-p")):
                _delete(client, f"{root}/{paths.PLANS}/{plan}")
            _delete(client, f"{root}/{paths.INCIDENTS}/{incident}")
            removed += 1
    except (KazooException, KazooTimeoutError) as error:
        log.warning("event=history-not-pruned error=%r", error)
    return removed


def _children(client: KazooClient, path: str) -> list[str]:
    found: list[str] = client.get_children_async(path).get(timeout=ANSWER_S)
    return found


def _delete(client: KazooClient, path: str) -> None:
    try:
        client.delete_async(path).get(timeout=ANSWER_S)
    except NoNodeError:
        return
