"""Sessions with the modelled ZooKeeper when processes stop, connections break and servers are away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reprise.controller.simulated_world.core import Process, World
from reprise.controller.simulated_world.sessions import Ensemble, WorldSession
from reprise.controller.zookeeper.errors import SessionError
from reprise.controller.zookeeper.session import SessionState


class Scene:
    """A process with a session of 3 s, which has an ephemeral znode."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.ensemble = Ensemble(self.world)
        self.process: Process = self.world.process("p")
        self.zk: WorldSession = self.ensemble.session(self.process, 3.0)
        self.heard: list[str] = []
        self.zk.add_listener(self.heard.append)
        self.does(self._begin)
        self.world.run(2.0)
        assert self.there

    def _begin(self) -> None:
        self.zk.start(10)
        self.zk.create("/e", ephemeral=True)

    def does(self, what: Callable[[], object]) -> None:
        self.world.begin(self.process, what, "does")

    @property
    def there(self) -> bool:
        return "/e" in self.ensemble.tree.znodes

    def stop(self, seconds: float) -> None:
        self.world.stop(self.process)
        self.ensemble.look()
        self.world.run(self.world.now + seconds)
        self.world.go_on(self.process)
        self.ensemble.look()


@pytest.mark.parametrize("seed", range(5))
def test_a_short_stop_is_not_noticed_and_a_long_one_costs_the_session(seed: int) -> None:
    scene = Scene(seed)
    number = scene.zk.id
    scene.stop(1.5)
    scene.world.run(20.0)
    assert (scene.heard, scene.there, scene.zk.id) == (["CONNECTED"], True, number)
    scene.stop(4.0)
    assert not scene.there, "its session has ended while it was stopped"
    assert scene.heard == ["CONNECTED"], "it does not know"
    scene.world.run(40.0)
    assert scene.heard == ["CONNECTED", "SUSPENDED", "LOST", "CONNECTED"]
    assert scene.zk.state is SessionState.CONNECTED and scene.zk.id != number
    scene.world.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_was_away_gives_each_session_its_timeout_anew(seed: int) -> None:
    scene = Scene(seed)
    scene.ensemble.leave()
    scene.world.run(30.0)
    assert scene.there and scene.heard == ["CONNECTED", "SUSPENDED"]
    scene.ensemble.come_back()
    scene.world.run(60.0)
    assert scene.there and scene.heard == ["CONNECTED", "SUSPENDED", "CONNECTED"]
    scene.world.close()


def test_who_is_cut_off_loses_the_session_and_hears_of_it_when_it_is_back() -> None:
    scene = Scene()
    scene.ensemble.isolate(scene.process)
    scene.world.run(10.0)
    assert not scene.there and scene.heard == ["CONNECTED", "SUSPENDED"]
    scene.ensemble.heal(scene.process)
    scene.world.run(20.0)
    assert scene.heard[2:] == ["LOST", "CONNECTED"]
    scene.world.close()


def test_what_was_under_way_when_the_connection_broke_may_have_been_done_or_not() -> None:
    done: set[tuple[str, bool]] = set()
    for seed in range(30):
        scene = Scene(seed)
        said: list[str] = []

        def write(zk: WorldSession = scene.zk, said: list[str] = said) -> None:
            try:
                zk.create("/w")
                said.append("written")
            except SessionError:
                said.append("unknown")

        scene.does(write)
        scene.world.call(0.003, scene.zk.client.break_connection)
        scene.world.run(10.0)
        done.add((said[0], "/w" in scene.ensemble.tree.znodes))
        assert scene.there, "its session goes on with the next connection"
        scene.world.close()
    assert done == {("written", True), ("unknown", True), ("unknown", False)}


def test_a_process_that_was_killed_is_missed_after_its_timeout_and_no_later() -> None:
    scene = Scene()
    scene.world.kill(scene.process)
    scene.world.run(scene.world.now + 1.9)
    assert scene.there
    scene.world.run(scene.world.now + 1.2)
    assert not scene.there
    scene.world.close()


def test_who_is_connected_to_a_server_that_is_behind_reads_what_was_true_and_its_own_writes() -> None:
    scene, read, saw = Scene(), list[bytes](), list[float]()
    scene.ensemble.tree.put("/r", b"old")
    scene.zk.client.fall_behind(3.0)
    scene.world.run(4.0)

    def look(_: object = None) -> None:
        saw.append(scene.world.now)
        read.append(scene.zk.client.get("/r", look)[0])

    scene.does(look)
    scene.world.run(5.0)
    scene.ensemble.tree.put("/r", b"new")
    scene.does(look)
    scene.world.run(7.9)
    assert read == [b"old", b"old"], "and it has heard of no change"
    scene.world.run(8.2)
    assert read == [b"old", b"old", b"new"]
    assert 8.0 <= saw[-1] < 8.1
    scene.ensemble.tree.put("/r", b"newer")
    scene.does(lambda: scene.zk.create("/w"))
    scene.world.run(8.4)
    assert read[-1] == b"newer", "as new as its own write"
    scene.ensemble.tree.put("/r", b"last")
    scene.zk.client.be_up_to_date()
    scene.world.run(8.6)
    assert read[-1] == b"last"
    scene.world.close()


def test_a_change_does_not_come_to_who_is_cut_off_before_it_is_back() -> None:
    scene, heard = Scene(), list[float]()

    def watch() -> None:
        scene.zk.client.exists("/r", lambda _: heard.append(scene.world.now))

    scene.does(watch)
    scene.world.run(3.0)
    scene.ensemble.isolate(scene.process)
    scene.ensemble.tree.put("/r", b"new")
    scene.world.run(3.005)
    assert not heard
    scene.world.run(20.0)
    assert len(heard) == 1, "once, when it sees that its connection is gone"
    assert scene.heard[:2] == ["CONNECTED", "SUSPENDED"]
    scene.world.close()
