"""The commands of the person on call, against one real topology that loses two of its four nodes.

One run serves all tests, in the order in which an incident goes: before it, in the middle of it, after it.  The commands get
their topology by `--zk`, so that each is a call and not a process; by `--out` they are asked once, as a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import main
from reprise.controller.local.run.config import RunResult
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.spark_jobs.topology import load_text, to_json
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster
from tools.testbed.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.wide]
LIVE = {"progress", "stats", "nodes", "checkpoints", "members", "coordinator"}
"""What driver, agents and the leader write all the time."""
TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: oncall}
spec:
  batch: {interval: 250ms}
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      with: {rate: 50, interval: 250ms, tags: 100}
      resources: {cpu: 200m}
  operators:
    - name: parser
      class: reprise.spark_jobs.operators:FlatMap
      with: {explode: [hashtags], select: [time, hashtags AS tag]}
      resources: {cpu: 200m}
      inputs: [{from: tweets}]
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 6
      with: {keys: [tag]}
      resources: {cpu: 600m}
      inputs: [{from: parser, by: [tag]}]
      output: {priority: 1, priorities: {"0": 5, "3": 8, "4": 3}}
  checkpoint: {everyBatches: 10}
  nodes: {count: 4, cpu: "2"}
"""
HANGS_S = 300.0
"""A start, or an end with a recovery before it, takes less on any machine that goes on at all."""


@dataclass
class Live:
    """The run, and how to ask it."""

    out: Path
    file: Path
    zk: str
    root: str
    client: ZooKeeperSession
    cluster: ToldCluster
    enough: threading.Event
    """All has been seen: the stream may end when nothing is open any more."""
    done: threading.Event
    result: list[RunResult]

    def ask(self, *words: str) -> Result:
        address = ["--zk", self.zk, "--root", self.root, "-f", str(self.file)]
        return CliRunner().invoke(main, [*words, *address], env=self.cluster.zk_environment())

    def json(self, *words: str) -> Any:
        result = self.ask(*words, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def until(self, ready: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first status for which `ready` holds."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            assert not self.done.is_set(), f"the run ended while waiting for {what}: {self.result}"
            found[:] = [self.json("status")]
            return ready(found[0])

        until(look, what)
        return found[0]

    def written(self) -> dict[str, int]:
        """Last write of every record that a decision, or a command, would touch."""
        return {path: self.client.get(path)[1].mzxid for path in self._paths(self.root)}

    def _paths(self, path: str) -> Iterator[str]:
        yield path
        for name in self.client.get_children(path):
            if path != self.root or name not in LIVE:
                yield from self._paths(f"{path}/{name}")


@pytest.fixture(scope="module")
def roomy(cluster: ToldCluster) -> Iterator[ToldCluster]:
    """Its nodes are large and the partitions' declared CPU is far above what they use: so what a plan brings back follows
    from what is declared, on a busy machine, too."""
    with cluster.announcing(2_000) as roomy:
        yield roomy


@pytest.fixture(scope="module")
def live(roomy: ToldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("on-call")
    out, file = folder / "out", folder / "oncall.yaml"
    resource = scenario.without_end(load_text(TEXT), folder)
    file.write_text(to_json(resource))
    result: list[RunResult] = []
    enough, done = threading.Event(), threading.Event()

    def over(state: RunState, _: list[dict[str, Any]]) -> bool:
        return enough.is_set() and state.observation.incident is None

    def work() -> None:
        try:
            result.append(scenario.run(resource, roomy, out, [], until=over))
        finally:
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    client: ZooKeeperSession | None = None
    record: dict[str, Any] = {"zk": roomy.zk_hosts, "root": "/reprise/default/oncall"}
    try:

        def started() -> bool:
            assert not done.is_set(), result
            if (out / "run.json").exists():
                record.update(json.loads((out / "run.json").read_text()))
            return "pid" in record and "standby" in record

        until(started, "the run", HANGS_S)
        client = make_client(record["zk"], 10.0, roomy.zk_environment())
        client.start()
        yield Live(out, file, record["zk"], record["root"], client, roomy, enough, done, result)
    finally:
        enough.set()
        if not done.is_set():  # a test has failed in the middle: what the run waits for comes now
            CliRunner().invoke(
                main, ["resume", "--zk", record["zk"], "--root", record["root"], "-f", str(file)],
                env=roomy.zk_environment(),
            )  # fmt: skip
            for _ in range(2):
                roomy.add_node()
        thread.join(HANGS_S)
        if client is not None:
            client.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def paused(live: Live) -> dict[str, Any]:
    """Everything at work, and the stream held: what follows takes the time that this machine needs."""
    live.until(lambda s: s["phase"] == "steady" and s["queries"]["share"] == 1.0, "everything at work")
    result = live.ask("pause")
    assert result.exit_code == 0, result.output
    return live.until(lambda s: s["phase"] == "paused", "the pause")


@pytest.fixture(scope="module")
def lost(paused: dict[str, Any]) -> list[str]:
    """Two of the nodes, which are killed later."""
    return [node["name"] for node in paused["nodes"]][-2:]


@pytest.fixture(scope="module")
def foreseen(live: Live, lost: list[str]) -> dict[str, Any]:
    """What is said, while all is well, of what is about to happen."""
    before = live.written()
    found: dict[str, Any] = live.json("simulate", "--lose", ",".join(lost), "--arrive", "2@20s")
    assert live.written() == before, "simulate has written something"
    return found


@pytest.fixture(scope="module")
def burst(live: Live, lost: list[str], foreseen: dict[str, Any]) -> dict[str, Any]:
    """The stream goes on, two nodes are killed: the first look after the first plan."""
    result = live.ask("resume")
    assert result.exit_code == 0, result.output
    live.cluster.kill(lost)
    return live.until(lambda s: s["plan"] is not None, "the first plan")


def test_pause_holds_the_stream(live: Live, paused: dict[str, Any]) -> None:
    """The positions reach the batch that was released last, and no further batch is released."""
    stands = live.until(lambda s: all(q["lag"] == 0 for q in s["queries"]["items"]), "everything applied")
    assert live.json("status")["batch"] == stands["batch"]


def test_simulate_reads_only_and_names_what_it_assumes(foreseen: dict[str, Any]) -> None:
    assert foreseen["plans"][0]["trigger"] == "first"
    assert foreseen["waiting"] == {}
    assert len(foreseen["assumptions"]) >= 5


def test_what_was_foreseen_is_what_the_first_plan_does(
    foreseen: dict[str, Any], burst: dict[str, Any]
) -> None:
    first = burst["incident"]["plans"][0]
    every = {query["id"] for query in burst["queries"]["items"]}
    left_out = {entry["query"] for entry in first["left_out"]}
    assert left_out, "the burst must leave something out, or nothing is tested"
    assert set(foreseen["plans"][0]["placed"]) == every - left_out


def test_what_was_foreseen_is_what_comes_to_work(
    live: Live, foreseen: dict[str, Any], burst: dict[str, Any]
) -> None:
    """By the driver's report, not by the plan: exactly these queries have all of their partitions at work."""
    wanted = set(foreseen["plans"][0]["placed"])

    def whole(status: dict[str, Any]) -> set[str]:
        return {query["id"] for query in status["queries"]["items"] if not query["missing"]}

    stands = live.until(lambda s: whole(s) == wanted, "the first plan at work")
    assert len(stands["incident"]["plans"]) == 1


def test_in_the_middle_every_command_answers(live: Live, burst: dict[str, Any]) -> None:
    waiting = burst["incident"]["plans"][0]["left_out"][0]["query"]
    explained = live.json("explain", waiting)
    assert explained["waits_for"].startswith("capacity: needs ")
    assert explained["capacity"]["missing"] > 0
    assert explained["expected"]["low"] is None
    assert "no node has arrived yet" in explained["expected"]["basis"]
    for words, expected in (
        (["status"], "queries"),
        (["status", "-o", "wide"], "down for"),
        (["queries", "--state", "waiting"], waiting),
        (["explain", waiting], "waits for"),
        (["plan"], "comes back"),
        (["history"], "node-lost"),
        (["simulate"], "assumed:"),
    ):
        result = live.ask(*words)
        assert result.exit_code == 0, result.output
        assert expected in result.output


def test_as_a_process_by_the_folder_of_the_run(live: Live, burst: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "reprise.controller.cli", "status", "--out", str(live.out)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "oncall  " in done.stdout
    assert "\x1b[" not in done.stdout


def test_a_bundle_holds_everything_and_no_secret(
    live: Live, burst: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "hunter2-Zq9"
    monkeypatch.setenv("KAFKA_PASSWORD", planted)
    monkeypatch.setenv("SPARK_EXECUTOR_OPTS", f"-Dx.password={planted} -Dy=1")
    path = tmp_path / "report.tar.gz"
    result = live.ask("report", "--to", str(path))
    assert result.exit_code == 0, result.output
    with tarfile.open(path) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    assert {
        f"reprise-report/{n}.json" for n in ("status", "records", "spec", "versions", "environment")
    } <= files.keys()
    assert b"-Dy=1" in files["reprise-report/environment.json"]
    assert planted.encode() not in b"".join(files.values())


def test_afterwards_the_post_mortem_is_written_from_the_folder(live: Live, burst: dict[str, Any]) -> None:
    for _ in range(2):
        live.cluster.add_node()
    live.enough.set()
    until(live.done.is_set, "the run ends", HANGS_S)
    assert live.result
    assert live.result[0].ok, live.result[0].reason
    result = CliRunner().invoke(main, ["incident", "export", "--out", str(live.out)])
    assert result.exit_code == 0, result.output
    page = Path(result.stdout.split()[0]).read_text()
    for words in ("blocking recovery", "one more node", "Downtime by query", burst["incident"]["id"]):
        assert words in page
    status = CliRunner().invoke(main, ["status", "--out", str(live.out), "-o", "json"])
    assert status.exit_code == 0, status.output
    last = json.loads(status.stdout)
    assert (last["connected"], last["incident"]) == (False, None), "the last state, with nothing open"
    assert CliRunner().invoke(main, ["pause", "--out", str(live.out)]).exit_code == 4
