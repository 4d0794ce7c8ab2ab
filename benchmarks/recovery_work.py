"""Work that every engine of the recovery benchmark can do: 15 queries, each counts all hashtags since the start.

Topology 2 of Su and Zhou is windows over windows, which Structured Streaming cannot chain.  So engines are compared with a
source, a parser and 15 counts that have the priorities of Topology 2, over the same tweets.  In a scarce room each hashtag
costs each query `SERVICE_MS`: the one server of a node sleeps so long.  At 200 tweets a second a query takes 0.19 of a node,
and declares 0.35.  So a node with two queries, as many as the cap admits, has time left to catch up, and three nodes can
just carry all queries.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Place, Range
from reprise.spark_jobs.operators import KeyedCount
from reprise.spark_jobs.operators.keyed import KeyedState
from reprise.spark_jobs.sources import HashtagSource

PRIORITIES = (10, 8, 6, 4, 9, 7, 5, 3, 3, 6, 5, 4, 2, 2, 1)
"""Of O0..O14 in examples/topology2.yaml."""
QUERIES = tuple(f"o{number}" for number in range(len(PRIORITIES)))
SERVICE_MS = 0.6


class CostlyCount(KeyedCount):
    """Rows by `keys` since the start; each row takes `service_ms`."""

    def __init__(self, keys: Sequence[str], service_ms: float) -> None:
        super().__init__(keys)
        self.service_ms = service_ms

    def step(self, state: KeyedState, inbox: Inbox) -> tuple[KeyedState, pa.Table | None]:
        """A host runs the steps of its partitions one after the other."""
        rows = inbox.table()
        if rows is not None and self.service_ms:
            time.sleep(rows.num_rows * self.service_ms / 1e3)
        return super().step(state, inbox)


def counts(service_ms: float) -> dict[str, Any]:
    """The topology as a resource; its source, nodes and pace are to be overridden."""
    operators: list[dict[str, Any]] = [
        {
            "name": "parser",
            "class": "reprise.operators:FlatMap",
            "with": {"explode": ["hashtags"], "select": ["hashtags AS tag"]},
            "resources": {"cpu": "60m"},
            "inputs": [{"from": "source"}],
        }
    ]
    operators += [
        {
            "name": query,
            "class": "benchmarks.recovery_work:CostlyCount",
            "with": {"keys": ["tag"], "service_ms": service_ms},
            "resources": {"cpu": "70m"},
            "inputs": [{"from": "parser"}],
            "output": {"priority": priority, "format": "parquet"},
        }
        for query, priority in zip(QUERIES, PRIORITIES, strict=True)
    ]
    source = {
        "name": "source",
        "class": "reprise.sources:HashtagSource",
        "with": {"rate": 200},
        "resources": {"cpu": "60m"},
    }
    return {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "counts"},
        "spec": {
            "batch": {"interval": "500ms"},
            "sources": [source],
            "operators": operators,
            "checkpoint": {"interval": "10s"},
            "nodes": {"count": 10, "cpu": "200m"},
        },
    }


class Tweets:
    """The tweets of one seed in batches, as the source of the topology makes them."""

    def __init__(self, rate: int, interval_s: float, batches: int, seed: int) -> None:
        """`rate`: tweets a second, so that every batch has `rows`."""
        self.rows, self.batches, self.interval_s = round(rate * interval_s), batches, interval_s
        self._source = HashtagSource(rate=rate, interval=f"{interval_s:g}s", batches=batches, seed=seed)

    def batch(self, number: int) -> list[tuple[int, list[str]]]:
        """(tweet, hashtags) of a batch, which are numbered from 1."""
        rows = Range((number - 1) * self.rows, number * self.rows)
        table = self._source.read(Place("source", 0, 1), number, rows)
        return list(zip(table["tweet"].to_pylist(), table["hashtags"].to_pylist(), strict=True))

    def counts(self, batches: int) -> Counter[str]:
        """What each query has counted after so many batches."""
        found: Counter[str] = Counter()
        for number in range(1, batches + 1):
            for _, tags in self.batch(number):
                found.update(tags)
        return found


class Feed:
    """Files of tweets that appear when they are due, for engines that take whatever lies in a folder.  A context manager.

    A file holds a batch; a line a tweet and its hashtags, separated by spaces."""

    def __init__(self, tweets: Tweets, folder: Path) -> None:
        self.folder, self.zero = folder, 0.0
        self._tweets, self._prepared = tweets, folder.with_name(f"{folder.name}-prepared")
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        for each in (self.folder, self._prepared):
            each.mkdir(parents=True)
        for number in range(1, tweets.batches + 1):
            lines = (" ".join([str(tweet), *tags]) for tweet, tags in tweets.batch(number))
            self._path(self._prepared, number).write_text("".join(f"{line}\n" for line in lines))

    def __enter__(self) -> Feed:
        self.zero = time.time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def due(self, batch: int) -> float:
        """Unix seconds; a batch is due when its last tweet is."""
        return self.zero + batch * self._tweets.interval_s

    def _run(self) -> None:
        for number in range(1, self._tweets.batches + 1):
            if self._ends.wait(max(0.0, self.due(number) - time.time())):
                return
            path = self._path(self._prepared, number)
            os.utime(path)  # files are taken in the order of their times
            path.rename(self._path(self.folder, number))

    @staticmethod
    def _path(folder: Path, number: int) -> Path:
        return folder / f"batch-{number:06d}.txt"


def miscounted(found: Mapping[str, Mapping[str, int]], expected: Mapping[str, int]) -> list[str]:
    """What the last counts of the queries are not.  `found`: query -> hashtag -> count."""
    wrong = []
    for query in QUERIES:
        counted = found.get(query, {})
        if other := sum(counted.get(tag) != count for tag, count in expected.items()):
            wrong.append(f"{query} has {other} of {len(expected)} counts wrong")
        if more := len(counted.keys() - expected.keys()):
            wrong.append(f"{query} counts {more} hashtags that were not there")
    return wrong
