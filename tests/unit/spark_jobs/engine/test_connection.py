"""Over which nodes exchanges begin, and when hosts change over to another one."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest

from reprise.spark_jobs.engine.jobs import AGAIN_S, ALONE, CONNECT_S, FORGET_S, REPORTED, Connection
from reprise.spark_jobs.errors import JobError
from reprise.spark_jobs.exchange.settings import MOST_NODES
from reprise.spark_jobs.node.command import Order, Report


@dataclass
class Made:
    """An exchange; 0: a chain."""

    link: int
    hosts: tuple[str, ...]
    why_chained: str = ""
    stands: bool = False
    ended: str = ""
    closed: bool = False
    runs: int = 0

    @property
    def link_key(self) -> str:
        return f"key of {self.link}"

    def close(self) -> None:
        self.closed = True

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        self.runs += 1
        return []


@dataclass
class Scene:
    made: list[Made] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    now: float = 0.0
    chained: str = ""
    """Why no exchange over more than one node can begin."""

    def __post_init__(self) -> None:
        self.connection = Connection(self.problems, lambda: self.now)

    def connect(self, hosts: Sequence[str]) -> Made:
        chained = self.chained if len(hosts) > 1 else ""
        self.made.append(Made(0 if chained else len(self.made) + 1, tuple(hosts), chained))
        self.made[-1].stands = bool(chained)
        return self.made[-1]

    def job(self, needed: Collection[str], living: Collection[str]) -> bool:
        """A job; the hosts of nodes have their first letters, in upper case."""
        changed = self.connection.to(set(needed), {node: node[0].upper() for node in living}, self.connect)
        self.connection.run((1, 1), [], threading.Event(), 1.0)
        return changed

    @property
    def links(self) -> list[tuple[int, str]]:
        return [(one.link, "".join(one.hosts)) for one in self.made]

    def used(self) -> tuple[int, str]:
        return self.connection.link, "".join(self.connection.nodes)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_first_exchange_is_over_the_nodes_that_are_needed_and_used_at_once(scene: Scene) -> None:
    assert scene.connection.reaches("abc") == set("abc")
    assert scene.job("ba", "abc")
    assert (scene.links, scene.used()) == ([(1, "AB")], (1, "ab"))
    assert scene.connection.link_key == "key of 1"
    assert not scene.job("ab", "abc"), "none begins beside one that does not stand"
    assert len(scene.made) == 1


def test_hosts_change_over_once_the_next_exchange_stands(scene: Scene) -> None:
    scene.job("ab", "ab")
    scene.made[0].stands = True
    assert not scene.job("ab", "abc")
    assert not scene.job("ab", "abcd")
    assert (scene.links, scene.used()) == ([(1, "AB"), (2, "ABC")], (1, "ab"))
    assert scene.connection.reaches("abcd") == set("ab")
    scene.made[1].stands = True
    assert scene.job("ab", "abcd")
    assert (scene.used(), scene.made[0].closed, scene.made[1].closed) == ((2, "abc"), True, False)
    assert scene.connection.reaches("abcd") == set("abc")
    scene.job("abc", "abcd")
    assert scene.links[2:] == [(3, "ABCD")], "what came meanwhile is in the one after it"


def test_nodes_that_are_not_needed_any_more_stay_until_they_are_gone(scene: Scene) -> None:
    scene.job("abc", "abc")
    assert not scene.job("a", "abc")
    assert scene.job("a", "ab")
    assert scene.used() == (2, "ab")


def test_where_a_node_is_gone_the_others_are_connected_at_once_without_those_never_reached(
    scene: Scene,
) -> None:
    scene.job("abc", "abc")
    scene.made[0].stands = True
    scene.job("abc", "abcd")
    assert scene.job("ab", "abd")
    assert (scene.used(), scene.made[1].closed) == ((3, "ab"), True), "the next one had the lost node too"
    assert scene.connection.reaches("abd") == set("ab")


def test_an_exchange_that_begins_is_used_before_it_stands_where_nothing_travels_anyway(scene: Scene) -> None:
    scene.job("abc", "abc")
    scene.made[0].stands = True
    scene.job("abc", "abcd")
    assert scene.made[1].hosts == tuple("ABCD")
    assert scene.job("abcd", "abcd"), "a plan needs the node already"
    assert (scene.used(), len(scene.made)) == ((2, "abcd"), 2)


@pytest.fixture
def spared(scene: Scene) -> Scene:
    """`x` and `y` have no partitions, and are reached all the same."""
    scene.job("abx", "abxy")
    scene.made[0].stands = True
    scene.job("ab", "abxy")
    scene.made[1].stands = True
    scene.job("ab", "abxy")
    assert scene.used() == (2, "abxy")
    return scene


def test_after_a_loss_all_that_was_reached_and_lives_is_connected_at_once(spared: Scene) -> None:
    spared.connection.end()
    assert all(one.closed for one in spared.made)
    assert spared.job("a", "axyz")
    assert spared.links[2:] == [(3, "AXY")]
    spared.connection.end()  # another node was lost in the same moment
    assert spared.job("a", "ay")
    assert spared.links[3:] == [(4, "AY")]
    assert not spared.connection.doubted


def test_where_no_loss_explains_a_failure_nodes_without_partitions_are_left_out_for_a_while(
    spared: Scene,
) -> None:
    """One of them is there that some of the others do not reach."""
    spared.connection.end()
    spared.job("ab", "abxy")
    assert spared.links[2:] == [(3, "AB")]
    assert spared.connection.reaches("abxy") == set("ab")
    assert spared.connection.doubted == set("xy")
    spared.made[2].stands = True
    spared.job("ab", "abxy")
    assert len(spared.made) == 3, "the next one waits"
    spared.now += AGAIN_S[0]
    spared.job("ab", "abxy")
    assert spared.links[3:] == [(4, "ABXY")]


@pytest.mark.parametrize(("slot", "rest"), [(2, "ABY"), (0, "ABXY")])
def test_where_one_node_is_the_cause_the_others_stay(spared: Scene, slot: int, rest: str) -> None:
    """One with partitions is needed, whatever it has done."""
    spared.connection.end(slot)
    spared.job("ab", "abxy")
    assert spared.links[2:] == [(3, rest)]


def test_two_needed_nodes_with_one_address_are_an_error(scene: Scene) -> None:
    with pytest.raises(JobError, match="another node has the address of b#1"):
        scene.job(["a", "b#1", "b#2"], ["a", "b#1", "b#2"])


def fails(scene: Scene, living: str) -> str:
    """The next exchange begins over these hosts, and fails."""
    count = len(scene.made)
    scene.job("a", living)
    assert len(scene.made) == count + 1, living
    scene.made[-1].ended = "no room"
    scene.job("a", living)
    assert scene.made[-1].closed and scene.used() == (1, "a")
    return "".join(scene.made[-1].hosts)


def test_a_next_exchange_that_fails_is_tried_again_later_and_reported_in_the_end(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    for number, wait_s in enumerate((*AGAIN_S, AGAIN_S[-1]), 1):
        assert fails(scene, "ab") == "AB"
        assert scene.connection.doubted == {"b"}
        assert bool(scene.problems) == (number >= REPORTED)
        scene.problems.clear()
        count = len(scene.made)
        scene.now += wait_s - 0.01
        scene.job("a", "ab")
        assert len(scene.made) == count, "it waits"
        scene.job("a", "a")
        scene.now += 0.02
    scene.job("a", "ab")
    scene.made[-1].stands = True
    assert scene.job("a", "ab")
    assert scene.used()[1] == "ab"


def test_a_node_that_cannot_be_reached_keeps_no_other_away(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    for number in range(ALONE):
        assert fails(scene, "axyz") == "AXYZ"
        scene.now += AGAIN_S[number]
    reached = set("a")
    for _ in range(8):
        scene.job("a", "axyz")
        if "X" in scene.made[-1].hosts:
            scene.made[-1].ended = "no route"
        else:
            scene.made[-1].stands = True
        scene.job("a", "axyz")
        reached.update(scene.connection.nodes)
        scene.now += AGAIN_S[-1]
    assert reached == set("ayz")
    assert scene.problems[-1] == "node x is not used, as no exchange with it lasts: no route"


def test_a_new_node_is_tried_without_those_that_have_failed_again_and_again(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    for wait_s in AGAIN_S[:ALONE]:
        fails(scene, "ax")
        scene.now += wait_s
    scene.job("a", "axy")
    assert scene.made[-1].hosts == ("A", "Y")
    scene.made[-1].ended = "no room"
    scene.job("a", "axy")
    assert scene.made[-1].hosts == ("A", "X"), "its turn has come too"


def test_failures_are_forgotten_after_a_while(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    for _ in range(2 * REPORTED):
        fails(scene, "ax")
        scene.now += FORGET_S
    assert not scene.problems


def test_a_next_exchange_whose_node_is_lost_is_no_failure(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    scene.job("a", "abc")
    scene.made[1].ended = "an executor was lost"
    scene.job("a", "ab")
    assert scene.made[1].closed
    assert scene.links[2:] == [(3, "AB")]
    assert not scene.connection.doubted


def test_a_next_exchange_that_does_not_stand_in_time_has_failed(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    scene.job("a", "ab")
    scene.now += CONNECT_S - 1.0
    scene.job("a", "ab")
    assert not scene.made[1].closed
    scene.now += 2.0
    scene.job("a", "ab")
    assert scene.made[1].closed and scene.connection.doubted == {"b"}


def test_a_chain_is_over_what_is_needed_alone(scene: Scene) -> None:
    scene.chained = "it is not wanted"
    assert not scene.job("ab", "abc")
    assert scene.connection.why_chained == "it is not wanted"
    assert scene.connection.reaches("abc") == set("abc")
    scene.job("ab", "abcd")
    assert scene.links == [(0, "AB")]
    scene.job("bc", "abcd")
    assert scene.links == [(0, "AB"), (0, "BC")]
    assert scene.made[0].closed


def test_where_no_exchange_to_more_nodes_can_begin_jobs_carry_the_messages_in_the_end(scene: Scene) -> None:
    scene.job("a", "a")
    scene.made[0].stands = True
    scene.chained = "the probe failed"
    for wait_s in AGAIN_S[: REPORTED - 1]:
        assert not scene.job("a", "ab")
        assert scene.used() == (1, "a"), "the one that is used goes on"
        scene.now += wait_s
    scene.connect = lambda hosts: Made(0, tuple(hosts), scene.chained, stands=True)  # type: ignore[method-assign]
    assert scene.job("a", "ab")
    assert scene.used() == (0, "a")
    assert scene.connection.reaches("ab") == set("ab")


def test_no_more_nodes_are_waited_for_than_an_exchange_may_have(scene: Scene) -> None:
    many = [chr(ord("a") + number) for number in range(MOST_NODES + 1)]
    scene.job("a", many[:2])
    scene.made[0].stands = True
    assert scene.connection.reaches(many) == set(many)
    scene.job("a", many)
    assert len(scene.made[1].hosts) == MOST_NODES


def test_no_exchange_has_one_address_twice(scene: Scene) -> None:
    """A node has taken the place of another one, of which it is not known yet that it is gone."""
    scene.job("a", ["a", "b#1"])
    scene.made[0].stands = True
    scene.job("a", ["a", "b#1", "b#2"])
    assert scene.links[1:] == [(2, "AB")]
    assert scene.connection._next is not None and scene.connection._next.nodes == ("a", "b#2")
    scene.made[1].stands = True
    assert scene.job("a", ["a", "b#1", "b#2"])
    assert not scene.job("a", ["a", "b#1", "b#2", "b#3"]), "b#2 is not known to be gone"
    assert len(scene.made) == 2
    scene.job(["a", "b#3"], ["a", "b#1", "b#2", "b#3"])
    assert scene.links[2:] == [(3, "AB")]
    assert scene.connection.nodes == ("a", "b#3")
