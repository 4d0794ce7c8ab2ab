"""A coordinator that has not heard of the newest checkpoints: real engine, hosts and rules.

It was frozen between reading and writing, or reads from a server of the ensemble that is behind.  The driver keeps the
checkpoint before its newest one for that; here it is still longer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprise.scheduler import decide
from tests.unit.spark_jobs.engine.test_store_away import TEXT, goes_on, steady


@pytest.mark.parametrize("lost", [("c",), ("b", "c")])
def test_a_checkpoint_that_was_removed_is_refused_and_a_newer_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...]
) -> None:
    cluster = steady(tmp_path, monkeypatch, TEXT.replace("keep: 3", "keep: 1"))
    store, before = cluster.world.engine.store, cluster.snapshot()
    assert before.progress is not None
    named = before.progress.checkpoint
    assert named in store.positions()
    cluster.run(lambda: min(store.positions()) > named)
    cluster.world.nodes.lose(*lost)
    cluster.world.nodes.start("d", "e")
    for _ in range(50):
        seen = cluster.snapshot()
        assert seen.progress is not None
        stale = replace(
            seen, checkpoints=before.checkpoints, progress=replace(seen.progress, checkpoint=named, trimmed=0)
        )
        decision = decide(stale, cluster.policy)
        cluster.carry_out(decision)
        if decision.plan is not None:
            break
        cluster.now += 0.3
        cluster.driver()
    assert cluster.desired is not None and cluster.desired.checkpoint == named
    cluster.run(lambda: cluster.incident is None and not cluster.world.engine.failed)
    assert any(f"behind batch {named}" in said for said in cluster.said), cluster.said
    assert "checkpoint-damaged" in cluster.rules
    assert cluster.desired.checkpoint > named
    goes_on(cluster, given_up=frozenset({named}))
