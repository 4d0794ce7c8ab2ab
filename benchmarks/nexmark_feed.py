"""Sends NexMark's events to Kafka at a rate, as a process of its own.

`python -m benchmarks.nexmark_feed BROKERS LOGS KIND...` reads lines "RATE SECONDS" from its standard input.  It sends so
many events a second for so long, and answers with a line of JSON (`Sent`).  The topic of a kind has its name, and its logs
get events in turn.  The column `time` of an event is the moment at which it is due, unix microseconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.sources.nexmark import SHARES, NexmarkSource

TICK_S = 0.01
LATE_S, FLUSH_S = 1.0, 60.0
SETTINGS: Mapping[str, Any] = {
    "linger.ms": 2, "acks": 1, "queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_000_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sent:
    """Events of one pace, by their numbers among those of the kinds that are sent, and when they were due."""

    first: int
    end: int
    began_us: int
    rate: int
    behind_s: float
    """How late the broker had the last of them."""

    @property
    def ended_us(self) -> int:
        """When the last one was due."""
        return self.began_us + (self.end - 1 - self.first) * 1_000_000 // self.rate


def events(kinds: Sequence[str], pace: Sent, first: int, end: int) -> dict[str, pa.Table]:
    """Events of a pace, by kind.  `first`, `end`: multiples of `epoch(kinds)`."""
    size = epoch(kinds)
    found, before = {}, 0
    for kind in kinds:
        share = SHARES[kind][1] if len(kinds) > 1 else 1
        own = np.arange(first // size * share, end // size * share, dtype=np.int64)
        number = own // share * size + before + own % share
        due = pace.began_us + (number - pace.first) * 1_000_000 // pace.rate
        found[kind] = NexmarkSource(kind=kind, rate=pace.rate).rows(Place(kind, 0, 1), own, due)
        before += share
    return found


def epoch(kinds: Sequence[str]) -> int:
    """After so many events of these kinds their order repeats."""
    return sum(SHARES[kind][1] for kind in kinds) if len(kinds) > 1 else 1


def lines(table: pa.Table) -> list[bytes]:
    """Rows as JSON."""
    parts: list[Any] = []
    for name, column in zip(table.column_names, table.itercolumns(), strict=True):
        mark = '"' if column.type == pa.string() else ""
        parts += [f'{"," if parts else "{"}"{name}":{mark}', column.combine_chunks().cast(pa.string()), mark]
    joined = pc.binary_join_element_wise(*parts, "}", "")
    return list(joined.cast(pa.binary()).to_pylist())


class Sender:
    """Sends events one pace after the other."""

    def __init__(self, brokers: str, logs: int, kinds: Sequence[str]) -> None:
        self._producer = Producer({"bootstrap.servers": brokers, **SETTINGS})
        self._logs, self._kinds, self._next = logs, kinds, 0
        self._sent = dict.fromkeys(kinds, 0)

    def pace(self, rate: int, seconds: float) -> Sent:
        """Returns when the broker has them all, or those that were sent in time."""
        size, began = epoch(self._kinds), time.time()
        end = self._next + round(rate * seconds) // size * size
        pace = Sent(self._next, end, round(began * 1e6), rate, 0.0)
        while self._next < end and (passed := time.time() - began) < seconds + LATE_S:
            due = pace.first + int(rate * min(seconds, passed)) // size * size
            self._send(pace, min(due, self._next + rate // size * size))
            self._producer.poll(0)
            time.sleep(max(0.0, TICK_S - (time.time() - began) % TICK_S))
        if self._producer.flush(FLUSH_S):
            raise TimeoutError(f"the broker did not take all events within {FLUSH_S:g} s")
        return replace(pace, end=self._next, behind_s=time.time() - began - (self._next - pace.first) / rate)

    def _send(self, pace: Sent, end: int) -> None:
        for kind, table in events(self._kinds, pace, self._next, end).items():
            rows = lines(table)
            for log in range(self._logs):
                mine = [{"value": row} for row in rows[(log - self._sent[kind]) % self._logs :: self._logs]]
                if mine and self._producer.produce_batch(kind, mine, partition=log) < len(mine):
                    raise BufferError(f"{kind}: the broker takes less than {pace.rate:,} events a second")
            self._sent[kind] += len(rows)
        self._next = end


class Feed:
    """The sender as a process.  A context manager."""

    def __init__(self, brokers: str, logs: int, kinds: Sequence[str]) -> None:
        command = [sys.executable, "-m", "benchmarks.nexmark_feed", brokers, str(logs), *kinds]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self, rate: int, seconds: float) -> None:
        """Let it begin, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rate} {seconds}\n")
        self._process.stdin.flush()

    def sent(self) -> Sent:
        """Wait for the end of what was begun.  EOFError: the sender has failed; its standard error has the reason."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise EOFError("the sender of events has failed")
        return Sent(**json.loads(line))


def main() -> None:
    brokers, logs, *kinds = sys.argv[1:]
    sender = Sender(brokers, int(logs), kinds)
    for line in sys.stdin:
        rate, seconds = line.split()
        print(json.dumps(asdict(sender.pace(int(rate), float(seconds)))), flush=True)


if __name__ == "__main__":
    main()
