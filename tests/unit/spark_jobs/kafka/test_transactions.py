"""The sink's transactions on a model of Kafka's: whatever fails when, each batch is there once and in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import example, given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import FencedError, SinkError, StepError
from reprise.spark_jobs.kafka import KafkaSink, transactions
from reprise.spark_jobs.kafka.transactions import DIGESTS, REFRESH_S, Marker, Written
from reprise.spark_jobs.sinks import Opening, Owner
from tests.support.examples import examples
from tests.support.fake_kafka import Broker

NAME = "reprise.test.pipe.out.1"
LAST = 12
FAULTS = ["", "", "", "unheard", "done", "prepared"]
EMPTY = {3, 7, 8}
"""Batches without rows."""


def rows(batch: int) -> pa.Table | None:
    count = 0 if batch in EMPTY else 1 + batch % 2
    return pa.table({"id": [100 * batch + i for i in range(count)]}) if count else None


def opened(number: int, position: int = 0, stream: float = 1.0, begins: int = 0, **more: Any) -> KafkaSink:
    sink = KafkaSink(**{"brokers": "127.0.0.1:1", "topic": "t", **more})
    sink.open(Opening("test.pipe", Place("out", 1, 2), Owner(stream, (1, 0, number)), position, begins))
    return sink


def give(sink: KafkaSink, *batches: int) -> None:
    """One attempt at a transaction with these batches, as the sink's thread makes it."""
    taken = [(batch, rows(batch)) for batch in batches]
    sink._waiting.extend(taken)
    try:
        sink._write(taken)
    except BaseException:
        sink._waiting.clear()
        raise


def ids(broker: Broker, topic: str = "t") -> list[int]:
    return [
        json.loads(value)["id"]
        for name, _, _, value in broker.messages
        if name == topic and value is not None
    ]


def expected(upto: int) -> list[int]:
    return [n for batch in range(1, upto + 1) if (t := rows(batch)) is not None for n in t["id"].to_pylist()]


class Life:
    """An output partition: owners come one after the other, and those before do not know that they are over."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.owners: list[tuple[KafkaSink, int]] = [(opened(1), 0)]
        self.shown = 0

    def install(self, back: int) -> None:
        """A new owner, from a checkpoint some batches back from what was visible."""
        position = max(0, self.shown - back)
        self.owners.append((opened(len(self.owners) + 1, position), position))

    def write(self, which: int, count: int, faults: list[str]) -> None:
        """Some owner (0: the newest) writes its next batches."""
        index = max(0, len(self.owners) - 1 - which)
        sink, at = self.owners[index]
        batches = range(at + 1, min(at + count, LAST) + 1)
        if not batches:
            return
        self.broker.faults.extend(faults)
        try:
            give(sink, *batches)
        except (SinkError, FencedError):
            return
        finally:
            self.broker.faults.clear()
        self.owners[index] = (sink, batches[-1])
        self.shown = max(self.shown, batches[-1])

    def check(self) -> None:
        """A prefix of all batches, each once, and every batch that anybody was told is visible."""
        found = ids(self.broker)
        assert found == expected(LAST)[: len(found)]
        assert len(found) >= len(expected(self.shown))
        if NAME in self.broker.committed:
            marker = Marker.decode(*self.broker.committed[NAME])
            assert found == expected(marker.batch)
            digests = {b: d for b, d in marker.digests.items() if b <= marker.batch}
            assert set(marker.digests) == set(digests)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("install"), st.integers(0, 4)),
        st.tuples(
            st.just("write"),
            st.sampled_from([0, 0, 0, 1, 2]),
            st.integers(1, 4),
            st.lists(st.sampled_from(FAULTS), max_size=14),
        ),
    ),
    max_size=14,
)


@examples(80)
@given(actions)
def test_every_batch_is_there_once_whoever_writes_and_whatever_fails(what: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        life = Life()
        life.broker.patch(patch, transactions)
        for name, *given_ in what:
            getattr(life, name)(*given_)
            life.check()
        life.install(4)
        while life.owners[-1][1] < LAST:
            before = life.owners[-1][1]
            life.write(0, 5, [])
            assert life.owners[-1][1] > before
            life.check()
        assert ids(life.broker) == expected(LAST)
        for index in range(1, len(life.owners)):  # nobody before the newest writes anything more
            with pytest.raises((FencedError, SinkError)):
                life.broker.faults.clear()
                give(life.owners[-1 - index][0], LAST + 1)
        assert ids(life.broker) == expected(LAST)


@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("fault", ["unheard", "done", "prepared"])
def test_a_single_fault_at_any_call_is_trouble_and_the_next_attempt_is_all(
    broker: Broker, call: int, fault: str
) -> None:
    sink = opened(1)
    broker.faults.extend([""] * call + [fault])
    try:
        give(sink, 1, 2)
    except SinkError as error:
        assert "made up by the test" in str(error)
        assert sink.visible == 0
    broker.faults.clear()
    give(sink, 1, 2)
    assert (sink.visible, ids(broker)) == (2, expected(2))
    successor = opened(2)
    give(successor, 1, 2, 4)
    assert ids(broker) == [*expected(2), *expected(4)[len(expected(3)) :]]


def test_what_was_decided_but_not_yet_written_is_not_written_twice(broker: Broker) -> None:
    """The commit is prepared when its producer dies: only a marker read after `init_transactions` names it."""
    first = opened(1)
    give(first, 1)
    broker.faults.extend(["", "", "prepared"])  # the message of batch 2, the offset, the commit
    with pytest.raises(SinkError):
        give(first, 2)
    assert ids(broker) == expected(1)
    give(opened(2, position=1), 2)
    assert ids(broker) == expected(2)


def test_a_transaction_whose_end_the_brokers_have_lost_holds_output_back_and_is_named(broker: Broker) -> None:
    """Whether its rows count cannot be asked, so nothing is written until somebody has ended it by hand."""
    give(opened(1), 1, 2)
    broker.lost_ends.add(NAME)
    before, later = list(broker.messages), opened(2)
    for _ in range(2):
        with pytest.raises(SinkError, match=rf"transaction of {NAME} is still pending .*KAFKA-20734"):
            give(later, 3)
    assert broker.messages == before
    broker.lost_ends.clear()
    give(later, 3)
    assert ids(broker) == expected(3)


def test_an_earlier_owner_is_told_that_it_is_over_before_it_fences_the_later(broker: Broker) -> None:
    early = opened(1)
    give(opened(2), 1)
    epoch = broker.epochs[NAME]
    with pytest.raises(
        FencedError, match=r"belongs to a later installation Owner\(stream=1.0, installation=\(1, 0, 2\)\)"
    ):
        give(early, 1)
    assert broker.epochs[NAME] == epoch
    assert ids(broker) == expected(1)


def test_who_has_opened_has_claimed_though_nothing_is_written_yet(broker: Broker) -> None:
    give(opened(1), 1)
    opened(2)._session.open()
    with pytest.raises(FencedError):
        give(opened(1), 1, 2)
    assert ids(broker) == expected(1)


def test_an_owner_whose_producer_was_fenced_by_a_zombie_goes_on(broker: Broker) -> None:
    sink = opened(1)
    give(sink, 1)
    broker.epochs[NAME] += 1  # a zombie came past the first look before this owner claimed
    with pytest.raises(SinkError, match="the producer was fenced or its transaction timed out"):
        give(sink, 2)
    give(sink, 2)
    assert ids(broker) == expected(2)


def test_the_first_message_that_was_not_delivered_is_named_beside_what_the_commit_says(
    broker: Broker,
) -> None:
    sink = opened(1)
    give(sink, 1)
    broker.faults.extend(["undelivered", "unheard"])
    with pytest.raises(SinkError, match=r"made up by the test.* \(.*not delivered"):
        give(sink, 2)
    give(sink, 2)
    assert ids(broker) == expected(2)


def test_another_stream_of_the_same_name_begins_anew(broker: Broker) -> None:
    give(opened(9, stream=1.0), 1, 2)
    give(opened(1, stream=2.0), 1)
    assert ids(broker) == [*expected(2), *expected(1)]
    assert Marker.decode(*broker.committed[NAME]).batch == 1
    with pytest.raises(FencedError):
        give(opened(99, stream=1.0), 3)


@pytest.mark.parametrize("on_marker_lost", ["fail", "continue"])
def test_a_marker_that_is_gone_is_trouble_or_a_choice(broker: Broker, on_marker_lost: str) -> None:
    give(opened(1), 1, 2)
    broker.committed.clear()
    successor = opened(2, position=2, on_marker_lost=on_marker_lost)
    if on_marker_lost == "fail":
        with pytest.raises(
            SinkError, match=f"the marker of {NAME} on topic t is gone though batch 2 was written"
        ):
            give(successor, 3, 4)
        assert NAME not in broker.committed
    else:
        give(successor, 2, 3, 4)
        assert ids(broker) == expected(4)


def test_without_anything_shown_a_missing_marker_is_the_beginning(broker: Broker) -> None:
    give(opened(1), 3)
    assert broker.committed[NAME][0] == 0
    assert broker.messages == []


def test_behind_a_savepoint_a_missing_marker_is_the_beginning_and_later_it_is_not(broker: Broker) -> None:
    first = opened(1, position=2, begins=2)
    assert first.visible == 2
    give(first, 3, 4)
    assert ids(broker) == expected(4)[len(expected(2)) :]
    give(
        opened(2, position=2, begins=2), 3, 4, 5
    )  # no checkpoint was complete: its batches are known by the marker
    assert ids(broker) == expected(5)[len(expected(2)) :]
    broker.committed.clear()
    with pytest.raises(SinkError, match="is gone though batch 5 was written"):
        give(opened(3, position=5, begins=2), 6)


def test_a_marker_that_is_lost_while_its_owner_lives_is_known_by_what_it_has_written(broker: Broker) -> None:
    sink = opened(1)
    give(sink, 1)
    broker.committed.clear()
    broker.faults.append("unheard")
    with pytest.raises(SinkError):
        give(sink, 2)
    with pytest.raises(SinkError, match="is gone though batch 1 was written"):
        give(sink, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ("5", "not subscriptable"),
        ('{"stream": 1}', "'installation'"),
        ('{"stream": "soon", "installation": [1], "digests": {}}', "could not convert"),
        ('{"stream": 1, "installation": ["x"], "digests": {}}', "invalid literal"),
        ('{"stream": 1, "installation": 5, "digests": {}}', "not iterable"),
        ('{"stream": 1, "installation": [1], "digests": []}', "no attribute"),
        ('{"stream": 1, "installation": [1], "digests": {"one": "x"}}', "invalid literal"),
    ],
)
def test_an_offset_of_somebody_else_is_not_taken_for_a_marker(broker: Broker, text: str, reason: str) -> None:
    with pytest.raises(SinkError, match=f"the committed offset is not a marker of Reprise: .*{reason}"):
        Marker.decode(5, text)
    broker.committed[NAME] = (5, text)
    with pytest.raises(SinkError, match="not a marker of Reprise"):
        give(opened(1), 1)
    assert broker.committed[NAME] == (5, text)


owners = st.builds(Owner, st.floats(0, 1e10), st.tuples(st.integers(0), st.integers(0), st.integers(0)))


@given(
    st.integers(0),
    owners,
    st.dictionaries(st.integers(0, 2**40), st.text("0123456789abcdef", max_size=8), max_size=40),
)
def test_a_marker_survives_its_text(batch: int, owner: Owner, digests: dict[int, str]) -> None:
    found = Marker.decode(batch, Marker(batch, owner, digests).encode())
    assert (found.batch, found.owner) == (batch, owner)
    assert found.digests == dict(sorted(digests.items())[-DIGESTS:])


def test_a_replay_with_other_rows_is_found_and_not_written(broker: Broker) -> None:
    give(opened(1), 1, 2)
    successor = opened(2)
    taken = [(1, rows(1)), (2, rows(4))]
    with pytest.raises(Exception, match="batch 2 was written before with other rows"):
        successor._write(taken)
    assert ids(broker) == expected(2)


@pytest.mark.parametrize("empty", sorted(EMPTY))
def test_a_replay_that_has_rows_where_there_were_none_is_found(broker: Broker, empty: int) -> None:
    give(opened(1), *range(1, LAST + 1))
    taken = [(batch, rows(1) if batch == empty else rows(batch)) for batch in range(1, LAST + 1)]
    with pytest.raises(Exception, match=f"batch {empty} was written before with other rows"):
        opened(2)._write(taken)
    assert ids(broker) == expected(LAST)


def test_of_batches_before_those_with_a_digest_nothing_is_claimed(broker: Broker) -> None:
    """They may have had rows, and a marker that was made anew knows of none."""
    owner = Owner(1.0, (1, 0, 1))
    row = Written(3, [(None, b"row")])
    assert not Marker(5, owner, {4: "0" * 16}).differs(row)
    assert not Marker(5, owner).differs(row)
    assert not Marker(2, owner, {1: "0" * 16}).differs(row), "it is new"
    assert Marker(5, owner, {1: "0" * 16}).differs(row)


parts = st.none() | st.binary(max_size=2)
lists = st.lists(st.tuples(parts, parts), max_size=3)


@example([(None, b"ab")], [(b"a", b"b")])
@example([(None, b"ab")], [(None, b"a"), (None, b"b")])
@example([(b"a", None)], [(b"a", b"\0")])
@example([(None, b"a")], [(b"", b"a")])
@example([(b"k", b"")], [(b"k", None)])
@given(lists, lists)
def test_two_lists_of_messages_have_two_digests(
    one: list[tuple[bytes | None, bytes | None]], other: list[tuple[bytes | None, bytes | None]]
) -> None:
    assert (Written(1, one).digest == Written(1, other).digest) is (one == other)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=4))
def test_a_digest_depends_on_every_message(messages: list[tuple[bytes | None, bytes | None]]) -> None:
    assert Written(1, messages).digest == Written(2, list(messages)).digest
    longer = [*messages, (None, b"more")]
    assert Written(1, longer).digest != Written(1, messages).digest


def test_messages_without_a_key_go_to_one_partition_and_with_one_where_the_client_puts_them(
    broker: Broker,
) -> None:
    broker.partitions = 4
    give(opened(1), 1)
    give(opened(2, key=["id"]), 2)
    assert [partition for _, partition, _, _ in broker.messages] == [1, 1, -1]
    broker.partitions = 1
    give(opened(3), 4)
    assert broker.messages[-1][1] == 0


def test_what_the_group_is_asked_says_who_asks_and_that_nothing_is_committed_beside(broker: Broker) -> None:
    give(opened(1), 1)
    assert [(c["group.id"], c["enable.auto.commit"], c["isolation.level"]) for c in broker.asked] == [
        (NAME, False, "read_uncommitted"),
        (NAME, False, "read_committed"),
    ]


@pytest.mark.parametrize(
    ("policy", "mode", "fine"),
    [
        ("compact", "upsert", True),
        ("compact,delete", "upsert", True),
        ("delete", "upsert", False),
        ("delete", "append", True),
    ],
)
def test_upserts_need_a_compacted_topic(broker: Broker, policy: str, mode: str, fine: bool) -> None:
    broker.policy = policy
    sink = opened(1, mode=mode, key=["id"])
    if fine:
        give(sink, 1)
        assert sink.visible == 1
    else:
        with pytest.raises(
            SinkError, match=r"topic t has cleanup\.policy=delete; mode upsert needs a compacted topic"
        ):
            give(sink, 1)
        assert broker.epochs == {}


def test_a_topic_that_is_not_there_is_said(broker: Broker) -> None:
    broker.topic_error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(SinkError, match="topic t: "):
        give(opened(1), 1)
    assert broker.epochs == {}


def test_batches_without_rows_cost_a_transaction_only_when_the_marker_is_old(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(1)
    give(sink, 1)
    commits: list[int] = []
    finish: Callable[[str], None] = broker.finish
    monkeypatch.setattr(broker, "finish", lambda name: (commits.append(1), finish(name)))
    give(sink, 3)
    assert (sink.visible, commits) == (3, [])
    session = sink._session
    assert not session.stale
    session._committed_at -= REFRESH_S + 1
    assert session.stale
    give(sink, 7)
    assert (sink.visible, commits, session.stale) == (7, [1], False)
    assert broker.committed[NAME][0] == 1


def test_a_session_that_was_never_opened_has_nothing_to_write_into() -> None:
    with pytest.raises(SinkError, match="the session is not open"):
        opened(1)._session.write([])
    assert opened(1)._session.stale


def test_a_row_too_large_is_named_with_its_batch_or_goes_beside(broker: Broker) -> None:
    big = pa.table({"id": ["x" * 3000, "y"]})
    limited = {"config": {"message.max.bytes": 2000}}
    with pytest.raises(StepError, match=r"batch 1.*larger than message.max.bytes allows"):
        opened(1, **limited)._write([(1, big)])
    assert broker.messages == []
    sink = opened(2, **limited, on_too_large="dead-letter", dead_letters="dead")
    sink._waiting.append((1, big))
    sink._write([(1, big)])
    assert ids(broker) == ["y"]
    ((_, _, key, value),) = [m for m in broker.messages if m[0] == "dead"]
    assert (key, value) == (b"", (b'{"id":"' + b"x" * 3000)[:1000])
