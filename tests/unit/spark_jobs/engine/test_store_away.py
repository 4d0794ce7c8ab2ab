"""A checkpoint store that cannot be read for a while during a recovery: nothing is damaged, and all comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.topology_view import policy_of, view_of
from reprise.scheduler import Decision, decide
from reprise.scheduler.incident import Incident
from reprise.scheduler.model import Desired, Node, Progress, Snapshot
from reprise.scheduler.steps import CloseIncident, WriteDesired, WriteIncident
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.engine.restore_point import STORE_PATIENCE_S
from reprise.spark_jobs.errors import CheckpointError, DamagedError, StoreError
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import load_text
from tests.support import live_engine as live
from tools.testbed.local_engine import World

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: live}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.live_engine:Live"}]
  operators:
    - {name: out, class: "reprise.spark_jobs.operators:Filter", parallelism: 3, with: {where: "n >= 0"},
       inputs: [{from: in, by: ["n"]}], output: {}}
    - {name: count, class: "reprise.spark_jobs.operators:KeyedCount", with: {keys: ["n"]}, inputs: [{from: in, by: ["n"]}]}
    - {name: counts, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: count}], output: {}}
  checkpoint: {everyBatches: 5, keep: 3}
  nodes: {count: 3, cpu: 1}
"""


@dataclass
class Cluster:
    """Engine, hosts and files, with the rules of the scheduler; a look and a job every 0.3 virtual seconds."""

    world: World
    now: float = 1760000000.0
    desired: Desired | None = None
    incident: Incident | None = None
    records: list[int] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    rules: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view, self.policy = view_of(self.world.resource), policy_of(self.world.resource, 0.0, 2.0)
        self.new_driver(first=True)

    def new_driver(self, first: bool = False) -> None:
        engine = self.world.engine if first else self.world.driver()
        engine.release.ahead = 1
        engine.restore_point.clock = lambda: self.now

    def coordinator(self) -> None:
        self.carry_out(decide(self.snapshot(), self.policy))

    def snapshot(self) -> Snapshot:
        engine, hosts = self.world.engine, sorted(self.world.nodes.hosts)
        failed = {p: Failure.parse(str(why)) for p, why in engine.failed.items()}
        progress = Progress(
            str(engine.epoch), engine.desired.seq, engine.desired.generation, frozenset(f"{n}#1" for n in hosts),
            engine.at_work, failed, engine.horizon, checkpoint=engine.punctuations.newest,
            bad_checkpoints=frozenset(engine.bad_checkpoints), trimmed=engine.ledger.trimmed,
        )  # fmt: skip
        nodes = tuple(Node(n, 1, 1000) for n in hosts)
        checkpoints = frozenset(self.records[-3:])
        return Snapshot(
            self.now, self.view, True, nodes, progress, {}, checkpoints, self.desired, self.incident
        )

    def carry_out(self, decision: Decision) -> None:
        self.rules.append(decision.rule)
        for step in decision.steps:
            match step:
                case WriteDesired(desired):
                    self.desired = desired
                case WriteIncident(incident):
                    self.incident = incident
                case CloseIncident():
                    self.incident = None

    def driver(self) -> None:
        engine, d = self.world.engine, self.desired
        if d is not None and d.seq != engine.desired.seq and d.driver == str(engine.epoch):
            wanted = EngineSpec(d.seq, d.generation, d.checkpoint, d.assignment, d.retain, d.punctuate)
            try:
                engine.want(wanted)
            except CheckpointError as error:
                self.said.add(str(error))
        newest = engine.punctuations.newest
        engine.tick({f"{n}#1": n for n in self.world.nodes.hosts}, threading.Event())
        if engine.punctuations.newest > newest:
            self.records.append(engine.punctuations.newest)

    def run(self, until: Callable[[], bool], cycles: int = 3000) -> None:
        for _ in range(cycles):
            if until():
                return
            self.now += 0.3
            live.END += 3
            self.coordinator()
            self.driver()
        raise AssertionError(f"not reached: {self.rules[-5:]} {self.world.engine.positions} {self.said}")

    def least(self) -> int:
        return min(self.world.engine.positions.values(), default=0)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return steady(tmp_path, monkeypatch, TEXT)


def steady(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Cluster:
    """Three nodes at work, and so many checkpoints that input has been given up."""
    monkeypatch.setattr(live, "END", 0)
    cluster = Cluster(World(load_text(text), tmp_path, "w"))
    cluster.world.nodes.start("a", "b", "c")
    cluster.run(lambda: len(cluster.records) >= 6 and cluster.world.engine.ledger.trimmed > 0)
    return cluster


def goes_on(cluster: Cluster, given_up: frozenset[int] = frozenset()) -> None:
    """All comes back, the incident closes, no number is missing or there twice, and no other checkpoint was given up."""
    cluster.run(
        lambda: cluster.incident is None and cluster.desired is not None and not cluster.world.engine.failed
    )
    reached = cluster.least() + 10
    cluster.run(lambda: cluster.least() >= reached)
    rows = live.numbers(d for name, d in cluster.world.output().items() if name.startswith("out/"))
    end = cluster.world.engine.ledger.offsets(reached)["in.0"]
    assert [n for n in rows if n < end] == list(range(end))
    assert cluster.world.engine.bad_checkpoints == given_up


@pytest.mark.wide
def test_a_store_that_is_away_during_a_recovery_is_asked_again_and_no_checkpoint_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    read = Files.read

    def away(self: Files, relative: str) -> bytes | None:
        if not relative.startswith("cp-"):
            return read(self, relative)
        asked.append(cluster.now)
        raise StoreError(f"cannot read {relative}: OSError: [Errno 5] Input/output error")

    monkeypatch.setattr(Files, "read", away)
    cluster.world.forget()
    cluster.world.nodes.lose("c")
    cluster.world.nodes.start("d")
    began = cluster.now
    cluster.run(lambda: cluster.now > began + 60)
    assert "checkpoint-damaged" not in cluster.rules
    assert cluster.incident is not None and not cluster.incident.bad_checkpoints
    assert any("Input/output error" in problem for problem in cluster.said)
    waits = [b - a for a, b in pairwise(asked) if b > a]
    assert waits[-1] > waits[0] and max(waits) <= STORE_PATIENCE_S + 0.6
    monkeypatch.setattr(Files, "read", read)
    goes_on(cluster)


def test_a_new_driver_looks_again_at_what_an_incident_remembers_as_damaged(cluster: Cluster) -> None:
    newest = cluster.records[-1]
    manifest = next((cluster.world.checkpoints / f"cp-{newest:08d}").glob("COMPLETE*"))
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-9])
    cluster.world.forget()
    cluster.world.nodes.lose("c")
    cluster.run(lambda: cluster.incident is not None and newest in cluster.incident.bad_checkpoints)
    manifest.write_bytes(whole)
    cluster.world.nodes.lose("a", "b")
    cluster.world.nodes.start("d", "e", "f")
    cluster.new_driver()
    cluster.run(lambda: cluster.rules[-1] == "driver-restarted")
    assert cluster.incident is not None and not cluster.incident.bad_checkpoints
    goes_on(cluster)


def test_nothing_goes_back_behind_input_that_was_given_up(cluster: Cluster) -> None:
    for manifest in cluster.world.checkpoints.glob("cp-*/COMPLETE*"):
        manifest.write_bytes(b"{")
    cluster.world.forget()
    cluster.world.nodes.lose("c")
    cluster.world.nodes.start("d")
    cluster.run(lambda: cluster.rules[-3:] == ["no-whole-checkpoint"] * 3)
    assert cluster.desired is not None and cluster.desired.checkpoint > 0
    assert cluster.world.engine.ledger.trimmed > 0


def test_a_file_that_is_missing_is_damage_only_in_a_location_that_is_there(cluster: Cluster) -> None:
    """An unmounted volume is an empty folder."""
    store, newest = cluster.world.engine.store, cluster.records[-1]
    file = next(iter(store.manifest(newest).files.values()))
    here = cluster.world.checkpoints
    (here / file.path).unlink()
    with pytest.raises(DamagedError, match="it is missing"):
        store.read_state(file)
    aside = here.rename(here.with_name("unmounted"))
    here.mkdir()
    with pytest.raises(StoreError, match=r"there is no stream"):
        store.read_state(file)
    with pytest.raises(StoreError):
        store.manifest(newest)
    here.rmdir()
    aside.rename(here)
    assert store.manifest(newest).position == newest
