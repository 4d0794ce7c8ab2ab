"""What `reprise explain --checkpoint` foretells of a loss, against what the recovery then had to do.

The driver, the engine, its hosts and the records are the real ones, in one process; the coordinator's rules decide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reprise.controller.analysis.checkpointing import CheckpointOutlook, ProtocolOutlook, checkpoint_outlook
from reprise.controller.analysis.node_losses import NodeLoss
from reprise.controller.analysis.protocol_costs import Known, reach_of
from reprise.controller.driver.report import stats_of
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.controller.zookeeper.records import (
    encode_desired,
    encode_progress,
    encode_stats,
    parse_checkpoint,
    parse_desired,
    parse_progress,
    parse_stats,
)
from reprise.scheduler import Node, decide
from reprise.scheduler.incident import Incident
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.local_driver import ROOT, LocalDriver
from tests.unit.spark_jobs.engine.test_eventual import WINDOWS
from tools.testbed.local_engine import World

NODES = ("a", "b", "c")
LONGEST = 300
"""Turns in which anything here is done."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are recorded with each job, nobody is far ahead, and nothing here loses power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    monkeypatch.setattr(local_lines, "SHARE", 0)
    monkeypatch.setattr(engine_module, "WINDOW", 3)


def resource_of(protocol: str, log: str = "none", **changes: object) -> StreamTopology:
    """All that it sends fits into memory, unless `changes` say otherwise."""
    chosen: dict[str, object] = {
        "checkpoint.protocol": protocol,
        "checkpoint.log": log,
        "recovery.bufferMemory": "64Mi",
    }
    if protocol == "eventual":
        chosen |= {"checkpoint.eventual": {"extent": 30, "replay": 100, "spend": "1h", "every": "1us"}}
    return override(load_text(WINDOWS.replace("batches: 28", "batches: 60")), {**chosen, **changes})


@dataclass
class Running:
    """A topology on three nodes, with what an observer reads of it."""

    driver: LocalDriver
    now: float = 1_000.0
    incident: Incident | None = None

    @property
    def resource(self) -> StreamTopology:
        return self.driver.world.resource

    def seen(self) -> Observation:
        """As the control plane reads the records."""
        engine, tree = self.driver.engine, self.driver.tree
        stats = stats_of({}, engine.usage, 2.0, engine.state_bytes, engine.figures.times.works())
        living = [f"{node}#1" for node in self.driver.world.nodes.hosts]
        progress = parse_progress(encode_progress(self.driver.loop.progress()))
        newest = f"{ROOT}/{paths.checkpoint(progress.checkpoint)}"
        return Observation(
            self.now,
            connected=True,
            nodes={node: Node(node[0], 1, 100_000) for node in living},
            progress=progress,
            stats=parse_stats(encode_stats(stats)),
            desired=parse_desired(tree.records[f"{ROOT}/desired"][0]),
            checkpoints=frozenset({progress.checkpoint}),
            checkpoint=parse_checkpoint(tree.records[newest][0]) if newest in tree.records else None,
            incident=self.incident,
            paused=True,
        )

    def outlook(self) -> CheckpointOutlook:
        return checkpoint_outlook(self.resource, self.seen())

    def decided(self) -> bool:
        """A look of the coordinator; whether it has written what is desired."""
        self.now += 0.5
        snapshot = snapshot_of(view_of(self.resource), self.seen())
        decision = decide(snapshot, replace(policy_of(self.resource, 0.0, 0.0), algorithm="best-density"))
        self.incident = decision.incident or self.incident
        if decision.desired is not None:
            self.driver.tree.put(f"{ROOT}/desired", encode_desired(decision.desired))
        return decision.desired is not None


def running(resource: StreamTopology, folder: Path, batches: int = 23) -> Running:
    """Everything has applied the same batches, the last of which is behind what is stored, and no more are released."""
    world = World(resource, folder, "w")
    world.nodes.start(*NODES)
    driver = LocalDriver(world, MemoryServer())
    driver.channel.changed.wait = lambda _=None: True  # type: ignore[method-assign,assignment]
    driver.want(1, 0, world.spread(*NODES))
    for _ in range(LONGEST):
        if (
            min(driver.engine.at_work.values(), default=0) >= batches
            and driver.engine.punctuations.newest > 0
        ):
            break
        driver.turn()
    found = Running(driver)
    desired = found.seen().desired
    assert desired is not None
    driver.tree.put(f"{ROOT}/desired", encode_desired(desired.next(paused=True)))
    assert not driver.engine.done
    for _ in range(LONGEST):
        if _even(driver):
            return found
        driver.turn()
    raise AssertionError(f"{driver.engine.at_work} {driver.engine.horizon} {driver.engine.problems}")


def _even(driver: LocalDriver) -> bool:
    engine = driver.engine
    everybody = engine.desired.paused and len(engine.at_work) == len(engine.topology.partitions)
    # on a busy machine it takes some batches
    stored = engine.punctuations.newest >= engine.punctuations.wanted
    return everybody and stored and set(engine.at_work.values()) == {engine.horizon}


@dataclass(frozen=True)
class Recovery:
    """What a recovery has done."""

    restored: frozenset[str]
    """That were lost, or were installed anew where they were."""
    batches: int
    """Of the one that went back furthest."""
    rows: int
    read: int


def recovered(run: Running, node: str) -> Recovery:
    """From the loss of a node until all is where it was."""
    engine = run.driver.engine
    at, before = dict(engine.positions), dict(engine.installation)
    run.driver.world.nodes.lose(node)
    run.driver.turn()
    for _ in range(20):
        if run.decided() and run.incident is not None and run.incident.plans:
            break
        run.driver.turn()
    assert run.incident is not None and run.incident.plans, run.incident
    run.driver.turn()
    restored = frozenset(p for p, number in engine.installation.items() if number != before[p])
    begun = {
        p: engine.lines.position(p) if engine.lines.active else engine.desired.origin(p).position
        for p in restored
    }
    # what was released before everything went back is not released again in a pause
    wanted = {p: min(k, engine.horizon) for p, k in at.items()}
    for _ in range(LONGEST):
        if engine.at_work == wanted and not engine.installing:
            break
        run.driver.turn()
    assert engine.at_work == wanted
    usage = {p: engine.usage[p] for p in restored}
    return Recovery(
        restored,
        max(at[p] - begun[p] for p in restored),
        sum(u.rows for u in usage.values()),
        sum(u.load_bytes for u in usage.values()),
    )


def now_of(found: CheckpointOutlook) -> ProtocolOutlook:
    assert found.not_calm == ""
    (current,) = [p for p in found.protocols if p.current]
    return current


def loss(found: ProtocolOutlook, node: str) -> NodeLoss:
    return next(x for x in found.losses_now if x.node == f"{node}#1")


def value(loss: NodeLoss, name: str) -> float:
    found: float | None = getattr(loss, name).value
    assert found is not None, getattr(loss, name)
    return found


CASES: Mapping[str, tuple[str, str]] = {
    "coordinated": ("coordinated", "none"),
    "memory": ("uncoordinated", "memory"),
    "checkpointed": ("uncoordinated", "checkpointed"),
    "induced": ("communication-induced", "checkpointed"),
    "eventual": ("eventual", "checkpointed"),
}


@pytest.mark.parametrize(
    "case", ["coordinated", "memory", pytest.param("checkpointed", marks=pytest.mark.wide)]
)
def test_everything_lost_would_go_back_about_as_far_as_the_interval_says(case: str, tmp_path: Path) -> None:
    """It is known after the next job, of up to three batches, what is stored, which the formula leaves out."""
    run = running(resource_of(*CASES[case]), tmp_path)
    current, topology = now_of(run.outlook()).costs_now, run.driver.world.topology
    assert current is not None and current.total_s.value is not None
    known = Known(run.resource, topology, run.seen())
    formula = max(reach_of(known, run.resource).values())
    assert 0 <= current.total_s.value <= formula + 6 * run.resource.batch_interval_s
    intervals = {"memory": 5 * 1.2, "coordinated": 1.0}
    by_formula = now_of(run.outlook()).costs
    assert by_formula is not None and by_formula.total_s.value == formula
    stored = known.round_s or 0.0 if case == "coordinated" else 0.0
    reach = 5 * run.resource.batch_interval_s * intervals.get(case, 1.2)
    assert formula - stored == pytest.approx(reach, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_loss_takes_back_and_repeats_what_was_foretold(case: str, tmp_path: Path) -> None:
    run = running(resource_of(*CASES[case]), tmp_path)
    foretold = loss(now_of(run.outlook()), "b")
    done = recovered(run, "b")
    assert foretold.back == () and done.restored == frozenset(foretold.lost)
    repeated = value(foretold, "stream_s") / run.resource.batch_interval_s
    if case == "coordinated":
        assert (foretold.stream_s.bound, done.batches) == ("", round(repeated))
    else:
        assert 0 <= done.batches <= round(repeated) and foretold.stream_s.bound == "at most"
    assert (done.rows == 0) is (done.batches == 0)
    assert done.rows <= value(foretold, "rows") and foretold.rows.bound == "at most"
    assert done.read == value(foretold, "read") > 0


@pytest.mark.long
@pytest.mark.parametrize("scope", ["ancestors", pytest.param("global", marks=pytest.mark.wide)])
def test_who_lives_and_goes_back_is_foretold_too(scope: str, tmp_path: Path) -> None:
    run = running(resource_of("coordinated", **{"recovery.scope": scope}), tmp_path)
    foretold = loss(now_of(run.outlook()), "c")
    sizes = {p: one.state_bytes for p, one in run.seen().stats.items()}
    done = recovered(run, "c")
    assert foretold.back and done.restored == {*foretold.lost, *foretold.back}
    everybody = frozenset(run.driver.world.topology.order)
    assert (done.restored == everybody) is (scope == "global")
    assert done.batches == round(value(foretold, "stream_s") / run.resource.batch_interval_s) > 0
    assert done.rows <= value(foretold, "rows") and (done.rows > 0) is (scope == "ancestors")
    assert value(foretold, "read") == sum(sizes[p] for p in done.restored)
    assert done.read == sum(sizes[p] for p in foretold.lost) > 0, "who lives has copies on its own node"


@pytest.mark.wide
def test_headers_of_messages_are_those_that_are_sent(tmp_path: Path) -> None:
    """By what a topology with rounds foretells of communication-induced checkpoints, and what one that has them counts."""
    with_rounds = running(resource_of("coordinated"), tmp_path / "rounds").outlook()
    (other,) = [p for p in with_rounds.protocols if p.protocol == "communication-induced"]
    assert other.costs is not None and other.costs.headers.value is not None
    run = running(resource_of("communication-induced", "checkpointed"), tmp_path / "induced")
    engine = run.driver.engine
    foretold = other.costs.headers.value * run.resource.batch_interval_s * engine.horizon
    assert engine.figures.header_bytes == pytest.approx(foretold)
    told = engine.progress.stored
    current = now_of(run.outlook()).costs_now
    assert current is not None and current.headers.value == pytest.approx(
        told["header_bytes"] / told["seconds"]
    )
    assert told["snapshots"] == engine.lines.taken > 0 and told["bytes"] == engine.lines.bytes_taken > 0


@pytest.mark.wide
@pytest.mark.parametrize(
    ("case", "least", "most"),
    [pytest.param("memory", 0.5, 1.5, marks=pytest.mark.wide), ("checkpointed", 0.5, 1.05)],
)
def test_what_another_protocol_would_store_is_about_what_it_stores_then(
    case: str, least: float, most: float, tmp_path: Path
) -> None:
    """Bytes a batch, by the figures of a topology with rounds.  States grow meanwhile, and with clocks of their own sources
    store watermarks, too; with `checkpointed` it is an upper bound."""
    foretold = next(
        p
        for p in running(resource_of("coordinated"), tmp_path / "rounds").outlook().protocols
        if (p.protocol, p.log) == CASES[case]
    )
    run = running(resource_of(*CASES[case]), tmp_path / case)
    engine, costs = run.driver.engine, foretold.costs
    assert costs is not None and costs.stored.value is not None and costs.kept.value is not None
    by_formula = costs.stored.value * run.resource.batch_interval_s
    assert least * by_formula <= engine.progress.stored["bytes"] / engine.horizon <= most * by_formula
    assert 0 < engine.progress.memory + engine.progress.disk <= costs.kept.value


@pytest.mark.long
def test_files_of_rounds_are_counted(tmp_path: Path) -> None:
    run = running(resource_of("coordinated"), tmp_path)
    told, store = run.driver.engine.progress.stored, run.driver.engine.store
    files = [file for k in store.positions() for file in store.manifest(k).files.values()]
    assert files and told["dropped"] == told["forced"] == 0
    assert told["snapshots"] >= len(files) and told["bytes"] >= sum(file.size for file in files)
