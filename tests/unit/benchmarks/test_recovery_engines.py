"""What the recovery benchmark reads of other engines, and the losses that it puts them through."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, which sleeping alone moves on."""
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


@pytest.mark.usefixtures("clock")
def test_nodes_are_lost_and_requested_as_planned() -> None:
    engine = Engine(4)
    failure, phases, reason = lose(engine, Plan(TWEETS, 0.0, 3, [5.0, 8.0], 20.0))
    assert engine.killed == ["n2", "n3", "n4"] and engine.nodes == ["n1", "n5", "n6"]
    assert (failure, reason) == (1000.0, "")
    assert phases[StartPhase.REQUESTED] == pytest.approx((1005.0, 1008.0), abs=0.1)
    assert phases[StartPhase.HEARTBEAT] == pytest.approx((1005.0, 1008.0), abs=0.7)


@pytest.mark.usefixtures("clock")
def test_an_engine_that_has_ended_is_named() -> None:
    engine = Engine(2)
    engine.alive = False
    assert lose(engine, Plan(TWEETS, 0.0, 1, [], 5.0))[2] == "the engine ended 0 s after the failure"
    with pytest.raises(Stopped, match="has ended"):
        wait_for(engine, lambda: True, 5.0)
    engine.alive = True
    with pytest.raises(Stopped, match="did not run within 5 s"):
        wait_for(engine, lambda: False, 5.0)


def test_an_engine_is_warm_when_its_newest_batch_is_young(clock: list[float]) -> None:
    def late(seconds: float) -> Writes:
        due = np.array([clock[0] - seconds])
        return Writes(np.array([1]), due, due)

    assert recovery_peers.warm(Engine(1), lambda: late(30.0 if clock[0] < 1050.0 else 1.0)) == ""
    assert 1050.0 <= clock[0] < 1053.0
    assert "8 s late" in recovery_peers.warm(Engine(1), lambda: late(30.0))
    assert "8 s late" in recovery_peers.warm(
        Engine(1), lambda: Writes(np.array([]), np.array([]), np.array([]))
    )


def feed_of(folder: Path) -> Feed:
    feed = Feed(TWEETS, folder / "tweets")
    feed.zero = 1000.0
    return feed


def log(path: Path, *lines: dict[str, int | str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *map(json.dumps, lines)]))


@pytest.fixture
def streamed(tmp_path: Path) -> Path:
    """Micro-batch 0 has read batch 1, and 1 has read 2 and 3; 2 has read 4, and was written but not committed."""
    checkpoint = tmp_path / "checkpoint"
    files = [
        {"path": f"file:///t/batch-00000{batch}.txt", "batchId": at}
        for batch, at in ((1, 0), (2, 1), (3, 1), (4, 2))
    ]
    log(checkpoint / "sources" / "0" / "1.compact", *files[:3])
    log(checkpoint / "sources" / "0" / "0", files[0])
    log(checkpoint / "sources" / "0" / "2", files[3])
    for number in range(3):
        log(checkpoint / "offsets" / str(number), {"batchWatermarkMs": 0}, {"logOffset": number})
    for number in range(2):
        log(checkpoint / "commits" / str(number), {})
    lines = [
        {"batch": 0, "at": 1001.0},
        {"batch": 1, "at": 1003.0},
        {"batch": 1, "at": 1009.0},
        {"batch": 2, "at": 1010.0},
    ]
    (tmp_path / recovery_structured.WRITTEN).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for number, count in ((0, 2), (1, 3), (2, 9)):
        folder = tmp_path / "sink" / f"batch={number}"
        folder.mkdir(parents=True)
        pl.DataFrame({"query": [1], "tag": ["a"], "count": [count]}).write_parquet(folder / "part.parquet")
    return tmp_path


def test_a_batch_is_written_with_the_micro_batch_that_has_read_it(streamed: Path, tmp_path: Path) -> None:
    found = recovery_peers.structured_writes(streamed, feed_of(tmp_path))
    assert found.batches.tolist() == [1, 2, 3]
    assert found.written.tolist() == [1001.0, 1003.0, 1003.0], "the first write counts"
    assert found.due.tolist() == [1000.5, 1001.0, 1001.5]


def test_counts_of_micro_batches_that_were_not_committed_do_not_count(streamed: Path) -> None:
    assert recovery_peers.structured_counts(streamed) == {"o1": {"a": 3}}


def test_counts_of_a_run_of_this_project(tmp_path: Path) -> None:
    for batch, count in ((1, 1), (2, 4)):
        folder = tmp_path / "sink" / "o2" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        table = pl.DataFrame({"tag": ["a"], "count": [count]})
        table.write_parquet(folder / f"batch-0000000{batch}.parquet")
    (tmp_path / "sink" / "o2" / "0" / "batch-00000003.parquet").touch()
    assert recovery_peers.own_counts(tmp_path) == {"o2": {"a": 4}}


def keys(*batches: int) -> list[tuple[int, int, str]]:
    """Each hashtag of the tweets of these batches: (tweet, position, hashtag)."""
    return [
        (tweet, at, tag)
        for batch in batches
        for tweet, tags in TWEETS.batch(batch)
        for at, tag in enumerate(tags)
    ]


def probe(folder: Path, query: int, lines: list[str], more: str = "") -> None:
    path = folder / "probe" / str(query)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"attempt-{len(list(path.iterdir()))}").write_text("".join(f"{line}\n" for line in lines) + more)


def test_flinks_batch_is_there_when_each_hashtag_has_its_first_result(tmp_path: Path) -> None:
    first, second, third = keys(1), keys(2), keys(3)
    probe(tmp_path, 0, [f"{tweet} {at} 1001000" for tweet, at, _ in first + second[:-1]])
    probe(
        tmp_path, 0, [f"{tweet} {at} 1009000" for tweet, at, _ in second + third[:-1]], f"{third[-1][0]} 0 10"
    )
    found = recovery_flink.computed(tmp_path, 0)
    assert found.first[second[0][:2]] == 1001.0 and found.last[second[0][:2]] == 1009.0
    written = recovery_flink.writes(found, feed_of(tmp_path), TWEETS)
    assert written.batches.tolist() == [1, 2]
    assert written.written.tolist() == [1001.0, 1009.0]
    assert written.due.tolist() == [1000.5, 1001.0]


@pytest.mark.parametrize(
    ("change", "right"),
    [
        (lambda rows: rows, True),
        (lambda rows: rows[1:], False),
        (lambda rows: [*rows, rows[0]], False),
        (lambda rows: [*rows, (999, 0, "tag1")], False),
        (lambda rows: [], False),
    ],
    ids=["once", "missing", "twice", "not-given", "nothing"],
)
def test_flinks_results_are_each_there_once(tmp_path: Path, change: Callable[..., Any], right: bool) -> None:
    """The last checkpoint was triggered at 1005, and results of batch 2 were computed later."""
    for query in range(len(QUERIES)):
        probe(tmp_path, query, [f"{tweet} {at} 1001000" for tweet, at, _ in keys(1)])
        probe(tmp_path, query, [f"{tweet} {at} 1006000" for tweet, at, _ in keys(2)])
        folder = tmp_path / "sink" / str(query) / "2026-11-30--20"
        folder.mkdir(parents=True)
        counted: Counter[str] = Counter()
        lines = []
        for tweet, at, tag in change(keys(1)) if query == 2 else keys(1):
            counted[tag] += 1
            lines.append(f"{tweet} {at} {tag} {counted[tag]}\n")
        (folder / "part-0-0").write_text("".join(lines))
        (folder / ".part-0-1.inprogress").write_text("9 0 a 1\n")
    found = [recovery_flink.computed(tmp_path, query) for query in range(len(QUERIES))]
    wrong = recovery_flink.miscounted(tmp_path, found, TWEETS, 1005.0)
    assert bool(wrong) != right
    assert all(text.startswith("o2: of") for text in wrong)


def test_other_engines_cannot_do_topology_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert recovery.parse(["--out", "x", "--work", "counts"]).contestants[-1] == "flink-tuned"
    with pytest.raises(SystemExit):
        recovery.parse(["--out", "x", "--contestants", "flink"])
    assert "--work counts" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        recovery.parse(["--out", "x", "--work", "counts", "--reverse"])
    assert "--order" in capsys.readouterr().err
