"""What holds for partitions that are fed again by what they read, in each way: with upstream backup, or with standbys where
both copies are lost, and with windows of batches or of event time."""

# ruff: noqa: F811
from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.operators import TumblingWindow
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import placed
from tests.support.hashtags import SKIPPED
from tests.support.losses import lose_nodes_at_any_moment, tick_losing
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine import test_both_copies_lost as copies
from tests.unit.spark_jobs.engine import test_upstream_backup as backup
from tests.unit.spark_jobs.engine import test_upstream_event_time as event_time
from tests.unit.spark_jobs.engine.test_standbys import recover
from tests.unit.spark_jobs.engine.test_upstream_backup import (
    Watch,
    back,
    could_be_fed,
    fed,
    finish,
    lose,
    rebuilds,
    restore,
    watch,  # noqa: F401 - what is given again is what was given before
)
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("exchange")]
Expected = dict[str, bytes]


@dataclass(frozen=True)
class Kind:
    """Partitions that are fed again; with `standbys` both copies are lost, and the stream stands between checkpoints."""

    text: str
    at: Mapping[str, str]
    changes: Mapping[str, Any]
    comes_to: Callable[[Engine], bool]
    lost: Mapping[str, Collection[str]]
    """Node -> what is fed again when it is lost.  What else is on it comes from its checkpoint."""
    names: Collection[str]
    """Operators that may be fed again."""
    standbys: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    """Partition -> the least batch behind which it begins."""

    def begin(self, folder: Path, changes: Mapping[str, Any] | None = None) -> World:
        resource = load_text(self.text, changes={**self.changes, **(changes or {})})
        return placed(resource, folder, self.at, self.standbys, "abcde" if self.standbys else "abcd")

    def in_the_middle(self, folder: Path, changes: Mapping[str, Any] | None = None) -> World:
        world = self.begin(folder, changes)
        if self.standbys:
            copies.stands_between_checkpoints(world)
        else:
            world.run(self.comes_to)
        return world

    @property
    def with_it(self) -> tuple[str, ...]:
        """Nodes that are lost beside that of a partition: its standby's."""
        return ("e",) if self.standbys else ()


BOTH_LOST = {"c": {"parse.0"}, "d": {"window.0"}}
BEGUN_BY = {"parse.0": 23, "window.0": 21}


def in_the_third_round(engine: Engine) -> bool:
    return engine.punctuations.newest >= 20 and past(24)(engine)


KINDS = {
    "backup": Kind(SKIPPED, backup.AT, backup.MODE, past(25), BOTH_LOST, copies.OPERATORS),
    "backup-event-time": Kind(
        event_time.TOPOLOGY,
        {**event_time.AT, "parse.0": "b"},  # else two in a row are lost: the second may need more than the first can give
        event_time.MODE,
        in_the_third_round,
        {"c": {"slide.0"}, "d": {"window.0", "soon.0"}},
        event_time.NAMES,
    ),
    **{
        mode: Kind(
            SKIPPED, backup.AT, copies.with_mode(mode), past(25), BOTH_LOST, copies.OPERATORS,
            copies.STANDBYS, BEGUN_BY,
        )
        for mode in copies.MODES
    },
    **{
        f"{mode}-event-time": Kind(
            event_time.TOPOLOGY, event_time.AT, copies.with_mode(mode, ["window"]), past(25),
            {"d": {"window.0"}}, event_time.NAMES, {"window.0": "e"}, {"window.0": 20},
        )
        for mode in copies.MODES
    },
}  # fmt: skip
WITH_STANDBYS = {name: kind for name, kind in KINDS.items() if kind.standbys}
OF_BATCHES = {name: kind for name, kind in KINDS.items() if kind.text is SKIPPED}
BACKED = {name: kind for name, kind in KINDS.items() if not kind.standbys}


@pytest.fixture(autouse=True)
def few_batches_ahead(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """With standbys no batch is released long before it is needed."""
    monkeypatch.setattr(engine_module, "WINDOW", 3 if kind.standbys else 8)


by_batches, by_event_time = backup.expected, event_time.expected
"""Fixtures: the outputs without a failure."""


@pytest.fixture
def expected(kind: Kind, by_batches: Expected, by_event_time: Expected) -> Expected:
    return by_batches if kind.text is SKIPPED else by_event_time


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "node"),
    [
        pytest.param(
            k, node, id=f"{name}-{node}", marks=[] if name == "backup-event-time" else pytest.mark.wide
        )
        for name, k in KINDS.items()
        for node in k.lost
    ],
)
def test_a_node_is_lost_at_any_stage_and_nothing_is_read(
    tmp_path: Path, expected: Expected, kind: Kind, node: str, stage: int, watch: Watch
) -> None:
    watch.begin()
    world = kind.in_the_middle(tmp_path)
    engine, again = world.engine, kind.lost[node]
    tick_losing(world, node, stage, *kind.with_it, in_turn=True)
    tick(world, 2 if kind.standbys else 1)
    assert {p for p, f in engine.failed.items() if f.kind is FailureKind.NODE_LOST} == set(engine.failed)
    failed = set(engine.failed)
    assert failed == {p for p, n in kind.at.items() if n == node}
    if kind.standbys:
        assert engine.progress.backed == again
        assert engine.progress.unbacked == set(), "there is no operator that has upstream backup alone"
        assert engine.punctuations.newest == 20
    else:
        assert engine.progress.backed >= again
        assert engine.punctuations.newest >= 10
    for partition in again:
        for file in world.checkpoints.glob(f"cp-*/{partition}.*"):
            file.unlink()  # whoever would read it would see that it is gone
    restore(world, "a", "b")
    assert fed(world) == again
    assert all(engine.positions[p] >= kind.least.get(p, 0) for p in again)
    finish(world, expected)
    assert set(watch.read) == set(failed) - set(again)
    assert engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("kind", WITH_STANDBYS.values(), ids=WITH_STANDBYS)
def test_a_window_goes_on_where_its_standby_is_whenever_its_node_is_lost(
    tmp_path: Path, expected: Expected, kind: Kind, stage: int, watch: Watch
) -> None:
    """One copy is enough: what can be fed again is not, and nothing of it is read."""
    watch.begin()
    world = kind.in_the_middle(tmp_path)
    tick_losing(world, "d", stage, in_turn=True)
    tick(world, 2)
    assert recover(world) == {"window.0"}
    assert fed(world) == set()
    finish(world, expected)
    assert watch.read == [] if kind.text is SKIPPED else "window.0" not in watch.read
    assert world.engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("kind", OF_BATCHES.values(), ids=OF_BATCHES)
def test_where_memory_is_short_it_is_fed_by_what_was_spared_and_nobody_goes_back(
    tmp_path: Path, expected: Expected, kind: Kind, watch: Watch
) -> None:
    watch.begin()
    world = kind.in_the_middle(tmp_path, copies.SHORT)
    engine = world.engine
    if not kind.standbys:
        world.run(lambda e: e.progress.kept_since > e.punctuations.newest)
        assert "window.0" in engine.progress.backed
    lose(world, "d", *kind.with_it)
    assert engine.progress.kept_since > engine.punctuations.newest
    assert engine.progress.backed == {"window.0"} or not kind.standbys
    restore(world, "a")
    assert fed(world) == {"window.0"}
    finish(world, expected)
    assert watch.read == []
    assert engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("memory", ["1Mi", "8Ki"])
@pytest.mark.parametrize("kind", OF_BATCHES.values(), ids=OF_BATCHES)
def test_at_every_moment_what_remains_is_enough_to_rebuild(
    tmp_path: Path, expected: Expected, watch: Watch, kind: Kind, memory: str
) -> None:
    """With little memory no more is kept than that."""
    watch.begin()
    all_of_them = copies.with_mode(kind.changes["operators[parse].availability"], kind.names)
    world = kind.begin(tmp_path, all_of_them | {"recovery.bufferMemory": memory})
    seen, kept, engine = 0, 0, world.engine
    while not past(55)(engine):
        tick(world)
        seen += len(rebuilds(world, watch, copies.spare if kind.standbys else could_be_fed))
        kept = max(kept, engine.progress.kept_since - engine.punctuations.newest)
    assert seen > 60
    if not kind.standbys:
        assert (kept > 0) is (memory == "8Ki"), "it was to be trimmed by cause, before a checkpoint covers it"
    finish(world, expected)


@pytest.mark.wide
@pytest.mark.parametrize("kind", OF_BATCHES.values(), ids=OF_BATCHES)
def test_checkpoints_that_are_being_taken_are_completed(
    tmp_path: Path, expected: Expected, kind: Kind
) -> None:
    """What is fed again begins before their batches, and stores itself there."""
    world = kind.begin(tmp_path)
    engine = world.engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "complete_checkpoints", lambda _: None)  # the store is slow
        world.run(copies.ready_at(24) if kind.standbys else past(25))
        lose(world, "d", *(kind.with_it or "c"))
        assert (engine.punctuations.newest, engine.punctuations.open) == (0, (10, 20))
        restore(world, "a", "b")
    assert fed(world) == ({"window.0"} if kind.standbys else {"parse.0", "window.0"})
    install = engine.upstream.install("window.0")
    assert install is not None and install.replays_to == 9
    world.run(lambda e: e.punctuations.newest >= 20, limit=40)
    assert {10, 20} <= set(engine.store.positions())
    finish(world, expected)
    assert engine.desired.generation == 1


@pytest.mark.parametrize("kind", [KINDS[f"{mode}-event-time"] for mode in copies.MODES], ids=copies.MODES)
def test_a_window_that_says_too_late_a_batch_is_found(
    tmp_path: Path, expected: Expected, kind: Kind, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check that the tests here rest on can fail."""
    watch.begin()
    monkeypatch.setattr(TumblingWindow, "oldest_needed_behind", lambda self, state, batch: batch + 1)
    world = kind.in_the_middle(tmp_path)
    lose(world, "d", "e")
    restore(world, "a", "b")
    assert "window.0" in fed(world)
    with pytest.raises(AssertionError, match="window"):
        finish(world, expected)


@pytest.mark.parametrize("kind", BACKED.values(), ids=BACKED)
@seeds(range(4), range(4, 8), 192)
def test_nodes_are_lost_at_any_moment(
    tmp_path: Path, expected: Expected, seed: int, kind: Kind, watch: Watch
) -> None:
    """Nodes, jobs and drivers are lost at any stage, plans come early and late, and some take everything back."""
    watch.begin()
    rng = random.Random(seed)
    names = rng.sample(list(kind.names), rng.randint(1, 4))
    changes = {f"operators[{name}].availability": "upstream-backup" for name in names}
    memory = copies.SHORT if rng.random() < 0.4 else {}
    world = placed(load_text(kind.text, changes=changes | memory), tmp_path, {**kind.at, "parse.0": "c"})

    def asked_again() -> None:
        if rng.random() < 0.5:
            desired = world.engine.desired
            world.want(desired.generation, world.engine.punctuations.newest, desired.assignment)

    lose_nodes_at_any_moment(
        world, rng, back, lambda living: restore(world, *rng.sample(living, 3)), asked_again
    )
    restore(world, *world.nodes.living())
    finish(world, expected)
