"""What goes wrong in a run is told once a kind, however often and of whatever partition it is reported."""

from __future__ import annotations

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.cli.troubles import Troubles
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Progress


def seen(*problems: str, poisoned: dict[str, str] | None = None) -> Observation:
    failed = {p: Failure(FailureKind.POISON, reason) for p, reason in (poisoned or {}).items()}
    return Observation(1.0, True, progress=Progress("1", failed=failed), problems=problems)


def test_without_a_driver_there_is_no_trouble() -> None:
    assert Troubles().new(Observation(1.0, True)) == []


def test_the_same_with_other_partitions_and_numbers_is_told_once() -> None:
    troubles = Troubles()
    first = "node n1: batch 17 of count.3 waits for 250 ms"
    assert troubles.new(seen(first)) == [f"problem: {first}"]
    assert troubles.new(seen(first, "node n1: batch 18 of count.0 waits for 9 ms")) == []
    assert troubles.new(seen("node n1: another trouble")) == ["problem: node n1: another trouble"]


def test_a_full_disk_is_told_once_whoever_complains() -> None:
    troubles = Troubles()
    said = troubles.new(seen("a.0: No space left on device", "b.7: Disk quota exceeded"))
    assert said == [
        "problem: the disk is full; what waits goes on when there is room: a.0: No space left on device"
    ]
    assert troubles.new(seen("write: No space left on device: sink")) == []


def test_each_partition_that_is_set_aside_is_told_once() -> None:
    troubles = Troubles()
    first = troubles.new(seen(poisoned={"a.0": "batch 3: it raised"}))
    assert len(first) == 1 and first[0].startswith("set aside: ") and "a.0" in first[0]
    both = troubles.new(seen(poisoned={"a.0": "batch 3: it raised", "a.1": "batch 3: it raised"}))
    assert len(both) == 1 and "a.1" in both[0], "another partition is another trouble"
