"""Partition hosts in one process whose messages travel by an exchange: frames are late, and lost with their exchange."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.node.command import Command, Order, Report
from reprise.spark_jobs.node.pump import Heard, Pump
from tools.testbed.local_engine import LocalJobs, LocalNodes
from tools.testbed.prepared import let_all_come

MOST_IN_A_ROW = 20
"""Frames that arrive in one move."""
MOMENTS = 3
"""Of a host in a job, where `interrupt` is called: before it takes its orders, before it reports, and before that counts."""


@dataclass
class Wire:
    """One exchange: frames by sender's and receiver's slot; they stay in order."""

    number: int
    hosts: Sequence[str]
    pairs: dict[tuple[int, int], deque[bytes]] = field(default_factory=dict)
    over: bool = False
    late: int = 0
    """So many times it is not connected yet when somebody asks."""


class WireEnd:
    """A host's end of all exchanges."""

    def __init__(self, nodes: PumpedNodes, node: str, heard: Heard) -> None:
        self.nodes, self.node, self.heard = nodes, node, heard
        self.wire: Wire | None = None

    @property
    def ready(self) -> bool:
        if self.wire is None or self.wire.over:
            return False
        if self.wire.late:
            self.wire.late -= 1
            return False
        return True

    def attach(self, number: int, _key: bytes) -> None:
        assert self.wire is None or number >= self.wire.number
        self.wire = self.nodes.wires[number]

    def send(self, slot: int, frame: bytes) -> bool:
        if self.wire is None or self.wire.over or self.nodes.dice.random() < 0.1:
            return False
        mine = self.wire.hosts.index(self.node)
        assert slot != mine
        self.wire.pairs.setdefault((mine, slot), deque()).append(frame)
        return True


class PumpedNodes(LocalNodes):
    """Jobs have one stage; before, between and after what they do, pumps move and frames arrive, in random order."""

    widens = True
    """Whether exchanges stand, so that others to more nodes begin, and hosts change over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.dice = random.Random(int.from_bytes(folder.parent.name.encode()[-4:]))
        self.wires: dict[int, Wire] = {}
        self.pumps: dict[str, Pump] = {}
        self.ends: dict[str, WireEnd] = {}
        self.delivered = 0

    def start(self, *nodes: str) -> None:
        super().start(*nodes)
        for node in nodes:

            def links(heard: Heard, node: str = node) -> WireEnd:
                self.ends[node] = WireEnd(self, node, heard)
                return self.ends[node]

            self.pumps[node] = Pump(self.hosts[node], links)
            self.pumps[node]._confirm_s = 0.0  # of real time, in which many rounds pass here

    def lose(self, *nodes: str) -> None:
        super().lose(*nodes)
        for node in nodes:
            del self.pumps[node], self.ends[node]
        for wire in self.wires.values():
            wire.over = wire.over or bool(set(nodes) & set(wire.hosts))

    def connect(self, hosts: Sequence[str]) -> LocalJobs:
        wire = Wire(len(self.wires) + 1, tuple(hosts), late=self.dice.randrange(4))
        self.wires[wire.number] = wire
        return PumpedJobs(self, hosts, wire)

    def move(self, rounds: int) -> None:
        """So many times somebody's pump, or a frame, moves."""
        for _ in range(rounds):
            if self.pumps and self.dice.random() < 0.5:
                self.pumps[self.dice.choice(sorted(self.pumps))].round()
                continue
            waiting = [(w, pair) for w in self.wires.values() for pair, frames in w.pairs.items() if frames]
            if not waiting:
                continue
            self._arrive(*self.dice.choice(waiting))

    def _arrive(self, wire: Wire, pair: tuple[int, int]) -> None:
        """Some frames in a row, or none of those that are under way between two nodes."""
        frames, end = wire.pairs[pair], self.ends.get(wire.hosts[pair[1]])
        attached = None if end is None else end.wire
        if end is not None and attached is wire and not (wire.over and self.dice.random() < 0.5):
            for _ in range(min(len(frames), self.dice.randint(1, MOST_IN_A_ROW))):
                self.delivered += 1
                end.heard(wire.number, frames.popleft())
        elif end is None or wire.over or (attached is not None and attached.number >= wire.number):
            frames.clear()  # else its reader has not changed over yet


class PumpedJobs(LocalJobs):
    def __init__(self, nodes: PumpedNodes, hosts: Sequence[str], wire: Wire) -> None:
        super().__init__(nodes, hosts)
        self.pumped, self.wire = nodes, wire
        self.link = wire.number

    @property
    def stands(self) -> bool:  # type: ignore[override]
        """Sometimes later than its first jobs."""
        return self.pumped.widens and self.pumped.dice.random() < 0.7

    @property
    def ended(self) -> str:  # type: ignore[override]
        return "the exchange is over" if self.wire.over else ""

    def close(self) -> None:
        self.wire.over = True

    def _stages(self, job: Order, orders: Sequence[bytes], stages: int) -> list[Report]:
        """Each host takes its orders, and reports later; in random order between hosts."""
        assert stages == 1, "messages do not travel with the job"
        dice, reports = self.pumped.dice, dict[int, Report]()
        self.pumped.move(dice.randrange(20))
        moments = [slot for slot in range(len(orders)) for _ in range(MOMENTS)]
        dice.shuffle(moments)
        passed = [0] * len(orders)
        for slot in moments:
            if self.wire.over:
                raise ChainError("the exchange is over")
            self.nodes.interrupt(job[1], passed[slot], slot)
            host = self.nodes.hosts.get(self.hosts[slot])
            if host is None:
                raise ChainError(f"{self.hosts[slot]} is gone")
            if passed[slot] == 0:
                self._begin(self.hosts[slot], host.orders.read(orders[slot]))
                if self.nodes.patient:
                    let_all_come(host)
            elif passed[slot] == 1:
                _, report = host.stage(job, 0, [], True)
                assert report is not None
                reports[slot] = Report.decode(report.encode())
            passed[slot] += 1
            self.pumped.move(dice.randrange(30))
        self.pumped.move(dice.randrange(60))
        return [reports[slot] for slot in range(len(orders))]

    def _begin(self, node: str, command: Command) -> None:
        super()._begin(node, command)
        pump = self.pumped.pumps[node]
        pump.begun(command)
        pump.checked()


class ChainedJobs(LocalJobs):
    """Jobs that carry messages, of hosts that have pumps."""

    def __init__(self, nodes: PumpedNodes, hosts: Sequence[str]) -> None:
        super().__init__(nodes, hosts)
        self.pumped = nodes

    def _begin(self, node: str, command: Command) -> None:
        super()._begin(node, command)
        self.pumped.pumps[node].begun(command)


class SometimesChained(PumpedNodes):
    """Nodes between which every other probe fails, so that jobs carry the messages until hosts change."""

    connected = 0

    def connect(self, hosts: Sequence[str]) -> LocalJobs:
        self.connected += 1
        return super().connect(hosts) if self.connected % 2 else ChainedJobs(self, hosts)
