"""Settings change while a topology runs on a real cluster: `reprise apply` returns when the driver follows them, no process
is started anew, checkpoints come in the new rhythm, plans go by the new priorities, and the output is that of one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprise.controller.cli import exits
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.status.query_state import RunState
from reprise.scheduler.incident import PlanRecord
from reprise.spark_jobs.topology import StreamTopology, override, to_json
from reprise.spark_jobs.topology.changes import revision_of_settings, settings_of
from tests.e2e import scenario
from tests.e2e.test_rescaling import named

pytestmark = [pytest.mark.slow, pytest.mark.wide]
WANTED: dict[str, object] = {
    "operators[count].output.priority": 9,
    "checkpoint.everyBatches": 7,
    "recovery.scope": "ancestors",
}
"""A checkpoint every 10 batches before."""
FOLLOWED = 2
"""Nodes are killed when so many checkpoints have come in the new rhythm."""


class Applies:
    """Applies a changed file once the run is under way, sees what follows, and kills two nodes then."""

    def __init__(self, resource: StreamTopology, cluster: EmbeddedCluster, out: Path, file: Path) -> None:
        self.cluster, self.killed = cluster, False
        self.started = revision_of_settings(settings_of(resource))
        self.out, self.file = out, file
        self.before: frozenset[int] = frozenset()
        """Complete checkpoints before the change."""
        self.since: int | None = None
        """The newest batch at the first look after it."""
        self.after: set[int] = set()
        """Checkpoints behind that one, which were complete before nodes were lost."""
        self.followed: list[str] = []
        """The settings that the driver said it follows, in turn."""
        self.plans: dict[str, PlanRecord] = {}
        self.refused: subprocess.CompletedProcess[str] | None = None
        self.said: subprocess.CompletedProcess[str] | None = None

    def __call__(self, state: RunState, _: object) -> None:
        seen = state.observation
        self.plans |= seen.plans
        if (progress := seen.progress) is None:
            return
        if self.followed[-1:] != [progress.settings]:
            self.followed.append(progress.settings)
        if self.said is None and seen.checkpoints and progress.horizon >= 25:
            self.before = seen.checkpoints
            self.refused = self._apply("--set", "nodes.count=5")
            self.said = self._apply()
        elif self.said is not None and not self.killed:
            self.since = progress.horizon if self.since is None else self.since
            self.after |= {position for position in seen.checkpoints if position > self.since}
            if len(new_of(self.after)) >= FOLLOWED and (desired := seen.desired) is not None:
                self.killed = True
                at = {desired.assignment[p].partition("#")[0] for p in ("count.0", "window.0")}
                self.cluster.kill(sorted(at))

    def _apply(self, *more: str) -> subprocess.CompletedProcess[str]:
        command = [*(sys.executable, "-m", "reprise.controller.cli", "apply"), *("-f", str(self.file)),
                   *("--out", str(self.out)), *more]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def new_of(checkpoints: set[int]) -> set[int]:
    """Those that are not in the rhythm from before the change alone."""
    return {position for position in checkpoints if position % 10 or position % 7 == 0}


def test_a_run_goes_on_with_other_settings_in_the_same_processes(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    resource, out, file = named("changed"), tmp_path / "out", tmp_path / "changed.yaml"
    resource = scenario.without_end(resource, tmp_path)
    wanted = override(resource, WANTED)
    file.write_text(to_json(wanted))
    applies, faults = Applies(resource, large_nodes, out, file), [{"on": "plan", "add": 2}]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, out, faults, applies, until=over)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    revision = revision_of_settings(settings_of(wanted))

    assert applies.refused is not None and applies.said is not None
    assert applies.refused.returncode not in (exits.DONE, exits.TIMED_OUT, exits.NOT_RUNNING)
    assert "spec.nodes.count" in applies.refused.stderr, applies.refused.stderr
    assert applies.said.returncode == exits.DONE, applies.said.stderr
    assert f"the driver follows settings {revision}" in applies.said.stdout
    assert applies.followed == [applies.started, revision], "what was refused changes nothing"

    assert result.record["restarts"] == {"coordinator": 0, "driver": 0}
    assert all(position % 10 == 0 for position in applies.before), applies.before
    new = new_of(applies.after)
    assert len(applies.after - new) <= 1, "one may have been announced before the change"
    assert all(position % 7 == 0 for position in new), applies.after

    first = min(applies.plans.values(), key=lambda plan: plan.turn)
    worth = {candidate.query: candidate.priority for candidate in first.candidates}
    assert worth["count.0"] == 9, worth
    assert worth["window.0"] == 3, worth
