"""Which nodes a fault means, and what is recorded when it cannot be done."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.controller.errors import RunError, UnknownNodeError
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.run.inject import Injector, Roster

ASSIGNMENT = {"source.0": "n1#1", "count.0": "n2#1", "count.1": "n15#2"}


class FakeCluster:
    """Nodes n1, n2, n15, as a cluster that has served another run has them."""

    def __init__(self) -> None:
        self.nodes: tuple[str, ...] = ("n1", "n2", "n15")
        self.calls: list[tuple[str, Any]] = []

    def kill(self, names: list[str]) -> None:
        self.calls.append(("kill", names))
        self.nodes = tuple(n for n in self.nodes if n not in names)

    def notice(self, names: list[str], grace_s: float) -> None:
        self.calls.append(("notice", (names, grace_s)))

    def freeze(self, names: list[str]) -> None:
        self.calls.append(("freeze", names))

    def thaw(self, names: list[str]) -> None:
        if unknown := [n for n in names if n not in self.nodes]:
            raise UnknownNodeError(f"no such node: {unknown}")
        self.calls.append(("thaw", names))

    def add_node(self) -> str:
        self.nodes += (f"n{15 + len(self.nodes) - 2}",)
        return self.nodes[-1]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def said() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def injector(cluster: FakeCluster, said: list[dict[str, Any]]) -> Injector:
    return Injector(cluster, Roster(["n1", "n2", "n15"]), {}, said.append)  # type: ignore[arg-type]


def _do(injector: Injector, **item: Any) -> None:
    (fault,) = parse_faults([{"at": 0, **item}], "F.yaml", 3)
    injector.carry_out(fault, ASSIGNMENT)


def test_numbers_are_those_of_the_run_not_of_the_cluster(injector: Injector, cluster: FakeCluster) -> None:
    _do(injector, kill=["n3"])
    assert cluster.calls == [("kill", ["n15"])]


def test_an_arrival_gets_the_next_number(injector: Injector, cluster: FakeCluster) -> None:
    _do(injector, add=1)
    added = cluster.nodes[-1]
    _do(injector, kill=["n4"])
    assert cluster.calls == [("kill", [added])]


@pytest.mark.parametrize(
    ("selector", "nodes"), [("@count", ["n2", "n15"]), ("@count.1", ["n15"]), ("@source", ["n1"])]
)
def test_nodes_by_what_they_host(injector: Injector, selector: str, nodes: list[str]) -> None:
    assert injector.resolve([selector], ASSIGNMENT) == nodes


@pytest.mark.parametrize("selector", ["n4", "n0", "x", "@nothing"])
def test_a_node_that_is_not_there_is_recorded_and_nothing_happens(
    injector: Injector, cluster: FakeCluster, said: list[dict[str, Any]], selector: str
) -> None:
    _do(injector, kill=[selector])
    assert cluster.calls == []
    assert said[0]["action"] == "kill"
    assert selector.lstrip("@") in said[0]["error"]
    with pytest.raises(RunError):
        injector.resolve([selector], ASSIGNMENT)


def test_a_node_killed_twice_is_named_as_gone(
    injector: Injector, cluster: FakeCluster, said: list[dict[str, Any]]
) -> None:
    _do(injector, kill=["n1"])
    _do(injector, kill=["n1", "n2"])
    assert cluster.calls == [("kill", ["n1"]), ("kill", ["n2"])]
    assert said[1]["gone_before"] == ["n1"]


def test_a_freeze_ends_by_itself(injector: Injector, cluster: FakeCluster) -> None:
    _do(injector, **{"freeze": ["n2"], "for": 0})
    assert injector.frozen == {"n2"}
    injector.tick(ASSIGNMENT)
    assert cluster.calls == [("freeze", ["n2"]), ("thaw", ["n2"])]
    assert injector.frozen == set()


def test_an_arrival_is_recorded_once_with_the_time_it_took(
    injector: Injector, said: list[dict[str, Any]]
) -> None:
    _do(injector, add=1)
    name = said[0]["nodes"][0]
    injector.arrived(["n1"])
    assert len(said) == 1
    injector.arrived(["n1", name])
    injector.arrived(["n1", name])
    assert [(a["action"], a["nodes"]) for a in said[1:]] == [("arrived", [name])]
    assert said[1]["took"] >= 0


class Keeper:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def kill(self) -> None:
        self.calls.append("kill")

    def launch(self) -> None:
        self.calls.append("launch")


class Service:
    def __init__(self) -> None:
        self.crashes = 0

    def crash(self) -> None:
        self.crashes += 1


def test_zookeeper_that_is_crashed_comes_back_when_its_time_is_over(
    injector: Injector, cluster: FakeCluster, said: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.time", lambda: now)
    cluster.zookeeper = keeper = Keeper()  # type: ignore[attr-defined]
    _do(injector, **{"crash": "zookeeper", "for": "3s"})
    now = 102.9
    injector.tick(ASSIGNMENT)
    assert keeper.calls == ["kill"]
    now = 103.0
    injector.tick(ASSIGNMENT)
    injector.tick(ASSIGNMENT)
    assert keeper.calls == ["kill", "launch"]
    assert [(action["action"], action["target"]) for action in said] == [
        ("crash", "zookeeper"),
        ("start", "zookeeper"),
    ]


def test_the_process_that_is_meant_is_crashed_and_no_other(
    injector: Injector, said: list[dict[str, Any]]
) -> None:
    driver, coordinator = Service(), Service()
    injector.services = {"driver": driver, "coordinator": coordinator}  # type: ignore[dict-item]
    _do(injector, crash="coordinator")
    assert (driver.crashes, coordinator.crashes) == (0, 1)
    assert said[0]["target"] == "coordinator"


def test_who_was_given_notice_is_killed_after_it_whoever_hosts_what_by_then(
    injector: Injector, cluster: FakeCluster
) -> None:
    _do(injector, notice=["@count.1", "n2"], **{"for": 0})
    assert cluster.calls == [("notice", (["n2", "n15"], 0.0))]
    injector.tick({"count.1": "n1#1"})
    assert cluster.calls[1:] == [("kill", ["n2", "n15"])]
    assert cluster.nodes == ("n1",)
