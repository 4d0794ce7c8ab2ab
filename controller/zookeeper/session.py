"""A session with ZooKeeper, as every process of this project has it: ZooKeeper's verbs, own values, own errors.

Problem: what a client library raises and returns spreads to whoever asks, and with it the question which of its exceptions
mean that nothing was done.  Here there are two answers: `RefusedError`, ZooKeeper has said no and nothing was done; and
`SessionError`, there is no answer, so that nobody knows.  Nothing else is raised by a request.  An error that is not known
to come before anything is done counts as no answer: who takes silence for a no would write twice, or take for gone what is
there.

Requests of one session are answered in order.  `..._async` ask and give an `Answer`, so that many can be asked for before
the first is waited for; the others wait themselves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import ACL

from reprise.controller.zookeeper.errors import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    RolledBackError,
    SessionError,
)

log = logging.getLogger("reprise.zookeeper_session")
ANSWER_S = 10.0
"""Longest wait for one answer of the server; after it the outcome is unknown."""
PATIENCE_S, PAUSE_S = 60.0, 0.2
"""For how long `patiently` asks again, and the pause before it does: as long as a process that starts waits for a server."""
T = TypeVar("T")
Watch = Callable[[object], None]
"""Called once, by a thread of the client, when what was asked for has changed; what it is given says nothing."""
_REFUSED: tuple[tuple[type[KazooException], type[RefusedError]], ...] = (
    (exceptions.NoNodeError, NoNodeError),
    (exceptions.NodeExistsError, NodeExistsError),
    (exceptions.BadVersionError, BadVersionError),
    (exceptions.NoAuthError, NoAuthError),
    (exceptions.RolledBackError, RolledBackError),
    (exceptions.RuntimeInconsistency, RolledBackError),
    (exceptions.NotEmptyError, RefusedError),
    (exceptions.NoChildrenForEphemeralsError, RefusedError),
    (exceptions.InvalidACLError, RefusedError),
    (exceptions.BadArgumentsError, RefusedError),
    (exceptions.UnimplementedError, RefusedError),
    (exceptions.NotReadOnlyCallError, RefusedError),
    (exceptions.EphemeralOnLocalSessionError, RefusedError),
    (exceptions.SessionClosedRequireSaslError, RefusedError),
    (exceptions.QuotaExceededError, RefusedError),
    (exceptions.ThrottledOpError, RefusedError),
)
"""What a server says before it does anything.  Whatever is not here may have come when something was done already."""


class SessionState(StrEnum):
    """The states of a session."""

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    """No server answers; whether the session still lives is not known."""
    LOST = "LOST"
    """It has expired, or never begun: its ephemeral znodes are gone."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper says of a znode."""

    version: int
    """Of its data: 0 when it is made, and one more with each write."""
    mzxid: int = 0
    """Number of the transaction that wrote it last."""
    owner: int = 0
    """Id of the session that it ends with; 0: it stays."""
    length: int = 0
    """Bytes of its data."""
    cversion: int = 0
    """Counts what comes and goes below it."""
    created: float = 0.0
    """Unix seconds."""


class Answer(Generic[T]):
    """The answer to a request that was sent."""

    __slots__ = ("_convert", "_result")

    def __init__(self, result: IAsyncResult[Any], convert: Callable[[Any], T]) -> None:
        self._result, self._convert = result, convert

    def get(self, timeout: float = ANSWER_S) -> T:
        """The value; waits for it so many seconds.  Raises RefusedError or SessionError."""
        try:
            return self._convert(self._result.get(timeout=timeout))
        except (KazooException, KazooTimeoutError) as error:
            raise _own(error) from error

    def when_there(self, call: Callable[[Answer[T]], None]) -> None:
        """Have it called with this answer, by a thread of the client, when there is a value or an error."""
        self._result.rawlink(lambda _: call(self))


class Transaction:
    """Operations that are all carried out or none."""

    def __init__(self, request: TransactionRequest) -> None:
        self._request = request
        self.writes: list[tuple[str, bytes]] = []
        """Path and data of each operation so far."""

    def create(self, path: str, data: bytes = b"", ephemeral: bool = False) -> None:
        self._request.create(path, data, ephemeral=ephemeral)
        self.writes.append((path, data))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self._request.set_data(path, data, version)
        self.writes.append((path, data))

    def delete(self, path: str, version: int = -1) -> None:
        self._request.delete(path, version)
        self.writes.append((path, b""))

    def check(self, path: str, version: int) -> None:
        self._request.check(path, version)
        self.writes.append((path, b""))

    def commit(self, timeout: float = ANSWER_S) -> list[RefusedError | None]:
        """Why it was refused, an entry for each operation: of those that are not to blame a RolledBackError; all None when
        everything was done.  SessionError: that is not known."""
        with _own_errors():
            results = self._request.commit_async().get(timeout=timeout)
        found: list[RefusedError | None] = []
        for result in results:
            refused = _own(result) if isinstance(result, Exception) else None
            if isinstance(refused, SessionError):
                raise refused
            found.append(refused)
        return found


class ZooKeeperSession:
    """Made by `client.make_client`."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    def start(self, timeout: float = 15.0) -> None:
        """SessionError when no server answers within so many seconds."""
        with _own_errors():
            self._client.start(timeout=timeout)

    def start_async(self) -> None:
        self._client.start_async()

    def close(self) -> None:
        """End the session, if it can be told to a server, and give back what it holds.  Safe to call twice."""
        self._client.stop()
        self._client.close()

    @property
    def state(self) -> SessionState:
        return SessionState(self._client.state)

    @property
    def connected(self) -> bool:
        """Whether requests are answered now."""
        return bool(self._client.connected)

    @property
    def id(self) -> int | None:
        """The id of the session; None before the first connection."""
        known = self._client.client_id
        return None if known is None else int(known[0])

    def add_listener(self, call: Callable[[str], object]) -> None:
        """Have it called with each new `State`, by a thread of the client."""
        self._client.add_listener(call)

    def remove_listener(self, call: Callable[[str], object]) -> None:
        self._client.remove_listener(call)

    # -- reading -------------------------------------------------------------------------------------------------

    def get_async(self, path: str, watch: Watch | None = None) -> Answer[tuple[bytes, Stat]]:
        return Answer(self._client.get_async(path, watch), _data_and_stat)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self.get_async(path, watch).get()

    def exists_async(self, path: str, watch: Watch | None = None) -> Answer[Stat | None]:
        return Answer(self._client.exists_async(path, watch), _maybe_stat)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self.exists_async(path, watch).get()

    def get_children_async(self, path: str, watch: Watch | None = None) -> Answer[list[str]]:
        return Answer(self._client.get_children_async(path, watch), _names)

    def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self.get_children_async(path, watch).get()

    def get_folder_async(self, path: str, watch: Watch | None = None) -> Answer[tuple[list[str], Stat]]:
        """Its children, and what ZooKeeper says of itself."""
        return Answer(self._client.get_children_async(path, watch, include_data=True), _names_and_stat)

    def get_acls_async(self, path: str) -> Answer[list[ACL]]:
        """Who may do what; to be handed on as it is."""
        return Answer(self._client.get_acls_async(path), lambda found: list(found[0]))

    def watch_children(self, path: str, call: Callable[[list[str]], None]) -> None:
        """Have it called with the names now and after each change, for as long as the session is used.  Where there is no
        answer it may have begun all the same, and begins to be called later."""
        _begin(lambda: self._client.ChildrenWatch(path, call))

    def watch_data(self, path: str, call: Callable[[Stat | None], None]) -> None:
        """Have it called now and after each change with what ZooKeeper says of the znode; None: there is none.  Where there
        is no answer it may have begun all the same, and begins to be called later."""

        def seen(_data: bytes | None, stat: ZnodeStat | None, _event: WatchedEvent | None) -> None:
            call(_maybe_stat(stat))

        _begin(lambda: self._client.DataWatch(path, seen))

    # -- writing -------------------------------------------------------------------------------------------------

    def create_async(
        self, path: str, data: bytes = b"", ephemeral: bool = False, makepath: bool = False, acl: list[ACL] | None = None
    ) -> Answer[str]:  # fmt: skip
        """`makepath`: with the folders above it.  `acl` None: as the path says (`client.Client`)."""
        return Answer(self._client.create_async(path, data, acl, ephemeral=ephemeral, makepath=makepath), str)

    def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, makepath: bool = False, acl: list[ACL] | None = None
    ) -> None:  # fmt: skip
        self.create_async(path, data, ephemeral, makepath, acl).get()

    def create_below(self, root: str, name: str, data: bytes) -> None:
        """Create a record with the rights of those it stands among, as who reads it may be another user than who writes it.
        NodeExistsError: it is there."""
        self.create(f"{root}/{name}", data, makepath=True, acl=self.get_acls_async(root).get())

    def set_async(self, path: str, data: bytes, version: int = -1) -> Answer[Stat]:
        """`version`: the one that is replaced, -1 for any."""
        return Answer(self._client.set_async(path, data, version), _stat)

    def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        return self.set_async(path, data, version).get()

    def delete_async(self, path: str, version: int = -1) -> Answer[bool]:
        return Answer(self._client.delete_async(path, version), bool)

    def delete(self, path: str, recursive: bool = False) -> None:
        """`recursive`: with everything below it, one after the other, also where somebody else removes some of it.  Each
        request waits for its own answer, so it is long where much is there, and ends soon where nobody answers."""
        if not recursive:
            self.delete_async(path).get()
            return
        with suppress(NoNodeError):
            for name in self.get_children(path):
                self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
            self.delete_async(path).get()

    def ensure_path(self, path: str) -> None:
        """Make the folder and those above it where they are not there."""
        Answer(self._client.ensure_path_async(path), bool).get()

    def set_acls_async(self, path: str, acls: list[ACL]) -> Answer[Stat]:
        return Answer(self._client.set_acls_async(path, acls), _stat)

    def set_acls(self, path: str, acls: list[ACL]) -> None:
        self.set_acls_async(path, acls).get()

    def transaction(self) -> Transaction:
        return Transaction(self._client.transaction())


def patiently(
    ask: Callable[[], T],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Ask again while there is no answer, and give the first: for what a process needs before it can begin, where a
    connection that is lost for a moment must not end it.  Only for what may be done twice.  Raises SessionError after
    `PATIENCE_S`."""
    until = clock() + PATIENCE_S
    while True:
        try:
            return ask()
        except SessionError as error:
            if clock() >= until:
                raise
            log.warning("event=asked-again error=%r", error)
        sleep(PAUSE_S)


def _begin(watch: Callable[[], object]) -> None:
    """Begin a watch of the client library, which reads first and does so until it is answered: in a thread of its own, so
    that nobody who asks waits for longer than for any other answer."""
    failed: list[Exception] = []
    done = threading.Event()

    def begin() -> None:
        try:
            watch()
        except Exception as error:
            failed.append(error)
        finally:
            done.set()

    threading.Thread(target=begin, name="zookeeper-watch", daemon=True).start()
    if not done.wait(ANSWER_S):
        raise SessionError(f"no answer within {ANSWER_S:g} s")
    with _own_errors():
        if failed:
            raise failed[0]


@contextmanager
def _own_errors() -> Iterator[None]:
    """What kazoo raises inside is raised as what it means."""
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise _own(error) from error


def _own(error: BaseException) -> RefusedError | SessionError:
    for theirs, ours in _REFUSED:
        if isinstance(error, theirs):
            return ours(str(error) or theirs.__name__)
    return SessionError(f"no answer: {error!r}")


def _stat(found: ZnodeStat) -> Stat:
    return Stat(
        int(found.version), int(found.mzxid), int(found.ephemeralOwner), int(found.dataLength), int(found.cversion),
        float(found.created),
    )  # fmt: skip


def _maybe_stat(found: ZnodeStat | None) -> Stat | None:
    return None if found is None else _stat(found)


def _data_and_stat(found: tuple[bytes, ZnodeStat]) -> tuple[bytes, Stat]:
    return found[0], _stat(found[1])


def _names(found: list[str]) -> list[str]:
    return found


def _names_and_stat(found: tuple[list[str], ZnodeStat]) -> tuple[list[str], Stat]:
    return found[0], _stat(found[1])
