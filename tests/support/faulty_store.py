"""An HTTP proxy on loopback between the client of an object store and its server, which makes what goes wrong there.

The server and the client are real and untouched; a `Fault` says which requests meet what.  Requests are handed on whole,
with their `Host`, so that signatures hold.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}
Headers = list[tuple[str, str]]


class What(Enum):
    """What happens to a request."""

    REFUSED = "answered with a status; the server does not hear of it"
    ANSWER_LOST = "carried out by the server; the client's connection is cut instead of an answer"
    ANSWER_FAILED = "carried out by the server; the client is answered with a status"
    UPLOAD_CUT = "the server gets half of the body and no more, the client's connection is cut"
    BODY_CUT = "half of the answer's body, and the connection is cut"
    BODY_SHORT = "half of the answer's body, with a length that fits"
    SLOW = "answered after a time"
    NOT_LISTED = "what was stored is not in the next `listings` that would show it"


@dataclass(slots=True)
class Fault:
    """The next `times` requests with this method, whose path and query match, meet this."""

    what: What
    method: str = ""
    target: str = ""
    times: int = 1_000_000
    status: int = 503
    code: str = "SlowDown"
    headers: Headers = field(default_factory=list)
    """Of the answer."""
    seconds: float = 0.0
    listings: int = 0
    every: int = 1
    """Only each so many-th of such requests."""
    body: bytes = b""
    """Of the answer, instead of an error of S3."""
    credentials: str = ""
    """Only requests whose `Authorization` holds this."""
    seen: int = 0
    met: int = 0

    def meets(self, method: str, target: str, authorization: str) -> bool:
        """Whether this request does; counts it."""
        if (
            self.method not in ("", method)
            or re.search(self.target, target) is None
            or self.credentials not in authorization
        ):
            return False
        self.seen += 1
        if self.met >= self.times or self.seen % self.every:
            return False
        self.met += 1
        return True


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the server."""

    status: int
    headers: Headers
    body: bytes


class FaultyStore:
    """What requests meet, and which there were."""

    def __init__(self, server: str) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._listed: dict[str, int] = {}
        """How many listings have lacked each file since it was stored."""
        self.requests: list[str] = []
        """Method and target of each."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fault(self, *faults: Fault) -> None:
        """From now on, instead of those before; none: nothing goes wrong."""
        with self._lock:
            self._faults = list(faults)

    def told(self, method: str, target: str) -> int:
        """How many such requests there were."""
        with self._lock:
            return sum(1 for each in self.requests if re.search(f"^{method} .*{target}", each))

    def taken(self, method: str, target: str, authorization: str) -> Fault | None:
        """The fault that a request meets."""
        with self._lock:
            self.requests.append(f"{method} {target}")
            return next((fault for fault in self._faults if fault.meets(method, target, authorization)), None)

    def handed_on(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        """What the server says."""
        connection = http.client.HTTPConnection(self.server, timeout=120)
        try:
            _send(connection, method, target, headers, len(body))
            connection.send(body)
            reply = connection.getresponse()
            answer = Answer(
                reply.status, [h for h in reply.getheaders() if h[0].lower() not in _HOP], reply.read()
            )
        finally:
            connection.close()
        if method in ("PUT", "POST") and answer.status < 300:
            with self._lock:
                self._listed[target.partition("?")[0]] = 0
        return answer

    def cut_on_the_way(self, method: str, target: str, headers: Headers, body: bytes) -> None:
        """The server gets the head, and half of the body."""
        connection = http.client.HTTPConnection(self.server, timeout=120)
        with suppress(OSError):
            _send(connection, method, target, headers, len(body))
            connection.send(body[: len(body) // 2])
        connection.close()

    def lacking(self, answer: Answer, bucket: str, listings: int) -> Answer:
        """A listing without what fewer than so many have lacked."""

        def kept(found: re.Match[str]) -> str:
            key = re.search(r"<Key>(.*?)</Key>", found[0])
            path = f"{bucket}/{key[1]}" if key else ""
            if self._listed.get(path, listings) >= listings:
                return found[0]
            self._listed[path] += 1
            return ""

        with self._lock:
            text = re.sub(r"<Contents>.*?</Contents>", kept, answer.body.decode(), flags=re.DOTALL)
        left = text.count("<Contents>") + text.count("<CommonPrefixes>")
        text = re.sub(r"<KeyCount>\d+</KeyCount>", f"<KeyCount>{left}</KeyCount>", text)
        return Answer(answer.status, answer.headers, text.encode())


def _send(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Headers, length: int
) -> None:
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        if name.lower() not in {*_HOP, "content-length"}:
            connection.putheader(name, value)
    connection.putheader("Content-Length", str(length))
    connection.endheaders()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FaultyStore

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _do(self) -> None:
        body = self._body()
        headers = list(self.headers.items())
        fault = self.store.taken(self.command, self.path, self.headers.get("Authorization") or "")
        what = fault.what if fault is not None else None
        if fault is not None and what is What.REFUSED:
            self._answer(_said(fault))
            return
        if what is What.UPLOAD_CUT:
            self.store.cut_on_the_way(self.command, self.path, headers, body)
            self._cut()
            return
        if fault is not None and what is What.SLOW:
            time.sleep(fault.seconds)
        answer = self.store.handed_on(self.command, self.path, headers, body)
        if fault is not None and what is What.ANSWER_FAILED:
            answer = _said(fault)
        if fault is not None and what is What.NOT_LISTED:
            answer = self.store.lacking(answer, self.path.partition("?")[0].rstrip("/"), fault.listings)
        if what is What.ANSWER_LOST:
            self._cut()
        elif what is What.BODY_CUT:
            self._answer(answer, answer.body[: len(answer.body) // 2], len(answer.body))
            self._cut()
        elif what is What.BODY_SHORT:
            self._answer(Answer(answer.status, answer.headers, answer.body[: len(answer.body) // 2]))
        else:
            self._answer(answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _do

    def _body(self) -> bytes:
        if (self.headers.get("Transfer-Encoding") or "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _answer(self, answer: Answer, body: bytes | None = None, length: int | None = None) -> None:
        data = answer.body if body is None else body
        self.send_response_only(answer.status)
        own = next((value for name, value in answer.headers if name.lower() == "content-length"), None)
        for name, value in answer.headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        of_head = self.command == "HEAD" and own is not None
        self.send_header(
            "Content-Length", str(own) if of_head else str(len(data) if length is None else length)
        )
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)


def _said(fault: Fault) -> Answer:
    if fault.body:
        return Answer(fault.status, [("Content-Type", "application/xml"), *fault.headers], fault.body)
    text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>so the test wants it</Message></Error>"
    return Answer(fault.status, [("Content-Type", "application/xml"), *fault.headers], text.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up as they like, and so do tests."""


@contextmanager
def faulty_store(server: str) -> Iterator[FaultyStore]:
    """A proxy in front of `server`, host:port."""
    store = FaultyStore(server)
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store})) as listening:
        store.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield store
        finally:
            listening.shutdown()
            thread.join()
