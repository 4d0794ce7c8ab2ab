"""The sink's protocol step by step: whatever the step at which a writer stops, its successor writes each batch once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import FencedError, NotYetError, SinkError, StepError
from reprise.spark_jobs.kafka import KafkaSink, transactions
from reprise.spark_jobs.kafka.transactions import Session
from reprise.spark_jobs.sinks import Opening, Owner
from tests.kafka import pipes
from tests.kafka.broker import Broker, wait_for

pytestmark = pytest.mark.slow
P = Place("out", 0, 1)
PATIENCE_S = 150.0
_OPENED: list[KafkaSink] = []


class Crash(Exception):
    """The writer stops here; its producer is left as it is, as by SIGKILL."""


def opened(broker: Broker, topic: str, number: int, position: int = 0, **more: Any) -> KafkaSink:
    """A sink as installation `number` opens it."""
    sink = KafkaSink(**pipes.sink(broker, topic, **more))
    sink.open(Opening("test.pipe", P, Owner(1.0, (1, 0, number)), position))
    _OPENED.append(sink)
    return sink


@pytest.fixture(autouse=True)
def sinks_end() -> Iterator[None]:
    """Also those whose owner is thought to be dead: their threads go on."""
    yield
    while _OPENED:
        _OPENED.pop().close()


def write(sink: KafkaSink, *batches: int, rows: int = 3) -> None:
    """Batch b holds ids 100 b, 100 b + 1, ...; returns when all are visible."""
    for batch in batches:
        sink.write(batch, pipes.table(pipes.rows(rows, first=100 * batch)))
    shown(sink, batches[-1])


def shown(sink: KafkaSink, batch: int) -> None:
    """Until it is visible.  Trouble passes, as a broker's that has just started; a marker that is gone does not."""
    said: list[str] = []

    def over() -> bool:
        said.append(str(sink.settle(0.2)))
        return sink.visible >= batch or "is gone" in said[-1]

    wait_for(over, PATIENCE_S)
    assert sink.visible == batch, said[-1]


def _settle_forever(sink: KafkaSink) -> None:
    """Until the sink is done with trying."""
    wait_for(lambda: sink.settle(0.2) == "never", PATIENCE_S)


def ids(broker: Broker, topic: str) -> list[int]:
    return [row["id"] for row in broker.rows(topic)]


def expected(*batches: int) -> list[int]:
    return [100 * batch + i for batch in batches for i in range(3)]


STEPS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def step(name: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], Callable[[pytest.MonkeyPatch], None]]:
    def keep(made: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
        STEPS[name] = made
        return made

    return keep


def _crash(*_: object) -> None:
    raise Crash


@step("before anything is sent")
def _before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "_produce", _crash)


@step("rows sent, marker not")
def _sent(patch: pytest.MonkeyPatch) -> None:
    def flush(_self: Session, producer: Any, _marker: object) -> None:
        producer.flush(PATIENCE_S)
        raise Crash

    patch.setattr(Session, "_finish", flush)


@step("rows and marker sent, not committed")
def _prepared(patch: pytest.MonkeyPatch) -> None:
    def prepare(self: Session, producer: Any, marker: Any) -> None:
        producer.flush(PATIENCE_S)
        at = transactions.TopicPartition(self._topic, 0, marker.batch, marker.encode())
        producer.send_offsets_to_transaction([at], self._group, PATIENCE_S)
        raise Crash

    patch.setattr(Session, "_finish", prepare)


@step("committed, nobody was told")
def _committed(patch: pytest.MonkeyPatch) -> None:
    finish = Session._finish

    def commit(self: Session, producer: Any, marker: Any) -> None:
        finish(self, producer, marker)
        raise Crash

    patch.setattr(Session, "_finish", commit)


@pytest.mark.parametrize("name", STEPS)
def test_a_successor_writes_each_batch_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    topic = broker.topic("steps")
    first = opened(broker, topic, 1)
    write(first, 1, 2)
    with monkeypatch.context() as patch:
        STEPS[name](patch)
        first.write(3, pipes.table(pipes.rows(3, first=300)))
        with pytest.raises(StepError, match="Crash"):
            first.settle(PATIENCE_S)
    second = opened(broker, topic, 2)
    write(second, 1, 2, 3, 4)
    assert ids(broker, topic) == expected(1, 2, 3, 4)
    second.close()


def test_an_earlier_owner_is_fenced_and_a_later_one_is_not(broker: Broker) -> None:
    topic = broker.topic("owners")
    first, second = opened(broker, topic, 1), opened(broker, topic, 2)
    write(first, 1)
    write(second, 1, 2)
    first.write(2, pipes.table(pipes.rows(1, first=900)))
    with pytest.raises(FencedError, match="later installation"):
        _settle_forever(first)
    late = opened(broker, topic, 1)
    late.write(3, pipes.table(pipes.rows(1, first=901)))
    with pytest.raises(FencedError, match="later installation"):
        _settle_forever(late)
    write(second, 3)
    assert ids(broker, topic) == expected(1, 2, 3)
    second.close()


def test_the_owner_goes_on_after_a_zombie_fenced_its_producer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie that looked before the owner claimed, and initialises after: it stops, and the owner opens again."""
    topic = broker.topic("race")
    owner, zombie = opened(broker, topic, 2), opened(broker, topic, 1)
    look = Session._look

    def blind(self: Session, stable: bool) -> Any:
        return None if self is zombie._session and not stable else look(self, stable)

    write(owner, 1)
    monkeypatch.setattr(Session, "_look", blind)
    zombie.write(1, pipes.table(pipes.rows(3, first=100)))
    with pytest.raises(FencedError):
        _settle_forever(zombie)
    owner.write(2, pipes.table(pipes.rows(3, first=200)))
    while owner.visible < 2:
        owner.settle(1.0)
    write(owner, 3)
    assert ids(broker, topic) == expected(1, 2, 3)
    owner.close()


def test_a_replay_with_other_rows_is_an_error_and_not_a_second_answer(broker: Broker) -> None:
    topic = broker.topic("different")
    write(opened(broker, topic, 1), 1, 2)
    again = opened(broker, topic, 2)
    again.write(2, pipes.table(pipes.rows(3, first=999)))
    with pytest.raises(StepError, match="not deterministic"):
        again.settle(PATIENCE_S)
    assert ids(broker, topic) == expected(1, 2)


def test_a_topic_made_anew_is_not_taken_for_an_empty_one(broker: Broker) -> None:
    topic = broker.topic("anew")
    first = opened(broker, topic, 1)
    write(first, 1, 2)
    first.close()
    broker.delete(topic)
    broker.create(topic)
    second = opened(broker, topic, 2, position=2)
    second.write(3, pipes.table(pipes.rows(3, first=300)))
    trouble = second.settle(PATIENCE_S)
    assert trouble is not None
    assert "is gone though batch 2 was written" in trouble
    second.close()
    third = opened(broker, topic, 3, position=2, on_marker_lost="continue")
    write(third, 3)
    assert ids(broker, topic) == expected(3)
    third.close()


def test_an_upsert_topic_ends_with_the_last_row_of_each_key(broker: Broker) -> None:
    topic = broker.topic("upsert", config={"cleanup.policy": "compact"})
    sink = opened(broker, topic, 1, mode="upsert", key=["name"], delete="gone")
    first = pipes.table(
        [
            {"id": 1, "name": "a", "gone": False},
            {"id": 2, "name": "a", "gone": False},
            {"id": 3, "name": "b", "gone": False},
        ]
    )
    second = pipes.table([{"id": 4, "name": "b", "gone": True}, {"id": 5, "name": "c", "gone": False}])
    sink.write(1, first)
    sink.write(2, second)
    assert sink.settle(PATIENCE_S) is None
    found = [(m.key(), m.value()) for m in broker.messages(topic)]
    assert found == [
        (b"a", b'{"id":2,"name":"a"}'),
        (b"b", b'{"id":3,"name":"b"}'),
        (b"b", None),
        (b"c", b'{"id":5,"name":"c"}'),
    ]
    sink.close()


def test_an_upsert_into_a_topic_that_is_not_compacted_waits_and_says_so(broker: Broker) -> None:
    topic = broker.topic("plain")
    sink = opened(broker, topic, 1, mode="upsert", key=["id"])
    sink.write(1, pipes.table(pipes.rows(1)))
    assert "cleanup.policy" in str(sink.settle(PATIENCE_S))
    broker.configure(topic, cleanup_policy="compact")
    while sink.visible < 1:
        sink.settle(1.0)
    sink.close()


def test_a_message_that_is_too_large_is_poison_or_a_dead_letter(broker: Broker) -> None:
    topic, letters = broker.topic("large"), broker.topic("large-letters")
    rows = pipes.table([{"id": 1, "name": "x" * 2000}, {"id": 2, "name": "y"}])
    small = {"config": {"message.max.bytes": 1500}}
    sink = opened(broker, topic, 1, key=["id"], **small)
    sink.write(1, rows)
    with pytest.raises(
        StepError, match=r"message of 20\d\d bytes \(key b'1'\) is larger than message.max.bytes"
    ):
        sink.settle(PATIENCE_S)
    diverting = opened(
        broker, topic, 2, key=["id"], on_too_large="dead-letter", dead_letters=letters, **small
    )
    diverting.write(1, rows)
    assert diverting.settle(PATIENCE_S) is None
    assert ids(broker, topic) == [2]
    (letter,) = broker.messages(letters)
    about = dict(letter.headers() or [])
    assert letter.key() == b"1"
    assert about["reprise-batch"] == b"1"
    assert b"larger than" in about["reprise-reason"]
    diverting.close()


def test_a_topic_with_a_smaller_limit_than_the_client_says_so(broker: Broker) -> None:
    topic = broker.topic("limited", config={"max.message.bytes": "1000"})
    sink = opened(broker, topic, 1)
    sink.write(1, pipes.table([{"id": 1, "name": "x" * 5000}]))
    with pytest.raises(StepError, match="TooLarge"):
        sink.settle(PATIENCE_S)


def test_a_topic_that_is_not_there_is_said_and_not_made(broker: Broker) -> None:
    sink = opened(broker, "nobody-made-this", 1)
    sink.write(1, pipes.table(pipes.rows(1)))
    assert "nobody-made-this" in str(sink.settle(PATIENCE_S))
    sink.close()
    assert "nobody-made-this" not in broker.admin.list_topics(timeout=PATIENCE_S).topics


def test_batches_without_rows_cost_no_transaction_but_the_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first makes the marker; later ones only keep it from expiring."""
    topic = broker.topic("empty")
    sink = opened(broker, topic, 1)
    sink.write(1, None)
    shown(sink, 1)
    ends: list[int] = []
    finish = Session._finish
    monkeypatch.setattr(Session, "_finish", lambda s, p, m: (ends.append(m.batch), finish(s, p, m)))
    sink.write(2, pipes.table(pipes.rows(1)).slice(1))
    assert (sink.visible, ends) == (2, [])
    write(sink, 3)
    monkeypatch.setattr(transactions, "REFRESH_S", 0.0)
    sink.write(4, None)  # what is noticed here is done with the next batch
    sink.write(5, None)
    shown(sink, 5)
    assert ends == [3, 3]
    assert [batch for batch, _ in sink.shown()] == [1, 2, 3, 4, 5]
    sink.close()


def test_a_partition_that_had_no_rows_yet_can_be_installed_again(broker: Broker) -> None:
    """A checkpoint covers batches without rows; a missing marker behind it must not look like a lost topic."""
    topic = broker.topic("late")
    first = opened(broker, topic, 1)
    for batch in (1, 2, 3, 4):
        first.write(batch, None)
    shown(first, 4)
    second = opened(broker, topic, 2, position=4)
    write(second, 5)
    assert ids(broker, topic) == expected(5)
    second.close()


def test_what_waits_is_bounded(broker: Broker) -> None:
    sink = opened(broker, "nobody-made-this-either", 1, buffer="1Ki")
    sink.write(1, pipes.table(pipes.rows(100)))
    assert sink.settle(PATIENCE_S) is not None
    with pytest.raises(SinkError, match="nobody-made-this-either"):
        sink.write(2, pipes.table(pipes.rows(100)))
    sink.close()


def marked(sink: KafkaSink, batch: int) -> None:
    """Until it is, as a host asks."""

    def over() -> bool:
        try:
            sink.mark(batch)
        except (NotYetError, SinkError):
            return False
        return True

    wait_for(over, PATIENCE_S)


def headers_of(broker: Broker, topic: str) -> list[dict[str, str]]:
    return [{k: v.decode() for k, v in m.headers() or []} for m in broker.messages(topic)]


def test_a_batch_that_may_lack_rows_is_marked_whatever_step_its_writer_stops_at(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, gaps = broker.topic("lacking"), broker.topic("gaps")
    first = opened(broker, topic, 1, gaps=gaps)
    write(first, 1)
    with monkeypatch.context() as patch:
        _prepared(patch)
        with pytest.raises(StepError, match="Crash"):
            marked(first, 2)
    assert headers_of(broker, gaps) == [], "it was not committed"
    second = opened(broker, topic, 2, gaps=gaps)
    for batch in (2, 3):
        marked(second, batch)
    write(second, 2)
    second.write(3, None)
    write(second, 4)
    about = {"reprise-partition": "out.0", "reprise-gap": "rows may be missing"}
    assert headers_of(broker, gaps) == [{**about, "reprise-batch": str(b)} for b in (2, 3)]
    assert headers_of(broker, topic) == [*[{}] * 3, *[{**about, "reprise-batch": "2"}] * 3, *[{}] * 3]
    assert ids(broker, topic) == expected(1, 2, 4)
    third = opened(broker, topic, 3, gaps=gaps)
    marked(third, 2)
    third.write(2, pipes.table(pipes.rows(1, first=900)))
    shown(third, 2)
    assert ids(broker, topic) == expected(1, 2, 4), "what is there of a marked batch stays"
    second.close()
    third.close()
