"""What a recovery would take, from the rows that partitions apply to what `reprise explain` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.analysis.explain import explain
from reprise.controller.driver import loop, report
from reprise.controller.driver.report import stats_of
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.status import StatusDocument, document
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import (
    encode_desired,
    encode_progress,
    encode_stats,
    parse_desired,
    parse_progress,
    parse_stats,
)
from reprise.scheduler import Desired, Node, PartitionStats
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.topology import load_text, override
from tests.support.local_driver import ROOT, LocalDriver, world_of
from tests.unit.controller.cli.test_explanation_page import page
from tests.unit.spark_jobs.engine.test_eventual import SLOTTED, WINDOWS

OBJECTIVE = {
    "checkpoint.protocol": "eventual",
    "checkpoint.log": "checkpointed",
    "operators[top].output.recovery": {"objective": "5m"},
}


def seen(driver: LocalDriver) -> StatusDocument:
    """As the control plane reads the records."""
    engine, nodes = driver.engine, [f"{name}#1" for name in "ab"]
    progress = parse_progress(encode_progress(driver.loop.progress()))
    stats = stats_of({}, engine.usage, 1.0, engine.state_bytes, engine.figures.times.works())
    desired = parse_desired(encode_desired(Desired(1, 1, 0, "1", engine.desired.assignment)))
    found = Observation(
        1.0,
        connected=True,
        nodes={node: Node(node[0], 1, 1000) for node in nodes},
        progress=progress,
        stats=parse_stats(encode_stats(stats)),
        desired=desired,
    )
    return document(driver.world.topology, found)


@pytest.mark.parametrize("protocol", ["coordinated", "eventual"])
def test_it_is_known_at_any_time_and_says_what_it_rests_on(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    resource = override(load_text(WINDOWS), OBJECTIVE if protocol == "eventual" else {})
    driver = LocalDriver(world_of(resource, tmp_path), MemoryServer())
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    driver.want(1, 0, driver.world.spread("a", "b"))
    while driver.engine.punctuations.newest < 10:
        driver.turn()
    found = seen(driver)
    assert found.overhead is not None and found.overhead.assumed == ("plan", "install"), (
        "nothing was lost yet"
    )
    assert all(p.replay_rows is not None for p in found.partitions)
    rows = {p.operator: 0 for p in found.partitions}
    for partition in found.partitions:
        rows[partition.operator] += partition.replay_rows or 0
    assert min(rows["tweets"], rows["parse"], rows["window"], rows["timed"]) > 0
    query = next(q for q in found.queries.items if q.id == "top.0")
    recovery = explain(found, "top.0").recovery
    assert recovery is not None and query.recovery_s == recovery.seconds
    assert recovery.seconds == pytest.approx(7.0 + recovery.load_s + recovery.replay_s, abs=0.01)
    assert recovery.partitions_there == sum(p.node == recovery.node for p in found.partitions)
    aims = {p.operator for p in found.partitions if p.aim is not None}
    assert aims == ({"window", "again", "count"} if protocol == "eventual" else set())
    assert aims <= set(SLOTTED), "timed has slots, and nobody says in how long it is to be back"
    assert (query.objective_s, query.held) == ((300.0, True) if protocol == "eventual" else (None, None))
    assert ("objective 300 s, held" in page(explain(found, "top.0"))) is (protocol == "eventual")


def test_the_record_says_how_many_rows_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the publisher beside the turns writes."""
    monkeypatch.setattr(loop, "STATS_S", 0.0)
    monkeypatch.setattr(report, "RATE_BATCHES", 0)
    driver = LocalDriver(world_of(load_text(WINDOWS), tmp_path), MemoryServer())
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    driver.want(1, 0, driver.world.spread("a", "b"))
    told: list[dict[str, PartitionStats]] = []

    def waits(_: float) -> bool:
        if (record := driver.tree.records.get(f"{ROOT}/{paths.STATS}")) is not None:
            told.append(parse_stats(record[0]))
        driver.turn()
        return len(told) == 6

    monkeypatch.setattr(driver.stop, "wait", waits)
    driver.loop._publish_forever()
    assert told[-1].keys() == driver.engine.topology.partitions.keys()
    assert all(one.input_rows_s is not None for stats in told for one in stats.values())
    for operator in ("tweets", "parse", "window"):
        came = [
            one.input_rows_s or 0.0 for stats in told for p, one in stats.items() if p.startswith(operator)
        ]
        assert max(came) > 0, (operator, told)
    tweets = [stats["tweets.0"] for stats in told]
    marks = [one.watermark for one in tweets if one.watermark is not None]
    assert marks == sorted(marks) and (any(marks) or tweets[-1].input_ended), tweets
    assert all(one.watermark or one.input_ended for one in told[-1].values()), (
        "readers have it from their sources"
    )
