"""How much memory the states of one node take, that it is no more than they may, and that a full disk costs no row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.node import state_memory
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.runtime import OperatorRuntime, SourceRuntime
from reprise.spark_jobs.node.state_memory import PAUSE, StateMemory
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.spill import NOTHING, SpillFullError, SpillStore
from reprise.spark_jobs.topology import make_source
from reprise.spark_jobs.topology.resource import CheckpointPolicy
from tests.unit.spark_jobs.node.test_runtime import PARTITIONS, RESOURCE, Keeping


@dataclass
class Piece:
    """A part of a state that is in memory until it is put out."""

    size: int
    refuses: bool = False
    asked: list[int] = field(default_factory=list)

    def spill(self, store: SpillStore, least: int) -> int:
        self.asked.append(least)
        if least == NOTHING:
            return self.size
        if self.refuses:
            raise SpillFullError("the disk is full")
        self.size = 0
        return 0


class Paged(Keeping, PagedOperator):
    def freeze_pages(self, state: Any) -> Any:
        raise AssertionError("nothing is stored here")

    def spillable(self, state: Any) -> Sequence[Piece]:
        return list(state)


@dataclass
class Clock:
    now: float = 100.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def policy(memory: int, disk: int = 1 << 20) -> CheckpointPolicy:
    return CheckpointPolicy(None, 1, None, 1, state_memory_bytes=memory, state_disk_bytes=disk)


def partition(tmp_path: Path, *pieces: Piece, paged: bool = True) -> OperatorRuntime:
    budget = Budget(1 << 20, 1 << 20, tmp_path)
    made = OperatorRuntime(PARTITIONS["mid.0"], Paged(), list(pieces), 0, budget, None)
    made.paged = paged
    return made


def test_without_a_limit_nothing_is_counted(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path / "spill", policy(0), Clock())
    piece = Piece(1 << 30)
    memory.applied("a", {"a": partition(tmp_path, piece)})
    assert (memory.store, memory.memory, memory.disk, memory.trouble(), piece.asked) == (None, 0, 0, [], [])
    assert not (tmp_path / "spill").exists()


def test_below_the_limit_everything_stays_where_it_is(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path, policy(100), Clock())
    pieces = Piece(40), Piece(60)
    runtimes = {"a": partition(tmp_path, pieces[0]), "b": partition(tmp_path, pieces[1])}
    for name in runtimes:
        memory.applied(name, runtimes)
    assert memory.memory == 100
    assert {least for piece in pieces for least in piece.asked} == {NOTHING}


def test_above_it_states_of_all_partitions_go_out(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path, policy(100), Clock())
    pieces = Piece(40), Piece(61)
    runtimes = {"a": partition(tmp_path, pieces[0]), "b": partition(tmp_path, pieces[1])}
    for name in runtimes:
        memory.applied(name, runtimes)
    assert [piece.size for piece in pieces] == [0, 0]
    assert memory.memory == 0
    assert memory.trouble() == []


def test_a_full_disk_costs_memory_and_is_said_once(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path, policy(100), Clock())
    stuck = Piece(150, refuses=True)
    runtimes = {"a": partition(tmp_path, stuck)}
    memory.applied("a", runtimes)
    assert (stuck.size, memory.memory) == (150, 150), "it stays where it is"
    assert memory.trouble() == ["states stay in memory beyond checkpoint.stateMemory: the disk is full"]
    memory.applied("a", runtimes)
    assert memory.trouble() == [], "it was said"
    stuck.refuses = False
    memory.applied("a", runtimes)
    assert memory.trouble() == []
    stuck.size, stuck.refuses = 150, True
    memory.applied("a", runtimes)
    assert memory.trouble() != [], "it is another time"


class Stays(Piece):
    """A part of a state that can be put into no file."""

    def spill(self, store: SpillStore, least: int) -> int:
        return self.size


def test_that_what_cannot_be_on_the_disk_is_too_much_is_said_once_however_it_grows(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path, policy(100), Clock())
    keys = Stays(150)
    runtimes = {"a": partition(tmp_path, keys)}
    said = []
    for size in (150, 160, 170):
        keys.size = size
        memory.applied("a", runtimes)
        said += memory.trouble()
    assert len(said) == 1
    assert said[0].startswith("states stay in memory beyond checkpoint.stateMemory: what finds their keys")


def test_states_that_are_not_in_pages_are_not_counted(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path, policy(100), Clock())
    budget = Budget(1 << 20, 1 << 20, tmp_path)
    source = SourceRuntime(PARTITIONS["in.0"], make_source(RESOURCE.sources[0]), 0, budget)
    whole = Piece(500)
    runtimes = {"in.0": source, "a": partition(tmp_path, whole, paged=False)}
    for name in runtimes:
        memory.applied(name, runtimes)
    assert (memory.memory, whole.asked) == (0, [])


def test_a_partition_that_has_left_takes_no_memory(tmp_path: Path) -> None:
    memory = StateMemory(tmp_path, policy(100), Clock())
    runtimes = {"a": partition(tmp_path, Piece(60)), "b": partition(tmp_path, Piece(30))}
    memory.applied("a", runtimes)
    memory.applied("b", runtimes)
    assert memory.memory == 90
    del runtimes["a"]
    memory.applied("b", runtimes)
    assert memory.memory == 30


def test_looking_takes_a_tenth_of_the_time_at_most(tmp_path: Path) -> None:
    clock = Clock()
    memory = StateMemory(tmp_path, policy(10), clock)
    stuck = Piece(50, refuses=True)
    runtimes = {"a": partition(tmp_path, stuck)}
    clock.step = 1.0
    memory.applied("a", runtimes)  # one second passes while it looks
    tried = len([least for least in stuck.asked if least != NOTHING])
    clock.step = 0.0
    clock.now += PAUSE - 1.0
    memory.applied("a", runtimes)
    assert len([least for least in stuck.asked if least != NOTHING]) == tried, "it has just looked"
    clock.now += 1.0
    memory.applied("a", runtimes)
    assert len([least for least in stuck.asked if least != NOTHING]) > tried


def test_as_many_files_may_be_open_as_the_system_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[int, int]] = []
    monkeypatch.setattr(state_memory.resource, "getrlimit", lambda _: (10, 99))
    monkeypatch.setattr(state_memory.resource, "setrlimit", lambda _, limits: said.append(limits))
    StateMemory(tmp_path, policy(10), Clock())
    assert said == [(99, 99)]

    def refused(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(state_memory.resource, "setrlimit", refused)
    assert StateMemory(tmp_path, policy(10), Clock()).store is not None, "then with fewer"
