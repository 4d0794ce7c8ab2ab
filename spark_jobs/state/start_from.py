"""A topology that begins from a savepoint of another one: what must match, and how it is taken over.

Everything is copied into the new topology's own checkpoint location: the state of each partition, divided anew where
partitions are others (`reprise.spark_jobs.state.redistribution`), as a checkpoint at the
savepoint's batch, what its sources have read as the ledger's only block, and the stream's name with where it is from.  From
then on it is a stream like any other, at that checkpoint: nothing of the savepoint, or of the topology that took it, is
needed any more.  Its batches go on with the next number.

Invariants: the stream's name (`stream.json`) is created last, so what was copied in part is copied again, and a driver
that finds the name copies nothing; all files are created and hold the same bytes whoever writes them, so two drivers at
once do each other no harm; what does not match is refused before the first byte is written, but for a state that cannot
be divided, which is found when it is: the stream's name is not there then, and nothing has begun.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reprise.spark_jobs.contract import FIRST_STATE_VERSION, Range, SourcePart
from reprise.spark_jobs.errors import DamagedError, NewerVersionError, SpecError, raise_all
from reprise.spark_jobs.state.checkpoints import STREAM, CheckpointStore, manifest_name
from reprise.spark_jobs.state.graphs import graph_on_record
from reprise.spark_jobs.state.ledger import logs_after, offsets_after, written_before
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.mirrors import take_over
from reprise.spark_jobs.state.redistribution import RescaleError, redistributed, source_parts
from reprise.spark_jobs.state.rescaling import How, rescaling
from reprise.spark_jobs.state.savepoints import NoSavepointError, SavedStage, Savepoint, Savepoints
from reprise.spark_jobs.state.snapshot import StateFile, folder
from reprise.spark_jobs.state.state_file import encode_state
from reprise.spark_jobs.state.state_versions import unreadable
from reprise.spark_jobs.state.table_names import version_of
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.class_path import former
from reprise.spark_jobs.topology.resource import OperatorSpec, SourceSpec, StartFrom

log = logging.getLogger("reprise.checkpoints")
FIELD = "spec.checkpoint.startFrom"
STARTED_FROM = "startedFrom"
"""What the stream's name says of the savepoint."""
PARALLELISM = "parallelism"
"""In that: for how many partitions of each source and operator states were divided; not in streams of before."""


def savepoint_of(resource: StreamTopology) -> Savepoint | None:
    """The savepoint from which a topology is to begin, which it fits; None: from none.  SpecError: there is none of that
    name, or it does not fit, each with its field; StoreError: it cannot be read now."""
    start = resource.checkpoint.start_from
    if start is None:
        return None
    try:
        savepoint = Savepoints(start.location).read(start.savepoint)
    except (NoSavepointError, DamagedError, NewerVersionError) as error:
        raise SpecError(f"{FIELD}.savepoint", str(error)) from error
    raise_all(misfits(resource, savepoint))
    try:
        source_parts_of(resource, savepoint)
    except DamagedError as error:
        raise SpecError(f"{FIELD}.savepoint", str(error)) from error
    return savepoint


def source_parts_of(resource: StreamTopology, savepoint: Savepoint) -> dict[str, SourcePart]:
    """Where source partitions go on whose number has changed, by their ids.  SpecError: a source cannot change."""
    start = resource.checkpoint.start_from
    assert start is not None
    there = Savepoints(start.location)
    changes = rescaling(savepoint.stages, resource)
    return source_parts(changes, resource, savepoint.ranges, lambda p: there.state(savepoint, p))


def begun_from(location: str) -> Mapping[str, Any] | None:
    """What the stream in a location says of the savepoint from which it began, empty where from none; None: no stream is
    there."""
    files = Files(location)

    def parsed(data: bytes) -> Mapping[str, Any]:
        return dict(json.loads(data).get(STARTED_FROM, {}))

    try:
        return files.parsed(STREAM, parsed)
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"{STREAM} in {files.name}: the stream's name is damaged: {error}") from error


def require_begun_so(resource: StreamTopology, location: str) -> None:
    """SpecError where the stream in a location has begun otherwise than the resource says now."""
    start = resource.checkpoint.start_from
    if start is None or (before := begun_from(location)) is None:
        return
    if (before.get("location"), before.get("savepoint")) != (start.location, start.savepoint):
        was = (
            f"from savepoint {before['savepoint']!r} in {before['location']}"
            if before
            else "without a savepoint"
        )
        raise SpecError(
            FIELD,
            f"the stream in {Files(location).name} has begun already, {was}: a savepoint is taken over once, at the "
            "beginning. Give another checkpoint location and output, or leave the field out",
        )
    graph = graph_on_record(location)
    # an operator that came since has no states of the savepoint
    divided = {
        name: count
        for name, count in before.get(PARALLELISM, {}).items()
        if graph is None or graph.has_from_the_beginning(name)
    }
    raise_all(
        SpecError(
            f"spec.{'sources' if isinstance(stage, SourceSpec) else 'operators'}[{stage.name}].parallelism",
            f"is {stage.parallelism}, and the stream in {Files(location).name} has begun from the savepoint with "
            f"{divided[stage.name]}: states are divided once, at the beginning. Give another checkpoint location and output",
        )
        for stage in resource.stages
        if divided.get(stage.name, stage.parallelism) != stage.parallelism
    )


def begin_stream(
    store: CheckpointStore, resource: StreamTopology, wall: Callable[[], float] = time.time
) -> None:
    """Make the location hold the stream's files, before it is claimed, if there is a stream to go on with, in a mirror or in
    a savepoint.  SpecError: it cannot begin from that one; and what `take_over` and `take_over_savepoint` raise."""
    savepoint: Savepoint | None = None

    def begins() -> int:
        nonlocal savepoint
        savepoint = savepoint_of(resource)
        return 0 if savepoint is None else savepoint.position

    take_over(store, resource.checkpoint.standby, begins, lambda mirror: require_begun_so(resource, mirror))
    if savepoint is not None:
        try:
            take_over_savepoint(savepoint, resource, store.location, wall)
        except DamagedError as error:
            raise SpecError(f"{FIELD}.savepoint", str(error)) from error
    require_begun_so(resource, store.location)


def take_over_savepoint(
    savepoint: Savepoint, resource: StreamTopology, location: str, wall: Callable[[], float] = time.time
) -> None:
    """Make the location a stream that goes on behind the savepoint.  StoreError: to be tried again; DamagedError: a file of
    the savepoint is not what was stored."""
    start = resource.checkpoint.start_from
    assert start is not None
    there, here = Savepoints(start.location), Files(location)
    at, files = savepoint.position, dict[str, StateFile]()
    parts = source_parts_of(resource, savepoint)
    for partition, data, version in _states(resource, savepoint, there, parts):
        digest = hashlib.sha256(data).hexdigest()
        # by content: who tries again with other numbers of partitions finds nothing of the attempt before in the way
        path = f"{folder(at)}/{partition}.{digest[:16]}.savepoint.state"
        _create(here, path, data)
        files[partition] = StateFile(path, len(data), digest, state_version=version)
    ranges = _ranges(resource, savepoint) | {p: part.upto for p, part in parts.items()}
    manifest = Manifest.of_round(at, files, offsets_after(ranges), logs_after(ranges))
    # the manifest before the ledger: `take_over` refuses what is left of another beginning by the checkpoint that is there
    _create(here, manifest_name(at, 0), json.dumps(manifest.to_json(), indent=1).encode())
    for name, data in written_before(ranges, at).items():
        _create(here, name, data)
    record = {
        "location": start.location,
        "savepoint": savepoint.name,
        "topology": f"{savepoint.namespace}/{savepoint.topology}",
        "position": at,
        PARALLELISM: {stage.name: stage.parallelism for stage in resource.stages},
    }
    here.create(STREAM, json.dumps({"began": wall(), STARTED_FROM: record}).encode())
    log.info(
        "event=savepoint-taken-over savepoint=%s from=%s position=%d", savepoint.name, there.location, at
    )


def _states(
    resource: StreamTopology, savepoint: Savepoint, there: Savepoints, parts: Mapping[str, SourcePart]
) -> Iterator[tuple[str, bytes, int]]:
    """The state file of each partition that has one, and the version of its state: as the savepoint has it, or divided where
    partitions are others.  It follows from resource and savepoint, to the byte."""
    changes = {change.name: change for change in rescaling(savepoint.stages, resource)}
    for partition, state in savepoint.states.items():
        name = partition.rpartition(".")[0]
        if name in changes or all(stage.name != name for stage in resource.stages):
            continue
        data = there.state_bytes(savepoint, partition)
        assert data is not None
        yield partition, data, state.state_version
    for partition, part in parts.items():
        if part.tables is not None:
            yield partition, encode_state(part.tables), FIRST_STATE_VERSION
    for change in changes.values():
        if change.how is How.SOURCE:
            continue
        try:
            for partition, tables in redistributed(change, resource, lambda p: there.state(savepoint, p)):
                yield partition, encode_state(tables), version_of(tables)
        except RescaleError as error:
            raise SpecError(f"spec.operators[{change.name}].parallelism", str(error)) from error
        log.info("event=state-divided operator=%s before=%d now=%d", change.name, change.before, change.now)


def _create(here: Files, name: str, data: bytes) -> None:
    """A file that must have these bytes: whoever has copied it before had the same savepoint, unless somebody has begun with
    another one and not come to an end."""
    if not here.create(name, data) and here.read(name) != data:
        raise SpecError(
            FIELD,
            f"{name} in {here.name} is there with other bytes: what is in this location is of another beginning. Remove it, "
            "or give another checkpoint location",
        )


def _ranges(resource: StreamTopology, savepoint: Savepoint) -> dict[str, Range]:
    """What each source partition has read as the batch of the savepoint; one that is new has read nothing."""
    partitions = [f"{s.name}.{i}" for s in resource.sources for i in range(s.parallelism)]
    return {p: savepoint.ranges.get(p, Range(0, 0)) for p in partitions}


# -- what must match ---------------------------------------------------------------------------------------------------


def misfits(resource: StreamTopology, savepoint: Savepoint) -> Iterator[SpecError]:
    """Everything for which a topology cannot begin from a savepoint."""
    start = resource.checkpoint.start_from
    assert start is not None
    names = {stage.name for stage in resource.stages}
    for stage in resource.stages:
        field = f"spec.{'sources' if isinstance(stage, SourceSpec) else 'operators'}[{stage.name}]"
        if (saved := savepoint.stage(stage.name)) is not None:
            yield from _differs(field, stage, saved, savepoint)
        elif stage.name not in start.allow_new:
            yield SpecError(
                field,
                f"is not in savepoint {savepoint.name!r}: it would begin with nothing. Name it in `allowNew` of {FIELD} if "
                "that is meant",
            )
        else:
            yield from _cannot_be_new(field, stage)
    for saved in savepoint.stages:
        if saved.name not in names and saved.name not in start.allow_gone:
            yield SpecError(
                FIELD,
                f"savepoint {savepoint.name!r} has {_kind(saved)} {saved.name!r}, which this topology has not: what it knew "
                "would be left behind. Name it in `allowGone` if that is meant",
            )
    yield from _idle(start, savepoint, names)
    yield from _under_way(resource, savepoint)
    try:
        rescaling(savepoint.stages, resource)
    except SpecError as error:
        yield from error.all
    yield from unreadable(resource, savepoint.states, f"savepoint {savepoint.name!r}")


def _kind(saved: SavedStage) -> str:
    return "a source" if saved.is_source else "an operator"


def _differs(
    field: str, stage: SourceSpec | OperatorSpec, saved: SavedStage, savepoint: Savepoint
) -> Iterator[SpecError]:
    said = f"in savepoint {savepoint.name!r}"
    if saved.is_source != isinstance(stage, SourceSpec):
        yield SpecError(field, f"is {_kind(saved)} {said}: give it another name")
        return
    has_state = any(p in savepoint.states for p in savepoint.partitions(stage.name))
    if (saved.is_source or has_state) and former(saved.class_path) != former(stage.class_path):
        yield SpecError(
            f"{field}.class",
            f"is {stage.class_path!r}, and {saved.class_path!r} {said}: another class does not understand "
            f"{'its positions' if saved.is_source else 'its state'}",
        )


def _under_way(resource: StreamTopology, savepoint: Savepoint) -> Iterator[SpecError]:
    """The last output over a feedback edge is applied with the next batch: without that edge it would be lost, though both
    of its ends are there."""
    stages = {stage.name for stage in resource.stages}
    for operator in resource.operators:
        saved = savepoint.stage(operator.name)
        kept = {i.source for i in operator.inputs if i.feedback}
        for before in () if saved is None else saved.inputs:
            if before.feedback and before.source in stages and before.source not in kept:
                yield SpecError(
                    f"spec.operators[{operator.name}].inputs",
                    f"the edge from {before.source!r} was feedback in savepoint {savepoint.name!r}, and is not: what is "
                    "under way on it would be lost. Leave it, or give one of its ends another name",
                )


def _cannot_be_new(field: str, stage: SourceSpec | OperatorSpec) -> Iterator[SpecError]:
    """A Kafka source that begins at the newest messages does so with batch 1 alone, which is over."""
    if isinstance(stage, SourceSpec) and stage.parameters.get("start") == "latest":
        yield SpecError(
            f"{field}.with.start",
            "'latest' is for a topology that begins without a savepoint: a source that is new reads from its earliest "
            "offset. Leave it out",
        )


def _idle(start: StartFrom, savepoint: Savepoint, names: set[str]) -> Iterator[SpecError]:
    """What is said of nobody is most likely a slip."""
    saved = {stage.name for stage in savepoint.stages}
    for name in start.allow_new:
        if name not in names:
            yield SpecError(f"{FIELD}.allowNew", f"there is no source or operator {name!r} in this topology")
    for name in start.allow_gone:
        if name not in saved:
            yield SpecError(
                f"{FIELD}.allowGone", f"savepoint {savepoint.name!r} has no source or operator {name!r}"
            )
