"""What the status document says of each partition in numbers, and what failed on it."""

from __future__ import annotations

from dataclasses import replace

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.status import document
from reprise.scheduler import PartitionStats
from reprise.spark_jobs.topology import expand, load_text
from tests.unit.controller.status.test_document import PLACES, PROGRESS, TOPOLOGY, WELL


def test_a_partition_says_its_throughput_lag_checkpoint_and_error() -> None:
    topology = expand(load_text(TOPOLOGY))
    stats = {
        p: PartitionStats(1.0, input_rows_s=12.5, watermark=7_250_000) for p in ("clean.0", "clean.1")
    } | {"count.0": PartitionStats(1.0, input_ended=True)}
    positions = {p: 10 for p in PLACES if p != "clean.1"} | {"count.0": 7}
    failed = {"clean.1": Failure(FailureKind.POISON, "KeyError")}
    progress = replace(PROGRESS, positions=positions, failed=failed, lines={"count.0": 4})
    found = document(topology, replace(WELL, progress=progress, stats=stats))
    views = {p.id: p for p in found.partitions}
    assert found.batch_interval_s == 0.5
    assert (views["count.0"].lag, views["count.0"].lag_s, views["clean.1"].lag_s) == (3, 1.5, None)
    assert (views["clean.0"].input_rows_s, views["clean.1"].input_rows_s) == (12.5, None), "not at work"
    assert (views["clean.0"].watermark, views["clean.1"].watermark) == (7.25, None), "not at work"
    assert (views["count.0"].watermark, views["count.0"].input_ended) == (None, True)
    assert not any(views[p].input_ended for p in views if p != "count.0")
    assert (views["count.0"].checkpoint, views["count.1"].checkpoint) == (4, 6)
    assert (views["clean.1"].error, views["clean.0"].error) == ("poison: KeyError", None)
    assert {q.lag_s for q in found.queries.items if q.id == "count.0"} == {1.5}
