"""NexMark's queries over whole streams against SQL in DuckDB over the same events, with several parallelisms and skews.

Where results come at once, the batch in which a row comes is compared, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.spark_jobs.contract import Inbox
from reprise.spark_jobs.operators import Join, RunningAggregate
from reprise.spark_jobs.operators.pairs import PairState
from reprise.spark_jobs.topology import StreamTopology, override
from tests.support.nexmark import Played, counted, example, latest, played

HERE = "tests.unit.spark_jobs.operators.test_nexmark_queries"
WINDOW = "(batch - 1) * 500000 // 10000000"
"""Number of the window of 10 s of processing time, with batches of 500 ms."""
SHORT_FIRST = "(batch - 1) * 500000 + 5000000) // 10000000"
BID = "time, auction, bidder, price, channel, url"

AT_ONCE: dict[str, str] = {
    "q0": f"SELECT batch, {BID} FROM bids",
    "q1": "SELECT batch, time, auction, bidder, CAST(price * 0.82 AS DOUBLE) AS price FROM bids",
    "q2": "SELECT batch, time, auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT greatest(p.batch, a.batch) AS batch, seller, name, city, state, a.time, a.id AS auction, category
        FROM persons p JOIN auctions a ON seller = p.id WHERE state IN ('OR', 'ID', 'CA')""",
    "q8": f"""
        WITH p AS (SELECT *, {WINDOW} AS w FROM persons), a AS (SELECT *, {WINDOW} AS w FROM auctions)
        SELECT greatest(p.batch, a.batch) AS batch, p.w * 10000000 AS window_start, (p.w + 1) * 10000000 AS window_end,
               seller, name, a.time, a.id, item, initial_bid, reserve, expires, category
        FROM p JOIN a ON seller = p.id AND p.w = a.w""",
    "q12": f"""
        WITH b AS (SELECT *, {WINDOW} AS w FROM bids)
        SELECT batch, w * 10000000 AS window_start, (w + 1) * 10000000 AS window_end, bidder, time,
               count(*) OVER (PARTITION BY w, bidder ORDER BY batch, part, pos) AS bids
        FROM b""",
    "q14": """
        SELECT batch, time, auction, bidder, CAST(price * 0.908 AS DOUBLE) AS price, extra,
               CASE WHEN h BETWEEN 8 AND 18 THEN 'dayTime' WHEN h <= 6 OR h >= 20 THEN 'nightTime'
                    ELSE 'otherTime' END AS time_of_day,
               len(regexp_replace(extra, '[^c]', '', 'g')) AS letters
        FROM (SELECT *, hour(make_timestamp(time)) AS h FROM bids)
        WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000""",
    "q20": """
        SELECT greatest(b.batch, a.batch) AS batch, b.time, auction, bidder, price, channel, url,
               item, initial_bid, reserve, a.time AS opens, expires, seller, category
        FROM bids b JOIN auctions a ON auction = a.id WHERE category = 10""",
    "q21": """
        WITH b AS (SELECT *, nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') AS id FROM bids)
        SELECT batch, time, auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
               WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE id END AS channel_id
        FROM b WHERE id IS NOT NULL OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """
        SELECT batch, time, auction, bidder, price, channel, string_split(url, '/')[4] AS dir1,
               string_split(url, '/')[5] AS dir2, string_split(url, '/')[6] AS dir3
        FROM bids""",
    "q23": """
        SELECT greatest(b.batch, p.batch, a.batch) AS batch, bidder, b.time, auction, price, channel, url,
               name, email, credit_card, city, state,
               a.id, item, initial_bid, reserve, a.time AS opens, expires, category
        FROM bids b JOIN persons p ON p.id = bidder JOIN auctions a ON seller = bidder""",
}
WHEN_WINDOWS_END: dict[str, str] = {
    "q5": """
        WITH w AS (SELECT auction, time // 2000000 * 2000000 + 2000000 + k * 2000000 AS ends FROM bids, range(5) r(k)),
             n AS (SELECT ends, auction, count(*) AS bids FROM w GROUP BY ALL)
        SELECT ends, auction, bids FROM n WHERE bids >= ALL (SELECT m.bids FROM n m WHERE m.ends = n.ends)""",
    "q7": f"""
        WITH b AS (SELECT {BID}, time // 10000000 * 10000000 + 10000000 AS ends FROM bids)
        SELECT {BID}, ends FROM b WHERE price = (SELECT max(m.price) FROM b m WHERE m.ends = b.ends)""",
    "q8-event-time": """
        WITH p AS (SELECT DISTINCT id, name, time // 10000000 AS w FROM persons),
             a AS (SELECT seller, time // 10000000 AS w, count(*) AS auctions FROM auctions GROUP BY ALL)
        SELECT seller, (w + 1) * 10000000 - 1 AS time, name, w * 10000000 AS window_start, (w + 1) * 10000000 AS window_end,
               auctions
        FROM p JOIN a USING (w) WHERE id = seller""",
}
SESSIONS = """
    WITH begun AS (SELECT *, coalesce(time - lag(time) OVER w >= {gap}, true)::INT AS begins FROM bids
                   WINDOW w AS (PARTITION BY bidder ORDER BY time)),
         numbered AS (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY time RANGE UNBOUNDED PRECEDING) AS session
                      FROM begun)
    SELECT min(time) AS window_start, max(time) + {gap} AS window_end, max(time) + {gap} - 1 AS time, bidder,
           count(*) AS bids
    FROM numbered GROUP BY bidder, session"""
WHEN_WINDOWS_END["q11"] = SESSIONS.format(gap=10_000_000)
SOLD = """
    WITH later AS (SELECT time FROM auctions WHERE batch > {upto} UNION ALL SELECT time FROM bids WHERE batch > {upto}),
         sold AS (SELECT a.id, seller, category, expires, max(price) AS price
                  FROM auctions a JOIN bids b ON auction = a.id WHERE b.time BETWEEN a.time AND expires GROUP BY ALL),
         closed AS (SELECT * FROM sold
                    WHERE expires // 1000000 * 1000000 + 1000000
                          <= coalesce((SELECT min(time) FROM later), 4611686018427387904))"""
CLOSED: dict[str, tuple[tuple[str, ...], str]] = {
    "q4": (
        ("category",),
        f"{SOLD} SELECT category, sum(price) / count(*) AS average, count(*) AS auctions FROM closed GROUP BY category",
    ),
    "q6": (
        ("seller",),
        f"""{SOLD}, ten AS (SELECT * FROM closed
                            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC) <= 10)
        SELECT seller, sum(price) / count(*) AS average, count(*) AS auctions FROM ten GROUP BY seller""",
    ),
}
"""Queries over auctions that closed: the key whose last row counts, and the result after batch `upto`, when what closed is
told by the least time that is still to come."""

RANKS = ", ".join(
    f"{what} FILTER ({where}) AS {rank}_{name}"
    for what, name in (
        ("count(*)", "bids"),
        ("count(DISTINCT bidder)", "bidders"),
        ("count(DISTINCT auction)", "auctions"),
    )
    for rank, where in (
        ("low", "price < 10000"),
        ("middle", "price BETWEEN 10000 AND 999999"),
        ("high", "price >= 1000000"),
    )
)
DISTINCT = (
    f"count(*) AS bids, count(DISTINCT bidder) AS bidders, count(DISTINCT auction) AS auctions, {RANKS}"
)
HELD: dict[str, tuple[tuple[str, ...], str]] = {
    "q15": (
        ("day",),
        f"""
        SELECT time - time % 86400000000 AS day, {DISTINCT} FROM bids WHERE batch <= {{upto}} GROUP BY ALL""",
    ),
    "q16": (
        ("channel", "day"),
        f"""
        SELECT channel, time - time % 86400000000 AS day, max(time % 86400000000 // 60000000) AS minute, {DISTINCT}
        FROM bids WHERE batch <= {{upto}} GROUP BY ALL""",
    ),
    "q17": (
        ("auction", "day"),
        """
        SELECT auction, time - time % 86400000000 AS day, count(*) AS bids,
               count(*) FILTER (price < 10000) AS low_bids,
               count(*) FILTER (price >= 10000 AND price < 1000000) AS middle_bids,
               count(*) FILTER (price >= 1000000) AS high_bids,
               min(price) AS least, max(price) AS greatest, sum(price) / count(*) AS mean,
               CAST(sum(price) AS BIGINT) AS sum
        FROM bids WHERE batch <= {upto} GROUP BY ALL""",
    ),
    "q18": (
        ("bidder", "auction"),
        f"""
        SELECT {BID} FROM bids WHERE batch <= {{upto}}
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY batch DESC, part DESC, pos DESC) = 1""",
    ),
    "q19": (
        ("auction", "rank"),
        """
        SELECT auction, bidder, time, price,
               row_number() OVER (PARTITION BY auction ORDER BY price DESC, batch, part, pos) AS rank
        FROM bids WHERE batch <= {upto} QUALIFY rank <= 10""",
    ),
}
"""Queries whose result changes: the key whose last row counts, and the result after batch `upto`."""

SHAPES = [(2, 0.3, 1), (3, 0.0, 2), (1, 0.1, 0), (4, 0.2, 3)]
"""Parallelism, share of the hot key, seed."""
CORE = 1
shapes = pytest.mark.parametrize(
    ("parallelism", "hot", "seed"),
    [pytest.param(*s, marks=[] if i < CORE else [pytest.mark.wide]) for i, s in enumerate(SHAPES)],
)


def stream(query: str, parallelism: int, hot: float, seed: int) -> StreamTopology:
    """25 s of events, and so two whole windows and a half; of Q11 52 s."""
    batches = 13 if query in WHEN_WINDOWS_END else 50
    return example(query, parallelism, batches=batches, hot=hot, seed=seed)


def without_batch(found: Played) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "batch"} for row in found.output]


@shapes
@pytest.mark.parametrize("query", AT_ONCE)
def test_rows_and_their_batches_are_those_of_the_sql(
    query: str, parallelism: int, hot: float, seed: int
) -> None:
    found = played(stream(query, parallelism, hot, seed))
    assert len(found.output) >= 15
    assert counted(found.output) == counted(found.sql(AT_ONCE[query]))


@shapes
@pytest.mark.parametrize("query", WHEN_WINDOWS_END)
def test_windows_of_event_time_give_the_rows_of_the_sql(
    query: str, parallelism: int, hot: float, seed: int
) -> None:
    found = played(stream(query, parallelism, hot, seed))
    assert len(found.output) >= 3
    assert counted(without_batch(found)) == counted(found.sql(WHEN_WINDOWS_END[query]))


@shapes
@pytest.mark.parametrize("query", HELD)
def test_who_keeps_the_last_rows_holds_the_result_of_the_sql(
    query: str, parallelism: int, hot: float, seed: int
) -> None:
    found = played(stream(query, parallelism, hot, seed))
    keys, sql = HELD[query]
    for upto in (1, 23, 50):
        expected = counted(found.sql(sql.format(upto=upto)))
        assert latest(found.output, keys, upto) == expected
        assert expected


@pytest.mark.long
@shapes
def test_the_winner_of_an_auction_is_one_of_the_highest_valid_bids(
    parallelism: int, hot: float, seed: int
) -> None:
    """Which of several bids with the highest price wins is not asked."""
    found = played(stream("q9", parallelism, hot, seed))
    for upto in (10, 50):
        expected = counted(
            found.sql(f"""
            SELECT auction, bidder, b.time, seller, category, price, 1 AS rank FROM auctions a JOIN bids b ON auction = id
            WHERE greatest(a.batch, b.batch) <= {upto} AND b.time BETWEEN a.time AND expires
            QUALIFY rank() OVER (PARTITION BY auction ORDER BY price DESC) = 1""")
        )
        winners = latest(found.output, ("auction",), upto)
        assert set(winners) <= set(expected)
        assert {dict(row)["auction"] for row in winners} == {dict(row)["auction"] for row in expected}
        assert winners.total() > 20


@pytest.mark.wide
@shapes
@pytest.mark.parametrize("query", CLOSED)
def test_what_auctions_sold_for_counts_once_they_have_closed(
    query: str, parallelism: int, hot: float, seed: int
) -> None:
    found = played(stream(query, parallelism, hot, seed))
    keys, sql = CLOSED[query]
    for upto in (16, 37, 50):
        expected = counted(found.sql(sql.format(upto=upto)))
        assert latest(found.output, keys, upto) == expected
        assert expected
    if query == "q6" and hot:
        assert max(row["auctions"] for row in found.output) == 10


@shapes
def test_sessions_end_where_a_bidder_pauses(parallelism: int, hot: float, seed: int) -> None:
    """At these rates nobody pauses for 10 s; so the gap is shorter."""
    resource = override(stream("q11", parallelism, hot, seed), {"operators[sink].with.gap": "700ms"})
    found = played(resource)
    assert len({row["bidder"] for row in found.output}) < len(found.output) / 2
    assert counted(without_batch(found)) == counted(found.sql(SESSIONS.format(gap=700_000)))


@pytest.mark.long
@pytest.mark.parametrize("query", ["q8", "q12"])
def test_a_first_window_that_is_shorter_moves_the_others(query: str) -> None:
    operator = "join" if query == "q8" else "count"
    found = played(override(stream(query, 2, 0.1, 5), {f"operators[{operator}].with.first": "5s"}))
    sql = AT_ONCE[query].replace(WINDOW, f"({SHORT_FIRST}")
    sql = sql.replace("(p.w + 1) * 10000000 AS", "p.w * 10000000 + 5000000 AS")
    sql = sql.replace("(w + 1) * 10000000 AS", "w * 10000000 + 5000000 AS")
    sql = sql.replace("p.w * 10000000 AS", "greatest(p.w * 10000000 - 5000000, 0) AS")
    sql = sql.replace(" w * 10000000 AS", " greatest(w * 10000000 - 5000000, 0) AS")
    assert {row["window_start"] for row in found.output} == {0, 5_000_000, 15_000_000}
    assert counted(found.output) == counted(found.sql(sql))


@pytest.mark.parametrize("query", ["q1", "q3", "q8", "q12"])
def test_the_same_events_from_files_give_the_same_batches(query: str, tmp_path: Path) -> None:
    """Files deal their rows to partitions in turn, as the generator does, so with as many rows a batch all is equal."""
    resource = example(query, 2, batches=50, hot=0.2, seed=7, rate=400)
    generated = played(resource)
    changes: dict[str, Any] = {}
    for source in resource.sources:
        path = tmp_path / f"{source.name}.parquet"
        events = generated.events[source.name].sort_by("time")
        pq.write_table(events.drop_columns(["batch", "part", "pos"]), path)
        rows = events.num_rows // 50 // source.parallelism
        changes[f"sources[{source.name}].class"] = "reprise.spark_jobs.sources:FileSource"
        changes[f"sources[{source.name}].with"] = {"paths": [str(path)], "rows": rows, "time": "time"}
    assert played(override(resource, changes)).output == generated.output


@pytest.mark.parametrize(
    ("query", "change", "before", "after"),
    [
        ("q1", {"operators[convert].with.select": ["time", "auction", "bidder", "price * 0.908 AS price"]}, "0.82", "0.908"),
        ("q3", {"operators[wanted].with.where": "category = 10"}, "state IN", "category = 10 AND state IN"),
    ],
)  # fmt: skip
def test_the_parameters_of_nexmark_itself(
    query: str, change: dict[str, Any], before: str, after: str
) -> None:
    found = played(override(stream(query, 2, 0.1, 6), change))
    assert found.output
    assert counted(found.output) == counted(found.sql(AT_ONCE[query].replace(before, after)))


class ForgetsTheLeftSide(Join):
    """A join that loses what one side has held."""

    def step(self, state: PairState, inbox: Inbox) -> tuple[PairState, pa.Table | None]:
        state, out = super().step(state, inbox)
        state.left = type(state.left)()
        return state, out


class ForgetsHotKeys(RunningAggregate):
    """A count that leaves out every second row of a key with three in a batch."""

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        state, out = super().step(state, inbox)
        if out is not None:
            often = {k for k, n in counted({"k": k} for k in out["bidder"].to_pylist()).items() if n >= 3}
            keep = [i % 2 == 0 or (("k", k),) not in often for i, k in enumerate(out["bidder"].to_pylist())]
            out = out.filter(pa.array(keep))
        return state, out


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a state that is left out": ("q3", {"operators[local].with.where": "state IN ('OR', 'ID')"}),
    "a side of the join that is lost": ("q3", {"operators[join].class": f"{HERE}:ForgetsTheLeftSide"}),
    "a window that ends a batch late": ("q8", {"operators[join].with.first": "9500ms"}),
    "a window that never ends": ("q8", {"operators[join].with.size": "1h"}),
    "counts by auction": ("q12", {"operators[count].with.keys": ["auction"]}),
    "hot keys that are left out": ("q12", {"operators[count].class": f"{HERE}:ForgetsHotKeys"}),
    "another rate": ("q1", {"operators[convert].with.select": ["time", "auction", "bidder", "price * 0.83 AS price"]}),
    "a wider window": ("q5", {"operators[count].with.size": "12s"}),
    "one of two winners": ("q5", {"operators[sink].with.where": "bids > most"}),
    "a window that is too short": ("q7", {"operators[highest].with.size": "5s"}),
    "sessions that go on": ("q11", {"operators[sink].with.gap": "11s"}),
    "bids after the end": ("q4", {"operators[valid].with.where": "time >= opens"}),
    "prices that do not wait": ("q4", {"operators[sold].with.emit": "updates"}),
    "nine auctions": ("q6", {"operators[ten].with.k": 9}),
    "bidders twice": ("q15", {"operators[sink].with.aggregate.bidders": "count()"}),
    "lists that are too short": ("q19", {"operators[sink].with.k": 9}),
}  # fmt: skip


@pytest.mark.wide
@pytest.mark.parametrize("name", WRONG)
def test_the_check_notices_a_query_that_is_wrong(name: str) -> None:
    query, change = WRONG[name]
    found = played(override(stream(query, 2, 0.3, 1), change))
    ours, theirs = found.output, AT_ONCE.get(query) or WHEN_WINDOWS_END.get(query)
    if query in HELD | CLOSED:
        keys, sql = (HELD | CLOSED)[query]
        assert latest(ours, keys, 50) != counted(found.sql(sql.format(upto=50)))
        return
    assert theirs is not None
    assert counted(without_batch(found) if query in WHEN_WINDOWS_END else ours) != counted(found.sql(theirs))
