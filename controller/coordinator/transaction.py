"""A decision as ZooKeeper operations, all of which are carried out or none.

The desired state is always among them, written or checked by version, so that a decision never rests on what
someone else has replaced. An incident comes and goes only together with a write of the desired state, which
is why the absence of an incident needs no check of its own (ZooKeeper has none).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.records import encode_desired, encode_poison
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan
from reprise.controller.zookeeper.session import Transaction
from reprise.controller.zookeeper.znode import pack
from reprise.scheduler.steps import (
    AddPlan,
    CloseIncident,
    Decision,
    Step,
    TakeSkip,
    WriteDesired,
    WriteIncident,
    WritePoison,
)

Operation = Callable[[Transaction], None]
"""Adds itself to a transaction."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Data versions of the coordinator's records; None where there was none."""

    desired: int | None = None
    incident: int | None = None
    poison: int | None = None


def operations(root: str, versions: Versions, decision: Decision) -> Iterator[Operation]:
    """What to commit for a decision on a snapshot that was read with `versions`."""
    if decision.desired is None and versions.desired is not None:
        yield _check(f"{root}/{paths.DESIRED}", versions.desired)
    for step in decision.steps:
        yield from _step(root, versions, step)


def _step(root: str, versions: Versions, step: Step) -> Iterator[Operation]:
    match step:
        case WriteDesired(desired):
            yield _write(f"{root}/{paths.DESIRED}", encode_desired(desired), versions.desired)
        case WriteIncident(incident):
            yield _write(f"{root}/{paths.INCIDENT}", encode_incident(incident), versions.incident)
        case CloseIncident(incident):
            yield _write(f"{root}/{paths.INCIDENTS}/{incident.id}", encode_incident(incident), None)
            if versions.incident is not None:
                yield _delete(f"{root}/{paths.INCIDENT}", versions.incident)
        case AddPlan(plan):
            yield _write(f"{root}/{paths.PLANS}/{plan.id}", encode_plan(plan), None)
        case WritePoison(poison):
            yield _write(f"{root}/{paths.POISON}", encode_poison(poison), versions.poison)
        case TakeSkip(query):  # written once; one that was taken back is not taken
            yield _delete(f"{root}/{paths.SKIPS}/{query}", 0)


def _write(path: str, data: bytes, version: int | None) -> Operation:
    """Create where there was nothing, else replace exactly the version that was read."""
    raw = pack(data)
    if version is None:
        return lambda transaction: transaction.create(path, raw)
    return lambda transaction: transaction.set_data(path, raw, version)


def _delete(path: str, version: int) -> Operation:
    return lambda transaction: transaction.delete(path, version)


def _check(path: str, version: int) -> Operation:
    return lambda transaction: transaction.check(path, version)
