"""The recovery line: to which of its snapshots each partition goes back, for any set of failed partitions.

A snapshot is the state of one partition at one position, the last batch whose rows are in it.  A line gives a snapshot
to each failed partition, and to those at work that have to go back with them; all others stay as they are.  Recovery
replays from there.  A global checkpoint, where every partition goes back to one position, is the simplest line.

An edge u -> p has a delay d: 0, and 1 for a feedback edge.  A partition at position x has taken batches up to x - d
from u, and asks for `need = max(1, x + 1 - d)` next.  A line is valid when on each edge

- no message is missing: batches from `need` on can be had.  From a source they are read again, as far back as the ledger
  of ranges reaches.  From a partition that stays they are sent again, if its buffer begins early enough.  From one that
  goes back they are in its snapshot, or it makes them once more, also where p stays and has not come as far as that
  snapshot;
- no message is an orphan: if u goes back and a replay of it may differ, p has taken nothing that u makes again.  Where
  u is replayable (the same rows for the same batch) an orphan does no harm: p skips what it has taken.

`line` finds the greatest valid line: no partition could stay, or take a newer snapshot, in any other.  It begins with
the newest snapshots of the failed partitions and lowers what breaks a rule until nothing does.  A step never goes below
any valid line: such a line has, on that edge, to satisfy the same rule against a snapshot that is no newer.  Each step
takes an older snapshot, so it ends after at most as many steps as there are snapshots.

Source: G. Siachamis, K. Psarakis, M. Fragkoulis, A. van Deursen, P. Carbone, A. Katsifodimos, "CheckMate: Evaluating
Checkpointing Protocols for Streaming Dataflows", section III-B, Algorithm 1 (rollback propagation).  Lines are named
below.  It departs:

- Line 1 takes the newest checkpoint of every operator.  Here only failed partitions begin in the line.
- There every message since a checkpoint is in a durable log, so none is ever missing (Definition 5).  Here buffers,
  snapshots and the ledger reach back only so far, and a sender that no longer has a batch goes back, too.
- Lines 2 and 5 mark what is reachable in a graph of checkpoints.  Here two positions are compared on each edge;
  repeated, it is the same relation.  Edges from a replayable sender are left out.
- Line 4 takes the next older checkpoint.  Here it is the newest that satisfies the edge: the ones between would be
  marked again.
- There the initial state always ends it.  Here trimmed input may leave no valid line, and the answer is `Impossible`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

from reprise.algorithms.errors import InstanceError


class Heard(NamedTuple):
    """How far one input is in a state that was stored in the order of arrival, in numbers of its messages."""

    marker: int
    """Of the message with which the batch of the state's position was complete: what follows it is asked for again."""
    taken: int
    """Of the last message that is in the state."""


class Stored(Protocol):
    """What the line needs to know of a snapshot.  `channels`, `sent` and `first` count messages where `inputs` does, and
    batches else; a partition sends one message a batch where input is aligned, so that both are the same there."""

    @property
    def position(self) -> int:
        """The last batch whose rows are in it; what its senders have to send again begins behind this."""

    @property
    def channels(self) -> Mapping[str, int]:
        """Target -> first batch of output for it that is stored with the state; a target that is not named has none."""

    @property
    def sent(self) -> int:
        """Output up to this batch will not be made again, and every row up to it may have left a trace in the state."""

    @property
    def first(self) -> int:
        """The first batch whose output the partition, restored from this, makes exactly as before."""

    @property
    def inputs(self) -> Mapping[str, Heard]:
        """How far each input is, where it may be further than `position`; an input that is not named is at `position`."""


S = TypeVar("S", bound=Stored)


@dataclass(frozen=True, slots=True)
class Edge:
    """Output of partition `source` goes to partition `target`, `delay` batches later: 1 over a feedback edge, else 0."""

    source: str
    target: str
    delay: int = 0

    def need(self, position: int) -> int:
        """The batch that the target asks the source for next when it is at `position`."""
        return max(1, position + 1 - self.delay)


@dataclass(frozen=True)
class World(Generic[S]):
    """Everything that a line depends on.  InstanceError: a failed partition has no snapshot, snapshots are not in order, or
    a partition that has not failed has no position (the last two when `line` comes to need them)."""

    edges: Collection[Edge]
    sources: frozenset[str]
    """Partitions whose output is read again from the ledger's ranges."""
    snapshots: Mapping[str, tuple[S, ...]]
    """Of each partition, oldest first; neither `position` nor `sent` falls.  The initial state is one: position 0."""
    positions: Mapping[str, int]
    """Of partitions at work."""
    floors: Mapping[Edge, int]
    """The first batch that the edge's source, at work, still holds for its target; it holds nothing where none is named."""
    ledger_first: int
    """The first batch that sources can read again."""
    replayable: frozenset[str]
    """Partitions that give the same rows for the same batch when they replay."""
    absent: frozenset[str] = frozenset()
    """Partitions that are not at work and that no line has to bring back now: they ask for nothing and give nothing."""
    index: Mapping[str, tuple[Edge, ...]] | None = None
    """What `by_end` says of the edges, where somebody has asked it before."""

    def __post_init__(self) -> None:
        for partition, known in self.snapshots.items():
            for older, newer in pairwise(known):
                if older.position > newer.position or older.sent > newer.sent:
                    raise InstanceError(f"snapshots[{partition}]", f"{newer} follows {older}")

    @cached_property
    def touching(self) -> Mapping[str, tuple[Edge, ...]]:
        """Edges by each of their ends."""
        return by_end(self.edges) if self.index is None else self.index


def by_end(edges: Collection[Edge]) -> Mapping[str, tuple[Edge, ...]]:
    """Edges by each of their ends."""
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        for end in {edge.source, edge.target}:
            found.setdefault(end, []).append(edge)
    return {partition: tuple(ends) for partition, ends in found.items()}


class Cause(StrEnum):
    """Why no line is valid."""

    LEDGER = "ledger"  # the source cannot read what the target needs any more
    MISSING = "missing"  # no snapshot of the source goes back far enough to make what the target needs
    ORPHAN = "orphan"  # every snapshot of the target holds rows that the source may make differently


@dataclass(frozen=True, slots=True)
class Impossible:
    """There is no valid line.  `edge`: where it was noticed; `batch`: what the target would need of the source, or with
    `Cause.ORPHAN` the last batch that it may have taken."""

    edge: Edge
    cause: Cause
    batch: int


def line(world: World[S], failed: Collection[str]) -> Mapping[str, S] | Impossible:
    """The greatest valid line that has all of `failed` in it: partition -> snapshot; who is not in it stays."""
    chosen: dict[str, S] = {}
    for partition in failed:  # line 1
        if not world.snapshots.get(partition):
            raise InstanceError(f"snapshots[{partition}]", "it has failed and has none")
        chosen[partition] = world.snapshots[partition][-1]
    changed = deque(sorted(chosen))
    while changed:  # lines 3 to 6
        for edge in world.touching.get(changed.popleft(), ()):
            if edge.source in world.absent or edge.target in world.absent:
                continue
            for lowered in (_sender, _receiver):
                outcome = lowered(world, chosen, edge)
                if isinstance(outcome, Impossible):
                    return outcome
                if outcome is not None:
                    changed.append(outcome)
    return chosen


def _sender(world: World[S], chosen: dict[str, S], edge: Edge) -> str | Impossible | None:
    """Take the edge's source back to where it can give its target what that needs; its name if it was."""
    if edge.target in chosen:
        need = _needs(chosen[edge.target], edge)
    elif edge.source in chosen and edge.target in world.positions:
        need = edge.need(world.positions[edge.target])
    else:
        return None
    if edge.source in world.sources:
        return Impossible(edge, Cause.LEDGER, need) if world.ledger_first > need else None
    if edge.source in chosen:
        enough = _begins(chosen[edge.source], edge.target) <= need
    else:
        enough = edge in world.floors and world.floors[edge] <= need
    if enough:
        return None
    older = _newest(world, chosen, edge.source, lambda s: _begins(s, edge.target) <= need)
    if older is None:
        return Impossible(edge, Cause.MISSING, need)
    chosen[edge.source] = older
    return edge.source


def _receiver(world: World[S], chosen: dict[str, S], edge: Edge) -> str | Impossible | None:
    """Take the edge's target back behind what its source may make differently; its name if it was (lines 2 and 5)."""
    if edge.source not in chosen or edge.source in world.replayable:
        return None
    last = chosen[edge.source].sent + edge.delay
    if edge.target in chosen:
        seen = _seen(chosen[edge.target], edge)
    elif edge.target in world.positions:
        seen = world.positions[edge.target]
    else:
        raise InstanceError(f"positions[{edge.target}]", "it has not failed and has none")
    if seen <= last:
        return None
    older = _newest(world, chosen, edge.target, lambda s: _seen(s, edge) <= last)
    if older is None:
        return Impossible(edge, Cause.ORPHAN, chosen[edge.source].sent)
    chosen[edge.target] = older
    return edge.target


def _needs(snapshot: Stored, edge: Edge) -> int:
    """The first batch, or message, that the target of an edge asks its source for when it is restored from `snapshot`."""
    heard = snapshot.inputs.get(edge.source)
    return edge.need(snapshot.position) if heard is None else heard.marker + 1


def _seen(snapshot: Stored, edge: Edge) -> int:
    """The last batch, or message, of the source of an edge that may have left a trace in a snapshot of its target."""
    heard = snapshot.inputs.get(edge.source)
    return snapshot.sent if heard is None else heard.taken


def _begins(snapshot: Stored, target: str) -> int:
    """The first batch that a partition restored from `snapshot` can give to `target`."""
    return min(snapshot.channels.get(target, snapshot.first), snapshot.first)


def _newest(
    world: World[S], chosen: Mapping[str, S], partition: str, satisfies: Callable[[S], bool]
) -> S | None:
    """The newest snapshot of `partition`, not newer than the one in the line, that satisfies an edge (line 4)."""
    known = world.snapshots.get(partition, ())
    if partition in chosen:
        known = known[: known.index(chosen[partition]) + 1]
    return next((s for s in reversed(known) if satisfies(s)), None)
