"""How a new driver goes on with partitions that lived on without one (`recovery.driverGrace`).

It asks the hosts on the nodes of the last desired state what they have, with a survey: a job that does nothing, and after
which each host refuses every driver before this one.  What is at work on the node where it was desired, and fits what the
stream's records say, stands in this engine as if it had installed it itself; all else is left out, and is failed for the
coordinator.  So what lives and what is lost are to each other what they are after any partial loss, and nothing here
restores anything.

Why any mix of positions is right: with operators that are deterministic a partition at a batch has one state and one output
for the next, whoever installed it and in which generation.  Messages between them are sent again from the positions of the
survey; who is asked for what it does not hold any more says so (`Report.not_kept`), and everything goes back, as ever.

Batches that were skipped change nothing in that: they are on record before anybody acts on them
(`reprise.spark_jobs.state.skips`), so a partition at a batch has the state that follows from its input without them, and
this driver tells hosts of the same record.  But for one that stands at the very batch behind which it begins anew, and has
worked: the driver ended before it ordered that, and its state is still the whole one.  What was sealed for a skip that is
not on record is taken in again.

Invariant: nothing in the engine has changed when `adopt` answers with a reason, but that jobs were counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.engine.progress import progress_of
from reprise.spark_jobs.errors import CheckpointError, DataPlaneError
from reprise.spark_jobs.node.command import Command, Report
from reprise.spark_jobs.topology.adoption import grace_fits

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

log = logging.getLogger("reprise.engine")

SURVEY_S = 10.0
"""For so long a survey is waited for: nothing is done in it, but a host that is in the middle of a batch answers later."""
NAMED = 3
"""Partitions in a sentence for people."""


class SurveyError(DataPlaneError):
    """Not all nodes have answered: to be asked again, perhaps without one of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """A partition at work."""

    node: str
    installation: str
    position: int


def adopt(engine: Engine, before: EngineSpec, living: Mapping[str, str]) -> str:
    """Go on with what is at work on the nodes of `living` ("node#incarnation" -> host), of what was desired `before`; why
    nothing is gone on with, or empty.  Once, after `Engine.begin` and before anything is wanted of it.

    SurveyError: nobody knows; to be called again.
    """
    if reason := _unfit(engine):
        return reason
    nodes = sorted(set(before.assignment.values()) & living.keys())
    if not nodes:
        return "no node that had partitions is there"
    reports = dict(zip(nodes, _survey(engine, {node: living[node] for node in nodes}), strict=True))
    found, left = _at_work(engine, before, reports)
    reached = (*(r.horizon for r in reports.values()), *(one.position for one in found.values()))
    horizon = max(engine.punctuations.newest, *reached)
    if reason := _nothing_fits(engine, found, left, horizon):
        return reason
    sizes = _sizes(engine, found)
    _take_over(engine, before, found, horizon)
    engine.state_bytes.update(sizes)
    for node in {one.node for one in found.values()}:
        _believe(engine, node, reports[node])
    engine.progress = progress_of(engine, tuple(sorted(living)))
    said = f"{len(found)} of {len(engine.topology.partitions)} partitions go on as the driver before has left them"
    if left:
        said += f"; not {_some(left)}"
    log.info(
        "event=adopted epoch=%d partitions=%d left=%d reason=%r", engine.epoch, len(found), len(left), said
    )
    return ""


def _unfit(engine: Engine) -> str:
    """Why partitions of this topology cannot be gone on with: what is refused when the resource is read, and what only the
    code of its operators and the records of its stream say."""
    if refused := next(grace_fits(engine.resource), None):
        return str(refused)
    if not engine.restore_point.deterministic:
        return "a replay may differ: everything goes back to the newest checkpoint"
    return ""


def _survey(engine: Engine, hosts: Mapping[str, str]) -> list[Report]:
    """By node, in order; `hosts`: of each node."""
    engine.jobs += 1
    commands = [
        Command(
            job=engine.jobs,
            epoch=engine.epoch,
            slot=slot,
            topology=engine.resource.document,
            sink=engine.sites.sink,
            checkpoints=engine.sites.checkpoints,
            stream=engine.ledger.stream,
            survey=True,
        )
        for slot in range(len(hosts))
    ]
    orders = Dispatch(engine.topology).orders(list(hosts), commands)
    try:
        engine.connection.to(hosts, hosts, engine.connect)
        return engine.connection.run(commands[0].order, orders, threading.Event(), SURVEY_S)
    except DataPlaneError as error:
        engine.connection.end()
        raise SurveyError(f"the hosts were not surveyed: {error}") from error


def _at_work(
    engine: Engine, before: EngineSpec, reports: Mapping[str, Report]
) -> tuple[dict[str, Found], dict[str, str]]:
    """What can be gone on with, and of all else that was desired why not."""
    found, left = dict[str, Found](), dict[str, str]()
    anew = {(skip.partition, skip.until) for skip in engine.skipping.skips}
    last = int(before.driver) if before.driver.isdigit() else 0
    for partition in engine.topology.partitions:
        node = before.assignment.get(partition)
        if node is None or (report := reports.get(node)) is None:
            left[partition] = "it was nowhere" if node is None else f"{node} is gone"
            continue
        position, installation = report.positions.get(partition), report.installed.get(partition)
        if position is None or installation is None or partition in report.failed:
            left[partition] = report.refused or f"it is not at work on {node}"
        elif report.led_by < last:
            left[partition] = f"{node} has not obeyed the last driver, but that of epoch {report.led_by}"
        elif (partition, position) in anew and _has_worked(report, partition):
            left[partition] = f"it begins anew behind batch {position}, and has the state of before"
        elif position < engine.ledger.trimmed:
            left[partition] = f"input behind batch {position} was given up"
        else:
            found[partition] = Found(node, installation, position)
    return found, left


def _has_worked(report: Report, partition: str) -> bool:
    """Whether a partition has begun to apply a batch, or has read a state, since it was installed.  One that has just begun
    anew has done neither.  A batch without rows changes a state, too, so rows do not say it: any step takes CPU time."""
    usage = report.usage.get(partition)
    return usage is None or usage.cpu_s > 0 or usage.rows > 0 or usage.load_s > 0


def _nothing_fits(engine: Engine, found: Mapping[str, Found], left: Mapping[str, str], horizon: int) -> str:
    """Why all that was found is left: there is none, or it is not of this stream as its records have it."""
    if not found:
        return f"nothing is at work: {_some(left)}"
    last = engine.ledger.written if engine.final is None else engine.final
    if horizon > last:
        return f"hosts are at batch {horizon}, and the stream is on record up to batch {last} only"
    if horizon == engine.final and engine.punctuations.newest < horizon:
        return "the stream has ended, and who is at its end stores nothing more: it goes back to the newest checkpoint"
    return ""


def _sizes(engine: Engine, found: Mapping[str, Found]) -> dict[str, int]:
    """Bytes of what the newest checkpoint has of each partition: plans and people ask before it is stored again."""
    if engine.punctuations.newest == 0:
        return {}
    try:
        files = engine.restore_point.manifest(engine.punctuations.newest).files
    except CheckpointError as error:
        engine.problems.append(f"sizes of states are shown as 0 until they are stored again: {error}")
        return {}
    return {p: files[p].state_bytes if p in files else 0 for p in found}


def _take_over(engine: Engine, before: EngineSpec, found: Mapping[str, Found], horizon: int) -> None:
    engine.desired = replace(
        before,
        assignment={p: one.node for p, one in found.items()},
        punctuate=False,
        plan="",
        checkpoint_after=None,
        standbys={},
        anew={},
        adopted=True,
    )
    engine.horizon = horizon
    for partition, one in found.items():
        engine.positions[partition] = one.position
        engine.installation[partition] = one.installation
        if partition in engine.ledger.ranges:
            engine.ranges.holds(one.installation, one.position)
    engine.resend = set(found)
    engine.confirmed = engine.jobs


def _believe(engine: Engine, node: str, report: Report) -> None:
    """What else a host says in its answer."""
    mine = [p for p, n in engine.desired.assignment.items() if n == node]
    engine.usage.update({p: report.usage[p] for p in mine if p in report.usage})
    engine.counters.update({p: report.counters.get(p, {}) for p in mine})
    engine.outputs += report.outputs
    engine.problems += report.problems
    engine.buffers[node] = report.held


def _some(left: Mapping[str, str]) -> str:
    named = [f"{partition}: {why}" for partition, why in list(left.items())[:NAMED]]
    return "; ".join(named) + (f"; and {len(left) - NAMED} more" if len(left) > NAMED else "")
