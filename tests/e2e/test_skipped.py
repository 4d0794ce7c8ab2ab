"""Operators with `availability: amnesia` on a real cluster: SIGKILL of a node, what is lost begins anew, each batch that
lacks rows is marked and no other differs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprise.controller.cli import exits, main
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.report.compare import Piece, compare, pieces
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import load_text, override
from tests.e2e import scenario
from tests.support.hashtags import SKIPPED, at_pace

APART = """
    - name: tweeted
      class: reprise.spark_jobs.operators:Sink
      inputs: [{from: tweets}]
      output: {priority: 1}
"""
"""A query that needs nothing of `parse`: without one a run ends when that is set aside."""
pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_what_lacks_rows_is_marked_and_nothing_else_differs(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    """A node is lost, and later the driver."""
    sizes = {"operators[window].with.size": "1400ms", "operators[window].with.interval": "200ms"}
    forgetful = {f"operators[{name}].availability": "amnesia" for name in ("parse", "window", "best", "all")}
    changes = {**at_pace("200ms", 400, 60, 10), **sizes, **forgetful}
    resource = scenario.without_end(load_text(SKIPPED, changes=changes), tmp_path)
    faults: list[dict[str, Any]] = [
        {"on": "checkpoint", "kill": ["@parse.0"]},
        {"on": "plan", "add": 1},
        {"on": "closed", "crash": "driver"},
    ]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, until=over)
    expected = scenario.write_expected(resource, tmp_path / "expected")
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    assert result.record["unfired"] == []
    found = compare(expected, result.out)
    assert not found.unexplained, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    assert found.equal > 0
    first = result.incident["incidents"][0]
    assert "parse.0" in first["skipped"], "it was restored with its state"
    assert not any(plan["rollback"] for plan in first["plans"]), "everything went back"
    assert set(found.marked) == told(result, expected), (
        "marked, and the incident does not say so, or the other way round"
    )
    assert found.marked, "nothing was skipped"
    assert "batches-skipped" in {line["what"] for line in result.incident["timeline"]}
    said = CliRunner().invoke(main, ["compare", str(expected), str(result.out)])
    assert said.exit_code == exits.MARKED, said.output


def told(result: RunResult, expected: Path) -> set[Piece]:
    """Batches of outputs that incidents name as marked, of those that the definition has."""
    batches = max(batch for _, batch in pieces(expected)[0])
    named = set()
    for incident in result.incident["incidents"]:
        for output, whole in incident["marked"].items():
            for first, last in incident["marked_spans"].get(output, [whole]):
                named |= {(output, batch) for batch in range(first, min(last, batches) + 1)}
    return named


def test_a_query_that_may_lack_rows_goes_on_beside_others_that_may_not(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    """`parse` has active standbys and `all` copies, so what is read of them alone is precise; `window` and what reads it
    begin anew.  Nodes of both are killed, one after the other."""
    sizes = {"operators[window].with.size": "1400ms", "operators[window].with.interval": "200ms"}
    modes = {
        "operators[parse].availability": "active-standby",
        "operators[all].availability": "passive-standby",
        "operators[window].availability": "amnesia",
        "operators[best].availability": "amnesia",
    }
    changes = {**at_pace("200ms", 400, 60, 10), **sizes, **modes}
    resource = scenario.without_end(load_text(SKIPPED, changes=changes), tmp_path)
    faults = [
        {"on": "checkpoint", "kill": ["@parse.0"]},
        {"on": "closed", "add": 1},
        {"on": "closed", "delay": "3s", "kill": ["@window.0"]},
        {"on": "plan", "add": 1},
    ]
    over = scenario.quiet_again(faults)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, until=over)
    expected = scenario.write_expected(resource, tmp_path / "expected")
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    assert result.record["unfired"] == []
    found = compare(expected, result.out)
    assert not found.unexplained, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    incidents = result.incident["incidents"]
    assert any("window.0" in incident["skipped"] for incident in incidents), "it was restored with its state"
    assert not any(plan["rollback"] for incident in incidents for plan in incident["plans"]), "all went back"
    promoted = [str(line) for line in result.incident["timeline"] if line["what"] == "promoted"]
    assert any("parse.0 to " in line for line in promoted), "it was restored from the checkpoint"
    assert {output.partition(".")[0] for output, _ in found.marked} <= {"window", "best"}
    assert found.marked and set(found.marked) == told(result, expected)


def test_a_query_whose_code_raises_goes_on_because_a_person_says_so(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    """Nothing is set to be skipped; the command is given while the run goes on, and the batch is not tried again."""
    sizes = {"operators[window].with.size": "1400ms", "operators[window].with.interval": "200ms"}
    parse = {"explode": ["hashtags"], "select": ["hashtags AS tag"], "raises": {}}
    own = {"operators[parse].class": "tests.support.raising:RaisesAt", "operators[parse].with": parse}
    changes = {**at_pace("200ms", 400, 75, 10), **sizes, **own}
    text = SKIPPED.replace("  checkpoint: {", f"{APART}  checkpoint: {{")
    raising = {"operators[parse].with": {**parse, "raises": {"parse.0": 15}}}
    sound = scenario.without_end(load_text(text, changes=changes), tmp_path)
    resource = override(sound, raising)
    out, said = tmp_path / "out", list[str]()

    def watch(state: RunState, _: object) -> None:
        poison = state.observation.poison
        if not said and poison is not None and "parse.0" in poison.partitions:
            command = [
                sys.executable,
                "-m",
                "reprise.controller.cli",
                "skip",
                "best.0",
                "--out",
                str(out),
                "--yes",
            ]
            asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            assert asked.returncode == exits.DONE, asked.stderr
            said.append(asked.stdout)

    def skipped(state: RunState, actions: list[dict[str, Any]]) -> bool:
        closed = state.observation.closed.values()
        return any(i.skipped for i in closed) and scenario.quiet_again([])(state, actions)

    result = scenario.run(resource, large_nodes, out, [], watch, until=skipped)
    expected = scenario.write_expected(sound, tmp_path / "expected")
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    assert "begin anew, without what they knew: parse.0" in said[0]
    found = compare(expected, result.out)
    assert not found.unexplained, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    assert found.marked and found.equal > 0
    asked_for = [i for i in result.incident["incidents"] if i["skipped"]]
    assert "parse.0" in asked_for[0]["skipped"]
    assert not any(plan["rollback"] for plan in asked_for[0]["plans"]), "everything went back"
    assert {"skip-asked", "batches-skipped"} <= {line["what"] for line in result.incident["timeline"]}
