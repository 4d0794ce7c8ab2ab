"""What a command finds in the folder of a run and in ZooKeeper, and what it says where nothing runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import click
import pytest

from reprise.controller.agent.processes import inspect
from reprise.controller.cli.exits import NotRunningError
from reprise.controller.cli.target_local import LOG_TAIL, ZooKeeperTarget, of_run, of_zookeeper, run_files
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.access import AUTH
from reprise.controller.zookeeper.observer import Observer
from reprise.controller.zookeeper.process_records import parse_paused
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.settings_record import encode_settings
from reprise.controller.zookeeper.skip_wishes import parse_skip
from reprise.spark_jobs.topology import load_topology, override, to_json
from reprise.spark_jobs.topology.changes import settings_of

MINIMAL = Path(__file__).parents[4] / "examples" / "minimal.yaml"
ROOT = "/reprise/default/minimal"


def running(out: Path, **fields: object) -> Path:
    """The folder of a run that a living process supervises: the one that has started this one."""
    (out / "logs").mkdir(parents=True)
    parent = inspect(os.getppid())
    assert parent is not None
    record = {
        "pid": parent.pid,
        "pid_started": parent.started,
        "outcome": "running",
        "zk": "z:1",
        "root": ROOT,
    }
    (out / "run.json").write_text(json.dumps(record | fields))
    (out / "topology.json").write_text(to_json(load_topology(MINIMAL)))
    return out


def target(**fields: Any) -> ZooKeeperTarget:
    return ZooKeeperTarget("z:1", ROOT, lambda: load_topology(MINIMAL), **fields)


@pytest.mark.parametrize(
    ("fields", "says"), [({"outcome": "done"}, "ended: done"), ({"pid_started": -1.0}, "process is gone")]
)
def test_of_a_run_that_has_ended_it_is_said_how(tmp_path: Path, fields: dict[str, object], says: str) -> None:
    with pytest.raises(NotRunningError, match=f"nothing runs in .*{says}"):
        of_run(running(tmp_path / "out", **fields))


def test_a_folder_without_a_run_is_a_wrong_option(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match=r"no run \(no run.json\)"):
        of_run(tmp_path)


def test_a_run_that_starts_its_cluster_is_not_taken_for_one_that_has_ended(tmp_path: Path) -> None:
    out = running(tmp_path / "out")
    record = json.loads((out / "run.json").read_text())
    del record["zk"]
    (out / "run.json").write_text(json.dumps(record))
    with pytest.raises(NotRunningError, match="still starting its cluster"):
        of_run(out)


def test_a_run_is_asked_with_its_own_credentials_and_not_with_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTH, "/another/zookeeper")
    assert of_run(running(tmp_path / "with", zkAccess={AUTH: "/ours"})).access == {AUTH: "/ours"}
    assert of_run(running(tmp_path / "without")).access == {}
    assert of_zookeeper("z:1", ROOT, MINIMAL).access[AUTH] == "/another/zookeeper"


def test_a_root_at_which_nothing_ever_ran_is_named(server: MemoryServer) -> None:
    with pytest.raises(NotRunningError, match=f"nothing runs at {ROOT} in ZooKeeper z:1"), target():
        pytest.fail("there is nothing")


def test_who_may_not_read_is_told_which_variable_says_who_he_is(
    server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.session().ensure_path(ROOT)
    monkeypatch.setattr(Observer, "exists", lambda *_: True)  # a znode that is closed can be seen to be there
    server.closed.add(ROOT)
    with (
        pytest.raises(NotRunningError, match=f"does not let this process read {ROOT}; {AUTH} names who may"),
        target(),
    ):
        pytest.fail("it is closed")


def test_what_runs_is_seen_paused_and_told_from_its_records(server: MemoryServer, tmp_path: Path) -> None:
    other = server.session()
    other.ensure_path(ROOT)
    out = running(
        tmp_path / "out", actions=[{"action": "kill", "time": 1.0, "nodes": [f"n{i}"]} for i in range(6)]
    )
    with of_run(out) as found:
        document = found.document()
        assert (document.topology, document.connected, document.incident) == ("minimal", True, None)
        assert found.resource().name == "minimal" and found.resources() is None
        assert not found.observation().paused
        for paused in (True, False):
            said = found.pause(paused)
            assert said == f"{ROOT}/{paths.PAUSED} is {str(paused).lower()}"
            assert parse_paused(other.get(f"{ROOT}/{paths.PAUSED}")[0]) is paused
        assert [action for action in found.actions() if "n1" in action] == [], "the last four"
        assert len(found.actions()) == 4
        assert not found.is_over()
        record = json.loads((out / "run.json").read_text())
        (out / "run.json").write_text(json.dumps(record | {"outcome": "done"}))
        assert found.is_over()


def test_what_has_no_folder_has_no_actions_no_files_and_is_never_over(server: MemoryServer) -> None:
    server.session().ensure_path(ROOT)
    with of_zookeeper("z:1", ROOT, MINIMAL) as found:
        assert (found.actions(), found.files(), found.is_over()) == ([], {}, False)


def test_of_a_long_log_the_end_goes_into_a_bundle(tmp_path: Path) -> None:
    out = running(tmp_path / "out")
    (out / "logs" / "cluster").mkdir()
    (out / "logs" / "cluster" / "n1.log").write_bytes(b"short")
    (out / "logs" / "driver.log").write_bytes(b"a" + b"b" * LOG_TAIL)
    (out / "logs" / "core").write_bytes(b"no log")
    found = run_files(out)
    assert sorted(found) == ["logs/cluster/n1.log", "logs/driver.log", "run.json", "topology.json"]
    assert found["logs/cluster/n1.log"] == b"short"
    assert found["logs/driver.log"] == b"b" * LOG_TAIL


def test_a_wish_to_skip_is_written_once_and_taken_back(server: MemoryServer) -> None:
    session = ZooKeeperSession(cast(Any, server.session()))
    path = f"{ROOT}/{paths.SKIPS}/count.0"
    found = target()
    assert found.skip("count.0", True) == f"{path} asks for it"
    first = parse_skip(session.get(path)[0])
    assert found.skip("count.0", True) == f"{path} asks for it"
    again = session.get(path)
    assert parse_skip(again[0]).id != first.id
    assert again[1].version == 0, "a wish is never changed: whoever takes it knows which"
    assert found.skip("count.0", False) == f"{path} is gone"
    assert "or it is under way already" in found.skip("count.0", False)
    assert session.exists(path) is None


def test_who_looks_on_sees_the_settings_that_are_in_effect_now(server: MemoryServer) -> None:
    def priorities() -> set[int]:
        return {query.priority for query in at.document().queries.items}

    def say(raw: bytes) -> None:
        server.put(f"{ROOT}/{paths.SETTINGS}", raw)

    server.put(ROOT, b"")
    with target() as at:
        before = priorities()
        wanted = override(load_topology(MINIMAL), {"operators[count].output.priority": 9})
        say(encode_settings(settings_of(wanted)))
        assert 9 in priorities() and 9 not in before
        say(b"[]")
        assert 9 in priorities(), "who follows them goes on with those before, too"
    with target() as at:
        assert priorities() == before, "a damaged record hides nothing else"
