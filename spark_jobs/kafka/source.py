"""The Kafka source: batches are ranges of offsets, written ahead by the driver and read by the executors.

Which offsets a batch has is decided once, from what the brokers say when it is due (`plan`); from then on a batch is its
offsets, and Kafka keeps what is below the last stable offset as it is.  Offsets are kept with the checkpoints and nowhere
else; a consumer group only gets a copy, for tools that show lag.  Invariants: no offset between the first and the last is
left out without an error or a notice, and what a batch's rows and watermark are follows from its ranges alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException, Message

from reprise.spark_jobs.column_types import parse_columns
from reprise.spark_jobs.contract import Columns, Place, Range, Source, SourcePart, Tables
from reprise.spark_jobs.errors import SourceError, SpecError
from reprise.spark_jobs.kafka import reader
from reprise.spark_jobs.kafka.dead_letters import DeadLetters
from reprise.spark_jobs.kafka.decode import decode, given_for, make_decoder
from reprise.spark_jobs.kafka.event_time import Clock, Seen, parse_clock, together, wrong_times
from reprise.spark_jobs.kafka.logs import (
    Commits,
    Logs,
    Snapshot,
    created_again,
    reader_of,
    reason,
    split_name,
)
from reprise.spark_jobs.kafka.reader import Reader
from reprise.spark_jobs.kafka.settings import (
    CONSUMER_OWN,
    PRODUCER_OWN,
    SecretError,
    parse_clusters,
    parse_settings,
    shared,
)
from reprise.spark_jobs.kafka.shares import shares
from reprise.spark_jobs.operators.frames import END_OF_TIME, IDLE, ColumnError
from reprise.spark_jobs.operators.parameters import choice, duration_us, fail_or, names, whole
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.topology.columns import require

METADATA = ("key", "topic", "partition", "offset", "timestamp")


class KafkaSource(Source):
    """Rows of the messages of some topics; parameters in docs/kafka.md.

    `until` (log -> offset) makes a bounded source of it: only those logs are read, and it ends there.
    """

    live: ClassVar[bool] = True
    gives_up: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "on_offsets_lost": {"earliest": "messages that Kafka has removed are left out"},
        "on_bad_record": {
            "skip": "messages that cannot be read are left out",
            "dead-letter": "messages that cannot be read go to another topic",
        },
    }

    def __init__(
        self,
        *,
        brokers: str | Sequence[str],
        topics: Sequence[str] = (),
        pattern: str | None = None,
        format: str = "json",
        columns: Mapping[str, str] | None = None,
        avro: Mapping[str, Any] | None = None,
        json: Mapping[str, Any] | None = None,
        protobuf: Mapping[str, Any] | None = None,
        metadata: Sequence[str] = (),
        time: Mapping[str, Any] | None = None,
        start: str = "earliest",
        until: Mapping[str, int] | None = None,
        batch_rows: int = 100_000,
        rate: int | None = None,
        on_offsets_lost: str = "fail",
        on_bad_record: str = "fail",
        dead_letters: str | None = None,
        group: str | None = None,
        discover: str = "30s",
        standby_after: str = "10s",
        config: Mapping[str, Any] | None = None,
        dead_letter_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.clusters = parse_clusters(brokers)
        self.topics, self.pattern = _subscription(topics, pattern)
        self.settings = parse_settings(config, "config", CONSUMER_OWN, reader.DEFAULTS, producer=False)
        schema = parse_columns(columns)
        given = given_for(format, {"avro": avro, "json": json, "protobuf": protobuf})
        self.decoder = make_decoder(format, schema, given)
        self.columns: Columns = (
            ("value",) if format == "raw" else None if schema is None else tuple(schema.names)
        )
        self.metadata = tuple(choice(name, "metadata", METADATA) for name in names(metadata, "metadata"))
        self.clock: Clock = parse_clock(time)
        of_time = () if self.clock.column == "time" else ("time",)
        self._added = (*(f"kafka_{name}" for name in self.metadata), *of_time)
        if taken := self._taken(self.columns or ()):
            raise SpecError(f"columns.{taken}", _TAKEN)
        if self.clock.column is not None:
            require(self.output_columns(), [self.clock.column], "time.column")
        self.start = choice(start, "start", ("earliest", "latest"))
        self.until = None if until is None else {str(k): whole(v, f"until.{k}", 0) for k, v in until.items()}
        self.batch_rows = whole(batch_rows, "batch_rows")
        self.rate = None if rate is None else whole(rate, "rate")
        self.skip_lost = fail_or(on_offsets_lost, "on_offsets_lost", KafkaSource.gives_up) == "earliest"
        self.on_bad_record = fail_or(on_bad_record, "on_bad_record", KafkaSource.gives_up)
        if (self.on_bad_record == "dead-letter") != (dead_letters is not None):
            raise SpecError(
                "dead_letters", "names the topic for `on_bad_record: dead-letter`; give both or none"
            )
        self.dead_letters = dead_letters
        self.dead_letter_settings = parse_settings(
            dead_letter_config if dead_letter_config is not None else shared(config or {}),
            "dead_letter_config", PRODUCER_OWN, {}, producer=True,
        )  # fmt: skip
        self.group = group
        self.discover_s = duration_us(discover, "discover") / 1e6
        self.standby_after_s = duration_us(standby_after, "standby_after") / 1e6
        self._platform = PLATFORM
        self._logs: Logs | None = None
        self._commits: Commits | None = None
        self._planned: dict[str, float] = {}
        self._reader: Reader | None = None
        self._dead_letters: DeadLetters | None = None
        self._newest: tuple[int, Mapping[str, int]] = (0, {})
        self._notices: list[str] = []

    def output_columns(self) -> Columns:
        if self.columns is None:
            return None
        return (*self.columns, *self._added)

    def _taken(self, columns: Sequence[str]) -> str | None:
        """A column of messages whose name the source gives to one of its own."""
        return next((name for name in self._added if name in columns), None)

    def runs_on(self, platform: Platform) -> None:
        self._platform = platform

    # -- in the driver -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        if self._logs is None:
            committed = self.settings.values.get("isolation.level") != "read_uncommitted"
            self._logs = Logs(
                self.clusters, self.settings, self.topics, self.pattern, committed=committed,
                discover_s=self.discover_s, standby_after_s=self.standby_after_s, platform=self._platform,
            )  # fmt: skip
        self._logs.look()

    def plan(self, place: Place, batch: int, before: Range) -> Range | None:
        """Raises SourceError, by the choice `on_offsets_lost: fail`, when offsets are gone."""
        if self._logs is None or self._logs.snapshot is None:
            self.look()
        assert self._logs is not None
        assert self._logs.snapshot is not None
        now = self._logs.snapshot
        bounds = {
            log: self._bounds(log, batch, before, now)
            for log in sorted({*now.ends, *before.logs, *(self.until or ())})
            if reader_of(log, place.parallelism) == place.index and (self.until is None or log in self.until)
        }
        if self.until is not None and all(begin >= self.until[log] for log, (begin, _) in bounds.items()):
            return None
        taken = shares({log: end - begin for log, (begin, end) in bounds.items()}, self._room(place))
        logs = {log: (begin, begin + taken[log]) for log, (begin, _) in bounds.items()}
        return Range(
            before.end, before.end + sum(taken.values()), logs, _ids({**before.ids, **now.ids}, logs)
        )

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        raise NotImplementedError("a Kafka source plans several logs at once")

    def stored(self, place: Place, upto: Range) -> None:
        if self.group is None or not upto.logs:
            return
        try:
            self._commits = self._commits or Commits(self.clusters[0], self.settings, self.group)
            self._commits.commit({log: end for log, (_, end) in upto.logs.items()})
        except (KafkaException, SecretError) as error:  # nothing depends on it but displays
            why = self.settings.clean(reason(error))
            self._notices.append(f"offsets are not committed to group {self.group}: {why}")

    def _room(self, place: Place) -> int:
        """Messages that the next batch may have: the rate since the batch before, of at most a second."""
        if self.rate is None:
            return self.batch_rows
        now = self._platform.elapsed()
        since = now - self._planned.get(place.partition, now - 1.0)
        self._planned[place.partition] = now
        return max(1, min(self.batch_rows, round(self.rate * min(since, 1.0))))

    def _bounds(self, log: str, batch: int, before: Range, now: Snapshot) -> tuple[int, int]:
        """Where the next batch begins to read a log, and how far it may read at most."""
        known = before.logs.get(log)
        if log not in now.ends:
            return self._vanished(log, known)
        first, end = now.begins[log], now.ends[log]
        if known is None:
            start = end if self.start == "latest" and batch == 1 else first
        else:
            start = known[1]
            if start > end and now.cluster > 0:
                raise SourceError(f"{log}: the standby cluster ends at {end}, before offset {start}")
            again = created_again(log, before.ids, now.ids)
            if again or not first <= start <= end:
                start = self._lost(log, start, first, end, again)
        limit = end if self.until is None else min(end, self.until[log])
        return start, max(start, limit)

    def _vanished(self, log: str, known: tuple[int, int] | None) -> tuple[int, int]:
        if known is None or not self.skip_lost:
            raise SourceError(f"{log}: the topic is gone; `on_offsets_lost: earliest` goes on without it")
        return known[1], known[1]

    def _lost(self, log: str, start: int, first: int, end: int, again: bool) -> int:
        what = f"{log}: the next offset is {start}, but the log now has {first} to {end}"
        cut = "retention has removed what lies between" if first > start else "the log was cut"
        why = "the topic was deleted and created again" if again else cut
        if not self.skip_lost:
            raise SourceError(f"{what}: {why}; `on_offsets_lost: earliest` goes on from {first}")
        self._notices.append(f"{what}: {why}; going on from {first}")
        return first

    # -- in the executors ----------------------------------------------------------------------------------------------

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if self._reader is None:
            self._reader = Reader(
                self.clusters, self.settings, name=place.partition, skip_lost=self.skip_lost,
                standby_after_s=self.standby_after_s, elapsed=self._platform.elapsed,
            )  # fmt: skip
        spans = {log: pair for log, pair in span.logs.items() if pair[1] > pair[0]}
        by_log: dict[str, list[Message]] = {}
        bad: list[tuple[Message, str]] = []
        for log, found in self._reader.read(spans, span.ids).items():
            by_log[log] = [m for m in found if m.value() is not None]
            if self.clock.needs_sent or "timestamp" in self.metadata:
                untimed = wrong_times(by_log[log])
                bad += [(by_log[log][i], why) for i, why in untimed.items()]
                by_log[log] = [m for i, m in enumerate(by_log[log]) if i not in untimed]
        messages = [m for found in by_log.values() for m in found]
        decoded = decode(self.decoder, [m.value() or b"" for m in messages])
        if bad := bad + [(messages[i], why) for i, why in decoded.bad.items()]:
            self._set_aside(place, bad)
        if taken := self._taken(decoded.table.column_names):
            raise ColumnError(f"messages have a column {taken!r}; {_TAKEN}")
        table = self._with_metadata(decoded.table, messages, decoded.rows)
        table, newest, ahead = self.clock.stamp(table, by_log, decoded.rows)
        if ahead:
            self._notices.append(
                f"{ahead} rows of batch {batch} are ahead of their message's time; no window waits for them"
            )
        self._newest = (batch, newest)
        return table

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        raise NotImplementedError("the watermark of a Kafka source depends on what was read before")

    def initial(self, place: Place) -> Seen:
        return Seen()

    def follow(
        self, place: Place, state: Seen, batch: int, span: Range, table: pa.Table | None
    ) -> tuple[Seen, int | None]:
        newest = self._newest[1] if self._newest[0] == batch and table is not None else {}
        seen = state.after(batch, newest, self.clock)
        if self.until is not None and all(end >= self.until[log] for log, (_, end) in span.logs.items()):
            return seen, END_OF_TIME
        return seen, IDLE if seen.idle(batch, span.logs, self.clock) else seen.watermark

    def freeze(self, state: Seen) -> Callable[[], Tables]:
        return state.tables

    def restore(self, place: Place, tables: Tables) -> Seen:
        return Seen.of(tables)

    def repartition(
        self, operator: str, parts: Sequence[SourcePart], parallelism: int
    ) -> Sequence[SourcePart]:
        """Each log goes, with its offset and the times that were seen of it, to the partition that reads it from now on."""
        ends = {log: end for part in parts for log, (_, end) in part.upto.logs.items()}
        ids = {topic: known for part in parts for topic, known in part.upto.ids.items()}
        reading = [part for part in parts if part.upto.logs]  # the others were idle
        seen = together([Seen.of(part.tables) if part.tables is not None else Seen() for part in reading])
        found = []
        for index in range(parallelism):
            mine = sorted(log for log in ends if reader_of(log, parallelism) == index)
            count = sum(part.upto.end for part in parts) if index == 0 else 0
            upto = Range(count, count, {log: (ends[log], ends[log]) for log in mine}, _ids(ids, mine))
            found.append(SourcePart(upto, seen.of_logs(mine).tables()))
        return found

    def notices(self) -> list[str]:
        found, self._notices = self._notices, []
        if self._reader is not None:
            found += self._reader.notices
            self._reader.notices = []
        return found

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def _set_aside(self, place: Place, bad: list[tuple[Message, str]]) -> None:
        first, why = bad[0]
        where = f"{first.topic()}/{first.partition()} offset {first.offset()}"
        if self.on_bad_record == "fail":
            raise ValueError(f"message {where} cannot be read ({len(bad)} in this batch): {why}")
        if self.on_bad_record == "skip":
            self._notices.append(f"{len(bad)} messages were left out, the first {where}: {why}")
            return
        assert self.dead_letters is not None
        if self._dead_letters is None:
            self._dead_letters = DeadLetters(self.clusters[0], self.dead_letter_settings, self.dead_letters)
        self._dead_letters.send(place.partition, bad)
        self._notices.append(
            f"{len(bad)} messages went to topic {self.dead_letters}, the first {where}: {why}"
        )

    def _with_metadata(self, table: pa.Table, messages: Sequence[Message], rows: Any) -> pa.Table:
        for name in self.metadata:
            values = pa.array([_METADATA[name](m) for m in messages], _METADATA_TYPES[name])
            index = pa.array(np.repeat(np.arange(len(messages)), rows))
            table = table.append_column(f"kafka_{name}", values.take(index))
        return table


_TAKEN = (
    "the source adds a column of this name: rename the one of messages, or leave `metadata` of that name out; "
    "`time: {column: time}` takes event times from a column `time`"
)
_METADATA: Mapping[str, Callable[[Message], Any]] = {
    "key": lambda m: m.key(),
    "topic": lambda m: m.topic(),
    "partition": lambda m: m.partition(),
    "offset": lambda m: m.offset(),
    "timestamp": lambda m: m.timestamp()[1] * 1000,
}
_METADATA_TYPES = {
    "key": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.int64(),
}  # fmt: skip


def _ids(known: Mapping[str, str], logs: Iterable[str]) -> dict[str, str]:
    """The ids of the topics of these logs."""
    topics = {split_name(log)[0] for log in logs}
    return {topic: known[topic] for topic in sorted(topics & known.keys())}


def _subscription(topics: Sequence[str], pattern: str | None) -> tuple[tuple[str, ...], str | None]:
    found = names(topics, "topics")
    if bool(found) == (pattern is not None):
        raise SpecError("topics", "give either `topics` or `pattern`")
    return found, pattern
