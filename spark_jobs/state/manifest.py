"""The manifest of a checkpoint: which snapshot of each partition it takes, and where sources go on.

Its JSON has a version.  Version 1 had none: a position, and a file for each partition with state.  Version 2 says the
same in the same fields while all snapshots are of one round, so that an earlier Reprise can still go on from it; any
other line is listed as `snapshots` and has no `files`, and an earlier Reprise refuses it.  Version 3 is written where a
state is in pages (`reprise.spark_jobs.state.page_file`), which an earlier Reprise cannot read; nothing else is new in it.
Version 4 was written where a state is stored slot by slot (`reprise.spark_jobs.state.window_log`), for the same reason, and
version 5 had earlier segments by their numbers.  Version 6 is, as segments have a version of their own since.  Beside a line
a manifest may have what partitions had before (`before`), with `snapshots` only; what a reader has to know of those counts
as what it has to know of the line.  Version 7 is written where a state is of another version than the first
(`reprise.spark_jobs.state.state_versions`): an earlier Reprise would hand it to a class that does not read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.spark_jobs.contract import FIRST_STATE_VERSION
from reprise.spark_jobs.errors import NewerVersionError
from reprise.spark_jobs.state.snapshot import Kind, Snapshot, StateFile

MANIFEST_VERSION = 7
_OF_LOGS = 6
"""Where all states are of the first version."""
_OF_PAGES = 3
"""Where none is stored slot by slot either."""
_OF_TABLES = 2
"""Where none is in pages either."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint.  `position`: the batch of its round, by which it is found and of which its offsets are."""

    position: int
    snapshots: Mapping[str, Snapshot]
    """Of each partition that is not at `position`, or has a file; `snapshot` answers for all."""
    offsets: Mapping[str, int]
    """Source partition -> offset to go on from."""
    logs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Source partition -> log -> offset, for those that read several logs (Kafka): a standby site goes on from here."""
    before: Mapping[str, Snapshot] = field(default_factory=dict)
    """Of a line: snapshots that may be taken where one of the line is damaged, none of them behind `position`."""
    numbered_from: int = 0
    """Of a line whose snapshots count messages (`Snapshot.inputs`): the batch after which these numbers begin."""

    @staticmethod
    def of_round(
        position: int,
        files: Mapping[str, StateFile],
        offsets: Mapping[str, int],
        logs: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Manifest:
        """A global checkpoint cp(position)."""
        return Manifest(
            position, {p: Snapshot.round(p, position, f) for p, f in files.items()}, offsets, logs or {}
        )

    def snapshot(self, partition: str) -> Snapshot:
        """What the checkpoint has of a partition: where it is, and its file."""
        return self.snapshots.get(partition) or Snapshot.round(partition, self.position)

    @property
    def files(self) -> Mapping[str, StateFile]:
        """Partition -> file, of those that have one."""
        return {p: s.file for p, s in self.snapshots.items() if s.file is not None}

    @property
    def state_bytes(self) -> int:
        """Bytes that are read to have all states, those in files of earlier checkpoints, too."""
        return sum(file.state_bytes for file in self.files.values())

    @property
    def apart(self) -> tuple[str, ...]:
        """Partitions whose snapshot is not of this checkpoint's round, sorted; none in a global checkpoint."""
        taken = self.snapshots.items()
        return tuple(sorted(p for p, s in taken if s != Snapshot.round(p, self.position, s.file)))

    @property
    def of_many_ages(self) -> tuple[str, ...]:
        """Partitions that are stored slot by slot and begin with slots of different ages, also with what they had before,
        sorted: batches in between are applied once more to some of them, and give nothing."""
        mixed = (s for s in self._every if s.kind is Kind.WINDOW_LOG and s.position < s.sent)
        return tuple(sorted({s.partition for s in mixed}))

    @property
    def _every(self) -> tuple[Snapshot, ...]:
        return (*self.snapshots.values(), *self.before.values())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        line: dict[str, Any] = {"files": {p: f.to_json() for p, f in self.files.items()}}
        if self.apart or self.before:
            line = {"snapshots": {p: s.to_json() for p, s in self.snapshots.items()}}
        paged = any(s.file is not None and s.file.all_bytes is not None for s in self._every)
        versioned = any(
            s.file is not None and s.file.state_version != FIRST_STATE_VERSION for s in self._every
        )
        logged = any(s.kind is Kind.WINDOW_LOG for s in self._every)
        return {
            "version": MANIFEST_VERSION
            if versioned
            else _OF_LOGS
            if logged
            else _OF_PAGES
            if paged
            else _OF_TABLES,
            "position": self.position,
            **line,
            "offsets": dict(self.offsets),
            **({"logs": {p: dict(ends) for p, ends in self.logs.items()}} if self.logs else {}),
            **({"before": {p: s.to_json() for p, s in self.before.items()}} if self.before else {}),
            **({"numbered_from": self.numbered_from} if self.numbered_from else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Manifest:
        """The inverse of `to_json`, and of earlier versions.  ValueError: something is missing.  NewerVersionError: it says
        what this version does not know, and so is not damaged."""
        try:
            if (version := int(data.get("version", 1))) > MANIFEST_VERSION:
                raise NewerVersionError(
                    f"the manifest of checkpoint {data['position']} has version {version}; this Reprise reads versions up "
                    f"to {MANIFEST_VERSION}: it was written by a newer version"
                )
            offsets = {p: int(o) for p, o in data["offsets"].items()}
            logs = {p: {log: int(o) for log, o in ends.items()} for p, ends in data.get("logs", {}).items()}
            position = int(data["position"])
            if "snapshots" in data:
                snapshots = {p: Snapshot.from_json(p, s) for p, s in data["snapshots"].items()}
                before = {p: Snapshot.from_json(p, s) for p, s in data.get("before", {}).items()}
                return Manifest(position, snapshots, offsets, logs, before, int(data.get("numbered_from", 0)))
            files = {p: StateFile.from_json(f) for p, f in data["files"].items()}
            return Manifest.of_round(position, files, offsets, logs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"no manifest: {error!r}") from error
