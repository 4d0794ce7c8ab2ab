"""Q1, Q3, Q8 and Q12 of NexMark for each engine: from topics with the names of the kinds of events to the topic `results`.

They are NexMark's own, but for Q12, whose windows are of event time here.  Windows take `WINDOW_S`.  Results have a column
`time`: that of the event (Q1), of the auction (Q3), or the end of the window (Q8, Q12), unix microseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from reprise.spark_jobs.sources import nexmark
from reprise.spark_jobs.topology import StreamTopology, from_json

WINDOW_S, BATCH_MS = 2, 100
RESULTS = "results"
TEXTS = {"name", "email", "credit_card", "city", "state", "item", "channel", "url"}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    kind: {name: "string" if name in TEXTS else "int64" for name in names}
    for kind, names in nexmark.COLUMNS.items()
}
"""Fields of the messages."""
SQL = {"int64": "BIGINT", "string": "STRING"}


@dataclass(frozen=True, slots=True)
class Query:
    """`reads`: the fields that it needs of each kind of events.  `operators`: those of Reprise; the last one is named `out`.

    `flink`, `structured`, `check`: the query in the SQL of Flink, Spark and DuckDB. Each has the
    events of a kind as a table of its name; `due` is `time` in the type that their windows take."""

    reads: Mapping[str, Sequence[str]]
    operators: Sequence[Mapping[str, Any]]
    columns: Mapping[str, str]
    """Of the results, with the types of Flink."""
    flink: str
    structured: str
    check: str

    @property
    def kinds(self) -> Sequence[str]:
        """Of the events that it reads."""
        return list(self.reads)


def _operator(name: str, kind: str, inputs: Sequence[Mapping[str, Any]], **parameters: Any) -> dict[str, Any]:
    return {"name": name, "class": f"reprise.operators:{kind}", "inputs": list(inputs), "with": parameters}


def _after(name: str) -> dict[str, Any]:
    return {"from": name, "forward": True}


def _by(name: str, key: str) -> dict[str, Any]:
    return {"from": name, "by": [key]}


_SIZE = f"{WINDOW_S}s"
_FLINK_WINDOW = f"TUMBLE(TABLE {{}}, DESCRIPTOR(due), INTERVAL '{WINDOW_S}' SECOND)"
_FLINK_END = "1000000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {}window_end) AS BIGINT)"
_SPARK_WINDOW = f"window(due, '{WINDOW_S} seconds')"
_SPARK_END = "unix_micros({}window.end)"
_US = WINDOW_S * 1_000_000
_CHECK_END = f"(time // {_US} + 1) * {_US}"
_Q3 = (
    "SELECT a.time, a.seller, p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE p.state IN ('OR', 'ID', 'CA') AND a.category = 10"
)

QUERIES: Mapping[str, Query] = {
    "q1": Query(
        reads={"bid": ["time", "auction", "bidder", "price"]},
        operators=[
            _operator(
                "out", "Map", [_after("bid")], select=["time", "auction", "bidder", "price * 0.908 AS price"]
            )
        ],
        columns={"time": "BIGINT", "auction": "BIGINT", "bidder": "BIGINT", "price": "DOUBLE"},
        flink="SELECT `time`, auction, bidder, price * CAST(0.908 AS DOUBLE) FROM bid",
        structured="SELECT time, auction, bidder, price * 0.908D AS price FROM bid",
        check="SELECT time, auction, bidder, price * 0.908::DOUBLE AS price FROM bid",
    ),
    "q3": Query(
        reads={"person": ["time", "id", "name", "city", "state"], "auction": ["time", "id", "seller", "category"]},
        operators=[
            _operator(
                "local", "Map", [_after("person")], where="state IN ('OR', 'ID', 'CA')",
                select=["id AS seller", "name", "city", "state"],
            ),
            _operator(
                "wanted", "Map", [_after("auction")], where="category = 10",
                select=["time", "seller", "id AS auction"],
            ),
            _operator(
                "out", "Join", [_by("local", "seller"), _by("wanted", "seller")],
                left="local", right="wanted", keys=["seller"],
            ),
        ],
        columns={
            "time": "BIGINT", "seller": "BIGINT", "name": "STRING", "city": "STRING", "state": "STRING",
            "auction": "BIGINT",
        },
        flink=_Q3.replace("a.time", "a.`time`"),
        structured=_Q3,
        check=_Q3,
    ),
    "q8": Query(
        reads={"person": ["time", "id", "name"], "auction": ["time", "seller"]},
        operators=[
            _operator(
                "came", "TumblingWindow", [_by("person", "id")],
                size=_SIZE, keys=["id", "name"], aggregate={"persons": "count()"},
            ),
            _operator(
                "sold", "TumblingWindow", [_by("auction", "seller")],
                size=_SIZE, keys=["seller"], aggregate={"auctions": "count()"},
            ),
            _operator("named", "Map", [_after("came")], select=["time", "id AS seller", "name"]),
            _operator(
                "joined", "WindowedJoin", [_after("named"), _after("sold")],
                left="named", right="sold", keys=["seller"], within="0s",
            ),
            _operator("out", "Map", [_after("joined")], select=["time + 1 AS time", "seller", "name"]),
        ],
        columns={"time": "BIGINT", "seller": "BIGINT", "name": "STRING"},
        flink=f"SELECT {_FLINK_END.format('p.')}, p.id, p.name FROM "
        f"(SELECT id, name, window_start, window_end FROM TABLE({_FLINK_WINDOW.format('person')}) "
        "GROUP BY id, name, window_start, window_end) p JOIN "
        f"(SELECT seller, window_start, window_end FROM TABLE({_FLINK_WINDOW.format('auction')}) "
        "GROUP BY seller, window_start, window_end) a "
        "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
        structured=f"SELECT {_SPARK_END.format('p.')} AS time, p.id AS seller, p.name FROM "
        f"(SELECT {_SPARK_WINDOW} AS window, id, name FROM person GROUP BY {_SPARK_WINDOW}, id, name) p JOIN "
        f"(SELECT {_SPARK_WINDOW} AS window, seller FROM auction GROUP BY {_SPARK_WINDOW}, seller) a "
        "ON p.id = a.seller AND p.window = a.window",
        check=f"SELECT DISTINCT {_CHECK_END.replace('time', 'p.time')} AS time, p.id AS seller, p.name "
        f"FROM person p JOIN auction a ON p.id = a.seller AND p.time // {_US} = a.time // {_US}",
    ),
    "q12": Query(
        reads={"bid": ["time", "bidder"]},
        operators=[
            _operator(
                "count", "TumblingWindow", [_by("bid", "bidder")],
                size=_SIZE, keys=["bidder"], aggregate={"bids": "count()"},
            ),
            _operator("out", "Map", [_after("count")], select=["window_end AS time", "bidder", "bids"]),
        ],
        columns={"time": "BIGINT", "bidder": "BIGINT", "bids": "BIGINT"},
        flink=f"SELECT {_FLINK_END.format('')}, bidder, COUNT(*) FROM TABLE({_FLINK_WINDOW.format('bid')}) "
        "GROUP BY bidder, window_start, window_end",
        structured=f"SELECT {_SPARK_END.format('')} AS time, bidder, bids FROM (SELECT {_SPARK_WINDOW} AS window, bidder, "
        f"count(*) AS bids FROM bid GROUP BY {_SPARK_WINDOW}, bidder)",
        check=f"SELECT {_CHECK_END} AS time, bidder, count(*) AS bids FROM bid GROUP BY ALL",
    ),
}  # fmt: skip


def topology(name: str, brokers: str, nodes: int) -> StreamTopology:
    """A query for Reprise, with a partition of everything on each node."""
    query = QUERIES[name]
    sources = [
        {
            "name": kind,
            "class": "reprise.kafka:KafkaSource",
            "with": {
                "brokers": brokers,
                "topics": [kind],
                "columns": {name: COLUMNS[kind][name] for name in names},
                "time": {"column": "time"},
            },
        }
        for kind, names in query.reads.items()
    ]
    sink = {"class": "reprise.kafka:KafkaSink", "with": {"brokers": brokers, "topic": RESULTS}}
    operators = [
        dict(operator, output={"sink": sink}) if operator["name"] == "out" else operator
        for operator in query.operators
    ]
    parts = [dict(part, parallelism=nodes, resources={"cpu": "100m"}) for part in (*sources, *operators)]
    spec = {
        "batch": {"interval": f"{BATCH_MS}ms"},
        "sources": parts[: len(sources)],
        "operators": parts[len(sources) :],
        "checkpoint": {"interval": "10s"},
        "nodes": {"count": nodes, "cpu": "1000m"},
    }
    head = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": f"nexmark-{name}"},
    }
    return from_json(json.dumps({**head, "spec": spec}))


def flink_statements(name: str, brokers: str) -> list[str]:
    """Tables of Flink, and the query as the last one."""
    query = QUERIES[name]
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{brokers}', 'format' = 'json'"
    tables = []
    for kind in query.kinds:
        columns = ", ".join(f"`{column}` {SQL[of]}" for column, of in COLUMNS[kind].items())
        clock = (
            "due AS TO_TIMESTAMP_LTZ(`time` / 1000, 3), WATERMARK FOR due AS due - INTERVAL '0.001' SECOND"
        )
        start = f"'topic' = '{kind}', 'scan.startup.mode' = 'earliest-offset'"
        tables.append(f"CREATE TABLE {kind} ({columns}, {clock}) WITH ({kafka}, {start})")
    columns = ", ".join(f"`{column}` {of}" for column, of in query.columns.items())
    tables.append(f"CREATE TABLE {RESULTS} ({columns}) WITH ({kafka}, 'topic' = '{RESULTS}')")
    return [*tables, f"INSERT INTO {RESULTS} {query.flink}"]


def wrong(name: str, events: Mapping[str, pa.Table], found: Iterable[bytes], until_us: int) -> str:
    """What differs between the results of an engine and those of DuckDB, up to this time; empty: nothing.

    `events`: all that were sent, by kind; some come later than `until_us`, so that all results until then are there."""
    with duckdb.connect() as database:
        for kind, table in events.items():
            database.register(kind, table)
        expected = _counted(database.execute(QUERIES[name].check).to_arrow_table().to_pylist(), until_us)
    given = _counted(map(json.loads, found), until_us)
    if expected == given and expected:
        return ""
    missing, more = expected - given, given - expected
    return (
        f"of {expected.total():,} results {missing.total():,} are missing, and {more.total():,} are wrong or too many; "
        f"the first: {next(iter(missing), None)}, {next(iter(more), None)}"
    )


def _counted(rows: Iterable[Mapping[str, Any]], until_us: int) -> Counter[tuple[Any, ...]]:
    """As a multiset; prices are rounded, as a product of decimals and one of floats differ behind the 15th digit."""
    return Counter(
        tuple(
            (key, round(value, 3) if isinstance(value, float) else value)
            for key, value in sorted(row.items())
        )
        for row in rows
        if row["time"] <= until_us
    )
