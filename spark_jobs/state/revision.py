"""Which code and parameters have made which batches: a topology changes at a checkpoint, or not at all.

Problem: a driver goes on after the newest complete checkpoint, and batches after it that were shown before are made again.
With the same code that is the same output; with other code it is not, and sinks then wait for ever.  So each driver
writes down beside the ledger, before it releases anything, of which revision it is (`revisions/<epoch>.json`), and in the
same file the checkpoint at which the stream has drained: that of its own drain, or the one before it began, as long as it
has released nothing.  The ledger alone cannot tell: sources that are not live are written ahead.

Invariant: no batch that may have been shown is made again by another revision, unless `spec.upgrade: replay` asks for that.
The record of the newest epoch counts: what a driver that was frozen writes beside its successor has an older epoch in its
name.  A mark of a drained stream is taken over by the next driver, and holds until a driver releases a batch.  A driver that
began without having seen the record of one before it finds that one's successor by its claim, and ends (`Fence.check`), as
with a checkpoint's manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from reprise.spark_jobs.credentials import redacted
from reprise.spark_jobs.errors import CheckpointError, DamagedError
from reprise.spark_jobs.state.checkpoints import STREAM
from reprise.spark_jobs.state.driver_records import DriverRecords
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.state.ledger import last_released
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.class_path import former

REVISIONS = "revisions"
FORMER = "revision.json"
"""Of an earlier version: one record, which counts where no driver has written one of its own."""
EFFECTIVE = ("sources", "operators", "sink")
"""Fields of the spec that determine what is in a batch's output, and where."""
_WITHOUT_EFFECT = {"resources", "priority", "priorities", "recovery", "availability", "standby"}
"""Of a source, an operator or its output: what only placing, planning and recovery read.  Which batches were skipped is on
record, and is replayed whatever the spec says by then."""

MOST_SHOWN = 80
"""Characters of a value."""
_SECRET = re.compile("password|secret|token|credential|key$", re.IGNORECASE)
MOST_NAMED = 3
"""Partitions in an error."""


class RevisionError(CheckpointError):
    """Another revision made batches that would have to be made again."""


def revision_of(resource: StreamTopology, image: str = "", without: Collection[str] = _WITHOUT_EFFECT) -> str:
    """The revision of all that determines what is in a batch's output, and where: sources, operators, sink location, the
    order of input, image by its name, and, where there is an image, what `kubernetes` brings into its pods beside.  Code
    that changes below the same class and image name is not seen.  The batch interval only decides when.  `without`: fields
    of a source, an operator or its output that are left out."""
    spec = json.loads(resource.document)["spec"]
    parts = [_effective(spec.get(name), without) for name in EFFECTIVE]
    if resource.arrival:  # else revisions are those of before there were orders
        parts.append("arrival")
    if image:
        parts += _brought(resource)
    return hashlib.sha256(json.dumps([*parts, image], sort_keys=True).encode()).hexdigest()[:12]


def former_revision_of(resource: StreamTopology, image: str = "") -> str:
    """The same as versions computed it that did not leave out `standby`: a driver that finds this on record goes on."""
    return revision_of(resource, image, _WITHOUT_EFFECT - {"standby"})


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


def _effective(value: Any, without: Collection[str] = _WITHOUT_EFFECT) -> Any:
    if isinstance(value, Mapping):
        parameters = {"with": value["with"]} if "with" in value else {}
        rest = {k: _effective(v, without) for k, v in value.items() if k not in without and k != "with"}
        if isinstance(rest.get("class"), str):  # one class, whichever way it is written
            rest["class"] = former(rest["class"])
        return {**rest, **parameters}
    return [_effective(item, without) for item in value] if isinstance(value, list) else value


class Difference(NamedTuple):
    """A field of the spec, as people write it, in which two topologies differ; None: one has it not."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """Say it to people, without what may be a password."""
        return f"spec.{self.path} was {_shown(self.path, self.old)} and is {_shown(self.path, self.new)}"


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "not there"
    if _SECRET.search(path.rpartition(".")[2]):
        return "another one"
    text = redacted(json.dumps(value, sort_keys=True))
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def differences(before: StreamTopology, now: StreamTopology) -> list[Difference]:
    """Fields that make two topologies different revisions."""
    old, new = (json.loads(resource.document)["spec"] for resource in (before, now))
    order = [Difference("batch.order", before.batch_order, now.batch_order)]
    return [
        *(order if before.batch_order != now.batch_order else ()),
        *(
            found
            for name in EFFECTIVE
            for found in different(name, _effective(old.get(name)), _effective(new.get(name)))
        ),
    ]


def different(path: str, old: Any, new: Any) -> Iterator[Difference]:
    """Where two JSON values differ, as deep as they are alike; items of lists that have a name are compared by that."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from different(f"{path}.{key}", old.get(key), new.get(key))
    elif (named := (_named(old), _named(new))) != (None, None) and None not in named:
        before, now = named
        assert before is not None
        assert now is not None
        for name in [*before, *(name for name in now if name not in before)]:
            yield from different(f"{path}[{name}]", before.get(name), now.get(name))
        if list(before) != list(now) and before.keys() == now.keys():
            yield Difference(path, list(before), list(now))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from different(f"{path}[{index}]", one, other)
    elif old != new:
        yield Difference(path, old, new)


def _named(value: Any) -> dict[str, Any] | None:
    """Items of a list by their names; None where not all have one of their own."""
    if not isinstance(value, list):
        return None
    names = [item.get("name") if isinstance(item, Mapping) else None for item in value]
    if not value or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        return None
    return dict(zip(names, value, strict=True))  # type: ignore[arg-type]


def made_by_another(location: str, newest: int, revision: str, former: str = "") -> int | None:
    """What a driver of `revision` would find that begins after the checkpoint `newest`: the batch up to which others may
    have been shown that another revision has made; None: it may go on.  Nothing is written.  `former`: as for `Revisions`.

    CheckpointError: it cannot be told."""
    files = Files(location)
    if not files.exists(STREAM):
        return None
    before, drained = _newest(DriverRecords(files, REVISIONS))
    written = last_released(files)
    return written if _refused(before, drained, (revision, former), newest, written) else None


def _refused(before: str, drained: int | None, same: Collection[str], newest: int, written: int) -> bool:
    return before not in ("", *same) and drained != newest and written > newest


class Revisions:
    """The records of one stream, as the driver of `revision` that has claimed it uses them.  `former`: what an earlier
    version has on record for the same (`former_revision_of`)."""

    def __init__(self, location: str, revision: str, fence: Fence, former: str = "") -> None:
        self._files, self.revision, self._fence, self._former = Files(location), revision, fence, former
        self._written = DriverRecords(self._files, REVISIONS)
        self.nothing_after: int | None = None
        """The checkpoint that it began with, while its record says that nothing was released after it."""

    def begin(
        self, newest: int, written: int, replay: bool, of_many_ages: Callable[[], Collection[str]]
    ) -> str:
        """A driver begins after the checkpoint `newest`; ranges are on record up to batch `written`.  `of_many_ages`: asks
        for the partitions that begin with slots of different ages, or would where the newest checkpoint is damaged.
        Returns what a person should know; RevisionError when it must not go on, SupersededError when a later driver has
        begun."""
        before, drained = self.newest()
        said = ""
        if _refused(before, drained, (self.revision, self._former), newest, written):
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
        # that nothing was released is not enough: output up to the checkpoint may be staged, and this code alone shows it
        self.nothing_after = newest if drained == newest else None
        self._write(self.nothing_after)
        self._fence.check()
        self._written.forget_before(self._fence.epoch)
        self._files.remove(FORMER)
        return said

    def released_nothing_after(self, newest: int, written: int) -> bool:
        """Whether nobody released a batch behind checkpoint `newest`; `written`: the last that may have been released."""
        return written <= newest or self.newest()[1] == newest

    def releases(self) -> None:
        """To be called before batches are released.  StoreError: none may be; SupersededError: a later driver has begun."""
        if self.nothing_after is not None:
            self._write(None)
            self._fence.check()
            self.nothing_after = None

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


def undrained(record: bytes) -> bytes:
    """A driver's record without its mark; DamagedError where it is none."""
    try:
        return json.dumps({**json.loads(record), "drained": None}).encode()
    except (ValueError, TypeError) as error:
        raise DamagedError(f"a record in {REVISIONS} is damaged: {error}") from error


def _newest(records: DriverRecords) -> tuple[str, int | None]:
    """What the newest driver has written down; that of an earlier version where none has.  StoreError: not now."""

    def parsed(data: bytes) -> tuple[str, int | None]:
        found = json.loads(data)
        position = found["drained"]
        return str(found["revision"]), None if position is None else int(position)

    return records.newest(parsed, FORMER) or ("", None)
