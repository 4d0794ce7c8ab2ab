"""What partitions begin with is got beside the host's thread: in order, bounded, and not for those who want it no more."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.node import restoring
from reprise.spark_jobs.node.command import GRANT_S
from reprise.spark_jobs.node.restoring import Prepared, Restorer
from tools.testbed.waiting import until


class Opened(Source):
    """A source that says whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return None

    def read(self, place: Place, batch: int, span: Range) -> None:
        return None

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return None

    def close(self) -> None:
        self.closed.set()


class Gate:
    """A preparation that ends when it is let go; `begun` are the names of those that have begun, in order."""

    begun: list[str]

    def __init__(self) -> None:
        self.begun, self.open, self.doors = [], threading.Event(), dict[str, threading.Event]()

    def prepares(self, name: str, error: BaseException | None = None) -> Callable[[], Prepared]:
        door = self.doors[name] = threading.Event()

        def prepare() -> Prepared:
            self.begun.append(name)
            assert door.wait(300)
            if error is not None:
                raise error
            return Prepared(source=Opened())

        return prepare


@pytest.fixture
def gate() -> Gate:
    return Gate()


def comes(restorer: Restorer, gate: Gate, name: str, installation: str = "1.1.1", size: int = 1) -> Prepared:
    return until(lambda: restorer.ask(name, installation, size, gate.prepares(name)), f"{name} prepared")


def raised(restorer: Restorer, prepare: Callable[[], Prepared], kind: type[Exception], text: str) -> None:
    """Waits until who asks for `a.0` is told what its preparation has raised."""

    def refused() -> bool:
        try:
            return restorer.ask("a.0", "1.1.1", 1, prepare) is not None
        except kind as error:
            return str(error) == text

    until(refused)


def opened(prepared: Prepared | None) -> Opened:
    assert prepared is not None
    assert isinstance(prepared.source, Opened)
    return prepared.source


def test_nobody_waits_and_what_has_come_is_handed_out_once(gate: Gate) -> None:
    restorer = Restorer()
    assert restorer.ask("a.0", "1.1.1", 1, gate.prepares("a.0")) is None
    until(lambda: gate.begun == ["a.0"])
    assert restorer.ask("a.0", "1.1.1", 1, gate.prepares("never called")) is None
    gate.doors["a.0"].set()
    assert not opened(comes(restorer, gate, "a.0")).closed.is_set()
    assert gate.begun == ["a.0"]
    assert restorer.ask("a.0", "1.1.1", 1, gate.prepares("again")) is None
    until(lambda: gate.begun == ["a.0", "again"])
    gate.doors["again"].set()


def test_what_it_raises_is_raised_once_and_then_it_is_tried_anew(gate: Gate) -> None:
    restorer = Restorer()
    prepare = gate.prepares("a.0", StoreError("away"))
    gate.doors["a.0"].set()
    raised(restorer, prepare, StoreError, "away")
    assert restorer.ask("a.0", "1.1.1", 1, prepare) is None
    until(lambda: gate.begun == ["a.0", "a.0"])


def test_code_that_would_end_the_process_fails_what_it_prepares_alone(gate: Gate) -> None:
    """Its thread is given back, and whoever asked is told; else the partition would be prepared for ever."""
    restorer = Restorer()
    prepare = gate.prepares("a.0", SystemExit("bye"))
    gate.doors["a.0"].set()
    raised(restorer, prepare, RuntimeError, "SystemExit: bye")
    assert restorer._threads == 0


@pytest.mark.parametrize("how", ["other installation", "forgotten", "closed"])
@pytest.mark.parametrize("when", ["under way", "there"])
def test_what_is_not_wanted_any_more_is_closed_and_handed_to_nobody(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, how: str, when: str
) -> None:
    restorer, old = Restorer(), Opened()
    door, done = threading.Event(), threading.Event()

    def prepare() -> Prepared:
        assert door.wait(300)
        done.set()
        return Prepared(source=old)

    assert restorer.ask("a.0", "1.1.1", 1, prepare) is None
    if when == "there":
        door.set()
        until(lambda: restorer._wanted["a.0"].prepared is not None)
    if how == "other installation":
        assert restorer.ask("a.0", "1.2.9", 1, gate.prepares("a.0")) is None
    elif how == "forgotten":
        restorer.forget("a.0")
    else:
        restorer.close()
    door.set()
    assert old.closed.wait(300)
    if how == "other installation":
        gate.doors["a.0"].set()
        until(lambda: restorer._wanted["a.0"].prepared is not None)
        found = restorer.ask("a.0", "1.2.9", 1, gate.prepares("never"))
        assert opened(found) is not old
    until(lambda: restorer._held == 0)


def test_the_states_on_their_way_are_bounded_and_come_in_order(gate: Gate) -> None:
    """Sizes 6, 5, 4 and 20 with room for 10; nothing small overtakes what has no room, and what is too large goes alone."""
    restorer = Restorer(limit=10)
    sizes = {"a.0": 6, "b.0": 5, "c.0": 4, "d.0": 20}
    prepares = {name: gate.prepares(name) for name in sizes}

    def ask(name: str) -> Prepared | None:
        return restorer.ask(name, "1.1.1", sizes[name], prepares[name])

    for name in sizes:
        assert ask(name) is None
    until(lambda: gate.begun == ["a.0"])
    gate.doors["a.0"].set()
    until(lambda: restorer._wanted["a.0"].prepared is not None)
    assert gate.begun == ["a.0"], "it counts until it is handed out"
    assert ask("a.0") is not None
    until(lambda: gate.begun == ["a.0", "b.0", "c.0"])
    assert restorer._held == 9
    for name in ("b.0", "c.0"):
        gate.doors[name].set()
        until(lambda name=name: ask(name))  # type: ignore[misc]
    until(lambda: gate.begun == ["a.0", "b.0", "c.0", "d.0"])
    assert restorer._held == 20
    gate.doors["d.0"].set()
    until(lambda: ask("d.0"))
    assert restorer._held == 0


def test_a_client_that_never_answers_takes_no_turn_from_those_that_are_wanted(gate: Gate) -> None:
    """All that run at once hang; after a rollback nobody waits for them, and others are read."""
    restorer = Restorer()
    hanging = [f"old.{i}" for i in range(restoring.PARALLEL)]
    for name in hanging:
        restorer.ask(name, "1.1.1", 1, gate.prepares(name))
    until(lambda: len(gate.begun) == restoring.PARALLEL)
    restorer.ask("new.0", "1.1.2", 1, gate.prepares("new.0"))
    assert "new.0" not in gate.begun
    for name in hanging:
        restorer.forget(name)
    until(lambda: "new.0" in gate.begun)
    for door in gate.doors.values():
        door.set()


def test_threads_are_bounded_and_go_when_there_is_nothing_to_do(gate: Gate) -> None:
    restorer = Restorer()
    for i in range(restoring.MOST_THREADS + 3):
        name = f"old.{i}"
        restorer.ask(name, "1.1.1", 1, gate.prepares(name))
        until(lambda i=i: len(gate.begun) == min(i + 1, restoring.MOST_THREADS))  # type: ignore[misc]
        restorer.forget(name)
    assert restorer._threads == restoring.MOST_THREADS
    for door in gate.doors.values():
        door.set()
    until(lambda: restorer._threads == 0)


def test_what_does_not_come_is_told_once(gate: Gate) -> None:
    now = [100.0]
    restorer = Restorer(clock=lambda: now[0])
    restorer.ask("a.0", "1.1.1", 7, gate.prepares("a.0"))
    restorer.ask("b.0", "1.1.2", 7, gate.prepares("b.0"))
    gate.doors["b.0"].set()
    until(lambda: restorer._wanted["b.0"].prepared is not None)
    now[0] += restoring.SLOW_S - 1
    assert restorer.slow() == []
    now[0] += 1
    (told,) = restorer.slow()
    assert told.startswith("a.0: what it begins with (7 bytes of state")
    now[0] += 100
    assert restorer.slow() == []
    gate.doors["a.0"].set()


def test_what_brings_back_most_has_its_turn_first(gate: Gate) -> None:
    """One after the other, with room for one; what has begun goes on, and of those that wait the greatest value is next."""
    restorer = Restorer(limit=1)
    values = {"a.0": 0.0, "b.0": 0.5, "c.0": 2.0, "d.0": 0.5}
    for name, value in values.items():
        assert restorer.ask(name, "1.1.1", 1, gate.prepares(name), value) is None
    for name in ("a.0", "c.0", "b.0", "d.0"):
        until(lambda name=name: gate.begun[-1:] == [name])  # type: ignore[misc]
        gate.doors[name].set()
        until(lambda name=name: restorer.ask(name, "1.1.1", 1, gate.prepares(name), values[name]))  # type: ignore[misc]
    assert gate.begun == ["a.0", "c.0", "b.0", "d.0"]


def test_what_standbys_begin_with_holds_up_nobody(gate: Gate) -> None:
    """One at a time is read, and none before the states of partitions; however many hang, and however large they are."""
    restorer = Restorer(limit=100)
    for name in ("s1", "s2"):
        assert restorer.ask(name, "i", 1000, gate.prepares(name), standby=True) is None
    until(lambda: gate.begun == ["s1"])
    for name in ("p1", "p2", "p3", "p4"):  # as many as are read at the same time
        assert restorer.ask(name, "i", 25, gate.prepares(name)) is None
    until(lambda: sorted(gate.begun) == ["p1", "p2", "p3", "p4", "s1"])
    gate.doors["s1"].set()
    until(lambda: restorer.ask("s1", "i", 1000, gate.prepares("x"), standby=True) is not None)
    assert "s2" not in gate.begun
    for name in ("p1", "p2", "p3", "p4"):
        gate.doors[name].set()
        until(lambda name=name: restorer.ask(name, "i", 25, gate.prepares("x")) is not None)
    until(lambda: gate.begun[-1] == "s2")
    assert restorer.ask("p5", "i", 100, gate.prepares("p5")) is None
    until(lambda: gate.begun[-1] == "p5")


def test_standbys_that_nobody_wants_and_whose_store_hangs_take_no_more_threads(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "MOST_THREADS", 1)
    restorer = Restorer()
    for number in range(3):
        name = f"s{number}"
        assert restorer.ask("count.0", name, 10, gate.prepares(name), standby=True) is None
        restorer.forget("count.0")
    assert restorer.ask("p", "i", 10, gate.prepares("p")) is None
    until(lambda: gate.begun == ["s0", "p"])
    assert restorer.ask("q", "i", 10, gate.prepares("q"), standby=True) is None
    gate.doors["p"].set()
    until(lambda: restorer.ask("p", "i", 10, gate.prepares("x")) is not None)
    gate.doors["s0"].set()
    until(lambda: gate.begun == ["s0", "p", "q"])


def test_a_state_is_read_when_it_is_granted_and_not_by_a_grant_that_is_old(gate: Gate) -> None:
    """What reads no state needs no grant; and a driver that is heard no more has granted nothing."""
    now = [100.0]
    restorer = Restorer(clock=lambda: now[0])
    restorer.allow(["a.0", "c.0"])
    for name, size in (("a.0", 5), ("b.0", 5), ("c.0", 0)):
        restorer.ask(name, "1.1.1", size, gate.prepares(name))
    until(lambda: sorted(gate.begun) == ["b.0", "c.0"])
    restorer.allow(["a.0"])
    now[0] += GRANT_S + 1
    restorer.ask("d.0", "1.1.1", 5, gate.prepares("d.0"))
    gate.doors["b.0"].set()
    comes(restorer, gate, "b.0")
    assert sorted(gate.begun) == ["b.0", "c.0"]
    restorer.allow([])
    until(lambda: sorted(gate.begun) == ["a.0", "b.0", "c.0", "d.0"])
    for door in gate.doors.values():
        door.set()
