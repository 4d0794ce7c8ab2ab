"""Moves a host's partitions between jobs, where messages travel by an exchange that runs all the time.

Jobs then carry orders and reports alone.  What the stages of a chain gave for nothing is made here:

- Orders reach hosts at different moments.  A frame made under orders that have not come here yet waits for them: the
  partition that it is for may be about to be installed.  One of an earlier driver or generation is dropped: everything of
  the new one is sent again.  No partition goes behind the horizon that this host knows (`Host.run`).
- Nobody waits for the slowest.  Each reader's node confirms what came and what is applied, and at most so much is sent
  ahead of that (`IN_FLIGHT`, the command's window): who is slow holds up its own readers and upstreams.
- Frames may be lost with an exchange.  Whoever begins with another exchange is sent everything again that is not applied;
  a node that neither confirms anything nor answers a ping for `SILENT_S` makes the next job fail, and the driver begins
  another exchange.  Pings are answered by the thread that reads them, so that user code which takes long is no loss.

Invariant: frames of one exchange come from each node in the order in which they were sent, or not at all from some frame on.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from reprise.spark_jobs.errors import DataPlaneError
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.frames import (
    Confirmation,
    FrameKind,
    Stamp,
    decode_frame,
    encode_frame,
    is_ping,
    slot_of,
)
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.sending import Sent
from reprise.spark_jobs.node.wire import HeaderKey, header_key, pack, unpack
from reprise.spark_jobs.platform import PLATFORM, Platform

SLICE_S = 0.02
"""How long partitions move before what has come is looked at, and a request has its turn."""
TICK_S = 0.05
"""After so long without news what waits for a source, a sink or a disk is tried again, and relays are looked for.  Then
after twice as long each time, up to `LOOK_S`, unless relays are not there."""
FRAME = 64 * 1024
"""Bytes of rows after which another frame is begun: what is large does not hold up what is small for long."""
WINDOW_BYTES = 256 * 1024
"""What may be unconfirmed on its way to one node.  No more than an exchange of `MOST_NODES` holds for it without holding up
others (`reprise.spark_jobs.exchange.exchange.window_bytes`)."""
PIECE = 127 * 1024
"""Bytes of a bundle in one frame at most: relays hold frames whole, some times over, in a JVM of any size.  Two such frames
fit into a window."""
BURST = 4 * WINDOW_BYTES
"""Bytes of rows that are taken out of buffers for one node at once: they count for no budget until they are confirmed."""
CONFIRM_S = 0.1
"""A confirmation waits for so long, so that one frame confirms what comes from a node meanwhile."""
CONFIRM_PART = 4
"""It does not wait where this part of a window of bytes or batches is used: the node could soon send no more."""
LOOK_S = 0.5
"""How often buffers are looked through where nothing is new."""
PING_S = 2.0
"""A node that confirms nothing for so long is asked whether frames arrive."""
SILENT_S = 10.0
"""A node that does not answer that for so long, nor confirms anything, is not reached any more."""
FIRST_S = 30.0
"""The same of one from which nothing has come yet by this exchange: it answers when it has its orders, and a piece of its
work may take that long."""
CONNECT_S = 60.0
"""An exchange that has not connected this host for so long does not come."""


Heard = Callable[[int, bytes], None]
"""Told of a frame, with the number of the exchange by which it came."""


class Links(Protocol):
    """The host's connections to the exchange; `reprise.spark_jobs.node.links` is the real one."""

    @property
    def ready(self) -> bool:
        """Whether frames can be sent and can come."""

    def close(self) -> None:
        """End all connections."""

    def attach(self, number: int, key: bytes) -> None:
        """Use this exchange from now on, and none before it; its frames are sealed with that key."""

    def send(self, slot: int, frame: bytes) -> bool:
        """Take a frame for another slot; False where there is no room now."""


class Turn:
    """Who may touch the host: a request as soon as the piece of work that runs is over, before any other piece."""

    def __init__(self, platform: Platform = PLATFORM) -> None:
        self._free = platform.condition()
        self._taken = False
        self._requests = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """The turn of somebody who waits for an answer."""
        with self._free:
            self._requests += 1
            self._free.wait_for(lambda: not self._taken)
            self._requests -= 1
            self._taken = True
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def work(self) -> Iterator[None]:
        """The turn of a piece of work that others follow."""
        with self._free:
            self._free.wait_for(lambda: not self._taken and not self._requests)
            self._taken = True
        try:
            yield
        finally:
            self._give()

    def _give(self) -> None:
        with self._free:
            self._taken = False
            self._free.notify_all()


@dataclass(slots=True)
class _Peer:
    """What has gone to and come from one slot over the exchange."""

    under_way: deque[int] = field(default_factory=deque)
    """Bytes of each frame with messages that it has not confirmed."""
    bytes_under_way: int = 0
    """Of all of them: asked for with each frame."""
    confirmed: int = 0
    """Frames that it has confirmed."""
    silent_since: float | None = None
    """Since when something is not confirmed, and nothing was confirmed or answered."""
    asked_at: float | None = None
    """Since then it has been asked whether frames arrive, and has said nothing."""
    unsent: deque[bytes] = field(default_factory=deque)
    """Frames for which there was no room."""
    met: bool = False
    """Something has come from it."""
    came: int = 0
    told: int = 0
    """Of those that came, how many it knows to have come."""
    owed_bytes: int = 0
    """Of those that it does not know to have come."""
    waits_since: float | None = None
    """Since when a confirmation to it waits."""
    pieces: list[bytes] = field(default_factory=list)
    """What has come of a bundle whose end has not."""
    readers: dict[str, int] = field(default_factory=dict)
    """Partitions here that it sends to, with the position of each that it was told; -1: of none."""

    def heard(self) -> None:
        """It has confirmed or answered something."""
        self.silent_since = self.asked_at = None

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be sent beside those under way."""
        return not self.under_way or self.bytes_under_way + size <= WINDOW_BYTES

    def left(self, size: int) -> None:
        """A frame is on its way to it."""
        self.under_way.append(size)
        self.bytes_under_way += size

    def has(self, frames: int) -> None:
        """It says how many frames with messages have come there so far."""
        while self.confirmed < frames and self.under_way:
            self.confirmed += 1
            self.bytes_under_way -= self.under_way.popleft()
            self.heard()


class Pump:
    """One host's; `heard` may be called by any thread, everything else by who has the host's turn."""

    def __init__(self, host: Host, links: Callable[[Heard], Links], platform: Platform = PLATFORM) -> None:
        """`links`: makes the connections, given who is to hear of frames."""
        self._host, self._clock, self._confirm_s = host, platform.elapsed, CONFIRM_S
        self.wake = platform.event()
        """Something may have come, or may be sent."""
        self._heard: deque[tuple[int, bytes]] = deque()
        self._early: list[tuple[Stamp, bytes]] = []
        """Messages under orders that have not come here yet."""
        self._peers: defaultdict[int, _Peer] = defaultdict(_Peer)
        self._link = 0
        self._stamp = Stamp(0, 0, 0, 0)
        """Of the newest orders; read by the threads that hear of frames."""
        self._apart_since: float | None = None
        """Since when the exchange has not connected this host."""
        self._since: dict[str, int] = {}
        """Targets that were sent everything again, and by which job."""
        self._fresh = False
        """Orders or confirmations have come since what can be sent was looked for."""
        self._looked = 0.0
        self._confirms_at = math.inf
        """When the next confirmation has waited for long enough."""
        self._trouble: DataPlaneError | None = None
        self._parted = False
        self._links = links(self.heard)

    def heard(self, number: int, frame: bytes) -> None:
        """A frame has come over an exchange."""
        if is_ping(frame):
            if number == self._link:
                self._links.send(slot_of(frame), encode_frame(FrameKind.PONG, self._stamp, b""))
            return
        self._heard.append((number, frame))
        self.wake.set()

    def part(self) -> None:
        """Move nothing until `meet`: the executor has ended.  A piece of work that has begun is completed.  Any thread may
        call both."""
        self._parted = True
        self._links.close()

    def meet(self, links: Callable[[Heard], Links]) -> None:
        """Make connections to the exchanges of another executor."""
        self._links = links(self.heard)
        self._parted = False

    def begun(self, command: Command) -> None:
        """The host has taken in orders."""
        stamp = Stamp(command.epoch, command.generation, command.job, command.slot)
        if (command.epoch, command.link) != (self._stamp.epoch, self._link):
            before = self._link, self._stamp  # what has waited is heard, and perhaps answered, in `attach`
            self._link, self._stamp = command.link, stamp
            try:
                if command.link:
                    self._links.attach(command.link, bytes.fromhex(command.link_key))
            except ValueError:
                self._link, self._stamp = before
                raise
            self._trouble = self._apart_since = None
            self._since.clear()
            self._peers.clear()
            self._early.clear()
            self._host.sender.confirmed.clear()
        self._stamp = stamp
        for target in command.resend:  # it may begin anew: what was confirmed before says nothing
            self._host.sender.confirmed.pop(target, None)
            self._since[target] = command.job
        self._fresh = True
        early, self._early = self._early, []
        for stamp, body in early:
            self._messages(stamp, body, command)
        self.wake.set()

    def due_in(self) -> float:
        """Seconds until there is something to do though nothing comes."""
        return min(self._host.due_in(), self._confirms_at - self._clock())

    @property
    def lacks_relays(self) -> bool:
        """Whether the exchange that is attached has not connected this host yet, or has ended."""
        return self._apart_since is not None

    def checked(self) -> None:
        """DataPlaneError: messages may be lost, so that only another exchange helps."""
        if self._trouble is not None:
            raise self._trouble

    def round(self) -> bool:
        """One piece of work; says whether there may be more to do at once."""
        command, self._confirms_at = self._host.command, math.inf
        if (
            command is None
            or not self._link
            or not self._host.begun
            or self._trouble is not None
            or self._parted
        ):
            return False
        began = self._clock()
        try:
            came = self._take(command)
            # before any step, as that may take long: what comes meanwhile is read before anybody is asked again
            for slot, peer in self._peers.items():
                self._require_answers(slot, peer)
            moved = self._host.run(SLICE_S)
            if not self._connected():
                return came or moved
            sent = self._send(command, came or moved)
            self._confirm(command)
        except BaseException as error:  # also of user code that would end its process: told with the next job
            self._trouble = DataPlaneError(f"exchange {self._link}: {type(error).__name__}: {error}")
            return False
        finally:
            self._host.worked(self._clock() - began)
        return came or moved or sent

    def _take(self, command: Command) -> bool:
        came = False
        while self._heard:
            number, frame = self._heard.popleft()
            if number != self._link:
                continue
            kind, stamp, body = decode_frame(frame)
            peer = self._peers[stamp.slot]
            peer.met = True
            if kind is FrameKind.CONFIRMATION:
                self._confirmed(peer, Confirmation.decode(body), stamp, command)
            elif kind is FrameKind.PONG:
                peer.heard()
            else:
                came = True
                peer.came += 1
                peer.owed_bytes += len(frame)
                peer.pieces.append(body)
                if kind is FrameKind.MESSAGES:
                    body = b"".join(peer.pieces)
                    peer.pieces.clear()
                    self._messages(stamp, body, command)
        return came

    def _messages(self, stamp: Stamp, body: bytes, command: Command) -> None:
        if (stamp.epoch, stamp.job) > command.order:
            self._early.append((stamp, body))
        elif (stamp.epoch, stamp.generation) == (command.epoch, command.generation):
            readers = self._peers[stamp.slot].readers
            for message in unpack(body):
                readers.setdefault(message.target, -1)
                self._host.deliver(message)

    def _connected(self) -> bool:
        """DataPlaneError: not for so long that it will not be."""
        if self._links.ready:
            self._apart_since = None
            return True
        now = self._clock()
        if self._apart_since is None:
            self._apart_since = now
        if now - self._apart_since > CONNECT_S:
            raise DataPlaneError(f"this host is not connected, for {CONNECT_S:.0f} s by now")
        return False

    def _confirmed(self, peer: _Peer, told: Confirmation, stamp: Stamp, command: Command) -> None:
        peer.has(told.frames)
        if (stamp.epoch, stamp.generation) == (command.epoch, command.generation):
            known, since = self._host.sender.confirmed, self._since
            for partition, position in told.applied.items():
                if position > known.get(partition, -1) and stamp.job >= since.get(partition, -1):
                    known[partition] = position
            self._fresh = True

    def _send(self, command: Command, news: bool) -> bool:
        """Send what can be sent; says whether anything was.  Without `news` there is nothing new but what a source or a disk
        has kept waiting, which is looked for from time to time."""
        sent = False
        for slot, peer in self._peers.items():
            sent = self._drained(slot, peer) or sent
        now = self._clock()
        if not (news or sent or self._fresh or now - self._looked > LOOK_S):
            return False
        self._fresh, self._looked = False, now
        full = {slot for slot, peer in self._peers.items() if peer.unsent}
        for slot, messages in self._host.sender.outgoing(command, full, BURST, SLICE_S).items():
            peer, parts = self._peers[slot], _parts(messages)
            for part in parts:
                peer.unsent += _frames(pack(part), self._stamp)
            sent = self._drained(slot, peer) or sent
        self._fresh = self._host.sender.cut
        return sent or self._fresh

    def _drained(self, slot: int, peer: _Peer) -> bool:
        """Send of what waits for a node as much as there is room for; says whether anything was sent."""
        before = len(peer.unsent)
        while peer.unsent and peer.has_room(len(peer.unsent[0])) and self._links.send(slot, peer.unsent[0]):
            peer.left(len(peer.unsent.popleft()))
        return len(peer.unsent) < before

    def _require_answers(self, slot: int, peer: _Peer) -> None:
        now = self._clock()
        if not peer.under_way:
            peer.heard()
        elif peer.silent_since is None:
            peer.silent_since = now
        elif peer.asked_at is not None:
            limit_s = SILENT_S if peer.met else FIRST_S
            if now - peer.asked_at > limit_s:
                raise DataPlaneError(f"slot {slot} has not answered for {limit_s:.0f} s")
        elif now - peer.silent_since > PING_S:
            # where there is no room for it, nothing has left for a while: that is no answer either
            self._links.send(slot, encode_frame(FrameKind.PING, self._stamp, b""))
            peer.asked_at = now

    def _confirm(self, command: Command) -> None:
        """Confirm to those that send here what has come, and what is applied by partitions that are no standbys."""
        now = self._clock()
        at = {p: r.position for p, r in self._host.runtimes.items() if not command.silent(p)}
        for slot, peer in self._peers.items():
            applied = {p: at[p] for p, told in peer.readers.items() if p in at and at[p] != told}
            if not applied and peer.told == peer.came:
                peer.waits_since = None
                continue
            if peer.waits_since is None:
                peer.waits_since = now
            ahead = max((position - peer.readers[p] for p, position in applied.items()), default=0)
            used = peer.owed_bytes >= WINDOW_BYTES // CONFIRM_PART or ahead >= command.window // CONFIRM_PART
            if used or now >= peer.waits_since + self._confirm_s:
                body = Confirmation(peer.came, applied).encode()
                if self._links.send(slot, encode_frame(FrameKind.CONFIRMATION, self._stamp, body)):
                    peer.readers.update(applied)
                    peer.told, peer.owed_bytes, peer.waits_since = peer.came, 0, None
                    continue
                peer.waits_since = now
            self._confirms_at = min(self._confirms_at, peer.waits_since + self._confirm_s)


def _frames(bundle: bytes, stamp: Stamp) -> Iterator[bytes]:
    """The frames of a bundle, in order."""
    for at in range(0, len(bundle), PIECE):
        kind = FrameKind.PIECE if at + PIECE < len(bundle) else FrameKind.MESSAGES
        yield encode_frame(kind, stamp, bundle[at : at + PIECE])


def _parts(messages: Sent) -> Iterator[Sent]:
    """Messages of about `FRAME` bytes together, in order."""
    part: Sent = []
    size, headers = 0, set[HeaderKey]()
    for message, body in messages:
        part.append((message, body))
        size += len(body)
        if message.header and (key := header_key(message)) not in headers:
            headers.add(key)
            size += len(message.header)
        if size >= FRAME:
            yield part
            part, size = [], 0
            headers.clear()
    if part:
        yield part


def start(host: Host, links: Callable[[Heard], Links], turn: Turn, platform: Platform = PLATFORM) -> Pump:
    """A pump with a thread of its own."""
    pump = Pump(host, links, platform)
    platform.begin(lambda: keep_pumping(pump, turn), "pump")
    return pump


def keep_pumping(pump: Pump, turn: Turn) -> None:
    """Rounds for ever, as long as there is work at once, else when something comes."""
    pause_s = TICK_S
    while True:
        with turn.work():
            pump.wake.clear()
            more = pump.round()
            due_s = pump.due_in()
        soon = more or pump.wake.wait(min(pause_s, due_s)) or due_s <= pause_s or pump.lacks_relays
        pause_s = TICK_S if soon else min(2 * pause_s, LOOK_S)
