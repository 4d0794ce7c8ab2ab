"""Modelled exchanges: what carries frames between the partition hosts of an application, all the time.

What is modelled: relays come some time after their exchange has begun; frames between two nodes stay in order, and some are
late; those of a later exchange wait until their host attaches it.  An exchange ends as a whole: when a node of it is lost,
when a relay dies alone, when a connection is refused.  Of what is under way then, each pair of nodes loses all behind some
frame.  Where nothing travels from one node to another one for a while, frames wait.  The pump of each host is the real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reprise.controller.simulated_world.core import Process, Signal, World
from reprise.spark_jobs.node.pump import Heard

RELAYS_S = (0.05, 0.8)
"""Until the relays of a new exchange have come to a host."""
FRAME_S = (0.0005, 0.05)
"""Of a frame on its way."""
SLOW_FRAMES, SLOW_FRAME_S = 0.01, (0.1, 3.0)
"""Share of frames that come late, as one behind a collection of garbage, and by how much; others follow it."""
MOST_UNDER_WAY = 8
"""Frames from one node to another: there is no room for more."""
HEARS_S = (0.02, 1.0)
"""From the death of a host until its exchanges end."""
REFUSED_S = (0.05, 4.0)
"""Until a connection that is refused ends its exchange."""


@dataclass(eq=False)
class Severed:
    """Two nodes between which nothing travels, or only one way, until the link is whole again; `refuses`: whoever fetches is
    told so after a while, else it waits."""

    whole: Signal
    refuses: bool


Link = frozenset[str] | tuple[str, str]
"""Two nodes between which nothing travels; or a node, and the one to which nothing of it travels."""


@dataclass(eq=False)
class Exchange:
    """One exchange over a list of hosts."""

    world: World
    number: int
    hosts: Sequence[str]
    severed: Mapping[Link, Severed]
    ends: dict[str, End] = field(default_factory=dict)
    """By host, of those that have attached it, or were sent something by it."""
    changed: Callable[[], None] = lambda: None
    """Called when its relays have come, and when it is over."""
    over: bool = False
    _begins: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begins = {host: self.world.now + self.world.between(*RELAYS_S) for host in self.hosts}
        self.world.call(max(self._begins.values()) - self.world.now, self.changed)

    def has_relays(self, host: str) -> bool:
        """Whether both relays of a host are there."""
        return not self.over and self.world.now >= self._begins[host]

    def cut(self, source: str, target: str) -> Severed | None:
        """What keeps frames of one node from another one."""
        return self.severed.get(frozenset((source, target))) or self.severed.get((source, target))

    def end(self) -> None:
        """One of its tasks has ended, and so all do."""
        if not self.over:
            self.over = True
            for end in self.ends.values():
                end.lose(self)
            self.changed()


class Exchanges:
    """Those of one application, by number."""

    def __init__(self, world: World, severed: Mapping[Link, Severed], numbers: Iterator[int]) -> None:
        """`numbers`: of exchanges of later applications they are greater."""
        self._world, self._severed, self._numbers = world, severed, numbers
        self._made: dict[int, Exchange] = {}
        self.ends: dict[str, End] = {}
        """By host: where its frames come in."""

    def begin(self, hosts: Sequence[str], changed: Callable[[], None]) -> Exchange:
        """Another one, whose number is greater than those of all before it."""
        number = next(self._numbers)
        self._made[number] = Exchange(self._world, number, hosts, self._severed, changed=changed)
        return self._made[number]

    def stands(self, exchange: Exchange) -> bool:
        """Whether all hosts have met their relays, and a greeting of each has come to each other one."""
        hosts = exchange.hosts
        met = all(exchange.has_relays(h) and h in self.ends and self.ends[h].moves for h in hosts)
        return met and not any(exchange.cut(one, other) for one in hosts for other in hosts if one != other)

    def of(self, number: int) -> Exchange:
        """The exchange of a number."""
        return self._made[number]

    @property
    def running(self) -> list[Exchange]:
        """Those that are not over."""
        return [exchange for exchange in self._made.values() if not exchange.over]

    def lost(self, host: str) -> None:
        """The executor of a host is dead: exchanges over it end when Spark knows that."""
        for exchange in self.running:
            if host in exchange.hosts:
                self._world.call(self._world.between(*HEARS_S), exchange.end)


class End:
    """A host's end of all exchanges (`reprise.spark_jobs.node.pump.Links`); a thread of the host's process takes in what
    comes."""

    def __init__(self, exchanges: Exchanges, process: Process, host: str, heard: Heard) -> None:
        self._exchanges, self._process, self._host, self._heard = exchanges, process, host, heard
        self._world = exchanges._world
        self._attached: Exchange | None = None
        self._closed = False
        self._under_way: dict[tuple[int, str], deque[tuple[float, bytes]]] = {}
        """By exchange and sender: frames, each with the time when it is here."""
        self._came = Signal(self._world)
        exchanges.ends[host] = self
        self._world.begin(process, self._take_in, "inlet")

    @property
    def ready(self) -> bool:
        return self._attached is not None and not self._closed and self._attached.has_relays(self._host)

    @property
    def moves(self) -> bool:
        """Whether its host does anything."""
        return not self._closed and self._process.alive and not self._process.stopped

    def attach(self, number: int, _key: bytes) -> None:
        if self._attached is not None and number < self._attached.number:
            raise ValueError(f"exchange {number} is attached after exchange {self._attached.number}")
        self._attached = self._exchanges.of(number)
        self._attached.ends[self._host] = self
        self._came.set()

    def send(self, slot: int, frame: bytes) -> bool:
        exchange, dice = self._attached, self._world.dice
        if exchange is None or not self.ready:
            return False
        target = exchange.hosts[slot]
        if (cut := exchange.cut(self._host, target)) is not None and cut.refuses:
            self._world.call(self._world.between(*REFUSED_S), exchange.end)
        end = self._exchanges.ends.get(target)
        late = self._world.between(*(SLOW_FRAME_S if dice.random() < SLOW_FRAMES else FRAME_S))
        return end is None or end._has_room_for(exchange, self._host, late, frame)

    def close(self) -> None:
        self._closed = True
        self._came.set()

    def _has_room_for(self, exchange: Exchange, source: str, after: float, frame: bytes) -> bool:
        """Whether one more frame is on its way here, where it is so many seconds later, or behind those before it."""
        exchange.ends[self._host] = self
        under_way = self._under_way.setdefault((exchange.number, source), deque())
        if len(under_way) >= MOST_UNDER_WAY:
            return False
        before = under_way[-1][0] if under_way else 0.0
        under_way.append((max(before, self._world.now + after), frame))
        self._came.set()
        return True

    def lose(self, exchange: Exchange) -> None:
        """An exchange is over: of what is under way by it only what comes first may still come."""
        for (number, _), under_way in self._under_way.items():
            if number == exchange.number:
                for _ in range(self._world.dice.randint(0, len(under_way))):
                    under_way.pop()

    def _take_in(self) -> None:
        while not self._closed:
            self._came.clear()
            now = self._world.now
            due = self._due()
            if due is None or due[0] > now:
                self._came.wait(None if due is None else due[0] - now)
                continue
            number, source = due[1]
            _, frame = self._under_way[number, source].popleft()
            self._heard(number, frame)

    def _due(self) -> tuple[float, tuple[int, str]] | None:
        """When the next frame is here, and by which exchange and from whom."""
        found: list[tuple[float, tuple[int, str]]] = []
        attached = -1 if self._attached is None else self._attached.number
        for (number, source), under_way in list(self._under_way.items()):
            if not under_way or number < attached:
                del self._under_way[number, source]
            elif number == attached:
                cut = self._exchanges.of(number).cut(source, self._host)
                waits = self._world.now + FRAME_S[1] if cut is not None else 0.0
                found.append((max(under_way[0][0], waits), (number, source)))
        return min(found, default=None)
