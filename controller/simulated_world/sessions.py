"""Sessions with the modelled ZooKeeper: requests that travel, connections that break, and sessions that expire.

What is modelled, as kazoo and a server do it:
- A request is carried out when it has travelled to the server, and answered when the answer has travelled back;
  requests of one session, their answers and its watches stay in order.
- Where the connection breaks in between, the request fails with `ConnectionLoss`, whether it was carried out or not.
- A client that loses its connection notices after a while, and is `SUSPENDED` then; all of its watches are called and
  forgotten.
- A session that the server has not heard of for its timeout expires; its ephemeral znodes go.  A client that comes
  back finds its session alive, or hears that it is lost and has a new one at once.
- A server that was away gives each session its whole timeout anew.
- A client may be connected to a server that is behind the others: it reads what was true a while ago, hears of changes as
  late as its server does, and of its own writes at once; time does not go back for it.
- A process that is stopped says nothing, and does not notice what happens to its connection until it goes on.

`tests/unit/controller/simulated_world/test_zookeeper_truth.py` runs random scripts on this and on a real server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss, KazooException, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from reprise.controller.simulated_world.core import EPOCH, Process, Signal, World
from reprise.controller.simulated_world.memory_zookeeper import (
    MemoryClient,
    MemoryServer,
    Tree,
    Watch,
    Znode,
    only,
)
from reprise.controller.zookeeper.errors import ClientError, SessionError
from reprise.controller.zookeeper.paths import COORDINATOR
from reprise.controller.zookeeper.session import SessionState, ZooKeeperSession

LATENCY_S = (0.0005, 0.004)
"""Of a message between a client and the server."""


class Ensemble:
    """The modelled ZooKeeper with its clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = MemoryServer(lambda: EPOCH + world.now)
        self.away = False
        self.cut: dict[Process, None] = {}
        """Processes that no message of theirs leaves for the server, and none comes to."""
        self.clients: list[WorldClient] = []
        self.followers: list[Follower] = []
        self.tree.committed = self._committed

    def _committed(self, changed: list[tuple[str, str]]) -> None:
        for follower in self.followers:
            follower.hears(changed)

    def session(self, process: Process, timeout_s: float) -> WorldSession:
        """A session of a process; it begins with `start`."""
        found = WorldSession(self, process, timeout_s)
        self.clients.append(found.client)
        return found

    def leave(self) -> None:
        """The servers stop: nobody is answered, and no session expires."""
        self.away = True
        self.world.note("ZooKeeper is away")
        self.look()

    def come_back(self) -> None:
        """The servers are back, and give each session its timeout anew."""
        self.away = False
        self.world.note("ZooKeeper is back")
        for client in self.clients:
            client.renew()
        self.look()

    def isolate(self, process: Process) -> None:
        """Cut a process off from the servers."""
        self.cut[process] = None
        self.look()

    def heal(self, process: Process) -> None:
        self.cut.pop(process, None)
        self.look()

    def look(self) -> None:
        """Something has changed in who reaches whom."""
        for client in self.clients:
            client.look()


class Follower(Tree):
    """A server that carries out what the leader has, `lag_s` later."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self._world, self._leader, self.lag_s = ensemble.world, ensemble.tree, 0.0
        self.become(self._leader.copy())
        self._waiting: deque[tuple[dict[str, Znode], list[tuple[str, str]]]] = deque()
        ensemble.followers.append(self)

    def hears(self, changed: list[tuple[str, str]]) -> None:
        """The leader has carried out a transaction."""
        self._waiting.append((self._leader.copy(), changed))
        if self.lag_s:
            self._world.call(self.lag_s, self._one)
        else:
            self.catch_up()

    def catch_up(self) -> None:
        """Carry out everything now."""
        while self._waiting:
            self._one()

    def _one(self) -> None:
        if self._waiting:
            znodes, changed = self._waiting.popleft()
            self.become(znodes)
            for watch in self.fire(changed):
                watch(None)


class WorldAnswer:
    """The answer to a request that travels."""

    def __init__(self, client: WorldClient) -> None:
        self._client = client
        self._there = Signal(client.world)
        self._value: Any = None
        self._error: BaseException | None = None
        self._calls: list[Callable[[Any], None]] = []

    def give(self, value: Any = None, error: BaseException | None = None) -> None:
        """Once: value or error have arrived."""
        if not self._there.is_set():
            self._value, self._error = value, error
            self._there.set()
            for call in self._calls:
                self._client.in_process(partial(call, self), "answered")

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._there.wait(timeout):
            raise KazooTimeoutError("no answer")
        if self._error is not None:
            raise self._error
        return self._value

    def rawlink(self, call: Callable[[Any], None]) -> None:
        if self._there.is_set():
            self._client.in_process(partial(call, self), "answered")
        else:
            self._calls.append(call)


@dataclass(eq=False)
class _Asked:
    """A request on its way."""

    answer: WorldAnswer
    give: Callable[[], Any]
    session: int
    over: bool = False


@dataclass(eq=False)
class _WatchOnce:
    """A watch of one connection: called once, in its process."""

    client: WorldClient
    key: tuple[str, str, Callable[[Any], None]]
    spent: bool = field(default=False)

    def __call__(self, event: Any) -> None:
        if not self.spent:
            self.spent = True
            self.client.deliver(self._arrive)

    def _arrive(self) -> None:
        """What does not come to a client that is cut off, it is told when it notices that its connection is gone."""
        if self.client.reaches:
            self.client.outstanding.pop(self.key, None)
            self.client.in_process(partial(self.key[2], None), "watch")


class WorldClient(MemoryClient):
    """A client in a process of the world."""

    def __init__(self, ensemble: Ensemble, process: Process, timeout_s: float) -> None:
        super().__init__(ensemble.tree, 0)
        self.ensemble, self.process, self.world = ensemble, process, ensemble.world
        self.timeout_s = timeout_s
        self.state = KazooState.LOST
        self.client_id = None
        self.begun = self.valid = False
        """Whether somebody uses it; and whether the server knows its session."""
        self.in_contact = False
        """Whether the server hears of this session now."""
        self.expires: float | None = None
        """When the server ends it, where it does not hear of it."""
        self.outstanding: dict[tuple[str, str, Callable[[Any], None]], _WatchOnce] = {}
        self._pending: list[_Asked] = []
        self._sent_until = self._heard_until = 0.0
        self._broken = False
        """Whether messages of this connection were lost."""
        self._connection = 0
        """Counts connections; what belongs to an earlier one is void."""
        self._connected_once = Signal(self.world)
        self.before_commit: Callable[[], None] | None = None
        """Called once, when its process is about to send a transaction; whoever stops the process there finds it between
        what it has read and what it writes."""
        self.follower: Follower | None = None
        """The server that it is connected to, where that is not the leader."""
        process.on_death.append(self.look)

    # -- what the server and the network do ------------------------------------------------------------------------

    @property
    def reaches(self) -> bool:
        """Whether messages travel between its machine and the server."""
        return self.process.alive and not self.ensemble.away and self.process not in self.ensemble.cut

    def look(self) -> None:
        """Who reaches whom has changed, or the process was stopped, goes on, or is dead."""
        if not self.begun:
            return
        connected, connection = self.state == KazooState.CONNECTED, self._connection
        if self.in_contact and (self.process.stopped or not self.reaches):
            self.in_contact = False
            self._expire_after(self.timeout_s - self.world.between(0.0, self.timeout_s / 3))
        if not self.reaches and self.process.alive and connected:
            self._broken = True
            notices = self.world.between(0.01, self.timeout_s * 2 / 3)
            self.world.call(notices, lambda: self._notice(connection))
        if not self.reaches or self.process.stopped:
            return
        if not connected:
            self._reconnect_soon()
        elif self._broken:
            self.world.call(0.0, lambda: self._notice(connection))
        elif not self.in_contact and self.valid:
            self.in_contact, self.expires = True, None

    def renew(self) -> None:
        """The server begins to count anew."""
        if self.expires is not None:
            self._expire_after(self.timeout_s)

    def break_connection(self) -> None:
        """It breaks now, and is made again soon."""
        if self.state == KazooState.CONNECTED and self.process.alive:
            self._notice(self._connection, anyway=True)

    @property
    def reads(self) -> Tree:
        return self.server if self.follower is None else self.follower

    def leads(self, root: str) -> bool:
        """Whether the leader's znode is of this session."""
        znode = self.server.znodes.get(f"{root}/{COORDINATOR}")
        return znode is not None and self.client_id is not None and znode.owner == self.client_id[0]

    def fall_behind(self, lag_s: float) -> None:
        """Its connection breaks; the next one is to a server that is so far behind from now on."""
        self.break_connection()
        if self.follower is None:
            self.follower = Follower(self.ensemble)
        self.follower.lag_s = lag_s

    def be_up_to_date(self) -> None:
        """Its server has caught up."""
        if self.follower is not None:
            self.follower.lag_s = 0.0
            self.follower.catch_up()

    def _expire_after(self, seconds: float) -> None:
        at = self.expires = self.world.now + seconds
        self.world.call(seconds, lambda: self._expire(at))

    def _expire(self, at: float) -> None:
        if self.expires != at or self.ensemble.away:
            return
        self.expires = None
        self.world.note(f"the session of {self.process.name} has expired")
        self._end_session()
        connection = self._connection
        self.world.call(0.0, lambda: self._notice(connection))  # its connection is closed

    def _end_session(self) -> None:
        self.valid = self.in_contact = False
        for watch in self.outstanding.values():
            watch.spent = True
        assert self.client_id is not None
        self.server.end(self.client_id[0])

    def _notice(self, connection: int, anyway: bool = False) -> None:
        """The client sees that its connection is gone, if it runs and that is so."""
        if connection != self._connection or self.state != KazooState.CONNECTED or not self.process.alive:
            return
        if self.process.stopped:
            self.process_wakes(lambda: self._notice(connection, anyway))
            return
        if self.in_contact and not anyway:
            return
        if self.in_contact:
            self.in_contact = False
            self._expire_after(self.timeout_s)
        self._connection, self._broken = self._connection + 1, False
        pending, self._pending = self._pending, []
        for asked in pending:
            asked.over = True
            asked.answer.give(error=ConnectionLoss())
        watches, self.outstanding = list(self.outstanding.values()), {}
        self.state = KazooState.SUSPENDED
        self._tell(KazooState.SUSPENDED)
        for watch in watches:  # kazoo calls and forgets them
            watch.spent = True
            self.in_process(partial(watch.key[2], None), "watch")
        if self.reaches:
            self._reconnect_soon()

    def process_wakes(self, call: Callable[[], None]) -> None:
        """Have it called when the process goes on."""
        self.world.begin(self.process, call, "client")

    def _reconnect_soon(self) -> None:
        connection = self._connection
        self.world.call(self.world.between(0.02, 0.6), lambda: self._reconnect(connection))

    def _reconnect(self, connection: int) -> None:
        if connection != self._connection or self.state == KazooState.CONNECTED or not self.reaches:
            return
        if self.process.stopped:
            self.process_wakes(lambda: self._reconnect(connection))
            return
        self._connection += 1
        self.in_contact, self.expires = True, None
        if not self.valid:
            if self._connected_once.is_set():
                self._tell(KazooState.LOST)
            self.client_id, self.valid = self.server.session().client_id, True
        self.state = KazooState.CONNECTED
        self._tell(KazooState.CONNECTED)
        self._connected_once.set()

    def _tell(self, state: str) -> None:
        """Listeners are called in a thread of the process, in the order of the states."""
        listeners = list(self._listeners)

        def tell() -> None:
            for listener in listeners:
                listener(state)

        self.in_process(tell, f"hears {state}")

    def in_process(self, call: Callable[[], object], name: str) -> None:
        """Call it in a thread of the process."""
        if self.process.alive:
            self.world.begin(self.process, call, name)

    def deliver(self, call: Callable[[], None]) -> None:
        """After everything that the server has sent before."""
        connection = self._connection
        self._heard_until = max(self._heard_until, self.world.now + self.world.between(*LATENCY_S))
        self.world.call(
            self._heard_until - self.world.now, lambda: call() if connection == self._connection else None
        )

    # -- what the process asks -------------------------------------------------------------------------------------

    def start(self, timeout: float = 0.0) -> None:
        self.start_async()
        if not self._connected_once.wait(timeout):
            raise KazooTimeoutError("Connection time-out")

    def start_async(self) -> None:
        self.begun = True
        if self.reaches:
            self._reconnect_soon()

    def stop(self) -> None:
        if self.reaches and self.valid and self.in_contact:
            self._end_session()
            self.expires = None
        self.begun, self.state, self._connection = False, KazooState.LOST, self._connection + 1

    def _answer(self, verb: str, path: str, give: Callable[[], Any]) -> Any:
        if verb == "commit" and self.before_commit is not None:
            call, self.before_commit = self.before_commit, None
            call()
            self.world.sleep(0.0)
        answer = WorldAnswer(self)
        if self.state != KazooState.CONNECTED:
            lost = self.state == KazooState.LOST
            answer.give(error=SessionExpiredError() if lost else ConnectionLoss())
            return answer
        assert self.client_id is not None
        asked = _Asked(answer, give, self.client_id[0])
        self._pending.append(asked)
        self._sent_until = max(self._sent_until, self.world.now + self.world.between(*LATENCY_S))
        connection = self._connection
        self.world.call(self._sent_until - self.world.now, lambda: self._carry_out_at(asked, connection))
        return answer

    def _carry_out_at(self, asked: _Asked, connection: int) -> None:
        """The request has come to the server."""
        assert self.client_id is not None
        if not self.reaches or not self.valid or asked.session != self.client_id[0]:
            return
        if connection != self._connection and self.world.dice.random() < 0.5:
            return  # it was still on its way when the connection broke
        value, error, writes = None, None, self.server.written
        try:
            value = asked.give()
        except (KazooException, ClientError) as refused:
            error = refused
        if self.follower is not None and self.server.written != writes:
            self.follower.catch_up()  # whoever has written reads it
        self.deliver(lambda: self._arrive(asked, value, error))

    def _arrive(self, asked: _Asked, value: Any, error: BaseException | None) -> None:
        if self.reaches and not asked.over:
            asked.over = True
            self._pending.remove(asked)
            asked.answer.give(value, error)

    def create_async(
        self, path: str, value: bytes = b"", acl: Any = None, ephemeral: bool = False,
        sequence: bool = False, makepath: bool = False,
    ) -> Any:  # fmt: skip
        def create() -> Any:
            if makepath:
                self._ensure(path.rpartition("/")[0])
            return only(self._carry_out([("create", (path, value, ephemeral))]))

        return self._answer("create", path, create)

    def _watch(self, kind: str, path: str, watch: Watch) -> None:
        key = (kind, path, watch)
        if watch is not None and key not in self.outstanding:
            once = self.outstanding[kind, path, watch] = _WatchOnce(self, (kind, path, watch))
            super()._watch(kind, path, once)


class WorldSession(ZooKeeperSession):
    """A session as the project's processes have it."""

    def __init__(self, ensemble: Ensemble, process: Process, timeout_s: float) -> None:
        self.client = WorldClient(ensemble, process, timeout_s)
        super().__init__(cast(Any, self.client))

    @property
    def state(self) -> SessionState:
        return SessionState(self.client.state)

    def watch_children(self, path: str, call: Callable[[list[str]], None]) -> None:
        try:
            self.client.ChildrenWatch(path, call)
        except KazooException as error:
            raise SessionError(f"no answer: {error!r}") from error
