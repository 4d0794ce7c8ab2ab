"""Requests that no browser sends: each is answered with what is wrong with it, and nothing in the server breaks over it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from reprise.controller.web import Board, Token, WebServer
from tests.web import moments

SECRET = "0123456789abcdef"
API = b"/api/v1/topologies"
FORM = b"Content-Type: application/x-www-form-urlencoded"
PARTS = b"Content-Type: multipart/form-data"
SEEN = moments.of(moments.eight_of_ten(moments.topology2()))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """Shows what it has to those who know the token."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(SECRET)
    board = Board()
    board.show("default", "topology2", *SEEN)
    served = WebServer(board, "127.0.0.1", 0, token=Token(file))
    served.start()
    yield served
    served.stop()


def answer(page: WebServer, request: bytes) -> bytes:
    """All that the server sends until it closes the connection, as it was asked to."""
    host, _, port = page.url.removeprefix("http://").rstrip("/").partition(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(request)
        found = b""
        while part := connection.recv(65536):
            found += part
    return found


def ask(page: WebServer, line: bytes, *headers: bytes, body: bytes = b"", host: bytes = b"localhost") -> int:
    length = [b"Content-Length: %d" % len(body)] if body else []
    lines = [line + b" HTTP/1.1", b"Host: " + host, b"Connection: close", *headers, *length, b"", body]
    return int(answer(page, b"\r\n".join(lines)).split(b" ")[1])


@pytest.mark.parametrize(
    "header",
    [
        b"X-Reprise-Token: \xff\xfe",
        b"X-Reprise-Token: \xc3\xa4",
        b"Authorization: Bearer \xff",
        b"Authorization: Bearer",
        b"Authorization: Basic " + SECRET.encode(),
        b"Authorization: " + SECRET.encode(),
        b"Cookie: reprise-page=\xff",
        b"Cookie: reprise-page=" + SECRET.encode(),
        b"Cookie: reprise-page=; reprise-page=x",
    ],
)
def test_whatever_is_shown_in_place_of_the_token_is_no_token(guarded: WebServer, header: bytes) -> None:
    assert ask(guarded, b"GET " + API, header) == 401
    assert ask(guarded, b"GET /", header) == 401


@pytest.mark.parametrize(
    ("header", "body", "status"),
    [
        (FORM + b"; charset=unheard-of", b"token=x", 400),
        (FORM, b"token=\xff", 400),
        (FORM, b"token=%ff", 403),
        (FORM + b"; charset=utf-7", b"token=+2AA-xx", 403),
        (FORM, b"token=" + SECRET.encode() + b"&token=x", 303),
        (FORM, b"token=x&token=" + SECRET.encode(), 403),
        (FORM, b"other=" + SECRET.encode(), 403),
        (FORM, b"token=" + b"x" * 5000, 413),
        (PARTS, b"token=x", 400),
        (PARTS + b"; boundary=b", b"xxxxx", 400),
        (PARTS + b"; boundary=b", b'--b\r\nContent-Disposition: form-data; name="token"; filename="f"\r\n\r\n'
         + SECRET.encode() + b"\r\n--b--\r\n", 403),
        (b"Content-Type: application/json", b"{}", 403),
        (b"X-None: none", b"token=x", 403),
    ],
)  # fmt: skip
def test_a_form_that_is_none_signs_nobody_in(
    guarded: WebServer, header: bytes, body: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    assert ask(guarded, b"POST /login", header, body=body) == status
    assert not caplog.records, "a stranger does not fill the log"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /api/v1/topologies/%ff/%fe", 404),
        (b"GET /api/v1/topologies/default/topology2%2frecords", 404),
        (b"GET /api/v1/topologies/default/topology2/", 404),
        (b"GET /api/v1/topologies/DEFAULT/topology2", 404),
        (b"GET /api/v1/topologies/default/topology2", 200),
        (b"GET /api/v1/topologies?x=" + b"%00" * 100, 200),
        (b"GET /static/%00", 404),
        (b"GET /static/..%2f..%2fboard.py", 404),
        (b"GET /" + b"a" * 20000, 400),
        (b"GET /t/%ff/%fe", 200),
    ],
)
def test_a_path_that_leads_nowhere_is_not_found(guarded: WebServer, line: bytes, status: int) -> None:
    assert ask(guarded, line, b"X-Reprise-Token: " + SECRET.encode()) == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 401), (b"LOCALHOST:80", 401), (b"127.0.0.1:8088", 401), (b"[::1]:1", 401),
        (b"", 421), (b"localhost.evil.example", 421), (b"localhost@evil.example", 421), (b"127.0.0.1.nip.io", 421),
        (b"0.0.0.0", 421), (b"2130706433", 421), (b"\xff", 421), (b"localhost:80:80", 421), (b"localhost:x", 421),
    ],
)  # fmt: skip
def test_only_its_own_names_are_answered(guarded: WebServer, host: bytes, status: int) -> None:
    assert ask(guarded, b"GET " + API, host=host) == status


def test_a_request_without_a_name_or_with_two_is_refused(guarded: WebServer) -> None:
    assert answer(guarded, b"GET / HTTP/1.0\r\n\r\n").split(b" ")[1] == b"421"
    assert ask(guarded, b"GET /", b"Host: evil.example") == 400


@pytest.mark.parametrize("header", [b"If-None-Match: \xff", b"Accept-Encoding: \xff", b"Accept: \xff"])
def test_headers_that_are_no_text_are_as_good_as_none(guarded: WebServer, header: bytes) -> None:
    token = b"X-Reprise-Token: " + SECRET.encode()
    assert ask(guarded, b"GET " + API, token, header) == 200
    standby = WebServer(Board(), "127.0.0.1", 0, lambda: guarded.url)
    standby.start()
    try:
        assert ask(standby, b"GET " + API, token, header) == 200, "and they are not passed on"
    finally:
        standby.stop()
