"""A store that is not heard for a moment: nothing is called missing, and nothing that is there is written over."""

from __future__ import annotations

import errno
import ftplib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyftpdlib.handlers import FTPHandler

from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.mirrors import take_over
from reprise.spark_jobs.storage.answers import trouble_behind
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import expand, load_text
from tests.support.ftp import ftp_server
from tests.unit.spark_jobs.state.test_storage import SMALL, TABLES
from tests.unit.spark_jobs.storage.test_files import Growing

QUESTIONS = {"MLSD", "LIST", "RETR", "SIZE", "MLST"}


class Handler(FTPHandler):
    """Asks its clients to try again later, where a test wants that."""

    refused: frozenset[str] = frozenset()

    def pre_process_command(self, line: str, cmd: str, arg: str) -> None:
        if cmd in Handler.refused:
            self.respond("450 Requested action not taken: try again later.")
        else:
            super().pre_process_command(line, cmd, arg)


class Deaf(Growing):
    """A file system of fsspec that inherits `exists`, as sftp, webhdfs and smb do; its connection breaks for questions."""

    protocol = "deaf"
    broken: frozenset[str] = frozenset()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace("deaf:", "memory:"))

    def exists(self, path: str, **options: Any) -> bool:
        return fsspec.AbstractFileSystem.exists(self, path, **options)  # type: ignore[no-any-return]

    def isfile(self, path: str) -> bool:
        return fsspec.AbstractFileSystem.isfile(self, path)  # type: ignore[no-any-return]

    def info(self, path: str, **options: Any) -> Any:
        return self._heard("info", lambda: super(Growing, self).info(path, **options))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return self._heard("ls", lambda: super(Growing, self).ls(path, detail=detail, **options))

    def cat_file(self, path: str, *more: Any, **options: Any) -> Any:
        return self._heard("cat_file", lambda: super(Growing, self).cat_file(path, *more, **options))

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """One request, as a rename is."""
        self.store[path2] = self.store.pop(path1)

    @staticmethod
    def _heard(question: str, answer: Callable[[], Any]) -> Any:
        if question in Deaf.broken:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        return answer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ftp_server(tmp_path_factory.mktemp("served"), Handler) as url:
        yield url


@pytest.fixture(params=["deaf", "ftp"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, Any]:
    """A location, and what makes its store answer no question any more (True) or all of them."""
    fsspec.register_implementation("deaf", Deaf, clobber=True)
    above = request.getfixturevalue("server") if request.param == "ftp" else "deaf:/"
    root = f"{above}/{tmp_path.name}"

    def silent(now: bool) -> None:
        monkeypatch.setattr(Handler, "refused", frozenset(QUESTIONS if now else ()))
        monkeypatch.setattr(Deaf, "broken", frozenset(("info", "ls", "cat_file") if now else ()))

    return root, silent


def test_what_is_there_is_not_written_over_while_the_store_is_not_heard(place: tuple[str, Any]) -> None:
    location, silent = place
    here = Files(location)
    assert here.create("ranges/1.json", b"of another driver")
    silent(True)
    with pytest.raises(StoreError, match=r"cannot write ranges/1\.json"):
        here.create("ranges/1.json", b"ours")
    silent(False)
    assert here.read("ranges/1.json") == b"of another driver"
    assert not here.create("ranges/1.json", b"ours") and here.create("ranges/2.json", b"ours")


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda here: here.exists("a/b"), True),
        (lambda here: here.read("a/b"), b"bytes"),
        (lambda here: here.names("a"), ["b"]),
        (lambda here: here.remove("a/b"), None),
        (lambda here: here.remove("a"), None),
    ],
    ids=["exists", "read", "names", "remove", "remove folder"],
)
def test_nothing_is_called_missing_while_the_store_is_not_heard(
    place: tuple[str, Any], ask: Callable[[Files], Any], answer: Any
) -> None:
    location, silent = place
    here = Files(location)
    here.create("a/b", b"bytes")
    silent(True)
    with pytest.raises(StoreError):
        ask(here)
    silent(False)
    assert ask(here) == answer
    assert here.exists("a/b") is (answer is not None)
    assert (here.read("a/c"), here.exists("a/c"), here.names("c")) == (None, False, [])
    assert (here.read("d/c"), here.exists("d/c"), here.names("d/c")) == (None, False, [])
    here.remove("d/c")


def test_a_folder_that_the_server_does_not_list_is_not_empty(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this listing is refused; that of the folder above says that it is there."""
    here = Files(f"{server}/listed")
    here.create("epochs/1.json", b"")
    process = Handler.pre_process_command

    def refuses(self: Handler, line: str, cmd: str, arg: str) -> None:
        if cmd in ("MLSD", "LIST") and "epochs" in arg:
            self.respond("450 Requested action not taken: try again later.")
        else:
            process(self, line, cmd, arg)

    monkeypatch.setattr(Handler, "pre_process_command", refuses)
    with pytest.raises(StoreError, match="cannot list epochs"):
        here.names("epochs")
    assert here.names() == ["epochs"]
    monkeypatch.setattr(Handler, "pre_process_command", process)
    assert here.names("epochs") == ["1.json"]
    here.remove("epochs/1.json")
    assert here.names("epochs") == []


def test_a_stream_that_cannot_be_looked_for_is_not_one_without_a_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsspec.register_implementation("deaf", Deaf, clobber=True)
    resource = load_text(SMALL)
    store = CheckpointStore("deaf://stream")
    Ledger("deaf://stream", resource, expand(resource))
    store.complete(Manifest.of_round(5, {"p": store.write_state(5, "p", "h", TABLES)}, {}))
    monkeypatch.setattr(Deaf, "broken", frozenset(["info"]))
    with pytest.raises(StoreError, match=r"cannot look for stream\.json .*ConnectionResetError"):
        take_over(store, ())
    monkeypatch.setattr(Deaf, "broken", frozenset())
    assert take_over(store, ()) is None


def test_a_mirror_that_is_not_heard_is_not_one_without_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint yet, so nothing but the mirror's ledger says that this is no new stream."""
    fsspec.register_implementation("deaf", Deaf, clobber=True)
    resource = load_text(SMALL)
    said = Ledger("deaf://mirror", resource, expand(resource))
    said.reach(3)
    here = CheckpointStore(str(tmp_path), ["deaf://mirror"])
    for broken in ("info", "cat_file"):
        monkeypatch.setattr(Deaf, "broken", frozenset([broken]))
        with pytest.raises(StoreError, match="ConnectionResetError"):
            take_over(here, ("deaf://mirror",))
    monkeypatch.setattr(Deaf, "broken", frozenset())
    assert take_over(here, ("deaf://mirror",)) == "deaf://mirror"
    again = Ledger(str(tmp_path), resource, expand(resource))
    assert (again.stream, again.ranges) == (said.stream, said.ranges)


class WithNumber(OSError):
    """As smbprotocol's: the number says what it is, and Python makes no FileNotFoundError of it."""


def caused(error: OSError, cause: BaseException) -> OSError:
    error.__cause__ = cause
    return error


class Reply(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (FileNotFoundError("a"), True),
        (WithNumber(errno.ENOENT, "not there"), True),
        (WithNumber(errno.EIO, "no answer"), False),
        (PermissionError("a"), False),
        (TimeoutError(), False),
        (caused(FileNotFoundError("a"), StopIteration()), True),
        (caused(FileNotFoundError("a"), Reply(404)), True),
        (caused(FileNotFoundError("a"), Reply(503)), False),
        (caused(FileNotFoundError("a"), ConnectionRefusedError()), False),
        (caused(FileNotFoundError("a"), ftplib.error_perm("550 No such file.")), True),
        (caused(FileNotFoundError("a"), ftplib.error_perm("530 Log in first.")), False),
        (caused(FileNotFoundError("a"), ftplib.error_temp("421 Too many users.")), False),
        (caused(FileNotFoundError("a"), EOFError()), False),
    ],
    ids=repr,
)
def test_only_what_speaks_of_the_file_says_that_it_is_missing(error: OSError, missing: bool) -> None:
    assert (trouble_behind(error, None) is None) is missing


def test_what_was_wrong_before_the_question_does_not_count(tmp_path: Path) -> None:
    """A mirror is asked because the location was not heard: Python chains that error to the mirror's answer."""
    fsspec.register_implementation("deaf", Deaf, clobber=True)
    for there in (Files(str(tmp_path)), Files("deaf://other")):
        try:
            raise ConnectionResetError("the location's")
        except ConnectionResetError:
            assert (there.read("a"), there.exists("a"), there.names("a")) == (None, False, [])


def test_a_location_on_a_file_server_serves_driver_after_driver(place: tuple[str, Any]) -> None:
    location, _ = place
    resource = load_text(SMALL)
    for epoch, position in ((1, 5), (2, 10), (3, 15)):
        store = CheckpointStore(location)
        fence = claim_epoch(location, lambda least: least)
        assert (fence.epoch, store.begin(fence)) == (epoch, position - 5)
        ledger = Ledger(location, resource, expand(resource), fence)
        assert ledger.reach(position) == position
        store.complete(Manifest.of_round(position, {"p": store.write_state(position, "p", "h", TABLES)}, {}))
        assert store.prune(1) == position
    assert store.positions() == [15] and store.verify(15).position == 15
