"""What is kept for partitions with upstream backup that cannot be fed, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.algorithms.positions import Origin
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.topology import load_text
from tests.support.hashtags import SKIPPED
from tests.unit.spark_jobs.engine.test_upstream_backup import AT, MODE, NODES, fed, has_no_idea, world_of
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")


def kept_for(world: World, target: str) -> int:
    """The most batches that a partition at work keeps for a target."""
    buffers = [r.buffers for host in world.nodes.hosts.values() for r in host.runtimes.values()]
    return max(len(buffer[target].entries) for buffer in buffers if target in buffer)


@pytest.mark.parametrize("changes", [{}, MODE], ids=["checkpoint", "upstream-backup"])
def test_nothing_is_kept_for_one_whose_code_raised_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Its readers wait, so its cause would stay where it is, and its neighbours would fill their disks."""
    initial, step = RunningAggregate.initial, RunningAggregate.step
    monkeypatch.setattr(RunningAggregate, "raises", False, raising=False)

    def begin(self: Any, place: Any) -> Any:
        self.raises = place.index == 0
        return initial(self, place)

    def raises(self: Any, state: Any, inbox: Any) -> Any:
        if inbox.batch > 12 and self.raises:
            raise RuntimeError("poison")
        return step(self, state, inbox)

    monkeypatch.setattr(RunningAggregate, "initial", begin)
    monkeypatch.setattr(RunningAggregate, "step", raises)
    # without a sink, that alone would say from where it is wanted
    world = world_of(tmp_path, changes | {"recovery.bufferMemory": "4Ki", "operators[window].output": None})
    world.run(lambda e: e.positions["parse.0"] >= 61)
    engine = world.engine
    assert engine.failed["window.0"].is_poison
    assert kept_for(world, "window.0") < 20
    assert "window.0" not in engine.upstream.causes
    assert ("window.0" in engine.progress.unbacked) is bool(changes)
    if not changes:
        return
    monkeypatch.setattr(RunningAggregate, "step", step)
    # it is restored, and lost before any host has said what it keeps for it
    newest = engine.punctuations.newest
    world.want(1, newest, AT, retain=True, lines={"window.0": Origin(2, newest)})
    assert fed(world) == set()
    assert "window.0" not in engine.progress.backed

    def fails(*_: int) -> None:
        raise ChainError("power cut")

    world.nodes.interrupt = fails
    world.nodes.lose("d")
    tick(world, 2)
    assert engine.failed["window.0"].kind is FailureKind.NODE_LOST
    assert "window.0" in engine.upstream.causes
    world.want(1, newest, {**AT, "window.0": "a"}, retain=True, lines={"window.0": Origin(2, newest)})
    assert fed(world) == set()


def test_one_whose_code_cannot_say_what_it_needs_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_no_idea(monkeypatch, after=20)
    world = world_of(tmp_path)
    world.run(past(25))
    progress = world.engine.progress
    assert {p for p in progress.unbacked if p.startswith("window")} == {"window.0", "window.1", "window.2"}
    assert not progress.backed & progress.unbacked


def test_code_that_says_less_of_a_later_batch_is_not_believed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it needs after all may have been dropped: it comes from the checkpoint from then on."""
    said = RunningAggregate.oldest_needed
    monkeypatch.setattr(
        RunningAggregate, "oldest_needed", lambda self, batch: said(self, batch) if batch < 20 else 3
    )
    world = world_of(tmp_path)
    world.run(past(15))
    assert "window.0" in world.engine.progress.backed
    world.run(past(25))
    progress = world.engine.progress
    assert {p for p in progress.unbacked if p.startswith("window")} == {"window.0", "window.1", "window.2"}
    assert any("and of batch 2" in problem for problem in world.engine.problems)
    world.nodes.lose("d")
    tick(world, 2)
    world.want(1, world.engine.punctuations.newest, {**AT, "window.0": "a"}, retain=True)
    assert fed(world) == set()


def test_all_count_as_missing_where_no_code_can_say_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    has_no_idea(monkeypatch)
    world.driver()
    world.engine.begin(0)
    world.want(1, 0, AT)
    world.run(past(5))
    assert any("no upstream backup" in problem for problem in world.engine.problems)
    progress = world.engine.progress
    assert progress.backed == set()
    assert progress.unbacked == {p for p in world.topology.partitions if not p.startswith("tweets")}


def test_it_is_lost_again_while_it_is_fed_after_its_host_began_anew(tmp_path: Path) -> None:
    """What its sink had shown counts, also where another generation told the new try from the old one."""
    world = world_of(tmp_path)
    world.run(past(25))
    world.nodes.start("d")
    tick(world, 2)
    engine, newest = world.engine, world.engine.punctuations.newest
    lines = {"window.0": Origin(2, newest)}
    world.want(1, newest, AT, retain=True, lines=lines)
    assert fed(world) == {"window.0"}
    install = engine.upstream.install("window.0")
    world.nodes.lose("d")
    tick(world, 2)
    world.nodes.start("e")
    world.want(1, newest, {**AT, "window.0": "e"}, retain=True, lines=lines)
    assert fed(world) == {"window.0"}
    assert engine.upstream.install("window.0") == install


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # all are at one batch
@pytest.mark.slow
@pytest.mark.wide
def test_an_order_says_at_most_20_bytes_of_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is why not many may have the mode: without it an order says nothing of each in normal running."""
    said, orders = list[int](), Dispatch.orders

    def measured(self: Dispatch, nodes: Sequence[str], commands: Sequence[Command]) -> list[bytes]:
        found = orders(self, nodes, commands)
        said.append(max(map(len, found)))
        return found

    monkeypatch.setattr(Dispatch, "orders", measured)

    def largest(parallelism: int, changes: dict[str, Any]) -> int:
        """The largest order of a job in normal running, bytes."""
        wide = {"operators[window].parallelism": parallelism}
        name = f"{parallelism}-{len(changes)}"
        world = World(load_text(SKIPPED, changes=wide | changes), tmp_path / name, "w")
        world.engine.begin(0)
        world.nodes.start(*NODES)
        world.want(1, 0, world.spread(*NODES))
        world.run(past(8))
        tick(world)
        return said[-1]

    backed = {"operators[window].availability": "upstream-backup"}
    assert largest(120, {}) < largest(20, {}) + 20
    assert 0 < largest(120, backed) - largest(20, backed) <= 100 * 20
