"""What holds in the order of arrival for each kind of stream: with checkpoints in rounds, with own clocks, and in cycles."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.node import buffers
from reprise.spark_jobs.node.state_tables import FEEDBACK
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.seeds import seeds
from tests.support.straggling import Straggler
from tests.unit.spark_jobs.engine.test_arrival import (
    ARRIVAL,
    Rows,
    another_driver,
    definition,
    early,
    has_newer,
    loses_at_random,
    nothing_held_back,  # noqa: F401
    shown,
    started,
)
from tests.unit.spark_jobs.engine.test_arrival_cycles import GOES_ROUND, comes_to_rest, reachability, stored
from tests.unit.spark_jobs.engine.test_arrival_own_clocks import OWN_CLOCKS
from tools.testbed.local_engine import tick

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("exchange")]
WIDE = pytest.mark.wide


@dataclass(frozen=True)
class Kind:
    made: Callable[[], StreamTopology]
    batches: int = 61
    """Before this one the order changes for the last time."""
    cyclic: bool = False
    ahead: int = 10
    """Batches that are under way at once while a stream drains, as so much more is applied before it has drained."""


KINDS = {
    "rounds": Kind(lambda: load_text(ARRIVAL)),
    "own-clocks": Kind(lambda: override(load_text(ARRIVAL), OWN_CLOCKS)),
    "laps": Kind(lambda: load_text(GOES_ROUND), 44, True, 3),
    "reachability": Kind(reachability, 44, True, 3),
}
SEVERAL = {name: kind for name, kind in KINDS.items() if name != "own-clocks"}
of_several = pytest.mark.parametrize(
    "kind", [KINDS["rounds"], KINDS["laps"], pytest.param(KINDS["reachability"], marks=WIDE)], ids=SEVERAL
)
_DEFINED: dict[Kind, Rows] = {}


@pytest.fixture
def resource(kind: Kind) -> StreamTopology:
    return kind.made()


@pytest.fixture
def expected(kind: Kind, resource: StreamTopology) -> Rows:
    """The rows of its definition; of a cycle in which nothing goes round any more at the end."""
    if kind not in _DEFINED:
        _DEFINED[kind] = (comes_to_rest if kind.cyclic else definition)(resource)
    return _DEFINED[kind]


@pytest.mark.parametrize(
    "kind", [KINDS["laps"], pytest.param(KINDS["reachability"], marks=WIDE)], ids=["laps", "reachability"]
)
def test_rows_are_those_of_the_definition(resource: StreamTopology, expected: Rows, tmp_path: Path) -> None:
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.done)
    assert shown(world) == expected
    assert early(world) > 0


@WIDE
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_jobs_that_fail_repeat_nothing(
    resource: StreamTopology, expected: Rows, tmp_path: Path, stage: int
) -> None:
    """Messages are lost with their job and sent again: by the number of the batch that the target is known to be at, of
    which it may have applied more."""
    world = started(resource, tmp_path, "a", "b", "c", "d")

    def cut(job: int, at: int, slot: int) -> None:
        if job % 3 == 0 and (at, slot) == (stage, job // 3 % 4):
            raise ChainError("cut")

    world.nodes.interrupt = cut
    world.run(lambda e: e.done)
    assert world.engine.figures.failed_jobs > 3
    assert shown(world) == expected


@WIDE
@pytest.mark.parametrize("memory", ["16Mi", "4Ki", "1"], ids=["room", "crowded", "none"])
@pytest.mark.parametrize("kind", SEVERAL.values(), ids=SEVERAL)
def test_a_straggler_behind_more_than_may_be_under_way(
    resource: StreamTopology,
    expected: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    memory: str,
) -> None:
    """Early rows, and what goes round, are kept and not confirmed until their batch is complete; the marker must come
    through all the same."""
    monkeypatch.setattr(buffers, "IN_FLIGHT", 500)
    Straggler.upto = 3
    changed = {"recovery.bufferMemory": memory, "recovery.bufferDisk": memory}
    world = started(override(resource, changed), tmp_path, "a", "b", "c", "d")
    for upto in range(4, kind.batches + 5, 4):
        tick(world, 4)
        Straggler.upto = upto
    world.run(lambda e: e.done)
    assert shown(world) == expected


@of_several
@seeds([0], range(1, 3), 37)
def test_random_losses(resource: StreamTopology, expected: Rows, tmp_path: Path, seed: int) -> None:
    world = started(resource, tmp_path, "n1", "n2", "n3", "n4")
    loses_at_random(world, random.Random(seed))
    assert shown(world) == expected


@WIDE
@of_several
def test_the_order_changes_at_a_checkpoint(
    resource: StreamTopology, expected: Rows, tmp_path: Path, kind: Kind
) -> None:
    """At a checkpoint all inputs are even, so its states are those of the other order; also where rows go round."""
    aligned = override(resource, {"batch.order": "aligned"})
    world = started(aligned, tmp_path, "a", "b", "c")
    under_way = list[bool]()
    for generation, after in enumerate((resource, aligned, resource), start=2):
        upto = world.engine.punctuations.newest + resource.checkpoint.every_batches
        world.engine.release.ahead = kind.ahead
        world.run(has_newer(upto - 1))
        world.engine.drain.asked = True
        world.run(lambda e: e.drained is not None)
        k = world.engine.drained
        assert k is not None and k < kind.batches
        under_way.append(any(name.startswith(FEEDBACK) for name, _ in stored(world, k)))
        world.resource = after
        another_driver(world)
        world.want(generation, k, world.spread("a", "b", "c"))
    world.run(lambda e: e.done)
    assert any(under_way) is kind.cyclic, "rows go round at a change where there is a cycle, and nowhere else"
    assert early(world) > 0
    assert shown(world) == expected
