"""Which code and parameters have made which batches: a topology changes at a checkpoint, or not at all.

Problem: a driver goes on after the newest complete checkpoint, and batches after it that were shown before are made again.
With the same code that is the same output; with other code it is not, and sinks then wait for ever.  So each driver
writes down beside the ledger, before it releases anything, of which revision it is (`revisions/<epoch>.json`), and in the
same file at last whether it has drained the stream: stopped at a checkpoint with nothing released after it.

Invariant: no batch that may have been shown is made again by another revision, unless `spec.upgrade: replay` asks for that.
The record of the newest epoch counts, so a mark of a drained stream holds until the next driver begins: what a driver that
was frozen writes beside its successor has an older epoch in its name.  A driver that began without having seen the record of
one before it finds that one's successor by its claim, and ends (`Fence.check`), as with a checkpoint's manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from reprise.spark_jobs.errors import CheckpointError, StoreError
from reprise.spark_jobs.state.checkpoints import STREAM
from reprise.spark_jobs.state.driver_records import DriverRecords
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.state.ledger import last_written
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.class_path import former

REVISIONS = "revisions"
FORMER = "revision.json"
"""Of an earlier version: one record, which counts where no driver has written one of its own."""
EFFECTIVE = ("sources", "operators", "sink")
"""Fields of the spec that determine what is in a batch's output, and where."""
_WITHOUT_EFFECT = {"resources", "priority", "priorities", "recovery", "availability"}
"""Of a source, an operator or its output: what only placing, planning and recovery read.  Which batches were skipped is on
record, and is replayed whatever the spec says by then."""

MOST_NAMED = 3
"""Partitions in an error."""


class RevisionError(CheckpointError):
    """Another revision made batches that would have to be made again."""


def revision_of(resource: StreamTopology, image: str = "") -> str:
    """The revision of all that determines what is in a batch's output, and where: sources, operators, sink location, the
    order of input, image by its name, and, where there is an image, what `kubernetes` brings into its pods beside.  Code
    that changes below the same class and image name is not seen.  The batch interval only decides when."""
    spec = json.loads(resource.document)["spec"]
    parts = [_effective(spec.get(name)) for name in EFFECTIVE]
    if resource.arrival:  # else revisions are those of before there were orders
        parts.append("arrival")
    if image:
        parts += _brought(resource)
    return hashlib.sha256(json.dumps([*parts, image], sort_keys=True).encode()).hexdigest()[:12]


def _brought(resource: StreamTopology) -> list[Any]:
    """The hash of code out of a ConfigMap, variables, and Secrets as files: what code in pods may read.  Nothing where there
    is nothing, so that revisions are those of before there were such fields."""
    kubernetes = resource.kubernetes
    found: list[Any] = [] if kubernetes.code is None else [["code", kubernetes.code.sha256]]
    for role, pod in (("driver", kubernetes.driver), ("executor", kubernetes.executor)):
        variables = sorted((v.name, v.value, v.secret, v.key) for v in pod.env)
        found += [[f"env of {role}", variables]] if variables else []
    files = sorted((v.secret, v.mount_path) for v in kubernetes.volumes if v.secret)
    return found + ([["files", files]] if files else [])


def _effective(value: Any) -> Any:
    if isinstance(value, Mapping):
        parameters = {"with": value["with"]} if "with" in value else {}
        rest = {k: _effective(v) for k, v in value.items() if k not in _WITHOUT_EFFECT and k != "with"}
        if isinstance(rest.get("class"), str):  # one class, whichever way it is written
            rest["class"] = former(rest["class"])
        return {**rest, **parameters}
    return [_effective(item) for item in value] if isinstance(value, list) else value


def differences(before: StreamTopology, now: StreamTopology) -> list[str]:
    """Paths of the spec that make two topologies different revisions, as people write them."""
    old, new = (json.loads(resource.document)["spec"] for resource in (before, now))
    order = ["batch.order"] if before.batch_order != now.batch_order else []
    return order + [
        path
        for name in EFFECTIVE
        for path in _different(name, _effective(old.get(name)), _effective(new.get(name)))
    ]


def _different(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from _different(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            name = other.get("name", index) if isinstance(other, Mapping) else index
            yield from _different(f"{path}[{name}]", one, other)
    elif old != new:
        yield path


def made_by_another(location: str, newest: int, revision: str) -> int | None:
    """What a driver of `revision` would find that begins after the checkpoint `newest`: the batch up to which others may
    have been shown that another revision has made; None: it may go on.  Nothing is written.

    CheckpointError: it cannot be told."""
    files = Files(location)
    if not files.exists(STREAM):
        return None
    before, drained = _newest(DriverRecords(files, REVISIONS))
    written = last_written(files)
    return written if _refused(before, drained, revision, newest, written) else None


def _refused(before: str, drained: int | None, revision: str, newest: int, written: int) -> bool:
    return before not in ("", revision) and drained != newest and written > newest


class Revisions:
    """The records of one stream, as the driver of `revision` that has claimed it uses them."""

    def __init__(self, location: str, revision: str, fence: Fence) -> None:
        self._files, self.revision, self._fence = Files(location), revision, fence
        self._written = DriverRecords(self._files, REVISIONS)

    def begin(
        self, newest: int, written: int, replay: bool, of_many_ages: Callable[[], Collection[str]]
    ) -> str:
        """A driver begins after the checkpoint `newest`; ranges are on record up to batch `written`.  `of_many_ages`: asks
        for the partitions that begin with slots of different ages, or would where the newest checkpoint is damaged.
        Returns what a person should know; RevisionError when it must not go on, SupersededError when a later driver has
        begun."""
        before, drained = self.newest()
        said = ""
        if _refused(before, drained, self.revision, newest, written):
            if not replay:
                raise RevisionError(
                    f"the code, parameters, output or image have changed, and batches after checkpoint {newest} were made "
                    f"with the former ones (up to {written} at most): they may have been shown and would come out "
                    "differently.  Go back to the former topology and let it drain before the change (an operator does "
                    "that by itself; a stream that has ended is drained), or set `upgrade: replay` to make them anew"
                )
            if mixed := sorted(of_many_ages()):
                some = ", ".join([*mixed[:MOST_NAMED], *(["..."] if len(mixed) > MOST_NAMED else [])])
                raise RevisionError(
                    f"`upgrade: replay` cannot go on after checkpoint {newest} with other code: there, or in an older one "
                    "that is taken where it is damaged, partitions are stored slot by slot, each slot after another batch "
                    f"({some}), and what the former code gave for batches in between is not given again.  Go back to the "
                    "former topology and let it drain before the change; where it cannot drain, begin anew with another "
                    "checkpoint location and output"
                )
            said = (
                f"batches after checkpoint {newest}, up to {written} at most, are made again by changed code: an output "
                "that has shown other rows for them waits"
            )
        self._write(None)
        self._fence.check()
        self._written.forget_before(self._fence.epoch)
        self._files.remove(FORMER)
        return said

    def newest(self) -> tuple[str, int | None]:
        """Revision of the newest driver, and the checkpoint at which it has drained the stream, if it has."""
        return _newest(self._written)

    def drained(self, position: int) -> None:
        """Nothing was released after this checkpoint, nor will be by this driver."""
        self._write(position)

    def _write(self, drained: int | None) -> None:
        """Only this driver writes a file of this name."""
        record = {"revision": self.revision, "drained": drained}
        self._written.write(self._fence.epoch, json.dumps(record).encode())


def _newest(records: DriverRecords) -> tuple[str, int | None]:
    """What the newest driver has written down; that of an earlier version where none has.  StoreError: not now."""

    def parsed(data: bytes) -> tuple[str, int | None]:
        found = json.loads(data)
        position = found["drained"]
        return str(found["revision"]), None if position is None else int(position)

    name, found = records.newest(FORMER, parsed)
    if found is None and name != FORMER:
        raise StoreError(f"cannot read {name}: it was listed, and is not there")
    return found or ("", None)
