"""Hands the savepoints that a topology's annotation asks for on to its driver, once each."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import NodeExistsError, NoNodeError, RecordError
from reprise.controller.zookeeper.savepoint_records import SavepointsRecord, encode_wish, parse_savepoints
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.spark_jobs.state.savepoint_wish import SavepointWish

log = logging.getLogger("reprise.operator")


def hand_on(session: ZooKeeperSession, root: str, wishes: Iterable[SavepointWish]) -> None:
    """Write down those of which nobody has said yet what came of them.  ClientError: some may be written."""
    known = _known(session, root)
    for wish in wishes:
        if not known.has(wish.id):
            with contextlib.suppress(NodeExistsError):
                path = f"{root}/{paths.SAVEPOINT_WISHES}/{wish.id}"
                session.create(path, encode_wish(wish), makepath=True)


def _known(session: ZooKeeperSession, root: str) -> SavepointsRecord:
    try:
        return parse_savepoints(session.get(f"{root}/{paths.SAVEPOINTS}")[0])
    except NoNodeError:
        return SavepointsRecord()
    except RecordError as error:  # the driver refuses what it has done before
        log.warning("event=savepoints-unreadable reason=%r", str(error))
        return SavepointsRecord()
