"""A topology whose ZooKeeper can be reached: a run on this machine, or any other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from reprise.controller.cli import exits
from reprise.controller.cli.live import action_text
from reprise.controller.cli.target_ended import LAST_ACTIONS, EndedTarget
from reprise.controller.cli.zookeeper_session import zookeeper_session
from reprise.controller.local.report.layout import LAST, is_running, read_record
from reprise.controller.status import StatusDocument, document
from reprise.controller.topology_view import with_promises
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.access import AUTH
from reprise.controller.zookeeper.errors import (
    BadVersionError,
    ClientError,
    NodeExistsError,
    NoNodeError,
    StaleError,
)
from reprise.controller.zookeeper.leaving import encode_leaving
from reprise.controller.zookeeper.node_record import leaving_path
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.observer import Observer
from reprise.controller.zookeeper.process_records import encode_paused
from reprise.controller.zookeeper.savepoint_records import encode_wish
from reprise.controller.zookeeper.settings_record import SettingsOnRecord, write_settings
from reprise.controller.zookeeper.skip_wishes import encode_skip
from reprise.controller.zookeeper.topology_wish import TopologyWish, write_topology_wish
from reprise.scheduler.model import Leaving, SkipWish
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology, Topology, from_json, load_topology
from reprise.spark_jobs.topology.changes import in_effect, settings_of

CONNECT_S = 8.0
LOG_TAIL = 200_000
"""Bytes of each log that go into a bundle: minutes of a busy log, and small enough to mail."""


@dataclass(slots=True)
class ZooKeeperTarget:
    """Opened on entry."""

    hosts: str
    root: str
    load: Callable[[], StreamTopology]
    out: Path | None = None
    access: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Variables that say how to prove oneself to ZooKeeper."""
    _resource: StreamTopology | None = None
    _topology: Topology | None = None
    _started: StreamTopology | None = None
    """What its driver was started with."""
    _settings: SettingsOnRecord = field(default_factory=SettingsOnRecord)
    """By which `resource` goes."""
    _observer: Observer = field(init=False)

    def __enter__(self) -> ZooKeeperTarget:
        self._resource = self.load()
        self._topology = with_promises(self._resource)
        self._observer = Observer(self.hosts, self.root, environment=self.access)
        try:
            self._observer.open(CONNECT_S)
        except Exception as error:
            raise exits.NotRunningError(str(error)) from error
        if not self._observer.exists(self.root):
            self._observer.close()
            raise exits.NotRunningError(f"nothing runs at {self.root} in ZooKeeper {self.hosts}")
        if not self._observer.readable(self.root):
            self._observer.close()
            raise exits.NotRunningError(
                f"ZooKeeper {self.hosts} does not let this process read {self.root}; {AUTH} names who may"
            )
        self._started = self._resource
        self._follow(self._observer.settings())
        return self

    def _follow(self, found: SettingsOnRecord) -> None:
        """What is shown from now on is the topology with these settings."""
        if found == self._settings or (found.settings is None and self._settings.settings is not None):
            return
        assert self._started is not None
        self._settings = found
        self._resource = in_effect(self._started, found.settings or {})
        self._topology = with_promises(self._resource)

    def __exit__(self, *error: object) -> None:
        self._observer.close()

    def resource(self) -> StreamTopology:
        assert self._resource is not None
        return self._resource

    def document(self) -> StatusDocument:
        with contextlib.suppress(ClientError):  # what was known stands, as with all records
            self._follow(self._observer.settings())
        assert self._topology is not None
        return document(self._topology, self._observer.read())

    def observation(self) -> Observation:
        return self._observer.read()

    def resources(self) -> dict[str, Any] | None:
        return None

    def pause(self, paused: bool) -> str:
        """Ask for a pause as anyone may (docs/recovery.md): the znode stands above what the resource says."""
        path = f"{self.root}/{paths.PAUSED}"
        value = encode_paused(paused)
        with zookeeper_session(self.hosts, self.access) as session:
            try:
                session.set(path, value)
            except NoNodeError:
                session.create(path, value, makepath=True)
        return f"{path} is {value.decode()}"

    def apply(self, wanted: StreamTopology) -> None:
        """Have its driver and coordinator follow the settings of `wanted`.  StaleError: others were written since `resource`
        was read, and these stay."""
        settings, before = settings_of(wanted), self._settings.version
        with zookeeper_session(self.hosts, self.access) as session:
            try:
                version = write_settings(session, self.root, settings, before)
            except (BadVersionError, NodeExistsError) as error:
                raise StaleError(
                    "somebody else has changed settings since this file was compared; nothing was changed: ask again"
                ) from error
        self._settings = SettingsOnRecord(settings, version)

    def overtaken(self) -> bool:
        """Whether other settings are on record than those of `resource`, or those that `apply` has written."""
        return self._observer.settings().version != self._settings.version

    def change_queries(self, wish: TopologyWish) -> bool:
        """Ask who runs it to go on with another topology where the stream has drained; False: another wish waits."""
        with zookeeper_session(self.hosts, self.access) as session:
            return write_topology_wish(session, self.root, wish)

    def take_back_queries(self) -> bool:
        """Take back what `change_queries` has asked for; False: it is being carried out."""
        path = f"{self.root}/{paths.TOPOLOGY}"
        with zookeeper_session(self.hosts, self.access) as session:
            try:
                session.delete_async(path).get()
            except NoNodeError:
                return False
        return True

    def drain(self, node: str, wanted: bool) -> str:
        """A znode below `leaving`, which any coordinator sees."""
        path = leaving_path(self.root, node)
        with zookeeper_session(self.hosts, self.access) as session:
            if not wanted:
                with contextlib.suppress(NoNodeError):
                    session.delete(path)
                return f"{path} is gone"
            with contextlib.suppress(NodeExistsError):
                session.create(path, encode_leaving(Leaving("reprise drain")), makepath=True)
        return f"{path} asks for it to be emptied"

    def skip(self, query: str, wanted: bool) -> str:
        """A znode below `skips`, which goes when a coordinator takes the wish."""
        path = f"{self.root}/{paths.SKIPS}/{query}"
        with zookeeper_session(self.hosts, self.access) as session:
            try:
                session.delete(path)
            except NoNodeError:
                if not wanted:
                    return f"{path} is not there: nobody has asked, or it is under way already"
            if not wanted:
                return f"{path} is gone"
            with contextlib.suppress(NodeExistsError):  # somebody else asks for the same
                session.create(path, encode_skip(SkipWish(uuid4().hex)), makepath=True)
        return f"{path} asks for it"

    def savepoint(self, wish: SavepointWish) -> str:
        """A znode below `savepoint-wishes`, which goes when the driver has said what came of it."""
        path = f"{self.root}/{paths.SAVEPOINT_WISHES}/{wish.id}"
        with zookeeper_session(self.hosts, self.access) as session:
            session.create(path, encode_wish(wish), makepath=True)
        return f"{path} asks for it"

    def actions(self) -> list[str]:
        record = read_record(self.out) if self.out is not None else None
        return [action_text(action) for action in (record or {}).get("actions", [])[-LAST_ACTIONS:]]

    def is_over(self) -> bool:
        return self.out is not None and not is_running(read_record(self.out) or {})

    def files(self) -> dict[str, bytes]:
        return run_files(self.out) if self.out is not None else {}


def last_or_now(out: Path) -> ZooKeeperTarget | EndedTarget:
    """The run in a folder, or its last state where it has ended and left one."""
    try:
        return of_run(out)
    except exits.NotRunningError as error:
        if is_running(read_record(out) or {}) or not (out / LAST).is_file():
            raise
        return EndedTarget(out, str(error))


def of_run(out: Path) -> ZooKeeperTarget:
    """The run in a folder, which must be running."""
    record = read_record(out)
    if record is None:
        raise click.BadParameter(f"{out} holds no run (no run.json)", param_hint="--out")
    if not is_running(record):
        outcome = record.get("outcome")
        ended = "its process is gone" if outcome == "running" else f"it ended: {outcome}"
        raise exits.NotRunningError(f"nothing runs in {out}, {ended}; see `reprise history --out {out}`")
    if "zk" not in record:
        raise exits.NotRunningError(f"the run in {out} is still starting its cluster")

    def load() -> StreamTopology:
        return from_json((out / "topology.json").read_text(encoding="utf-8"))

    # not of this process' own environment, which may be for another ZooKeeper
    access = {str(name): str(value) for name, value in record.get("zkAccess", {}).items()}
    return ZooKeeperTarget(str(record["zk"]), str(record["root"]), load, out, access)


def of_zookeeper(hosts: str, root: str, file: Path) -> ZooKeeperTarget:
    """Whatever runs below `root`."""
    return ZooKeeperTarget(hosts, root, lambda: load_topology(file, data=False))


def run_files(out: Path) -> dict[str, bytes]:
    """Records of a run and the ends of its logs."""
    found: dict[str, bytes] = {}
    for name in ("run.json", "topology.json", "incident.json", "plans.json", LAST):
        if (out / name).is_file():
            found[name] = (out / name).read_bytes()
    for path in sorted((out / "logs").rglob("*.log")):
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_TAIL))
            found[f"logs/{path.relative_to(out / 'logs')}"] = log.read()
    return found
