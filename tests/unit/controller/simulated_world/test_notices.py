"""A node has notice while another one is lost: the real coordinator, driver, engine, hosts and agents, and what must hold
after every event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from reprise.algorithms.positions import Positions
from reprise.controller.simulated_world import faults
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.controller.simulated_world.kinds import ARBITRARY
from reprise.controller.simulated_world.schedule import Schedule, run
from reprise.controller.zookeeper.paths import INCIDENT
from reprise.controller.zookeeper.recovery_records import parse_incident
from reprise.scheduler.incident import EventName, Phase
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.restore_point import RestorePoint
from reprise.spark_jobs.engine.standbys import Standbys
from reprise.spark_jobs.node.command import Install
from tests.unit.controller.simulated_world.test_cycles import at_node_of
from tests.unit.controller.simulated_world.test_schedules import holds


@contextmanager
def handed_over() -> Iterator[list[Phase]]:
    """The phases in which the incident is where partitions at work go to their standbys within, before their nodes go:
    `settling`, and `recovering` from any later one."""
    seen, clusters = list[Phase](), list[Cluster]()
    promote = Standbys.promote

    def leaves(cluster: Cluster, fault: Fault) -> bool:
        clusters.append(cluster)
        return KINDS["node-leaves"](cluster, fault)

    def promoted(standbys: Standbys, engine: Engine, partition: str) -> int:
        znodes = clusters[-1].ensemble.tree.znodes if clusters else {}
        if clusters and (found := znodes.get(f"{clusters[-1].root}/{INCIDENT}")) is not None:
            incident = parse_incident(found.data)
            said = [e.detail for e in incident.events if e.name is EventName.PROMOTED]
            if any(x.startswith("before their nodes go") and f"{partition} to " in x for x in said):
                assert partition in engine.positions, "it is lost already"
                seen.append(incident.phase)
        return promote(standbys, engine, partition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "KINDS", {**KINDS, "node-leaves": leaves})
        patch.setattr(Standbys, "promote", promoted)
        yield seen


@pytest.mark.wide
@pytest.mark.parametrize(
    ("availability", "later", "phase"),
    [
        ("active-standby", 2.0, Phase.RECOVERING),
        ("active-standby", 0.3, Phase.SETTLING),
        ("passive-standby", 0.3, Phase.SETTLING),
        ("passive-standby", 2.0, Phase.RECOVERING),
    ],
)
def test_standbys_take_over_before_their_nodes_go_while_another_node_is_lost(
    availability: str, later: float, phase: Phase
) -> None:
    """Which nodes have partitions with standbys is not said here: each is lost, and the next one leaves."""
    with handed_over() as seen:
        for which in range(4):
            gone = Fault(13.0, "node-dies", which, 60.0), Fault(13.0 + later, "node-leaves", which + 1, 60.0)
            holds(Schedule(3, gone, availability=availability))
    assert phase in seen


@pytest.mark.wide
@pytest.mark.parametrize("partition", ["count.0", "count.1"])
@pytest.mark.parametrize("how", ["node-drains", "node-leaves"])
def test_what_waits_for_its_standby_goes_on_there_before_its_node_goes_and_nobody_goes_back(
    how: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`count` draws what it gives: what is given twice would be another story (E1)."""
    went_back, handed = list[Positions](), list[str]()
    find, promote = RestorePoint.find, Standbys.promote

    def found(point: RestorePoint, positions: Positions, back: bool) -> Mapping[str, Install]:
        went_back.extend([positions] if back else [])
        return find(point, positions, back)

    def promoted(standbys: Standbys, engine: Engine, partition: str) -> int:
        handed.extend([partition] if partition in engine.positions else [])  # else it was lost
        return promote(standbys, engine, partition)

    def its_node_goes(cluster: Cluster, fault: Fault) -> bool:
        went_back.clear()  # of the beginning
        return at_node_of(partition, how)(cluster, fault)

    monkeypatch.setattr(RestorePoint, "find", found)
    monkeypatch.setattr(Standbys, "promote", promoted)
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-goes": its_node_goes})
    schedule = Schedule(
        3,
        (Fault(14.0, "its-node-goes", 1, 60.0),),
        availability="checkpoint,passive-standby,checkpoint",
        kinds=ARBITRARY,
        every=1,
    )
    outcome = run(schedule)
    assert outcome.violation is None
    assert outcome.acted == ("its-node-goes",)
    assert partition in handed
    assert went_back == []
