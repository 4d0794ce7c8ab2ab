"""Virtual time, and processes whose threads run one at a time, in an order that a seed decides.

Each thread of a simulated process is a thread of the interpreter that runs alone: it keeps the world until it waits
(for time, an event, a lock, an answer), and then hands it back to the loop, which lets whoever is due next go on.  So
the real code runs as it is, with its calls that wait, and still everything happens in one order that can be repeated.

Invariants: at most one of all threads runs at any moment.  Virtual time only passes when nobody can run.  A process
that was killed never runs again, not even its `finally` blocks, until the world is closed; one that was stopped goes
on where it was.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprise.spark_jobs.platform import Platform, write_new

EPOCH = 1_700_000_000.0
"""Unix seconds at virtual time 0."""
HANDOVER_S = 300.0
"""Real seconds after which a thread that does not hand the world back is taken for one that waits outside of it."""


class Ended(BaseException):
    """Raised in threads of a process that was killed, when the world is closed."""


class WorldError(Exception):
    """The world itself is used wrongly, or something in it waits in real time."""


class Baton:
    """Given by one thread and taken by another, in turns.

    A bare lock and no semaphore, which is a condition with a lock of its own: much of what a simulated second costs is this.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def give(self) -> None:
        """Let the one who waits go on; the next to give is whoever has taken it."""
        self._lock.release()

    def take(self, seconds: float = -1.0) -> bool:
        """Wait until it is given (-1: for ever), and say whether it was."""
        return self._lock.acquire(timeout=seconds)


@dataclass(eq=False)
class Process:
    """A simulated process: `alive` until killed, `stopped` between SIGSTOP and SIGCONT."""

    name: str
    alive: bool = True
    stopped: bool = False
    parked: list[Task] = field(default_factory=list)
    """Threads that would run if it were not stopped."""
    on_death: list[Callable[[], None]] = field(default_factory=list)
    disk_full: bool = False
    """Whether the disk of its machine has room for nothing more."""
    clock_off: float = 0.0
    """Seconds by which its wall clock is wrong."""
    cpu: itertools.count[int] = field(default_factory=itertools.count)


class _Thread:
    """A thread of the interpreter that runs one thread of a process after the other: to begin a new one for each, of which
    most answer one request and end, costs more than what they do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.mine = Baton()
        self.task: Task | None = None
        """What it runs; None while it waits for something to run."""
        self._thread = threading.Thread(target=self._run, name="simulated", daemon=True)
        self._thread.start()

    def hand_back(self) -> None:
        """Wait until this thread is due.  Ended: the world is closed."""
        due = self._world.next_due()
        if due is not self.mine:
            due.give()
            self.mine.take()
            if self._world.closed:
                raise Ended

    def end(self) -> None:
        """The world is closed."""
        self.mine.give()
        self._thread.join(HANDOVER_S)

    def _run(self) -> None:
        self.mine.take()
        while self.task is not None:
            self.task.body()
            if self._world.closed:
                return
            self.task = None
            self._world.idle.append(self)
            due = self._world.next_due()
            if due is not self.mine:
                due.give()
                self.mine.take()


class Task:
    """A thread of a process."""

    def __init__(self, world: World, process: Process, run: Callable[[], object], name: str) -> None:
        self.world, self.process, self.name = world, process, name
        self.run, self.done = run, False
        self.turn = 0
        """Counts the times that it has waited: a call to wake it up that is older is void."""
        self.woken = False
        """Whether it was woken by what it waits for, and not by time."""
        self.joined = Signal(world)
        self._thread: _Thread | None = None

    @property
    def baton(self) -> Baton:
        """What lets it go on; it has none when it has ended."""
        if self._thread is None:
            self._thread = self.world.thread()
            self._thread.task = self
        return self._thread.mine

    def body(self) -> None:
        """What its thread does from begin to end."""
        try:
            self.run()
        except Ended:
            pass
        except BaseException as error:
            if not isinstance(error, SystemExit):
                self.world.problems.append((self.process.name, error))
                self.world.note(f"{self.process.name}/{self.name} raised {type(error).__name__}: {error}")
        self.done, self._thread = True, None
        if not self.world.closed:
            self.joined.set()

    def hand_back(self) -> None:
        """Wait until it is due again."""
        assert self._thread is not None
        self._thread.hand_back()

    def join(self, timeout: float | None = None) -> None:
        self.joined.wait(timeout)


class Signal(threading.Event):
    """An event of the simulated world: waiting for it takes virtual time.  It has no lock, as one thread runs at a time."""

    def __init__(self, world: World) -> None:
        self._world, self._waiting = world, list[tuple[Task, int]]()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for task, turn in waiting:
                self._world.wake(task, turn)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            task = self._world.running()
            self._waiting.append((task, task.turn + 1))
            self._world.wait(timeout)
        return self._is_set


class Lock:
    """A lock that the same thread may take again; it may be held while its holder waits for something else."""

    def __init__(self, world: World) -> None:
        self._world, self._depth = world, 0
        self._holder: Task | None = None
        self._waiting: deque[tuple[Task, int]] = deque()

    def __enter__(self) -> Lock:
        task = self._world.current
        if task is None:
            return self
        while self._holder is not None and self._holder is not task:
            self._waiting.append((task, task.turn + 1))
            self._world.wait(None)
        self._holder, self._depth = task, self._depth + 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._world.current is None:
            return
        self._depth -= 1
        if not self._depth:
            self._holder = None
            while self._waiting:
                task, turn = self._waiting.popleft()
                if task.turn == turn and task.process.alive:
                    self._world.wake(task, turn)
                    return


class Condition(Lock):
    """A lock whose holder may wait until another one has changed what it guards."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._changed = Signal(world)

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
        ends = None if timeout is None else self._world.now + timeout
        while not (found := predicate()) and (ends is None or self._world.now < ends):
            changed = self._changed
            self.__exit__()
            changed.wait(None if ends is None else ends - self._world.now)
            self.__enter__()
        return bool(found)

    def notify_all(self) -> None:
        self._changed.set()
        self._changed = Signal(self._world)


class Queue(queue.Queue[Any]):
    """A queue whose readers wait in virtual time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._there = Signal(world)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block=False)
        self._there.set()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        while True:
            try:
                return super().get(block=False)
            except queue.Empty:
                if not block:
                    raise
                self._there.clear()
                if not self._there.wait(timeout):
                    raise


def _write(process: Process, path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    if process.disk_full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    write_new(path, pieces)


class World:
    """The loop.  `dice`: the one source of chance for everything that the world decides."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now = 0.0
        self.current: Task | None = None
        self.closed = False
        self.events = 0
        self.told: list[str] = []
        """What has happened, a line each with its virtual time."""
        self.watchers: list[Callable[[], None]] = []
        """Called after each event; what they raise ends the run."""
        self.problems: list[tuple[str, BaseException]] = []
        """What threads have raised and nobody has caught, with the names of their processes."""
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._caller = Baton()
        """Of whoever has called `run`."""
        self._until = 0.0
        self._done: Callable[[], bool] = lambda: False
        self._is_done = False
        """Until when the run goes on, what may end it before, and whether that has."""
        self._goes_on: Task | None = None
        """Which thread goes on with the event that happens now."""
        self._raised: BaseException | None = None
        """What ends the run."""
        self._threads: list[_Thread] = []
        self.idle: list[_Thread] = []
        """Threads that have nothing to run."""

    def note(self, text: str) -> None:
        """Write a line of what happens."""
        self.told.append(f"{self.now:9.3f}  {text}")

    def between(self, least: float, most: float) -> float:
        """A number of seconds, drawn."""
        return self.dice.uniform(least, most)

    # -- processes ---------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        return Process(name)

    def begin(self, process: Process, run: Callable[[], object], name: str, after: float = 0.0) -> Task:
        """Run a thread of a process."""
        task = Task(self, process, run, name)
        self._at(self.now + after, lambda: self._go_on(task, 0))
        return task

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of it runs any more."""
        if process.alive:
            process.alive, process.parked = False, []
            self.note(f"{process.name} is dead")
            for call in process.on_death:
                call()

    def stop(self, process: Process) -> None:
        """SIGSTOP."""
        process.stopped = True

    def go_on(self, process: Process) -> None:
        """SIGCONT: its threads that were due meanwhile run in the order in which they were."""
        process.stopped = False
        parked, process.parked = process.parked, []
        for task in parked:
            turn = task.turn
            self._at(self.now, lambda task=task, turn=turn: self._go_on(task, turn))  # type: ignore[misc]

    def platform(self, process: Process) -> Platform:
        """What the process has of its machine."""
        return Platform(
            elapsed=lambda: self.now,
            wall=lambda: EPOCH + self.now + process.clock_off,
            cpu=lambda: next(process.cpu) / 1000,
            sleep=self.sleep,
            begin=lambda run, name: self.begin(process, run, name),
            after=lambda seconds, call: self._call_after(process, seconds, call),
            event=lambda: Signal(self),
            lock=lambda: Lock(self),
            condition=lambda: Condition(self),
            queue=lambda: Queue(self),
            signals=lambda: Queue(self),  # type: ignore[arg-type,return-value]
            write=lambda path, pieces: _write(process, path, pieces),
        )

    def _call_after(self, process: Process, seconds: float, call: Callable[[], object]) -> None:
        self.begin(process, call, "timer", seconds)

    # -- waiting, called by threads of processes -----------------------------------------------------------------------

    def running(self) -> Task:
        """The thread that runs now."""
        if self.closed:
            raise Ended
        if self.current is None:
            raise WorldError("only a thread of a process can wait")
        return self.current

    def sleep(self, seconds: float) -> None:
        self.wait(seconds)

    def wait(self, seconds: float | None) -> bool:
        """Hand the world back until somebody wakes this thread, or the time is over (None: never); whether it was woken."""
        task = self.running()
        task.turn, task.woken = task.turn + 1, False
        turn = task.turn
        if seconds is not None:
            self._at(self.now + max(0.0, seconds), lambda: self._go_on(task, turn))
        task.hand_back()
        return task.woken

    def wake(self, task: Task, turn: int) -> None:
        """Let a thread go on that waits for the `turn`-th time."""
        if task.turn == turn and not task.done:
            self._at(self.now, lambda: self._woken(task, turn))

    def _woken(self, task: Task, turn: int) -> None:
        if task.turn == turn:
            task.woken = True
            self._go_on(task, turn)

    def _go_on(self, task: Task, turn: int) -> None:
        process = task.process
        if task.turn != turn or task.done or not process.alive:
            return
        if process.stopped:
            if task not in process.parked:
                process.parked.append(task)
            return
        self._goes_on = task

    # -- the loop ------------------------------------------------------------------------------------------------------

    def call(self, after: float, what: Callable[[], None]) -> None:
        """Have the world itself do something so many seconds from now; it must not wait."""
        self._at(self.now + after, what)

    def _at(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), what))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let happen what happens until a time, or until it is done; whether it is."""
        self._until, self._done = until, done
        self._raised, self._is_done = None, False
        due = self._happen()
        if due is not self._caller:
            due.give()
            self._await_the_end()
        if self._raised is not None:
            raise self._raised
        if self._is_done:
            return True
        self.now = max(self.now, until)
        return done()

    def _await_the_end(self) -> None:
        seen = self.events
        while not self._caller.take(HANDOVER_S):
            if self.events == seen and self.current is not None:
                where = f"{self.current.process.name}/{self.current.name}"
                raise WorldError(f"{where} waits outside of the world")
            seen = self.events

    def next_due(self) -> Baton:
        """A thread waits, or has ended: what it did is one event.  The loop goes on in it until another thread, or it, is
        due; its baton.  So the world changes hands once where it would twice if the loop had a thread of its own."""
        self.current = None
        try:
            self._look()
        except BaseException as error:
            self._raised = error
            return self._caller
        return self._happen()

    def _look(self) -> None:
        for watch in self.watchers:
            watch()

    def _happen(self) -> Baton:
        """Let events happen until a thread has to go on, or nothing is due any more: whose baton that is."""
        try:
            while self._due and self._due[0][0] <= self._until:
                if self._done():
                    self._is_done = True
                    return self._caller
                time, _, what = heapq.heappop(self._due)
                self.now = max(self.now, time)
                self.events += 1
                what()
                if self._goes_on is not None:
                    self.current, self._goes_on = self._goes_on, None
                    return self.current.baton
                self._look()
        except BaseException as error:
            self._raised = error
        return self._caller

    def close(self) -> None:
        """End every thread that still waits."""
        self.closed = True
        for thread in self._threads:
            thread.end()

    def thread(self) -> _Thread:
        """One that has nothing to run."""
        if self.idle:
            return self.idle.pop()
        self._threads.append(thread := _Thread(self))
        return thread
