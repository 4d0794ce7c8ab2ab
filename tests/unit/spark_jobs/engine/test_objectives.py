"""Recovery-time objectives: what each partition is given of them, and that a shorter one leaves less to replay after a loss.

What is counted is rows and bytes.  Rates are as if nothing had been measured, so no machine's speed is in it.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.recovery_time import Aim, Overhead, RestoreWork
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine import local_lines, restore_times
from reprise.spark_jobs.engine.objectives import STEP_S, shares
from reprise.spark_jobs.node import logged
from reprise.spark_jobs.topology import StreamTopology, expand, load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_eventual import SLOTTED, WINDOWS, logs
from tools.testbed.local_engine import World, past

ROWS_S, SLOTS_S = 100, 1000


def resource_of(**objectives: str) -> StreamTopology:
    """With objectives of output operators."""
    assert "batches: 28" in WINDOWS
    own = {f"operators[{name}].output.recovery": {"objective": text} for name, text in objectives.items()}
    eventual = {
        "checkpoint.protocol": "eventual",
        "checkpoint.log": "checkpointed",
        "checkpoint.eventual": {"spend": "1h", "every": "1us"},
        "recovery.bufferMemory": "64Mi",
    }
    return override(load_text(WINDOWS.replace("batches: 28", "batches: 90")), {**eventual, **own})


# -- what each is given ------------------------------------------------------------------------------------------------


def test_the_shortest_objective_of_the_queries_that_need_a_partition_counts() -> None:
    found = expand(resource_of(timed="1m", top="20s")).objectives
    wanted = {
        "tweets": 20.0,
        "parse": 20.0,
        "window": 20.0,
        "again": 20.0,
        "count": 20.0,
        "top": 20.0,
        "timed": 60.0,
    }
    assert {p.rpartition(".")[0]: s for p, s in found.items()} == wanted
    assert expand(resource_of(timed="1m")).objectives.keys() == {
        p for p in expand(resource_of()).order if p.rpartition(".")[0] in ("tweets", "parse", "timed")
    }
    assert expand(resource_of()).objectives == {}


PARTITIONS = st.lists(
    st.tuples(st.sampled_from("ab"), st.booleans(), st.floats(0.0, 5.0), st.integers(0, 500)),
    min_size=1,
    max_size=9,
)
"""Node, whether it is stored slot by slot, what it takes at best, and rows that it would replay."""


@given(PARTITIONS, st.floats(3.0, 60.0))
def test_on_no_node_more_is_given_than_the_objective_leaves(
    partitions: list[tuple[str, bool, float, int]], objective_s: float
) -> None:
    ids = [f"p.{k}" for k in range(len(partitions))]
    assignment = {p: node for p, (node, *_) in zip(ids, partitions, strict=True)}
    works, objectives = {}, {}
    for p, (_, slotted, least_s, rows) in zip(ids, partitions, strict=True):
        works[p] = RestoreWork(rows, 100.0, None, Aim(1, 1, least_s, 0.0) if slotted else None)
        if slotted:
            objectives[p] = objective_s
    found = shares(assignment, works, {}, objectives, 7.0)
    assert found.keys() == objectives.keys()
    for node in "ab":
        own = [p for p in found if assignment[p] == node]
        others = sum(works[p].replay_s for p in ids if assignment[p] == node and p not in found)
        left = max(0.0, objective_s - 7.0 - others)
        least = sum(works[p].aim.least_s for p in own)  # type: ignore[union-attr]
        assert sum(found[p] for p in own) <= left + 1e-6
        if own and least <= left:
            assert sum(found[p] for p in own) >= left - STEP_S * len(own) - 1e-6, "all of it is given"
            assert all(found[p] >= works[p].aim.least_s - STEP_S - 1e-6 for p in own)  # type: ignore[union-attr]


def test_without_an_objective_nobody_is_told_anything() -> None:
    assert shares({"p.0": "a"}, {"p.0": RestoreWork(10)}, {}, {}, 7.0) == {}


# -- what it does ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def slow_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates at which the rows of a test take seconds, and which no clock changes.  Nothing here loses power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    monkeypatch.setattr(local_lines, "SHARE", 0)
    monkeypatch.setattr(engine_module, "WINDOW", 3)
    monkeypatch.setattr(logged, "ROWS_S", ROWS_S)
    monkeypatch.setattr(logged, "SLOTS_S", SLOTS_S)
    monkeypatch.setattr(logged, "LEAST_ROWS", 10**9)
    monkeypatch.setattr(restore_times, "LEAST_ROWS", 10**9)


def recovered(folder: Path, **objectives: str) -> tuple[Counter[str], World]:
    """After the loss of a node in a run of some time: rows that its partitions with slots applied again, and how many were
    behind the positions that they came back from; `bytes` that were read."""
    world = begun(resource_of(**objectives), folder)
    world.run(past(60))
    engine = world.engine
    lost = [p for p, node in engine.desired.assignment.items() if node == "b"]
    slotted = [p for p in lost if p.rpartition(".")[0] in SLOTTED]
    assert len(slotted) >= 2
    at = dict(engine.positions)
    world.nodes.lose("b")
    world.run(lambda e: all(p in e.failed for p in lost), limit=3)
    home = {p: "c" if p in lost else node for p, node in engine.desired.assignment.items()}
    world.want(1, engine.punctuations.newest, home, retain=True)
    found = Counter[str]()
    for partition in slotted:
        found["batches"] += at[partition] - engine.positions[partition]
    world.run(lambda e: all(e.positions.get(p, -1) >= at[p] and p not in e.installing for p in lost))
    for partition in slotted:
        found["rows"] += engine.usage[partition].rows
        found["bytes"] += engine.usage[partition].load_bytes
    return found, world


@pytest.mark.wide
def test_a_shorter_objective_leaves_less_to_replay_after_a_loss(tmp_path: Path) -> None:
    """Counted in rows and batches, and in bytes where hardly more than the open slots is left to be read."""
    found = {text: recovered(tmp_path / text, timed=text, top=text)[0] for text in ("10h", "40s", "9s")}
    for longer, shorter in (("10h", "40s"), ("40s", "9s")):
        assert 0 < found[shorter]["rows"] < 0.7 * found[longer]["rows"], found
        assert 0 < found[shorter]["batches"] < 0.7 * found[longer]["batches"], found
    assert 0 < found["9s"]["bytes"] < 0.7 * found["10h"]["bytes"], found


@pytest.mark.wide
def test_hosts_keep_to_what_follows_from_it_and_the_driver_is_told(tmp_path: Path) -> None:
    world = begun(resource_of(timed="60s", top="60s"), tmp_path)
    world.run(past(40))
    engine, works = world.engine, world.engine.figures.times.works()
    aims = {p: work.aim for p, work in works.items() if work.aim is not None}
    assert aims.keys() == logs(world).keys(), "those that are stored slot by slot, and no others"
    for partition, runtime in logs(world).items():
        aim = aims[partition]
        assert runtime.log is not None and aim is not None
        assert (runtime.log.targets.extent, runtime.log.targets.replay) == (aim.extent, aim.replay)
        open_slots = runtime.slotted.open_count(runtime.state)
        assert aim.replay < 6000 and aim.extent < 60_000 and aim.extent > open_slots / 2
    overhead = Overhead.of(engine.figures.times.overhead()).seconds
    for node in "abc":
        members = [p for p, n in engine.desired.assignment.items() if n.startswith(node)]
        assert sum(aims[p].within_s for p in members if p in aims) <= 60.0 - overhead + 1e-6  # type: ignore[union-attr]


def test_without_an_objective_the_targets_are_those_of_the_resource(tmp_path: Path) -> None:
    world = begun(resource_of(), tmp_path)
    world.run(past(12))
    assert all(runtime.aim is None for runtime in logs(world).values())
    found = {(r.log.targets.extent, r.log.targets.replay) for r in logs(world).values() if r.log is not None}
    assert found == {(200_000, 1_000_000)}
