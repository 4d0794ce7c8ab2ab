"""Modelled Spark: one application a driver, an executor with its partition host on each node, and jobs that take time.

What is modelled: executors register some time after their start, and the next one is started where one has died
alone; all of an application's executors end with its driver; the driver hears of a dead executor after a while, and
of one that is stopped never; a job runs its stages one after the other, waits for the slowest, and fails as a whole; a
task fetches its messages from the executors that hold them, and where it cannot, it waits or its job fails.
A task that was on its way when its job failed may reach its host later all the same.  The host, and everything in it,
is the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reprise.controller.driver.channel import Channel
from reprise.controller.driver.node_starts import NodeStarts
from reprise.controller.simulated_world.core import Process, Signal, World
from reprise.controller.simulated_world.exchange import End, Exchange, Exchanges, Link, Severed
from reprise.controller.simulated_world.twins import Twins, WatchedHost
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.node.command import Order, Report
from reprise.spark_jobs.node.host import Bundles, Host
from reprise.spark_jobs.node.pump import Heard, Pump, Turn, start
from reprise.spark_jobs.platform import Platform

if TYPE_CHECKING:
    from reprise.controller.simulated_world.nodes import Machine

SLOW_TASKS, SLOW_TASK_S = 0.003, (0.5, 6.0)
"""Share of tasks that begin late, as one behind a collection of garbage, and by how much."""
TASK_S = (0.01, 0.06)
"""Of a task beside what its host does."""
REGISTERS_S = (0.2, 1.5)
HEARS_S = (0.05, 1.0)
"""Until the driver's Spark knows that an executor is dead."""
REFUSED_S = (0.05, 4.0)
"""Until a task that cannot fetch from another executor is told so: at once, or when its connection has timed out.  Nobody
tries again (`spark.shuffle.io.maxRetries` of `reprise.spark_jobs.engine.chain`)."""
ENDS_S = (0.0, 0.5)
"""Until an exchange that nobody needs is over."""


@dataclass(eq=False)
class Executor:
    """An executor's process with its host."""

    process: Process
    machine: Machine
    host: Host
    turn: Turn
    pump: Pump | None = None
    """It has one where messages may travel by an exchange."""
    known_dead: bool = False


@dataclass(eq=False)
class Cut:
    """A link on which orders, answers, or both wait until it is whole again: a connection sends again what was not
    confirmed, and nobody is told meanwhile."""

    whole: Signal
    orders: bool
    answers: bool


@dataclass(eq=False)
class _Task:
    """A task of a stage; `error` or `answer` when it is over."""

    over: Signal
    answer: tuple[Bundles, Report | None] | None = None
    error: str = ""


class Application:
    """The executors of one driver, by the address of their node."""

    def __init__(
        self,
        world: World,
        driver: Process,
        folder: Path,
        twins: Twins,
        severed: Mapping[Link, Severed],
        numbers: Iterator[int] | None,
        grace_s: float = 0.0,
    ) -> None:
        """`twins`: is told what hosts send and step.  `severed`: pairs of nodes, by address, between which nothing travels.
        `numbers`: of its exchanges; None: messages travel with the stages of jobs.  `grace_s`: how long hosts outlive
        their driver."""
        self.world, self.driver, self._folder, self.grace_s = world, driver, folder, grace_s
        self.exchanges = None if numbers is None else Exchanges(world, severed, numbers)
        self._twins = twins
        self.executors: dict[str, Executor] = {}
        self.cut: dict[str, Cut] = {}
        """Links between the driver and hosts on which nothing travels, by the node's address."""
        self.severed = severed
        self.changed: Callable[[], None] = lambda: None
        """Called when an exchange stands, and when it is over."""
        self._made = 0
        driver.on_death.append(self.end)

    def offer(self, machine: Machine) -> None:
        """An executor is started there, and will register."""
        self.world.call(self.world.between(*REGISTERS_S), lambda: self._start(machine, machine.round))

    def _start(self, machine: Machine, number: int) -> None:
        if not (self.driver.alive and machine.has_executors(number)) or machine.name in self.executors:
            return
        executor = self._taken(machine) or self._begun(machine)
        self.executors[machine.name] = executor
        executor.process.on_death.append(lambda: self._died(executor))

    def _begun(self, machine: Machine) -> Executor:
        self._made += 1
        name = f"host-{self.driver.name}-{machine.name}-{self._made}"
        process = self.world.process(name)
        host = WatchedHost(name, self._folder / name, self.world.platform(process), self._twins)
        machine.executors.append(process)
        process.disk_full, process.clock_off = machine.disk_full, machine.agent.clock_off
        if machine.stopped:
            self.world.stop(process)
        executor = Executor(process, machine, host, Turn(self.world.platform(process)))
        if self.exchanges is not None:
            links, platform = partial(self._end_of, executor), self.world.platform(process)
            executor.pump = start(host, links, executor.turn, platform)
        return executor

    def _taken(self, machine: Machine) -> Executor | None:
        """The host that an executor of an earlier driver has left there, and that has waited no longer than the grace."""
        left, machine.left = machine.left, None
        if left is None or not left.process.alive:
            return None
        self.world.note(f"{self.driver.name} has {left.host.name}")
        if left.pump is not None:
            left.pump.meet(partial(self._end_of, left))
        return Executor(left.process, machine, left.host, left.turn, left.pump)

    def takes_orders(self, executor: Executor, order: bytes) -> None:
        """A host takes in the orders of a job."""
        command = executor.host.orders.read(order)
        executor.host.begin(command)
        if executor.pump is not None:
            executor.pump.begun(command)

    def _end_of(self, executor: Executor, heard: Heard) -> End:
        assert self.exchanges is not None
        return End(self.exchanges, executor.process, executor.machine.name, heard)

    def _died(self, executor: Executor) -> None:
        """Spark hears of it, and the agent starts another one."""
        if self.exchanges is not None:
            self.exchanges.lost(executor.machine.name)

        def heard() -> None:
            executor.known_dead = True
            if self.executors.get(executor.machine.name) is executor:
                del self.executors[executor.machine.name]
                self.offer(executor.machine)

        self.world.call(self.world.between(*HEARS_S), heard)

    def end(self) -> None:
        """The driver has ended: its executors end, too, each when it hears of that."""
        for executor in self.executors.values():
            self.world.call(self.world.between(*HEARS_S), lambda executor=executor: self._leave(executor))  # type: ignore[misc]

    def _leave(self, executor: Executor) -> None:
        """Its host stays for the grace, where there is one and no other host stays on this machine."""
        machine = executor.machine
        taken = machine.left is not None and machine.left.process.alive
        if self.grace_s <= 0 or taken or not executor.process.alive:
            self.world.kill(executor.process)
            return
        machine.left = executor
        if executor.pump is not None:
            executor.pump.part()

        def over() -> None:
            if machine.left is executor:
                machine.left = None
                self.world.kill(executor.process)

        self.world.call(self.grace_s, over)

    def connect(self, hosts: Sequence[str]) -> WorldJobs:
        exchange = None if self.exchanges is None else self.exchanges.begin(hosts, self.changed)
        return WorldJobs(self, hosts, exchange)


class WorldJobs:
    """Jobs over a list of hosts."""

    why_chained = link_key = ""

    def __init__(self, application: Application, hosts: Sequence[str], exchange: Exchange | None) -> None:
        self._application, self._hosts, self._world = application, hosts, application.world
        self._exchange = exchange
        self.link = 0 if exchange is None else exchange.number

    @property
    def stands(self) -> bool:
        """See `Exchanges.stands`."""
        exchanges = self._application.exchanges
        return self._exchange is None or (exchanges is not None and exchanges.stands(self._exchange))

    @property
    def ended(self) -> str:
        """Why the exchange has ended."""
        return f"exchange {self.link} has ended" if self._exchange is not None and self._exchange.over else ""

    def close(self) -> None:
        """Ends the exchange, if there is one, beside the caller."""
        if self._exchange is not None:
            self._world.call(self._world.between(*ENDS_S), self._exchange.end)

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `Chain.run`, and with an exchange `ContinuousJobs.run`."""
        if self.ended:
            raise ChainError(self.ended)
        ends = self._world.now + patience_s
        inboxes: list[list[tuple[int, bytes]]] = [[] for _ in orders]
        reports: list[Report] = []
        for stage in range(stages):
            last, moved = stage == stages - 1, Signal(self._world)
            tasks = [
                self._begin(slot, job, stage, orders[slot], inboxes[slot], last, moved)
                for slot in range(len(orders))
            ]
            while not all(task.over.is_set() for task in tasks):
                if cancelled.is_set() or self._world.now >= ends:
                    raise ChainError(
                        "cancelled: a node was lost" if cancelled.is_set() else "cancelled: no end in time"
                    )
                moved.clear()
                moved.wait(0.1)
                self._fail_where_dead(tasks)
            for slot, task in enumerate(tasks):
                if task.error or task.answer is None:
                    raise ChainError(task.error or "no answer", slot)
            inboxes = [[] for _ in orders]
            for slot, task in enumerate(tasks):
                assert task.answer is not None
                bundles, report = task.answer
                for target, bundle in bundles:
                    inboxes[target].append((slot, bundle))
                if report is not None:
                    reports.append(Report.decode(report.encode()))
        return reports

    def _fail_where_dead(self, tasks: Sequence[_Task]) -> None:
        for slot, task in enumerate(tasks):
            executor = self._application.executors.get(self._hosts[slot])
            if not task.over.is_set() and executor is None:
                task.error = f"ExecutorLost: {self._hosts[slot]}"
                task.over.set()

    def _begin(
        self,
        slot: int,
        job: Order,
        stage: int,
        order: bytes,
        inbox: Sequence[tuple[int, bytes]],
        last: bool,
        moved: Signal,
    ) -> _Task:
        task = _Task(Signal(self._world))
        executor = self._application.executors.get(self._hosts[slot])
        if executor is None:
            task.error = f"no executor at {self._hosts[slot]}"
            task.over.set()
            return task

        def run() -> None:
            host = self._hosts[slot]
            while (cut := self._application.cut.get(host)) is not None and cut.orders:
                cut.whole.wait()
            try:
                self._fetch(host, {self._hosts[source] for source, _ in inbox})
                with executor.turn.request():
                    if stage == 0:
                        self._application.takes_orders(executor, order)
                    if executor.pump is not None:
                        executor.pump.checked()
                    task.answer = executor.host.stage(job, stage, [bundle for _, bundle in inbox], last)
                self._world.sleep(self._world.between(*TASK_S))
            except Exception as error:
                task.error = f"{type(error).__name__}: {error}"
            while (cut := self._application.cut.get(host)) is not None and cut.answers:
                cut.whole.wait()
            task.over.set()
            moved.set()

        late = self._world.dice.random() < SLOW_TASKS
        after = self._world.between(*(SLOW_TASK_S if late else TASK_S))
        self._world.begin(executor.process, run, f"job {job[1]} stage {stage}", after)
        return task

    def _fetch(self, host: str, sources: Collection[str]) -> None:
        """Messages come from the executors that hold them.  ChainError: one of them cannot be reached."""
        for source in sorted(sources):
            while (cut := self._cut(host, source)) is not None:
                if cut.refuses:
                    self._world.sleep(self._world.between(*REFUSED_S))
                    raise ChainError(f"FetchFailed: {host} cannot fetch from {source}")
                cut.whole.wait()

    def _cut(self, host: str, source: str) -> Severed | None:
        severed = self._application.severed
        links: tuple[Link, ...] = (frozenset((host, source)), (host, source), (source, host))
        return next((severed[link] for link in links if link in severed), None)


class WorldNodes:
    """The nodes that the application can run tasks on, as `reprise.controller.driver.nodes` finds them."""

    def __init__(
        self, world: World, application: Application, channel: Channel, starts: NodeStarts, platform: Platform
    ) -> None:
        self._world, self._application, self._channel, self._platform = world, application, channel, platform
        self.starts = starts
        self.say: Callable[[str], None] = world.note
        self.tell: Callable[[], None] = lambda: None
        self._warming: set[str] = set()
        self._warm: set[str] = set()

    def usable(self) -> Mapping[str, str]:
        nodes = self._channel.read_nodes()
        present = {key: r.host for key, r in sorted(nodes.items()) if r.host in self._application.executors}
        for key, host in present.items():
            if key not in self._warming:
                self._warming.add(key)
                self.starts.saw(key, StartPhase.EXECUTOR)
                self._platform.begin(lambda key=key, host=host: self._warm_up(key, host), f"warm {key}")  # type: ignore[misc]
        return {key: host for key, host in present.items() if key in self._warm}

    def registered(self, host: str) -> bool:
        return host in self._application.executors

    def alive(self) -> bool:
        return True

    def doubt(self, nodes: Collection[str]) -> None:
        self._warm.difference_update(nodes)
        self._warming.difference_update(nodes)

    def _warm_up(self, key: str, host: str) -> None:
        executor = self._application.executors.get(host)
        while executor is not None and executor.process.alive and executor.process.stopped:
            self._world.sleep(0.2)
        self._world.sleep(self._world.between(*TASK_S))
        if executor is None or not executor.process.alive:
            self._warming.discard(key)
        else:
            self._warm.add(key)
            self.tell()
        self._channel.changed.set()
