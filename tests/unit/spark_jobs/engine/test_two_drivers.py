"""Two drivers at once, one of them given up: cut off from ZooKeeper, or frozen somewhere in a turn and back later.

Real engines, hosts, ledger, checkpoints and sink files.  The source is live, so a batch has what is there when it is cut;
one of the queries is not deterministic, so its output must never come from two histories.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.errors import StoreError, SupersededError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import Fence, claim_epoch, claims
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import load_text
from tests.support import live_engine as live
from tests.unit.spark_jobs.state.test_storage import TABLES
from tools.testbed.local_engine import LocalJobs, LocalNodes, World

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.live_engine:Live"}]
  operators:
    - {name: odd, class: "reprise.spark_jobs.operators:Filter", with: {where: "n % 2 = 1"}, inputs: [{from: in}], output: {}}
    - {name: even, class: "reprise.spark_jobs.operators:Filter", with: {where: "n % 2 = 0"}, inputs: [{from: in}],
        output: {}}
    - {name: toss, class: "tests.support.coin:Toss", deterministic: false, inputs: [{from: in}]}
    - {name: total, class: "tests.support.coin:Total", inputs: [{from: toss}], output: {}}
  checkpoint: {everyBatches: 5, keep: 2}
  nodes: {count: 2}
"""
PLACE = {"in.0": 0, "odd.0": 0, "even.0": 1, "toss.0": 0, "total.0": 0}


class Two:
    """A world with a first driver at work and, from `second` on, another one that knows nothing of it."""

    def __init__(self, folder: Path) -> None:
        self.world = World(load_text(TEXT), folder, "w")
        self.first, self.nodes = self.world.engine, self.world.nodes
        self.first.release.ahead = 1
        self.nodes.start("a", "b")
        self.first.want(EngineSpec(1, 1, 0, {p: "ab"[i] for p, i in PLACE.items()}, punctuate=True))
        self.later: Engine | None = None
        self.ended: str | None = None
        self.batches: dict[int, tuple[int, int]] = {}
        self.tick(self.first, self.nodes, lambda e: e.punctuations.newest >= 10 and self.least(e) > 11)

    @staticmethod
    def least(engine: Engine) -> int:
        return min(engine.positions.values(), default=0)

    def tick(self, engine: Engine, nodes: LocalNodes, until: Callable[[Engine], bool]) -> None:
        for _ in range(3000):
            if until(engine):
                return
            live.END += 7
            try:
                engine.tick(nodes.living(), threading.Event())
            finally:
                self.note(engine)
        raise AssertionError(f"not reached: {engine.positions} {engine.failed} {engine.problems[-3:]}")

    def note(self, engine: Engine) -> None:
        """What a batch is, is said once, by whomever."""
        for batch, span in engine.ledger.ranges["in.0"].items():
            said = self.batches.setdefault(batch, (span.start, span.end))
            assert said == (span.start, span.end), f"batch {batch} is {said} and {tuple(span)}"

    def second(self, batches: int = 12) -> None:
        """Another driver on other nodes, as far as it gets in so many batches."""
        nodes = self.world.nodes = LocalNodes(self.world.checkpoints)
        nodes.start("c", "d")
        later = self.later = self.world.driver()
        later.release.ahead = 1
        k = later.punctuations.newest
        later.want(EngineSpec(2, 2, k, {p: "cd"[i] for p, i in PLACE.items()}, punctuate=True))
        self.tick(later, nodes, lambda e: self.least(e) >= k + batches)

    def goes_on(self, batches: int = 12) -> None:
        later = self.later
        assert later is not None
        reached = self.least(later) + batches
        newest = later.punctuations.newest
        self.tick(
            later, self.world.nodes, lambda e: self.least(e) >= reached and e.punctuations.newest > newest + 5
        )
        covered = later.punctuations.newest
        self.tick(later, self.world.nodes, _once())  # shows it
        self.check(later, covered)

    def check(self, later: Engine, covered: int) -> None:
        """The sink holds what one driver alone would have written from the ledger; `covered`: by a checkpoint that was
        complete before the last job."""
        assert not any("not identical" in problem for problem in (*self.first.problems, *later.problems))
        output = self.world.output()
        for batch in range(1, self.least(later) + 1):
            for name, rest in (("odd", 1), ("even", 0)):
                start, end = self.batches[batch]
                rows = [json.loads(r)["n"] for r in output[f"{name}/0/batch-{batch:08d}.jsonl"].splitlines()]
                assert rows == [n for n in range(start, end) if n % 2 == rest], f"{name}, batch {batch}"
        totals = [json.loads(data) for name, data in sorted(output.items()) if name.startswith("total/")]
        assert len(totals) >= covered, "what a checkpoint covers is shown with the next job"
        assert all(b["total"] == a["total"] + b["toss"] for a, b in pairwise(totals))


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setattr(live, "END", 100)
    return Two(tmp_path)


def test_a_driver_that_is_cut_off_from_zookeeper_goes_on_alone(two: Two) -> None:
    before = two.least(two.first)
    two.tick(two.first, two.nodes, lambda e: two.least(e) >= before + 30)
    assert two.first.punctuations.newest > before


def test_a_driver_that_is_cut_off_beside_its_successor_reads_the_same_and_ends(two: Two) -> None:
    two.second(batches=0)
    two.nodes.lose("b")
    assert two.later is not None
    with pytest.raises(
        SupersededError, match=r"a driver of epoch 2 has begun .*: this one, of epoch 1, ends"
    ):
        for _ in range(400):
            two.tick(two.first, two.nodes, _once())
            two.tick(two.later, two.world.nodes, _once())
    two.goes_on()


def test_what_an_earlier_driver_said_of_a_batch_holds_for_its_successor(two: Two) -> None:
    """The old one writes a block after the new one has loaded the ledger."""
    two.second(batches=0)
    batch = two.first.ledger.written + 1
    with pytest.raises(SupersededError):
        two.tick(two.first, two.nodes, lambda e: e.ledger.written >= batch)
    said = json.loads((two.world.checkpoints / f"ranges/{batch:010d}.json").read_text())
    assert said["epoch"] == 1
    two.goes_on(batches=1)
    assert list(two.batches[batch]) == said["ranges"]["in.0"][str(batch)][:2]
    two.goes_on()


def _once() -> Callable[[Engine], bool]:
    asked: list[None] = []

    def until(_: Engine) -> bool:
        asked.append(None)
        return len(asked) > 1

    return until


@pytest.mark.parametrize(
    ("home", "method", "about"),
    [
        (Files, "create", "ranges/"),
        (LocalJobs, "run", ""),
        (Files, "replace", "/COMPLETE"),
        (Fence, "check", ""),
        (CheckpointStore, "prune", ""),
        (Files, "remove", "cp-"),
        (Files, "remove", "ranges/"),
    ],
    ids=["block", "job", "manifest", "fence", "prune", "checkpoint", "trim"],
)
def test_a_driver_that_was_frozen_in_a_turn_finds_its_successor(
    two: Two, monkeypatch: pytest.MonkeyPatch, home: type, method: str, about: str
) -> None:
    real = getattr(home, method)
    frozen: list[str] = []

    def freezes(self: Any, *given: Any, **named: Any) -> Any:
        if not frozen and (not about or about in str(given[0])):
            frozen.append(method)
            two.second()
        return real(self, *given, **named)

    monkeypatch.setattr(home, method, freezes)
    with pytest.raises(SupersededError):
        two.tick(two.first, two.nodes, lambda e: False)
    assert frozen
    two.goes_on()
    third = two.later = two.world.driver()
    third.release.ahead = 1
    place = {p: "cd"[i] for p, i in PLACE.items()}
    third.want(EngineSpec(3, 3, third.punctuations.newest, place, punctuate=True))
    two.goes_on()


def test_a_manifest_that_comes_late_does_not_count(tmp_path: Path) -> None:
    """The new driver has listed the checkpoints, the old one writes another: neither the new one nor a third believes it."""
    epochs = iter((1, 2, 3, 4))

    def driver() -> tuple[CheckpointStore, int]:
        store = CheckpointStore(str(tmp_path))
        return store, store.begin(claim_epoch(str(tmp_path), lambda least: max(least, next(epochs))))

    def complete(store: CheckpointStore, position: int) -> None:
        store.complete(Manifest.of_round(position, {"p": store.write_state(position, "p", "h", TABLES)}, {}))

    old, newest = driver()
    assert newest == 0
    complete(old, 10)
    new, newest = driver()
    assert newest == 10
    with pytest.raises(SupersededError):
        complete(old, 20)
    assert new.positions() == [10]
    complete(new, 15)
    third, newest = driver()
    assert (newest, third.positions()) == (15, [10, 15])
    complete(third, 20)
    with pytest.raises(SupersededError):
        complete(old, 20)
    fourth, newest = driver()
    assert newest == 20
    assert fourth.manifest(20).files["p"] == third.manifest(20).files["p"]
    with pytest.raises(SupersededError):
        old.prune(1)
    assert fourth.positions() == [10, 15, 20]


def test_what_was_not_confirmed_is_gone_when_the_stream_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(str(tmp_path))
    store.begin(claim_epoch(str(tmp_path), lambda least: least))
    check = Fence.check

    def away(self: Fence) -> None:
        raise StoreError("cannot list epochs")

    monkeypatch.setattr(Fence, "check", away)
    with pytest.raises(StoreError):
        store.complete(Manifest.of_round(10, {}, {}))
    assert store.positions() == [10]
    monkeypatch.setattr(Fence, "check", check)
    store.withdraw(after=10)
    assert store.positions() == [10]
    store.withdraw(after=5)
    assert store.positions() == []


@pytest.mark.parametrize("counter", [0, 57])
def test_epochs_go_on_where_the_counter_of_zookeeper_begins_again(tmp_path: Path, counter: int) -> None:
    """Another ZooKeeper, a topology deleted and created, a second site: the stream's name lives on, and so do its epochs."""
    first = claim_epoch(str(tmp_path), lambda least: max(least, 7)).epoch
    asked = []

    def begins_again(least: int) -> int:
        asked.append(least)
        return max(least, counter)

    assert (first, claim_epoch(str(tmp_path), begins_again).epoch) == (7, max(8, counter))
    assert asked == [8]


def test_two_that_claim_at_once_get_two_epochs(tmp_path: Path) -> None:
    here = str(tmp_path)

    def another_is_quicker(least: int) -> int:
        if least == 1:
            claim_epoch(here, lambda other: other)
        return least

    assert claim_epoch(here, another_is_quicker).epoch == 2
    assert claims(Files(here)) == [1, 2]
    for _ in range(30):
        CheckpointStore(here).begin(claim_epoch(here, lambda least: least))
    assert len(claims(Files(here))) <= 22, "old claims are removed"
