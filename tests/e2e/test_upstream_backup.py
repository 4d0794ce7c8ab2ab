"""Operators with `availability: upstream-backup` on a real cluster: SIGKILL of a node while the store has no state of any
partition.  What is lost is fed again by what it reads, and the output is that of a run without a failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.topology import load_text
from tests.e2e import scenario
from tests.support.hashtags import SKIPPED, at_pace

pytestmark = [pytest.mark.slow, pytest.mark.wide]


@contextmanager
def without_states(checkpoints: Path) -> Iterator[list[Path]]:
    """Removes every state of a checkpoint as soon as that is complete; those that were there."""
    removed, ends = list[Path](), threading.Event()

    def watch() -> None:
        while not ends.wait(0.02):
            with suppress(FileNotFoundError):  # old checkpoints are deleted meanwhile
                for complete in checkpoints.rglob("COMPLETE.*.json"):
                    for state in complete.parent.glob("*.state"):
                        state.unlink(missing_ok=True)
                        removed.append(state)

    thread = threading.Thread(target=watch, name="without-states")
    thread.start()
    try:
        yield removed
    finally:
        ends.set()
        thread.join()


def test_what_is_lost_is_fed_again_and_no_state_is_read(large_nodes: EmbeddedCluster, tmp_path: Path) -> None:
    """Windows end at checkpoints, so that a source on the same node can be read again from there."""
    windows = {
        "operators[window].with.size": "1400ms",
        "operators[window].with.interval": "200ms",
        "checkpoint.everyBatches": 7,
    }
    backed = {f"operators[{n}].availability": "upstream-backup" for n in ("parse", "window", "best", "all")}
    changes = {**at_pace("200ms", 400, 80, 7), **windows, **backed}
    resource = scenario.without_end(load_text(SKIPPED, changes=changes), tmp_path)
    faults = [{"on": "checkpoint", "count": 3, "kill": ["@window.0"]}, {"on": "plan", "add": 1}]
    out = tmp_path / "out"
    with without_states(out) as removed:
        result = scenario.run(resource, large_nodes, out, faults, until=scenario.quiet_again(faults))
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert any(path.name.startswith("window.0.") for path in removed), "nothing was stored of it"
    logs = "\n".join(p.read_text(errors="replace") for p in (out / "logs").rglob("*") if p.is_file())
    assert "event=upstream-backup partition=window.0" in logs, "it was restored from the checkpoint"
    assert "rule=checkpoint-damaged" not in logs, "a state was to be read, and was not there"
    (incident, *_) = result.incident["incidents"]
    assert not any(plan["rollback"] for plan in incident["plans"]), "everything went back"
