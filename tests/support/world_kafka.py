"""Kafka in the simulated world: the real source and the real sink, with their threads, above brokers that take virtual
time, are away, or whose answers are lost.  What they promise of transactions is what `tests.support.fake_kafka` says.

What is committed goes to readers at once (`tests.support.world_kafka_readers`), which show it as files.  Batches without
rows are in no transaction, so nobody waits for files of them (`reprise.controller.simulated_world.topology.Reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from reprise.controller.simulated_world import faults, schedule
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.core import World
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.kafka import logs, reader, transactions
from reprise.spark_jobs.kafka.source import KafkaSource
from reprise.spark_jobs.kafka.transactions import TIMEOUT_S
from tests.support.fake_kafka import Admin, Broker, Consumer, Producer, trouble
from tests.support.world_kafka_readers import TOPIC, KafkaChecks, Readers
from tests.support.world_kafka_sources import AskingClient, ReadingClient, RecordedLogs, Topics


def kafka(more: str = "") -> str:
    """Output to a topic, as a resource says it; `more`: parameters of the sink."""
    given = f'brokers: "127.0.0.1:1", topic: {TOPIC}, headers: true{more and ", "}{more}'
    return f', sink: {{class: "reprise.kafka:KafkaSink", with: {{{given}}}}}'


KAFKA = kafka()
TRAVEL_S = (0.001, 0.02)
"""Of a request, and of its answer."""
ASKED = frozenset(
    {"init_transactions", "send_offsets_to_transaction", "commit_transaction", "committed", "list_topics"}
)
"""Calls of clients that wait for brokers."""


class Brokers(Broker):
    """All brokers of a world."""

    def __init__(self, cluster: KafkaCluster) -> None:
        super().__init__()
        self._cluster, self._world = cluster, cluster.world
        self.away, self.unsure = False, 0.0
        """Whether nobody answers, and how often something is wrong with a call, or its answer is lost."""
        self.topics = Topics(cluster.world)
        self.dice = cluster.world.dice
        self.held = self.refused = 0
        """How many calls have waited as nobody answered; how many calls were given up as nobody had answered."""

    def finish(self, name: str) -> None:
        done = self.under_way.get(name)
        super().finish(name)
        if done is not None:
            self._cluster.readers.take(
                [
                    (topic, key, value, headers)
                    for (topic, _, key, value), headers in zip(done.messages, done.headers, strict=True)
                ]
            )

    def fails(self) -> bool:
        """Whether something is wrong with a call."""
        return bool(self.unsure) and self.dice.random() < self.unsure

    def sleep(self, seconds: float) -> None:
        """Whoever has called waits."""
        self._world.sleep(seconds)

    def travel(self) -> None:
        """A request, or its answer, is on its way; it is given up where nobody takes it for long."""
        ends = self._world.now + TIMEOUT_S
        self._world.sleep(self._world.between(*TRAVEL_S))
        self.held += self.away
        while self.away:
            if self._world.now >= ends:
                self.refused += 1
                raise trouble()
            self._world.sleep(0.5)


class Client:
    """A client whose calls take time; what is under way when its process ends stays so until the next one comes up."""

    def __init__(self, client: Any, brokers: Brokers) -> None:
        self._client, self._brokers = client, brokers

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return partial(self._asked, call) if name in ASKED else call

    def _asked(self, call: Any, *arguments: Any, **named: Any) -> Any:
        brokers = self._brokers
        brokers.travel()
        if brokers.fails():
            brokers.faults.append(brokers.dice.choice(["unheard", "done", "prepared"]))
        answer = call(*arguments, **named)
        brokers.travel()
        return answer


class KafkaCluster(Cluster):
    """A cluster whose topology has brokers."""

    def __init__(self, world: World, *more: Any) -> None:
        super().__init__(world, *more)
        self.brokers = Brokers(self)
        self.readers = Readers(self, self.breaks)
        self.spans: dict[tuple[str, int], Range] = {}
        """By source partition and batch, what was read."""
        RecordedLogs.topics = self.brokers.topics

    def reads(self, place: Place, batch: int, span: Range) -> None:
        """A batch is the same offsets each time."""
        if (before := self.spans.setdefault((place.partition, batch), span)) != span:
            self.breaks("E1", f"batch {batch} of {place.partition} is {span} in place of {before}")


def brokers_away(cluster: Cluster, fault: Fault) -> bool:
    """Nobody answers for a while."""
    assert isinstance(cluster, KafkaCluster)
    cluster.brokers.away = True
    cluster.world.note("the brokers are away")
    cluster.world.call(fault.seconds, partial(setattr, cluster.brokers, "away", False))
    return True


def brokers_unsure(cluster: Cluster, fault: Fault) -> bool:
    """For a while a third of all calls fail: some were not heard, some were carried out, some commits are to be finished by
    whoever comes next."""
    assert isinstance(cluster, KafkaCluster)
    cluster.brokers.unsure = 0.3
    cluster.world.call(fault.seconds, partial(setattr, cluster.brokers, "unsure", 0.0))
    return True


@contextmanager
def with_brokers(**more: Callable[[Cluster, Fault], bool]) -> Iterator[list[KafkaCluster]]:
    """Runs within have brokers, faults of these, and `more` kinds of faults, by names with `_` in place of `-`; all clusters
    that ran.  What a test replaces within must be put back before this ends."""
    seen: list[KafkaCluster] = []
    named = {name.replace("_", "-"): kind for name, kind in more.items()}

    def made(*of: Any) -> KafkaCluster:
        seen.append(KafkaCluster(*of))
        return seen[-1]

    read = KafkaSource.read

    def noted(source: KafkaSource, place: Place, batch: int, span: Range) -> pa.Table:
        seen[-1].reads(place, batch, span)
        return read(source, place, batch, span)

    def client(kind: type, *settings: Any) -> Client:
        brokers = seen[-1].brokers
        return Client(kind(brokers, *settings), brokers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "Cluster", made)
        patch.setattr(schedule, "Checks", KafkaChecks)
        patch.setattr(
            faults,
            "KINDS",
            {**KINDS, "brokers-away": brokers_away, "brokers-unsure": brokers_unsure, **named},
        )
        patch.setattr(transactions, "Producer", partial(client, Producer))
        patch.setattr(transactions, "Consumer", partial(client, Consumer))
        patch.setattr(transactions, "AdminClient", lambda _: client(Admin))
        patch.setattr(KafkaSource, "read", noted)
        patch.setattr(logs, "AdminClient", lambda _: AskingClient(seen[-1].brokers))
        patch.setattr(reader, "Consumer", lambda _: ReadingClient(seen[-1].brokers))
        yield seen
