"""Lists and watches: everything is told once, what is gone is told as gone, and what is not known is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reprise.controller.kubernetes import informer as module
from reprise.controller.kubernetes.errors import ExpiredError, UnknownError
from reprise.controller.kubernetes.informer import Informer
from reprise.controller.kubernetes.pods import KubernetesNode, PodView, kubernetes_node
from reprise.controller.operator.health import answer
from reprise.controller.operator.loop.runtime import Runtime
from reprise.controller.operator.pods.cluster_view import Cluster
from reprise.controller.operator.settings import OperatorSettings

Told = tuple[str | None, str | None]


def node(name: str, version: int, ready: str = "True", uid: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


class FakeSource:
    """Answers of an API server, one after the other; stops the informer when they are used up."""

    def __init__(self, stop: threading.Event, *answers: Any) -> None:
        self._stop, self._answers = stop, list(answers)
        self.asked: list[str] = []

    def _next(self) -> Any:
        if not self._answers:
            self._stop.set()
            raise UnknownError("no more answers")
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def pages(self, _path: str, **_query: str) -> Iterator[Any]:
        self.asked.append("list")
        yield from self._next()

    def watch(self, _path: str, version: str, _seconds: int, **_query: str) -> Iterator[tuple[str, Any]]:
        self.asked.append(f"watch {version}")
        for event in self._next():
            if isinstance(event, Exception):
                raise event
            yield event


def page(version: int, *items: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


def run(
    monkeypatch: pytest.MonkeyPatch, *answers: Any
) -> tuple[list[Told], FakeSource, Informer[KubernetesNode]]:
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0,))
    stop, told = threading.Event(), list[Told]()
    source = FakeSource(stop, *answers)

    def changed(before: KubernetesNode | None, now: KubernetesNode | None) -> None:
        told.append((before and before.name, now and now.name))

    one = Informer(source, "/nodes", kubernetes_node, changed)  # type: ignore[arg-type, type-var]
    one.run(stop)
    return told, source, one


def test_pages_then_changes_from_their_version_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told, source, one = run(
        monkeypatch,
        [page(7, node("a", 1)), page(7, node("b", 2))],
        [("MODIFIED", node("a", 8, "False")), ("BOOKMARK", {"metadata": {"resourceVersion": "20"}})],
        [("DELETED", node("b", 21)), ("ADDED", node("c", 22))],
    )
    assert told == [(None, "a"), (None, "b"), ("a", "a"), ("b", None), (None, "c")]
    assert source.asked == ["list", "watch 7", "watch 20", "watch 22"]
    assert one.synced.is_set()


def test_a_heartbeat_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = node("a", 9)
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    told, _, _ = run(monkeypatch, [page(7, node("a", 1))], [("MODIFIED", beat)])
    assert told == [(None, "a")]


def test_a_watch_that_fell_behind_reads_again_and_tells_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    told, source, _ = run(
        monkeypatch,
        [page(7, node("a", 1), node("b", 2))],
        [ExpiredError(410, "too old")],
        [page(90, node("b", 2), node("c", 80))],
    )
    assert told == [(None, "a"), (None, "b"), (None, "c"), ("a", None)]
    assert source.asked == ["list", "watch 7", "list", "watch 90"]


def test_what_was_known_stands_while_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    told, source, _ = run(
        monkeypatch,
        UnknownError("away"),
        [page(7, node("a", 1))],
        UnknownError("away"),
        UnknownError("away"),
        [page(9, node("a", 1))],
    )
    assert told == [(None, "a")]
    assert source.asked == ["list", "list", "watch 7", "list", "list", "watch 9"]


def test_a_node_that_comes_back_under_its_name_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    told, _, _ = run(
        monkeypatch,
        [page(7, node("a", 1, uid="u1"))],
        [("DELETED", node("a", 8, uid="u1")), ("ADDED", node("a", 9, uid="u2"))],
    )
    assert told == [(None, "a"), ("a", None), (None, "a")]


def test_an_error_that_nobody_foresaw_ends_no_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told, source, _ = run(
        monkeypatch,
        [page(7, node("a", 1))],
        RuntimeError("nobody foresaw it"),
        [page(9, node("a", 1), node("b", 8))],
    )
    assert told == [(None, "a"), (None, "b")]
    assert source.asked == ["list", "watch 7", "list", "watch 9"]
    assert "event=watch-failed path=/nodes" in caplog.text


def test_an_object_that_cannot_be_understood_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd = node("odd", 2)
    odd["status"]["conditions"] = [None]
    told, source, _ = run(
        monkeypatch,
        [page(7, node("a", 1), odd, node("b", 3))],
        [("MODIFIED", odd), ("MODIFIED", node("a", 8, "False")), ("DELETED", odd)],
    )
    assert told == [(None, "a"), (None, "b"), ("a", "a")]
    assert source.asked == ["list", "watch 7", "watch 2"]
    assert caplog.text.count("event=not-understood path=/nodes object=/odd") == 1


class Ticking:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_an_informer_tells_when_it_was_answered_and_when_it_has_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0,))
    stop = threading.Event()
    source = FakeSource(stop, [page(7, node("a", 1))], [], UnknownError("away"), UnknownError("away"))
    one = Informer(source, "/nodes", kubernetes_node, lambda *_: None, Ticking())  # type: ignore[arg-type, type-var]
    began = one.answered
    one.run(stop)
    assert began < one.answered < one.turned


class Worker:
    def __init__(self, turns: bool, sees: bool) -> None:
        self._turns, self._sees = turns, sees

    def turns_well(self) -> bool:
        return self._turns

    def sees(self) -> bool:
        return self._sees

    def answer_ages(self) -> dict[str, float]:
        return {"/api/v1/pods": 3.2}


@pytest.mark.parametrize(
    ("working", "health", "ready", "leads"),
    [
        (None, 200, 200, 503),
        (Worker(True, True), 200, 200, 200),
        (Worker(True, False), 200, 503, 200),  # a restart would not make the API server answer
        (Worker(False, True), 503, 503, 200),
    ],
)
def test_what_the_probes_answer(working: Worker | None, health: int, ready: int, leads: int) -> None:
    found = {path: answer(path, working) for path in ("/healthz", "/readyz", "/leader", "/other")}
    assert [status for status, _ in found.values()] == [health, ready, leads, 404]
    if working is not None:
        assert "/api/v1/pods answered 3 s ago" in found["/healthz"][1]


@pytest.mark.parametrize(
    ("beat", "turned", "answered", "turns", "sees"),
    [(0, 0, 0, True, True), (99, 0, 0, False, True), (0, 200, 0, False, True), (0, 0, 200, True, False)],
)
def test_a_watch_that_has_ended_is_seen_by_who_asks_for_health(
    beat: float, turned: float, answered: float, turns: bool, sees: bool
) -> None:
    """All are ages, in seconds."""
    nothing: Any = None
    settings = OperatorSettings(namespace="ops", identity="op", zk="zk:2181", image="i")
    runtime, now = Runtime(settings, nothing, nothing), time.monotonic()
    informer: Any = Informer(nothing, "/nodes", kubernetes_node, lambda *_: None)  # type: ignore[type-var]
    runtime.beat, informer.turned, informer.answered = now - beat, now - turned, now - answered
    runtime._informers.append(informer)
    assert (runtime.turns_well(), runtime.sees()) == (turns, sees)


def pod(name: str, topology: str, machine: str = "", uid: str = "", phase: str = "Running") -> PodView:
    return PodView(name, "ns", topology, "executor", uid or f"uid-{name}", machine, phase)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def cluster(woken: list[str]) -> Cluster:
    wake: Callable[[tuple[str, str]], None] = lambda key: woken.append(key[1])  # noqa: E731
    return Cluster(wake)


def test_pods_are_found_by_topology_and_wake_it(cluster: Cluster, woken: list[str]) -> None:
    one, two = pod("p1", "a", "m1"), pod("p2", "b", "m1")
    cluster.pod_changed(None, one)
    cluster.pod_changed(None, two)
    assert cluster.pods(("ns", "a")) == {"p1": one}
    cluster.pod_changed(two, None)
    assert cluster.pods(("ns", "b")) == {}
    assert woken == ["a", "b", "b"]


def test_a_machine_wakes_those_who_have_pods_there(cluster: Cluster, woken: list[str]) -> None:
    well, ill = KubernetesNode("m1", True, True), KubernetesNode("m1", None, True)
    cluster.machine_changed(None, well)
    pending, placed = pod("p1", "a"), pod("p1", "a", "m1")
    cluster.pod_changed(None, pending)
    cluster.pod_changed(pending, placed)
    cluster.pod_changed(None, pod("p2", "b", "m2"))
    woken.clear()
    cluster.machine_changed(well, ill)
    assert woken == ["a"]
    assert cluster.machines["m1"].ready is None
    cluster.pod_changed(placed, None)
    woken.clear()
    cluster.machine_changed(ill, None)
    assert woken == []
    assert cluster.machines == {}


def test_the_end_of_an_old_pod_does_not_remove_the_new_one_of_its_name(cluster: Cluster) -> None:
    old, new = pod("driver", "a", "m1", uid="u1"), pod("driver", "a", "m2", uid="u2")
    cluster.pod_changed(None, old)
    cluster.pod_changed(None, new)
    cluster.pod_changed(old, None)
    assert cluster.pods(("ns", "a")) == {"driver": new}
