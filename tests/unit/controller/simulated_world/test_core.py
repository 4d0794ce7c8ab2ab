"""The loop of the simulated world: one thread at a time, in virtual time, the same way for the same seed."""

from __future__ import annotations

import queue

import pytest

from reprise.controller.simulated_world.core import World, WorldError


@pytest.fixture
def world() -> World:
    return World(1)


def test_time_passes_while_everybody_waits(world: World) -> None:
    said: list[tuple[str, float]] = []
    one, other = world.process("one"), world.process("other")

    def talk(name: str, pause: float) -> None:
        for _ in range(3):
            world.sleep(pause)
            said.append((name, world.now))

    world.begin(one, lambda: talk("one", 2.0), "talk")
    world.begin(other, lambda: talk("other", 3.0), "talk")
    world.run(100.0)
    world.close()
    assert said == [("one", 2.0), ("other", 3.0), ("one", 4.0), ("other", 6.0), ("one", 6.0), ("other", 9.0)]


def test_events_queues_and_locks_are_waited_for_in_virtual_time(world: World) -> None:
    process = world.process("p")
    platform = world.platform(process)
    event, items, lock, said = platform.event(), platform.queue(), platform.lock(), list[str]()

    def reads() -> None:
        assert not event.wait(1.0) and world.now == 1.0
        assert event.wait(10.0) and world.now == 3.0
        said.append(items.get(timeout=5.0))
        with pytest.raises(queue.Empty):
            items.get(timeout=0.5)
        with lock:
            said.append(f"locked at {world.now:g}")

    def writes() -> None:
        world.sleep(3.0)
        event.set()
        with lock, lock:
            world.sleep(1.0)
            items.put("there")
            world.sleep(9.0)

    platform.begin(reads, "reads")
    platform.begin(writes, "writes")
    world.run(100.0)
    world.close()
    assert not world.problems
    assert said == ["there", "locked at 13"]


def test_a_condition_is_waited_for_in_virtual_time_and_held_by_one_at_a_time(world: World) -> None:
    platform = world.platform(world.process("p"))
    state, said, waiting = platform.condition(), list[tuple[str, bool, float]](), list[int]()

    def waits(name: str, timeout: float | None) -> None:
        with state:
            found = state.wait_for(lambda: len(waiting) >= 2, timeout)
            said.append((name, found, world.now))
            world.sleep(1.0)  # nobody else goes on meanwhile

    def changes() -> None:
        for pause in (3.0, 4.0):
            world.sleep(pause)
            with state:
                waiting.append(1)
                state.notify_all()

    for name, timeout in (("one", None), ("other", 20.0), ("hasty", 2.0)):
        platform.begin(lambda name=name, timeout=timeout: waits(name, timeout), name)  # type: ignore[misc]
    platform.begin(changes, "changes")
    world.run(100.0)
    world.close()
    assert not world.problems
    assert said[0] == ("hasty", False, 2.0)
    assert sorted((name, found) for name, found, _ in said[1:]) == [("one", True), ("other", True)]
    assert [at for _, _, at in said[1:]] == [7.0, 8.0]


def test_who_is_stopped_goes_on_where_it_was_and_who_is_dead_does_not(world: World) -> None:
    said: list[str] = []
    stopped, dead = world.process("stopped"), world.process("dead")

    def talk(name: str) -> None:
        try:
            for _ in range(4):
                world.sleep(1.0)
                said.append(f"{name} {world.now:g}")
        finally:
            said.append(f"{name} ends")

    for process in (stopped, dead):
        world.begin(process, lambda process=process: talk(process.name), "talk")
    world.call(1.5, lambda: world.stop(stopped))
    world.call(1.5, lambda: world.kill(dead))
    world.call(7.0, lambda: world.go_on(stopped))
    world.run(20.0)
    assert said == ["stopped 1", "dead 1", "stopped 7", "stopped 8", "stopped 9", "stopped ends"]
    world.close()


def test_what_waits_outside_of_the_world_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("reprise.controller.simulated_world.core.HANDOVER_S", 0.05)
    really = threading.Event()
    world.begin(world.process("p"), really.wait, "waits")
    with pytest.raises(WorldError, match="p/waits waits outside of the world"):
        world.run(1.0)
    really.set()
