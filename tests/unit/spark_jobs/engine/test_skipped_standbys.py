"""Standbys of partitions that read what begins anew: where one was ahead of its partition, rows that the partition does
without are in marked batches alone (docs/decisions/0035-batches-that-are-skipped.md, Consequences)."""

# ruff: noqa: F811 - fixtures of other tests, which hold here as well
from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.sinks import FileSink
from tests.support.engine_worlds import still_shown
from tests.unit.spark_jobs.engine.test_skipped import (
    back,
    begun,
    check,
    expected,  # noqa: F401 - the output without a failure, which is the same
    finish,
    loses,
    nobody_went_back,
    restore,
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")


def ahead_of_its_partition(folder: Path, patch: pytest.MonkeyPatch) -> World:
    """The sink of `window.0` was away, so its standby on `e` has applied more of `parse.0` when that is lost, and begins
    anew: `window.0` itself is on `f`, stays, and does without."""
    changes = {"operators[parse].availability": "amnesia", "operators[window].availability": "active-standby"}
    world, away, store = begun(folder, changes), [True], FileSink.store

    def stores(sink: FileSink, batch: int, data: bytes) -> None:
        if away and sink.folder.parts[-2:] == ("window", "0"):
            raise SinkError("no answer")
        store(sink, batch, data)

    engine, at = world.engine, world.engine.desired.assignment
    world.nodes.start("e", "f")
    world.want(1, 0, {**at, "window.0": "f"}, standbys={"window.0": "e"})
    world.run(lambda e: e.punctuations.newest >= 10 and past(12)(e) and "window.0" in e.progress.standbys)
    patch.setattr(FileSink, "store", stores)
    tick(world, 4)
    loses(world, "parse.0", jobs=1)
    away.clear()
    tick(world, 1)
    restore(world, "a", standbys={"window.0": "e"})
    (skip,) = engine.skipping.skips
    assert skip.after["window.0"] < engine.standbys.there["window.0"].position <= skip.until
    return world


def goes_on_where_its_standby_is(world: World) -> None:
    world.nodes.lose("f")
    tick(world, 1)
    assert "window.0" in world.engine.progress.standbys
    at = {**world.engine.desired.assignment, "window.0": "e"}
    world.want(1, world.engine.punctuations.newest, at, retain=True)


@pytest.mark.wide
@pytest.mark.parametrize("ticks", [0, 1])
def test_what_a_standby_has_applied_and_its_partition_skips_is_in_marked_batches_alone(
    tmp_path: Path, expected: dict[str, bytes], ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promoted at once it shows rows that its partition would have lacked; later it goes on from a state that has them, and
    what its partition has shown without them stays."""
    world = ahead_of_its_partition(tmp_path, monkeypatch)
    (skip,), further = world.engine.skipping.skips, world.engine.standbys.there["window.0"].position
    tick(world, ticks)
    shown = world.output()
    goes_on_where_its_standby_is(world)
    finish(world)
    nobody_went_back(world)
    marked, now = check(world, expected), world.output()
    assert {name: now[name] for name in shown} == shown
    files = [f"window/0/batch-{b:08d}.jsonl" for b in range(skip.after["window.0"] + 1, further + 1)]
    assert marked.issuperset(files)
    whole = [name for name in files if now[name] == expected[name]]
    assert whole == ([] if ticks else files)


@pytest.mark.wide
def test_what_a_standby_had_applied_is_skipped_when_everything_goes_back(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it has shown stays."""
    world = ahead_of_its_partition(tmp_path, monkeypatch)
    goes_on_where_its_standby_is(world)
    tick(world, 2)
    shown = world.output()
    back(world, *world.nodes.living())
    finish(world)
    assert check(world, expected)
    still_shown(world, shown)
