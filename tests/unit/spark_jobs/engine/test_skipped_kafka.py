"""Batches that are skipped, with outputs that go to Kafka: each that lacks rows is marked on the topic of gaps, no other
differs, and none is there twice."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.kafka import transactions
from reprise.spark_jobs.kafka.transactions import Session
from tests.support.fake_kafka import Broker
from tests.support.losses import fresh_nodes, lose_nodes_at_any_moment
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine.test_skipped import back, begun, finish, loses, nobody_went_back, restore
from tests.unit.spark_jobs.engine.test_standbys import recover
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("few_batches_ahead")]

OUTPUTS = ("window", "best", "all")
Shown = dict[tuple[str, int], list[str]]
"""(output partition, batch) -> its rows."""


def world_of(folder: Path, window: str = "amnesia", **parameters: object) -> World:
    """`window`: the availability of that operator, whose sink has `parameters` besides."""
    sink: dict[str, Any] = {
        "class": "reprise.kafka:KafkaSink",
        "with": {"brokers": "127.0.0.1:1", "topic": "t", "gaps": "gaps", "headers": True},
    }
    changes = {f"operators[{name}].output.sink": sink for name in OUTPUTS}
    changes |= {f"operators[{name}].availability": "amnesia" for name in ("parse", *OUTPUTS)}
    changes["operators[window].output.sink"] = {**sink, "with": {**sink["with"], **parameters}}
    return begun(folder, {**changes, "operators[window].availability": window})


def shown(broker: Broker) -> Shown:
    found: Shown = defaultdict(list)
    with broker.lock:
        told = list(zip(broker.messages, broker.headers, strict=True))
    for (topic, _, _, value), headers in told:
        if topic == "t":
            found[headers["reprise-partition"], int(headers["reprise-batch"])].append((value or b"").decode())
    return dict(found)


def marked(broker: Broker) -> set[tuple[str, int]]:
    """By the topic of gaps; whose rows have the header are among them."""
    found, headed = set(), set()
    with broker.lock:
        told = list(zip(broker.messages, broker.headers, strict=True))
    for (topic, _, _, value), headers in told:
        batch = headers["reprise-partition"], int(headers["reprise-batch"])
        if topic == "gaps":
            assert json.loads(value or b"")["batch"] == batch[1]
            found.add(batch)
        elif "reprise-gap" in headers:
            headed.add(batch)
            assert batch in found, "its rows came before its mark"
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    with pytest.MonkeyPatch.context() as patch:
        made = Broker()
        made.patch(patch, transactions)
        patch.setattr(engine_module, "WINDOW", 8)
        world = world_of(tmp_path_factory.mktemp("fault-free"))
        world.run(lambda e: e.done)
        found = shown(made)
        assert marked(made) == set()
        close(world)
    assert {partition.rpartition(".")[0] for partition, _ in found} == set(OUTPUTS)
    return found


def close(world: World) -> None:
    for host in world.nodes.hosts.values():
        host.close()


def check(broker: Broker, world: World, expected: Shown) -> None:
    found, gaps = shown(broker), marked(broker)
    for batch in expected.keys() | found.keys():
        if batch not in gaps:
            assert found.get(batch) == expected.get(batch), f"{batch} differs and is not marked"
    allowed = {
        (output, batch)
        for skip in world.engine.skipping.skips
        for output, (first, last) in skip.marked.items()
        for batch in range(first, last + 1)
    }
    assert gaps <= allowed, "more is marked than was skipped"


@pytest.mark.wide
def test_what_lacks_rows_is_marked_in_kafka_too(broker: Broker, tmp_path: Path, expected: Shown) -> None:
    world = world_of(tmp_path)
    world.run(past(25))
    loses(world, "parse.0", "window.0", "best.0")
    restore(world, *world.nodes.living())
    assert len(world.engine.skipping.skips) > 1
    finish(world)
    nobody_went_back(world)
    check(broker, world, expected)
    gaps, found = marked(broker), shown(broker)
    assert any(found.get(batch) != expected.get(batch) for batch in gaps), "nothing was skipped"
    assert any(batch not in found for batch in gaps), "none is without rows: the header alone would do"
    close(world)


@seeds(range(2), range(2, 6), 54)
def test_nodes_and_brokers_fail_at_any_moment(
    broker: Broker, tmp_path: Path, expected: Shown, seed: int
) -> None:
    rng = random.Random(seed)
    world = world_of(tmp_path)

    def planned(living: Sequence[str]) -> None:
        restore(world, *rng.sample(living, 3))
        broker.faults.extend(rng.choices(["unheard", "done", "prepared"], k=rng.randint(0, 3)))

    lose_nodes_at_any_moment(world, rng, lambda w: back(w, *w.nodes.living()), planned)
    broker.faults.clear()
    restore(world, *world.nodes.living())
    finish(world)
    check(broker, world, expected)
    close(world)


@pytest.mark.wide
@pytest.mark.parametrize("window", ["active-standby", "passive-standby", "upstream-backup"])
@seeds(range(2), range(2, 5), 35)
def test_what_a_standby_shows_of_batches_that_lack_rows_is_marked_too(
    broker: Broker, tmp_path: Path, expected: Shown, seed: int, window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are lost at random, among them those of `parse`, which begins anew, and of `window`, which does not.  The sink
    of that takes hardly more than a batch at once, and its brokers do not always answer."""
    rng, down = random.Random(seed), threading.Event()

    def answered(call: Callable[..., None]) -> Callable[..., None]:
        def called(session: Session, *rest: object) -> None:
            if down.is_set() and ".window." in session._name:
                raise SinkError("no answer")
            call(session, *rest)

        return called

    for name in ("write", "mark"):
        monkeypatch.setattr(Session, name, answered(getattr(Session, name)))
    world = world_of(tmp_path, window, buffer="64")
    fresh = fresh_nodes()
    windows = [p for p in world.topology.order if p.startswith("window")] if "standby" in window else []

    def planned() -> None:
        living = sorted(world.nodes.hosts)
        recover(world, {p: rng.choice(living) for p in windows})

    planned()
    for _ in range(rng.randint(2, 4)):
        tick(world, rng.randint(4, 12))
        if world.engine.done:
            break
        parse = world.engine.desired.assignment["parse.0"]
        for lost in (parse, rng.choice(sorted(world.nodes.hosts.keys() - {parse}))):
            if lost not in world.nodes.hosts:
                continue
            world.nodes.lose(lost)
            world.nodes.start(next(fresh))
            tick(world, rng.randint(1, 3))
            if rng.random() < 0.5:
                down.set()
            if world.engine.not_kept:
                back(world, *world.nodes.living())
            else:
                planned()
            tick(world, rng.randint(0, 3))
        down.clear()
    tick(world, 1)
    planned()
    finish(world)
    check(broker, world, expected)
    close(world)
