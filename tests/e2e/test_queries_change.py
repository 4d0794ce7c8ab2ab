"""Queries come and go in a run on a real cluster: `reprise apply` lets the stream drain and go on, with the driver killed
while it drains, and nodes killed behind the change.  What stays has the output of a run without any of that, to the byte;
what goes has it up to the batch that was said; what comes shows, behind that batch, what its rows from there on say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprise.controller.cli import exits
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.report.compare import pieces
from reprise.controller.local.report.layout import read_record
from reprise.controller.local.run.config import Outcome
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology, from_json, to_json
from tests.e2e import scenario
from tests.e2e.test_rescaling import named

pytestmark = [pytest.mark.slow, pytest.mark.wide]
SEEN: dict[str, Any] = {
    "name": "seen",
    "class": "reprise.operators:KeyedCount",
    "parallelism": 2,
    "with": {"keys": ["tag"]},
    "resources": {"cpu": "40m"},
    "inputs": [{"from": "parse", "by": ["tag"]}],
    "output": {"priority": 5},
}
"""Comes; `window` goes."""
REPRISE = (sys.executable, "-m", "reprise.controller.cli")


def instead(resource: StreamTopology) -> StreamTopology:
    document = json.loads(resource.document)
    stay = [one for one in document["spec"]["operators"] if one["name"] != "window"]
    document["spec"]["operators"] = [*stay, SEEN]
    return from_json(json.dumps(document))


class Applies:
    """Applies the changed file once the run is under way; kills the driver that was asked to drain, once; and kills two
    nodes as soon as batches go on behind the change."""

    def __init__(self, cluster: EmbeddedCluster, out: Path, file: Path) -> None:
        self.cluster, self.out, self.file = cluster, out, file
        self.applied: subprocess.Popen[str] | None = None
        self.killed = ""
        """The driver that was killed."""
        self.status: subprocess.CompletedProcess[str] | None = None
        """What `reprise status` says when batches go on behind the change."""

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        progress = state.observation.progress
        if progress is None:
            return
        if self.applied is None and progress.horizon >= 25:
            command = [*REPRISE, "apply", "-f", str(self.file), "--out", str(self.out)]
            self.applied = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        asked = any(action["action"] == "queries-change" for action in actions)
        if asked and not self.killed and progress.drained is None:
            self.killed = progress.driver
            os.kill(self._driver(), signal.SIGKILL)
        if self.status is None and any(action["action"] == "queries-changed" for action in actions):
            command = [*REPRISE, "status", "--out", str(self.out)]
            self.status = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            desired = state.observation.desired
            assert desired is not None
            nodes = {desired.assignment[partition].partition("#")[0] for partition in ("count.0", "seen.0")}
            self.cluster.kill(sorted(nodes))

    def _driver(self) -> int:
        """The process of this run's driver."""
        topology = str((self.out / "topology.json").resolve())
        return next(
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if {"reprise.controller.driver", topology} <= set(process.info["cmdline"] or ())
        )


def files(out: Path, operator: str) -> dict[str, bytes]:
    """Partition and batch -> bytes of the output."""
    found, twice = pieces(out)
    assert not twice
    return {
        f"{p} {batch:04d}": path.read_bytes()
        for (p, batch), path in found.items()
        if p.startswith(f"{operator}.")
    }


def counts(out: Path, operator: str) -> dict[int, dict[str, int]]:
    """Batch -> tag -> what the operator has counted of it by then, where that has changed."""
    found: dict[int, dict[str, int]] = {}
    for name, data in files(out, operator).items():
        rows = map(json.loads, data.decode().splitlines())
        found.setdefault(int(name.split()[1]), {}).update((row["tag"], row["count"]) for row in rows)
    return found


def test_queries_come_and_go_and_what_stays_does_not_see_it(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    resource = scenario.without_end(named("queries"), tmp_path)
    out, file = tmp_path / "out", tmp_path / "changed.yaml"
    file.write_text(to_json(instead(resource)))
    applies, faults = Applies(large_nodes, out, file), [{"on": "plan", "add": 2}]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, out, faults, applies, until=over)
    expected = scenario.write_expected(resource, tmp_path / "expected")
    assert result.outcome is Outcome.DONE, (result.outcome, result.reason)
    assert applies.applied is not None
    said, _ = applies.applied.communicate(timeout=300)
    assert applies.applied.returncode == exits.DONE, said
    assert applies.killed
    assert applies.status is not None
    rows = {words[0] for line in applies.status.stdout.splitlines() if (words := line.split())}
    assert {"count.0", "seen.0", "seen.1"} <= rows, applies.status
    assert not {"window.0", "window.1", "window.2"} & rows, "but in what has happened"

    record = read_record(out)
    assert record is not None
    [changed] = [action for action in record["actions"] if action["action"] == "queries-changed"]
    boundary = changed["position"]
    whole, went = files(expected, "window"), files(out, "window")
    batches = max(int(name.split()[1]) for name in whole)
    assert 25 <= boundary < batches, boundary
    assert f"window: batch {boundary} was its last one" in said
    assert f"seen: begins with batch {boundary + 1}" in said
    assert f"stood still for {changed['paused_s']:.1f} s" in said

    assert files(out, "count") == files(expected, "count"), "what stays"
    assert went == {name: data for name, data in whole.items() if int(name.split()[1]) <= boundary}, (
        "what goes"
    )
    every, before = counts(out, "count"), dict[str, int]()
    last = max(every)
    assert last >= batches - 1
    for batch in range(1, boundary + 1):
        before |= every[batch]
    assert counts(out, "seen") == {
        batch: {tag: count - before.get(tag, 0) for tag, count in every[batch].items()}
        for batch in range(boundary + 1, last + 1)
    }, "what comes"
    assert sum(map(len, counts(out, "seen").values())) > 0
    print(f"drained within {changed['drain_s']} s, stood still for {changed['paused_s']} s")
