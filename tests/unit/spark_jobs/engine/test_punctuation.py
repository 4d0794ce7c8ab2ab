"""Punctuations: announced ahead of their batch, complete only when everyone has answered."""

from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.topology.resource import CheckpointPolicy

BY_BATCHES = CheckpointPolicy(None, 10, None, 3)
BY_TIME = CheckpointPolicy(5.0, None, None, 3)


def ack(punctuations: Punctuations, position: int, *partitions: str) -> None:
    for partition in partitions:
        punctuations.acknowledge(
            Ack(partition, "1.1.1", position, {"path": partition, "size": 1, "sha256": "x"})
        )


def test_every_so_many_batches() -> None:
    p = Punctuations(BY_BATCHES)
    p.announce(0, 9, None, True, 0.0, 9)
    assert p.open == ()
    p.announce(9, 15, None, True, 0.0, 15)
    assert p.open == (10,)


def test_every_so_many_seconds_behind_the_horizon() -> None:
    p = Punctuations(BY_TIME)
    p.announce(0, 3, None, True, 100.0, 3)
    p.announce(3, 6, None, True, 104.0, 6)
    assert p.open == ()
    p.announce(6, 9, None, True, 105.0, 9)
    assert p.open == (7,)
    p.announce(9, 12, None, True, 109.9, 12)
    assert p.open == (7,)
    p.announce(12, 15, None, True, 110.0, 15)
    assert p.open == (7, 13), "counted from the last one"


def test_none_while_partitions_are_failed_but_the_last_batch_always() -> None:
    p = Punctuations(BY_BATCHES)
    p.announce(5, 25, None, False, 0.0, 25)
    assert p.open == ()
    p.announce(25, 31, 31, False, 0.0, 31)
    assert p.open == (31,)
    p.forget()
    p.announce(31, 33, 31, False, 0.0, 33)
    assert p.open == (), "it was released before"


def test_complete_when_all_have_answered() -> None:
    p = Punctuations(BY_BATCHES)
    p.announce(0, 10, None, True, 0.0, 10)
    p.announce(10, 20, None, True, 0.0, 20)
    ack(p, 20, "a", "b")
    ack(p, 10, "a")
    p.acknowledge(Ack("a", "1.1.1", 99, None))
    done = list(p.acknowledged(["a", "b"]))
    assert [k for k, _ in done] == [20]
    assert set(done[0][1]) == {"a", "b"}
    assert (p.newest, p.open) == (0, (10, 20))
    p.complete(20)
    assert (p.newest, p.open) == (20, ())


def test_slow_storage_does_not_pile_up() -> None:
    p = Punctuations(BY_BATCHES)
    for reach in range(10, 100, 10):
        p.announce(reach - 10, reach, None, True, 0.0, reach)
    assert p.open == (10, 20)


def test_stateless_partitions_have_no_file() -> None:
    p = Punctuations(BY_BATCHES)
    p.announce(0, 10, None, True, 0.0, 10)
    p.acknowledge(Ack("a", "1.1.1", 10, None))
    assert list(p.acknowledged(["a"])) == [(10, {})]


def test_what_a_partition_stored_does_not_count_where_it_has_begun_anew() -> None:
    p = Punctuations(BY_BATCHES)
    p.announce(0, 10, None, True, 0.0, 10)
    p.announce(10, 20, None, True, 0.0, 20)
    ack(p, 10, "b")  # the other one has not answered yet
    ack(p, 20, "a", "b")
    p.lost("a")
    assert list(p.acknowledged(["a", "b"])) == []
    ack(p, 20, "a")
    assert [k for k, _ in p.acknowledged(["a", "b"])] == [20]


def test_after_a_rollback_nothing_is_announced_any_more() -> None:
    p = Punctuations(BY_BATCHES)
    p.announce(0, 10, None, True, 0.0, 10)
    p.complete(10)
    p.announce(10, 20, None, True, 0.0, 20)
    p.back_to(5)
    assert (p.newest, p.open) == (5, ())
