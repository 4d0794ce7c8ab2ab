"""Writes each event of an incident and each plan to the log when it is committed.

ZooKeeper has the same, but for as long as it keeps closed incidents, and where somebody can ask it.  A coordinator that was
killed between the commit and the log line has left a line out, so the next leader logs the open incident, or the newest
closed one, again from its beginning.  A line that is there twice does no harm (`reprise.controller.analysis.from_logs` takes
each once); a line that is missing would.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from reprise.controller.plan_summary import plan_summary
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import ClientError, NoNodeError, RecordError
from reprise.controller.zookeeper.recovery_records import parse_incident, parse_plan
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler.incident import Incident, PlanRecord

log = logging.getLogger("reprise.coordinator")


def log_changes(before: Incident | None, after: Incident | None, plans: Iterable[PlanRecord]) -> None:
    """Log the events and plans that a decision has added."""
    if after is not None:
        known = set(before.events) if before is not None and before.id == after.id else set()
        for event in (e for e in after.events if e not in known):
            name, detail = event.written
            log.info(
                "event=incident incident=%s kind=%s name=%s time=%r detail=%r",
                after.id, after.kind.value, name, event.time, detail,
            )  # fmt: skip
    for plan in plans:
        log.info(
            "event=plan incident=%s plan=%s time=%r trigger=%s summary=%r",
            plan.incident, plan.id, plan.time, plan.trigger, plan_summary(plan),
        )  # fmt: skip


def replay_log(client: ZooKeeperSession, root: str, now_open: Incident | None) -> None:
    """Log the open or newest closed incident again, for a coordinator that has just become the leader.
    Errors are only logged."""
    try:
        incident = now_open or _newest_closed(client, root)
        if incident is not None:
            raw = [(name, _get(client, f"{root}/{paths.PLANS}/{name}")) for name in incident.plans]
            log_changes(None, incident, [parse_plan(data, name) for name, data in raw if data])
    except (ClientError, RecordError) as error:
        log.warning("event=log-not-replayed error=%r", error)


def _newest_closed(client: ZooKeeperSession, root: str) -> Incident | None:
    try:
        names = sorted(client.get_children(f"{root}/{paths.INCIDENTS}"))
    except NoNodeError:
        return None
    raw = _get(client, f"{root}/{paths.INCIDENTS}/{names[-1]}") if names else None
    return parse_incident(raw, names[-1]) if raw else None


def _get(client: ZooKeeperSession, path: str) -> bytes | None:
    try:
        raw, _ = client.get(path)
    except NoNodeError:
        return None
    return raw or None
