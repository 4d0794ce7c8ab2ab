"""A topology goes on with other queries: what stands on record of the former graph goes in the transaction that puts the
other spec on record.

Invariants.  Whoever reads the other spec finds no record that names partitions of the former graph, and whoever is stopped
in between finds all of the former.  The step is not taken where an incident is open: what was lost is in it by the former
partitions, and nobody but a driver of the former graph brings it back.  Each decision checks the version of the spec that
its graph is of, so an operator that was stopped while another one took the step writes nothing about the former graph.
The step takes a number of a driver, so that one of the former graph, which may live on after its pod was removed by force,
is not the newest any more: whatever it writes is refused, and it ends.  One that has no number yet takes none of those
that follow (`controller/driver/channel.py`).  And where one has reported and has not drained, it comes before the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reprise.controller.coordinator.transaction import Operation
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import (
    NodeExistsError,
    NoNodeError,
    RefusedError,
    RolledBackError,
    StaleError,
)
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import encode_number, parse_number
from reprise.controller.zookeeper.records import parse_progress
from reprise.controller.zookeeper.session import Transaction, ZooKeeperSession
from reprise.scheduler.steps import Decision
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, from_json
from reprise.spark_jobs.topology.graph_change import graph_of


def other_graph(before: StreamTopology | None, after: StreamTopology) -> bool:
    """Whether queries come or go from one to the other; `before` None: nobody knows what there was."""
    return before is not None and graph_of(before) != graph_of(after)


def is_of_other(before: StreamTopology | None, document: str) -> bool:
    """The same, of a document; one of another version cannot be told."""
    try:
        return other_graph(before, from_json(document))
    except SpecError:
        return False


def checked(root: str, version: int | None) -> Iterator[Operation]:
    """What a decision's transaction has besides: the spec is still the one whose graph it is about.  `version`: of its
    record, None: there is none."""
    if version is not None:
        yield lambda transaction: transaction.check(f"{root}/{paths.SPEC}", version)


def take_step(session: ZooKeeperSession, root: str, spec: bytes, version: int) -> int:
    """Put the record `spec` in the place of that of this version; its version then.  StaleError: an incident is open, a
    driver has reported that has not drained, or somebody else has written; RecordError: the number of the newest driver, or
    its report, cannot be read; ClientError: it is not known whether it was done."""
    transaction, incident = session.transaction(), f"{root}/{paths.INCIDENT}"
    transaction.create(incident)  # which is refused where there is one; ZooKeeper checks no absence
    transaction.delete(incident)
    transaction.set_data(f"{root}/{paths.SPEC}", spec, version)
    _end_drivers(session, root)(transaction)
    for name in paths.OF_A_GRAPH:
        _remove(session, f"{root}/{name}", name == paths.PROGRESS)(transaction)
    refused = transaction.commit()
    if any(refused):
        raise StaleError(f"{root}: queries do not come or go now: {_why(refused)}")
    return version + 1


def _end_drivers(session: ZooKeeperSession, root: str) -> Operation:
    """Take the number after that of the newest driver, and give it to nobody."""
    path = f"{root}/{paths.DRIVER}"
    try:
        raw, stat = session.get(path)
    except NoNodeError:
        return lambda transaction: transaction.create(path, encode_number(1))
    number = encode_number(parse_number(raw, path) + 1)
    return lambda transaction: transaction.set_data(path, number, stat.version)


def _remove(session: ZooKeeperSession, path: str, report: bool) -> Operation:
    """Remove a record as it is now, or make sure that there is none.  Who writes one meanwhile, as a driver of the former
    graph that reports and is given work, comes before the step.  StaleError: it is the `report` of one that works."""
    try:
        raw, stat = session.get(path)
    except NoNodeError:

        def made_and_removed(transaction: Transaction) -> None:
            transaction.create(path)  # as of an incident
            transaction.delete(path)

        return made_and_removed
    if report and parse_progress(raw, path).drained is None:
        raise StaleError(f"{path}: queries do not come or go now: a driver has reported that has not drained")
    return lambda transaction: transaction.delete(path, stat.version if report else -1)


def _why(refused: Sequence[RefusedError | None]) -> str:
    """`refused`: an entry for each operation, that of an open incident first."""
    if isinstance(refused[0], NodeExistsError):
        return "an incident is open"
    blame = {type(e).__name__ for e in refused if e is not None and not isinstance(e, RolledBackError)}
    return ", ".join(sorted(blame))


def held_back(seen: Observation | None, decision: Decision) -> bool:
    """Whether a decision on what was seen is not carried out where other queries are wanted.  The executors end with the
    driver that has drained: that is no loss, as nothing but the step follows.  An incident that is open goes on."""
    if seen is None or seen.progress is None or seen.progress.drained is None:
        return False
    return seen.incident is None and decision.incident is not None
