"""The web page of two operators: whichever is asked, what the one that leads has seen is shown."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.kubernetes.lease import Leadership
from reprise.controller.local.cluster.addresses import free_port
from reprise.controller.operator.__main__ import _serve_web, _web_url
from reprise.controller.operator.loop.runtime import Runtime
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.topology_view import view_of
from reprise.controller.web import Board
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import load_topology
from tests.support.fake_api import FakeApi
from tests.support.ports import own_host

RESOURCE = load_topology("examples/minimal.yaml")
PATH = "/api/v1/topologies/default/minimal"
BASE = OperatorSettings(namespace="ns", identity="a", zk="zk:1", image="i")


def operator(api: Any, name: str, host: str) -> tuple[Leadership, Board, str]:
    """One that serves its page, and does not lead yet."""
    settings = replace(BASE, identity=name, web_host=host, web_port=free_port(host))
    leadership = Leadership(api, "ns", "op", name, 8.0, web=_web_url(settings))
    board = Board()
    _serve_web(settings, board, leadership)
    return leadership, board, _web_url(settings)


def seen_at(url: str) -> int:
    with urllib.request.urlopen(url + PATH, timeout=300) as answer:
        return int(json.load(answer)["time"])


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with own_host() as host:
        monkeypatch.setenv("POD_IP", host)
        yield host


def test_any_operator_answers_with_what_the_leader_has_seen(pod: str) -> None:
    api = FakeApi()
    (a, board_a, url_a), (b, board_b, url_b) = operator(api, "a", pod), operator(api, "b", pod)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        seen_at(url_b)
    a._try(), b._try()
    board_a.show("default", "minimal", RESOURCE, Observation(1.0))
    assert (seen_at(url_a), seen_at(url_b)) == (1, 1)
    a._give_back()
    b._try(), a._try()
    board_b.show("default", "minimal", RESOURCE, Observation(2.0))
    assert (seen_at(url_a), seen_at(url_b)) == (2, 2)


def test_a_port_that_is_taken_costs_the_page_and_not_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = replace(BASE, web_host="127.0.0.1", web_port=int(taken.getsockname()[1]))
        _serve_web(settings, Board(), Leadership(FakeApi(), "ns", "op", "a", 8.0))  # type: ignore[arg-type]
    assert "event=no-web-page" in caplog.text


def test_what_a_controller_sees_is_on_the_board_until_its_object_goes() -> None:
    nothing: Any = None
    api: Any = FakeApi()
    runtime = Runtime(BASE, nothing, nothing)
    kind = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology"}
    body = {**kind, "metadata": {"name": "minimal", "namespace": "default", "uid": "u"}}
    controller = TopologyController(api, nothing, BASE, body, lambda: None, board=runtime.board)
    steps: Any = SimpleNamespace(records=SimpleNamespace(shown=(RESOURCE, view_of(RESOURCE))))
    controller._observed(steps, Observation(3.0))
    runtime.controllers["u"] = controller
    assert runtime.specs() == {"default/minimal": False}
    controller.state = replace(controller.state, invalid="spec.nodes.count: too many")
    assert runtime.specs() == {"default/minimal": True}
    assert runtime.board.document(("default", "minimal")) is not None
    runtime.forget("u", "default", "minimal")
    assert runtime.board.document(("default", "minimal")) is None
