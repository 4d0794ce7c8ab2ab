"""What a run does beside waiting: its start, its nodes, a driver that hangs, its record, and what it leaves behind."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.cli.target_ended import EndedTarget
from reprise.controller.errors import UnknownNodeError
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report import layout as files
from reprise.controller.local.run import supervisor
from reprise.controller.local.run.config import RunConfig
from reprise.controller.local.run.inject import Injector, Roster
from reprise.controller.zookeeper.errors import SessionError
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.settings_record import SettingsOnRecord
from reprise.scheduler import Progress
from reprise.spark_jobs.topology import load_topology, override, to_json

MINIMAL = load_topology(Path(__file__).parents[5] / "examples" / "minimal.yaml")
FAULTS = parse_faults([{"at": 0, "kill": ["n1", "n2"]}, {"at": 1, "add": 1}], "F.yaml", 3)


class Keeper:
    """The ZooKeeper of a cluster."""

    def __init__(self, alive: bool) -> None:
        self.alive, self.starts = alive, 0

    def start(self) -> None:
        self.starts += 1


class Nodes:
    """A cluster as far as its nodes go."""

    def __init__(self, *names: str, zookeeper: bool = True) -> None:
        self.names, self.waited = list(names), list[str]()
        self.zookeeper = Keeper(zookeeper)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.names)

    def kill(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.names:
                raise UnknownNodeError(name)
            self.names.remove(name)

    def add_node(self) -> str:
        self.names.append(f"n{len(self.names) + 100}")
        return self.names[-1]

    def wait_for(self, names: Iterable[str], progress: object) -> None:
        self.waited += names


class Crashing:
    name = "driver"

    def __init__(self, status: int | None = None) -> None:
        self.crashes, self.status = 0, status

    def crash(self) -> None:
        self.crashes += 1

    def revive(self) -> int | None:
        return self.status


def begin(folder: Path, **more: Any) -> tuple[supervisor._Run, list[str]]:
    said: list[str] = []
    config = RunConfig(resource=MINIMAL, out=folder, **more)
    run = supervisor._Run(
        config, files.layout_of(folder, MINIMAL), lambda _state, _actions: None, said.append
    )
    return run, said


def injecting(cluster: Nodes, run: supervisor._Run, driver: Crashing) -> Injector:
    return Injector(cluster, Roster([]), {"driver": driver}, run._say)  # type: ignore[arg-type, dict-item]


@pytest.mark.parametrize(
    ("strategy", "standby", "keep", "count", "left"),
    [
        ("incremental", None, False, 0, ["kill", "add"]),
        ("best-case", None, False, 2, ["kill"]),
        ("best-case", None, True, 2, ["kill", "add"]),
        ("best-case", 0, False, 0, ["kill", "add"]),
        ("incremental", 1, False, 1, ["kill"]),
    ],
)
def test_with_standby_nodes_nobody_has_to_arrive(
    tmp_path: Path, strategy: str, standby: int | None, keep: bool, count: int, left: list[str]
) -> None:
    resource = override(MINIMAL, {"recovery.strategy": strategy})
    config = RunConfig(resource=resource, out=tmp_path, faults=FAULTS, standby=standby, keep_adds=keep)
    found, faults = supervisor._standby(config)
    assert (found, [fault.action for fault in faults]) == (count, left)


def test_a_cluster_that_is_lent_has_as_many_nodes_as_the_run_wants_and_the_oldest_stay() -> None:
    cluster = Nodes("n10", "n2", "n1")
    supervisor.resize(cluster, 2, lambda _: None)  # type: ignore[arg-type]
    assert cluster.names == ["n2", "n1"], "n10 is the newest, whatever comes first in the alphabet"
    supervisor.resize(cluster, 4, lambda _: None)  # type: ignore[arg-type]
    assert cluster.names == ["n2", "n1", "n102", "n103"]
    assert {*cluster.waited} >= {"n1", "n2", "n102", "n103"}


@pytest.mark.parametrize("alive", [True, False])
def test_a_cluster_that_is_given_back_has_no_frozen_node_and_a_living_zookeeper(
    tmp_path: Path, alive: bool
) -> None:
    cluster = Nodes("n1", "n2", "n3", zookeeper=alive)
    run, _ = begin(tmp_path, cluster=cluster)
    injector = injecting(cluster, run, Crashing())
    injector.frozen |= {"n2", "gone"}
    run._thaw(cluster, injector)  # type: ignore[arg-type]
    assert cluster.names == ["n1", "n3"]
    assert cluster.zookeeper.starts == (0 if alive else 1)


def test_a_cluster_of_the_run_s_own_is_left_as_it_is_for_it_ends_with_the_run(tmp_path: Path) -> None:
    cluster = Nodes("n1", zookeeper=False)
    run, _ = begin(tmp_path)
    injector = injecting(cluster, run, Crashing())
    injector.frozen.add("n1")
    run._thaw(cluster, injector)  # type: ignore[arg-type]
    assert cluster.names == ["n1"] and cluster.zookeeper.starts == 0


def test_the_schedule_begins_when_something_is_applied_and_only_once(tmp_path: Path) -> None:
    run, _ = begin(tmp_path)
    run._note_start(Observation(0.0))
    run._note_start(Observation(0.0, progress=Progress("1", horizon=3, positions={"tweets.0": 0})))
    assert run.zero is None and run.actions == []
    run._note_start(Observation(0.0, progress=Progress("1", positions={"tweets.0": 1})))
    zero = run.zero
    assert zero is not None and run.record["zero"] == zero
    run._note_start(Observation(0.0, progress=Progress("1", positions={"tweets.0": 2})))
    assert run.zero == zero
    assert [action["action"] for action in run.actions] == ["stream-began"]
    assert run.actions[0]["elapsed"] == 0.0
    assert json.loads((tmp_path / "run.json").read_text())["actions"] == run.actions


def test_a_checkpoint_is_counted_once_and_the_initial_state_is_none(tmp_path: Path) -> None:
    run, _ = begin(tmp_path)
    looks = (0, 5, 5, 10, 5)
    counts = [
        run._moment(Observation(0.0, progress=Progress("1", checkpoint=at))).milestones["checkpoint"]
        for at in looks
    ]
    assert counts == [0, 1, 1, 2, 2]
    assert run._moment(Observation(0.0)).milestones["checkpoint"] == 2


def test_a_driver_that_reports_and_begins_no_turn_is_ended_and_the_next_one_is_judged_anew(
    tmp_path: Path,
) -> None:
    run, _ = begin(tmp_path)
    driver = Crashing()
    injector = injecting(Nodes(), run, driver)

    def report(number: int, connected: bool = True) -> None:
        progress = Progress("1", turns=4, turn_limit_s=8.0)
        seen = Observation(0.0, connected, progress=progress, report=number)
        run._end_hung_driver(float(number), seen, injector)

    for number in range(1, 10):
        report(number)
        assert driver.crashes == 0
    report(10)
    assert driver.crashes == 1
    assert run.actions[-1]["action"] == "driver-hung" and "8 s at most" in run.actions[-1]["reason"]
    for number in range(11, 20):
        report(number)
    assert driver.crashes == 1, "the one that has taken its place has its own time"


def test_while_zookeeper_is_away_no_driver_hangs(tmp_path: Path) -> None:
    run, _ = begin(tmp_path)
    driver = Crashing()
    injector = injecting(Nodes(), run, driver)
    for number in range(1, 40):
        progress = Progress("1", turns=4, turn_limit_s=8.0)
        seen = Observation(0.0, number % 3 > 0, progress=progress, report=number)
        run._end_hung_driver(float(number), seen, injector)
    assert driver.crashes == 0


@pytest.mark.parametrize(("status", "actions"), [(None, []), (-9, ["restarted"]), (0, ["restarted"])])
def test_what_was_started_anew_is_on_record(tmp_path: Path, status: int | None, actions: list[str]) -> None:
    run, _ = begin(tmp_path)
    run._revive(injecting(Nodes(), run, Crashing(status)))
    assert [action["action"] for action in run.actions] == actions
    assert [action.get("status") for action in run.actions] == [status] * len(actions)


def test_a_full_disk_ends_no_run_and_is_said_once_until_it_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = begin(tmp_path)
    full = True

    def write(path: Path, value: object) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_json", write)
    run.save()
    run.save()
    assert said == ["problem: run.json is not written: No space left on device"]
    full = False
    run.save()
    full = True
    run.save()
    assert len(said) == 2


@pytest.mark.parametrize("answers", [True, False])
def test_how_all_stood_at_the_end_is_kept_for_who_asks_later(tmp_path: Path, answers: bool) -> None:
    def settings() -> SettingsOnRecord:
        if not answers:
            raise SessionError("away")
        return SettingsOnRecord({"recovery.cpuCap": 61}, 0)

    files.write_atomically(files.layout_of(tmp_path, MINIMAL).topology, to_json(MINIMAL))
    run, said = begin(tmp_path)
    run.seen = Observation(70.0, connected=True, progress=Progress("1", horizon=44))
    run._keep_last(SimpleNamespace(settings=settings))  # type: ignore[arg-type]
    with EndedTarget(tmp_path, "") as last:
        assert last.document().batch == 44
        assert last.resource().recovery.cpu_cap == (0.61 if answers else MINIMAL.recovery.cpu_cap)
    assert said == []
    (tmp_path / files.LAST).unlink()
    (tmp_path / f".{files.LAST}.part").mkdir()  # nothing can be written there
    run._keep_last(SimpleNamespace(settings=settings))  # type: ignore[arg-type]
    assert said == ["problem: last.json is not written: Is a directory"]
