"""What goes to each node with a job: the part of its command that the node needs, and of that what the node does not know.

What a node knows is what it was told with the last job, if all of that job's reports came: then the next order has that job
as its base.  After a job that failed nobody knows which nodes took in its orders, so nothing counts as known and the next
orders are whole; so are those of a node that was not in the last job, and of one that needs to know of other partitions than
before.  Invariant: `reprise.spark_jobs.node.orders` reads out of it, restricted to what the node's partitions send to, the
command that went in.

What many nodes are told is written once: bytes by operator, put together for each node.  A job costs the driver time in
proportion to partitions and nodes, not to their product.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reprise.spark_jobs.node.command import Command, Install
from reprise.spark_jobs.node.orders import ABSENT, ALWAYS, EACH, Told
from reprise.spark_jobs.topology import Mode, Topology

Near = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the partitions of a node send to: all partitions of the operators in `readers`, and single ones by `forward`."""

    hosted: tuple[str, ...]
    readers: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a node was told."""

    needs: _Needs
    hosted: Mapping[str, str]
    installs: Mapping[str, Any]
    near: Near


@dataclass(slots=True)
class _Page:
    """What is the same for all nodes in one job."""

    routes: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    covered: Any = None


class Dispatch:
    """The orders of one driver's life."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._ids: dict[str, list[str]] = {}
        for partition in topology.partitions.values():
            self._ids.setdefault(partition.place.operator, []).append(partition.id)
        self._base: int | None = None
        self._page = _Page()
        self._known: dict[str, _Known] = {}
        self._sent: tuple[int, _Page, dict[str, _Known]] | None = None
        self.acknowledgement_bytes = 0
        """Of all orders that were made: what they said of standbys, and of output that partitions with upstream backup do
        not need."""

    def forget(self) -> None:
        """A job failed: what its nodes know is not known."""
        self._base, self._known, self._sent = None, {}, None

    def taken(self) -> None:
        """All nodes have reported on the orders that were made last."""
        assert self._sent is not None
        self._base, self._page, self._known = self._sent
        self._sent = None

    def orders(self, nodes: Sequence[str], commands: Sequence[Command]) -> list[bytes]:
        """The order of each node for its command; the commands of one job share `routes`, `positions` and `resend`."""
        any_command = commands[0]
        page = self._turned(any_command)
        again, wanted = _by_operator(any_command.resend), frozenset(any_command.resend)
        head = {"version": any_command.version, "epoch": any_command.epoch, "job": any_command.job}
        each = {name: getattr(any_command, name) for name in EACH}
        covered = {"covered": page.covered}
        since = _inner(
            {**head, "base": self._base, **each, **(covered if page.covered != self._page.covered else {})}
        )
        always = {name: getattr(any_command, name) for name in ALWAYS}
        whole = _inner({**head, "base": None, **each, **covered, "always": always})
        acknowledged, given_up = _acknowledging(any_command)
        new = page.covered != self._page.covered
        joined: dict[tuple[bool, tuple[str, ...]], bytes] = {}
        found, known = [], {}
        for node, command in zip(nodes, commands, strict=True):
            before = self._known.get(node)
            now = known[node] = self._now(command, before)
            same = before is not None and before.needs is now.needs
            self.acknowledgement_bytes += acknowledged + (given_up if new or not same else 0)
            key = same, now.needs.readers
            if key not in joined:
                joined[key] = self._readers(page, again, *key)
            own = _own(command, now, before if same else None, wanted)
            found.append(
                b"".join((b"{", since if same else whole, b',"readers":{', joined[key], b"},", own, b"}"))
            )
        self._sent = any_command.job, page, known
        return found

    def _turned(self, command: Command) -> _Page:
        page = _Page(command.routes, {}, asdict(command.covered))
        same = bool(self._page.told) and command.routes == self._page.routes
        told: dict[str, Told] = {}
        for op, ids in self._ids.items():
            slots = (
                self._page.told[op].slots
                if same
                else array("i", [command.routes.get(p, ABSENT) for p in ids])
            )
            told[op] = _told(slots, [command.positions.get(p, ABSENT) for p in ids])
        page.told = told
        return page

    def _readers(
        self, page: _Page, again: Mapping[str, Sequence[str]], same: bool, operators: Sequence[str]
    ) -> bytes:
        """Members by operator, of those of which there is something to say."""
        write = self._change if same else self._whole
        written = ((op, write(op, page, again)) for op in operators)
        return b",".join(b"%s:%s" % (_json(op), told) for op, told in written if told)

    def _whole(self, op: str, page: _Page, again: Mapping[str, Sequence[str]]) -> bytes:
        told = page.told[op]
        raw: dict[str, Any] = {"slots": told.slots.tolist(), "at": told.at}
        if told.but:
            raw["but"] = told.but
        if op in again:
            raw["again"] = _again(told, again[op], self._ids[op])
        return _json(raw)

    def _change(self, op: str, page: _Page, again: Mapping[str, Sequence[str]]) -> bytes:
        """What is new of an operator's partitions; empty for nothing."""
        before, now = self._page.told.get(op, Told()), page.told[op]
        raw: dict[str, Any] = {}
        if now.slots is not before.slots and (
            moved := {
                i: new
                for i, (old, new) in enumerate(zip(before.slots, now.slots, strict=False))
                if old != new
            }
        ):
            raw["slots"] = moved
        if now.at != before.at:
            raw["at"] = now.at
        if now.but != before.but:
            gone: dict[int, int | None] = {i: None for i in before.but if i not in now.but}
            raw["but"] = gone | {i: k for i, k in now.but.items() if before.but.get(i) != k}
        if op in again:
            raw["again"] = _again(now, again[op], self._ids[op])
        return _json(raw) if raw else b""

    def _now(self, command: Command, before: _Known | None) -> _Known:
        if before is not None and command.hosted.keys() == before.hosted.keys():
            needs = before.needs
        else:
            needs = self._needs(command.hosted)
        near = {t: (command.routes.get(t, ABSENT), command.positions.get(t, 0)) for t in needs.near}
        installs = {p: _said(i) for p, i in command.installs.items()}
        return _Known(needs, command.hosted, installs, near)

    def _needs(self, hosted: Iterable[str]) -> _Needs:
        readers, near = dict[str, None](), dict[str, None]()
        for partition in hosted:
            for down in self._topology.partitions[partition].downstream:
                if down.grouping.mode is Mode.FORWARD:
                    near.update(dict.fromkeys(down.targets))
                else:
                    readers[down.operator] = None
        alone = (target for target in near if target.rpartition(".")[0] not in readers)
        return _Needs(tuple(hosted), tuple(readers), tuple(alone))


def _told(slots: array[int], positions: list[int]) -> Told:
    """`positions`: of all partitions of one operator, `ABSENT` for those that are not at work."""
    common = positions[0]
    if common == ABSENT or positions.count(common) < len(positions):
        counts = Counter(position for position in positions if position != ABSENT)
        common = max(counts, key=lambda k: (counts[k], k), default=0)
        return Told(slots, common, {i: k for i, k in enumerate(positions) if k not in (common, ABSENT)})
    return Told(slots, common, {})


def _again(told: Told, again: Sequence[str], ids: Sequence[str]) -> bool | list[int]:
    if len(again) == len(ids):
        return True
    named = [int(p.rpartition(".")[2]) for p in again]
    here = [index for index in named if told.slots[index] != ABSENT]
    return True if len(here) == len(told.slots) - told.slots.count(ABSENT) else here


def _by_operator(partitions: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for partition in partitions:
        found.setdefault(partition.rpartition(".")[0], []).append(partition)
    return found


SELDOM = ("snapshot", "sealed", "standbys", "causes", "within", "waits", "hold", "survey")
"""Fields that most orders leave out, as there is nothing to say."""


def _own(command: Command, now: _Known, before: _Known | None, wanted: frozenset[str]) -> bytes:
    """What this node alone is told."""
    raw: dict[str, Any] = {"slot": command.slot, "ranges": command.ranges}
    if before is None or now.hosted != before.hosted:
        raw["hosted"] = now.hosted
    if before is None or now.installs != before.installs:
        raw["installs"] = now.installs
    if command.skips:
        raw["skips"] = [asdict(skip) for skip in command.skips]
    raw |= {name: value for name in SELDOM if (value := getattr(command, name))}
    if near := {t: x for t, x in now.near.items() if before is None or before.near.get(t) != x}:
        raw["near"] = near
    if now.needs.near and wanted:
        raw["resend"] = [t for t, (slot, _) in now.near.items() if t in wanted and slot != ABSENT]
    return _inner(raw)


def _acknowledging(command: Command) -> tuple[int, int]:
    """Bytes of what each node is told for ways to be available, and of what output it may forget before that is told of all
    partitions; none where no operator has such a way."""
    said = {name: value for name in ("standbys", "causes") if (value := getattr(command, name))}
    others = {"others": dict(command.covered.others)} if said and command.covered.others else {}
    return len(_inner(said)) if said else 0, len(_inner(others)) if others else 0


def _said(install: Install) -> dict[str, Any]:
    raw: dict[str, Any] = {"position": install.position, "file": install.file, "value": install.value}
    more = {
        "watermark": install.watermark,
        "since": install.since,
        "shown": install.shown,
        "sent": install.sent,
        "shadow": install.shadow or None,
        "promotes": install.promotes,
        "replays_to": install.replays_to,
        "numbered": install.numbered or None,
    }
    return raw | {name: value for name, value in more.items() if value is not None}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _inner(members: Mapping[str, Any]) -> bytes:
    """The members of a JSON object without its braces."""
    return _json(members)[1:-1]
