"""Whether a partition and its standby are one to everybody else, in each job of a run and after each batch.

The world's hosts are the real ones; they only say here what they send and step.  Source of H1 and H2: the invariants of
docs/decisions/0038-active-standbys.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from reprise.controller.simulated_world.topology import repeats_states
from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.node.command import Command, Order
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.installing import Attempt
from reprise.spark_jobs.node.passive import PassiveStandby
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime
from reprise.spark_jobs.node.sending import Sender
from reprise.spark_jobs.node.state_tables import STAGED
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.pages import Frozen, Parts, assembled, pieces
from reprise.spark_jobs.platform import Platform
from reprise.spark_jobs.state.skips import Skip
from reprise.spark_jobs.topology import StreamTopology, expand
from reprise.spark_jobs.topology.availability import passive_standbys, with_standbys
from reprise.spark_jobs.topology.binding import gaps_that_end
from reprise.spark_jobs.topology.guarantees import last_marked

MANY = 1000
"""Rows of a table that are compared one by one."""
State = dict[str, list[str]]
"""By table of a stored state: its rows as text, sorted, as a state has no order."""
Skips = tuple[tuple[str, int], ...]
"""Partitions that began anew, each with the last batch that is skipped for it."""
EVENT_TIME = "runtime/watermark"
"""Part of a state that says how far event time has come."""


class Seen:
    """A state as it was after a batch; most are never asked for, as nothing is stepped twice where nothing fails."""

    def __init__(self, encode: Callable[[], Parts] | None) -> None:
        self._encode = encode

    @cached_property
    def state(self) -> State:
        """Its rows."""
        return _rows(self._encode() if self._encode is not None else {})


class Twins:
    """What all hosts of one run have sent and stepped.  `breaks`: takes an invariant's name, and what does not hold."""

    def __init__(self, resource: StreamTopology, breaks: Callable[[str, str], None]) -> None:
        self.compared = 0
        """States that were seen before, somewhere else or in an earlier life of their partition."""
        self._breaks, self._repeats = breaks, repeats_states(resource)
        self._resource, self._topology = resource, expand(resource)
        self._copied = passive_standbys(resource, self._topology).keys()
        self._active = with_standbys(resource, self._topology) - self._copied
        self._states: dict[tuple[str, int], dict[Skips, Seen]] = {}
        self._others: dict[tuple[str, int], list[Seen]] = {}
        """States of which there may be more than one: after batches of which some input was made twice, and after each one
        where a replay may differ."""
        self._furthest: dict[str, dict[Skips, int]] = {}
        """The last batch that each partition has stepped, by what was skipped then."""
        self._follow: dict[tuple[str, int], dict[str, int]] = {}
        self._senders: dict[tuple[Order, str], str] = {}

    def sends(self, host: str, order: Order, partition: str) -> None:
        """H1: in one job one host sends for a partition."""
        first = self._senders.setdefault((order, partition), host)
        if first != host:
            self._breaks("H1", f"{first} and {host} send for {partition} in job {order}")

    def watches(self, partition: str) -> bool:
        """Whether states of a partition are compared: with one another, or where a replay may differ with its copies."""
        return self._repeats or partition in self._copied

    def has(
        self,
        host: str,
        partition: str,
        position: int,
        skips: Collection[Skip],
        seen: Seen,
        promoted: bool = False,
    ) -> None:
        """H2: after one batch a partition has one state, wherever and however often it was stepped or installed, as long as
        the batches that are skipped are the same, and none of them is one that its input was made from before.  Where a
        replay may differ it has one that it has had after that batch when its standby is `promoted`."""
        if not self.watches(partition):
            return
        if not self._repeats:
            if promoted:
                self._has_had(host, partition, position, seen.state)
            self._others.setdefault((partition, position), []).append(seen)
            return
        told = _named(skips)
        far = self._furthest.setdefault(partition, {})
        far[told] = max(position, far.get(told, 0))
        if any(self._made_twice(partition, position, skip) for skip in skips):
            self._others.setdefault((partition, position), []).append(seen)
            return
        before = self._states.setdefault((partition, position), {}).setdefault(told, seen)
        if before is seen:
            return
        self.compared += 1
        # while batches are skipped no event time comes with them, so that of the first ones stays
        late = any(self._made_twice(partition, position, skip, to_its_end=True) for skip in skips)
        one, other = (
            {name: rows for name, rows in state.items() if not (late and name == EVENT_TIME)}
            for state in (seen.state, before.state)
        )
        if one != other:
            self._differs(host, partition, position, one, other)

    def copies(self, host: str, partition: str, position: int, tables: Parts) -> None:
        """H2 of a passive standby: it holds a state that its partition has had after that batch."""
        if self.watches(partition):
            self._has_had(host, partition, position, _rows(tables))

    def _has_had(self, host: str, partition: str, position: int, state: State) -> None:
        known = self._states.get((partition, position), {})
        self.compared += 1
        had = [seen.state for seen in (*known.values(), *self._others.get((partition, position), ()))]
        if state not in had:
            self._differs(host, partition, position, state, *had)

    def _made_twice(self, partition: str, position: int, skip: Skip, to_its_end: bool = False) -> bool:
        """Whether a state after a batch follows from batches that a reader of a lost partition has made twice; or
        `to_its_end`: whether it does, or is one after a batch that is skipped behind them.

        It was further once than it was when it was decided what is skipped, and makes those batches again without rows that
        they had.  Who has applied them does not apply them again, and a replay applies the second ones (decision 0035).  Or
        its active standby was further, and keeps the state that follows from these rows.  All that follows from such batches
        is marked."""
        for reader, after in skip.after.items():
            if partition == reader and reader not in self._active:
                continue
            if partition not in self._topology.downstream_of([reader]):
                continue
            own = (skip.partition, skip.until)
            far = max((k for told, k in self._furthest.get(reader, {}).items() if own not in told), default=0)
            last = min(far, skip.until)
            ends = skip.until if to_its_end else 0
            if last > after and after < position <= max(ends, self._follows(reader, last)[partition]):
                return True
        return False

    def _follows(self, reader: str, batch: int) -> dict[str, int]:
        """The last batch that depends on one of a partition, for each partition behind it."""
        found = self._follow.get((reader, batch))
        if found is None:
            operator = self._topology.partitions[reader].place.operator
            last = last_marked(self._resource, self._operators, operator, batch)
            places = {p: self._topology.partitions[p].place for p in self._topology.downstream_of([reader])}
            found = self._follow[reader, batch] = {p: last[place.operator] for p, place in places.items()}
        return found

    @cached_property
    def _operators(self) -> dict[str, Operator]:
        return gaps_that_end(self._resource)

    def _differs(self, host: str, partition: str, position: int, state: State, *known: State) -> None:
        had = " or ".join(map(str, known)) or "no state then"
        self._breaks("H2", f"{partition} has {state} after batch {position} on {host}, and had {had}")


def _rows(tables: Parts) -> State:
    """Without output that waits for a checkpoint: that becomes less when one is complete, and no batch follows from it."""
    found = State()
    for name, part in tables.items():
        if name.startswith(STAGED):
            continue
        whole = [piece if isinstance(piece, pa.Table) else _unpaged(piece) for piece in pieces(part)]
        found[name] = sorted(repr(row) for table in whole for row in _different(table).to_pylist())
    return found


def _unpaged(piece: Frozen) -> pa.Table:
    pages = [piece.page(number) for number in range(len(piece.versions))]
    piece.release()
    return assembled(piece.describe(), pages)


def _different(table: pa.Table) -> pa.Table:
    """The rows of a table, each once with how often it is there: arrays have thousands that were never used."""
    if table.num_rows <= MANY:
        return table
    return table.group_by(table.column_names).aggregate([([], "count_all")])


def _named(skips: Collection[Skip]) -> Skips:
    return tuple(sorted((skip.partition, skip.until) for skip in skips))


class WatchedHost(Host):
    """A host that says what it does."""

    def __init__(self, name: str, folder: Path, platform: Platform, twins: Twins) -> None:
        super().__init__(name, folder, platform=platform)
        self._twins = twins
        self.sender = _WatchedSender(self, self.sender, twins)

    def deliver(self, message: Message) -> None:
        super().deliver(message)
        runtime = self.runtimes.get(message.target)
        if isinstance(runtime, PassiveStandby) and message.source == message.target and not runtime.is_empty:
            self._twins.copies(self.name, message.target, runtime.settled, runtime.copy.tables() or {})

    def _try(self, partition: str, attempt: Attempt, command: Command) -> None:
        before = self.runtimes.get(partition)
        super()._try(partition, attempt, command)
        if self.runtimes.get(partition) is not before:
            self._look_at(partition, command, promoted=attempt.install.promotes is not None)

    def _advance(self, partition: str, command: Command) -> bool:
        moved = super()._advance(partition, command)
        if moved:
            self._look_at(partition, command)
        return moved

    def _look_at(self, partition: str, command: Command, promoted: bool = False) -> None:
        """Say in which state a partition is; not of one that is fed again, until it gives what it gave before: nothing
        follows from what it is on the way there."""
        runtime = self.runtimes.get(partition)
        if (
            not self._twins.watches(partition)
            or not isinstance(runtime, OperatorRuntime)
            or 0 < runtime.replays_to >= runtime.position
        ):
            return
        seen = Seen(runtime.freeze({}))
        if runtime.paged:  # while it is not let go, each page that is written is copied for it
            _ = seen.state
        self._twins.has(self.name, partition, runtime.position, command.skips, seen, promoted)


class _WatchedSender(Sender):
    """Says for whom it sends."""

    def __init__(self, host: Host, sender: Sender, twins: Twins) -> None:
        super().__init__(sender.runtimes, sender.guard, sender.say, sender.busy, sender.clock)
        self._host, self._twins = host, twins

    def _pending(
        self, runtime: Runtime, target: str, applied: int, window: int, few: bool = False
    ) -> Iterator[tuple[Message, bytes]]:
        for found in super()._pending(runtime, target, applied, window, few):
            assert self._host.command is not None
            self._twins.sends(self._host.name, self._host.command.order, runtime.partition.id)
            yield found
