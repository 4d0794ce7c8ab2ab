"""The Kafka sink: an output partition's batches in transactions, each exactly once for readers of committed messages.

A thread of its own writes what the partition hands over, all that waits in one transaction: a slow broker does not stop the
other partitions of the node, and catching up costs few transactions.  Invariants: `visible` only names batches whose
transaction was committed, or that have no rows while the marker is there; what waits is bounded by `buffer`; and one sink's
thread is the only user of its session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from polars.exceptions import PanicException

from reprise.spark_jobs.errors import (
    DataPlaneError,
    FencedError,
    NotYetError,
    SinkError,
    SpecError,
    StepError,
)
from reprise.spark_jobs.kafka import transactions
from reprise.spark_jobs.kafka.decode import given_for
from reprise.spark_jobs.kafka.encode import Encoder, Keyed, deletions, keys, make_encoder, upserts
from reprise.spark_jobs.kafka.settings import PRODUCER_OWN, parse_clusters, parse_settings
from reprise.spark_jobs.kafka.transactions import Headers, Session, TooLargeError, Written
from reprise.spark_jobs.operators.parameters import choice, fail_or, names, truth
from reprise.spark_jobs.platform import PLATFORM, Running
from reprise.spark_jobs.sinks import Opening, Sink
from reprise.spark_jobs.sinks.files import WHY_OTHER_ROWS
from reprise.spark_jobs.topology.quantity import parse_bytes

MESSAGE_BYTES = 1_000_000
"""librdkafka's default of `message.max.bytes`."""
OVERHEAD = 512
"""What librdkafka counts beside key and value, at most."""
GAP = ("reprise-gap", "rows may be missing")
"""Header of what is written of a batch that may lack rows, and of its message on the topic of gaps."""
MARK_S = 0.2
"""So long a batch waits for its mark before the host turns to other partitions; brokers at rest answer earlier."""
LONGEST_PAUSE_S = 5.0
ALARM_S = 5.0
"""After so long without an answer from the brokers it is worth a report."""


class KafkaSink(Sink):
    """Writes to one topic; parameters in docs/kafka.md."""

    needs_to_mark = "`gaps`, the name of a topic, and `mode: append`"
    gives_up: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "on_too_large": {"dead-letter": "rows that no message holds go to another topic, cut off"},
        "on_marker_lost": {"continue": "batches behind the checkpoint may be written twice"},
    }

    def __init__(
        self,
        *,
        brokers: str,
        topic: str,
        format: str = "json",
        key: Sequence[str] = (),
        avro: Mapping[str, Any] | None = None,
        json: Mapping[str, Any] | None = None,
        protobuf: Mapping[str, Any] | None = None,
        mode: str = "append",
        delete: str | None = None,
        headers: bool = False,
        on_too_large: str = "fail",
        dead_letters: str | None = None,
        gaps: str | None = None,
        on_marker_lost: str = "fail",
        prefix: str = "reprise.",
        buffer: str | int = "16Mi",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.brokers = parse_clusters([brokers])[0]
        if not isinstance(topic, str) or not topic:
            raise SpecError("topic", f"expected a name, found {topic!r}")
        self.topic = topic
        given = given_for(format, {"avro": avro, "json": json, "protobuf": protobuf})
        self.encoder: Encoder = make_encoder(format, given)
        self.key = names(key, "key")
        self.upsert = choice(mode, "mode", ("append", "upsert")) == "upsert"
        self.delete = delete
        if self.upsert and not self.key:
            raise SpecError("key", "is required for mode upsert")
        if self.key and not self.encoder.whole_rows:
            raise SpecError("key", f"format {format} puts many rows into a message, so messages have no keys")
        if delete is not None and not self.upsert:
            raise SpecError("delete", "is for mode upsert")
        self.headers = truth(headers, "headers")
        self.divert = fail_or(on_too_large, "on_too_large", KafkaSink.gives_up) == "dead-letter"
        if self.divert != (dead_letters is not None):
            raise SpecError(
                "dead_letters", "names the topic for `on_too_large: dead-letter`; give both or none"
            )
        self.dead_letters = dead_letters
        self.gaps = _gaps_of(gaps, (topic, dead_letters), self.upsert)
        self.marks = self.gaps is not None
        self.go_on = fail_or(on_marker_lost, "on_marker_lost", KafkaSink.gives_up) == "continue"
        self.prefix = prefix
        self.settings = parse_settings(config, "config", PRODUCER_OWN, transactions.DEFAULTS, producer=True)
        self.limit = int(str(self.settings.values.get("message.max.bytes", MESSAGE_BYTES))) - OVERHEAD
        try:
            self.buffer = parse_bytes(str(buffer))
        except ValueError as error:
            raise SpecError("buffer", str(error)) from None
        self._platform = PLATFORM
        self._state = self._platform.condition()
        self._waiting: deque[tuple[int, pa.Table | None]] = deque()
        self._taken = 0
        """The last batch that was accepted; it is not accepted a second time, whoever asks."""
        self._marking: set[int] = set()
        """Batches that are to be marked."""
        self._gaps: set[int] = set()
        """Those that are, and were not written here yet: no replay of them is compared."""
        self._bytes = 0
        self._shown: list[tuple[int, float]] = []
        self._since = self._platform.elapsed()
        """When the thread began with what waits now."""
        self._marked = False
        """Whether the marker is there and young enough for batches without rows to need no transaction."""
        self._trouble: str | None = None
        self._end: FencedError | StepError | None = None
        self._closed = False
        self._thread: Running | None = None

    # -- for the partition ---------------------------------------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        super().open(opening)
        self._place, self._platform = opening.place, opening.platform
        self._state, self._since = self._platform.condition(), self._platform.elapsed()
        self._session = Session(
            self.brokers,
            self.settings,
            name=f"{self.prefix}{opening.topology}.{opening.place.operator}.{opening.place.index}",
            topic=self.topic,
            letters=self.dead_letters,
            gaps=self.gaps,
            owner=opening.owner,
            position=opening.position if opening.position > opening.begins else 0,
            go_on_without_marker=self.go_on,
            compacted=self.upsert,
            elapsed=self._platform.elapsed,
        )

    def write(self, batch: int, table: pa.Table | None) -> None:
        with self._state:
            self._raise_end()
            if batch <= self._taken:
                return
            if self._marked and not self._waiting and (table is None or table.num_rows == 0):
                self.visible = batch
                self._shown.append((batch, self._platform.wall()))
                self._marked = not self._session.stale
                self._taken = batch
                self._gaps.discard(batch)
                return
            size = 0 if table is None else table.nbytes
            if self._waiting and self._bytes + size > self.buffer:
                raise SinkError(self._trouble) if self._trouble else NotYetError("the sink's buffer is full")
            self._waiting.append((batch, table))
            self._taken = batch
            self._bytes += size
            self._wake()

    def mark(self, batch: int) -> None:
        """A message on the topic of gaps, which is committed before the batch may be written; NotYetError until it is."""
        with self._state:
            self._raise_end()
            if batch in self._gaps:
                return
            self._marking.add(batch)
            self._wake()
            self._state.wait_for(lambda: batch in self._gaps or self._end or self._trouble, MARK_S)
            self._raise_end()
            if batch not in self._gaps:
                raise (
                    SinkError(self._trouble)
                    if self._trouble
                    else NotYetError("the brokers have not taken the mark of a gap yet")
                )

    def _wake(self) -> None:
        """The thread has something to do."""
        if self._thread is None:
            self._thread = self._platform.begin(self._write_forever, "kafka sink")
        self._state.notify_all()

    def settle(self, patience_s: float) -> str | None:
        with self._state:
            self._state.wait_for(
                lambda: not (self._waiting or self._marking) or self._end or self._trouble, patience_s
            )
            self._raise_end()
            if not (self._waiting or self._marking):
                return None
            waited = self._platform.elapsed() - self._since
            if self._trouble is None and waited > ALARM_S:
                first = min([*self._marking, *(batch for batch, _ in self._waiting)])
                return f"brokers {self.brokers} have not taken batch {first} for {waited:.0f} s"
            return self._trouble

    def shown(self) -> list[tuple[int, float]]:
        with self._state:
            found, self._shown = self._shown, []
            return found

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()

    def _raise_end(self) -> None:
        if self._end is not None:
            raise self._end

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _write_forever(self) -> None:
        pause = 0.0
        while True:
            with self._state:
                if pause:
                    self._state.wait_for(lambda: self._closed, pause)
                self._state.wait_for(lambda: self._closed or self._waiting or self._marking)
                if self._closed:
                    break
                taken, marking = list(self._waiting), sorted(self._marking)
                self._since = self._platform.elapsed()
            try:
                if taken:
                    self._write(taken)
                if marking:
                    self._mark(marking)
                pause = 0.0
            except SinkError as error:
                pause = min(max(2 * pause, 0.2), LONGEST_PAUSE_S)
                self._set(trouble=str(error))
            except (FencedError, StepError) as error:
                self._set(end=error)
                break
            except (Exception, PanicException) as error:  # a fault in here
                place = self._place
                first = min([*marking, *(batch for batch, _ in taken)])
                self._set(end=StepError(place.operator, place.partition, first, error))
                break
        self._session.drop()

    def _set(self, trouble: str | None = None, end: FencedError | StepError | None = None) -> None:
        with self._state:
            self._trouble, self._end = trouble, end
            self._state.notify_all()

    def _mark(self, batches: Sequence[int]) -> None:
        """All of them in one transaction."""
        self._session.open()
        self._session.mark(batches, lambda batch: [*self._about(batch), GAP])
        with self._state:
            self._gaps.update(batches)
            self._marking.difference_update(batches)
            self._trouble = None
            self._state.notify_all()

    def _write(self, taken: Sequence[tuple[int, pa.Table | None]]) -> None:
        """One transaction with all batches that are not there yet."""
        marker = self._session.open()
        encoded = [self._encode_or_name(batch, table) for batch, table in taken]
        for written in encoded:
            if written.batch not in self._gaps and marker.differs(written):
                raise _DifferentError(
                    f"batch {written.batch} was written before with other rows: {WHY_OTHER_ROWS}"
                )
        fresh = [w for w in encoded if w.batch > marker.batch and (w.messages or w.letters)]
        if fresh or self._session.stale:
            self._session.write(fresh)
        now = self._platform.wall()
        with self._state:
            for batch, table in taken:
                self._waiting.popleft()
                self._bytes -= 0 if table is None else table.nbytes
                self._shown.append((batch, now))
                self._gaps.discard(batch)
            self.visible = taken[-1][0]
            self._marked, self._trouble = True, None
            self._state.notify_all()

    def _encode_or_name(self, batch: int, table: pa.Table | None) -> Written:
        """StepError, of this very batch: rows that do not fit, or a message too large."""
        try:
            return self._encode(batch, table)
        except MemoryError as error:
            raise SinkError(f"batch {batch}: no memory to encode it") from error
        except (Exception, PanicException) as error:
            raise StepError(self._place.operator, self._place.partition, batch, error) from error

    def _encode(self, batch: int, table: pa.Table | None) -> Written:
        if table is None or table.num_rows == 0:
            return Written(batch, [])
        deleted: Sequence[bool] = [False] * table.num_rows
        if self.delete is not None:
            deleted = deletions(table, self.delete)
            table = table.drop_columns([self.delete])
        values = self.encoder.values(table)
        messages: Keyed = list(
            zip(keys(table, self.key) if self.key else [None] * len(values), values, strict=True)
        )
        if self.upsert:
            messages = upserts(messages, deleted)
        marked = batch in self._gaps
        about: Headers = [*self._about(batch), *([GAP] if marked else [])]
        kept, letters = self._sort_out(batch, messages, about)
        return Written(batch, kept, about if self.headers or marked else (), letters)

    def _about(self, batch: int) -> Headers:
        return [("reprise-partition", self._place.partition), ("reprise-batch", str(batch))]

    def _sort_out(
        self, batch: int, messages: Keyed, about: Headers
    ) -> tuple[Keyed, list[tuple[bytes, bytes, Headers]]]:
        """Messages that brokers can take, and a dead letter for each of the others."""
        kept: Keyed = []
        letters: list[tuple[bytes, bytes, Headers]] = []
        for key, value in messages:
            if len(key or b"") + len(value or b"") <= self.limit:
                kept.append((key, value))
                continue
            size = len(value or b"")
            why = f"a message of {size} bytes (key {key!r}) is larger than message.max.bytes allows"
            if not self.divert:
                raise TooLargeError(
                    f"{why}; raise it here and on the topic, or use `on_too_large: dead-letter`"
                )
            head: Headers = [*about, ("reprise-reason", why), ("reprise-bytes", str(size))]
            letters.append((key or b"", (value or b"")[:1000], head))
        return kept, letters


def _gaps_of(gaps: str | None, taken: Collection[str | None], upsert: bool) -> str | None:
    """The topic for marks of gaps."""
    if gaps is None:
        return None
    if not isinstance(gaps, str) or not gaps or gaps in taken:
        raise SpecError("gaps", f"expected the name of another topic, found {gaps!r}")
    if upsert:
        reason = "a key whose row is missing keeps its row of before, which no mark of a batch would tell"
        raise SpecError("gaps", f"is not for mode upsert: {reason}")
    return gaps


class _DifferentError(DataPlaneError):
    """A replay that is not what was written."""
