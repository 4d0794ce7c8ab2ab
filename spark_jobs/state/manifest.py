"""The manifest of a checkpoint: which snapshot of each partition it takes, and where sources go on.

Its JSON has a version, so that an earlier Reprise refuses what it cannot read.  While all snapshots are of one round it
lists `files`.  Any other line is listed as `snapshots`; beside those a manifest may have what partitions had before
(`before`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.spark_jobs.errors import NewerVersionError
from reprise.spark_jobs.state.snapshot import Kind, Snapshot, StateFile

MANIFEST_VERSION = 1


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
        every = (*self.snapshots.values(), *self.before.values())
        return tuple(
            sorted({s.partition for s in every if s.kind is Kind.WINDOW_LOG and s.position < s.sent})
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        line: dict[str, Any] = {"files": {p: f.to_json() for p, f in self.files.items()}}
        if self.apart or self.before:
            line = {"snapshots": {p: s.to_json() for p, s in self.snapshots.items()}}
        return {
            "version": MANIFEST_VERSION,
            "position": self.position,
            **line,
            "offsets": dict(self.offsets),
            **({"logs": {p: dict(ends) for p, ends in self.logs.items()}} if self.logs else {}),
            **({"before": {p: s.to_json() for p, s in self.before.items()}} if self.before else {}),
            **({"numbered_from": self.numbered_from} if self.numbered_from else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Manifest:
        """The inverse of `to_json`.  ValueError: something is missing.  NewerVersionError: it says what this version does
        not know, and so is not damaged."""
        try:
            if (version := int(data["version"])) > MANIFEST_VERSION:
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
