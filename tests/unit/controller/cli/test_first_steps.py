"""`init`, `up`, `demo` and `verify` without a cluster: what they write, refuse and hand on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import carry_out, demo_command, main
from reprise.controller.cli.up_command import killing, next_folder
from reprise.controller.local.faults.faults import load_faults, parse_faults
from reprise.controller.local.report.layout import new_record, prepare, write_json
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.shipped import EXAMPLES, START
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.topology import StreamTopology, expand, load_topology, override

ROOT = Path(__file__).parents[4]
MINIMAL = ROOT / "examples" / "minimal.yaml"
BATCHES = 6


def reprise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], prog_name="reprise")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


class Runs:
    """Stands for the cluster: what it was asked for, with the output that a run without faults has."""

    def __init__(self, spoil: bool = False) -> None:
        self.asked: list[RunConfig] = []
        self.spoil = spoil

    def __call__(self, config: RunConfig, *_: Any) -> RunResult:
        self.asked.append(config)
        small = override(
            config.resource, {f"sources[{config.resource.sources[0].name}].with.batches": BATCHES}
        )
        write_run(config.out, small)
        write_json(config.out / "plans.json", {"incidents": [], "plans": []})
        if self.spoil:
            next(config.out.glob("sink/*/*/batch-*3.*")).write_bytes(b"other rows")
        return RunResult(Outcome.DONE, config.out, {})


def write_run(out: Path, resource: StreamTopology, outcome: str = "done", batches: int | None = None) -> None:
    layout = prepare(out, resource, resume=False)
    write_json(layout.record, new_record(resource) | {"outcome": outcome})
    topology = expand(resource)
    for number, rows in enumerate(run_local(resource, batches), start=1):
        for query in topology.queries:
            operator, _, index = query.rpartition(".")
            output = resource.operator(operator).output
            assert output is not None
            folder = layout.sink / operator / index
            folder.mkdir(parents=True, exist_ok=True)
            table = rows[query]
            data = encoded(output.format, table) if table is not None and table.num_rows else b""
            (folder / f"batch-{number:08d}.{output.format}").write_bytes(data)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(carry_out, "run_topology", found)
    return found


def test_up_takes_the_next_folder_and_kills_what_it_is_asked_to(here: Path, runs: Runs) -> None:
    (here / "topology.yaml").write_text(MINIMAL.read_text())
    result = reprise("up", "--kill", "2", "--no-web")
    assert result.exit_code == 0, result.output
    assert reprise("up", "--no-web", "-q").exit_code == 0
    first, second = runs.asked
    assert (first.out, second.out) == (Path("out/run-1"), Path("out/run-2"))
    assert first.faults == parse_faults(
        [{"at": "10s", "kill": ["n2", "n3"], "name": "burst"}, {"after": "burst", "delay": "5s", "add": 2}],
        "",
        3,
    )
    assert second.faults == ()
    assert first.python_path == str(here)
    assert "reprise verify --out out/run-1" in result.output


def test_up_refuses_to_kill_more_nodes_than_there_are(here: Path, runs: Runs) -> None:
    result = reprise("up", "-f", MINIMAL, "--kill", "4")
    assert (result.exit_code, "starts with 3 nodes" in result.stderr) == (2, True)
    assert runs.asked == []
    assert [f.nodes for f in killing(3, 3)] == [("n1", "n2", "n3"), ()]
    assert next_folder(here / "out") == here / "out" / "run-1"


@pytest.mark.wide
def test_the_demo_kills_eight_of_ten_and_compares_every_output(
    here: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    tweets = demo_command.TOPOLOGIES["tweets"]
    small = override(load_topology(tweets), {"sources[source].with.batches": BATCHES})
    monkeypatch.setattr(demo_command, "load", lambda _: small)
    result = reprise("demo", "--compare", "--no-web")
    assert [run.out.name for run in runs.asked] == ["run-1", "blocking"]
    assert [run.resource.recovery.strategy for run in runs.asked] == ["incremental", "blocking"]
    assert runs.asked[0].faults == runs.asked[1].faults and len(runs.asked[0].faults[0].nodes) == 8
    for name in ("incremental", "blocking"):
        assert f"Outputs, {name}: identical: {15 * (BATCHES + 1)} pieces" in result.output
    assert (result.exit_code, "FAILED: no query was lost" in result.output) == (1, True)
    runs.spoil = True
    spoiled = reprise("demo", "--no-web", "-q")
    assert "different (1)" in spoiled.output and "FAILED: outputs differ" in spoiled.output
    assert spoiled.exit_code == 1


@pytest.mark.parametrize("example", demo_command.TOPOLOGIES)
def test_what_the_demo_needs_is_installed_with_it(example: str) -> None:
    resource = load_topology(demo_command.TOPOLOGIES[example])
    faults = load_faults(demo_command.FAULTS, resource.nodes.count, expand(resource))
    assert sum(fault.count for fault in faults if fault.action == "add") == 8
    for path in (*EXAMPLES.rglob("*.yaml"), *START.glob("*.*")):
        assert path.resolve().is_relative_to(ROOT / "examples")  # a link, so that a file has one home


def test_verify_sees_what_is_missing_what_is_too_much_and_what_differs(here: Path) -> None:
    resource = override(load_topology(MINIMAL), {"sources[tweets].with.batches": BATCHES})
    write_run(here / "run", resource)
    same = reprise("verify", "--out", here / "run")
    assert (same.exit_code, same.output) == (
        0, f"identical: {2 * (BATCHES + 1)} pieces (output partition, batch) agree in every byte\n",
    )  # fmt: skip
    sink = here / "run" / "sink" / "count" / "0"
    (sink / "batch-00000002.jsonl").unlink()
    (sink / "batch-00000003.jsonl").write_text("x")
    (sink / "batch-00000099.jsonl").write_text("x")
    (sink / "batch-00000004.parquet").write_text("x")
    other = reprise("verify", "--out", here / "run")
    assert other.exit_code == 1
    assert other.output.splitlines()[1:] == [
        "missing (1): count.0 batch 2",
        "extra (1): count.0 batch 99",
        "different (1): count.0 batch 3",
        "twice (1): count.0 batch 4",
    ]


def test_what_a_run_that_was_stopped_had_not_come_to_is_not_missing(here: Path) -> None:
    resource = override(load_topology(MINIMAL), {"sources[tweets].with.batches": 40})
    write_run(here / "run", resource, outcome="interrupted", batches=BATCHES)
    for path in (here / "run" / "sink" / "count" / "0").glob("batch-*[56].jsonl"):
        path.unlink()
    assert reprise("verify", "--out", here / "run").exit_code == 0
    (here / "run" / "sink" / "count" / "0" / "batch-00000002.jsonl").unlink()
    found = reprise("verify", "--out", here / "run")
    assert (found.exit_code, "missing (1): count.0 batch 2" in found.output) == (1, True)


def test_verify_of_nothing_says_so(here: Path) -> None:
    assert "holds no run" in reprise("verify", "--out", here).stderr
    assert reprise("verify", "--out", here / "none").exit_code == 2
    resource = load_topology(MINIMAL)
    prepare(here / "run", resource, resume=False)
    write_json(here / "run" / "run.json", new_record(resource) | {"outcome": "failed"})
    result = reprise("verify", "--out", here / "run")
    assert (result.exit_code, "no output" in result.stderr) == (2, True)


@pytest.mark.wide
def test_what_init_writes_gives_rows_and_passes_its_test(here: Path) -> None:
    assert reprise("init", ".").exit_code == 0
    tried = reprise("validate", "--try", "20")
    assert tried.exit_code == 0, tried.output
    assert "valid; 6 partitions, 4 queries" in tried.output
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout
