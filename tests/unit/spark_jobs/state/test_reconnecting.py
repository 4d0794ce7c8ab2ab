"""A server that closes connections, and one that asks for time: the next request is made as it should be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyftpdlib.handlers import FTPHandler

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import SinkError, StoreError
from reprise.spark_jobs.sinks.url import file_sink
from reprise.spark_jobs.storage import files
from reprise.spark_jobs.storage.answers import LONGEST_S, asked_to_wait_s
from reprise.spark_jobs.storage.files import Files
from tests.support.ftp import ftp_server

ROWS = pa.table({"n": [1, 2]})


class Handler(FTPHandler):
    """Hangs up at the next request of each connection that was there when a test asked for it."""

    oldest = 0
    made = 0
    reply = ""

    def on_connect(self) -> None:
        Handler.made += 1
        self.number = Handler.made

    def pre_process_command(self, line: str, cmd: str, arg: str) -> None:
        if self.number > Handler.oldest:
            super().pre_process_command(line, cmd, arg)
            return
        if Handler.reply:
            self.respond(Handler.reply)
        self.close_when_done()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ftp_server(tmp_path_factory.mktemp("served"), Handler) as url:
        yield url


def hang_up(reply: str) -> None:
    Handler.oldest, Handler.reply = Handler.made, reply


@pytest.mark.parametrize("reply", ["", "421 Idle for too long."])
def test_a_file_server_that_hung_up_is_connected_anew(server: str, tmp_path: Path, reply: str) -> None:
    location = f"{server}/{tmp_path.name}"
    here = Files(location)
    assert here.create("a", b"1")
    for number in range(3):
        hang_up(reply)
        with pytest.raises(StoreError, match="cannot read a"):
            here.read("a")
        assert here.read("a") == b"1"
        assert here.create(f"b{number}", b"2") and not here.create(f"b{number}", b"3")
    hang_up(reply)
    with pytest.raises(StoreError):
        here.names()
    assert Files(location).names() == ["a", "b0", "b1", "b2"], "who comes new gets no dead client"


def test_a_sink_on_a_file_server_that_hung_up_goes_on(server: str, tmp_path: Path) -> None:
    sink = file_sink(f"{server}/{tmp_path.name}", Place("out", 0, 1), "jsonl")
    sink.write(1, ROWS)
    hang_up("")
    with pytest.raises(SinkError):
        sink.write(2, ROWS)
    sink.write(2, ROWS)
    assert sink.visible == 2


class Busy(BaseHTTPRequestHandler):
    """Answers `status` while it is set, and counts who asks."""

    status = 0
    after: str | None = None
    asked = 0

    def do_GET(self) -> None:
        Busy.asked += 1
        self.send_response(Busy.status or 200)
        if Busy.status and Busy.after is not None:
            self.send_header("Retry-After", Busy.after)
        self.send_header("Content-Length", "0" if Busy.status else "2")
        self.end_headers()
        if not Busy.status:
            self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(files, "_left_alone", {})
    for name, value in {"status": 0, "after": None, "asked": 0}.items():
        monkeypatch.setattr(Busy, name, value)
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}/x"
        serving.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [429, 503])
def test_a_store_that_asks_for_time_gets_it(busy: str, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(files, "time", SimpleNamespace(time=lambda: now[0]))
    Busy.status, Busy.after = status, "7"
    with pytest.raises(StoreError, match=str(status)):
        Files(busy).read("a")
    for later in (0.0, 3.0, 3.9):
        now[0] = 1_000_000.0 + later
        with pytest.raises(StoreError, match=r"is not asked before \d\d:\d\d:\d\d UTC: it is busy"):
            Files(busy).read("b")
    assert Busy.asked == 1
    now[0], Busy.status = 1_000_007.0, 0
    assert Files(busy).read("a") == b"ok"


def test_a_store_that_names_no_time_is_asked_as_before(busy: str) -> None:
    Busy.status = 503
    for _ in range(2):
        with pytest.raises(StoreError, match="503"):
            Files(busy).read("a")
    assert Busy.asked == 2


class Refusal(Exception):
    """As clients have them."""

    def __init__(self, **attributes: object) -> None:
        super().__init__("busy")
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Refusal(status=503, headers={"Retry-After": "3"}), 3.0),
        (Refusal(response=SimpleNamespace(status_code=429, headers={"retry-after": "4"})), 4.0),
        (
            Refusal(
                response={"ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "5"}}}
            ),
            5.0,
        ),
        (Refusal(status=503, headers={"Retry-After": formatdate(1_000_006.0, usegmt=True)}), 6.0),
        (Refusal(status=503, headers={"Retry-After": "86400"}), LONGEST_S),
        (Refusal(status=503, headers={"Retry-After": "soon"}), 0.0),
        (Refusal(status=503, headers={"Retry-After": "-1"}), 0.0),
        (Refusal(status=503, headers=None), 0.0),
        (Refusal(status=404, headers={"Retry-After": "3"}), 0.0),
        (ValueError("else"), 0.0),
    ],
)
def test_how_long_a_store_wants_to_be_left_alone(error: Exception, seconds: float) -> None:
    assert asked_to_wait_s(error, 1_000_000.0) == seconds
    outer = OSError("of the file system")
    outer.__cause__ = error
    assert asked_to_wait_s(outer, 1_000_000.0) == seconds
