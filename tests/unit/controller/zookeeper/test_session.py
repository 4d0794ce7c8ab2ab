"""What a session raises: no means that nothing was done, and silence means that nobody knows."""

from __future__ import annotations

import inspect
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from reprise.controller.zookeeper import errors
from reprise.controller.zookeeper import session as module
from reprise.controller.zookeeper.errors import ClientError, CoordinationError, RefusedError, SessionError
from reprise.controller.zookeeper.session import ANSWER_S, Answer, Transaction, ZooKeeperSession

EVERY = [
    kind
    for kind in vars(exceptions).values()
    if inspect.isclass(kind) and issubclass(kind, KazooException) and kind is not exceptions.ConnectionDropped
]


class Result:
    """An answer of the client library."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.waited: float | None = -1.0

    def get(self, timeout: float | None = None) -> Any:
        self.waited = timeout
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class Request:
    """A transaction of the client library; `results`: what it answers."""

    def __init__(self, results: Any) -> None:
        self.results = results
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self.asked.append((name, *arguments, *named.values()))

    def commit_async(self) -> Result:
        return Result(self.results)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (exceptions.NoNodeError, errors.NoNodeError),
        (exceptions.NodeExistsError, errors.NodeExistsError),
        (exceptions.BadVersionError, errors.BadVersionError),
        (exceptions.NoAuthError, errors.NoAuthError),
        (exceptions.RolledBackError, errors.RolledBackError),
        (exceptions.RuntimeInconsistency, errors.RolledBackError),
        (exceptions.NotEmptyError, RefusedError),
        (exceptions.ConnectionLoss, SessionError),
        (exceptions.ConnectionClosedError, SessionError),
        (exceptions.SessionExpiredError, SessionError),
        (exceptions.OperationTimeoutError, SessionError),
        (KazooTimeoutError, SessionError),
    ],
)
def test_an_answer_raises_our_own_errors(theirs: type[Exception], ours: type[ClientError]) -> None:
    with pytest.raises(ours) as caught:
        Answer(Result(theirs()), str).get()
    assert type(caught.value) is ours
    assert isinstance(caught.value.__cause__, theirs), "what has happened is not hidden"


@pytest.mark.parametrize(
    "theirs",
    [
        exceptions.SystemZookeeperError,
        exceptions.DataInconsistency,
        exceptions.APIError,
        exceptions.MarshallingError,
        exceptions.RequestTimeoutError,
        exceptions.UnknownSessionError,
        exceptions.AuthFailedError,  # of what had been sent, too
        exceptions.ConnectionDropped,
        type("OneOfALaterVersion", (exceptions.ZookeeperError,), {}),
    ],
)
def test_an_error_that_does_not_say_that_nothing_was_done_is_no_refusal(theirs: type[KazooException]) -> None:
    with pytest.raises(SessionError, match=theirs.__name__):
        Answer(Result(theirs()), str).get()
    with pytest.raises(SessionError, match=theirs.__name__):
        Transaction(cast(Any, Request([True, theirs()]))).commit()


class Below:
    """A client of a server that has one znode below each other, and answers nothing from the removals on."""

    def __init__(self) -> None:
        self.results: list[Result] = []

    def get_children_async(self, path: str, watch: object = None) -> Result:
        self.results.append(Result(["a"] if path.count("/") < 3 else []))
        return self.results[-1]

    def get_children(self, path: str) -> list[str]:
        return cast(list[str], self.get_children_async(path).get())

    def delete_async(self, path: str, version: int = -1) -> Result:
        self.results.append(Result(KazooTimeoutError()))
        return self.results[-1]

    def delete(self, path: str, version: int = -1, recursive: bool = False) -> object:
        """As the library does: it waits for ever, each time."""
        if recursive:
            for name in self.get_children(path):
                self.delete(f"{path}/{name}", recursive=True)
        return self.delete_async(path, version).get()


@pytest.mark.parametrize("recursive", [False, True])
def test_a_removal_waits_for_each_answer_no_longer_than_is_said(recursive: bool) -> None:
    client = Below()
    with pytest.raises(SessionError):
        ZooKeeperSession(cast(Any, client)).delete("/t", recursive=recursive)
    assert [result.waited for result in client.results] == [ANSWER_S] * (4 if recursive else 1)


@pytest.mark.parametrize("theirs", EVERY)
def test_whatever_the_library_raises_is_a_refusal_or_silence(theirs: type[KazooException]) -> None:
    with pytest.raises(CoordinationError) as caught:
        Answer(Result(theirs()), str).get()
    assert isinstance(caught.value, RefusedError) is not isinstance(caught.value, SessionError)
    assert str(caught.value)


def test_an_answer_is_waited_for_no_longer_than_is_said() -> None:
    result = Result(7)
    assert Answer(result, str).get() == "7"
    assert result.waited == ANSWER_S
    Answer(result, str).get(0.5)
    assert result.waited == 0.5


def test_what_is_not_of_the_library_is_not_ours_to_name() -> None:
    with pytest.raises(ZeroDivisionError):
        Answer(Result(ZeroDivisionError()), str).get()


def test_a_transaction_says_which_operation_was_refused() -> None:
    request = Request(
        [exceptions.RolledBackError(), exceptions.BadVersionError(), exceptions.RuntimeInconsistency()]
    )
    transaction = Transaction(cast(Any, request))
    transaction.create("/a", b"1", ephemeral=True)
    transaction.set_data("/b", b"22", 3)
    transaction.delete("/c", 4)
    assert [type(refused) for refused in transaction.commit()] == [
        errors.RolledBackError,
        errors.BadVersionError,
        errors.RolledBackError,
    ]
    assert request.asked == [("create", "/a", b"1", True), ("set_data", "/b", b"22", 3), ("delete", "/c", 4)]
    assert transaction.writes == [("/a", b"1"), ("/b", b"22"), ("/c", b"")], "what its size is counted from"


def test_a_transaction_that_is_done_refuses_nothing() -> None:
    transaction = Transaction(cast(Any, Request([True, "/a"])))
    transaction.check("/v", 1)
    transaction.create("/a")
    assert transaction.commit() == [None, None]


@pytest.mark.parametrize(
    "results", [exceptions.ConnectionLoss(), [True, exceptions.ConnectionLoss()], KazooTimeoutError()]
)
def test_of_a_transaction_without_an_answer_nothing_is_known(results: Any) -> None:
    with pytest.raises(SessionError):
        Transaction(cast(Any, Request(results))).commit()


def test_who_has_never_been_connected_has_no_id() -> None:
    session = ZooKeeperSession(KazooClient("127.0.0.1:1"))
    assert session.id is None
    assert not session.connected
    assert str(session.state) == "LOST"


def test_a_server_that_is_not_there_is_silence() -> None:
    session = ZooKeeperSession(KazooClient("127.0.0.1:1", timeout=0.2))
    with pytest.raises(SessionError):
        session.start(timeout=0.1)
    session.close()


@pytest.mark.parametrize("watch", ["ChildrenWatch", "DataWatch"])
def test_a_watch_that_is_not_answered_is_silence(watch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library asks until it is answered; who is asked whether it is alive must not wait for that."""
    answered = threading.Event()
    session = ZooKeeperSession(cast(Any, SimpleNamespace(**{watch: lambda *_: answered.wait(30)})))
    begin = session.watch_children if watch == "ChildrenWatch" else session.watch_data
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    try:
        with pytest.raises(SessionError, match=r"no answer within 0.05 s"):
            begin("/a", lambda _: None)
    finally:
        answered.set()


@pytest.mark.parametrize("watch", ["ChildrenWatch", "DataWatch"])
def test_a_watch_that_is_refused_raises_our_own_errors(watch: str) -> None:
    """It asks before it returns, and who begins to watch goes on after our own errors only."""

    def refuse(*_: Any) -> None:
        raise exceptions.NoAuthError

    session = ZooKeeperSession(cast(Any, SimpleNamespace(**{watch: refuse})))
    begin = session.watch_children if watch == "ChildrenWatch" else session.watch_data
    with pytest.raises(errors.NoAuthError):
        begin("/a", lambda _: None)
