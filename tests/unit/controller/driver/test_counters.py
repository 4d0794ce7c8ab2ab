"""What operators count and how much state is stored, from the rows to everything that people look at."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reprise.controller.cli.status_page import status_page
from reprise.controller.driver.report import stats_of
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.status import StatusDocument, document
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import encode_progress, encode_stats, parse_progress, parse_stats
from reprise.spark_jobs.contract import LATE_ROWS
from reprise.spark_jobs.operators import TumblingWindow
from reprise.spark_jobs.topology import StreamTopology, load_text
from tests.support.local_driver import LocalDriver, world_of

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: windows}
spec:
  batch: {interval: 100ms}
  sources:
    - name: rows
      class: reprise.spark_jobs.sources:FileSource
      with: {paths: [PATH], rows: 2, time: time}
  operators:
    - name: window
      class: reprise.spark_jobs.operators:TumblingWindow
      parallelism: 2
      with: {size: 2us, keys: [key], aggregate: {"n": count()}}
      inputs: [{from: rows, by: [key]}]
      output: {}
  checkpoint: {everyBatches: 2}
  nodes: {count: 2}
"""
ROWS = [(k, "abcd"[k % 4]) for k in range(40)]
LATE = {5: (1, "a"), 17: (2, "b"), 30: (3, "c")}
"""Rows that take the place of others, and whose window is closed by then."""


@pytest.fixture
def resource(tmp_path: Path) -> StreamTopology:
    rows = [{"time": time, "key": key} for time, key in (LATE.get(k, row) for k, row in enumerate(ROWS))]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_text(TOPOLOGY.replace("PATH", str(path)))


@pytest.fixture
def driver(resource: StreamTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    driver = LocalDriver(world_of(resource, tmp_path), MemoryServer())
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    driver.want(1, 0, driver.world.spread("a", "b"))
    return driver


def until_done(driver: LocalDriver) -> None:
    for _ in range(300):
        driver.turn()
        if driver.engine.done:
            assert driver.loop.publish()
            return
    raise AssertionError(driver.engine.progress)


def seen(driver: LocalDriver) -> StatusDocument:
    """As the control plane reads the driver's records."""
    progress = parse_progress(encode_progress(driver.loop.progress()))
    stats = parse_stats(encode_stats(stats_of({}, driver.engine.usage, 1.0, driver.engine.state_bytes)))
    return document(driver.world.topology, Observation(1.0, connected=True, progress=progress, stats=stats))


def page(found: StatusDocument, wide: bool = False) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(status_page(found, 24, wide=wide))
    return console.export_text()


def metric(driver: LocalDriver, name: str, labels: Mapping[str, str]) -> float | None:
    return driver.loop.metrics.registry.get_sample_value(name, {"topology": "default/windows", **labels})


def test_late_rows_that_were_dropped_are_seen_by_everybody(driver: LocalDriver) -> None:
    until_done(driver)
    found = seen(driver)
    counted = {(c.operator, c.name): c.value for c in found.counters}
    assert counted["window", LATE_ROWS] == len(LATE)
    assert f"{len(LATE)} dropped: window {len(LATE)}" in page(found)
    assert f"window late_rows {len(LATE)}" in page(found, wide=True)
    labels = {"operator": "window", "counter": LATE_ROWS}
    assert metric(driver, "reprise_operator_counters", labels) == len(LATE)


def test_nothing_is_said_of_late_rows_where_none_was_dropped(driver: LocalDriver) -> None:
    until_done(driver)
    well = seen(driver)
    none = replace(well, counters=tuple(replace(c, value=0) for c in well.counters))
    assert "late rows" not in page(none)


def test_what_was_dropped_is_counted_once_although_it_is_applied_again(driver: LocalDriver) -> None:
    world = driver.world
    while driver.engine.punctuations.newest < 8:
        driver.turn()
    at, k = dict(driver.engine.progress.counters), driver.engine.punctuations.newest
    assert at["window"][LATE_ROWS] > 0
    world.nodes.lose("b")
    world.nodes.start("c")
    driver.want(2, k, world.spread("a", "c"), seq=2)
    until_done(driver)
    assert driver.engine.progress.counters["window"][LATE_ROWS] == len(LATE)


def test_a_lost_partition_is_not_counted_until_it_is_back(driver: LocalDriver) -> None:
    while driver.engine.punctuations.newest < 8:
        driver.turn()
    whole = driver.engine.progress.counters["window"]["keys"]
    lost = next(p for p, node in driver.engine.desired.assignment.items() if node == "b#1" and "window" in p)
    theirs = driver.engine.counters[lost]["keys"]
    driver.world.nodes.lose("b")
    driver.turn()
    assert theirs > 0
    assert driver.engine.progress.counters["window"]["keys"] == whole - theirs


def test_state_bytes_are_the_size_of_the_newest_stored_state(driver: LocalDriver) -> None:
    """By the files themselves."""
    until_done(driver)
    newest = driver.engine.punctuations.newest
    files = driver.engine.store.manifest(newest).files
    assert len(files) == 2
    sizes = {p: (driver.world.checkpoints / file.path).stat().st_size for p, file in files.items()}
    found = {p.id: p.state_bytes for p in seen(driver).partitions}
    assert found == {"rows.0": 0, **sizes}
    assert metric(driver, "reprise_state_bytes", {}) == sum(sizes.values())


def test_after_a_rollback_it_is_the_state_that_was_restored(driver: LocalDriver) -> None:
    while driver.engine.punctuations.newest < 8:
        driver.turn()
    k = min(driver.engine.store.positions())
    files = driver.engine.store.manifest(k).files
    driver.want(2, k, driver.world.spread("a", "b"), seq=2)
    driver.loop._take_desired()
    assert {p: driver.engine.state_bytes[p] for p in files} == {p: f.size for p, f in files.items()}


def test_before_the_driver_has_said_it_the_size_is_not_known(driver: LocalDriver) -> None:
    nothing = document(driver.world.topology, Observation(1.0, connected=True))
    assert {p.state_bytes for p in nothing.partitions} == {None}
    assert nothing.counters == ()


@pytest.mark.parametrize(
    "answer", [{"rows": 1.5}, {"rows": "many"}, {3: 3}, {"yes": True}, RuntimeError("no"), None]
)
def test_counters_that_are_wrong_are_a_problem_and_harm_nothing(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    def counters(self: TumblingWindow, state: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(TumblingWindow, "counters", counters)
    until_done(driver)
    assert not driver.engine.failed
    assert any("window.0: counters: " in problem for problem in driver.loop.progress().problems)
    assert driver.engine.progress.counters == {}


def test_an_operator_has_a_bounded_number_of_counters(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TumblingWindow, "counters", lambda *_: {f"c{k}": 1 for k in range(1000)})
    until_done(driver)
    assert len(driver.engine.progress.counters["window"]) == 20
