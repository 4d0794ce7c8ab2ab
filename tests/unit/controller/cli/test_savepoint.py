"""`reprise savepoint`: what it asks for, what it says of that, and what is in a store that nobody runs on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import exits, savepoint_command
from reprise.controller.cli.app import main
from reprise.controller.cli.run_command import _start_from
from reprise.controller.cli.target import Address
from reprise.controller.status.records import observation, records
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.savepoint_records import SavepointEntry, SavepointsRecord
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import load_topology, override
from tests.support.fake_target import FakeTarget
from tests.unit.spark_jobs.state.test_start_from import saved

RESOURCE = load_topology(Path(__file__).parents[4] / "examples" / "minimal.yaml")
SEEN = Observation(1.0, True)
ENTRY = SavepointEntry("before", 12, 1_700_000_000.0, 5000, "w1")


class Target(FakeTarget):
    def savepoint(self, wish: SavepointWish) -> str:
        return self._ask(f"{wish.name} {wish.id}", not wish.delete)


def savepoint(monkeypatch: pytest.MonkeyPatch, target: Target, *words: str) -> Result:
    monkeypatch.setattr(Address, "open", lambda _: target)
    monkeypatch.setattr(savepoint_command, "LOOK_S", 0.0)
    monkeypatch.setattr(
        savepoint_command, "new_wish", lambda name, delete=False: SavepointWish(name, "w1", delete)
    )
    return CliRunner().invoke(main, ["savepoint", *words, "--zk", "z"])


def test_it_says_for_what_it_waits_and_where_the_savepoint_is(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = SavepointsRecord(waits={"w1": "a checkpoint needs all partitions at work"})
    taken = SavepointsRecord((ENTRY,), {"w1": ""})
    seen = [
        SEEN,
        replace(SEEN, savepoints=waits),
        replace(SEEN, savepoints=waits),
        replace(SEEN, savepoints=taken),
    ]
    target = Target(RESOURCE, *seen)
    said = savepoint(monkeypatch, target, "before")
    assert said.exit_code == exits.DONE, said.output
    assert said.output.count("a checkpoint needs all partitions at work") == 1
    assert "savepoint before is taken after batch 12 (5,000 bytes)" in said.stdout
    assert "/savepoints/before" in said.stdout
    assert target.asked == [("before w1", True)]


def test_a_refusal_a_timeout_and_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = replace(SEEN, savepoints=SavepointsRecord(done={"w1": "the stream has ended"}))
    said = savepoint(monkeypatch, Target(RESOURCE, refused), "before")
    assert (said.exit_code, "the stream has ended" in said.output) == (exits.NO, True)
    said = savepoint(monkeypatch, Target(RESOURCE, SEEN), "before", "--timeout", "1ms")
    assert (said.exit_code, "The wish stands" in said.output) == (exits.TIMED_OUT, True)
    done = replace(SEEN, savepoints=SavepointsRecord(done={"w1": ""}))
    target = Target(RESOURCE, done)
    said = savepoint(monkeypatch, target, "before", "--delete")
    assert (said.stdout, target.asked) == ("savepoint before is deleted\n", [("before w1", False)])


@pytest.mark.parametrize(
    "words", [("Before",), (), ("a", "b", "c"), ("before", "--list", "--delete"), ("x" * 64,)]
)
def test_mistakes_ask_for_nothing(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    target = Target(RESOURCE, SEEN)
    assert savepoint(monkeypatch, target, *words).exit_code == exits.BAD_INPUT
    assert target.asked == []


def test_what_the_driver_lists_passes_through_the_page_s_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = replace(SEEN, savepoints=SavepointsRecord((ENTRY,), {"w1": ""}, {"w2": "it waits"}))
    assert observation(json.dumps(records(seen)).encode(), "x").savepoints == seen.savepoints
    said = savepoint(monkeypatch, Target(RESOURCE, seen), "--list", "-o", "json")
    listed = json.loads(said.stdout)["savepoints"]
    assert listed == [{"name": "before", "position": 12, "time": 1_700_000_000.0, "bytes": 5000}]
    assert "2023-11-14 22:13:20 UTC" in savepoint(monkeypatch, Target(RESOURCE, seen), "--list").stdout


def test_a_store_is_looked_into_where_nothing_runs(tmp_path: Path) -> None:
    saved(tmp_path)
    where = ["--location", str(tmp_path)]
    listed = CliRunner().invoke(main, ["savepoint", "--list", *where, "-o", "json"])
    assert [s["name"] for s in json.loads(listed.stdout)["savepoints"]] == ["before"]
    assert CliRunner().invoke(main, ["savepoint", "new", *where]).exit_code == exits.BAD_INPUT
    assert CliRunner().invoke(main, ["savepoint", "before", "--delete", *where]).exit_code == exits.DONE
    again = CliRunner().invoke(main, ["savepoint", "before", "--delete", *where])
    assert (again.exit_code, "there is no savepoint 'before'" in again.output) == (exits.BAD_INPUT, True)
    assert CliRunner().invoke(main, ["savepoint", "--list", *where]).stdout == "no savepoints\n"


def test_a_run_begins_from_the_place_that_was_printed(tmp_path: Path) -> None:
    assert _start_from("s3://bucket/a/savepoints/before", ("x",), ()) == {
        "location": "s3://bucket/a", "savepoint": "before", "allowNew": ["x"], "allowGone": [],
    }  # fmt: skip
    assert _start_from(None, (), ()) is None
    saved(tmp_path / "a")
    file = tmp_path / "t.yaml"
    file.write_text((Path(__file__).parents[4] / "examples" / "minimal.yaml").read_text())
    here = f"{tmp_path}/a/savepoints/other"
    said = CliRunner().invoke(
        main, ["run", "-f", str(file), "--from-savepoint", here, "--out", str(tmp_path / "o")]
    )
    assert (said.exit_code, "no savepoint 'other'" in said.output) == (exits.BAD_INPUT, True)
    assert not (tmp_path / "o").exists(), "it is said before anything is made"
    start = json.dumps({"location": f"{tmp_path}/a", "savepoint": "before"})
    said = CliRunner().invoke(main, ["validate", "-f", str(file), "--set", f"checkpoint.startFrom={start}"])
    assert "begins from savepoint before of default/minimal, after batch 12" in said.stdout


def test_verify_says_that_it_cannot_know_what_a_savepoint_held(tmp_path: Path) -> None:
    start = {"location": str(tmp_path), "savepoint": "before"}
    (tmp_path / "run.json").write_text(json.dumps({"outcome": "done"}))
    (tmp_path / "topology.json").write_text(override(RESOURCE, {"checkpoint.startFrom": start}).document)
    said = CliRunner().invoke(main, ["verify", "--out", str(tmp_path)])
    assert (said.exit_code, "began from a savepoint" in said.output) == (exits.BAD_INPUT, True)
