"""`reprise diff` and `reprise apply`: what a changed file would do, and a run that takes it in place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import apply_command, main
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.records import encode_progress
from reprise.controller.zookeeper.settings_record import encode_settings, parse_settings
from reprise.controller.zookeeper.topology_wish import (
    TopologyWish,
    encode_topology_wish,
    parse_topology_wish,
)
from reprise.controller.zookeeper.znode import unpack
from reprise.scheduler.model import Progress
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.topology import load_topology, override
from reprise.spark_jobs.topology.changes import revision_of_settings, settings_of
from tests.unit.controller.cli.test_on_kubernetes import ask, bare  # noqa: F401
from tests.unit.controller.cli.test_target_local import MINIMAL, ROOT, running

RECORD = f"{ROOT}/{paths.SETTINGS}"
WISH = f"{ROOT}/{paths.TOPOLOGY}"


@pytest.fixture
def server(server: MemoryServer) -> MemoryServer:
    """A ZooKeeper in which a topology has run."""
    server.put(ROOT, b"")
    return server


def reprise(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_change_that_would_be_refused_is_exit_code_1_and_programs_read_it() -> None:
    result = reprise(
        "diff", "-f", MINIMAL, "--against", MINIMAL, "--set", "operators[count].parallelism=4", "-o", "json"
    )
    assert result.exit_code == 1
    (change,) = json.loads(result.output)
    assert (change["path"], change["before"], change["after"], change["effect"]) == (
        "spec.operators[count].parallelism", 2, 4, "never",
    )  # fmt: skip
    assert reprise("diff", "-f", MINIMAL, "--against", MINIMAL).output == "nothing changes\n"


@pytest.mark.parametrize("more", [[], ["--against", str(MINIMAL), "--out", "x"]])
def test_it_must_be_said_what_is_compared(more: list[str]) -> None:
    assert reprise("diff", "-f", MINIMAL, *more).exit_code == 2


def test_on_kubernetes_the_object_is_compared_and_nothing_is_written(
    bare: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    same = tmp_path / "same.yaml"
    document = json.loads(
        json.dumps(bare.answers["/apis/reprise.dev/v1alpha1/namespaces/streams/streamtopologies/oncall"])
    )
    del document["status"], document["metadata"]["namespace"]
    same.write_text(json.dumps(document))
    result = ask(bare, tmp_path, "diff", "oncall", "-f", str(same))
    assert (result.exit_code, result.output) == (0, "nothing changes\n")
    result = ask(bare, tmp_path, "diff", "oncall", "-f", str(same), "--set", "paused=true")
    assert "at once: 1 change" in result.output
    assert bare.methods == {"GET"}


def test_a_run_is_told_and_its_drivers_word_is_waited_for(
    server: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = running(tmp_path / "out")
    wanted = override(load_topology(MINIMAL), {"operators[count].output.priority": 4})
    revision = revision_of_settings(settings_of(wanted))
    change = ("apply", "-f", MINIMAL, "--out", out, "--set", "operators[count].output.priority=4")
    dry = reprise(*change, "--dry-run")
    assert "at once: 1 change" in dry.output
    assert RECORD not in server.records
    monkeypatch.setattr(apply_command, "PATIENCE_S", 0.1)
    alone = reprise(*change)
    assert alone.exit_code == 3, alone.output
    assert parse_settings(server.records[RECORD][0]) == settings_of(wanted)
    still = reprise(*change)
    assert "nothing changes" in still.output, "what is on record is what is to run"
    assert still.exit_code == 3, "no driver has said that it follows that"
    server.put(f"{ROOT}/progress", encode_progress(Progress("1", settings=revision)))
    back = reprise("apply", "-f", MINIMAL, "--out", out, "--set", "operators[count].output.priority=5")
    assert back.exit_code == 3, "the driver speaks of others"
    again = reprise(*change)
    assert (again.exit_code, again.output.splitlines()[-1]) == (0, f"the driver follows settings {revision}")


def test_all_that_does_not_take_effect_in_place_is_named_and_nothing_is_changed(
    server: MemoryServer, tmp_path: Path
) -> None:
    out = running(tmp_path / "out")
    result = reprise(
        *("apply", "-f", MINIMAL, "--out", out, "--set", "operators[count].output.priority=4"),
        *("--set", "nodes.count=4", "--set", "operators[count].with={keys: [tag, time]}"),
    )
    assert result.exit_code == 2
    assert "2 mistakes" in result.stderr
    assert "spec.nodes.count: takes effect with a new driver, not in place" in result.stderr
    assert "spec.operators[count].with.keys: takes effect after a drain" in result.stderr
    assert RECORD not in server.records


@pytest.fixture
def with_leaf(tmp_path: Path) -> Path:
    """The example with one more query."""
    document = json.loads(load_topology(MINIMAL).document)
    count = next(one for one in document["spec"]["operators"] if one["name"] == "count")
    document["spec"]["operators"].append({**count, "name": "leaf"})
    path = tmp_path / "leaf.yaml"
    path.write_text(json.dumps(document))
    return path


def of_run(out: Path, **action: Any) -> None:
    """What the process of the run has written down."""
    record = json.loads((out / "run.json").read_text())
    record["actions"] = [{"time": 1.0, **action}]
    (out / "run.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (
            {"action": "queries-changed", "position": 40, "drain_s": 2.0, "paused_s": 11.5},
            0,
            ["leaf: begins with batch 41", "all queries stood still for 11.5 s"],
        ),
        ({"action": "queries-refused", "reason": "nodes were lost"}, 1, ["refused: nodes were lost"]),
    ],
)
def test_it_is_asked_for_and_what_came_of_it_is_told(
    server: MemoryServer,
    tmp_path: Path,
    with_leaf: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcome: dict[str, Any],
    code: int,
    said: list[str],
) -> None:
    out = running(tmp_path / "out")

    def carried_out(_: float) -> None:
        wish = parse_topology_wish(unpack(server.records[WISH][0]))
        assert "leaf" in wish.document
        of_run(out, wish=wish.id, **outcome)

    monkeypatch.setattr(apply_command, "is_running", lambda _: True)
    monkeypatch.setattr(apply_command, "PLATFORM", replace(PLATFORM, sleep=carried_out))
    assert WISH not in server.records
    assert "1 change" in reprise("apply", "-f", with_leaf, "--out", out, "--dry-run").output
    assert WISH not in server.records
    result = reprise("apply", "-f", with_leaf, "--out", out)
    assert result.exit_code == code, result.output
    assert all(text in result.output for text in said), result.output


def test_a_change_of_queries_is_taken_back_after_a_while_and_is_one_at_a_time(
    server: MemoryServer, tmp_path: Path, with_leaf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = running(tmp_path / "out")
    monkeypatch.setattr(apply_command, "is_running", lambda _: True)
    result = reprise("apply", "-f", with_leaf, "--out", out, "--timeout", "1s")
    assert (result.exit_code, WISH in server.records) == (3, False)
    assert "taken back" in result.output
    server.put(WISH, encode_topology_wish(TopologyWish("another", "{}")))
    result = reprise("apply", "-f", with_leaf, "--out", out)
    assert result.exit_code == 1
    assert "another change of queries is under way" in result.output


def test_queries_and_what_takes_another_driver_do_not_go_together(
    server: MemoryServer, tmp_path: Path, with_leaf: Path
) -> None:
    out = running(tmp_path / "out")
    result = reprise("apply", "-f", with_leaf, "--out", out, "--set", "nodes.count=4")
    assert result.exit_code == 2
    assert "spec.nodes.count: takes effect with a new driver" in result.stderr
    assert WISH not in server.records


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ((), ""),
        (("--set", "nodes.count=2"), ""),
        (
            ("--set", "checkpoint.protocol=uncoordinated", "--set", "checkpoint.log=memory"),
            "spec.checkpoint.protocol: is 'uncoordinated'",
        ),
        (("--set", "batch.order=arrival"), "spec.batch.order: is 'arrival'"),
    ],
)
def test_on_kubernetes_a_query_comes_with_what_takes_another_driver(
    bare: Any,  # noqa: F811
    tmp_path: Path,
    more: tuple[str, ...],
    refused: str,
) -> None:
    document = json.loads(
        json.dumps(bare.answers["/apis/reprise.dev/v1alpha1/namespaces/streams/streamtopologies/oncall"])
    )
    del document["status"], document["metadata"]["namespace"]
    some = next(one for one in document["spec"]["operators"] if "output" in one)
    document["spec"]["operators"].append({**some, "name": "leaf"})
    file = tmp_path / "more.yaml"
    file.write_text(json.dumps(document))
    result = ask(bare, tmp_path, "diff", "oncall", "-f", str(file), *more)
    assert "where the stream has drained: 1 change" in result.output
    assert (result.exit_code, "refused: " in result.output) == ((1, True) if refused else (0, False)), (
        result.output
    )
    assert refused in result.output


def test_in_a_run_what_would_be_refused_with_queries_is_said_before(
    server: MemoryServer, tmp_path: Path, with_leaf: Path
) -> None:
    out = running(tmp_path / "out")
    assert reprise("diff", "-f", with_leaf, "--out", out).exit_code == 0
    result = reprise("diff", "-f", with_leaf, "--out", out, "--set", "nodes.count=4")
    assert result.exit_code == 1
    assert "refused: spec.nodes.count: takes effect with a new driver" in result.output


def test_of_two_that_apply_at_once_the_second_one_changes_nothing_and_says_so(
    server: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was compared with what is not in effect any more, and would take back what it does not show."""
    out = running(tmp_path / "out")
    first = override(load_topology(MINIMAL), {"operators[count].output.priority": 4})
    compared = apply_command.changes

    def overtaken(*given: Any) -> Any:
        server.put(RECORD, encode_settings(settings_of(first)))
        return compared(*given)

    for _ in range(2):  # where there was no record, and where there was one
        monkeypatch.setattr(apply_command, "changes", overtaken)
        result = reprise("apply", "-f", MINIMAL, "--out", out, "--set", "checkpoint.keep=9")
        assert result.exit_code == 1, result.output
        assert "nothing was changed" in result.stderr
        assert parse_settings(server.records[RECORD][0]) == settings_of(first)
        first = override(first, {"recovery.cpuCap": 61})


def test_who_waits_is_told_that_others_were_written(
    server: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = running(tmp_path / "out")
    wait = apply_command._wait

    def overtaken(*given: Any) -> None:
        server.put(RECORD, encode_settings(settings_of(load_topology(MINIMAL))))
        wait(*given)

    monkeypatch.setattr(apply_command, "_wait", overtaken)
    result = reprise("apply", "-f", MINIMAL, "--out", out, "--set", "checkpoint.keep=9")
    assert result.exit_code == 1, result.output
    assert "not on record any more" in result.stderr


@pytest.mark.parametrize("asked", [b"false", b"true"])
def test_a_pause_that_would_not_be_is_refused(
    server: MemoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bytes
) -> None:
    """What `reprise resume` has asked for stands above the file: settings would be followed, and nothing be paused."""
    monkeypatch.setattr(apply_command, "PATIENCE_S", 0.1)
    out = running(tmp_path / "out")
    server.put(f"{ROOT}/{paths.PAUSED}", asked)
    result = reprise("apply", "-f", MINIMAL, "--out", out, "--set", "paused=true")
    if asked == b"true":
        assert result.exit_code == 3, "only the driver's word is missing"
        return
    assert result.exit_code == 2, result.output
    assert "spec.paused: `reprise resume` stands above the file: use `reprise pause`" in result.stderr
    assert RECORD not in server.records
