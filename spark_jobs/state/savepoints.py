"""Savepoints: a checkpoint that is kept under a name, whole, for as long as people want it.

Problem: checkpoints are pruned, share pages with each other, and mean nothing without the ledger beside them; and a
changed topology wants to go on from a batch that people have chosen.  So a savepoint is a copy which needs nothing else.
Layout below the checkpoint location:

    savepoints/<name>/SAVEPOINT.json            the record, created last: without it the name does not exist
    savepoints/<name>/<epoch>-<id>/<partition>.state   the state of each partition that has one, after batch `position`

What is in the record is `Savepoint`.  Where the state of an operator's partitions is: `savepoint.partitions(operator)` are
their ids in the order of their key groups, and `Savepoints.state(savepoint, partition)` are the tables of one of them, None
where it has no state.  They are always whole tables (`reprise.spark_jobs.state.state_file`), in whatever form the
checkpoint had them: those that the operator's `freeze` gave, under its own names, and beside them `runtime/watermark` (one
row, the watermark after that batch) and, in a cycle, `feedback/<target>` (the last output for that partition).  Output
that waited to be shown (`staged/<batch>`) is not among them: it is for the topology that made it to show.  Sources go on
from `ranges`: what each source partition has read as batch `position`; the next batch begins where that ends.

Invariants: a record names files that were stored and on disk before it was created, and nobody changes or removes them
while it is there; each attempt to take a savepoint has a folder of its own, so two drivers at once, one of them frozen,
share no file; of two records with one name the first counts, as files are created and never replaced.  A driver looks
for a later claim before it creates a record and after.  A record that it has created behind a later claim stays where its
files are there: the later driver may have found it, and said that its wish is carried out.  It takes the record back where
they are gone, as that driver sweeps them when it has made another one, which people have deleted since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.contract import Range, Tables
from reprise.spark_jobs.errors import CheckpointError, DamagedError, NewerVersionError, SupersededError
from reprise.spark_jobs.state.epochs import Fence, new_token
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.state_file import decode_state, encoded
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.resource import InputSpec

SAVEPOINTS = "savepoints"
RECORD = "SAVEPOINT.json"
RECORD_VERSION = 1
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
"""What a savepoint may be called: the names of Kubernetes objects, and short enough for a label."""


class NoSavepointError(CheckpointError):
    """There is no savepoint of that name."""


class NameTakenError(CheckpointError):
    """There is a savepoint of that name already, and it is another one."""


@dataclass(frozen=True, slots=True)
class SavedStage:
    """A source or an operator as it was: what a topology that goes on from the savepoint has to match."""

    name: str
    is_source: bool
    class_path: str
    parallelism: int
    inputs: tuple[InputSpec, ...] = ()
    """Of an operator: whom it reads, and by which columns rows come to its partitions."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        kind = "source" if self.is_source else "operator"
        return {
            "name": self.name,
            "kind": kind,
            "class": self.class_path,
            "parallelism": self.parallelism,
            "inputs": [one.to_json() for one in self.inputs],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SavedStage:
        """The inverse; raises KeyError, TypeError or ValueError."""
        return SavedStage(
            str(data["name"]),
            data["kind"] == "source",
            str(data["class"]),
            int(data["parallelism"]),
            tuple(map(InputSpec.from_json, data["inputs"])),
        )


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The record of one savepoint.  Nothing in it is of parameters, which may hold passwords."""

    name: str
    namespace: str
    topology: str
    """Who has made it."""
    position: int
    """The batch after which it is: whoever goes on from it begins with the next one."""
    time: float
    """When it was asked for, unix seconds."""
    due: float
    """When batch `position` was due by the clock of the stream, unix seconds; 0: the clock had not begun."""
    stages: tuple[SavedStage, ...]
    """Sources, then operators."""
    ranges: Mapping[str, Range]
    """Source partition -> what it has read as batch `position`; that of one that has ended is below 0 (`Ledger`)."""
    states: Mapping[str, StateFile] = field(default_factory=dict)
    """Partition -> its file, of those that have a state; paths are relative to the location."""
    wish: str = ""
    """Who asked for it: a wish that is there once more is known by that as carried out."""
    folder: str = ""
    """Where the files are that were stored for it, relative to the location."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all states."""
        return sum(file.size for file in self.states.values())

    def stage(self, name: str) -> SavedStage | None:
        """The source or operator of this name."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def partitions(self, operator: str) -> tuple[str, ...]:
        """Ids of the partitions of a source or operator, by their key group; none where there was no such operator."""
        stage = self.stage(operator)
        return () if stage is None else tuple(f"{operator}.{i}" for i in range(stage.parallelism))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "version": RECORD_VERSION,
            "name": self.name,
            "namespace": self.namespace,
            "topology": self.topology,
            "position": self.position,
            "time": self.time,
            "due": self.due,
            "stages": [stage.to_json() for stage in self.stages],
            "ranges": self.ranges,
            "states": {partition: file.to_json() for partition, file in self.states.items()},
            "wish": self.wish,
            "folder": self.folder,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Savepoint:
        """The inverse.  ValueError: it is none.  NewerVersionError: it says what this version does not know."""
        try:
            if (version := int(data["version"])) > RECORD_VERSION:
                raise NewerVersionError(
                    f"the record of savepoint {data['name']} has version {version}; this Reprise reads versions up to "
                    f"{RECORD_VERSION}: it was written by a newer version"
                )
            return Savepoint(
                name=str(data["name"]),
                namespace=str(data["namespace"]),
                topology=str(data["topology"]),
                position=int(data["position"]),
                time=float(data["time"]),
                due=float(data["due"]),
                stages=tuple(map(SavedStage.from_json, data["stages"])),
                ranges={p: Range.parse(span) for p, span in data["ranges"].items()},
                states={p: StateFile.from_json(file) for p, file in data["states"].items()},
                wish=str(data["wish"]),
                folder=str(data["folder"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"no record of a savepoint: {error!r}") from error


def stages_of(resource: StreamTopology) -> tuple[SavedStage, ...]:
    """What a savepoint says of the topology that it is of."""
    sources = [SavedStage(s.name, True, s.class_path, s.parallelism) for s in resource.sources]
    operators = [SavedStage(o.name, False, o.class_path, o.parallelism, o.inputs) for o in resource.operators]
    return (*sources, *operators)


class Savepoints:
    """The savepoints below one checkpoint location, or a mirror of it.  Every call may raise StoreError."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._files = Files(location)

    def names(self) -> list[str]:
        """Names of all savepoints, sorted."""
        return [name for name in self._files.names(SAVEPOINTS) if self._files.exists(_record(name))]

    def read(self, name: str) -> Savepoint:
        """The record of a savepoint.  NoSavepointError, DamagedError, NewerVersionError."""

        def parsed(data: bytes) -> Savepoint:
            return Savepoint.from_json(json.loads(data))

        try:
            found = self._files.parsed(_record(name), parsed)
        except ValueError as error:
            raise DamagedError(f"{_record(name)} in {self._files.name} is damaged: {error}") from error
        if found is None:
            raise NoSavepointError(f"there is no savepoint {name!r} in {self._files.name}")
        return found

    def state(self, savepoint: Savepoint, partition: str) -> dict[str, pa.Table] | None:
        """The tables of a partition's state; None: it has none.  DamagedError: they are not what was stored."""
        data = self.state_bytes(savepoint, partition)
        return None if data is None else decode_state(data)

    def state_bytes(self, savepoint: Savepoint, partition: str) -> bytes | None:
        """The same as the file holds them; they are what was stored."""
        if (file := savepoint.states.get(partition)) is None:
            return None
        for _ in range(2):  # bytes can be damaged on their way, too
            data = self._files.read(file.path)
            if data is not None and hashlib.sha256(data).hexdigest() == file.sha256:
                return data
        what = "is missing" if data is None else "is damaged: its SHA-256 is not that of the record"
        raise DamagedError(f"{file.path} in {self._files.name} {what}", file.path)

    def keep(
        self, savepoint: Savepoint, states: Iterable[tuple[str, Tables, int]], fence: Fence
    ) -> Savepoint:
        """Make a savepoint exist with these states (partition, tables, version of the state); what is on record then.

        NameTakenError: there is another one of its name.  SupersededError: a later driver has begun; the savepoint may be
        there nevertheless, whole.  What was stored for one that is not goes with the next of its name.
        """
        folder = f"{SAVEPOINTS}/{savepoint.name}/{fence.epoch}-{new_token()}"
        if self._files.exists(_record(savepoint.name)):
            return self._same(savepoint)
        files: dict[str, StateFile] = {}
        try:
            for partition, tables, version in states:
                files[partition] = self._stored(f"{folder}/{partition}.state", tables, version)
            fence.check()
        except BaseException:
            with suppress(CheckpointError):
                self._files.remove(folder)
            raise
        kept = replace(savepoint, states=files, folder=folder)
        # from here on files stay where this raises: a store that did not answer may create the record later
        made = self._files.create(_record(savepoint.name), json.dumps(kept.to_json()).encode())
        if not made and self.read(savepoint.name).folder != folder:
            self._files.remove(folder)
            return self._same(savepoint)
        self._stand_by_it(kept, fence)
        self._sweep(savepoint.name, folder.rpartition("/")[2], fence.epoch)
        return kept

    def _stored(self, path: str, tables: Tables, version: int) -> StateFile:
        pieces = encoded(tables)
        self._files.replace(path, pieces)
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        size = sum(len(piece) for piece in pieces)
        return StateFile(path, size, digest.hexdigest(), state_version=version)

    def _same(self, savepoint: Savepoint) -> Savepoint:
        """The one that is there, if the same wish has asked for it."""
        found = self.read(savepoint.name)
        if not savepoint.wish or found.wish != savepoint.wish:
            raise NameTakenError(
                f"there is a savepoint {found.name!r} already, after batch {found.position}: delete it, or give another name"
            )
        return found

    def _stand_by_it(self, kept: Savepoint, fence: Fence) -> None:
        """A driver that was frozen before it created the record may come after its successor has swept its files, and after
        people have deleted what that one made: a record without files goes again.  One with files stays."""
        try:
            fence.check()
        except SupersededError:
            if not all(self._files.exists(file.path) for file in kept.states.values()):
                with suppress(NoSavepointError):
                    if self.read(kept.name).folder == kept.folder:
                        self._files.remove(_record(kept.name))
            raise

    def _sweep(self, name: str, kept: str, epoch: int) -> None:
        """Remove what attempts have left that came to nothing, but not of a later driver, which may be at it."""
        with suppress(CheckpointError):
            for folder in self._files.names(f"{SAVEPOINTS}/{name}"):
                number = folder.partition("-")[0]
                if folder not in (kept, RECORD) and number.isdigit() and int(number) <= epoch:
                    self._files.remove(f"{SAVEPOINTS}/{name}/{folder}")

    def delete(self, name: str) -> Savepoint | None:
        """Remove a savepoint, its record first, so that none is left whose files are gone; what it was, where that can be
        read.  NoSavepointError."""
        try:
            found: Savepoint | None = self.read(name)
        except NoSavepointError:
            raise
        except (DamagedError, NewerVersionError):
            found = None
        self._files.remove(_record(name))
        # a driver that takes another of this name meanwhile has a folder of its own
        self._files.remove(found.folder if found else f"{SAVEPOINTS}/{name}")
        return found


def _record(name: str) -> str:
    return f"{SAVEPOINTS}/{name}/{RECORD}"
