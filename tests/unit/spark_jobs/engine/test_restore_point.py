"""What partitions are restored from: how often a store that is away is asked, and which checkpoints are given up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.engine.restore_point import STORE_PATIENCE_S, LineError, RestorePoint
from reprise.spark_jobs.errors import CheckpointError, DamagedError, StoreError
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import Snapshot, StateFile
from reprise.spark_jobs.topology import load_text
from tests.unit.spark_jobs.engine.test_recovery import COIN, DIAMOND


def manifest(position: int, *at: int) -> Manifest:
    """A round of partitions `p.0`, `p.1`, ...; `at`: their own positions, where they are others."""
    places = at or (position, position)
    snapshots = {
        f"p.{i}": Snapshot.round(f"p.{i}", k, StateFile(f"cp-{position}/p.{i}", 10 + i, "x"))
        for i, k in enumerate(places)
    }
    return Manifest(position, snapshots, {}, {})


@dataclass
class Store:
    """Manifests by position; an exception in the place of one is raised."""

    found: dict[int, Manifest | Exception]
    away: Exception | None = None
    asked: list[int] = field(default_factory=list)

    def manifest(self, position: int) -> Manifest:
        self.asked.append(position)
        found = self.found[position]
        if isinstance(found, Exception):
            raise found
        return found

    def complete(self, manifest: Manifest) -> None:
        self.found[manifest.position] = manifest

    def positions(self) -> list[int]:
        if self.away is not None:
            raise self.away
        return sorted(self.found)


@dataclass
class Scene:
    text: str = DIAMOND
    newest: int = 20
    trimmed: int = 0
    now: float = 100.0
    store: Store = field(default_factory=lambda: Store({10: manifest(10), 20: manifest(20)}))
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        resource = load_text(self.text)
        self.punctuations = Punctuations(resource.checkpoint, self.newest)
        self.point = RestorePoint(
            resource,
            cast(CheckpointStore, self.store),
            cast(Ledger, SimpleNamespace(trimmed=self.trimmed)),
            self.punctuations,
            self.problems,
            lambda: self.now,
        )

    def find(self, at: int | Positions, back: bool = True) -> Mapping[str, Install]:
        return self.point.find(at if isinstance(at, Positions) else Positions(at), back)


def test_what_each_partition_is_installed_from() -> None:
    scene = Scene()
    assert scene.find(10) == {
        "p.0": Install(10, {"path": "cp-10/p.0", "size": 10, "sha256": "x"}),
        "p.1": Install(10, {"path": "cp-10/p.1", "size": 11, "sha256": "x"}),
    }
    assert scene.find(0) == {}
    assert scene.find(Positions(20, {"p.1": 10, "none.0": 10, "first.0": 0})) == {
        "p.0": Install(20, {"path": "cp-20/p.0", "size": 10, "sha256": "x"}),
        "p.1": Install(10, {"path": "cp-10/p.1", "size": 11, "sha256": "x"}),
        "none.0": Install(10),
        "first.0": Install(0),
    }
    assert scene.point.bad == set()


def test_what_was_taken_is_not_asked_for_again_before_something_goes_back() -> None:
    scene = Scene()
    positions = Positions(10)
    scene.point.take(positions, scene.find(positions))
    assert scene.find(positions, back=False) is scene.point.installs
    assert scene.store.asked == [10]
    scene.find(positions, back=True)
    scene.find(20, back=False)
    assert scene.store.asked == [10, 10, 20]


def test_a_store_that_is_away_is_asked_after_pauses_that_grow() -> None:
    scene = Scene()
    scene.store.found[20] = error = StoreError("away")
    asked = []
    for _ in range(700):
        before = len(scene.store.asked)
        with pytest.raises(StoreError) as raised:
            scene.find(20)
        assert raised.value is error
        if len(scene.store.asked) > before:
            asked.append(scene.now)
        scene.now += 0.05
    expected = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, STORE_PATIENCE_S, STORE_PATIENCE_S]
    assert [b - a for a, b in pairwise(asked)] == pytest.approx(expected, abs=0.06)
    assert scene.point.bad == set()
    with pytest.raises(StoreError):
        scene.find(20)
    scene.now += STORE_PATIENCE_S
    scene.store.found[20] = manifest(20)
    assert scene.find(20)
    scene.store.found[20] = error
    for step, due in ((0.0, 1), (0.19, 0), (0.02, 1), (0.3, 0)):
        scene.now += step
        before = len(scene.store.asked)
        with pytest.raises(StoreError):
            scene.find(20)
        assert len(scene.store.asked) - before == due, "pauses begin anew"


def test_a_checkpoint_is_asked_for_at_once_though_another_could_not_be_read() -> None:
    scene = Scene()
    scene.store.found = {10: StoreError("away"), 20: StoreError("away")}
    for position in (20, 10, 20, 20):
        with pytest.raises(StoreError):
            scene.find(position, back=False)
    assert scene.store.asked == [20, 10, 20]


def test_a_damaged_one_is_given_up_and_the_one_before_is_the_newest() -> None:
    scene = Scene()
    scene.store.found[20] = DamagedError("its hash is wrong")
    with pytest.raises(DamagedError, match="its hash is wrong"):
        scene.find(20)
    assert (scene.point.bad, scene.punctuations.newest) == ({20}, 10)
    scene.point.condemn(10)
    assert (scene.point.bad, scene.punctuations.newest) == ({10, 20}, 0)


def test_an_older_one_that_is_damaged_leaves_the_newest() -> None:
    scene = Scene()
    scene.point.condemn(10)
    assert (scene.point.bad, scene.punctuations.newest) == ({10}, 20)


def test_a_store_that_is_away_while_one_is_given_up_is_said_and_asked_later() -> None:
    scene = Scene(text=COIN)
    scene.store.away = StoreError("no route")
    scene.point.condemn(20)
    assert (scene.problems, scene.punctuations.newest) == (["no route"], 20)
    with pytest.raises(StoreError):
        scene.find(10)
    assert scene.point.bad == {20}
    scene.store.away = None
    assert scene.find(10)
    assert scene.punctuations.newest == 10


def test_nothing_begins_behind_input_that_was_given_up() -> None:
    scene = Scene(trimmed=15)
    with pytest.raises(CheckpointError) as raised:
        scene.find(10)
    assert str(raised.value) == (
        "the stream cannot begin again behind batch 10: its input up to batch 15 was given up when a later checkpoint was "
        "complete"
    )
    assert scene.point.bad == {10}
    assert scene.store.asked == []
    Scene(trimmed=10).find(10)
    with pytest.raises(CheckpointError):
        Scene(trimmed=1).find(0)


@pytest.mark.parametrize("text", [COIN, DIAMOND.replace("operators:KeyedCount", "operators:NoSuchClass")])
def test_nothing_goes_back_behind_shown_output_that_may_come_out_otherwise(text: str) -> None:
    """What cannot be made here is not known to give the same rows again."""
    scene = Scene()
    assert scene.find(10), "where replays are alike it may"
    scene = Scene()
    scene.point.resource = changed(text)
    with pytest.raises(CheckpointError) as raised:
        scene.find(Positions(20, {"p.0": 10}))
    assert str(raised.value) == (
        "the stream does not go back behind checkpoint 20, whose output is shown: an operator is not deterministic, so a "
        "replay could differ from it"
    )
    assert scene.point.bad == {10}
    scene.point.bad.clear()
    assert scene.find(10, back=False), "what is at work stays"
    assert scene.find(20)
    assert scene.point.bad == set()


def changed(text: str) -> Any:
    """A resource whose classes need not be there."""
    operator = SimpleNamespace(
        class_path="tests.none:None", parameters={}, name="x", deterministic=None, output=None
    )
    return load_text(text) if text is COIN else SimpleNamespace(operators=(operator,), arrival=False)


def damaged(scene: Scene) -> None:
    scene.store.found[20] = DamagedError("its hash is wrong")
    with pytest.raises(DamagedError):
        scene.find(20)


def known(scene: Scene) -> None:
    scene.point.bad.add(20)


@pytest.mark.parametrize("how", [damaged, known])
def test_where_the_newest_is_damaged_the_one_before_serves(how: Callable[[Scene], None]) -> None:
    scene = Scene(text=COIN)
    how(scene)
    assert scene.find(10)
    assert scene.punctuations.newest == 10
    assert scene.point.bad == {20}


def test_a_line_is_none_of_its_business_and_not_damaged() -> None:
    """Its partitions are at positions of their own, which one position for all does not say."""
    scene = Scene()
    scene.store.found[20] = manifest(20, 20, 15, 15, 15, 15)
    with pytest.raises(LineError, match="checkpoint 20 is a line") as raised:
        scene.find(20)
    assert raised.value.position == 20
    assert (scene.point.bad, scene.punctuations.newest) == (set(), 20)


def test_what_this_driver_has_completed_is_installed_without_asking_the_store() -> None:
    """The newest `keep`; of an older one the store is asked."""
    scene = Scene()
    every = [10 * (i + 1) for i in range(scene.point.resource.checkpoint.keep + 1)]
    for position in every:
        scene.point.complete(manifest(position))
    for position in every[1:]:
        assert scene.find(position, back=False)["p.0"].position == position
    assert scene.store.asked == []
    scene.find(every[0], back=False)
    assert scene.store.asked == [every[0]]
