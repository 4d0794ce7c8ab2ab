"""The data plane's figures, from an engine whose nodes are really lost, and how the driver serves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.controller.observability.metrics import catalogue
from reprise.controller.observability.metrics.catalogue import METRICS
from reprise.controller.observability.metrics.driver import DriverMetrics, query_labels
from reprise.controller.observability.metrics.metric import Place
from reprise.spark_jobs.engine.figures import Figures
from reprise.spark_jobs.node.command import Held
from reprise.spark_jobs.topology import expand, load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

NAME = {"topology": "default/diamond"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    resource = override(load_text(DIAMOND), {"recovery.bufferMemory": "1Ki"})
    world = begun(resource, tmp_path, "abcd")
    world.engine.release.ahead = 3
    return world


def test_a_first_start_restores_nothing_and_a_rollback_does(world: World) -> None:
    world.run(lambda e: past(25)(e) and e.punctuations.newest >= 10)
    figures, k = world.engine.figures, world.engine.punctuations.newest
    assert (figures.restored, figures.restore_bytes, figures.replay_bytes) == (0, 0, 0)
    assert len(figures.jobs) == world.engine.jobs
    assert figures.checkpoint_s > 0
    size = sum(f.size for f in world.engine.store.manifest(k).files.values())
    reach = world.engine.horizon
    world.nodes.lose("c", "d")
    world.nodes.start("e")
    world.want(2, k, world.spread("a", "b", "e"), retain=True)
    world.run(lambda e: min(e.positions.values()) >= reach)
    assert figures.restored == len(world.topology.partitions)
    assert figures.restore_bytes == size
    assert figures.restore_s > 0 and figures.replay_bytes > 0
    replayed = figures.replay_bytes
    world.run(past(reach + 10))
    assert figures.replay_bytes == replayed  # what is new is no replay
    assert figures.spilled_bytes > 0


def test_the_driver_serves_every_metric_that_the_catalogue_promises(world: World) -> None:
    metrics = DriverMetrics(world.engine, lambda: "connected")
    world.run(lambda e: e.punctuations.newest >= 10)
    metrics.take([("top.0", 1, 10.4, 10.0), ("top.0", 2, 11.0, 10.1), ("top.0", 1, 99.0, 10.0)])
    served = {family.name for family in metrics.registry.collect() if family.samples}
    assert {m.name.removesuffix("_total") for m in METRICS if Place.DRIVER in m.places} <= served
    value = metrics.registry.get_sample_value
    query = NAME | {"query": "top.0"}
    assert value("reprise_latency_seconds_count", query) == 2  # written again is no news
    assert value("reprise_latency_seconds_sum", query) == pytest.approx(1.3)
    for step in catalogue.STEPS:
        assert value("reprise_superstep_seconds_count", NAME | {"phase": step}) == world.engine.jobs
    assert not world.engine.figures.jobs


def test_buffers_count_by_the_fullest_node(world: World) -> None:
    metrics = DriverMetrics(world.engine, lambda: "connected")
    limit = world.resource.recovery.buffer_memory_bytes + world.resource.recovery.buffer_disk_bytes
    world.engine.buffers = {"a": Held(limit // 2, 0, 0), "b": Held(0, limit // 4, 0)}
    value = metrics.registry.get_sample_value
    assert value("reprise_buffer_fill_ratio", NAME) == pytest.approx(0.5, rel=1e-3)
    assert value("reprise_buffer_bytes", NAME | {"medium": "disk"}) == limit // 4


def test_latency_has_a_bounded_number_of_labels() -> None:
    many = override(load_text(DIAMOND), {"operators[count].parallelism": catalogue.QUERY_LABELS + 20})
    labels = query_labels(expand(many))
    assert len(labels) == catalogue.QUERY_LABELS + 21
    assert len(set(labels.values())) == catalogue.QUERY_LABELS + 1
    assert labels["top.0"] == "top.0"  # the most valuable one


def test_a_partition_that_is_lost_again_while_it_is_restored_counts_once() -> None:
    figures = Figures()
    figures.reached(20)
    figures.installs("p", 10, 100, now=0.0)
    figures.loses("p", FailureKind.NODE_LOST, now=1.0)
    figures.installs("p", 10, 100, now=5.0)
    figures.applied({"p": 10}, {}, now=7.0)
    figures.applied({"p": 20}, {}, now=10.0)
    figures.applied({"p": 30}, {}, now=50.0)
    assert (figures.restored, figures.restore_bytes) == (1, 100)
    assert (figures.restore_s, figures.replay_s) == (2.0, 3.0)


OWN_CLOCKS = {
    "checkpoint.protocol": "uncoordinated",
    "checkpoint.log": "checkpointed",
    "recovery.scope": "global",
    "checkpoint.jitter": 50,
}


@pytest.mark.long
def test_what_snapshots_and_messages_cost_is_counted(tmp_path: Path) -> None:
    changes = OWN_CLOCKS | {"checkpoint.keep": 100, "recovery.bufferMemory": "16Mi"}
    world = begun(override(load_text(DIAMOND), changes), tmp_path, "ab")
    world.run(lambda e: past(25)(e) and e.punctuations.newest >= 8)
    metrics = DriverMetrics(world.engine, lambda: "connected")
    value = metrics.registry.get_sample_value
    counted = value("reprise_snapshot_files_total", NAME)
    stored = [s for found in world.engine.lines.snapshots.values() for s in found if s.file is not None]
    assert counted is not None and counted >= len(stored) > 0
    pause_s = value("reprise_snapshot_pause_seconds_total", NAME)
    store_s = value("reprise_snapshot_store_seconds_total", NAME)
    assert pause_s is not None and store_s is not None and pause_s > 0 and store_s > 0
    sent = value("reprise_message_bytes_total", NAME)
    assert sent is not None and sent > 0
    assert value("reprise_snapshots_skipped_total", NAME) == 0
    known = {p: len(found) for p, found in world.engine.lines.snapshots.items()}
    world.nodes.lose("a", "b")
    world.nodes.start("c")
    world.want(2, world.engine.punctuations.newest, world.spread("c"))
    passed_over = sum(
        s.position > world.engine.lines.origins[p].position
        for p, found in world.engine.lines.snapshots.items()
        for s in found
    )
    assert known and value("reprise_snapshots_skipped_total", NAME) == passed_over


def test_what_one_host_counts_begins_anew_with_the_next_driver(world: World) -> None:
    world.run(lambda e: e.punctuations.newest >= 10)
    before = world.engine.figures.files_stored
    assert before > 0
    world.driver()
    world.want(9, 0, world.spread("a", "b", "c", "d"))
    tick(world)
    assert world.engine.figures.files_stored < before
