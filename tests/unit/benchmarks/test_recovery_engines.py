"""What the recovery benchmark reads of other engines, and the losses that it puts them through."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from benchmarks import recovery, recovery_flink, recovery_peers, recovery_structured
from benchmarks.recovery_peers import Plan, Stopped, lose, wait_for
from benchmarks.recovery_work import QUERIES, CostlyCount, Feed, Tweets, counts, miscounted
from reprise.controller.local.report.history import Writes
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.contract import Inbox, Input, Place
from reprise.spark_jobs.topology import expand, from_json
from tools.testbed.waiting import until

TWEETS = Tweets(rate=200, interval_s=0.5, batches=4, seed=3)


class Engine:
    """Nodes that are there as soon as they are added; it ends when told."""

    def __init__(self, nodes: int) -> None:
        self.nodes: list[str] = [f"n{number}" for number in range(1, nodes + 1)]
        self.alive, self.killed, self._number = True, list[str](), nodes

    def add_node(self) -> str:
        self._number += 1
        self.nodes.append(f"n{self._number}")
        return self.nodes[-1]

    def kill(self, names: Sequence[str]) -> None:
        self.killed += names
        self.nodes = [name for name in self.nodes if name not in names]

    def there(self) -> frozenset[str]:
        return frozenset(self.nodes)


def test_the_topology_counts_what_other_engines_count() -> None:
    topology = expand(from_json(json.dumps(counts(0.6))))
    assert [query.id for query in topology.queries.values()] == list(recovery_peers.IDS)
    assert sum(query.priority for query in topology.queries.values()) == 75


def test_each_row_takes_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    operator, place = CostlyCount(["tag"], 0.5), Place("o0", 0, 1)
    inbox = Inbox(1, None, (Input("parser", 0, pa.table({"tag": ["a", "b", "a"]})),))
    state, out = operator.step(operator.initial(place), inbox)
    assert slept == [pytest.approx(0.0015)]
    assert out is not None and out.to_pylist() == [{"tag": "a", "count": 2}, {"tag": "b", "count": 1}]
    operator.step(state, Inbox(2, None, ()))
    assert len(slept) == 1


def test_all_batches_have_as_many_tweets() -> None:
    batches = [TWEETS.batch(number) for number in range(1, 5)]
    assert [len(batch) for batch in batches] == [100] * 4
    assert [tweet for batch in batches for tweet, _ in batch] == list(range(400))
    assert sum(TWEETS.counts(4).values()) == sum(len(tags) for batch in batches for _, tags in batch)


def test_files_appear_when_they_are_due(tmp_path: Path) -> None:
    tweets = Tweets(rate=1000, interval_s=0.01, batches=3, seed=1)
    with Feed(tweets, tmp_path / "tweets") as feed:
        until(lambda: len(list(feed.folder.iterdir())) == 3)
    assert feed.due(2) - feed.zero == pytest.approx(0.02)
    paths = sorted(feed.folder.iterdir())
    assert all(path.stat().st_mtime >= feed.due(number) - 0.01 for number, path in enumerate(paths, 1))
    tweet, *tags = paths[0].read_text().splitlines()[0].split(" ")
    assert (int(tweet), tags) == tweets.batch(1)[0]


def test_wrong_counts_are_named() -> None:
    right = {query: {"a": 2, "b": 1} for query in QUERIES}
    assert not miscounted(right, {"a": 2, "b": 1})
    assert miscounted(right | {"o3": {"a": 2, "c": 1}}, {"a": 2, "b": 1}) == [
        "o3 has 1 of 2 counts wrong",
        "o3 counts 1 hashtags that were not there",
    ]


def test_nodes_are_lost_and_requested_as_planned() -> None:
    engine = Engine(4)
    failure, phases = lose(engine, Plan(TWEETS, 0.0, 3, [0.05, 0.1], 0.3))
    assert engine.killed == ["n2", "n3", "n4"] and engine.nodes == ["n1", "n5", "n6"]
    requested = phases[StartPhase.REQUESTED]
    assert len(requested) == 2 and requested[0] >= failure + 0.05 and requested[1] >= failure + 0.1
    assert len(phases[StartPhase.HEARTBEAT]) == 2


def test_an_engine_that_has_ended_is_named() -> None:
    engine = Engine(2)
    engine.alive = False
    with pytest.raises(Stopped, match="has ended"):
        lose(engine, Plan(TWEETS, 0.0, 1, [], 5.0))
    with pytest.raises(Stopped, match="has ended"):
        wait_for(engine, lambda: False, 5.0)
    engine.alive = True
    with pytest.raises(Stopped, match="did not run within 0 s"):
        wait_for(engine, lambda: False, 0.0)


def feed_of(folder: Path) -> Feed:
    feed = Feed(TWEETS, folder / "tweets")
    feed.zero = 1000.0
    return feed


def test_a_batch_is_written_with_the_micro_batch_that_has_its_last_tweet(tmp_path: Path) -> None:
    (tmp_path / recovery_structured.PROGRESS).write_text(json.dumps({"0": 100, "1": 150, "2": 50}))
    lines = [{"batch": 0, "at": 1001.0}, {"batch": 1, "at": 1003.0}, {"batch": 1, "at": 1009.0},
             {"batch": 2, "at": 1004.0}, {"batch": 3, "at": 1005.0}]  # fmt: skip
    (tmp_path / recovery_structured.WRITTEN).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = recovery_peers._structured_writes(tmp_path, feed_of(tmp_path), TWEETS)
    assert found.batches.tolist() == [1, 2, 3]
    assert found.written.tolist() == [1001.0, 1003.0, 1004.0], (
        "the first write counts, and 3 was not committed"
    )
    assert found.due.tolist() == [1000.5, 1001.0, 1001.5]


def test_counts_of_micro_batches_that_were_not_committed_do_not_count(tmp_path: Path) -> None:
    (tmp_path / recovery_structured.PROGRESS).write_text(json.dumps({"0": 100, "1": 100}))
    for batch, count in ((0, 2), (1, 3), (2, 9)):
        folder = tmp_path / "sink" / f"batch={batch}"
        folder.mkdir(parents=True)
        pl.DataFrame({"query": [1], "tag": ["a"], "count": [count]}).write_parquet(folder / "part.parquet")
    assert recovery_peers._structured_counts(tmp_path) == {"o1": {"a": 3}}


def probe(folder: Path, query: int, lines: str) -> None:
    path = folder / "probe" / str(query)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"attempt-{len(list(path.iterdir()))}").write_text(lines)


def test_flinks_batch_is_there_when_each_of_its_tweets_has_its_first_result(tmp_path: Path) -> None:
    probe(tmp_path, 0, "".join(f"{tweet} {1_000_500 + tweet}\n" for tweet in range(150)))
    probe(tmp_path, 0, "".join(f"{tweet} {1_009_000 + tweet}\n" for tweet in range(50, 200)) + "200 10")
    found = recovery_flink.writes(tmp_path, feed_of(tmp_path), TWEETS)
    assert found["o0.0"].batches.tolist() == [1, 2]
    assert found["o0.0"].written.tolist() == [1000.599, 1009.199]
    assert found["o0.0"].due.tolist() == [1000.5, 1001.0]
    assert not found["o1.0"].batches.size


@pytest.mark.parametrize(
    ("lines", "right"),
    [
        (["1 a 1", "2 a 2", "2 b 1"], True),
        (["1 a 1", "2 a 1"], False),
        (["1 a 2"], False),
        (["1 c 1"], False),
    ],
    ids=["once", "twice", "gap", "not-there"],
)
def test_flinks_counts_are_each_there_once(tmp_path: Path, lines: list[str], right: bool) -> None:
    for query in range(len(QUERIES)):
        folder = tmp_path / "sink" / str(query) / "2026-11-30--20"
        folder.mkdir(parents=True)
        (folder / "part-0-0").write_text(
            "".join(f"{line}\n" for line in (lines if query == 2 else ["1 a 1"]))
        )
        (folder / ".part-0-1.inprogress").write_text("9 a 1\n")
    wrong = recovery_flink.miscounted(tmp_path, {"a": 2, "b": 1})
    assert bool(wrong) != right
    assert all(text.startswith("o2 has") for text in wrong)


def test_other_engines_cannot_do_topology_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert recovery.parse(["--out", "x", "--work", "counts"]).contestants[-1] == "flink-tuned"
    with pytest.raises(SystemExit):
        recovery.parse(["--out", "x", "--contestants", "flink"])
    assert "--work counts" in capsys.readouterr().err


def test_the_age_of_the_newest_batch_decides_whether_an_engine_is_warm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_peers, "WARM_S", (0.0, 60.0))
    asked = 0

    def writes() -> list[Writes]:
        nonlocal asked
        asked += 1
        late = np.array([time.time() - (30.0 if asked == 1 else 1.0)])
        return [Writes(np.array([1]), late, late)]

    monkeypatch.setattr(time, "sleep", lambda _: None)
    recovery_peers.warm(Engine(1), writes)
    assert asked == 2
