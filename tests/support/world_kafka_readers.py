"""What readers of committed messages see in the simulated world, and what they would see in a run without failures.

Each committed batch is shown as a file, so that the world's checks are of it, too: one with its rows, one with its dead
letters, and the mark of one that may lack rows.  What is expected is made here by itself, from rows that `run_local`
computes: nothing of the sink is asked.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from reprise.controller.simulated_world.checks import Checks, Violation
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.operators import Counting
from reprise.controller.simulated_world.topology import Reference
from reprise.spark_jobs.contract import Inbox, Place
from reprise.spark_jobs.sinks.files import encoded, marker
from reprise.spark_jobs.topology import OutputSpec, StreamTopology, from_json
from tests.support.world_kafka_sources import RecordedLogs, gaps_between

TOPIC, GAPS, LETTERS = "t", "gaps", "letters"
OVERHEAD, CUT = 512, 1000
"""What a message has beside key and value, and how much of a large one is in its dead letter, in bytes (docs/kafka.md)."""
KAFKA_SOURCE = "reprise.kafka:KafkaSource"
NAME = "reprise.world.simulated."
"""Producers' names begin so."""

Message = tuple[str | None, str | None]
"""Key and value."""


class Totals(Counting):
    """Gives each row with how many of its key there were so far; `large`: every so many of them has a text that no message
    holds, and is cut off in its dead letter; `gone`: with every so many of them the key is deleted."""

    def __init__(self, *, large: int = 0, gone: int = 0) -> None:
        self.large, self.gone = large, gone

    def step(self, state: dict[int, int], inbox: Inbox) -> tuple[dict[int, int], pa.Table | None]:
        counts, table = super().step(state, inbox)
        if table is None:
            return counts, None
        seen = table["seen"].to_pylist()
        if self.large:
            texts = ["x" * (480 + n * 41 if n % self.large == 0 else 1) for n in seen]
            table = table.append_column("text", pa.array(texts))
        if self.gone:
            table = table.append_column("gone", pa.array([n % self.gone == 0 for n in seen]))
        return counts, table


def parameters_of(resource: StreamTopology) -> Mapping[str, Any]:
    """Those of the sink of `count`, where it has one."""
    sinks = (o.output.sink for o in resource.operators if o.output is not None)
    return next((dict(sink.parameters) for sink in sinks if sink is not None), {})


def reads_kafka(resource: StreamTopology) -> bool:
    """Whether its source is Kafka."""
    return KAFKA_SOURCE in resource.document


class Readers:
    """Takes what is committed, message by message in the order of the log, and shows it.  `breaks`: takes an invariant's
    name, and what does not hold."""

    def __init__(self, cluster: Cluster, breaks: Callable[[str, str], None]) -> None:
        self._store, self._breaks = cluster.store, breaks
        self._upsert = parameters_of(cluster.resource).get("mode") == "upsert"
        self.newest: dict[str, str | None] = {}
        """By key its last value; None: it was deleted."""
        self.marks: dict[str, bytes] = {}
        """By key, what is on the topic of gaps."""
        self.letters = self.deletions = 0
        """How many there were."""
        self._last: dict[str, int] = {}
        """By output partition the last batch with rows."""

    def take(self, messages: Sequence[tuple[str, bytes | None, bytes | None, Mapping[str, Any]]]) -> None:
        """All messages of a transaction: topic, key, value, headers."""
        rows: dict[tuple[str, int], list[Message]] = {}
        letters: dict[tuple[str, int], list[tuple[str, str, int]]] = {}
        for topic, key, value, headers in messages:
            batch = headers["reprise-partition"], int(headers["reprise-batch"])
            if topic == GAPS:
                self._mark(key or b"", value or b"", headers)
            elif topic == LETTERS:
                size = int(headers["reprise-bytes"])
                letters.setdefault(batch, []).append(((key or b"").decode(), (value or b"").decode(), size))
            else:
                found = None if key is None else key.decode(), None if value is None else value.decode()
                rows.setdefault(batch, []).append(found)
                if "reprise-gap" in headers and not self._is_marked(*batch):
                    self._breaks("H3", f"batch {batch[1]} of {batch[0]} may lack rows, and is not marked yet")
                    return
        for (partition, number), given in rows.items():
            self.deletions += sum(value is None for _, value in given)
            self.newest |= {key: value for key, value in given if key is not None}
            self._show(partition, number, shown_rows(given, self._upsert))
            self._in_turn(partition, number)
        for (partition, number), put_aside in letters.items():
            self.letters += len(put_aside)
            self._show(partition.replace(".", "-letters."), number, shown_letters(put_aside))

    def _in_turn(self, partition: str, batch: int) -> None:
        if batch < (before := self._last.get(partition, 0)):
            self._breaks("E1", f"batch {batch} of {partition} was committed after batch {before}")
        self._last[partition] = batch

    def _show(self, partition: str, batch: int, table: pa.Table) -> None:
        name = f"{partition.replace('.', '/')}/batch-{batch:08d}.parquet"
        path = f"{self._store.name}/sink/{name}"
        if path in self._store.files:
            self._breaks("E1", f"{name} was committed twice")
        else:
            self._store.put(path, encoded("parquet", table))

    def _path_of_mark(self, partition: str, batch: int) -> str:
        return f"{self._store.name}/sink/{partition.replace('.', '/')}/{marker(batch)}"

    def _is_marked(self, partition: str, batch: int) -> bool:
        return self._path_of_mark(partition, batch) in self._store.files

    def _mark(self, key: bytes, value: bytes, headers: Mapping[str, Any]) -> None:
        """A batch has one key, and each message with it says the same: whoever has seen one knows all of them."""
        partition, batch = headers["reprise-partition"], int(headers["reprise-batch"])
        name = NAME + partition
        said = {"topic": TOPIC, "name": name, "batch": batch}
        if key.decode() != f"{name}/{batch}" or json.loads(value) != said:
            self._breaks("H3", f"batch {batch} of {partition} is marked by {key!r} with {value!r}")
        if self.marks.setdefault(key.decode(), value) != value:
            self._breaks("H3", f"marks of {key!r} differ")
        path = self._path_of_mark(partition, batch)
        if path not in self._store.files:
            self._store.put(path, b"")


def shown_rows(messages: Sequence[Message], upsert: bool) -> pa.Table:
    """Rows of JSON; of upserts each with its key, as some have nothing else."""
    if not upsert:
        return pa.Table.from_pylist([json.loads(value or "{}") for _, value in messages])
    columns = [pa.array(column, pa.string()) for column in zip(*messages, strict=True)]
    return pa.table(columns, ["key", "value"])


def shown_letters(letters: Sequence[tuple[str, str, int]]) -> pa.Table:
    """Key, the begin of the value, and the size of each."""
    return pa.table([list(column) for column in zip(*letters, strict=True)], ["key", "value", "bytes"])


class KafkaReference(Reference):
    """What readers of a topic see."""

    def __init__(self, resource: StreamTopology) -> None:
        super().__init__(resource)
        sink = parameters_of(resource)
        self._keys, self._delete = sink.get("key", ()), sink.get("delete")
        self._upsert, self._diverts = sink.get("mode") == "upsert", "dead_letters" in sink
        self._limit = int(sink.get("config", {}).get("message.max.bytes", 1_000_000)) - OVERHEAD

    def on_record(self, resource: StreamTopology) -> StreamTopology:
        if not reads_kafka(resource):
            return super().on_record(resource)
        recorded = f"{RecordedLogs.__module__}:{RecordedLogs.__name__}"
        return from_json(resource.document.replace(KAFKA_SOURCE, recorded))

    def shown(self, place: Place, batch: int, output: OutputSpec, table: pa.Table | None) -> dict[str, bytes]:
        if output.sink is None or not (self._upsert or self._diverts) or table is None:
            return super().shown(place, batch, output, table)
        given = [self._message(row) for row in table.to_pylist()]
        if self._upsert:
            last = {key: number for number, (key, _) in enumerate(given)}
            given = [message for number, message in enumerate(given) if last[message[0]] == number]
        large = [m for m in given if len(m[0] or "") + len(m[1] or "") > self._limit]
        kept = [message for message in given if message not in large]
        name = f"{place.index}/batch-{batch:08d}.parquet"
        found = {}
        if kept:
            found[f"{place.operator}/{name}"] = encoded("parquet", shown_rows(kept, self._upsert))
        if large:
            letters = [(key or "", (value or "")[:CUT], len(value or "")) for key, value in large]
            found[f"{place.operator}-letters/{name}"] = encoded("parquet", shown_letters(letters))
        return found

    def _message(self, row: dict[str, Any]) -> Message:
        gone = bool(self._delete and row.pop(self._delete))
        key = str(row[self._keys[0]]) if self._keys else None
        return key, None if gone else json.dumps(row, separators=(",", ":"))

    def newest(self) -> dict[str, str | None]:
        """By key its value when all is over: each key is of one partition."""
        found: dict[str, str | None] = {}
        for name in sorted(name for name in self.files if name.startswith("count/")):
            for row in parquet.read_table(io.BytesIO(self.files[name])).to_pylist():
                found[row["key"]] = row["value"]
        return found


class KafkaChecks(Checks):
    """The checks of files, and of what a topic holds in the end."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, KafkaReference)

    def _file(self, path: str, data: bytes) -> None:
        super()._file(path, data)
        if path.startswith(self._ledger) and reads_kafka(self.cluster.resource):
            for detail in gaps_between(self.reference.ranges, self.reference.complete):
                self.breaks("E1", detail)

    def finish(self, done: bool) -> None:
        super().finish(done)
        readers: Readers = self.cluster.readers  # type: ignore[attr-defined]
        if parameters_of(self.cluster.resource).get("mode") == "upsert":
            assert isinstance(self.reference, KafkaReference)
            if readers.newest != (expected := self.reference.newest()):
                raise Violation("E1", f"the topic holds {readers.newest} in place of {expected}")
