"""A store that takes long for a read: what it holds comes late, and nobody else waits for that."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import override
from tests.support.engine_worlds import begun, fault_free
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_scope import in_the_middle, lose, resource_of, to_the_end
from tools.testbed.local_engine import World, tick
from tools.testbed.prepared import let_all_come

SILENCE_S = 300.0
"""How long a read waits for an answer; a job that waits for the read fails the test by that."""


class Store:
    """Reads of state files wait until `answers` is set, or so long as `pause` gives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.read = threading.Event(), list[str]()
        self.pause: Callable[[], float | None] = lambda: None
        self.given_up: list[str] = []
        real = Files.read

        def read(files: Files, relative: str) -> bytes | None:
            if relative.endswith(".state"):
                self.read.append(relative)
                if (pause := self.pause()) is not None:
                    time.sleep(pause)
                elif not self.answers.wait(SILENCE_S):
                    self.given_up.append(relative)
            return real(files, relative)

        monkeypatch.setattr(Files, "read", read)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """No job waits for a read: the next thing that the test does would come only when that is given up."""
    store = Store(monkeypatch)
    yield store
    assert store.given_up == []


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(begun(resource_of(DIAMOND), tmp_path_factory.mktemp("fault-free")))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return begun(resource_of(DIAMOND), tmp_path)


def restores(world: World) -> int:
    """Node b is lost, and what it had is to be restored on the two that live, beside what works there; the checkpoint."""
    newest = in_the_middle(world)
    stays = lose(world, "b")
    lost = sorted(world.topology.partitions.keys() - stays.keys())
    assert {"count.0", "top.0"} <= set(lost)
    world.nodes.patient = False
    world.want(1, newest, {**stays, **{p: "ac"[i % 2] for i, p in enumerate(lost)}}, retain=True)
    return newest


def test_a_store_that_does_not_answer_keeps_nobody_waiting_but_those_that_it_holds(
    world: World, store: Store, expected: dict[str, bytes]
) -> None:
    newest, failed = restores(world), world.engine.figures.failed_jobs
    last = 41
    world.run(lambda e: all(e.positions[p] >= last for p in ("count.1", "count.2")))
    assert world.engine.at_work.keys() == world.topology.partitions.keys() - {"count.0", "top.0"}
    assert len(world.output()) > 2 * last - newest
    store.answers.set()
    world.run(lambda e: not e.installing)
    to_the_end(world, newest)
    assert world.engine.figures.failed_jobs == failed
    assert world.output() == expected


def test_everything_goes_back_twice_while_the_store_does_not_answer(
    world: World, store: Store, expected: dict[str, bytes]
) -> None:
    newest = restores(world)
    everything = dict(world.engine.desired.assignment)
    for generation in (2, 3):
        tick(world, 3)
        world.want(generation, newest, everything, retain=True)
    tick(world)
    assert world.engine.installing >= {"count.0", "top.0"}
    store.answers.set()
    world.run(lambda e: not e.installing)
    to_the_end(world, newest)
    assert all(i.startswith("1.3.") for h in world.nodes.hosts.values() for i in h.installed.values())
    assert not world.engine.failed
    assert world.output() == expected


def test_what_was_asked_for_and_moved_away_is_not_installed(
    world: World, store: Store, expected: dict[str, bytes]
) -> None:
    newest = restores(world)
    tick(world)
    (node,) = [n for n in world.nodes.hosts if "count.0" in world.nodes.hosts[n].installed]
    other = "c" if node == "a" else "a"
    world.want(1, newest, {**world.engine.desired.assignment, "count.0": other}, retain=True)
    tick(world)
    store.answers.set()
    world.run(lambda e: not e.installing)
    assert "count.0" not in world.nodes.hosts[node].runtimes
    assert "count.0" in world.nodes.hosts[other].runtimes
    to_the_end(world, newest)
    assert world.output() == expected


def test_a_state_that_comes_after_messages_for_its_partition_is_sent_them_again(
    world: World, store: Store, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before the state was not kept, and its senders count it as sent."""
    dropped = set[str]()
    deliver = Host.deliver

    def delivered(host: Host, message: Message) -> None:
        if message.target in host._attempts:
            dropped.add(message.target)
        deliver(host, message)

    def comes(job: int, stage: int, slot: int) -> None:
        if stage == 2:
            store.answers.set()
            for host in world.nodes.hosts.values():
                let_all_come(host)

    monkeypatch.setattr(Host, "deliver", delivered)
    newest = restores(world)
    world.nodes.interrupt = comes
    tick(world)
    assert dropped
    assert dropped <= {p for host in world.nodes.hosts.values() for p in host.runtimes}
    assert dropped <= world.engine.installing
    tick(world)
    assert not world.engine.installing
    to_the_end(world, newest)
    assert world.output() == expected


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.wide
def test_states_that_come_in_the_middle_of_jobs_change_no_output(
    tmp_path: Path, store: Store, expected: dict[str, bytes], seed: int
) -> None:
    world = begun(override(resource_of(DIAMOND), {"checkpoint.localCopies": "0"}), tmp_path)
    rng = random.Random(seed)
    store.pause = lambda: rng.choice((0.0, 0.002, 0.01, 0.05))
    newest = restores(world)
    world.nodes.interrupt = lambda *_: time.sleep(rng.choice((0.0, 0.0, 0.005)))
    for generation in range(2, 8):
        world.run(lambda e: not e.installing)
        for _ in range(rng.randrange(3)):
            tick(world)
        world.want(generation, newest, world.engine.desired.assignment, retain=True)
    world.run(lambda e: not e.installing)
    world.nodes.interrupt = lambda *_: None
    to_the_end(world, newest)
    assert world.engine.figures.states_here == 0
    assert world.output() == expected


# -- copies on the node ------------------------------------------------------------------------------------------------


def figures(world: World) -> tuple[int, int]:
    """States that were read on their own node, and from the store."""
    return world.engine.figures.states_here, world.engine.figures.states_there


@pytest.mark.wide
def test_who_goes_back_on_its_own_node_reads_nothing_from_the_store(
    world: World, store: Store, expected: dict[str, bytes]
) -> None:
    """The store answers nobody, and is asked for nothing."""
    newest = in_the_middle(world)
    for generation in (2, 3):
        world.want(generation, newest, world.engine.desired.assignment, retain=True)
        world.run(lambda e: min(e.at_work.values(), default=0) > newest and not e.installing)
    assert store.read == []
    here, there = figures(world)
    assert (here, there) == (2 * sum(size > 0 for size in sizes(world, newest)), 0)
    to_the_end(world, newest)
    assert world.output() == expected


def sizes(world: World, position: int) -> list[int]:
    """Of the state files of a checkpoint."""
    return [file.size for file in world.engine.store.manifest(position).files.values()]


@pytest.mark.wide
def test_a_new_driver_has_survivors_go_back_to_their_own_copies(
    world: World, store: Store, expected: dict[str, bytes]
) -> None:
    newest = in_the_middle(world)
    world.driver()
    world.engine.release.ahead = 3
    world.want(1, newest, world.spread("a", "b", "c"))
    world.run(lambda e: e.done)
    assert store.read == []
    assert figures(world)[0] > 0
    assert world.output() == expected


def test_what_was_lost_comes_from_the_store_and_the_rest_from_its_node(
    world: World, store: Store, expected: dict[str, bytes]
) -> None:
    store.answers.set()
    newest = in_the_middle(world)
    stays = lose(world, "b")
    world.nodes.start("d")
    everything = {p: stays.get(p, "d") for p in world.topology.partitions}
    world.want(2, newest, everything, retain=True)
    world.run(lambda e: not e.installing)
    assert {Path(path).name.split(".host")[0] for path in store.read} == {"count.0", "top.0"}
    assert figures(world)[1] == 2
    to_the_end(world, newest)
    assert world.output() == expected


@pytest.mark.parametrize("in_the_store", ["whole", "damaged"])
def test_copies_that_are_damaged_are_read_from_the_store(
    world: World, store: Store, expected: dict[str, bytes], in_the_store: str
) -> None:
    store.answers.set()
    newest = in_the_middle(world)
    for host in world.nodes.hosts.values():
        for copy in (host.folder / "states").iterdir():
            copy.write_bytes(b"damaged")
    manifest = world.engine.store.manifest(newest)
    if in_the_store == "damaged":
        (world.checkpoints / manifest.files["count.0"].path).write_bytes(b"damaged, too")
    world.want(2, newest, world.engine.desired.assignment, retain=True)
    world.run(lambda e: not e.installing)
    assert figures(world)[0] == 0
    if in_the_store == "damaged":
        assert world.engine.bad_checkpoints == {newest}
        assert str(world.engine.failed["count.0"]).startswith("checkpoint: ")
    else:
        to_the_end(world, newest)
        assert world.output() == expected


def test_copies_are_as_old_as_the_checkpoint_that_is_gone_back_to_and_no_older(world: World) -> None:
    world.run(lambda e: e.punctuations.newest >= 30)
    tick(world)  # the hosts hear of it
    for host in world.nodes.hosts.values():
        assert host.command is not None
        assert (oldest := host.command.covered.oldest) >= 30
        host.close()  # what is being stored is stored
        assert all(copy.position >= oldest for copy in host._copies._copies.values())
        assert host._copies.used == sum(p.stat().st_size for p in (host.folder / "states").iterdir())
    assert any(host._copies.used for host in world.nodes.hosts.values())
