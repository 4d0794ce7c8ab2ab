"""Reads ranges of offsets in an executor: the same messages each time, never more memory than was set.

A range is complete for a log when a message at or behind its end has come, or when the log ends there: offsets alone do
not tell, for the markers of transactions and compacted messages take offsets too.  Reading never blocks for long; what has
come stays here until the rest has, so that partitions of the same node whose brokers are well go on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from reprise.spark_jobs.errors import DataPlaneError, NotYetError, SourceError
from reprise.spark_jobs.kafka.heard import Heard
from reprise.spark_jobs.kafka.logs import TopicIds, created_again, log_name, reason, split_name
from reprise.spark_jobs.kafka.settings import SecretError, Settings
from reprise.spark_jobs.platform import PLATFORM

PATIENCE_S = 0.15
"""How long one attempt at a range may take."""
ALARM_S = 5.0
"""After so long without the rest of a range it is worth a report."""
CHUNK = 20_000
"""Messages taken from the client at once."""
DEFAULTS: Mapping[str, str | int] = {
    "queued.max.messages.kbytes": 16_384,  # of one source partition; librdkafka's own default is 64 MiB
    "fetch.queue.backoff.ms": 20,  # its default of a second would show as latency whenever that memory was full
    "fetch.wait.max.ms": 50,
    "isolation.level": "read_committed",
}

Spans = Mapping[str, tuple[int, int]]


class OffsetsLostError(DataPlaneError):
    """Offsets that were written ahead are gone from the broker: retention, or a topic that was deleted and created again."""


@dataclass(slots=True)
class _Log:
    """One log: the next offset to hand out, what has come beyond, the offset behind that, and whether the log is known to
    end at an offset."""

    handed: int
    kept: list[Message] = field(default_factory=list)
    reached: int = 0
    ends_at: int = -1

    def complete(self, end: int) -> bool:
        return self.ends_at >= end or (bool(self.kept) and _offset(self.kept[-1]) >= end - 1)

    def empty(self, end: int) -> bool:
        return self.ends_at >= end and not (self.kept and _offset(self.kept[0]) < end)

    def next(self) -> int:
        return max(self.handed, self.reached, self.ends_at)

    def take(self, end: int) -> list[Message]:
        """Messages below `end`."""
        count = bisect_left(self.kept, end, key=_offset)
        found = self.kept[:count]
        del self.kept[:count]
        self.handed = end
        return found


class Reader:
    """The logs of one source partition."""

    def __init__(
        self,
        clusters: Sequence[str],
        settings: Settings,
        *,
        name: str,
        skip_lost: bool,
        standby_after_s: float,
        elapsed: Callable[[], float] = PLATFORM.elapsed,
    ) -> None:
        """`elapsed`: seconds that only grow."""
        self._clusters, self._settings, self._name = clusters, settings, name
        self._skip_lost, self._standby_after_s = skip_lost, standby_after_s
        self._elapsed, self._cluster = elapsed, 0
        self._consumer: Consumer | None = None
        self._logs: dict[str, _Log] = {}
        self._paused: set[str] = set()
        self._since: float | None = None
        self._trouble = ""
        self._heard = Heard()
        self._asked: TopicIds | None = None
        self._ids: dict[str, str] = {}
        """Of the topics that are read, as the primary cluster has reported them; empty for one without an id."""
        self.notices: list[str] = []

    def read(self, spans: Spans, ids: Mapping[str, str] | None = None) -> dict[str, list[Message]]:
        """Messages by log, in order of their offsets, for ranges [start, end) that are not empty.  `ids`: of the topics of
        which these are offsets (`Range.ids`).

        NotYetError: some are on their way.  SourceError: they have been for long, and why.  OffsetsLostError.
        """
        now = self._elapsed()
        self._since = self._since or now
        try:
            self._prepare(spans)
            self._compare(spans, ids or {})
            waiting = self._poll(spans, now + PATIENCE_S)
        except TimeoutError:
            waiting = list(spans)
        except (KafkaException, SecretError) as error:
            self._trouble = self._settings.clean(reason(error))
            waiting = list(spans)
        if waiting:
            self._complain(waiting)
        self._since, self._trouble = None, ""
        self._heard.forget()
        return {log: self._logs[log].take(end) for log, (_, end) in sorted(spans.items())}

    def close(self) -> None:
        """Leave the brokers."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self._forget_ids()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _prepare(self, spans: Spans) -> None:
        """Let the client fetch from where these ranges begin; it goes on by itself behind them."""
        moved = self._consumer is None
        for log, (start, _) in spans.items():
            known = self._logs.get(log)
            if known is None or known.handed != start:
                self._logs[log] = _Log(start)
                moved = True
        if self._consumer is None:
            self._consumer = self._open()
        if moved:
            self._forget_ids()  # a replay begins
            self._assign(self._consumer)
            return
        # one that has its range already stays held back, however often the others are asked for in vain
        short = [log for log in self._paused & spans.keys() if not self._logs[log].complete(spans[log][1])]
        if short:
            self._consumer.resume([TopicPartition(*split_name(log)) for log in short])
            self._paused.difference_update(short)

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(*split_name(log), state.next()) for log, state in self._logs.items()])
        self._paused.clear()

    def _open(self) -> Consumer:
        fixed = {
            "group.id": f"reprise-reader-{self._name}",  # never joined or committed to; the client wants a name
            "client.id": f"reprise-{self._name}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self._heard,
        }
        return Consumer(self._settings.resolve(self._clusters[self._cluster], fixed))

    def _forget_ids(self) -> None:
        self._asked = None
        self._ids.clear()

    def _compare(self, spans: Spans, ids: Mapping[str, str]) -> None:
        """Discard ranges of topics that were deleted and created again.  TimeoutError: no answer yet."""
        read = {split_name(log)[0] for log in spans} & ids.keys()
        if self._cluster > 0 or not read:
            return
        if read - self._ids.keys() or self._again(spans, ids):
            self._ids.clear()  # what was reported earlier may be out of date
            if self._asked is None or not self._asked.topics >= read:
                self._asked = TopicIds(self._clusters[0], self._settings, read)
            try:
                self._ids |= dict.fromkeys(read, "") | self._asked.result(PATIENCE_S)
            except KafkaException:
                self._asked = None
                raise
            self._asked = None
        for log in self._again(spans, ids):
            start, end = spans[log]
            what = f"{log}: the topic was deleted and created again, offsets {start} to {end} are gone"
            if not self._skip_lost:
                raise OffsetsLostError(f"{what}; `on_offsets_lost: earliest` goes on without them")
            self.notices.append(f"{what}; {end - start} offsets are left out")
            self._logs[log].kept.clear()
            self._logs[log].ends_at = end

    def _again(self, spans: Spans, ids: Mapping[str, str]) -> list[str]:
        """Logs of such topics, but those that are known to have no rows of the range."""
        left = [log for log, (_, end) in spans.items() if not self._logs[log].empty(end)]
        return [log for log in left if created_again(log, ids, self._ids)]

    def _poll(self, spans: Spans, deadline: float) -> list[str]:
        assert self._consumer is not None
        while waiting := [log for log, (_, end) in spans.items() if not self._logs[log].complete(end)]:
            left = deadline - self._elapsed()
            if left <= 0:
                return waiting
            self._keep(self._consumer.consume(CHUNK, min(left, 0.02)), spans)
            self._hold_back(waiting)
        return []

    def _keep(self, messages: Iterable[Message], spans: Spans) -> None:
        """Messages, and what the client reports of logs.  Each message of a stream passes here, so little is done for it."""
        states: dict[tuple[str | None, int | None], _Log | None] = {}
        for message in messages:
            if (error := message.error()) is not None:
                self._reported(message, error, spans)
                continue
            place = message.topic(), message.partition()
            if place not in states:
                states[place] = self._logs.get(_log_of(message))
            state, offset = states[place], message.offset()
            if state is not None and offset is not None and offset >= state.next():
                state.kept.append(message)
                state.reached = offset + 1

    def _reported(self, message: Message, error: KafkaError, spans: Spans) -> None:
        log = _log_of(message)
        state = self._logs.get(log)
        if state is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            state.ends_at = max(state.ends_at, _offset(message))
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._lost(log, state, spans.get(log))
        else:
            self._trouble = self._settings.clean(f"{log}: {error.str()} ({error.name()})")

    def _lost(self, log: str, state: _Log, span: tuple[int, int] | None) -> None:
        assert self._consumer is not None
        first, end = self._consumer.get_watermark_offsets(TopicPartition(*split_name(log)), timeout=5.0)
        wanted = state.next()
        if wanted > end and self._cluster > 0:
            raise SourceError(
                f"{log}: the standby cluster ends at offset {end}, offset {wanted} is not there yet"
            )
        what = f"{log}: offsets from {wanted} are gone, the log now has {first} to {end}"
        if span is None:
            state.ends_at = -1
            return
        if not self._skip_lost:
            raise OffsetsLostError(f"{what}; `on_offsets_lost: earliest` goes on without them")
        begin = first if first > wanted else span[1]
        self.notices.append(f"{what}; {min(begin, span[1]) - wanted} offsets are left out")
        state.ends_at = min(begin, span[1])
        self._assign(self._consumer)

    def _hold_back(self, waiting: Sequence[str]) -> None:
        """A log that has come far beyond its range makes room for those that are waited for."""
        assert self._consumer is not None
        for log, state in self._logs.items():
            if log not in waiting and len(state.kept) > CHUNK and log not in self._paused:
                self._consumer.pause([TopicPartition(*split_name(log))])
                self._paused.add(log)

    def _complain(self, waiting: Sequence[str]) -> None:
        waited = self._elapsed() - (self._since or 0.0)
        if waited >= self._standby_after_s and len(self._clusters) > 1:
            self._switch()
        if waited < ALARM_S:
            raise NotYetError(f"waiting for {', '.join(waiting)}")
        said = f"rows of {', '.join(waiting)} have not come from {self._clusters[self._cluster]} for {waited:.0f} s"
        said += f": {self._trouble}" if self._trouble else ""
        raise SourceError(self._settings.clean(self._heard.beside(said)))

    def _switch(self) -> None:
        """The next cluster of the list; what has come from the one before stays."""
        old = self._clusters[self._cluster]
        self._cluster = (self._cluster + 1) % len(self._clusters)
        self.notices.append(f"reading goes on from {self._clusters[self._cluster]}: {old} does not answer")
        self.close()
        self._since = None
        raise NotYetError("another cluster is asked")


def _log_of(message: Message) -> str:
    return log_name(message.topic() or "", message.partition() or 0)


def _offset(message: Message) -> int:
    found = message.offset()
    return -1 if found is None else int(found)
