"""The command lines of a run's two processes: both get the same topology and ZooKeeper, and each its own environment."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.controller import logs
from reprise.controller.coordinator import __main__ as coordinator
from reprise.controller.driver import __main__ as driver
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import MARK
from reprise.controller.local.report.layout import layout_of
from reprise.controller.local.run.commands import services_of
from reprise.controller.local.run.config import RunConfig
from reprise.controller.local.run.services import Service
from tests.support import oncall

ROOT = "/reprise/default/oncall"


def cluster(scratch: Path) -> EmbeddedCluster:
    """What is asked of a started one."""
    return cast(
        EmbeddedCluster,
        SimpleNamespace(
            zk_hosts="127.0.0.1:2181",
            scratch=scratch,
            token="t0ken",
            master_url="spark://127.0.0.1:7077",
            executor_java_options=lambda: "-Xshare:auto -Da=b",
            driver_java_options=lambda: "-Dc=d",
            zookeeper=SimpleNamespace(host="127.0.0.9"),
            spark_env=lambda: {"SPARK_HOME": "/spark"},
            submit_arguments=lambda *more: " ".join(more),
            config=SimpleNamespace(session_timeout_ms=3500),
            zk_environment=lambda root="": {"ZK_FOR": root},
        ),
    )


def services(tmp_path: Path, **config: Any) -> dict[str, Service]:
    resource = oncall.resource()
    made = RunConfig(resource=resource, out=tmp_path, **config)
    return services_of(made, layout_of(tmp_path, resource), cluster(tmp_path), ROOT)


def value(service: Service, option: str) -> str:
    words = list(service.command)
    joined = [word for word in words if word.startswith(f"{option}=")]
    return joined[0].partition("=")[2] if joined else words[words.index(option) + 1]


def test_the_coordinator_is_started_first_and_both_mean_the_same_topology(tmp_path: Path) -> None:
    found = services(tmp_path)
    assert list(found) == ["coordinator", "driver"]
    for option, expected in (
        ("--zk", "127.0.0.1:2181"), ("--root", ROOT), ("--topology", str(tmp_path / "topology.json")),
    ):  # fmt: skip
        assert {value(one, option) for one in found.values()} == {expected}
    assert [found[name].log.name for name in found] == ["coordinator.log", "driver.log"]


def test_what_is_said_to_them_they_understand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = services(tmp_path, metrics_port=9000)
    for name, one in found.items():
        assert list(one.command)[1:3] == ["-m", f"reprise.controller.{name}"]
    coordinator._parser().parse_args(list(found["coordinator"].command)[3:])

    class Parsed(Exception):
        """Whoever comes so far has understood all of it."""

    def parsed(*_: object) -> None:
        raise Parsed

    monkeypatch.setattr(driver.logs, "setup", lambda *_, **__: None)
    monkeypatch.setattr(driver.driver_files, "check", parsed)
    monkeypatch.setattr("sys.argv", list(found["driver"].command)[2:])
    with pytest.raises(Parsed):
        driver.main()


def test_absence_is_judged_by_the_agents_sessions(tmp_path: Path) -> None:
    assert value(services(tmp_path)["coordinator"], "--session-timeout") == "3.5"


def test_metrics_of_the_driver_are_beside_those_of_the_run_or_nowhere(tmp_path: Path) -> None:
    assert value(services(tmp_path, metrics_port=9000)["driver"], "--metrics-port") == "9001"
    assert not [word for word in services(tmp_path)["driver"].command if "--metrics" in word]


def test_a_users_modules_come_before_those_that_are_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/there")
    found = services(tmp_path, python_path="/mine")
    assert value(found["driver"], "--python-path") == os.pathsep.join(("/mine", "/there"))
    assert {one.environment["PYTHONPATH"] for one in found.values()} == {os.pathsep.join(("/mine", "/there"))}
    monkeypatch.delenv("PYTHONPATH")
    bare = services(tmp_path)
    assert value(bare["driver"], "--python-path") == ""
    assert all("PYTHONPATH" not in one.environment for one in bare.values())


def test_a_folder_with_a_colon_in_its_name_is_found_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    mine = tmp_path / "build:2025"
    mine.mkdir()
    (mine / "own_rows.py").write_text("")
    for _ in range(2):  # a cluster serves several runs
        (folder,) = value(services(tmp_path, python_path=str(mine))["driver"], "--python-path").split(
            os.pathsep
        )
        assert (Path(folder) / "own_rows.py").exists()


def test_each_carries_the_mark_by_which_it_is_ended_with_its_owner(tmp_path: Path) -> None:
    found = services(tmp_path, log_format="json")
    assert {one.environment[MARK] for one in found.values()} == {"t0ken"}
    assert {one.environment[logs.VARIABLE] for one in found.values()} == {"json"}
    assert "SPARK_HOME" not in found["coordinator"].environment
    assert found["driver"].environment["SPARK_HOME"] == "/spark"
    assert found["driver"].environment["ZK_FOR"] == ROOT, "the driver has the rights of its topology alone"
    assert found["coordinator"].environment["ZK_FOR"] == ""
    assert all(logs.VARIABLE not in one.environment for one in services(tmp_path).values())
