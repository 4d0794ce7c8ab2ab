"""Virtual time, and processes whose threads run one at a time, in an order that a seed decides.

Each thread of a simulated process is a thread of the interpreter that runs alone: it keeps the world until it waits
(for time, an event, a lock, an answer), and then hands it back to the loop, which lets whoever is due next go on.  So
the real code runs as it is, with its calls that wait, and still everything happens in one order that can be repeated.

Invariants: at most one of all threads runs at any moment.  Virtual time only passes when nobody can run.  A process
that was killed never runs again, not even its `finally` blocks, until the world is closed; one that was stopped goes
on where it was.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reprise.spark_jobs.platform import Platform

EPOCH = 1_700_000_000.0
"""Unix seconds at virtual time 0."""
HANDOVER_S = 60.0
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
    cpu: itertools.count[int] = field(default_factory=itertools.count)


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
        self._mine = Baton()
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Let it go on until it waits or ends; called by the loop alone."""
        self.world.current = self
        if self._thread is None:
            self._thread = threading.Thread(target=self._body, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._mine.give()
        if not self.world.handed_back.take(HANDOVER_S):
            raise WorldError(f"{self.process.name}/{self.name} waits outside of the world")
        self.world.current = None

    def _body(self) -> None:
        try:
            self.run()
        except Ended:
            pass
        except BaseException as error:
            if not isinstance(error, SystemExit):
                self.world.problems.append((self.process.name, error))
                self.world.note(f"{self.process.name}/{self.name} raised {type(error).__name__}: {error}")
        self.done = True
        if not self.world.closed:
            self.joined.set()
            self.world.handed_back.give()

    def hand_back(self) -> None:
        """Wait until the loop lets this thread go on."""
        self.world.handed_back.give()
        self._mine.take()
        if self.world.closed:
            raise Ended

    def join(self, timeout: float | None = None) -> None:
        self.joined.wait(timeout)


class Signal(threading.Event):
    """An event of the simulated world: waiting for it takes virtual time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world, self._waiting = world, list[tuple[Task, int]]()

    def set(self) -> None:
        super().set()
        waiting, self._waiting = self._waiting, []
        for task, turn in waiting:
            self._world.wake(task, turn)

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            task = self._world.running()
            self._waiting.append((task, task.turn + 1))
            self._world.wait(timeout)
        return self.is_set()


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


class World:
    """The loop.  `dice`: the one source of chance for everything that the world decides."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now = 0.0
        self.current: Task | None = None
        self.handed_back = Baton()
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
        self._tasks: list[Task] = []

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
        self._tasks.append(task)
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
            wall=lambda: EPOCH + self.now,
            cpu=lambda: next(process.cpu) / 1000,
            sleep=self.sleep,
            begin=lambda run, name: self.begin(process, run, name),
            after=lambda seconds, call: self._call_after(process, seconds, call),
            event=lambda: Signal(self),
            lock=lambda: Lock(self),
            queue=lambda: Queue(self),
            signals=lambda: Queue(self),  # type: ignore[arg-type,return-value]
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
        task.resume()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def call(self, after: float, what: Callable[[], None]) -> None:
        """Have the world itself do something so many seconds from now; it must not wait."""
        self._at(self.now + after, what)

    def _at(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), what))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let happen what happens until a time, or until it is done; whether it is."""
        while self._due and self._due[0][0] <= until:
            if done():
                return True
            time, _, what = heapq.heappop(self._due)
            self.now = max(self.now, time)
            self.events += 1
            what()
            for watch in self.watchers:
                watch()
        self.now = max(self.now, until)
        return done()

    def close(self) -> None:
        """End every thread that still waits."""
        self.closed = True
        for task in self._tasks:
            if not task.done and task._thread is not None:
                task._mine.give()
                task._thread.join(HANDOVER_S)
