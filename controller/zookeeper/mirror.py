"""The records of one topology as a file at a second site, and back into another ZooKeeper.

A site that is lost takes its ZooKeeper along.  Checkpoint files are mirrored by their storage; the records are few and
small, so a copy is one JSON file, written whole or not at all.  What belongs to living processes stays out: ephemeral
znodes, the driver's reports, who is a node.  Invariant: a copy is only put where no records are, and nothing that is put
back names a partition as running.  So the topology starts there as one does that has lost everything, from the newest
checkpoint.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprise.controller.zookeeper import membership, paths
from reprise.controller.zookeeper.errors import MirrorError, NoNodeError, SessionError, TooLargeError
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.znode import check_all, pack, unpack
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.storage.files import Files, without_password

log = logging.getLogger("reprise.mirror")
FORMAT = 1
LIVING = (paths.NODES, paths.PROGRESS, paths.STATS, paths.COORDINATOR, membership.FOLDER, paths.OWNER)
"""Records that say how things stand now, at the site they are from."""
HISTORY = (paths.INCIDENTS, paths.PLANS)
NOT_BACK = (paths.DESIRED, paths.INCIDENT)
"""In the copy for people to read, but not put back: they assign partitions to nodes of the lost site."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Records by their path below the root, when they were read (unix seconds), and from where."""

    root: str
    time: float
    records: Mapping[str, str]

    def encode(self) -> bytes:
        """The form in which the file holds it."""
        body = {"format": FORMAT, "root": self.root, "time": self.time, "records": dict(self.records)}
        return json.dumps(body, indent=1, sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes, location: str) -> Copy:
        """The inverse of `encode`.  MirrorError names the location and what is wrong."""
        try:
            body = json.loads(data)
            if body["format"] != FORMAT:
                raise MirrorError(f"{location}: format {body['format']!r}; this version reads {FORMAT}")
            records = {str(path): str(text) for path, text in body["records"].items()}
            return Copy(str(body["root"]), float(body["time"]), records)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MirrorError(f"{location}: is no copy of records: {error!r}") from None


def read(client: ZooKeeperSession, root: str) -> Copy:
    """The records below `root`.  They are read one by one: each is whole, and a copy in which the newest checkpoint is one
    behind is as good as one that was made a moment earlier.  MirrorError when there are none."""
    records: dict[str, str] = {}
    try:
        for name in sorted(client.get_children(root)):
            if name not in LIVING:
                _collect(client, f"{root}/{name}", name, records)
    except NoNodeError:
        raise MirrorError(f"{root}: there are no records") from None
    return Copy(root, time.time(), records)


def _collect(client: ZooKeeperSession, path: str, name: str, records: dict[str, str]) -> None:
    try:
        data, stat = client.get(path)
        children = client.get_children(path)
    except NoNodeError:
        return  # removed meanwhile, as old plans are
    if data and not stat.owner:
        try:
            records[name] = unpack(data).decode()
        except ValueError as error:
            raise MirrorError(f"{path}: {error}") from None
    for child in sorted(children):
        _collect(client, f"{path}/{child}", f"{name}/{child}", records)


def save(copy: Copy, location: str) -> None:
    """Into a file (any fsspec URL).  MirrorError when it cannot be written; the copy before is still there then."""
    try:
        files, name = _file(location)
        files.sweep()
        files.replace(name, copy.encode())
    except StoreError as error:
        raise MirrorError(f"{without_password(location)}: cannot be written: {error}") from None


def load(locations: Sequence[str]) -> Copy:
    """Load from the first location that has a whole copy.  MirrorError of the first when none has."""
    errors = []
    for location in locations:
        shown = without_password(location)
        try:
            files, name = _file(location)
            if (data := files.read(name)) is not None:
                return Copy.decode(data, shown)
            errors.append(MirrorError(f"{shown}: cannot be read: there is no such file"))
        except StoreError as error:
            errors.append(MirrorError(f"{shown}: cannot be read: {error}"))
        except MirrorError as error:
            errors.append(error)
        log.warning("event=mirror-fallover %s", errors[-1])
    raise errors[0]


def _file(location: str) -> tuple[Files, str]:
    """The folder that a file is in, and its name there."""
    cut = location.rfind("/") + 1
    return Files(location[:cut] or "."), location[cut:]


def restore(client: ZooKeeperSession, root: str, copy: Copy) -> int:
    """Put a copy where no records are yet; how many.  MirrorError when there are some.

    What the topology needs is put back in one transaction.  Closed incidents and their plans, which are for people alone,
    follow in as many as their size asks for: a copy that is interrupted there has lost old history and nothing else."""
    if client.exists(root) and client.get_children(root):
        raise MirrorError(f"{root}: there are records already; a copy never replaces them")
    back = {name: text for name, text in copy.records.items() if name.split("/")[0] not in NOT_BACK}
    client.ensure_path(root)
    needed = {name: text for name, text in back.items() if name.split("/")[0] not in HISTORY}
    try:
        _create(client, root, _with_parents(needed, set()))
    except SessionError as error:
        raise MirrorError(
            f"{root}: whether the records were put back is not known, as ZooKeeper has stopped answering ({error}); try it "
            "again: where they are there, it says so, and only closed incidents and plans may be missing"
        ) from error
    made = set(needed)
    for name in sorted(back.keys() - needed.keys()):
        try:
            _create(client, root, _with_parents({name: back[name]}, made))
        except SessionError as error:
            raise MirrorError(
                f"{root}: all is put back that the topology needs, but not every closed incident and plan, as ZooKeeper has "
                f"stopped answering at {name} ({error})"
            ) from error
        made.add(name)
    return len(back)


def _with_parents(records: Mapping[str, str], made: set[str]) -> dict[str, bytes]:
    """Sort records by name, each after the folders that it stands in; those in `made` are there, and what is added is
    put there."""
    found: dict[str, bytes] = {}
    for name in sorted(records):
        parts = name.split("/")
        for parent in ("/".join(parts[:end]) for end in range(1, len(parts))):
            if parent not in made and parent not in records:
                found[parent] = b""
                made.add(parent)
        found[name] = pack(records[name].encode())
    return found


def _create(client: ZooKeeperSession, root: str, records: Mapping[str, bytes]) -> None:
    """All or none of them."""
    transaction = client.transaction()
    try:
        check_all(root, ((f"{root}/{name}", data) for name, data in records.items()))
    except TooLargeError as error:
        raise MirrorError(str(error)) from error
    for name, data in records.items():
        transaction.create(f"{root}/{name}", data)
    failed = [refused for refused in transaction.commit() if refused is not None]
    if failed:
        raise MirrorError(f"{root}: not put back: {failed[0]!r}")
