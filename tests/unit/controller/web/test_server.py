"""The server without a browser: what it answers, what it refuses, and what it costs who shares the process."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from reprise.controller.observability.alerts import ALERTS
from reprise.controller.status import document, observation
from reprise.controller.web import Board, Token, WebError, WebServer, app, server
from reprise.controller.web.assets import assets
from reprise.controller.web.guard import HEADERS
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import override
from tests.web import moments
from tools.testbed.waiting import until

ONE = "/api/v1/topologies/default/topology2"
SEEN = moments.of(moments.eight_of_ten(moments.topology2()))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "NEWS_S", 0.05)


@pytest.fixture
def board() -> Board:
    found = Board()
    found.show("default", "topology2", *SEEN)
    return found


@pytest.fixture
def page(board: Board) -> Iterator[WebServer]:
    served = WebServer(board, "127.0.0.1", 0)
    served.start()
    yield served
    served.stop()


def ask(
    page: WebServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_the_document_is_that_of_the_view(page: WebServer) -> None:
    status, headers, body = ask(page, ONE)
    assert status == 200 and headers["Content-Type"] == "application/json; charset=utf-8"
    assert json.loads(body) == moments.said(*SEEN)


def test_the_records_are_those_that_the_document_is_made_of(page: WebServer) -> None:
    status, _, body = ask(page, f"{ONE}/records")
    assert status == 200 and observation(body, "the page") == SEEN[1]
    assert ask(page, "/api/v1/topologies/default/nobody/records")[0] == 404


def test_the_list_is_in_short(page: WebServer) -> None:
    (item,) = json.loads(ask(page, "/api/v1/topologies")[2])["items"]
    assert (item["namespace"], item["name"], item["phase"]) == ("default", "topology2", "waiting")
    assert item["queries"]["total"] == 15 and item["incident"]["kind"] == "correlated"


def test_what_has_not_changed_is_not_sent_again(page: WebServer, board: Board) -> None:
    tag = ask(page, ONE)[1]["ETag"]
    assert ask(page, ONE, **{"If-None-Match": tag})[0] == 304
    board.show("default", "topology2", SEEN[0], replace(SEEN[1], time=SEEN[1].time + 1))
    until(lambda: ask(page, ONE, **{"If-None-Match": tag})[0] != 304, "the new observation is sent")


def test_answers_are_packed_for_who_takes_it(page: WebServer) -> None:
    packed = ask(page, ONE, **{"Accept-Encoding": "gzip"})
    assert packed[1]["Content-Encoding"] == "gzip" and len(packed[2]) < len(ask(page, ONE)[2]) / 3


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip;q=0", False), ("gzip; q=0.000, identity", False), ("*;q=0", False), ("identity", False), ("", False),
        ("br, gzipped", False), ("*, gzip;q=0", False), ("gzip;q=nan", False), ("gzip;q=high", False),
        ("gzip", True), ("GZip;Q=0.5", True), ("deflate, gzip;q=1.0, *;q=0.5", True), ("*", True), ("x-gzip", True),
    ],
)  # fmt: skip
def test_packed_bytes_are_for_who_asks_for_them(page: WebServer, accepted: str, packed: bool) -> None:
    status, headers, body = ask(page, ONE, **{"Accept-Encoding": accepted})
    assert status == 200 and (headers.get("Content-Encoding") == "gzip") is packed
    assert (body[:2] == b"\x1f\x8b") is packed


@pytest.mark.parametrize("path", ["/", "/t/default/topology2", "/static/style.css", ONE, "/nothing", "/t/x"])
def test_every_answer_keeps_to_its_own_origin(page: WebServer, path: str) -> None:
    headers = ask(page, path)[1]
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", ONE])
def test_nothing_can_be_changed(page: WebServer, path: str, method: str) -> None:
    status, headers, _ = ask(page, path, method)
    assert status == 405 and set(headers["Allow"].split(",")) == {"GET", "HEAD"}


def test_head_is_get_without_body(page: WebServer) -> None:
    status, headers, body = ask(page, ONE, "HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 1000
    assert ask(page, f"{ONE}/stream", "HEAD")[0] == 200


@pytest.mark.parametrize(
    "path", ["/static/../board.py", "/static/%2e%2e/board.py", "/static//etc/passwd", "/static/vendor", "/x"]
)
def test_only_files_of_the_page_are_served(page: WebServer, path: str) -> None:
    assert ask(page, path)[0] == 404


def test_every_file_of_the_page_is_served(page: WebServer) -> None:
    assert {"topology.html", "topology.js", "vendor/dagre.esm.js", "vendor/uPlot.LICENSE.txt"} <= set(
        assets()
    )
    for path, asset in assets().items():
        status, headers, body = ask(page, f"/static/{path}")
        assert status == 200 and body == asset.content.body and headers["Content-Type"].startswith(asset.kind)


def test_the_runbook_of_each_alert_is_where_its_url_leads(page: WebServer) -> None:
    for alert in ALERTS:
        status, headers, body = ask(page, f"/runbooks/{alert.page}")
        assert status == 200 and headers["Content-Type"] == "text/plain; charset=utf-8"
        assert body.decode().startswith(f"# {alert.name}\n")
    for path in ("/runbooks/", "/runbooks/RepriseNothing.md", "/runbooks/..%2fweb.md", "/runbooks/../web.md"):
        assert ask(page, path)[0] == 404


def test_an_unknown_topology_is_not_found(page: WebServer) -> None:
    for path in ("/api/v1/topologies/default/other", "/api/v1/topologies/default/other/stream"):
        assert ask(page, path)[0] == 404


def test_a_foreign_name_that_resolves_to_the_loopback_is_refused(page: WebServer) -> None:
    assert ask(page, ONE, Host="evil.example:80")[0] == 421
    assert ask(page, ONE, Host="localhost:1")[0] == 200


def test_a_loopback_address_of_its_own_is_answered_by_that_address(board: Board) -> None:
    served = WebServer(board, "127.0.3.7", 0)
    served.start()
    try:
        assert ask(served, ONE)[0] == 200
        assert ask(served, ONE, Host="evil.example")[0] == 421
    finally:
        served.stop()


def test_names_are_known_on_all_addresses_too(board: Board) -> None:
    """As in a pod: people come by a port-forward, that is by the loopback of their own machine."""
    served = WebServer(board, "0.0.0.0", 0, names=("rec-operator-web.streams.svc", "fd00::7"))
    served.start()
    try:
        assert ask(served, ONE, Host="evil.example")[0] == 421
        assert ask(served, ONE, Host="evil.example:8088")[0] == 421
        assert ask(served, ONE, Host="0.0.0.0:8088")[0] == 421
        for name in ("localhost:8088", "127.0.0.1", "REC-operator-web.streams.svc", "[fd00::7]:8082"):
            assert ask(served, ONE, Host=name)[0] == 200, name
    finally:
        served.stop()


SECRET = "a-token-that-is-long-enough"


@pytest.fixture
def guarded(board: Board, tmp_path: Path) -> Iterator[tuple[WebServer, Path]]:
    file = tmp_path / "token"
    file.write_text(SECRET + "\n")
    served = WebServer(board, "127.0.0.1", 0, token=Token(file))
    served.start()
    yield served, file
    served.stop()


def sign_in(page: WebServer, shown: str, **headers: str) -> tuple[int, str]:
    """Status, and the cookie."""
    connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=60)
    try:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", body=urlencode({"token": shown}), headers=kind | headers)
        answer = connection.getresponse()
        return answer.status, (answer.headers["Set-Cookie"] or "")
    finally:
        connection.close()


def test_with_a_token_nothing_is_shown_to_those_who_do_not_know_it(guarded: tuple[WebServer, Path]) -> None:
    page = guarded[0]
    for path in ("/api/v1/topologies", ONE, f"{ONE}/page", f"{ONE}/records", f"{ONE}/stream", "/"):
        status, _, body = ask(page, path)
        assert status == 401 and b"topology2" not in body, path
        assert ask(page, path, Authorization="Bearer another-token-of-some-length")[0] == 401
    assert ask(page, "/t/default/topology2")[0] == 302
    assert ask(page, "/static/style.css")[0] == ask(page, f"/runbooks/{ALERTS[0].page}")[0] == 200
    assert ask(page, ONE, Authorization=f"Bearer {SECRET}")[0] == 200
    assert ask(page, ONE, **{"X-Reprise-Token": SECRET})[0] == 200
    assert ask(page, ONE, Host="evil.example")[0] == 421
    by_proxy = {"Host": "api.cluster.example:6443", "X-Reprise-Token": SECRET}
    assert ask(page, ONE, **by_proxy)[0] == 200, "no foreign page can add that header"


def test_a_browser_signs_in_once_and_a_new_token_ends_that(guarded: tuple[WebServer, Path]) -> None:
    page, file = guarded
    status, cookie = sign_in(page, "wrong")
    assert (status, cookie) == (403, "")
    status, cookie = sign_in(page, SECRET)
    assert status == 303 and SECRET not in cookie
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Secure" not in cookie
    by_ingress = sign_in(page, SECRET, **{"X-Forwarded-Proto": "https"})[1]
    assert "Secure" in by_ingress, "the browser shows it over TLS alone"
    shown = {"Cookie": cookie.partition(";")[0]}
    assert ask(page, ONE, **shown)[0] == 200 and ask(page, "/", **shown)[0] == 200
    file.write_text("another-token-that-is-long-enough")
    os.utime(file, (1, 1))  # a clock that is too coarse to see the change is no part of this
    assert ask(page, ONE, **shown)[0] == 401


def test_who_waits_passes_the_token_on(guarded: tuple[WebServer, Path]) -> None:
    page, file = guarded
    standby = WebServer(Board(), "127.0.0.1", 0, lambda: page.url, token=Token(file))
    standby.start()
    try:
        assert ask(standby, ONE)[0] == 401
        assert ask(standby, ONE, Authorization=f"Bearer {SECRET}")[0] == 200
        assert ask(standby, ONE, Cookie=sign_in(standby, SECRET)[1].partition(";")[0])[0] == 200
    finally:
        standby.stop()


@pytest.mark.parametrize("content", ["", "short", None])
def test_a_token_that_is_none_is_refused_at_the_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(WebError, match="token"):
        Token(file)


def events(page: WebServer) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=60)
    connection.request("GET", f"{ONE}/stream")
    return connection, connection.getresponse()


def line(answer: http.client.HTTPResponse, start: bytes) -> bytes:
    """The next line that starts so."""
    while not (found := answer.readline()).startswith(start):
        assert found, "the stream has ended"
    return found


def test_the_stream_tells_when_there_is_news_and_when_the_topology_goes(
    page: WebServer, board: Board
) -> None:
    connection, answer = events(page)
    assert answer.headers["Content-Type"] == "text/event-stream"
    first = line(answer, b"data:")
    board.show("default", "topology2", *SEEN)
    assert line(answer, b"data:") != first
    board.forget("default", "topology2")
    assert line(answer, b"event: gone")
    connection.close()


def test_streams_are_counted(page: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_STREAMS", 1)
    connection, answer = events(page)
    line(answer, b"data:")
    other, refused = events(page)
    assert refused.status == 503 and refused.headers["Retry-After"]
    connection.close(), other.close()


def test_connections_are_counted(page: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    host, _, port = page.url.removeprefix("http://").rpartition(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(2)]
    until(lambda: ask(page, "/")[0] == 503, "both are taken")
    for one in idle:
        one.close()
    until(lambda: ask(page, "/")[0] == 200, "they are free again")


@pytest.mark.wide
def test_a_server_that_was_stopped_gives_its_address_back_with_a_stream_open(board: Board) -> None:
    served = WebServer(board, "127.0.0.1", 0)
    served.start()
    connection, answer = events(served)
    line(answer, b"data:")
    served.stop()
    port = int(served.url.rpartition(":")[2])
    again = WebServer(board, "127.0.0.1", port)
    again.start()
    with pytest.raises(WebError, match=str(port)):
        WebServer(board, "127.0.0.1", port).start()
    again.stop()
    connection.close()


# -- an operator that waits for the Lease ------------------------------------------------------------------------------


@pytest.fixture
def waiting(page: WebServer) -> Iterator[tuple[WebServer, list[str | None]]]:
    """A server whose board is empty, and where it believes the leader to be."""
    leader: list[str | None] = [page.url]
    served = WebServer(Board(), "127.0.0.1", 0, lambda: leader[0])
    served.start()
    yield served, leader
    served.stop()


def unasked(page: WebServer) -> tuple[str | None, bytes]:
    """What a client is sent that says nothing of encodings, as curl does."""
    connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=60)
    connection.putrequest("GET", ONE, skip_accept_encoding=True)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.getheader("Content-Encoding"), answer.read()
    connection.close()
    return found


def test_who_waits_answers_with_what_the_leader_says(
    page: WebServer, waiting: tuple[WebServer, list[str | None]]
) -> None:
    standby, leader = waiting
    assert ask(standby, ONE)[2] == ask(page, ONE)[2]
    tag = ask(page, ONE)[1]["ETag"]
    assert ask(standby, ONE, **{"If-None-Match": tag})[0] == 304
    assert ask(standby, ONE, **{"Accept-Encoding": "gzip"})[1]["Content-Encoding"] == "gzip"
    assert unasked(standby) == unasked(page)
    connection, answer = events(standby)
    assert line(answer, b"data:")
    connection.close()
    assert ask(standby, "/t/default/topology2")[0] == 200
    leader[0] = None
    status, headers, body = ask(standby, ONE)
    assert status == 503 and headers["Retry-After"] and b"no operator leads" in body
    leader[0] = "http://127.0.0.1:9"
    assert ask(standby, ONE)[0] == 502


def test_a_request_is_passed_on_once(waiting: tuple[WebServer, list[str | None]]) -> None:
    standby, leader = waiting
    leader[0] = standby.url
    assert ask(standby, ONE)[0] == 503


# -- the board ---------------------------------------------------------------------------------------------------------


def test_any_number_of_viewers_cost_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Observation] = []
    now = [0.0]

    def counted(topology: Any, seen: Observation) -> Any:
        made.append(seen)
        return document(topology, seen)

    monkeypatch.setattr("reprise.controller.web.board.document", counted)
    board = Board(lambda: now[0])
    key = ("default", "t")
    board.show(*key, *SEEN)
    assert made == []
    viewers = [threading.Thread(target=board.document, args=(key,)) for _ in range(20)]
    for viewer in viewers:
        viewer.start()
    for viewer in viewers:
        viewer.join()
    board.listing()
    assert len(made) == 1
    board.show(*key, *SEEN)
    board.document(key)
    assert len(made) == 1  # not due yet
    now[0] += 0.5
    board.document(key)
    assert len(made) == 2


@pytest.mark.parametrize(("costs", "shown"), [(0.01, 0.5), (0.2, 2.0), (6.0, 3.0)])
def test_a_document_that_is_dear_is_made_less_often_and_news_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, costs: float, shown: float
) -> None:
    now, made, key = [0.0], [0], ("default", "t")

    def slow(topology: Any, seen: Observation) -> Any:
        now[0] += costs
        made[0] += 1
        return document(topology, seen)

    monkeypatch.setattr("reprise.controller.web.board.document", slow)
    board = Board(lambda: now[0])
    board.show(*key, *SEEN)
    first = board.version(key)
    board.document(key)
    board.show(*key, *SEEN)
    for seconds, expected, news in ((shown - 0.01, 1, False), (0.02, 2, True)):
        now[0] += seconds
        assert (board.version(key) != first) is news
        board.document(key)
        assert made[0] == expected


def test_no_parameter_of_a_class_or_connector_is_in_any_answer(page: WebServer, board: Board) -> None:
    """They may hold passwords."""
    life = moments.Life(override(moments.topology2().resource, {"sources[source].with.seed": 987654321}))
    assert "987654321" in repr(life.resource)
    board.show("default", "secret", *moments.of(life))
    for path in ("/api/v1/topologies", "/api/v1/topologies/default/secret", "/t/default/secret"):
        status, _, body = ask(page, path)
        assert status == 200 and b"987654321" not in body and b"spark_jobs." not in body


def test_what_nobody_has_asked_for_in_a_while_is_forgotten() -> None:
    now = [0.0]
    board = Board(lambda: now[0])
    board.show("default", "t", *SEEN)
    board.document(("default", "t"))
    for seconds, kept in ((59.0, True), (2.0, False)):
        now[0] += seconds
        board.show("default", "t", *SEEN)
        assert bool(board._entries["default", "t"].made) is kept
    assert board.document(("default", "t")) is not None
